"""The gate for asyncio.

gate = AsyncGate()
async with gate.enter("gold"):
    await answer(request)
"""

import asyncio
import socket
from types import TracebackType

from coresteer_gate import CONNECT_S, LONGEST_REPLY, BackOff, Pass, asks, asks_for, path_of


class AsyncGate:
    """As Gate, for the tasks of one event loop."""

    def __init__(self, path: str | None = None, *, patience_s: float | None = 30.0) -> None:
        self._path = path_of(path)
        self._patience_s = patience_s
        self._idle: list[_Connection] = []
        self._away = BackOff()

    def enter(self, name: str) -> "_Visit":
        """For ``async with``: wait for a slot as a request of that class. Gives a Pass."""
        return _Visit(self, asks(name))

    def enter_for(self, connection: socket.socket) -> "_Visit":
        """For ``async with``: the same, as a request over that TCP connection; the agent finds the class."""
        return _Visit(self, asks_for(connection))

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    async def _ask(self, message: bytes) -> "tuple[_Connection | None, Pass]":
        if self._away.holds():
            return None, Pass()
        try:
            return await self._wait(message)
        except BaseException:
            self._away.gave_up()
            raise

    async def _wait(self, message: bytes) -> "tuple[_Connection | None, Pass]":
        connection = await self._reach(message)
        if connection is None:
            self._away.failed()
            return None, Pass()
        try:
            reply = await connection.reply(self._patience_s)
        except BaseException:  # cancelled: its place in the queue is given back
            connection.close()
            raise
        if not reply:
            self._away.failed()
            connection.close()
            return None, Pass()
        self._away.answered()
        told = Pass(reply)
        if not told.name:
            self._idle.append(connection)
            return None, told
        return connection, told

    def _leave(self, connection: "_Connection", *, ok: bool) -> None:
        if connection.send(b"leave ok" if ok else b"leave failed"):
            self._idle.append(connection)
        else:
            connection.close()

    async def _reach(self, message: bytes) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.send(message):
                return connection
            connection.close()
        loop = asyncio.get_running_loop()
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.sock_connect(fresh, self._path)
        except OSError:  # TimeoutError is one
            fresh.close()
            return None
        except BaseException:
            fresh.close()
            raise
        connection = _Connection(loop, fresh)
        if connection.send(message):
            return connection
        connection.close()
        return None


class _Connection:
    """A socket that the loop reads from all the time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        self._loop = loop
        self._socket = connection
        self._reply: asyncio.Future[bytes] = loop.create_future()
        self._open = True
        loop.add_reader(connection, self._readable)

    def send(self, message: bytes) -> bool:
        """Whether it could be sent."""
        try:
            return self._open and self._socket.send(message, socket.MSG_NOSIGNAL) > 0
        except OSError:
            return False

    async def reply(self, patience_s: float | None) -> bytes:
        """What came; empty when nobody answers."""
        if patience_s is None:
            reply = await self._reply
        else:
            giving_up = self._loop.call_later(patience_s, self._came, b"")
            try:
                reply = await self._reply
            finally:
                giving_up.cancel()
        self._reply = self._loop.create_future()
        return reply

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _readable(self) -> None:
        try:
            reply = self._socket.recv(LONGEST_REPLY)
        except BlockingIOError:
            return
        except OSError:
            reply = b""
        if not reply:
            self.close()
        self._came(reply)

    def _came(self, reply: bytes) -> None:
        if not self._reply.done():
            self._reply.set_result(reply)


class _Visit:
    __slots__ = ("_connection", "_gate", "_message", "_pass")

    def __init__(self, gate: AsyncGate, message: bytes) -> None:
        self._gate = gate
        self._message = message

    async def __aenter__(self) -> Pass:
        self._connection, self._pass = await self._gate._ask(self._message)
        return self._pass

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._gate._leave(self._connection, ok=kind is None and self._pass.ok)
