"""Metrics of a block of time of one node from its roll-ups: ratios of sums, never means of ratios. Pure."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from coresteer.telemetry.rollup import CPU_SECONDS, LEVEL_INTEGRALS, Rollup
from coresteer_core.metrics import REPORT_METRICS, Metric
from coresteer_core.node.metric_values import Counted
from coresteer_core.node.rates import ABSENT_SHARE, CPU_SHARES, SHARES_PER_UNIT

_CPU_KINDS = {f"cpu_{kind}_percent": kind for kind in CPU_SECONDS}
_BUSY_KINDS = ("user", "system", "irq", "softirq")
"""Stored busy time also has steal: in it the host ran other guests."""
_BITS = ("rx_bit_per_s", "tx_bit_per_s")
_RATIOS = {
    "packets_per_interrupt": (("packets_per_s",), ("interrupts_per_s",)),
    "remote_numa_share": (("numa_other_per_s",), ("numa_local_per_s", "numa_other_per_s")),
}
"""Metrics that are one sum of amounts divided by another."""
_MIN_WITHIN = 0.95
_ONE_EVENT = 1.0
"""Added to counts of events, of which a block may have none: a difference then still only depends on both blocks."""


class Sums(NamedTuple):
    """A metric in a block as amount ÷ base. event: the amount counts events that may be none.

    floor: the value that stands for smaller ones and for 0 where a logarithm is taken.
    """

    amount: float
    base: float
    event: bool = False
    floor: float = 0.0

    @property
    def value(self) -> float:
        """Return the metric's value."""
        return self.amount / self.base

    @property
    def log(self) -> float | None:
        """Return the logarithm of the metric, None where it has none."""
        value = max((self.amount + (_ONE_EVENT if self.event else 0.0)) / self.base, self.floor)
        return math.log(value) if value > 0 else None


class BlockFigures(NamedTuple):
    """What was measured in a block. duration_s: of the samples in it; sums: by metric, those that are known."""

    duration_s: float
    sums: dict[str, Sums]

    @property
    def bit_per_s(self) -> float | None:
        """Return the traffic, None where it is unknown."""
        bits = [self.sums[name].value for name in _BITS if name in self.sums]
        return sum(bits) if bits else None


def between(rollups: Iterable[Rollup], start_ms: float, end_ms: float) -> list[Rollup]:
    """Return the roll-ups whose middle lies in a range of the node's time."""
    return [one for one in rollups if start_ms <= (one.start_ms + one.end_ms) / 2 < end_ms]


def within(rollups: Iterable[Rollup], start_ms: float, end_ms: float) -> list[Rollup]:
    """Return the roll-ups that lie in a range of the node's time, but for a twentieth: samples end a little later.

    One that reaches further into the next block has something of what was in force there.
    """
    return [one for one in rollups if _overlap(one, start_ms, end_ms) >= _MIN_WITHIN]


def covered_s(rollups: Iterable[Rollup], start_ms: float, end_ms: float) -> float:
    """Return of how much of a range there are samples, also in roll-ups that reach out of it."""
    return sum(one.duration_s * _overlap(one, start_ms, end_ms) for one in rollups)


def _overlap(rollup: Rollup, start_ms: float, end_ms: float) -> float:
    """Return the share of a roll-up's time that lies in a range."""
    inside = min(rollup.end_ms, end_ms) - max(rollup.start_ms, start_ms)
    return max(0.0, inside) / max(1, rollup.end_ms - rollup.start_ms)


def block_figures(rollups: Sequence[Rollup], metrics: Iterable[str], counted: Counted) -> BlockFigures:
    """Return the metrics of a block, always with traffic and busy CPUs; those unknown in any roll-up are absent."""
    names = dict.fromkeys((*metrics, *_BITS, "cpu_busy_percent"))
    sums: dict[str, Sums] = {}
    for name in names:
        parts = [_sums(name, REPORT_METRICS[name], rollup, counted) for rollup in rollups]
        known = [part for part in parts if part is not None]
        if known and len(known) == len(parts):
            amount, base = sum(part.amount for part in known), sum(part.base for part in known)
            if base > 0:
                sums[name] = Sums(amount, base, known[0].event)
    return BlockFigures(sum(rollup.duration_s for rollup in rollups), sums)


def difference(enforced: BlockFigures, holdout: BlockFigures, metric: str) -> float | None:
    """Return log(enforced / holdout) of a metric, None where a block has no value of it."""
    if metric not in enforced.sums or metric not in holdout.sums:
        return None
    there, without = enforced.sums[metric].log, holdout.sums[metric].log
    return None if there is None or without is None else there - without


def _sums(name: str, metric: Metric, rollup: Rollup, counted: Counted) -> Sums | None:
    if name in _CPU_KINDS:
        cpu_s = _cpu_s(rollup, _CPU_KINDS[name])
        return None if cpu_s is None else Sums(100 * cpu_s, rollup.duration_s)
    if name == "cpu_s_per_gbit":
        cpu_s, octets = _cpu_s(rollup, "busy"), _sum(rollup, counted, _BITS)
        return None if cpu_s is None or octets is None else Sums(cpu_s, 8 * octets / 1e9)
    if name in _RATIOS:
        amount, base = (_sum(rollup, counted, names) for names in _RATIOS[name])
        return None if amount is None or base is None else Sums(amount, base, event=True)
    if metric.source is None or (amount := rollup.amount(metric.source, counted)) is None:
        return None
    if metric.source.level:
        name = LEVEL_INTEGRALS[metric.source.field]
        # older roll-ups have only the maximum, which is no mean, and must not be compared with one
        integral = rollup.amounts.get(name)
        return None if integral is None else Sums(integral * metric.factor, rollup.known_s(name))
    known_s = rollup.known_s(metric.source.field)
    return Sums(amount * metric.factor, known_s, event=metric.source.kind != "netdev")


def _sum(rollup: Rollup, counted: Counted, names: Iterable[str]) -> float | None:
    """Return the sum of the amounts of metrics at their rates in the whole time, None where one of them is unknown."""
    total = 0.0
    for source in (REPORT_METRICS[name].source for name in names):
        if source is None or (amount := rollup.amount(source, counted)) is None:
            return None
        total += amount * (rollup.duration_s / rollup.known_s(source.field))
    return total


def _cpu_s(rollup: Rollup, kind: str) -> float | None:
    """Return the CPU seconds of a kind of time at its rate in the whole time, None where unknown.

    Busy time is without steal. Of older roll-ups they are from the rounded means.
    """
    if kind == "busy" and CPU_SECONDS["steal"] in rollup.amounts:
        # a sum of the other kinds would round small shares four times
        busy, steal = (_of_kind(rollup, one) for one in ("busy", "steal"))
        return None if busy is None or steal is None else max(0.0, busy - steal)
    if kind == "busy":
        parts = [_of_kind(rollup, one) for one in _BUSY_KINDS]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None
    return _of_kind(rollup, kind)


def _of_kind(rollup: Rollup, kind: str) -> float | None:
    if (seconds := rollup.amounts.get(CPU_SECONDS[kind])) is not None:
        return seconds * (rollup.duration_s / rollup.known_s(CPU_SECONDS[kind]))
    shares = rollup.means[CPU_SHARES.index(kind)]
    means = shares[shares != ABSENT_SHARE]
    return float(means.sum(dtype=float)) / SHARES_PER_UNIT * rollup.duration_s if means.size else None
