"""What a node's limits say about the load of an experiment."""

import math

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.experiments.model import Iperf3, Observe, TcpRequest, TcpStream, UdpFlood, Workload, has_client
from coresteer_core.experiments.parallel_jobs import Bsp
from coresteer_core.node.limits import LIMITS_FILE, Limits, LoadLimits


def load_refusal(limits: Limits, workload: Workload) -> str | None:
    """Return why a node's limits forbid to generate a workload there, as a sentence; None if they allow it."""
    if isinstance(workload, Observe):
        return None
    if limits.unusable is not None:
        return f"The limits of this node cannot be read, so it generates no load. {limits.unusable}"
    if not limits.loads.allow:
        return f"{LIMITS_FILE} on this node allows no loads: loads.allow is false."
    lists = (getattr(workload, field) for field in workload.__struct_fields__ if field.endswith("cpus"))
    named = frozenset[int]().union(*(parse_cpu_list(text) for text in lists if text))
    if closed := named & limits.settings.closed_cpus:
        cpus = format_cpu_list(closed)
        return f"CPU {cpus} is off limits on this node: see cpus_off_limits in {LIMITS_FILE}. Choose other CPUs."
    return _rate_refusal(limits.loads, workload) if has_client(workload) else None


def _rate_refusal(limits: LoadLimits, workload: Workload) -> str | None:
    mbit_per_s, packets_per_s = _most_sent(workload)
    for name, unit, sent, most in (
        ("max_mbit_per_s", "Mbit/s", mbit_per_s, limits.max_mbit_per_s),
        ("max_packets_per_s", "packets/s", packets_per_s, limits.max_packets_per_s),
    ):
        if most is not None and sent > most:
            asked = "is not limited" if sent == math.inf else f"is up to {sent:,.0f} {unit}"
            return (
                f"{LIMITS_FILE} on this node allows loads of {most:,} {unit} (loads.{name}); this one {asked}. "
                "Lower the rate of the workload."
            )
    return None


def _most_sent(workload: Workload) -> tuple[float, float]:
    """Return the Mbit/s and packets/s that a workload may send in either direction; packets of a stream as 0."""
    match workload:
        case TcpStream() | Iperf3():
            return workload.limit_mbit_per_s, 0.0
        case TcpRequest():
            size = max(workload.request_bytes, workload.response_bytes)
            return workload.limit_per_s * size * 8 / 1e6, workload.limit_per_s
        case UdpFlood():
            return workload.packets_per_s * workload.payload_bytes * 8 / 1e6, workload.packets_per_s
        case Bsp():
            return math.inf, math.inf  # its processes send as fast as they compute
        case _:
            return 0.0, 0.0
