"""Load of a node: means of its Rates over the last seconds, from which policies decide."""

from collections.abc import Sequence

from msgspec import Struct

from coresteer_core.node.metric_values import guardrail_values
from coresteer_core.node.rates import ABSENT_SHARE, FIRST_LABEL_ID, SHARES_PER_UNIT, Rates, unpack_column


class IrqLoad(Struct, frozen=True, array_like=True):
    """Occurrences per second of one interrupt on one CPU."""

    irq: int
    cpu: int
    per_s: float


class NetdevLoad(Struct, frozen=True, array_like=True):
    """Packets and bytes per second of a network device. dropped_per_s: of received packets."""

    name: str
    rx_packets_per_s: float
    rx_bytes_per_s: float
    tx_packets_per_s: float
    tx_bytes_per_s: float
    dropped_per_s: float


class Load(Struct, frozen=True):
    """Load of a node: CPU shares, interrupts, drops, round-trip time and traffic, as means over the last seconds.

    busy, softirq, system, steal: shares of the interval, 0.0 to 1.0, by CPU number; softirq includes the time in
    interrupts, system does not. busy includes steal, the time that the host took: a CPU has so much less room, but no
    work to move away. None where not known. irqs: numbered interrupts that occurred. rtt_p99_us, dropped_per_s and
    busiest_cpu_percent are the metrics of guardrails. netdevs: those that are in every interval.
    """

    seconds: float = 0.0
    busy: list[float | None] = []
    softirq: list[float | None] = []
    irqs: list[IrqLoad] = []
    rtt_p99_us: int | None = None
    dropped_per_s: float | None = None
    busiest_cpu_percent: float | None = None
    rtt_p50_us: int | None = None
    netdevs: list[NetdevLoad] = []
    system: list[float | None] = []
    steal: list[float | None] = []


def mean_load(rates: Sequence[Rates]) -> Load:
    """Return a node's mean load over intervals, each weighted by its duration where a value is known.

    An interrupt without a cell in an interval whose interrupts are known occurred 0 times. Returns an empty Load for a
    duration of 0.
    """
    seconds = sum(each.duration_s for each in rates)
    if seconds <= 0:
        return Load()
    measured = [(each.duration_s, guardrail_values(each)) for each in rates if each.duration_s > 0]

    def mean(metric: str) -> float | None:
        known = [(weight, value) for weight, values in measured if (value := values[metric]) is not None]
        return sum(weight * value for weight, value in known) / sum(w for w, _ in known) if known else None

    rtt_p99_us = mean("rtt_p99_us")
    medians = [(each.duration_s, each.tcp.rtt_p50_us) for each in rates if each.tcp is not None and each.tcp.sockets]
    timed_s = sum(weight for weight, _ in medians)
    return Load(
        seconds=seconds,
        busy=_shares(rates, "busy"),
        softirq=_shares(rates, "softirq", "irq"),
        irqs=_irqs(rates),
        rtt_p99_us=None if rtt_p99_us is None else round(rtt_p99_us),
        dropped_per_s=mean("dropped_per_s"),
        busiest_cpu_percent=mean("busiest_cpu_percent"),
        rtt_p50_us=round(sum(weight * rtt for weight, rtt in medians) / timed_s) if timed_s > 0 else None,
        netdevs=_netdevs(rates),
        system=_shares(rates, "system"),
        steal=_shares(rates, "steal"),
    )


def _shares(rates: Sequence[Rates], name: str, plus: str | None = None) -> list[float | None]:
    """Return the mean of a share column by CPU, plus another column where that is known."""
    cpus = max((each.cpus for each in rates), default=0)
    sums, weights = [0.0] * cpus, [0.0] * cpus
    for each in rates:
        column = each.shares.get(name) or b""
        more = (each.shares.get(plus) if plus is not None else None) or bytes(len(column))
        for cpu, (share, added) in enumerate(zip(column, more, strict=False)):
            if share != ABSENT_SHARE:
                both = share + (added if added != ABSENT_SHARE else 0)
                sums[cpu] += min(both, SHARES_PER_UNIT) * each.duration_s
                weights[cpu] += each.duration_s
    return [s / (w * SHARES_PER_UNIT) if w else None for s, w in zip(sums, weights, strict=True)]


def _irqs(rates: Sequence[Rates]) -> list[IrqLoad]:
    counts: dict[tuple[int, int], int] = {}
    seconds = 0.0
    for each in rates:
        if each.irq_ids is None or each.irq_cpus is None or each.irq_counts is None:
            continue
        seconds += each.duration_s
        columns = (
            unpack_column(each.irq_ids, "I"),
            unpack_column(each.irq_cpus, "H"),
            unpack_column(each.irq_counts, "I"),
        )
        for irq, cpu, count in zip(*columns, strict=False):
            if irq < FIRST_LABEL_ID:
                counts[irq, cpu] = counts.get((irq, cpu), 0) + count
    return [IrqLoad(irq, cpu, count / seconds) for (irq, cpu), count in sorted(counts.items())] if seconds else []


def _netdevs(rates: Sequence[Rates]) -> list[NetdevLoad]:
    """Return the netdevs that are in every interval whose netdevs are known."""
    known = [each for each in rates if each.netdevs is not None and each.duration_s > 0]
    seconds = sum(each.duration_s for each in known)
    sums: dict[str, list[int]] = {}
    times: dict[str, int] = {}
    for each in known:
        for counts in each.netdevs or []:
            moved = (counts.rx_packets, counts.rx_bytes, counts.tx_packets, counts.tx_bytes, counts.rx_dropped)
            before = sums.get(counts.name, (0,) * len(moved))
            sums[counts.name] = [a + b for a, b in zip(before, moved, strict=True)]
            times[counts.name] = times.get(counts.name, 0) + 1
    return [
        NetdevLoad(name, *(number / seconds for number in moved))
        for name, moved in sums.items()
        if times[name] == len(known)
    ]
