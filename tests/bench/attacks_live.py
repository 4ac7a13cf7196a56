"""Attacks of a signed-in user on the browsers' WebSocket, for bench_attacks."""

import socket
from collections.abc import Iterator

from tests.bench.attacked_backend import Access

PAGES = 8
_HANDSHAKE = (
    b"GET /api/v1/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer %s\r\n\r\n"
)
_AT_ONCE = 1000


def subscription_flood(access: Access) -> Iterator[int]:
    """Subscribe to one node after the other on several pages at once, and open another page for each closed one."""
    pages: list[socket.socket] = []
    frames = b"".join(_frame(b'{"node":%d,"fleet":{}}' % node) for node in range(_AT_ONCE))
    while True:
        while len(pages) < PAGES:
            pages.append(_page(access))
        for page in list(pages):
            try:
                if not page.recv(2**16):
                    raise ConnectionResetError
            except BlockingIOError:
                pass
            except OSError:
                pages.remove(page)
                page.close()
                continue
            try:
                yield page.send(frames) // (len(frames) // _AT_ONCE)
            except BlockingIOError:
                yield 0
            except OSError:
                pages.remove(page)
                page.close()


def _page(access: Access) -> socket.socket:
    page = socket.create_connection((access.host, access.port), 5)
    page.sendall(_HANDSHAKE % access.viewer_token.encode())
    page.setblocking(False)
    return page


def _frame(text: bytes) -> bytes:
    """Return a masked text frame; a mask of zeros leaves the text as it is (RFC 6455, 5.3)."""
    return bytes((0x81, 0x80 | len(text))) + bytes(4) + text
