"""Client of the Coresteer gate for asyncio.

gate = AsyncGate()
async with gate.enter("gold"):
    await answer(request)
"""

import asyncio
import socket
from types import TracebackType

from coresteer_gate import (
    CONNECT_TIMEOUT_S,
    MAX_REPLY_BYTES,
    Admission,
    BackOff,
    enter_message,
    enter_message_for,
    socket_path,
)


class AsyncGate:
    """Client of the gate for the tasks of one event loop; see Gate."""

    def __init__(self, path: str | None = None, *, patience_s: float | None = 30.0) -> None:
        self._path = socket_path(path)
        self._patience_s = patience_s
        self._idle: list[_Connection] = []
        self._away = BackOff()

    def enter(self, name: str) -> "_Entry":
        """Return an async context manager that waits for admission as a request of a class, and yields an Admission."""
        return _Entry(self, enter_message(name))

    def enter_for(self, connection: socket.socket) -> "_Entry":
        """Return an async context manager that waits for admission of a TCP connection; the agent finds its class."""
        return _Entry(self, enter_message_for(connection))

    def close(self) -> None:
        """Close the idle connections to the agent."""
        while self._idle:
            self._idle.pop().close()

    async def _enter(self, message: bytes) -> "tuple[_Connection | None, Admission]":
        if self._away.is_active():
            return None, Admission()
        try:
            return await self._request(message)
        except BaseException:
            self._away.gave_up()
            raise

    async def _request(self, message: bytes) -> "tuple[_Connection | None, Admission]":
        connection = await self._send(message)
        if connection is None:
            self._away.failed()
            return None, Admission()
        try:
            reply = await connection.reply(self._patience_s)
        except BaseException:  # cancelled: leave the queue
            connection.close()
            raise
        if not reply:
            self._away.failed()
            connection.close()
            return None, Admission()
        self._away.answered()
        answer = Admission(reply)
        if not answer.name:
            self._idle.append(connection)
            return None, answer
        return connection, answer

    def _leave(self, connection: "_Connection", *, ok: bool) -> None:
        if connection.send(b"leave ok" if ok else b"leave failed"):
            self._idle.append(connection)
        else:
            connection.close()

    async def _send(self, message: bytes) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.send(message):
                return connection
            connection.close()
        loop = asyncio.get_running_loop()
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
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
    """A connection to the agent that the event loop always reads from, to detect its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        self._loop = loop
        self._socket = connection
        self._reply: asyncio.Future[bytes] = loop.create_future()
        self._open = True
        loop.add_reader(connection, self._readable)

    def send(self, message: bytes) -> bool:
        """Send a message; return whether that succeeded."""
        try:
            return self._open and self._socket.send(message, socket.MSG_NOSIGNAL) > 0
        except OSError:
            return False

    async def reply(self, patience_s: float | None) -> bytes:
        """Return the agent's reply; empty after patience_s seconds or at the end of the connection."""
        if patience_s is None:
            reply = await self._reply
        else:
            giving_up = self._loop.call_later(patience_s, self._set_reply, b"")
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
            reply = self._socket.recv(MAX_REPLY_BYTES)
        except BlockingIOError:
            return
        except OSError:
            reply = b""
        if not reply:
            self.close()
        self._set_reply(reply)

    def _set_reply(self, reply: bytes) -> None:
        if not self._reply.done():
            self._reply.set_result(reply)


class _Entry:
    __slots__ = ("_admission", "_connection", "_gate", "_message")

    def __init__(self, gate: AsyncGate, message: bytes) -> None:
        self._gate = gate
        self._message = message

    async def __aenter__(self) -> Admission:
        self._connection, self._admission = await self._gate._enter(self._message)
        return self._admission

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._gate._leave(self._connection, ok=kind is None and self._admission.ok)
