"""What is known of the nodes right now, in memory: their last interval, clock and tasks."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from coresteer.presence.schemas import Figures, Health
from coresteer.telemetry.repository import at_ms
from coresteer.telemetry.rollup import rates_interrupts, sum_u32
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.rates import ABSENT_SHARE, SHARES_PER_UNIT, Rates
from coresteer_core.node.tasks import NetTask, Task
from coresteer_core.policies.base import STEP_S
from coresteer_core.protocol import ClassesMessage, FlowsMessage

_PERCENT = 100 / SHARES_PER_UNIT
_SHORTEST_PATIENCE_S = 3.0
_MOST_RECENT = 100
_MOST_POLICIES = 16


@dataclass
class NodeState:
    """One node since the backend started. Times are monotonic seconds; physical: its netdevs that are hardware.

    recent: its intervals of the last STEP_S, which policies look at. flows, classes: what it told last of its
    processes, and of its service classes by policy id.
    """

    connected: bool = False
    interval_s: float = 1.0
    rates: Rates | None = None
    rates_at: float | None = None
    recent: deque[Rates] = field(default_factory=lambda: deque(maxlen=_MOST_RECENT))
    flows: FlowsMessage | None = None
    classes: dict[int, ClassesMessage] = field(default_factory=dict)
    clock_skew_ms: float | None = None
    tasks: list[Task] = field(default_factory=list)
    physical: frozenset[str] | None = None
    last_health: Health | None = None
    figures: Figures | None = None

    def learn(self, inventory: Inventory) -> None:
        """Remember which netdevs are hardware."""
        self.physical = inventory.physical_netdevs()

    def health(self, *, seen_before: bool) -> Health:
        """Live with a sample in the last three intervals (at least 3 s); see Health."""
        if not self.connected:
            return Health.AWAY if seen_before or self.rates_at is not None else Health.NEW
        patience = max(3 * self.interval_s, _SHORTEST_PATIENCE_S)
        is_fresh = self.rates_at is not None and time.monotonic() - self.rates_at <= patience
        return Health.LIVE if is_fresh else Health.STALE

    def take(self, rates: Rates) -> None:
        """The node's newest interval."""
        self.rates, self.rates_at, self.figures = rates, time.monotonic(), None
        self.recent.append(rates)
        while rates.time_ms - self.recent[0].time_ms >= STEP_S * 1000:
            self.recent.popleft()

    def take_classes(self, message: ClassesMessage) -> None:
        """What it told last of a policy's classes; of many policies those told last."""
        policy_id = int(message.policy_id)
        self.classes.pop(policy_id, None)
        self.classes[policy_id] = message
        while len(self.classes) > _MOST_POLICIES:
            del self.classes[next(iter(self.classes))]

    @property
    def net_tasks(self) -> list[NetTask]:
        """The processes that talk over the network, as last told."""
        return [] if self.flows is None else self.flows.tasks

    def last_figures(self) -> Figures | None:
        """The last interval in numbers, worked out when somebody asks."""
        if self.figures is None and self.rates is not None:
            self.figures = figures(self.rates, self.physical)
        return self.figures


class Registry:
    """NodeState by node id."""

    def __init__(self) -> None:
        self._states: dict[int, NodeState] = {}

    def get(self, node_id: int) -> NodeState:
        """The node's state; an empty one for a node that has not been heard of since the start."""
        return self._states.get(node_id) or NodeState()

    def made(self, node_id: int) -> NodeState:
        """The node's state, to be changed."""
        return self._states.setdefault(node_id, NodeState())

    def forget(self, node_id: int) -> None:
        """The node is deleted."""
        self._states.pop(node_id, None)

    def items(self) -> Iterator[tuple[int, NodeState]]:
        """Every node heard of since the start."""
        yield from list(self._states.items())

    def changed_health(self) -> list[int]:
        """Nodes whose health is another than at the last call."""
        changed = []
        for node_id, state in self._states.items():
            health = state.health(seen_before=True)
            if health != state.last_health:
                state.last_health = health
                changed.append(node_id)
        return changed


def figures(rates: Rates, physical: frozenset[str] | None) -> Figures:
    """An interval in a few numbers. Traffic is that of the physical netdevs, of all but lo where those are unknown.

    interrupts_per_s counts numbered device interrupts only, not architecture rows such as the timer's.
    """
    seconds = rates.duration_s
    busiest_cpu, busiest = _largest(rates.shares.get("busy"))
    softirq_cpu, softirq = _largest(rates.shares.get("softirq"))
    netdevs = None
    if rates.netdevs is not None:
        netdevs = [n for n in rates.netdevs if (n.name != "lo" if physical is None else n.name in physical)]

    def per_s(value: int | None) -> float | None:
        return None if value is None else value / seconds

    return Figures(
        time=at_ms(rates.time_ms),
        busiest_cpu=busiest_cpu,
        busiest_percent=busiest,
        softirq_cpu=softirq_cpu,
        softirq_percent=softirq,
        rx_bytes_per_s=per_s(None if netdevs is None else sum(n.rx_bytes for n in netdevs)),
        tx_bytes_per_s=per_s(None if netdevs is None else sum(n.tx_bytes for n in netdevs)),
        rx_packets_per_s=per_s(None if netdevs is None else sum(n.rx_packets for n in netdevs)),
        interrupts_per_s=per_s(rates_interrupts(rates)),
        dropped_per_s=per_s(sum_u32(rates.counts.get("dropped"))),
        squeezed_per_s=per_s(sum_u32(rates.counts.get("time_squeeze"))),
        rtt_p99_us=rates.tcp.rtt_p99_us if rates.tcp else None,
    )


def _largest(share: bytes | None) -> tuple[int | None, float | None]:
    """The CPU with the largest share, and that in percent."""
    if share is None:
        return None, None
    values = np.frombuffer(share, np.uint8) + np.uint8(1)  # ABSENT_SHARE becomes 0
    cpu = int(values.argmax())
    return (None, None) if share[cpu] == ABSENT_SHARE else (cpu, share[cpu] * _PERCENT)
