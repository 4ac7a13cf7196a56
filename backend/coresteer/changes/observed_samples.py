"""Figures that a change may affect, sample by sample: of its CPUs, interrupts and NICs, and of the whole node. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from psycopg.rows import TupleRow

from coresteer.changes.observation import WINDOW_S, Lines, Moments, Subject
from coresteer.telemetry import chunks
from coresteer.telemetry.byte_columns import F64
from coresteer_core.changes.plan import Plan
from coresteer_core.metrics import METRICS
from coresteer_core.node.metric_values import netdevs_counted
from coresteer_core.node.rates import ABSENT_SHARE, FIRST_LABEL_ID, SHARES_PER_UNIT
from coresteer_core.node.rates_block import NETDEV_FIELDS
from coresteer_core.node.view import View
from coresteer_core.settings import parse_setting

COLUMNS = ("busy", "softirq", "steal", "irqs", "netdevs")
"""The columns of chunks that the figures are read from."""
_MAX_CPUS = 8
_MAX_NAMED_CPUS = 4
"""A setting with more CPUs says little about where the work runs."""
_MIN_CPU_SHARE = 0.1
_MAX_IRQS = 8
_MAX_NICS = 2
_SHARES = {"cpu_busy_percent": "busy", "cpu_softirq_percent": "softirq"}
_TRAFFIC = ("rx_bytes_per_s", "tx_bytes_per_s")
_SCALARS = ("rtt_p50_us", "rtt_p99_us")
_DROPPED = (NETDEV_FIELDS.index("rx_dropped"), NETDEV_FIELDS.index("tx_dropped"))


@dataclass(frozen=True)
class Touched:
    """What a plan touches on its node. cpus: those that its values name.

    irqs: the interrupts that it moves; nics: the NICs whose packets or interrupts it affects, with their interrupts.
    physical: the netdevs whose traffic is the node's, None where unknown.
    """

    cpus: tuple[int, ...] = ()
    irqs: tuple[int, ...] = ()
    nics: dict[str, frozenset[int]] = field(default_factory=dict)
    physical: frozenset[str] | None = None


def touched_by(plan: Plan, view: View | None) -> Touched:
    """Return what a plan touches. view: of its node; None where the node has not reported itself."""
    settings = [(parse_setting(action.key), action) for action in plan.actions]
    named = [
        cpus
        for setting, action in settings
        for cpus in (setting.cpus(action.was), setting.cpus(action.becomes))
        if len(cpus) <= _MAX_NAMED_CPUS
    ]
    irqs = [setting.interrupt for setting, _ in settings if setting.interrupt is not None]
    nics: dict[str, frozenset[int]] = {}
    if view is not None:
        names = dict.fromkeys(setting.affected_netdev(view) for setting, _ in settings)
        for name in [name for name in names if name is not None][:_MAX_NICS]:
            nics[name] = frozenset(irq.irq for irq in view.inventory.irqs if irq.netdev == name)
    cpus = dict.fromkeys(cpu for found in named for cpu in sorted(found))
    physical = None if view is None else view.inventory.physical_netdevs()
    return Touched(tuple(cpus)[:_MAX_CPUS], tuple(irqs[:_MAX_IRQS]), nics, physical)


class _Part:
    """One chunk of the node, decoded as far as the figures need."""

    def __init__(self, row: TupleRow) -> None:
        self.samples, self.cpus, packed, *columns = row
        self.scalars = chunks.read_scalars(packed)
        self.columns: dict[str, bytes | None] = dict(zip(COLUMNS, columns, strict=True))
        self.seconds: F64 = np.frombuffer(self.scalars.durations_s, "<f8")
        ends = chunks.cumulative(self.scalars.times_ms).astype(np.float64)
        self.middles_ms: F64 = ends - self.seconds * 500

    def unknown(self) -> F64:
        return np.full(self.samples, np.nan)

    def without_absent(self, column: str, values: F64) -> F64:
        values[self.scalars.absent.get(column, [])] = np.nan
        return values

    def shares(self, column: str) -> F64:
        """Return the percentages of a kind of time as CPUs × samples, NaN where unknown."""
        packed = self.columns[column]
        if packed is None:
            return np.full((self.cpus, self.samples), np.nan)
        raw = chunks.read_share(packed, self.cpus)
        return np.where(raw == ABSENT_SHARE, np.nan, raw * (100 / SHARES_PER_UNIT))


def figures_over_time(rows: Sequence[TupleRow], touched: Touched, at: Moments) -> Lines:
    """Return the figures of a change from the chunks (samples, CPUs, scalars, COLUMNS) of its node."""
    parts = [_Part(row) for row in rows]
    cells = [_read_cells(part) for part in parts]
    cpus = _with_serving_cpus(touched, parts, cells, at)
    lines: dict[Subject, list[F64]] = {}
    for part, cell in zip(parts, cells, strict=True):
        for subject, values in _figures(part, cell, touched, cpus):
            lines.setdefault(subject, []).append(values)
    empty = [np.empty(0)]
    return Lines(
        np.concatenate([*empty, *(part.middles_ms for part in parts)]),
        np.concatenate([*empty, *(part.seconds for part in parts)]),
        {subject: np.concatenate(found) for subject, found in lines.items()},
    )


_Cells = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16], npt.NDArray[np.uint32]]


def _read_cells(part: _Part) -> _Cells | None:
    packed = part.columns["irqs"]
    return None if packed is None else chunks.read_cells(packed, part.samples)


def _with_serving_cpus(
    touched: Touched, parts: Sequence[_Part], cells: Sequence[_Cells | None], at: Moments
) -> list[int]:
    """Return the CPUs of a change: named ones, then those that served its interrupts before or after it."""
    windows = ((at.began_ms - WINDOW_S * 1000, at.began_ms), (at.applied_ms, at.end_ms))
    served: list[Counter[int]] = [Counter() for _ in windows]
    for part, found in zip(parts, cells, strict=True):
        if found is None:
            continue
        ids, cpus, counts = found
        rows = np.isin(ids, touched.irqs)
        for side, (start, end) in zip(served, windows, strict=True):
            inside = (part.middles_ms >= start) & (part.middles_ms < end)
            amounts = counts[rows][:, inside].sum(axis=1).tolist()
            for cpu, amount in zip(cpus[rows].tolist(), amounts, strict=True):
                side[cpu] += amount
    chosen = dict.fromkeys(touched.cpus)
    for side in served:
        least = _MIN_CPU_SHARE * side.total()
        chosen |= {cpu: None for cpu, amount in side.most_common(_MAX_NAMED_CPUS) if amount and amount >= least}
    return sorted(list(chosen)[:_MAX_CPUS])


def _figures(part: _Part, cells: _Cells | None, touched: Touched, cpus: Sequence[int]) -> Iterator[tuple[Subject, F64]]:
    """Yield every figure with its value in each sample; the same ones for each chunk."""
    shares = {metric: part.shares(column) for metric, column in _SHARES.items()}
    for cpu in cpus:
        for metric, of_cpus in shares.items():
            yield Subject(metric, f"cpu:{cpu}"), of_cpus[cpu] if cpu < part.cpus else part.unknown()
    for irq in touched.irqs:
        yield Subject("interrupts_per_s", f"irq:{irq}"), _interrupts(part, cells, [irq])
    traffic = _Traffic(part)
    for nic, irqs in touched.nics.items():
        if irqs:
            yield Subject("interrupts_per_s", f"nic:{nic}"), _interrupts(part, cells, sorted(irqs))
        yield Subject("rx_packets_per_s", f"nic:{nic}"), traffic.rate("rx_packets_per_s", [nic])
        yield Subject("dropped_per_s", f"nic:{nic}"), traffic.dropped([nic])
    counted = [*filter(netdevs_counted(touched.physical), traffic.names)]
    for metric in _TRAFFIC:
        yield Subject(metric), traffic.rate(metric, counted)
    yield Subject("interrupts_per_s"), chunks.amounts(part.scalars, "interrupts") / part.seconds
    # what the host took keeps a CPU busy, but is no CPU time of the node
    used = shares["cpu_busy_percent"] - np.nan_to_num(part.shares("steal"))
    for metric, of_cpus in (shares | {"cpu_busy_percent": used}).items():
        known = ~np.isnan(of_cpus)
        yield Subject(metric), np.where(known.any(axis=0), np.where(known, of_cpus, 0.0).sum(axis=0), np.nan)
    for metric in _SCALARS:
        yield Subject(metric), chunks.amounts(part.scalars, metric)
    yield Subject("dropped_per_s"), traffic.dropped(traffic.names)


def _interrupts(part: _Part, cells: _Cells | None, irqs: Sequence[int]) -> F64:
    if cells is None:
        return part.unknown()
    ids, _, counts = cells
    rows = np.isin(ids, [irq for irq in irqs if irq < FIRST_LABEL_ID])
    return part.without_absent("irqs", counts[rows].sum(axis=0, dtype=np.float64)) / part.seconds


class _Traffic:
    """Counters of a chunk's netdevs."""

    def __init__(self, part: _Part) -> None:
        self._part = part
        packed = part.columns["netdevs"]
        self.names: list[str] = []
        if packed is not None:
            self.names, self._present, self._counts = chunks.read_netdevs(packed, part.samples)

    def rate(self, metric: str, netdevs: Sequence[str]) -> F64:
        """Return a metric of traffic, per second, NaN where none of the netdevs is known."""
        source = METRICS[metric].source
        return self._sum(netdevs, [NETDEV_FIELDS.index(source.field)] if source is not None else [])

    def dropped(self, netdevs: Sequence[str]) -> F64:
        """Return the packets that the netdevs dropped, per second."""
        return self._sum(netdevs, _DROPPED)

    def _sum(self, netdevs: Sequence[str], fields: Sequence[int]) -> F64:
        rows = [self.names.index(name) for name in netdevs if name in self.names]
        if not rows:
            return self._part.unknown()
        amounts = self._counts[rows][:, fields].sum(axis=(0, 1)).astype(np.float64)
        amounts[~self._present[rows].any(axis=0)] = np.nan
        return self._part.without_absent("netdevs", amounts) / self._part.seconds
