"""What is known of all nodes at one moment, as columns: the fleet page's queries read them without the database."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from coresteer.presence.registry import NodeRegistry
from coresteer.presence.schemas import Figures, Health
from coresteer.telemetry.repository import from_unix_ms
from coresteer_core.metrics import FLEET_METRICS
from coresteer_core.node.rates import ABSENT_U32

Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.float64]
Cpus: TypeAlias = npt.NDArray[np.uint32]

HEALTH_CODES = {Health.LIVE: 0, Health.STALE: 1, Health.AWAY: 2, Health.NEW: 3}
"""The code of each health in columns."""
_NODES_AT_ONCE = 250


@dataclass(frozen=True, slots=True)
class FleetNode:
    """What the fleet page filters, groups and orders nodes by. seen_before: its agent has connected once."""

    id: int
    name: str
    simulated: bool
    mode: str | None
    kernel: str | None
    drivers: Sequence[str]
    labels: Mapping[str, str]
    cpus: int | None
    open_changes: int
    seen_before: bool


def natural(name: str) -> list[tuple[str, int]]:
    """Return a key that orders names as people do: web-2 before web-10."""
    return [(text, int(digits or -1)) for text, digits in re.findall(r"(\D*)(\d*)", name.lower(), re.ASCII)]


@dataclass(frozen=True)
class FleetValues:
    """Figures of nodes, in the nodes' order: NaN or ABSENT_U32 where unknown. time_ms: of the moment."""

    time_ms: int
    health: npt.NDArray[np.uint8]
    busiest_cpu: Cpus
    softirq_cpu: Cpus
    metrics: Mapping[str, Numbers]

    def is_of(self, health: Health) -> Mask:
        """Return which nodes are of a health."""
        return np.asarray(self.health == HEALTH_CODES[health], np.bool_)

    def figures(self, at: int) -> Figures | None:
        """Return the figures of one node, None if none is known."""
        metrics = {name: _known(column[at]) for name, column in self.metrics.items()}
        if all(value is None for value in metrics.values()):
            return None
        busiest, softirq = (int(cpus[at]) for cpus in (self.busiest_cpu, self.softirq_cpu))
        return Figures(
            time=from_unix_ms(self.time_ms),
            busiest_cpu=None if busiest == ABSENT_U32 else busiest,
            softirq_cpu=None if softirq == ABSENT_U32 else softirq,
            metrics=metrics,
        )


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


async def live_values(nodes: Sequence[FleetNode], registry: NodeRegistry, time_ms: int) -> FleetValues:
    """Return the present figures of nodes; those of nodes that are not live are unknown."""
    values = empty_values(len(nodes), time_ms)
    columns = list(values.metrics.items())
    for at, node in enumerate(nodes):
        if at % _NODES_AT_ONCE == 0:
            await asyncio.sleep(0)
        health = registry.health(node.id, seen_before=node.seen_before)
        values.health[at] = HEALTH_CODES[health]
        summary = registry.get(node.id).latest_summary() if health is Health.LIVE else None
        if summary is None:
            continue
        for name, column in columns:
            if (value := summary.metrics.get(name)) is not None:
                column[at] = value
        if summary.busiest_cpu is not None:
            values.busiest_cpu[at] = summary.busiest_cpu
        if summary.softirq_cpu is not None:
            values.softirq_cpu[at] = summary.softirq_cpu
    return values


def empty_values(count: int, time_ms: int) -> FleetValues:
    """Return arrays for the values of count nodes: each has the health NEW and no known figure."""
    return FleetValues(
        time_ms,
        np.full(count, HEALTH_CODES[Health.NEW], np.uint8),
        np.full(count, ABSENT_U32, np.uint32),
        np.full(count, ABSENT_U32, np.uint32),
        {name: np.full(count, np.nan) for name in FLEET_METRICS},
    )
