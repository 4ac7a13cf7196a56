"""Present state of nodes in memory: latest interval, clock skew, tasks, service classes."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from coresteer.presence.locations import Locations
from coresteer.presence.schemas import Figures, Health
from coresteer.telemetry.byte_columns import compress, decompress
from coresteer.telemetry.repository import from_unix_ms
from coresteer.telemetry.sample_buffer import SampleBlock
from coresteer_core.metrics import FLEET_METRICS
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.rates import Rates
from coresteer_core.node.summary import Summary, summarize
from coresteer_core.node.tasks import NetTask, Task
from coresteer_core.policies.base import ROUND_PERIOD_S
from coresteer_core.protocol import COLUMNS, SUMMARY_S, ClassesMessage, Detail, FlowsMessage, Hello, encode

_STALE_INTERVALS = 3
_MIN_STALE_AFTER_S = 3.0
_MAX_RECENT = 100
_MAX_RECENT_BYTES = 8 * 1024**2
"""Of the intervals of one node in memory: those of 8,192 CPUs have 0.8 MB each."""
_flows = msgspec.msgpack.Decoder(FlowsMessage)
MAX_POLICIES = 16
"""Policies of one node whose service classes are stored; reports of others are dropped."""


@dataclass
class NodeState:
    """In-memory state of one node since the backend started. Times are monotonic seconds.

    connected: to this backend. epoch: of its agent's latest connection here, or elsewhere while it is needed here.
    sends_columns: its agent sends blocks, and so summaries. detail: what it was asked to send of the present; samples
    where it sends no blocks.
    physical: names of its network devices that are hardware. rates, recent: its newest interval and those of the last
    ROUND_PERIOD_S; of an agent that sends blocks only while there is interest in them. block: its newest block.
    seen_at: when the last interval or summary arrived. stale_at: until when the next one is due. arrived: is set when
    the next interval arrives. classes: latest reports of its service classes by policy id. clock_correction_ms: what is
    added to its times, because its clock is wrong. clock_skew_ms: how far its times are then ahead of the backend's
    clock, None before it is measured.
    """

    connected: bool = False
    epoch: int = 0
    sends_columns: bool = False
    detail: Detail = Detail.SAMPLES
    interval_s: float = 1.0
    rates: Rates | None = None
    recent: deque[Rates] = field(default_factory=lambda: deque(maxlen=_MAX_RECENT))
    block: SampleBlock | None = None
    seen_at: float | None = None
    stale_at: float = -math.inf
    arrived: asyncio.Event | None = None
    summary: Summary | None = None
    packed_flows: bytes = b""
    classes: dict[int, ClassesMessage] = field(default_factory=dict)
    clock_skew_ms: float | None = None
    clock_correction_ms: int = 0
    tasks: list[Task] = field(default_factory=list)
    physical: frozenset[str] | None = None
    last_health: Health | None = None
    figures: Figures | None = None

    def set_inventory(self, inventory: Inventory) -> None:
        """Store which of the node's network devices are hardware."""
        self.physical = inventory.physical_netdevs()

    def health(self, *, seen_before: bool) -> Health:
        """Return the node's health; it is live until a sample or summary is overdue."""
        if not self.connected:
            return Health.AWAY if seen_before or self.seen_at is not None else Health.NEW
        return Health.LIVE if time.monotonic() <= self.stale_at else Health.STALE

    def begin(self, hello: Hello, epoch: int) -> None:
        """Begin a connection, on which no sample has arrived yet."""
        self.connected, self.interval_s, self.epoch = True, hello.interval_s, epoch
        self.sends_columns = COLUMNS in hello.features
        self.detail = Detail.BLOCKS if self.sends_columns else Detail.SAMPLES

    def ask(self, detail: Detail) -> None:
        """Note that the agent is now asked for this much of the present; a live node stays so while it may answer."""
        was, self.detail = self.detail, detail
        now = time.monotonic()
        if now <= self.stale_at and was is not detail:
            stale_at = now + self._stale_after_s
            self.stale_at = stale_at if detail is Detail.BLOCKS else min(self.stale_at, stale_at)

    @property
    def _stale_after_s(self) -> float:
        """Return the age at which the node's newest sample is not one of the present any more."""
        overdue_s = max(_STALE_INTERVALS * self.interval_s, _MIN_STALE_AFTER_S)
        return SUMMARY_S + overdue_s if self.detail is Detail.BLOCKS else overdue_s

    def _see(self) -> None:
        self.seen_at = time.monotonic()
        self.stale_at = self.seen_at + self._stale_after_s

    def add_rates(self, rates: Rates, size: int = 0) -> None:
        """Store the rates of the node's newest interval. size: their bytes in the message."""
        self._see()
        self.rates = rates
        if self.summary is None or self.summary.time_ms != rates.time_ms:
            self.summary = self.figures = None
        self.recent.append(rates)
        while rates.time_ms - self.recent[0].time_ms >= ROUND_PERIOD_S * 1000:
            self.recent.popleft()
        while len(self.recent) > 1 and len(self.recent) * size > _MAX_RECENT_BYTES:
            self.recent.popleft()
        if self.arrived is not None:
            self.arrived.set()
            self.arrived = None

    def add_block(self, block: SampleBlock) -> None:
        """Store the node's newest block, from which recent_rates() are read while no intervals arrive."""
        self.block = block
        if self.rates is not None and block.end_ms - self.rates.time_ms > 2 * ROUND_PERIOD_S * 1000:
            self.rates = None
            self.recent.clear()

    def add_summary(self, summary: Summary) -> bool:
        """Store the summary of the node's newest interval; return whether it is another one than before."""
        self._see()
        is_new = self.summary is None or self.summary.time_ms != summary.time_ms
        self.summary, self.figures = summary, None
        return is_new

    @property
    def newest_ms(self) -> int | None:
        """Return the time of the newest of recent_rates(), Unix ms by the node's clock; None without any."""
        ends = [] if self.rates is None else [self.rates.time_ms]
        return max(ends if self.block is None else [*ends, self.block.end_ms], default=None)

    def recent_rates(self) -> list[Rates]:
        """Return the node's intervals of the last ROUND_PERIOD_S that are known, oldest first."""
        if self.block is None or (self.rates is not None and self.rates.time_ms >= self.block.end_ms):
            return list(self.recent)
        oldest_ms = self.block.end_ms - ROUND_PERIOD_S * 1000
        return [rates for rates in self.block.rates() if rates.time_ms > oldest_ms]

    def add_classes(self, message: ClassesMessage) -> None:
        """Store the latest report of a policy's service classes; of many policies, the most recent 16."""
        policy_id = int(message.policy_id)
        self.classes.pop(policy_id, None)
        self.classes[policy_id] = message
        while len(self.classes) > MAX_POLICIES:
            del self.classes[next(iter(self.classes))]

    @property
    def flows(self) -> FlowsMessage | None:
        """Return the latest report of the node's network tasks; it is kept encoded and compressed, to save memory."""
        return _flows.decode(decompress(self.packed_flows)) if self.packed_flows else None

    @flows.setter
    def flows(self, message: FlowsMessage) -> None:
        self.packed_flows = compress(encode(message))  # not as received, which may have unknown fields of any size

    @property
    def net_tasks(self) -> list[NetTask]:
        """Return the node's processes that use the network, as last reported."""
        return [] if (flows := self.flows) is None else flows.tasks

    def latest_summary(self) -> Summary | None:
        """Return the summary of the node's latest interval, computed on first use; None without one."""
        if self.summary is None and self.rates is not None:
            self.summary = summarize(self.rates, self.physical)
        return self.summary

    def latest_figures(self) -> Figures | None:
        """Return the fleet figures of the node's latest interval, made on first use; None without one."""
        if self.figures is None and (summary := self.latest_summary()) is not None:
            self.figures = fleet_figures(summary)
        return self.figures


class NodeRegistry:
    """In-memory states of all nodes, by node id. locations: where those of other backends are."""

    def __init__(self, locations: Locations | None = None) -> None:
        self._states: dict[int, NodeState] = {}
        self._locations = locations or Locations()

    def get(self, node_id: int) -> NodeState:
        """Return the node's state; a new, empty one for a node that has not connected since the start."""
        return self._states.get(node_id) or NodeState()

    def get_or_create(self, node_id: int) -> NodeState:
        """Return the node's state for modification, created if necessary."""
        return self._states.setdefault(node_id, NodeState())

    def renew(self, node_id: int, epoch: int) -> NodeState:
        """Return an empty state for another connection of a node; who waits for its next interval goes on waiting."""
        state = self._states[node_id] = NodeState(epoch=epoch, arrived=self.get(node_id).arrived)
        return state

    def remove(self, node_id: int) -> None:
        """Remove the state of a deleted node."""
        self._states.pop(node_id, None)

    def is_connected(self, node_id: int) -> bool:
        """Return whether the node's agent is connected, to this backend or to another one."""
        return self.get(node_id).connected or self._locations.elsewhere(node_id) is not None

    def is_lost_with_backend(self, node_id: int) -> bool:
        """Return whether the node is disconnected because the backend that it was connected to has vanished."""
        return not self.get(node_id).connected and self._locations.is_lost_with_replica(node_id)

    def epoch(self, node_id: int) -> int:
        """Return the epoch of the latest connection of the node's agent; it is another one after it has reconnected."""
        return max(self.get(node_id).epoch, self._locations.epoch(node_id))

    def health(self, node_id: int, *, seen_before: bool) -> Health:
        """Return the node's health, which another backend knows of a node that is connected to it."""
        state = self.get(node_id)
        elsewhere = None if state.connected else self._locations.elsewhere(node_id)
        if elsewhere is None:
            return state.health(seen_before=seen_before)
        return Health.STALE if elsewhere.stale else Health.LIVE

    def items(self) -> Iterator[tuple[int, NodeState]]:
        """Yield id and state of every node that has connected to this backend since the start."""
        yield from list(self._states.items())

    def nodes_with_changed_health(self) -> list[int]:
        """Return the ids of nodes whose health has changed since the last call."""
        changed = []
        for node_id, state in self._states.items():
            health = state.health(seen_before=True)
            if health != state.last_health:
                state.last_health = health
                changed.append(node_id)
        return changed


def fleet_figures(summary: Summary) -> Figures:
    """Return the fleet figures in the summary of one interval of a node."""
    return Figures(
        time=from_unix_ms(summary.time_ms),
        busiest_cpu=summary.busiest_cpu,
        softirq_cpu=summary.softirq_cpu,
        metrics={name: summary.metrics.get(name) for name in FLEET_METRICS},
    )
