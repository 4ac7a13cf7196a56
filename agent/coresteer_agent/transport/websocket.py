"""WebSocket connection to the backend on a non-blocking socket, for one thread.

The protocol is that of the websockets package; its own client would add HTTP and e-mail modules and two threads per
connection, 4 MiB of memory in all.
"""

import os
import select
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any  # Any: typeshed knows no host in bytes

from msgspec import Struct

from coresteer_agent.transport.inbox import Allowance
from coresteer_agent.transport.websocket_protocol import ClientProtocol, Close, Frame, Opcode, State, WebSocketURI
from coresteer_core.protocol import MAX_FRAME_BYTES

_CHUNK = 16 * 1024
_CHUNKS = 4
"""Maximum number of chunks that are read before their messages are handled."""
_CLOSE_TIMEOUT_S = 1.0
_MAX_DISCARDED = 1024 * 1024
"""Bytes of a flood that are read after its end, to find the end of the connection behind what was on its way."""


class ConnectionTiming(Struct, frozen=True):
    """Delays and timeouts of the connection to the backend, in seconds.

    slow_retry_s: between attempts that need a person. stable_s: duration after Welcome that resets the back-off.
    """

    first_retry_s: float = 0.5
    longest_retry_s: float = 30.0
    slow_retry_s: float = 30.0
    stable_s: float = 10.0
    welcome_s: float = 10.0
    keepalive_s: float = 10.0


class Allowances:
    """What the backend may send to this agent, over all connections, before that is a flood."""

    def __init__(self) -> None:
        self.bytes = Allowance(16 * 1024 * 1024, 512 * 1024)
        """Policies and plans have some KiB, and at most MAX_FRAME_BYTES."""
        self.frames = Allowance(5000, 100)
        """After an outage each of the 3,600 buffered samples may be acknowledged on its own."""


class FloodError(Exception):
    """Raised when the backend sends more than it may; the message is a sentence."""


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


def connect(uri: WebSocketURI, timeout_s: float, ca: str = "", client_cert: Path | None = None) -> socket.socket:
    """Return a socket connected to the URI's host, with TLS for wss. Raises OSError, UnicodeError (invalid host).

    ca, client_cert: see tls.tls_context.
    """
    host: Any = uri.host.encode()  # bytes, as the codec for a str, idna, costs 0.3 MiB; parse_uri() has applied it
    plain = socket.create_connection((host, uri.port), timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not uri.secure:
            return plain
        from coresteer_agent.transport.tls import tls_context, wrap_in_tls  # noqa: PLC0415 - memory that an agent beside its backend need not spend

        return wrap_in_tls(plain, uri.host, tls_context(ca, client_cert))
    except BaseException:
        plain.close()
        raise


class WebSocket:
    """A WebSocket over a connected socket, which it closes. Call shake_hands() first.

    keepalive_s: interval of pings; the connection is lost if one is not answered within the next interval. allowances:
    what the peer may send.
    """

    def __init__(
        self,
        connected: socket.socket,
        uri: WebSocketURI,
        key: str,
        wakeup: Wakeup,
        *,
        keepalive_s: float,
        allowances: Allowances,
    ) -> None:
        connected.setblocking(False)
        # a connection without TCP acknowledgements is given up before the kernel's own timeout
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(keepalive_s * 2000))
        self.local_address, self.peer_address = (
            str(address[0]).partition("%")[0] for address in (connected.getsockname(), connected.getpeername())
        )
        self._socket = connected
        self._key = key
        self._wakeup = wakeup
        self._protocol = ClientProtocol(uri, max_size=MAX_FRAME_BYTES)
        self._out = bytearray()
        self._messages: list[bytes | str] = []
        self._partial = bytearray()
        self._partial_is_text = False
        self._keepalive_s = keepalive_s
        self._allowances = allowances
        self._reading = True
        self._more = False
        """The last read ended before all available data was read."""
        self._due = time.monotonic() + keepalive_s
        self._pinged = False
        self._closing = False
        self._ending = False
        """close() was called."""
        self._to_discard: int | None = None
        """Bytes of a flood that are still read; None without one."""

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

    def receive(self, until: float | None = None, *, reading: bool = True) -> list[bytes | str]:
        """Return received messages; wait for some, a wakeup, all data sent, or the monotonic time until.

        A str is a text message. reading: False leaves data in the socket, so that the peer has to wait. Raises
        ClosedError, and FloodError.
        """
        self._reading = reading
        if not self._messages:
            if self._protocol.state is State.CLOSED:
                raise ClosedError(self._protocol.close_rcvd)
            self._poll_once(until)
        messages, self._messages = self._messages, []
        return messages

    def close(self, code: int = 1000, reason: str = "", *, discard: bool = False) -> None:
        """Perform the closing handshake with a timeout; idempotent. Messages that still arrive are dropped.

        discard: of a flood; little more of it is read, and nothing parsed, as that takes time.
        """
        self._reading = self._ending = True
        if discard:
            self._to_discard = _MAX_DISCARDED
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
        poll.register(self._socket, (select.POLLIN if self._reading else 0) | (select.POLLOUT if self._out else 0))
        poll.poll(0 if self._more and self._reading else max(wait_s, 0.0) * 1000)
        self._wakeup.clear()
        self._flush()
        if self._reading:
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
        """Read some chunks, or all available data if that is less: TLS may hold data that poll(2) does not report."""
        self._more = False
        if self._protocol.state is State.CLOSED:
            return
        try:
            for _ in range(_CHUNKS):
                data = self._socket.recv(_CHUNK)
                if not data:
                    self._protocol.receive_eof()
                    break
                if self._to_discard is not None:
                    self._to_discard -= len(data)
                    self._reading = self._to_discard > 0
                    continue
                self._spend(self._allowances.bytes, len(data), "bytes")
                self._protocol.receive_data(data)
            else:
                self._more = True
        except BlockingIOError:
            pass
        except OSError:
            self._protocol.receive_eof()
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and not self._ending:
                self._spend(self._allowances.frames, 1, "frames")
                self._handle_frame(event)
        self._flush()

    def _spend(self, allowance: Allowance, amount: int, what: str) -> None:
        if not self._ending and not allowance.spend(amount):
            raise FloodError(f"more {what} than an agent accepts")

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
