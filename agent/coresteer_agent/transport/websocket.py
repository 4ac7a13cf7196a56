"""WebSocket connection to the backend on a non-blocking socket, for one thread.

The protocol is that of the websockets package; its own client would add HTTP and e-mail modules and two threads per
connection, 4 MiB of memory in all.
"""

import os
import select
import socket
import time
from contextlib import suppress

from coresteer_agent.transport.websocket_protocol import ClientProtocol, Close, Frame, Opcode, State, WebSocketURI
from coresteer_core.protocol import MAX_FRAME_BYTES

_CHUNK = 16 * 1024
_CLOSE_TIMEOUT_S = 1.0


class ClosedError(Exception):
    """Raised when the connection has ended. close: the backend's code and reason, None if it was lost without."""

    def __init__(self, close: Close | None) -> None:
        super().__init__(close)
        self.close = close


class Wakeup:
    """Wakes a thread that polls its descriptor; a wake-up before the poll ends the poll at once."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __del__(self) -> None:
        os.close(self._fd)

    def fileno(self) -> int:
        """Return the descriptor that is readable after wake()."""
        return self._fd

    def wake(self) -> None:
        """Wake the polling thread. Callable from any thread; never blocks."""
        os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        """Reset the descriptor after a wake-up."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._fd)


def connect(uri: WebSocketURI, timeout_s: float) -> socket.socket:
    """Return a socket connected to the URI's host, with TLS for wss. Raises OSError, UnicodeError (invalid host)."""
    plain = socket.create_connection((uri.host, uri.port), timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not uri.secure:
            return plain
        from coresteer_agent.transport.tls import wrap_in_tls  # noqa: PLC0415 - memory that an agent beside its backend need not spend

        return wrap_in_tls(plain, uri.host)
    except BaseException:
        plain.close()
        raise


class WebSocket:
    """A WebSocket over a connected socket, which it closes. Call shake_hands() first.

    keepalive_s: interval of pings; the connection is lost if one is not answered within the next interval.
    """

    def __init__(
        self, connected: socket.socket, uri: WebSocketURI, key: str, wakeup: Wakeup, *, keepalive_s: float
    ) -> None:
        connected.setblocking(False)
        # a connection without TCP acknowledgements is given up before the kernel's own timeout
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(keepalive_s * 2000))
        self.local_address = str(connected.getsockname()[0]).partition("%")[0]
        """The local address of the connection."""
        self._socket = connected
        self._key = key
        self._wakeup = wakeup
        self._protocol = ClientProtocol(uri, max_size=MAX_FRAME_BYTES)
        self._out = bytearray()
        self._messages: list[bytes | str] = []
        self._partial = bytearray()
        self._partial_is_text = False
        self._keepalive_s = keepalive_s
        self._due = time.monotonic() + keepalive_s
        self._pinged = False
        self._closing = False

    def shake_hands(self, timeout_s: float) -> None:
        """Perform the opening handshake of the WebSocket.

        Raises InvalidHandshake for another answer, TimeoutError, and ClosedError.
        """
        request = self._protocol.connect()
        request.headers["Authorization"] = f"Bearer {self._key}"
        self._protocol.send_request(request)
        self._flush()
        until = time.monotonic() + timeout_s
        self._due = until + self._keepalive_s  # no pings before it is open
        while self._protocol.state is State.CONNECTING:
            if time.monotonic() >= until:
                raise TimeoutError("the backend accepted the connection but did not answer")
            self._poll_once(until)
            if self._protocol.handshake_exc is not None:
                raise self._protocol.handshake_exc
        self._due = time.monotonic() + self._keepalive_s

    @property
    def idle(self) -> bool:
        """Return whether all sent data was handed to the kernel."""
        return not self._out

    def send(self, frame: bytes) -> None:
        """Send one binary message; it is buffered while the kernel accepts no more (see idle).

        No effect on a closing connection; the next receive() raises then.
        """
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(frame)
            self._flush()

    def receive(self, until: float | None = None) -> list[bytes | str]:
        """Return received messages; wait for some, a wakeup, all data sent, or the monotonic time until.

        A str is a text message. Raises ClosedError.
        """
        if not self._messages:
            if self._protocol.state is State.CLOSED:
                raise ClosedError(self._protocol.close_rcvd)
            self._poll_once(until)
        messages, self._messages = self._messages, []
        return messages

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Perform the closing handshake with a timeout; idempotent."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
            self._flush()
        while self._protocol.state is State.CLOSING:
            self._poll_once(None)
        self._socket.close()

    def _poll_once(self, until: float | None) -> None:
        """Wait for the next event and handle it."""
        now = time.monotonic()
        if self._protocol.close_expected() and not self._closing:
            self._closing = True
            self._due = now + _CLOSE_TIMEOUT_S
        wait_s = min(self._due, self._due if until is None else until) - now
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        poll.register(self._socket, select.POLLIN | select.POLLOUT if self._out else select.POLLIN)
        poll.poll(max(wait_s, 0.0) * 1000)
        self._wakeup.clear()
        self._flush()
        self._read()
        if time.monotonic() >= self._due:
            self._handle_timeout()

    def _handle_timeout(self) -> None:
        """Handle that a close or ping was not answered in time, or that the next ping is due."""
        if self._closing or self._pinged:
            self._protocol.receive_eof()
        elif self._protocol.state is State.OPEN:
            self._protocol.send_ping(b"")
            self._pinged = True
            self._due = time.monotonic() + self._keepalive_s
            self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            self._out += data
        try:
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # what the backend sent before it closed can still be read

    def _read(self) -> None:
        """Read all available data, as TLS may hold data that poll(2) does not report."""
        if self._protocol.state is State.CLOSED:
            return
        try:
            while data := self._socket.recv(_CHUNK):
                self._protocol.receive_data(data)
            self._protocol.receive_eof()
        except BlockingIOError:
            pass
        except OSError:
            self._protocol.receive_eof()
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._handle_frame(event)
        self._flush()

    def _handle_frame(self, frame: Frame) -> None:
        match frame.opcode:
            case Opcode.PONG:
                self._pinged = False
            case Opcode.BINARY | Opcode.TEXT | Opcode.CONT:
                if frame.opcode is not Opcode.CONT:
                    self._partial_is_text = frame.opcode is Opcode.TEXT
                self._partial += frame.data
                if frame.fin:
                    whole = bytes(self._partial)
                    self._partial = bytearray()
                    self._messages.append(whole.decode(errors="replace") if self._partial_is_text else whole)
