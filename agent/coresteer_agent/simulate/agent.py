"""A simulated node on its connection: the agent's side of the protocol."""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Callable

from msgspec import Struct

from coresteer_agent.runtime.policies import PolicyRunner
from coresteer_agent.runtime.service_classes import effective_policy
from coresteer_agent.simulate.changes import SimulatedChanges
from coresteer_agent.simulate.experiments import SimulatedExperiments
from coresteer_agent.simulate.link import Link
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_agent.transport.websocket_protocol import WebSocketURI
from coresteer_core.changes.report import ChangeMessage
from coresteer_core.policies.base import STEP_S
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.protocol import (
    Ack,
    BeginExperiment,
    ClassesMessage,
    Clock,
    Close,
    EndExperiment,
    FlowsMessage,
    InventoryMessage,
    LearnedMessage,
    Ping,
    Policies,
    ProtocolError,
    RatesMessage,
    RunExperiment,
    TasksMessage,
    ToBackend,
    TopologyMessage,
    Welcome,
    decode_to_agent,
    encode,
)

_log = logging.getLogger("coresteer.simulate")

_HANDSHAKE_S = 30.0
_GOODBYE_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0
_TASKS_EVERY_S = 5.0
_CLASSES_EVERY_S = 1.0
_HOPELESS = {Close.BAD_KEY, Close.VERSION, 401, 403}
"""Close codes and HTTP states after which another try would end the same way."""


class Count(Struct):
    """What a fleet did. latencies_ms: from the first sending of a sample to its acknowledgement."""

    sent: int = 0
    acked: int = 0
    reconnects: int = 0
    latencies_ms: list[float] = []


class Member:
    """One node. connected: between Welcome and the end of the connection; hopeless: the backend does not want it.

    keep_latencies: note each sample's in count, for a run of limited length.
    """

    def __init__(self, node: SimulatedNode, uri: WebSocketURI, count: Count, *, keep_latencies: bool) -> None:
        self.node = node
        self.connected = False
        self.hopeless = False
        self._changes = SimulatedChanges(node)
        self._experiments = SimulatedExperiments(node, self._say, _later)
        self._policies = PolicyRunner(self._changes, self._say)
        self._uri = uri
        self._count = count
        self._keep_latencies = keep_latencies
        self._link: Link | None = None
        self._settled = asyncio.Event()  # welcomed, or over before that
        self._ended = asyncio.Event()
        self._next_tasks_s = 0.0
        self._next_step_s = 0.0
        self._next_classes_s = 0.0
        self._graded_by: PolicyInForce | None = None
        self._sent_seq = 0  # on this connection

    async def stay_connected(self, gate: asyncio.Semaphore, tls: ssl.SSLContext | None) -> None:
        """Connects, and again after each loss, with growing, jittered pauses, until cancelled or hopeless."""
        pause = _FIRST_PAUSE_S
        while True:
            try:
                async with gate:
                    link = await self._connect(tls)
                if self.connected:
                    pause = _FIRST_PAUSE_S
                await self._ended.wait()
                code, reason = link.close_reason()
                why, self.hopeless = f"the connection ended ({code}): {reason}", code in _HOPELESS
            except OSError as error:
                why = str(error)
            if self.hopeless:
                _log.error("%s gives up: %s", self.node.name, why)
                return
            _log.debug("%s: %s", self.node.name, why)
            self._count.reconnects += 1
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, no secret
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def sample(self, now_s: float) -> None:
        """One interval ending at a Unix time: kept, and sent when connected."""
        self._changes.advance(self.node.sample(now_s))
        learned = None
        if now_s >= self._next_step_s:
            self._next_step_s = now_s + STEP_S
            learned = self.node.learn(time.monotonic())
            if not self._policies.idle:
                self._policies.step(self.node.view(time.monotonic()))
        messages = self._changes.messages()
        if not self.connected:
            return
        if learned is not None:
            self._say(LearnedMessage(learned))
        if self.node.link_flapped(now_s):
            self._say(InventoryMessage(self.node.inventory))
        self._send_pending()
        if now_s >= self._next_tasks_s:
            self._next_tasks_s = now_s + _TASKS_EVERY_S
            self._say(TasksMessage(int(now_s * 1000), self.node.tasks(now_s)))
            self._say(FlowsMessage(int(now_s * 1000), self.node.net_tasks(), cgroups=self.node.cgroups()))
        if now_s >= self._next_classes_s and self._graded_by is not None:
            self._next_classes_s = now_s + _CLASSES_EVERY_S
            figures = self.node.classes(self._graded_by, now_s)
            self._say(ClassesMessage(int(now_s * 1000), self._graded_by.policy_id, figures))
        self._report(messages)

    async def leave(self) -> None:
        """Closes the connection politely, or at once when the backend does not answer. Only when nobody reconnects."""
        if (link := self._link) is None:
            return
        link.close()
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await self._ended.wait()
        except TimeoutError:
            link.abort()

    async def _connect(self, tls: ssl.SSLContext | None) -> Link:
        """A connection that is welcomed or already over."""
        self._settled.clear()
        self._ended.clear()
        _, link = await asyncio.get_running_loop().create_connection(
            self._new_link, self._uri.host, self._uri.port, ssl=tls
        )
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                await self._settled.wait()
        except TimeoutError:
            link.abort()
        return link

    def _new_link(self) -> Link:
        self._link = Link(
            self._uri,
            self.node.key,
            opened=self._opened,
            received=self._received,
            resumed=self._send_pending,
            ended=self._lost,
        )
        return self._link

    def _opened(self) -> None:
        self._say(self.node.hello())

    def _lost(self) -> None:
        self.connected = False
        self._link = None
        self._changes.disconnected()
        self._settled.set()
        self._ended.set()

    def _received(self, frame: bytes) -> None:
        try:
            message = decode_to_agent(frame)
        except ProtocolError as error:
            _log.warning("%s: %s", self.node.name, error)
            return
        now = time.monotonic()
        match message:
            case Ack():
                self._acknowledged(message.seq, now)
            case Ping():
                self._say(Clock(message.ping_ms, int(time.time() * 1000)))
            case Welcome():
                self._acknowledged(message.acked_seq, now)
                self._say(TopologyMessage(self.node.machine.topology))
                self._say(InventoryMessage(self.node.inventory))
                self._say(LearnedMessage(self.node.learned))
                self.connected = True
                self._sent_seq = message.acked_seq
                self._send_pending()
                self._settled.set()
                self._policies.report_again()
                self._changes.connected()
                self._report(self._changes.messages())
            case Policies():
                self._policies.set_policies(message.policies)
                self._graded_by = effective_policy(message.policies)
            case BeginExperiment() | RunExperiment() | EndExperiment():
                self._experiments.asked(message)
            case _:
                self._changes.handle(message)
                self._report(self._changes.messages())

    def _report(self, messages: list[ChangeMessage]) -> None:
        for message in messages:
            self._say(message)
        if messages:  # interrupts may have moved
            self._say(InventoryMessage(self.node.inventory))

    def _acknowledged(self, seq: int, now: float) -> None:
        done = self.node.acknowledged(seq)
        self._count.acked += len(done)
        if self._keep_latencies:
            self._count.latencies_ms += [(now - sample.sent_s) * 1000 for sample in done if sample.sent_s is not None]

    def _send_pending(self) -> None:
        """Sends what this connection has not carried yet, as far as the backend reads it."""
        pending = min(self.node.seq - self._sent_seq, len(self.node.unacked))
        for back in range(pending, 0, -1):
            if self._link is None or not self.connected or not self._link.writable:
                return
            sample = self.node.unacked[-back]
            if sample.sent_s is None:
                sample.sent_s = time.monotonic()
                self._count.sent += 1
            self._say(RatesMessage(sample.rates))
            self._sent_seq = sample.rates.seq

    def _say(self, message: ToBackend) -> None:
        if self._link is not None:
            self._link.send(encode(message))


def _later(seconds: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, call)
