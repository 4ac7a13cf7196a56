"""Which nodes of the fleet a page shows, in which order, and the figures of all that match, by group. Pure."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from coresteer.fleet import thresholds
from coresteer.fleet.figures import HEALTH_CODES, FleetNode, FleetValues, Mask, Numbers, natural
from coresteer.fleet.filter import Filter, parse_filter
from coresteer.fleet.schemas import SORTS, Compared, Group, Totals, WorstNode
from coresteer.presence.schemas import Health
from coresteer_core.metrics import FLEET_METRICS

MAX_GROUPS = 200
"""Maximum number of groups in an answer: those with most nodes."""
SUMMED = tuple(name for name, metric in FLEET_METRICS.items() if metric.source is not None and not metric.source.level)
"""Figures that add up over nodes; of the others, the fleet's is the largest."""
LARGEST = tuple(name for name in FLEET_METRICS if name not in SUMMED)
_HEALTH_ORDER = (Health.LIVE, Health.NEW, Health.STALE, Health.AWAY)


@dataclass(frozen=True)
class Fleet:
    """All nodes in the order of their names, with the figures of one moment and those they are compared with."""

    nodes: Sequence[FleetNode]
    values: FleetValues
    before: FleetValues | None = None

    @cached_property
    def places(self) -> dict[int, int]:
        """Return the place of each node by its id."""
        return {node.id: at for at, node in enumerate(self.nodes)}


@dataclass(frozen=True)
class Selection:
    """The nodes that match a query, and in which group each one is. names: of the groups; codes index them."""

    fleet: Fleet
    mask: Mask
    names: Sequence[str]
    codes: npt.NDArray[np.intp]
    filter: Filter

    @property
    def places(self) -> npt.NDArray[np.intp]:
        """Return the places of the nodes that match, in the order of their names."""
        return np.flatnonzero(self.mask)


def select(fleet: Fleet, line: str = "", group: str | None = None, within: str | None = None) -> Selection:
    """Return the nodes that match a filter line. group: as group_of; within: only the nodes of the group so named."""
    found = parse_filter(line)
    mask = found.mask(fleet.nodes, fleet.values)
    known: dict[str, int] = {}
    of = group_of(group)
    codes = np.array([known.setdefault(of(node), len(known)) for node in fleet.nodes], np.intp)
    if within is not None:
        mask &= codes == known.get(within, -1)
    return Selection(fleet, mask, list(known), codes, found)


def group_of(by: str | None) -> Callable[[FleetNode], str]:
    """Return what names a node's group. by: ``label:NAME``, ``kernel`` or ``driver``; None for one group."""
    if by is None:
        return lambda _: ""
    if by == "kernel":
        return lambda node: node.kernel or "kernel unknown"
    if by == "driver":
        return lambda node: ", ".join(node.drivers) or "without driver"
    label = by.removeprefix("label:")
    return lambda node: node.labels.get(label, f"without {label}")


def ordered(selection: Selection, sort: str) -> npt.NDArray[np.intp]:
    """Return the places of the nodes that match, sorted. sort: as SORTS; descending after -; unknown figures last.

    By name, a node whose whole name is looked for comes first.
    """
    fleet, places = selection.fleet, selection.places
    name, sign = sort.removeprefix("-"), -1 if sort.startswith("-") else 1
    if name == "name":
        asked = set(selection.filter.words)
        whole = np.array([fleet.nodes[at].name.lower() not in asked for at in places], np.bool_)
        places = places[::sign]
        return places[np.argsort(whole[::sign], kind="stable")]
    if name == "health":
        rank = np.array([_HEALTH_ORDER.index(health) for health in HEALTH_CODES], np.int8)
        return places[np.argsort(sign * rank[fleet.values.health[places]], kind="stable")]
    return places[np.argsort(sign * fleet.values.metrics[SORTS[name]][places], kind="stable")]


def hot_spots(selection: Selection, most: int) -> list[int]:
    """Return the places of nodes with drops, time squeeze or overloaded CPUs: drops first, then most softirq."""
    metrics = selection.fleet.values.metrics
    dropped = np.nan_to_num(metrics["softnet_dropped_per_s"])
    softirq = np.nan_to_num(metrics["softirq_cpu_percent"])
    is_hot = (
        (dropped > 0)
        | (np.nan_to_num(metrics["squeezed_per_s"]) >= thresholds.SQUEEZED_PER_S)
        | (softirq >= thresholds.SOFTIRQ_PERCENT)
        | (np.nan_to_num(metrics["busiest_cpu_percent"]) >= thresholds.BUSY_PERCENT)
    )
    places = np.flatnonzero(is_hot & selection.mask)
    rank = softirq[places] + 1000.0 * (dropped[places] > 0)
    return [int(at) for at in places[np.argsort(-rank, kind="stable")][:most]]


def totals(fleet: Fleet, places: npt.NDArray[np.intp]) -> Totals:
    """Return the figures of some nodes together."""
    values, nodes = fleet.values, [fleet.nodes[at] for at in places]
    counts = np.bincount(values.health[places], minlength=len(HEALTH_CODES))
    softirq = values.metrics["softirq_cpu_percent"][places]
    return Totals(
        nodes=len(places),
        health={health: int(counts[code]) for health, code in HEALTH_CODES.items()},
        open_changes=sum(node.open_changes for node in nodes),
        with_data=int(np.count_nonzero(~np.isnan(values.metrics["busiest_cpu_percent"][places]))),
        hot=int(np.count_nonzero(softirq >= thresholds.SOFTIRQ_BOUND_PERCENT)) if not np.isnan(softirq).all() else None,
        sums={name: _sum(values.metrics[name][places]) for name in SUMMED},
        worst={name: _worst(fleet, values, name, places) for name in LARGEST},
    )


def compared(fleet: Fleet, places: npt.NDArray[np.intp]) -> Compared | None:
    """Return what the totals are compared with: sums over the nodes of which both figures are known."""
    before = fleet.before
    if before is None:
        return None
    now_sums, sums = {}, {}
    for name in SUMMED:
        now, then = fleet.values.metrics[name][places], before.metrics[name][places]
        both = ~np.isnan(now) & ~np.isnan(then)
        now_sums[name], sums[name] = _sum(now[both]), _sum(then[both])
    softirq = before.metrics["softirq_cpu_percent"][places]
    return Compared(
        now_sums=now_sums,
        sums=sums,
        hot=int(np.count_nonzero(softirq >= thresholds.SOFTIRQ_BOUND_PERCENT)) if not np.isnan(softirq).all() else None,
        worst={name: _worst(fleet, before, name, places) for name in LARGEST},
    )


def groups(selection: Selection) -> tuple[list[Group], int]:
    """Return the groups with nodes that match, by name, and how many more there are beyond MAX_GROUPS."""
    members: dict[int, list[int]] = defaultdict(list)
    for at in selection.places:
        members[int(selection.codes[at])].append(int(at))
    largest = sorted(members, key=lambda code: -len(members[code]))[:MAX_GROUPS]
    told = sorted(largest, key=lambda code: natural(selection.names[code]))
    return [
        Group(name=selection.names[code], totals=totals(selection.fleet, np.array(members[code], np.intp)))
        for code in told
    ], len(members) - len(told)


def _sum(values: Numbers) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.sum()) if len(known) else None


def _worst(fleet: Fleet, values: FleetValues, name: str, places: npt.NDArray[np.intp]) -> WorstNode | None:
    column = values.metrics[name][places]
    if len(column) == 0 or np.isnan(column).all():
        return None
    at = int(np.nanargmax(column))
    node = fleet.nodes[places[at]]
    return WorstNode(id=node.id, name=node.name, value=float(column[at]))
