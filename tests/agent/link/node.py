"""The agent's end of a link, and a raw backend that sends given WebSocket frames."""

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, Unpack

from tests.agent.fake_backend import Backend, Connection
from tests.support.polling import PATIENCE_S
from websockets.frames import Frame
from websockets.utils import accept_key

from coresteer_agent.runtime.identity import make_hello
from coresteer_agent.transport.enrol import NodeKey
from coresteer_agent.transport.inbox import Inbox
from coresteer_agent.transport.link import Link
from coresteer_agent.transport.link_events import LinkEvent
from coresteer_agent.transport.websocket import ConnectionTiming
from coresteer_core.changes.events import BackendReconnected
from coresteer_core.protocol import COLUMNS, PROTOCOL_VERSION, Welcome, encode

QUICK = ConnectionTiming(
    first_retry_s=0.01,
    longest_retry_s=0.02,
    slow_retry_s=0.05,
    stable_s=60,
    welcome_s=PATIENCE_S,
    keepalive_s=PATIENCE_S,
)


class LinkOptions(TypedDict, total=False):
    """Arguments of Link that a test may give."""

    renew_key: Callable[[], NodeKey]
    store_key: Callable[[NodeKey], None]
    max_count: int


class Node:
    """An agent's link to the backend at an address, and the events that it received."""

    def __init__(
        self,
        address: str,
        timing: ConnectionTiming = QUICK,
        *,
        previous: str | None = None,
        **options: Unpack[LinkOptions],
    ) -> None:
        self.heard: Inbox[LinkEvent] = Inbox()
        hello = make_hello(Path("/nonexistent"), 1.0, None)
        key = NodeKey(address, 7, "n", "secret", previous=previous)
        self.link = Link(key, hello, self.heard, timing=timing, **options)
        self.link.start()

    def next(self) -> LinkEvent:
        event = self.heard.get(PATIENCE_S)
        assert event is not None
        return event


def watched(backend: Backend, node: Node) -> Connection:
    """Return a connection whose backend accepts blocks."""
    connection = backend.next_connection()
    connection.hello()
    connection.welcome(features=[COLUMNS, "of a newer version"])
    assert node.next() == BackendReconnected()
    return connection


class RawPeer:
    """A backend that sends given frames and nothing else."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def close(self) -> None:
        self._server.close()

    def accept(self, *frames: Frame) -> socket.socket:
        """Accept a WebSocket and send the frames in the same TCP segment."""
        taken, _ = self._server.accept()
        request = b""
        while b"\r\n\r\n" not in request:
            request += taken.recv(4096)
        key = re.search(rb"(?i)sec-websocket-key: (\S+)", request)
        assert key is not None
        answer = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept_key(key[1].decode())}\r\n\r\n"
        ).encode()
        taken.sendall(answer + b"".join(frame.serialize(mask=False) for frame in frames))
        return taken


WELCOME = encode(Welcome(PROTOCOL_VERSION, 7, 0))
