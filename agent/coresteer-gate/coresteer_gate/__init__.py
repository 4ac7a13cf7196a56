"""Client of the Coresteer gate, which decides when a request of a service class may start.

    gate = Gate()
    with gate.enter("gold"):
        answer(request)

Without an agent, or if it ends, requests start at once. Standard library only. docs/GATE.md describes the wire format
and the use in servers that fork or use threads or asyncio; the asyncio client is coresteer_gate.aio.
"""

import os
import socket
import struct
import time
from math import inf
from types import TracebackType
from weakref import WeakSet

PATH = "/run/coresteer/gate.sock"
"""The gate of an agent that runs as root; the environment variable CORESTEER_GATE names another one."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Back-off before connecting again to an absent agent; doubled each time."""

CONNECT_TIMEOUT_S = 1.0
MAX_REPLY_BYTES = 256


class Admission:
    """The agent's permission to start one request. name: the request's class; empty if it starts without a slot.

    ok: set it to False if the request failed without an exception. priority: for its socket; None without a class, and
    if the policy only observes.
    """

    __slots__ = ("name", "ok", "priority")

    def __init__(self, reply: bytes = b"") -> None:
        self.name = ""
        self.priority: int | None = None
        self.ok = True
        if reply.startswith(b"go "):
            self.name, _, priority = reply[3:].decode("ascii").partition(" ")
            self.priority = int(priority) if priority else None

    def mark(self, connection: socket.socket) -> None:
        """Set the socket priority of a connection, so that the qdisc sends its packets before those of later classes.

        pfifo_fast, prio and mqprio do. Without a priority the connection is unchanged.
        """
        if self.priority is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, self.priority)


class BackOff:
    """Decides when to connect again to an absent agent: after a growing delay, one request at a time."""

    __slots__ = ("_pause_s", "_until_s")

    def __init__(self) -> None:
        self._until_s = 0.0
        self._pause_s = 0.0

    def is_active(self) -> bool:
        """Return whether to wait before connecting. If False, call failed(), answered() or gave_up() afterwards."""
        if self._pause_s == 0:
            return False
        if time.monotonic() < self._until_s:
            return True
        self._until_s = inf
        return False

    def failed(self) -> None:
        """Record that the agent could not be reached, and double the delay."""
        self._pause_s = min(max(FIRST_PAUSE_S, self._pause_s * 2), LONGEST_PAUSE_S)
        self._until_s = time.monotonic() + self._pause_s

    def answered(self) -> None:
        """Record that the agent answered, and end the delay."""
        self._pause_s = 0.0

    def gave_up(self) -> None:
        """Record that the attempt was interrupted; the next request may connect."""
        if self._until_s == inf:
            self._until_s = 0.0


def enter_message(name: str) -> bytes:
    """Return the wire message that requests admission for a service class by name."""
    return b"enter " + name.encode("ascii")


def enter_message_for(connection: socket.socket) -> bytes:
    """Return the wire message that requests admission for a TCP connection, whose class the agent determines."""
    return f"enter @{connection.getpeername()[0]} {connection.getsockname()[1]}".encode("ascii")


def socket_path(path: str | None) -> str:
    """Return the path of the gate's socket: path, else CORESTEER_GATE, else that of an agent that runs as root."""
    return path or os.environ.get("CORESTEER_GATE") or PATH


class Gate:
    """Client of the gate for threads and forking processes; concurrent requests use separate connections.

    patience_s: maximum wait in seconds, after which a request starts without a slot; None: unlimited. Thread-safe.
    After a fork the child opens its own connections.
    """

    def __init__(self, path: str | None = None, *, patience_s: float | None = 30.0) -> None:
        self._path = socket_path(path)
        self._patience = _timeval(patience_s or 0.0)
        self._idle: list[socket.socket] = []
        self._busy: set[socket.socket] = set()
        self._away = BackOff()
        _gates.add(self)

    def enter(self, name: str) -> "_Entry":
        """Return a context manager that waits for admission as a request of a class, and yields an Admission."""
        return _Entry(self, enter_message(name))

    def enter_for(self, connection: socket.socket) -> "_Entry":
        """Return a context manager that waits for admission of a TCP connection, whose class the agent determines."""
        return _Entry(self, enter_message_for(connection))

    def close(self) -> None:
        """Close the idle connections to the agent."""
        while self._idle:
            self._idle.pop().close()

    def _enter(self, message: bytes) -> tuple[socket.socket | None, Admission]:
        """Wait for admission; return it with the connection on which to report the end (None: nothing to report)."""
        if self._away.is_active():
            return None, Admission()
        try:
            return self._request(message)
        except BaseException:
            self._away.gave_up()
            raise

    def _request(self, message: bytes) -> tuple[socket.socket | None, Admission]:
        connection = self._send(message)
        if connection is None:
            self._away.failed()
            return None, Admission()
        self._busy.add(connection)
        try:
            reply = connection.recv(MAX_REPLY_BYTES)
        except OSError:  # also after patience_s
            reply = b""
        except BaseException:
            self._discard(connection)
            raise
        if not reply:
            self._away.failed()
            self._discard(connection)
            return None, Admission()
        self._away.answered()
        answer = Admission(reply)
        if not answer.name:
            self._release(connection)
            return None, answer
        return connection, answer

    def _leave(self, connection: socket.socket, *, ok: bool) -> None:
        try:
            connection.send(b"leave ok" if ok else b"leave failed", socket.MSG_NOSIGNAL)
        except OSError:
            self._discard(connection)
        else:
            self._release(connection)

    def _send(self, message: bytes) -> socket.socket | None:
        """Send a message and return the connection used, None without an agent."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            try:
                connection.send(message, socket.MSG_NOSIGNAL)
                return connection
            except OSError:  # the agent of this connection has ended
                connection.close()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _CONNECT)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, self._patience)
            connection.connect(self._path)
            connection.send(message, socket.MSG_NOSIGNAL)
        except OSError:
            connection.close()
            return None
        return connection

    def _release(self, connection: socket.socket) -> None:
        self._busy.discard(connection)
        self._idle.append(connection)

    def _discard(self, connection: socket.socket) -> None:
        self._busy.discard(connection)
        connection.close()

    def _forked(self) -> None:
        """Close the parent's connections in a forked child, so that the parent's slots are released when it ends."""
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle, self._busy, self._away = [], set(), BackOff()


class _Entry:
    __slots__ = ("_admission", "_connection", "_gate", "_message")

    def __init__(self, gate: Gate, message: bytes) -> None:
        self._gate = gate
        self._message = message

    def __enter__(self) -> Admission:
        self._connection, self._admission = self._gate._enter(self._message)
        return self._admission

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._gate._leave(self._connection, ok=kind is None and self._admission.ok)


def _timeval(seconds: float) -> bytes:
    """Return a struct timeval for SO_RCVTIMEO (socket(7)); zero means no timeout."""
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))


_CONNECT = _timeval(CONNECT_TIMEOUT_S)
_gates: WeakSet[Gate] = WeakSet()


def _forget_connections() -> None:
    for gate in list(_gates):
        gate._forked()


os.register_at_fork(after_in_child=_forget_connections)
