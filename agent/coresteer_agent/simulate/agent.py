"""Simulated agent: the agent's side of the protocol for one simulated node."""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Callable
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.runtime.policies import PolicyRunner
from coresteer_agent.runtime.service_classes import effective_policy
from coresteer_agent.simulate.changes import SimulatedChanges
from coresteer_agent.simulate.effects import Effects, cpu_factor
from coresteer_agent.simulate.experiments import SimulatedExperiments
from coresteer_agent.simulate.link import Link
from coresteer_agent.simulate.node import SimulatedNode, UnacknowledgedSample
from coresteer_agent.transport.retry import Backoff
from coresteer_agent.transport.samples import BlockCollector, block_message
from coresteer_agent.transport.websocket import ConnectionTiming
from coresteer_agent.transport.websocket_protocol import WebSocketURI
from coresteer_core.changes.report import ChangeMessage
from coresteer_core.changes.undo import LOST_BACKEND_GRACE_S
from coresteer_core.node.summary import summarize
from coresteer_core.policies.base import ROUND_PERIOD_S
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.protocol import (
    COLUMNS,
    SUMMARY_S,
    Ack,
    BeginExperiment,
    ClassesMessage,
    Clock,
    CloseCode,
    Detail,
    EndExperiment,
    FlowsMessage,
    InventoryMessage,
    LearnedMessage,
    NewKey,
    Ping,
    Policies,
    ProtocolError,
    RatesMessage,
    Rejected,
    RunExperiment,
    SummaryMessage,
    TasksMessage,
    ToBackend,
    TopologyMessage,
    Watch,
    Welcome,
    decode_to_agent,
    encode,
)

_log = logging.getLogger("coresteer.simulate")

_HANDSHAKE_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_S = 5.0
_TIMING = ConnectionTiming(longest_retry_s=15)
_rng = random.Random()  # noqa: S311 - jitter, no secret
_TASKS_EVERY_S = 5.0
_CLASSES_EVERY_S = 1.0
_PERMANENT_CODES = {CloseCode.BAD_KEY, CloseCode.VERSION, 401, 403}
"""Close codes and HTTP states after which the node does not reconnect."""


class FleetStatistics(Struct):
    """Counters of all simulated agents. latencies_ms: from the first sending of a sample to its acknowledgement."""

    sent: int = 0
    acked: int = 0
    reconnects: int = 0
    latencies_ms: list[float] = []


class SimulatedAgent:
    """Simulated agent of one node: connects, samples, evaluates policies and handles the backend's messages.

    connected: between Welcome and the end of the connection. rejected: the backend refused it. record_latencies: record
    the latency of each sample in stats, for a run of limited length. effects: planted, of policy versions.
    """

    def __init__(
        self,
        node: SimulatedNode,
        uri: WebSocketURI,
        stats: FleetStatistics,
        *,
        record_latencies: bool,
        effects: Effects = MappingProxyType({}),
    ) -> None:
        self.node = node
        self._effects = effects
        self.connected = False
        self.rejected = False
        self._changes = SimulatedChanges(node)
        self._experiments = SimulatedExperiments(node, self._send, _call_later)
        self._policies = PolicyRunner(self._changes, self._send, report_stops=self._send)
        self._uri = uri
        self._backoff = Backoff(_TIMING, _rng)
        self._stats = stats
        self._record_latencies = record_latencies
        self._link: Link | None = None
        self._settled = asyncio.Event()  # welcomed, or closed before that
        self._ended = asyncio.Event()
        self._next_tasks_s = 0.0
        self._next_step_s = 0.0
        self._next_classes_s = 0.0
        self._class_policy: PolicyInForce | None = None
        self._sent_seq = 0  # on this connection
        self._columns = False
        self._next_summary_s = 0.0
        self._detail = Detail.BLOCKS
        self._skips_next_flows = False
        self._physical = node.inventory.physical_netdevs()
        self._block_samples = self._first_block = 1
        self._lost_since_s: float | None = None

    async def maintain_connection(self, gate: asyncio.Semaphore, tls: ssl.SSLContext | None) -> None:
        """Connect, and reconnect after growing random pauses, until cancelled or rejected by the backend."""
        while True:
            try:
                async with gate:
                    link = await self._connect(tls)
                if self.connected:
                    self._backoff.reset()
                await self._ended.wait()
                code, reason = link.close_reason()
                why, self.rejected = f"the connection ended ({code}): {reason}", code in _PERMANENT_CODES
            except OSError as error:
                why = str(error)
            if self.rejected:
                _log.error("Simulated node %s does not reconnect: %s", self.node.name, why)
                return
            _log.debug("%s: %s", self.node.name, why)
            self._stats.reconnects += 1
            await asyncio.sleep(self._backoff.after_failure())

    def sample(self, now_s: float) -> None:
        """Sample the interval that ends at now_s (Unix time), and send and buffer it until it is acknowledged."""
        rates = self.node.sample(now_s)
        self._changes.advance(rates)
        learned = None
        if self._lost_since_s is not None and time.monotonic() - self._lost_since_s >= LOST_BACKEND_GRACE_S:
            self._policies.end_leases()
        if now_s >= self._next_step_s:
            self._next_step_s = now_s + ROUND_PERIOD_S
            learned = self.node.learn(time.monotonic())
            if not self._policies.idle:
                self._policies.step(self.node.view(time.monotonic()))
        messages = self._changes.drain_messages()
        if not self.connected:
            return
        if learned is not None:
            self._send(LearnedMessage(learned))
        if self.node.update_link_state(now_s):
            self._send_inventory()
        before = self._sent_seq
        self._send_pending()
        if self._columns:
            if self._sent_seq > before or now_s >= self._next_summary_s or self._detail is not Detail.BLOCKS:
                self._next_summary_s = now_s + SUMMARY_S - self.node.interval_s / 2
                self._send(SummaryMessage(summarize(rates, self._physical)))
            if self._detail is Detail.SAMPLES:
                self._send(RatesMessage(rates))
        if now_s >= self._next_tasks_s:
            self._next_tasks_s = now_s + _TASKS_EVERY_S
            self._send_processes(now_s)
        if now_s >= self._next_classes_s and self._class_policy is not None:
            self._next_classes_s = now_s + _CLASSES_EVERY_S
            figures = self.node.class_figures(self._class_policy, now_s)
            self._send(ClassesMessage(int(now_s * 1000), self._class_policy.policy_id, figures))
        self._report(messages)

    async def close(self) -> None:
        """Close the connection, after 5 s without a closing handshake. maintain_connection() must have ended."""
        if (link := self._link) is None:
            return
        link.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._ended.wait()
        except TimeoutError:
            link.abort()

    async def _connect(self, tls: ssl.SSLContext | None) -> Link:
        """Return a connection that has received Welcome or is already closed."""
        self._settled.clear()
        self._ended.clear()
        _, link = await asyncio.get_running_loop().create_connection(
            self._new_link, self._uri.host, self._uri.port, ssl=tls
        )
        try:
            async with asyncio.timeout(_HANDSHAKE_TIMEOUT_S):
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
        self._send(replace(self.node.hello(), time_ms=int(time.time() * 1000)))

    def _lost(self) -> None:
        self.connected = False
        self._link = None
        self._lost_since_s = self._lost_since_s or time.monotonic()
        self._policies.stops.continue_without()
        self._changes.handle_disconnected()
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
            case Rejected():  # the next acknowledgement removes them
                _log.warning("%s: samples were rejected: %s", self.node.name, message.reason)
            case Ping():
                self._backoff.spread_s = message.reconnect_spread_s
                self._send(Clock(message.ping_ms, int(time.time() * 1000)))
            case Welcome():
                self._acknowledged(message.acked_seq, now)
                self._send(TopologyMessage(self.node.machine.topology))
                self._send_inventory()
                self._send(LearnedMessage(self.node.learned))
                self.connected, self._lost_since_s = True, None
                self._sent_seq = message.acked_seq
                self._columns, self._detail, self._next_summary_s = COLUMNS in message.features, Detail.BLOCKS, 0.0
                self._skips_next_flows = False
                self._block_samples = max(1, round(message.block_s / self.node.interval_s))
                self._first_block = random.randint(1, self._block_samples)  # noqa: S311 - no secret
                self._send_pending()
                self._settled.set()
                self._policies.report_again()
                self._policies.stops.wait()
                self._changes.handle_connected()
                self._report(self._changes.drain_messages())
            case Watch(detail):
                self._watch(detail)
            case Policies():
                self._policies.set_policies(message.policies, message.leave_pages, message.stops, message.hold_from_ms)
                self._class_policy = effective_policy(message.policies)
                self.node.cpu_factor = cpu_factor(self._effects, message.policies)
                self._policies.stops.obey()
                self._report(self._changes.drain_messages())
            case BeginExperiment() | RunExperiment() | EndExperiment():
                self._experiments.handle(message)
            case NewKey():
                _log.warning("%s: simulated nodes keep their key.", self.node.name)
            case _:
                self._changes.handle(message)
                self._report(self._changes.drain_messages())

    def _send_processes(self, now_s: float) -> None:
        """Send tasks to a backend that needs them now, and flows, but every other time only to one that needs them."""
        if self._detail is Detail.SAMPLES or not self._columns:
            self._send(TasksMessage(int(now_s * 1000), self.node.tasks(now_s)))
        if self._skips_next_flows and self._columns and self._detail is Detail.BLOCKS:
            self._skips_next_flows = False
        else:
            self._send_flows(now_s)

    def _send_flows(self, now_s: float) -> None:
        self._skips_next_flows = True
        numa = self.node.numa()
        flows = FlowsMessage(
            int(now_s * 1000),
            self.node.net_tasks(),
            cgroups=self.node.cgroups(),
            numa=numa,
            cpusets=self.node.cpusets(numa),
        )
        self._send(flows)

    def _report(self, messages: list[ChangeMessage]) -> None:
        for message in messages:
            self._send(message)
        if messages:  # interrupts may have moved
            self._send_inventory()

    def _send_inventory(self) -> None:
        changed = len(self._changes.changed_settings)
        held = self._policies.held
        self._send(InventoryMessage(replace(self.node.inventory, changed_settings=changed, held=held)))

    def _acknowledged(self, seq: int, now: float) -> None:
        done = self.node.acknowledge(seq)
        self._stats.acked += len(done)
        if self._record_latencies:
            self._stats.latencies_ms += [(now - sample.sent_s) * 1000 for sample in done if sample.sent_s is not None]

    def flush(self) -> None:
        """Send the samples that are collected for the next block."""
        self._send_pending(1)

    def _watch(self, detail: Detail) -> None:
        self._detail = detail
        newest = self.node.unacknowledged[-1].rates if self.node.unacknowledged else None
        if detail is not Detail.BLOCKS and newest is not None:
            self._send(SummaryMessage(summarize(newest, self._physical)))
        if detail is Detail.SAMPLES:
            self.flush()
            now_s = time.time()
            self._send_flows(now_s)
            self._send(TasksMessage(int(now_s * 1000), self.node.tasks(now_s)))
            if newest is not None:
                self._send(RatesMessage(newest))

    def _send_pending(self, at_least: int = 0) -> None:
        """Send the samples that this connection has not sent yet, while its send buffer has space.

        To a backend that supports blocks, samples are sent once a block is full, or has at_least samples.
        """
        wanted = at_least or (self._block_samples if self._sent_seq >= self._first_block else self._first_block)
        while (pending := min(self.node.seq - self._sent_seq, len(self.node.unacknowledged))) > 0:
            if self._link is None or not self.connected or not self._link.writable:
                return
            if self._columns and pending < wanted:
                return
            count = min(pending, self._block_samples) if self._columns else 1
            waiting = [self.node.unacknowledged[-back] for back in range(pending, pending - count, -1)]
            collector = BlockCollector()
            for sample in waiting:
                if not collector.accepts(sample.rates):
                    break
                collector.add(sample.rates)
            self._send_samples(waiting[: len(collector.samples)])

    def _send_samples(self, samples: list[UnacknowledgedSample]) -> None:
        now = time.monotonic()
        for sample in samples:
            if sample.sent_s is None:
                sample.sent_s = now
                self._stats.sent += 1
        rates = [sample.rates for sample in samples]
        self._send(block_message(rates) if self._columns else RatesMessage(rates[0]))
        self._sent_seq = rates[-1].seq

    def _send(self, message: ToBackend) -> None:
        if self._link is not None:
            self._link.send(encode(message))


def _call_later(seconds: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, call)
