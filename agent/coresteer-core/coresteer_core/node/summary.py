"""Summary of one interval: the figures that the fleet page, guardrails and health need."""

from typing import Annotated

from msgspec import Meta, Struct

from coresteer_core.bounds import Count, CpuNumber, Name, Quantity
from coresteer_core.metrics import FLEET_METRICS, wrong_node_percent
from coresteer_core.node.metric_values import guardrail_values, largest_share, metric_values
from coresteer_core.node.rates import MAX_DURATION_S, Rates


class Summary(Struct, frozen=True):
    """Figures of one interval of a node.

    metrics: the values of coresteer_core.metrics.FLEET_METRICS and GUARDRAIL_METRICS that are known. busiest_cpu,
    softirq_cpu: the CPUs of busiest_cpu_percent and softirq_cpu_percent.
    """

    seq: Count
    time_ms: int
    duration_s: Annotated[float, Meta(gt=0, le=MAX_DURATION_S)]
    metrics: Annotated[dict[Name, Quantity], Meta(max_length=256)]
    busiest_cpu: CpuNumber | None = None
    softirq_cpu: CpuNumber | None = None


def summarize(rates: Rates, physical: frozenset[str] | None) -> Summary:
    """Return the summary of an interval.

    physical: the netdevs whose traffic counts; all but loopback where they are not known.
    """
    busiest_cpu, busiest = largest_share(rates.shares.get("busy")) or (None, None)
    softirq_cpu, softirq = largest_share(rates.shares.get("softirq")) or (None, None)
    values = guardrail_values(rates) | metric_values(rates, FLEET_METRICS, physical)
    values |= {
        "busiest_cpu_percent": busiest,
        "softirq_cpu_percent": softirq,
        "wrong_node_percent": wrong_node_percent(rates.counters.get),
    }
    return Summary(
        seq=rates.seq,
        time_ms=rates.time_ms,
        duration_s=rates.duration_s,
        metrics={name: value for name, value in values.items() if value is not None},
        busiest_cpu=busiest_cpu,
        softirq_cpu=softirq_cpu,
    )
