"""Ask the Coresteer agent of this machine when a request may go in: the class furthest from its target is first.

    gate = Gate()
    with gate.enter("gold"):
        answer(request)

Without an agent, or when it goes away, requests go straight on. Standard library only. docs/GATE.md has the wire format
and how servers that fork, that have threads or asyncio use it; the asyncio client is coresteer_gate.aio.
"""

import os
import socket
import struct
import time
from math import inf
from types import TracebackType
from weakref import WeakSet

PATH = "/run/coresteer/gate.sock"
"""Where an agent that runs as root has its gate; CORESTEER_GATE in the environment names another."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""How long an agent that was not there is not looked for; doubled each time."""

CONNECT_S = 1.0
LONGEST_REPLY = 256


class Pass:
    """What the agent said. name: the class that the request is in; empty when it goes on without a slot.

    ok: set it to False when the request failed without an exception. priority: for its socket, None without a class and
    where the policy only observes.
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
        """Let what is sent over the connection go before that of later classes, where the qdisc looks at priorities.

        pfifo_fast, prio and mqprio do. Without a priority the connection stays as it is.
        """
        if self.priority is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, self.priority)


class BackOff:
    """When an agent that was not there is looked for again: by one request at a time, as it may hang."""

    __slots__ = ("_pause_s", "_until_s")

    def __init__(self) -> None:
        self._until_s = 0.0
        self._pause_s = 0.0

    def holds(self) -> bool:
        """Whether it is too early. If not, one of the next three is to be told of who asked."""
        if self._pause_s == 0:
            return False
        if time.monotonic() < self._until_s:
            return True
        self._until_s = inf
        return False

    def failed(self) -> None:
        """It was not there."""
        self._pause_s = min(max(FIRST_PAUSE_S, self._pause_s * 2), LONGEST_PAUSE_S)
        self._until_s = time.monotonic() + self._pause_s

    def answered(self) -> None:
        """It was."""
        self._pause_s = 0.0

    def gave_up(self) -> None:
        """It is not known, as whoever looked was interrupted; the next one looks."""
        if self._until_s == inf:
            self._until_s = 0.0


def asks(name: str) -> bytes:
    """The message with which a request of a class asks."""
    return b"enter " + name.encode("ascii")


def asks_for(connection: socket.socket) -> bytes:
    """The message for a request over a TCP connection, whose class the agent finds by the policy's matchers."""
    return f"enter @{connection.getpeername()[0]} {connection.getsockname()[1]}".encode("ascii")


def path_of(path: str | None) -> str:
    """The socket's path: the one given, else CORESTEER_GATE, else that of an agent that runs as root."""
    return path or os.environ.get("CORESTEER_GATE") or PATH


class Gate:
    """For threads and for processes that fork: each request that is there at the same time has a connection of its own.

    patience_s: who is not let in so long goes straight on; None waits for ever. May be used from any thread. After a
    fork the child makes its own connections.
    """

    def __init__(self, path: str | None = None, *, patience_s: float | None = 30.0) -> None:
        self._path = path_of(path)
        self._patience = _timeval(patience_s or 0.0)
        self._idle: list[socket.socket] = []
        self._busy: set[socket.socket] = set()
        self._away = BackOff()
        _gates.add(self)

    def enter(self, name: str) -> "_Visit":
        """For ``with``: wait for a slot as a request of that class. Gives a Pass."""
        return _Visit(self, asks(name))

    def enter_for(self, connection: socket.socket) -> "_Visit":
        """For ``with``: the same, as a request over that TCP connection; the agent finds the class."""
        return _Visit(self, asks_for(connection))

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    def _ask(self, message: bytes) -> tuple[socket.socket | None, Pass]:
        """The connection to tell of the end over, None where there is nothing to tell, and the answer."""
        if self._away.holds():
            return None, Pass()
        try:
            return self._wait(message)
        except BaseException:
            self._away.gave_up()
            raise

    def _wait(self, message: bytes) -> tuple[socket.socket | None, Pass]:
        connection = self._reach(message)
        if connection is None:
            self._away.failed()
            return None, Pass()
        self._busy.add(connection)
        try:
            reply = connection.recv(LONGEST_REPLY)
        except OSError:  # also when patience ended
            reply = b""
        except BaseException:
            self._lose(connection)
            raise
        if not reply:
            self._away.failed()
            self._lose(connection)
            return None, Pass()
        self._away.answered()
        told = Pass(reply)
        if not told.name:
            self._free(connection)
            return None, told
        return connection, told

    def _leave(self, connection: socket.socket, *, ok: bool) -> None:
        try:
            connection.send(b"leave ok" if ok else b"leave failed", socket.MSG_NOSIGNAL)
        except OSError:
            self._lose(connection)
        else:
            self._free(connection)

    def _reach(self, message: bytes) -> socket.socket | None:
        """A connection over which the message was sent, None when there is no agent."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            try:
                connection.send(message, socket.MSG_NOSIGNAL)
                return connection
            except OSError:  # of an agent that ended since
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

    def _free(self, connection: socket.socket) -> None:
        self._busy.discard(connection)
        self._idle.append(connection)

    def _lose(self, connection: socket.socket) -> None:
        self._busy.discard(connection)
        connection.close()

    def _forked(self) -> None:
        """In the child: the connections are the parent's, and its slots must come back when it ends."""
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle, self._busy, self._away = [], set(), BackOff()


class _Visit:
    __slots__ = ("_connection", "_gate", "_message", "_pass")

    def __init__(self, gate: Gate, message: bytes) -> None:
        self._gate = gate
        self._message = message

    def __enter__(self) -> Pass:
        self._connection, self._pass = self._gate._ask(self._message)
        return self._pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._gate._leave(self._connection, ok=kind is None and self._pass.ok)


def _timeval(seconds: float) -> bytes:
    """struct timeval; zero is for ever (socket(7), SO_RCVTIMEO)."""
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))


_CONNECT = _timeval(CONNECT_S)
_gates: WeakSet[Gate] = WeakSet()


def _forget_connections() -> None:
    for gate in list(_gates):
        gate._forked()


os.register_at_fork(after_in_child=_forget_connections)
