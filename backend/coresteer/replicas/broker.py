"""NATS between the backends of a database: messages to one of them, at most once, with or without an answer."""

import asyncio
import functools
import logging
import operator
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from coresteer.background import cancel, repeat
from coresteer.replicas.membership import Membership

log = logging.getLogger("coresteer.replicas")

ANSWER_S = 5.0
"""How long an answer is waited for."""
_CONNECT_S, _RECONNECT_S, _PING_S = 2, 1, 5
_MAX_PENDING_BYTES = 8 * 1024**2
"""Of what the server has not read yet; beyond that, messages are dropped."""
_MAX_UNREAD_BYTES = 64 * 1024**2
"""Of what this backend has not handled yet; beyond that, the newest messages are dropped."""

_REFUSAL = b""
"""Answer to a request of a backend that this one does not know; no other answer is empty."""

M = TypeVar("M", bound=msgspec.Struct)
Handle = Callable[[int, M], Awaitable[msgspec.Struct | None]]
"""Handles a message, given the id of the backend that sent it; returns the answer."""


class UndeliveredError(Exception):
    """The message did not reach the other backend, and never will."""


class UnansweredError(Exception):
    """No answer came in time: it is not known whether the message has reached the other backend."""


class _Envelope(msgspec.Struct, array_like=True):
    sender: int
    message: bytes


class Broker:
    """This backend's connection to NATS. Nothing waits for it but request(); what cannot be sent now is dropped.

    url: addresses of NATS servers, separated by commas; None: there is none, and nothing can be sent.
    """

    def __init__(self, url: str | None, membership: Membership) -> None:
        self._servers = url.split(",") if url else []
        self._membership = membership
        self._client = Client()
        self._outgoing: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self._handlers: dict[type[msgspec.Struct], Handle[Any]] = {}
        self._failure = "it has not answered yet"
        self._logged: set[str] = set()
        self._answering: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def on(self, kind: type[M], handle: Handle[M]) -> None:
        """Handle messages of a type, each after the one before; those with an answer each in a task of its own."""
        self._handlers[kind] = handle

    def start(self) -> None:
        """Start connecting."""
        if self._servers:
            run = repeat(self._connect, _RECONNECT_S, log, "The connection to NATS failed; trying again.")
            self._tasks = [asyncio.create_task(run)]

    async def stop(self) -> None:
        """Close the connection."""
        tasks, self._tasks = self._tasks, []
        await cancel([*tasks, *self._answering])

    @property
    def is_configured(self) -> bool:
        """Return whether there is a NATS server to connect to."""
        return bool(self._servers)

    @property
    def trouble(self) -> str | None:
        """Return why NATS cannot be used now although it is configured, None if it can or is not."""
        if not self._servers or self._client.is_connected:
            return None
        hosts = ", ".join(urlsplit(each).netloc.rpartition("@")[2] for each in self._servers)  # no credentials
        return f"NATS ({hosts}) cannot be reached: {self._failure}."

    @property
    def is_connected(self) -> bool:
        """Return whether messages can be sent now."""
        return self._client.is_connected

    def publish(self, replica_id: int, message: msgspec.Struct) -> bool:
        """Send a message without waiting; return whether it is on its way."""
        if not self._client.is_connected:
            return False
        if self._client.pending_data_size > _MAX_PENDING_BYTES:
            self._log_once("NATS reads too slowly; what it has not read is dropped.")
            return False
        packed = self._packed(message)
        if len(packed) > self._client.max_payload:
            self._log_once(
                f"{type(message).__name__} of {len(packed)} bytes was dropped: NATS permits {self._client.max_payload} "
                "(max_payload in its configuration)."
            )
            return False
        self._outgoing.put_nowait((self._subject(replica_id), packed))
        return True

    async def request(self, replica_id: int, message: msgspec.Struct, answer: type[M]) -> M:
        """Send a message and return the answer. Raises UndeliveredError and UnansweredError."""
        if not self._client.is_connected:
            raise UndeliveredError("NATS is not connected")
        try:
            found = await self._client.request(self._subject(replica_id), self._packed(message), timeout=ANSWER_S)
            if found.data == _REFUSAL:
                raise UndeliveredError("it does not know this backend yet")
            return msgspec.msgpack.decode(found.data, type=answer)
        except nats.errors.TimeoutError:
            raise UnansweredError from None
        except nats.errors.Error as error:
            raise UndeliveredError(str(error)) from None
        except msgspec.DecodeError as error:
            log.warning("Backend %d answered what cannot be read: %s", replica_id, error)
            raise UnansweredError from None

    def _subject(self, replica_id: int) -> str:
        return f"coresteer.{self._membership.installation}.{replica_id}"

    def _packed(self, message: msgspec.Struct) -> bytes:
        return msgspec.msgpack.encode(_Envelope(self._membership.id, msgspec.msgpack.encode(message)))

    async def _connect(self) -> None:
        """Connect, and return when the connection was closed for good, for example by a server that refuses us."""
        closed = asyncio.Event()
        self._outgoing = asyncio.Queue()

        async def on_error(error: Exception) -> None:
            self._failure = str(error).removeprefix("nats: ") or type(error).__name__
            if (trouble := self.trouble) is not None:
                self._log_once(trouble)
            if isinstance(error, nats.errors.SlowConsumerError):
                self._log_once("This backend handles messages of others too slowly; the newest are dropped.")

        async def on_close() -> None:
            closed.set()

        async def on_disconnect() -> None:
            if self._tasks:  # else this backend is stopping
                log.warning("The connection to NATS is lost: nodes of other backends are less live until it is back.")

        async def on_reconnect() -> None:
            log.info("The connection to NATS is back.")

        self._client = Client()
        await self._client.connect(
            self._servers,
            name=self._membership.name,
            error_cb=on_error,
            closed_cb=on_close,
            disconnected_cb=on_disconnect,
            reconnected_cb=on_reconnect,
            connect_timeout=_CONNECT_S,
            reconnect_time_wait=_RECONNECT_S,
            max_reconnect_attempts=-1,
            ping_interval=_PING_S,
            pending_size=0,  # what was sent while there is no connection must not arrive later
        )
        writer = asyncio.create_task(self._write())
        try:
            unpack = msgspec.msgpack.Decoder(functools.reduce(operator.or_, self._handlers))
            await self._client.subscribe(
                self._subject(self._membership.id),
                cb=functools.partial(self._receive, unpack),
                pending_bytes_limit=_MAX_UNREAD_BYTES,
            )
            await closed.wait()
        finally:
            await cancel([writer])
            await self._client.close()

    async def _write(self) -> None:
        """Pass messages on to the client, which buffers them."""
        while True:
            subject, packed = await self._outgoing.get()
            with suppress(nats.errors.Error):  # the connection was lost meanwhile
                await self._client.publish(subject, packed)

    async def _receive(self, unpack: "msgspec.msgpack.Decoder[msgspec.Struct]", received: Msg) -> None:
        try:
            envelope = msgspec.msgpack.decode(received.data, type=_Envelope)
            message = unpack.decode(envelope.message)
        except msgspec.DecodeError as error:
            return self._log_once(f"A message of NATS that cannot be read was refused: {error}")
        if all(envelope.sender != other.id for other in self._membership.others):
            self._log_once(f"A message of backend {envelope.sender} was refused: no other one has that id.")
            if received.reply:
                self._membership.wake()  # it may have joined a moment ago
                with suppress(nats.errors.Error):  # the connection was lost
                    await received.respond(_REFUSAL)
            return None
        handling = self._handle(envelope.sender, message, received)
        if received.reply:
            task = asyncio.create_task(handling)
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        else:
            await handling

    async def _handle(self, sender: int, message: msgspec.Struct, received: Msg) -> None:
        try:
            answer = await self._handlers[type(message)](sender, message)
            if answer is not None and received.reply:
                await received.respond(msgspec.msgpack.encode(answer))
        except nats.errors.Error as error:  # the connection was lost; the other backend waits in vain
            log.info("An answer to backend %d could not be sent: %s", sender, error)
        except Exception:
            log.exception("A message of backend %d (%s) failed.", sender, type(message).__name__)

    def _log_once(self, sentence: str) -> None:
        if sentence not in self._logged and len(self._logged) < 100:
            self._logged.add(sentence)
            log.warning("%s", sentence)
