"""Anonymous attacks on the backend's HTTP server, for bench_attacks."""

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from tests.bench.attacked_backend import Access

CONNECTIONS = 1100
SLOW_CONNECTIONS = 200
_BEGIN = b"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_UPGRADE = (
    b"GET /api/agent HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer %s\r\n\r\n"
)
_BLOCK = 64 * 1024


def headers_without_end(access: Access) -> Iterator[int]:
    """Send headers until the connection ends. Yields bytes."""
    with socket.create_connection((access.host, access.port), 5) as connection:
        connection.sendall(_BEGIN)
        number = 0
        while True:
            number += 1
            line = b"X-%d: %s\r\n" % (number, b"a" * (_BLOCK - 20))
            connection.sendall(line)
            yield len(line)


def incomplete_requests(access: Access) -> Iterator[int]:
    """Hold as many connections as possible, each with an incomplete request. Yields connections."""
    return _held(access, lambda _: _BEGIN)


def sockets_without_a_key(access: Access) -> Iterator[int]:
    """Open WebSockets of agents with keys that do not exist, and leave them open. Yields connections."""
    return _held(access, lambda _: _UPGRADE % b"csk_unknown")


def sockets_without_a_hello(access: Access) -> Iterator[int]:
    """Open WebSockets with the key of a node, and say nothing. Yields connections."""
    keys = access.agent_keys
    return _held(access, lambda number: _UPGRADE % keys[number % len(keys)].encode())


def _held(access: Access, begin: Callable[[int], bytes]) -> Iterator[int]:
    """Keep CONNECTIONS open. begin: what each of them sends, by its number. Yields connections."""
    held: list[socket.socket] = []
    while True:
        held = _still_open(held)
        yield 0
        while len(held) < CONNECTIONS:
            with suppress(OSError):
                held.append(_begun(access, begin(len(held))))
            yield 1
        time.sleep(0.05)


def slowloris(access: Access) -> Iterator[int]:
    """Hold connections whose requests grow by one header a second. Yields headers."""
    return _grown(access, _BEGIN, b"X-a: b\r\n")


def slow_bodies(access: Access) -> Iterator[int]:
    """Hold connections whose bodies grow by one byte a second. Yields bytes."""
    begin = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"
    return _grown(access, begin, b" ")


def _grown(access: Access, begin: bytes, more: bytes) -> Iterator[int]:
    """Keep SLOW_CONNECTIONS open and send more on each of them once a second. Yields what was sent."""
    held: list[socket.socket] = []
    while True:
        held = _still_open(held)
        while len(held) < SLOW_CONNECTIONS:
            with suppress(OSError):
                held.append(_begun(access, begin))
            yield 1
        for connection in held:
            with suppress(OSError):
                connection.send(more)
            yield 1
        time.sleep(1)


def _begun(access: Access, begin: bytes = _BEGIN) -> socket.socket:
    connection = socket.create_connection((access.host, access.port), 2)
    connection.sendall(begin)
    return connection


def _still_open(held: list[socket.socket]) -> list[socket.socket]:
    """Close the connections that the backend has ended; return the others."""
    poll = select.poll()
    for connection in held:
        poll.register(connection, select.POLLRDHUP)
    over = {fd for fd, _ in poll.poll(0)}
    for connection in held:
        if connection.fileno() in over:
            connection.close()
    return [connection for connection in held if connection.fileno() >= 0]
