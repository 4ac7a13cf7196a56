"""One WebSocket to the backend on a plain socket that never blocks, all of it for one thread.

The protocol is the websockets package's; its own client would add HTTP and e-mail modules and two threads a
connection, together 4 MiB of memory.
"""

import os
import select
import socket
import time
from contextlib import suppress

from coresteer_agent.transport.websocket_protocol import ClientProtocol, Close, Frame, Opcode, State, WebSocketURI
from coresteer_core.protocol import MAX_FRAME_BYTES

_CHUNK = 16 * 1024
_GOODBYE_S = 1.0


class ClosedError(Exception):
    """The connection is over. close: the backend's code and reason, None when it was lost without any."""

    def __init__(self, close: Close | None) -> None:
        super().__init__(close)
        self.close = close


class Alarm:
    """Ends another thread's waiting. Rung before the waiting begins, it ends it at once."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __del__(self) -> None:
        os.close(self._fd)

    def fileno(self) -> int:
        """For poll: readable when it rings."""
        return self._fd

    def ring(self) -> None:
        """May be called from any thread; never waits."""
        os.eventfd_write(self._fd, 1)

    def silence(self) -> None:
        """The thread is awake."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._fd)


def connect(uri: WebSocketURI, timeout_s: float) -> socket.socket:
    """A connected socket, with TLS where the address asks for it. Raises OSError, and UnicodeError for odd names."""
    plain = socket.create_connection((uri.host, uri.port), timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not uri.secure:
            return plain
        from coresteer_agent.transport.tls import wrap  # noqa: PLC0415 - memory that an agent beside its backend need not spend

        return wrap(plain, uri.host)
    except BaseException:
        plain.close()
        raise


class WebSocket:
    """One connection over a connected socket, which is closed with it. Begin with shake_hands().

    keepalive_s: after each such time a ping; when none is answered in the next one, the connection is lost.
    """

    def __init__(
        self, connected: socket.socket, uri: WebSocketURI, key: str, alarm: Alarm, *, keepalive_s: float
    ) -> None:
        connected.setblocking(False)
        # what the backend's machine does not even acknowledge is lost before the kernel would give up
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(keepalive_s * 2000))
        self.local_address = str(connected.getsockname()[0]).partition("%")[0]
        """The address on this machine."""
        self._socket = connected
        self._key = key
        self._alarm = alarm
        self._protocol = ClientProtocol(uri, max_size=MAX_FRAME_BYTES)
        self._out = bytearray()
        self._arrived: list[bytes | str] = []
        self._partial = bytearray()
        self._partial_is_text = False
        self._keepalive_s = keepalive_s
        self._due = time.monotonic() + keepalive_s
        self._pinged = False
        self._closing = False

    def shake_hands(self, timeout_s: float) -> None:
        """Ask for the WebSocket and wait for it.

        Raises InvalidHandshake when the answer is another one, TimeoutError, and ClosedError.
        """
        request = self._protocol.connect()
        request.headers["Authorization"] = f"Bearer {self._key}"
        self._protocol.send_request(request)
        self._flush()
        until = time.monotonic() + timeout_s
        self._due = until + self._keepalive_s  # there are no pings before it is open
        while self._protocol.state is State.CONNECTING:
            if time.monotonic() >= until:
                raise TimeoutError("it took the connection but did not answer")
            self._turn(until)
            if self._protocol.handshake_exc is not None:
                raise self._protocol.handshake_exc
        self._due = time.monotonic() + self._keepalive_s

    @property
    def idle(self) -> bool:
        """Everything sent has left for the kernel."""
        return not self._out

    def send(self, frame: bytes) -> None:
        """One binary message. It waits in memory when the kernel does not take it; see idle.

        Without effect on a connection that is ending, which the next receive() tells.
        """
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(frame)
            self._flush()

    def receive(self, until: float | None = None) -> list[bytes | str]:
        """Wait, and keep the connection going, until messages come, the alarm rings, everything has been sent or
        the monotonic time until; then the messages. A str is a text message. Raises ClosedError.
        """
        if not self._arrived:
            if self._protocol.state is State.CLOSED:
                raise ClosedError(self._protocol.close_rcvd)
            self._turn(until)
        arrived, self._arrived = self._arrived, []
        return arrived

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye and wait a moment for the answer. May be called again and after any failure."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
            self._flush()
        while self._protocol.state is State.CLOSING:
            self._turn(None)
        self._socket.close()

    def _turn(self, until: float | None) -> None:
        """Wait for the first thing that happens and deal with it."""
        now = time.monotonic()
        if self._protocol.close_expected() and not self._closing:
            self._closing = True
            self._due = now + _GOODBYE_S
        wait_s = min(self._due, self._due if until is None else until) - now
        poll = select.poll()
        poll.register(self._alarm, select.POLLIN)
        poll.register(self._socket, select.POLLIN | select.POLLOUT if self._out else select.POLLIN)
        poll.poll(max(wait_s, 0.0) * 1000)
        self._alarm.silence()
        self._flush()
        self._read()
        if time.monotonic() >= self._due:
            self._overdue()

    def _overdue(self) -> None:
        """The goodbye or the ping of before was not answered, or it is time for the next ping."""
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
            self._out.clear()  # what the backend said before it left can still be read, and then the end

    def _read(self) -> None:
        """Everything that has come; until the very end, because TLS keeps what poll does not see."""
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
                self._take(event)
        self._flush()

    def _take(self, frame: Frame) -> None:
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
                    self._arrived.append(whole.decode(errors="replace") if self._partial_is_text else whole)
