"""Compute the metrics of an experiment's run from the node's counters before and after it."""

import re
from collections.abc import Mapping, Sequence, Set
from itertools import islice
from statistics import fmean

from msgspec import Struct

from coresteer_core.cpuset import format_cpu_list
from coresteer_core.experiments.model import RunResult
from coresteer_core.metrics import EXPERIMENT_METRICS, cpu_s_per_gbit, gbit_per_cpu_s, packets_per_interrupt
from coresteer_core.node.derive import CpuTimes, Sample, derive_rates
from coresteer_core.node.metric_values import counted_netdevs, metric_values, netdev_drops
from coresteer_core.node.rates import FIRST_LABEL_ID, NetdevCounts, Rates, TcpLatency, unpack_column


class Reading(Struct, frozen=True):
    """Counters of a node at the start or the end of a run; None where the kernel does not have one.

    migrations: of tasks to another CPU. numa_pages: pages allocated on the NUMA node of the allocating CPU, and on
    another one (sysfs node/nodeN/numastat: local_node, other_node); None also on machines with one NUMA node.
    pages_moved: pgmigrate_success of /proc/vmstat.
    """

    sample: Sample
    context_switches: int | None = None
    migrations: int | None = None
    numa_pages: tuple[int, int] | None = None
    pages_moved: int | None = None


def run_result(
    before: Reading,
    after: Reading,
    *,
    netdevs: Sequence[str] = (),
    irqs: Mapping[str, frozenset[int]],
    load: Mapping[str, float],
    load_before: float,
    disturbed: Sequence[str] = (),
    tcp: Sequence[TcpLatency] | None = None,
) -> RunResult:
    """Return the result of a run, by the names of metrics.EXPERIMENT_METRICS, from the counters before and after it.

    netdevs: those whose packets count; empty for all but loopback. irqs: of each netdev. load: the workload's own
    metrics, which replace the node's of the same name. tcp: the kernel's round-trip times during a run without a load:
    then throughput is received plus sent bytes of the netdevs, and these are the response times. disturbed: known
    reasons why the run does not count.

    busy is user, system, irq and softirq, without steal. interrupts_per_s counts all device interrupts;
    packets_per_interrupt only those of netdevs that have interrupts. dropped_per_s is the drops of netdevs, received
    and sent, as in guardrail_values. Other metrics that have a source are computed from it.
    """
    rates = derive_rates(before.sample, after.sample, 0)
    seconds = rates.duration_s
    cpus = _shares(before.sample.times, after.sample.times, rates.cpus)
    figures: dict[str, float] = {}
    if seconds > 0:
        figures |= rate_figures(rates, cpus, netdevs=netdevs, irqs=irqs, tcp=tcp)
        figures |= _counted(seconds, before, after)
        figures |= _of_load(load)
        figures |= cost_of_traffic(figures.get("cpu_busy_percent"), figures.get("throughput_bit_per_s"))
    return RunResult(
        started_ms=before.sample.time_ms,
        duration_s=seconds,
        figures=figures,
        cpus=cpus,
        load_before=load_before,
        steal_percent=_mean(cpus["steal"]),
        disturbed=[*_gone(before.sample, after.sample, netdevs), *disturbed],
    )


def rate_figures(
    rates: Rates,
    cpus: Mapping[str, Sequence[float | None]],
    *,
    netdevs: Sequence[str],
    irqs: Mapping[str, frozenset[int]],
    tcp: Sequence[TcpLatency] | None,
) -> dict[str, float]:
    """Return the metrics of a run that its rates have, by name. cpus: percentages of each CPU's time by kind.

    The other arguments are run_result's.
    """
    figures = {f"cpu_{kind}_percent": total for kind in _CPU_FIGURES if (total := _sum(cpus[kind])) is not None}
    physical = frozenset(netdevs) or None
    measured = metric_values(rates, _COUNTED, physical)
    figures |= {name: value for name, value in measured.items() if value is not None}
    counted = counted_netdevs(rates, physical) or ()
    if counted:
        figures["dropped_per_s"] = netdev_drops(counted) / rates.duration_s
    with_irqs = [netdev for netdev in counted if irqs.get(netdev.name)]
    by_irq = _by_irq(rates)
    interrupts = sum(by_irq.get(irq, 0) for netdev in with_irqs for irq in irqs[netdev.name])
    if (ratio := packets_per_interrupt(sum(netdev.rx_packets for netdev in with_irqs), interrupts)) is not None:
        figures["packets_per_interrupt"] = ratio
    return figures if tcp is None else figures | _own_traffic(rates, counted, tcp)


def cost_of_traffic(cpu_percent: float | None, bit_per_s: float | None) -> dict[str, float]:
    """Return CPU seconds per gigabit and gigabits per CPU second by metric, without those that are unknown."""
    found = {
        "cpu_s_per_gbit": cpu_s_per_gbit(cpu_percent, bit_per_s),
        "gbit_per_cpu_s": gbit_per_cpu_s(cpu_percent, bit_per_s),
    }
    return {name: value for name, value in found.items() if value is not None}


OWN_FIGURE = re.compile(r"command\.[A-Za-z0-9_.-]{1,64}\Z", re.ASCII)
"""Name of a figure that a command measures itself."""
MAX_OWN_FIGURES = 100
_MOST = 1e18
_CPU_FIGURES = ("busy", "softirq", "irq", "user", "system")
_ROUND_TRIP = {
    name: metric.source.field
    for name, metric in EXPERIMENT_METRICS.items()
    if metric.source is not None and metric.source.kind == "tcp"
}
"""Fields of TcpLatency by metric: measured only in runs without a load, whose requests are timed otherwise."""
_COUNTED = {name: metric for name, metric in EXPERIMENT_METRICS.items() if name not in _ROUND_TRIP}
CPU_KINDS = ("busy", "user", "system", "irq", "softirq", "steal")


def _shares(
    before: Mapping[int, CpuTimes] | None, after: Mapping[int, CpuTimes] | None, cpus: int
) -> dict[str, list[float | None]]:
    """Return the percentage of each CPU's time by kind, finer than the 0.5 % of Rates; see derive._shares."""
    shares: dict[str, list[float | None]] = {kind: [None] * cpus for kind in CPU_KINDS}
    for cpu, now in (after or {}).items():
        was = (before or {}).get(cpu)
        if was is None or sum(now) <= sum(was):
            continue
        user, nice, system, idle, iowait, irq, softirq, steal = [max(b - a, 0) for a, b in zip(was, now, strict=True)]
        busy = user + nice + system + irq + softirq
        total = busy + steal + idle + iowait
        for kind, ticks in zip(CPU_KINDS, (busy, user + nice, system, irq, softirq, steal), strict=True):
            shares[kind][cpu] = 100 * ticks / total
    return shares


def _counted(seconds: float, before: Reading, after: Reading) -> dict[str, float]:
    """Return the metrics of counters that rates do not have."""
    counts = {
        "context_switches_per_s": _moved(before.context_switches, after.context_switches),
        "migrations_per_s": _moved(before.migrations, after.migrations),
    }
    found = {name: count / seconds for name, count in counts.items() if count is not None}
    if (pages := _moved(before.pages_moved, after.pages_moved)) is not None:
        found["pages_moved"] = pages
    if before.numa_pages is not None and after.numa_pages is not None:
        local, remote = (b - a for a, b in zip(before.numa_pages, after.numa_pages, strict=True))
        if local >= 0 <= remote and local + remote:
            found["remote_numa_share"] = remote / (local + remote)
    return found


def _own_traffic(rates: Rates, netdevs: Sequence[NetdevCounts], tcp: Sequence[TcpLatency]) -> dict[str, float]:
    found: dict[str, float] = {}
    if netdevs:
        moved = sum(netdev.rx_bytes + netdev.tx_bytes for netdev in netdevs)
        found["throughput_bit_per_s"] = 8 * moved / rates.duration_s
    if tcp:
        found |= {name: fmean(getattr(latency, field) for latency in tcp) for name, field in _ROUND_TRIP.items()}
    return found


def _of_load(load: Mapping[str, float]) -> dict[str, float]:
    """Return the workload's own metrics with known names and plausible values; a command's output is not trusted."""
    known = (
        name
        for name, value in load.items()
        if (name in EXPERIMENT_METRICS or OWN_FIGURE.match(name)) and abs(value) < _MOST
    )
    return {name: load[name] for name in islice(known, MAX_OWN_FIGURES)}


def _gone(before: Sample, after: Sample, netdevs: Sequence[str]) -> list[str]:
    """Return a sentence for each CPU or netdev that appeared or disappeared during the run."""
    sentences = []
    if before.times is None or after.times is None:
        sentences.append("The time of the CPUs could not be read.")
    else:
        sentences += _sentence(before.times.keys() - after.times.keys(), "went offline")
        sentences += _sentence(after.times.keys() - before.times.keys(), "came online")
    if before.netdevs is not None and after.netdevs is not None:
        lost = [name for name in netdevs if name in before.netdevs and name not in after.netdevs]
        sentences += [f"The netdev {name} is gone." for name in lost]
    return sentences


def _sentence(cpus: Set[int], did: str) -> list[str]:
    return [f"CPU {format_cpu_list(cpus)} {did}."] if cpus else []


def _by_irq(rates: Rates) -> dict[int, int]:
    """Return the number of occurrences of each device interrupt on all CPUs; empty if not read."""
    if rates.irq_ids is None or rates.irq_counts is None:
        return {}
    by_irq: dict[int, int] = {}
    for irq, count in zip(unpack_column(rates.irq_ids, "I"), unpack_column(rates.irq_counts, "I"), strict=True):
        if irq < FIRST_LABEL_ID:
            by_irq[irq] = by_irq.get(irq, 0) + count
    return by_irq


def _moved(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before


def _sum(column: Sequence[float | None]) -> float | None:
    known = [value for value in column if value is not None]
    return sum(known) if known else None


def _mean(column: Sequence[float | None]) -> float | None:
    known = [value for value in column if value is not None]
    return fmean(known) if known else None
