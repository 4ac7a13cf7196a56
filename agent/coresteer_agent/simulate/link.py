"""A WebSocket to the backend: the websockets package's protocol on an asyncio transport.

Unlike in the package's own client, sending never waits, so that one connection the backend does not read cannot hold
up the scheduler that serves all nodes. Its cost is the same: 18 µs a sample of 4 kB.
"""

import asyncio
from collections.abc import Callable

from coresteer_agent.transport.websocket_protocol import (
    ClientProtocol,
    Frame,
    InvalidStatus,
    Opcode,
    State,
    WebSocketURI,
)
from coresteer_core.protocol import MAX_FRAME_BYTES


class Link(asyncio.Protocol):
    """One connection. opened: it may be used; received: a binary message came; resumed: it is writable again;
    ended: it is over, see why(). writable: what is sent now does not pile up in memory.
    """

    def __init__(
        self,
        uri: WebSocketURI,
        key: str,
        *,
        opened: Callable[[], None],
        received: Callable[[bytes], None],
        resumed: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self.writable = True
        self._opened = opened
        self._received = received
        self._resumed = resumed
        self._ended = ended
        self._protocol = ClientProtocol(uri, max_size=MAX_FRAME_BYTES)
        self._key = key
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks for the WebSocket."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - create_connection gives nothing else
        self._transport = transport
        request = self._protocol.connect()
        request.headers["Authorization"] = f"Bearer {self._key}"
        self._protocol.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Passes on what came."""
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if not isinstance(event, Frame):
                if self._protocol.state is State.OPEN:
                    self._opened()
            elif event.opcode is Opcode.BINARY and event.fin:
                self._received(bytes(event.data))
        self._flush()

    def pause_writing(self) -> None:
        """The backend does not keep up."""
        self.writable = False

    def resume_writing(self) -> None:
        """It does again."""
        self.writable = True
        self._resumed()

    def eof_received(self) -> None:
        """The backend has closed its side."""
        self._protocol.receive_eof()
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        """The end, with or without a reason."""
        self._ended()

    def send(self, frame: bytes) -> None:
        """One binary message; dropped when the connection is closing, the node replays it on the next."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(frame)
            self._flush()

    def close(self) -> None:
        """Says goodbye; it ends when the backend has answered."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1001, "The simulation has ended.")
            self._flush()
        elif self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        """Ends the connection without waiting for anybody."""
        if self._transport is not None:
            self._transport.abort()

    def why(self) -> tuple[int | None, str]:
        """Close code or HTTP status, with the reason as the backend gave it."""
        refused = self._protocol.handshake_exc
        if isinstance(refused, InvalidStatus):
            return refused.response.status_code, str(refused)
        return self._protocol.close_code, self._protocol.close_reason or (str(refused) if refused else "")

    def _flush(self) -> None:
        assert self._transport is not None  # noqa: S101 - nothing is sent before connection_made
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.write_eof() if self._transport.can_write_eof() else self._transport.close()
