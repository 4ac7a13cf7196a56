"""Compute the values of metrics from the Rates of one interval. None is what could not be read."""

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from types import MappingProxyType

from coresteer_core.metrics import GUARDRAIL_METRICS, METRICS, SCALAR_SOURCES, Metric, Source
from coresteer_core.node.rates import (
    ABSENT_SHARE,
    ABSENT_U32,
    FIRST_LABEL_ID,
    SHARES_PER_UNIT,
    NetdevCounts,
    Rates,
    unpack_column,
)

Counted = Callable[[str], bool]
"""Whether the traffic of the netdev with that name counts."""

_ABSENT = bytes([ABSENT_SHARE])
_IS_DEVICE = bytes(high < FIRST_LABEL_ID >> 24 for high in range(256))
"""By the highest byte of an irq_id, whether it is the number of an interrupt."""


def sum_known_cpus(column: bytes | None) -> int | None:
    """Return the sum of a u32 column of Rates over all CPUs; None where no CPU's count is known."""
    values = unpack_column(column or b"", "I")
    absent = values.count(ABSENT_U32)
    return None if absent == len(values) else sum(values) - absent * ABSENT_U32


def device_interrupts(rates: Rates) -> int | None:
    """Return the number of device interrupts in an interval, without rows such as LOC; None where not read."""
    if rates.irq_ids is None or rates.irq_counts is None:
        return None
    return sum(compress(unpack_column(rates.irq_counts, "I"), rates.irq_ids[3::4].translate(_IS_DEVICE)))


def largest_share(column: bytes | None) -> tuple[int, float] | None:
    """Return the CPU with the largest share in a column of Rates.shares, and that share in percent; None if unknown."""
    if column is None or column.count(_ABSENT) == len(column):
        return None
    largest = max(column.replace(_ABSENT, b"\0"))
    return column.index(largest), largest * 100 / SHARES_PER_UNIT


def _reader(source: Source) -> Callable[[Rates], float | None]:
    """Return the function that reads a source's amount from Rates."""
    field, column = source.field, source.column
    readers: dict[str, Callable[[Rates], float | None]] = {
        "cpu": lambda rates: sum_known_cpus(rates.counts.get(column)),
        "irq": device_interrupts,
        "tcp": lambda rates: getattr(rates.tcp, field) if rates.tcp is not None and rates.tcp.sockets else None,
        "agent": lambda rates: getattr(rates, field),
        "counter": lambda rates: rates.counters.get(field),
    }
    return readers[source.kind]


SCALAR_READERS: Mapping[str, Callable[[Rates], float | None]] = MappingProxyType(
    {field: _reader(source) for field, source in SCALAR_SOURCES.items()}
)
"""By field of SCALAR_SOURCES, the function that returns its amount from the Rates of an interval."""


def netdevs_counted(physical: frozenset[str] | None) -> Counted:
    """Return which netdevs' traffic counts: that of the physical ones, of all but loopback where None are known."""
    return (lambda name: name != "lo") if physical is None else physical.__contains__


def counted_netdevs(rates: Rates, physical: frozenset[str] | None) -> Sequence[NetdevCounts] | None:
    """Return the counts of the netdevs whose traffic counts (netdevs_counted); None if not read."""
    if rates.netdevs is None:
        return None
    counted = netdevs_counted(physical)
    return [netdev for netdev in rates.netdevs if counted(netdev.name)]


def metric_values(
    rates: Rates, metrics: Mapping[str, Metric], physical: frozenset[str] | None
) -> dict[str, float | None]:
    """Return by name the value in one interval of each of these metrics that has a source; None where unknown.

    physical: the netdevs whose traffic counts; all but loopback where they are not known.
    """
    netdevs = counted_netdevs(rates, physical) or ()
    return {
        name: _value(metric, metric.source, rates, netdevs)
        for name, metric in metrics.items()
        if metric.source is not None
    }


def _value(metric: Metric, source: Source, rates: Rates, netdevs: Sequence[NetdevCounts]) -> float | None:
    amount: float | None
    if source.kind == "netdev":
        amount = sum(getattr(netdev, source.field) for netdev in netdevs) if netdevs else None
    else:
        amount = SCALAR_READERS[source.field](rates)
    if amount is None or (not source.level and rates.duration_s <= 0):
        return None
    return metric.value(amount, rates.duration_s)


def netdev_drops(netdevs: Sequence[NetdevCounts]) -> int:
    """Return the packets that these netdevs dropped, received and sent.

    A netdev's count includes the packets that softnet's full backlog turned away (kernel: net/core/dev.c,
    enqueue_to_backlog).
    """
    return sum(netdev.rx_dropped + netdev.tx_dropped for netdev in netdevs)


def guardrail_values(rates: Rates) -> dict[str, float | None]:
    """Return by name the value in one interval of each metric that a guardrail may bound; None where unknown.

    dropped_per_s counts the drops of every netdev; softnet's own count is used only without netdev counters.
    """
    measured = metric_values(rates, _GUARDRAIL_SOURCES, None)
    return measured | {name: formula(rates) for name, formula in _GUARDRAIL_FORMULAS.items()}


def _dropped_per_s(rates: Rates) -> float | None:
    netdevs = rates.netdevs
    dropped = sum_known_cpus(rates.counts.get("dropped")) if netdevs is None else netdev_drops(netdevs)
    return None if dropped is None or rates.duration_s <= 0 else dropped / rates.duration_s


def _busiest_cpu_percent(rates: Rates) -> float | None:
    busiest = largest_share(rates.shares.get("busy"))
    return None if busiest is None else busiest[1]


_GUARDRAIL_SOURCES = {name: METRICS[name] for name in GUARDRAIL_METRICS if METRICS[name].source is not None}
_GUARDRAIL_FORMULAS: dict[str, Callable[[Rates], float | None]] = {
    "dropped_per_s": _dropped_per_s,
    "busiest_cpu_percent": _busiest_cpu_percent,
}
if (_undefined := GUARDRAIL_METRICS.keys() ^ {*_GUARDRAIL_SOURCES, *_GUARDRAIL_FORMULAS}) != set():
    raise TypeError(f"These guardrail metrics need either a source or an entry of _GUARDRAIL_FORMULAS: {_undefined}")
