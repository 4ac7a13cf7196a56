"""HTTP and WebSocket connections with bounded heads, waits and buffers: uvicorn's protocols with limits.

uvicorn's own limits end with the number of concurrent requests: a head may grow, and take time, without bound.
"""

import asyncio
import logging
import socket
import struct
from contextlib import suppress
from functools import partial
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from coresteer.auth.dependencies import SIGNED_IN
from coresteer.errors import BadRequest, HeadTooLarge, Problem, SlowRequest, to_response
from coresteer.http_server.limits import MAX_WAIT_S, PROGRESS_BYTES, ConnectionLimits, Peer

MAX_HEAD_BYTES = 16 * 1024
"""Of the request line and all headers; browsers send less than 2 KiB."""
MAX_HEADERS = 100
"""Each costs 150 bytes of memory, however short it is."""
MAX_PIPELINED = 8
"""Requests that a client sends before it has the answer to the first one; browsers and proxies send none."""
MAX_WAITING, MAX_SHORT_BYTES = 8, 4096
"""Short messages of a WebSocket that wait for the application before no more is read."""
MAX_UNREAD_BYTES = 8 * 1024 * 1024
"""Of answers to pings and messages that the peer of a WebSocket has not read, before it is disconnected."""

log = logging.getLogger("coresteer.http")
log.setLevel(logging.ERROR)  # what strangers send is no reason to fill a disk with lines about it

_TOO_LARGE = HeadTooLarge(
    f"The request line and headers may have at most {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} lines. "
    "If a browser sent this, delete its cookies for this address."
)
_TOO_SLOW = SlowRequest(f"The request was not complete after {MAX_WAIT_S:.0f} s. Send it again.")


def _nothing(_: bool) -> None:
    return


def _reset(transport: asyncio.Transport) -> None:
    """End a connection at once, also what the kernel still holds for a peer that does not read."""
    connected: socket.socket = transport.get_extra_info("socket")
    with suppress(OSError):  # it has ended already
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class BoundedHttp(HttpToolsProtocol):
    """One HTTP connection. Its peer waits from the beginning; see limits."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        peer: Peer,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.logger = log
        self.ws_protocol_class = partial(BoundedWebSocket, peer=peer, limits=limits)  # type: ignore[assignment]
        self._peer = peer
        self._limits = limits
        self._read_bytes = 0
        self._head_bytes = 0
        self._head_lines = 0
        self._in_head = False
        self._progress_bytes = 0
        self._unsent_bytes = 0
        self._refused = False
        self._discarded_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with a connection whose TLS handshake, if any, is complete."""
        super().connection_made(transport)
        self._peer.end = self._end

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no longer."""
        self._limits.leave(self._peer)
        self._peer.end = _nothing  # breaks the cycle, so that the memory is free at once
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; refuse a head, or trailers of a chunked body, that are too long before they are complete."""
        if self._refused:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > PROGRESS_BYTES:
                _reset(self.transport)
            return
        self._read_bytes = len(data)
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Begin a new request."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = self._read_bytes
        self._head_lines = self._progress_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header, or a trailer of a chunked body, if there are not too many."""
        self._head_lines += 1
        if self._head_lines > MAX_HEADERS:
            raise ValueError  # ends the parser, see send_400_response
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the application, unless the head is too large or the client does not wait for answers."""
        self._in_head = False
        self._head_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MAX_HEAD_BYTES:
            self._refuse(_TOO_LARGE)
        elif len(self.pipeline) >= MAX_PIPELINED:
            self.transport.abort()
        if not self._is_over():
            super().on_headers_complete()
            self._limits.begin_wait(self._peer)

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on; the wait for the rest begins anew after PROGRESS_BYTES."""
        self._head_bytes = 0
        if self._is_over():
            return
        super().on_body(body)
        self._progress_bytes += len(body)
        # what arrives after the response is discarded, and only for the rest of one wait
        if self._progress_bytes >= PROGRESS_BYTES and self.cycle is not None and not self.cycle.response_complete:
            self._progress_bytes = 0
            self._limits.begin_wait(self._peer)

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        self._head_bytes = 0
        if self._is_over():
            return
        super().on_message_complete()
        if self._is_working():
            self._limits.end_wait(self._peer)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket protocol."""
        if not self._is_over():
            self._limits.end_wait(self._peer)
            super().handle_websocket_upgrade()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._peer.is_signed_in = SIGNED_IN in self.cycle.scope["state"]
        if not self.pipeline:
            self._begin_wait()

    def pause_writing(self) -> None:
        """Wait until the peer reads."""
        super().pause_writing()
        self._begin_wait()

    def resume_writing(self) -> None:
        """Go on with the response."""
        super().resume_writing()
        if self._is_working():
            self._limits.end_wait(self._peer)

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed, with the reason."""
        self._refuse(_TOO_LARGE if self._head_lines > MAX_HEADERS else BadRequest(msg))

    def _is_working(self) -> bool:
        """Return whether the application has a whole request that is not answered."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _is_over(self) -> bool:
        """Return whether what arrives from now on is discarded."""
        return self._refused or self.transport.is_closing()

    def _begin_wait(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._limits.begin_wait(self._peer)

    def _end(self, for_others: bool) -> None:
        """End the connection, unless it only waits for the application, or its peer is slow but reads."""
        unsent = self.transport.get_write_buffer_size()
        is_moving = self._unsent_bytes - unsent >= min(self._unsent_bytes, PROGRESS_BYTES) > 0
        is_body_missing = self.cycle is not None and self.cycle.more_body and not self.cycle.response_started
        if for_others:
            _reset(self.transport)
        elif is_moving or self.flow.read_paused:
            self._begin_wait()
        elif unsent or self._refused:
            _reset(self.transport)
        elif self._in_head or is_body_missing:
            self._refuse(_TOO_SLOW)
        else:
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        """Answer with a problem document and end the connection.

        A client that still sends would lose the answer if its connection were closed at once, so what it sends is
        discarded for a while.
        """
        if self._is_over():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            if self.cycle.response_started or self.pipeline:
                return self.transport.abort()
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = bytes(to_response(problem).body)
        head = b"content-type: application/problem+json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[problem.status] + head + body)
        if not self.transport.can_write_eof():  # TLS
            return self.transport.close()
        self._refused = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self._limits.begin_wait(self._peer)


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """One WebSocket connection; it waits for its peer again once it is closing."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        peer: Peer,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._peer = peer
        self._limits = limits
        peer.end = lambda _: _reset(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no longer."""
        self._limits.leave(self._peer)
        self._peer.end = _nothing  # breaks the cycle, so that the memory is free at once
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; disconnect a peer that sends but does not read."""
        if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            return _reset(self.transport)
        super().data_received(data)

    def send_receive_event_to_app(self) -> None:
        """Pass a message on; uvicorn then reads no more until the application has it, here only after several or long.

        Stopping and starting to read costs a sixth of what it takes to receive a short message.
        """
        stop_reading = self.queue.qsize() >= MAX_WAITING or sum(map(len, self.frames)) > MAX_SHORT_BYTES
        if stop_reading or self.read_paused:
            super().send_receive_event_to_app()
        else:
            self.read_paused = True
            super().send_receive_event_to_app()
            self.read_paused = False

    def shutdown(self) -> None:
        """Close the connection, unless its peer has begun to: a second close frame is an error (RFC 6455, 5.5.1)."""
        if self.transport.is_closing():
            self.stop_keepalive()
        else:
            super().shutdown()

    async def send(self, message: Any) -> None:  # noqa: ANN401 - uvicorn's private type of messages
        """Send a message of the application."""
        await super().send(message)
        if self.close_sent:
            self._limits.begin_wait(self._peer)
