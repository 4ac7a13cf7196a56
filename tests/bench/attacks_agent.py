"""Attacks on an agent for bench_attacks: by its backend, and by a local user at its gate."""

import os
import re
import resource
import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

from tests.bench.attacked_agent import AgentAccess, GateAccess
from websockets.frames import Frame, Opcode
from websockets.utils import accept_key

from coresteer_core.changes.plan import Action, Plan
from coresteer_core.protocol import PROTOCOL_VERSION, Apply, Extend, Ping, ToAgent, Welcome, encode

IDLE = 4200
HOLDING = 64
ENTERING = 200
NOBODY = 65534
"""The account of the local user, if the bench runs as root; else the honest one is attacked by its own account."""


def plans_without_end(access: AgentAccess) -> Iterator[int]:
    """Send plans of one setting. Yields messages."""
    plan = Plan([Action("irq/41/affinity", "0-1", "1", "flood")])
    yield from _flood(access, [Apply(f"{time.monotonic_ns()}-{number}", plan, 60) for number in range(100)])


def large_messages(access: AgentAccess) -> Iterator[int]:
    """Send plans and extensions of 3 MB. Yields messages."""
    plan = Plan([Action("irq/41/affinity", "0-1", "x" * 3_000_000, "flood")])
    yield from _flood(access, [Apply(str(time.monotonic_ns()), plan, 60), Extend("y" * 3_000_000, 1.0)])


def questions_without_end(access: AgentAccess) -> Iterator[int]:
    """Ask for the time and never read the answers. Yields messages."""
    yield from _flood(access, [Ping(number) for number in range(100)])


def _flood(access: AgentAccess, messages: list[ToAgent]) -> Iterator[int]:
    """Be the agent's backend, and send messages without end on each of its connections."""
    data = b"".join(_frame(message) for message in messages)
    with socket.create_server(("127.0.0.1", access.port)) as server:
        server.settimeout(1.0)
        while True:
            yield 0
            with suppress(OSError), server.accept()[0] as agent:
                agent.settimeout(1.0)
                request = b""
                while b"\r\n\r\n" not in request:
                    request += agent.recv(4096)
                key = re.search(rb"(?i)sec-websocket-key: (\S+)", request)
                accepted = accept_key(key[1].decode()) if key is not None else ""
                answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                agent.sendall(f"{answer}Sec-WebSocket-Accept: {accepted}\r\n\r\n".encode())
                agent.sendall(_frame(Welcome(PROTOCOL_VERSION, 7, 0)))
                while True:
                    agent.sendall(data)
                    yield len(messages)


def _frame(message: ToAgent) -> bytes:
    return Frame(Opcode.BINARY, encode(message)).serialize(mask=False)


def held_slots(access: GateAccess) -> Iterator[int]:
    """Enter on many connections and never leave. Yields requests."""
    yield from _repeat(access, HOLDING, leave=False)


def entering_without_end(access: GateAccess) -> Iterator[int]:
    """Enter and leave on many connections, as fast as the gate answers. Yields requests."""
    yield from _repeat(access, ENTERING, leave=True)


def _repeat(access: GateAccess, connections: int, *, leave: bool) -> Iterator[int]:
    _become_local_user()
    held: dict[int, socket.socket] = {}
    poll = select.poll()
    while True:
        while len(held) < connections:
            worker = _connected(access)
            held[worker.fileno()] = worker
            poll.register(worker, select.POLLIN)
            worker.send(b"enter gold")
            yield 1
        yield 0
        for fd, _ in poll.poll(100):
            worker = held[fd]
            reply = b""
            with suppress(OSError):
                reply = worker.recv(256)
                if reply and leave:
                    worker.send(b"leave ok")
                    worker.send(b"enter gold")
            if not reply or reply == b"go":
                poll.unregister(fd)
                held.pop(fd).close()
            yield int(leave)


def idle_connections(access: GateAccess) -> Iterator[int]:
    """Hold as many connections as possible without a request, and open those again that end. Yields connections."""
    _become_local_user()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * IDLE), hard))
    held: list[socket.socket] = []
    poll = select.poll()
    while True:
        over = {fd for fd, _ in poll.poll(0)}
        for connection in held:
            if connection.fileno() in over:
                poll.unregister(connection)
                connection.close()
        held = [connection for connection in held if connection.fileno() >= 0]
        while len(held) < IDLE:
            with suppress(OSError):
                held.append(_connected(access))
                poll.register(held[-1], select.POLLIN)
            yield 1


def _connected(access: GateAccess) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(1.0)
    try:
        connection.connect(access.path)
    except OSError:
        connection.close()
        raise
    return connection


def _become_local_user() -> None:
    if os.geteuid() == 0:
        os.setuid(NOBODY)
