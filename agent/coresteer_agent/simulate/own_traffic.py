"""Simulated runs with existing traffic: what the node's own samples show with its present settings and load."""

import random
from collections import Counter

from msgspec import Struct

from coresteer_agent.simulate.load import NOISE_VARIANTS
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_core.experiments.run_metrics import cost_of_traffic, rate_figures
from coresteer_core.node.rates import SHARES_PER_UNIT

_KINDS = ("busy", "user", "system", "irq", "softirq")


class OwnTraffic(Struct, frozen=True):
    """Metrics of a run by name, and percentages of each CPU's time by kind."""

    figures: dict[str, float]
    cpus: dict[str, list[float | None]]


def measure_traffic(
    node: SimulatedNode, netdevs: list[str], seconds: float, *, now_s: float, own: random.Random
) -> OwnTraffic:
    """Return the node's metrics, computed as an agent does, over as many intervals as a run of this length has.

    They are at least as many as there are variants of the noise, because tests and demonstrations have runs of 1 s.
    netdevs: those whose packets count; empty for all active ones. now_s: Unix time. own: draws the intervals.
    """
    count = max(NOISE_VARIANTS, round(seconds / node.interval_s))
    figures: dict[str, float] = {}
    cpus: dict[str, list[float | None]] = {}
    for variant, times in Counter(own.choices(range(NOISE_VARIANTS), k=count)).items():
        one, weight = _of_interval(node, netdevs, now_s, variant), times / count
        for name, value in one.figures.items():
            figures[name] = figures.get(name, 0.0) + weight * value
        for kind, shares in one.cpus.items():
            sums = cpus.get(kind, [0.0] * len(shares))
            cpus[kind] = [(was or 0.0) + weight * (share or 0.0) for was, share in zip(sums, shares, strict=True)]
    return OwnTraffic(figures | cost_of_traffic(figures["cpu_busy_percent"], figures["throughput_bit_per_s"]), cpus)


def _of_interval(node: SimulatedNode, netdevs: list[str], now_s: float, variant: int) -> OwnTraffic:
    rates = node.rates_at(now_s, variant)
    cpus: dict[str, list[float | None]] = {
        kind: [100 * share / SHARES_PER_UNIT for share in rates.shares[kind] or b""] for kind in _KINDS
    }
    figures = rate_figures(
        rates,
        cpus,
        netdevs=netdevs or [netdev.name for netdev in node.inventory.active_nics()],
        irqs={
            netdev.name: frozenset(queue.irq for queue in netdev.queues if queue.irq is not None)
            for netdev in node.inventory.netdevs
        },
        tcp=[] if rates.tcp is None else [rates.tcp],
    )
    return OwnTraffic(figures, cpus)
