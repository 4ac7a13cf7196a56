"""A backend of the tests' own on a real socket."""

import ssl
import threading
from collections.abc import Sequence
from queue import SimpleQueue

from tests.support.polling import PATIENCE_S
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from coresteer_core.protocol import (
    PROTOCOL_VERSION,
    ColumnsMessage,
    Hello,
    RatesMessage,
    ToBackend,
    Welcome,
    decode_to_backend,
    encode,
)


class Backend:
    """Hands every connection and everything said on it to the test."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.connections: SimpleQueue[Connection] = SimpleQueue()
        self._server: Server = serve(
            self._serve, "127.0.0.1", 0, ssl=tls, compression=None, max_size=None, close_timeout=1
        )
        self.address = f"http{'s' if tls else ''}://127.0.0.1:{self._server.socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def _serve(self, websocket: ServerConnection) -> None:
        connection = Connection(websocket)
        self.connections.put(connection)
        try:
            for frame in websocket:
                connection.heard.put(decode_to_backend(frame if isinstance(frame, bytes) else frame.encode()))
        except ConnectionClosed:
            pass
        connection.closed.set()

    def next_connection(self) -> "Connection":
        return self.connections.get(timeout=PATIENCE_S)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(PATIENCE_S)


class Connection:
    def __init__(self, websocket: ServerConnection) -> None:
        self.websocket = websocket
        self.heard: SimpleQueue[ToBackend] = SimpleQueue()
        self.closed = threading.Event()

    def hear(self) -> ToBackend:
        return self.heard.get(timeout=PATIENCE_S)

    def hello(self) -> Hello:
        message = self.hear()
        assert isinstance(message, Hello)
        return message

    def seqs(self, count: int) -> list[int]:
        """The sequence numbers of the next samples."""
        found: list[int] = []
        while len(found) < count:
            message = self.hear()
            if isinstance(message, RatesMessage):
                found.append(message.rates.seq)
            elif isinstance(message, ColumnsMessage):
                found += range(message.first_seq, message.last_seq + 1)
        return found

    def welcome(
        self, acked_seq: int = 0, protocol: int = PROTOCOL_VERSION, rejected: int = 0, features: Sequence[str] = ()
    ) -> None:
        """Accept the agent. features: none, as a backend of version 0.1.0."""
        self.websocket.send(encode(Welcome(protocol, 7, acked_seq, rejected, list(features))))

    def close(self, code: int = 1001, reason: str = "") -> None:
        self.websocket.close(code, reason)
