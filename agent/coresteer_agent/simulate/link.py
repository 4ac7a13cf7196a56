"""WebSocket connection of a simulated agent: the protocol of the websockets package on an asyncio transport.

Unlike in the package's own client, sending never waits, so a connection that the backend does not read cannot block the
scheduler that serves all nodes. The cost is the same: 18 µs for a sample of 4 kB.
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
    """One WebSocket connection of a simulated agent. writable: False while the transport's buffer is full.

    opened, received, resumed, ended: called when the WebSocket is open, on each binary message, when the connection is
    writable again, and when it is closed (see close_reason()).
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
        """Send the opening handshake of the WebSocket."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - create_connection gives nothing else
        self._transport = transport
        request = self._protocol.connect()
        request.headers["Authorization"] = f"Bearer {self._key}"
        self._protocol.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Parse bytes received from the backend and report complete messages."""
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if not isinstance(event, Frame):
                if self._protocol.state is State.OPEN:
                    self._opened()
            elif event.opcode is Opcode.BINARY and event.fin:
                self._received(bytes(event.data))
        self._flush()

    def pause_writing(self) -> None:
        """Mark the connection as not writable: the backend reads too slowly."""
        self.writable = False

    def resume_writing(self) -> None:
        """Mark the connection as writable again."""
        self.writable = True
        self._resumed()

    def eof_received(self) -> None:
        """Handle the end of the backend's stream."""
        self._protocol.receive_eof()
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        """Report that the TCP connection has ended."""
        self._ended()

    def send(self, frame: bytes) -> None:
        """Send a binary message; dropped while the connection is closing, as the node sends it again later."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(frame)
            self._flush()

    def close(self) -> None:
        """Start the closing handshake of the WebSocket."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1001, "The simulation has ended.")
            self._flush()
        elif self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        """Close the connection without a handshake."""
        if self._transport is not None:
            self._transport.abort()

    def close_reason(self) -> tuple[int | None, str]:
        """Return the WebSocket close code or HTTP status (None if lost without one), and the backend's reason."""
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
