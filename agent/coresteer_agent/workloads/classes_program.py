"""The service classes' experiment as a workload of runs: its figures as the last line of output.

python -m coresteer_agent.workloads.classes_program ORDERS         (ClassesOrders)
"""

import signal
import sys

import msgspec
from msgspec import Struct

from coresteer_agent.workloads.classes import Result, Setup, WorkloadError, run
from coresteer_agent.workloads.process_control import end_with_parent
from coresteer_agent.workloads.traffic import give_up, say
from coresteer_core.experiments.model import Classes


class ClassesOrders(Struct):
    """parent: its process id."""

    parent: int
    workload: Classes


def main() -> None:
    """Run it once."""
    orders = msgspec.json.decode(sys.argv[1], type=ClassesOrders)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    end_with_parent(orders.parent, signal.SIGTERM)
    try:
        result = run(Setup(method=orders.workload.method, requests=orders.workload.requests))
    except WorkloadError as error:
        give_up(str(error))
    say(msgspec.json.encode(figures(result)).decode())


def figures(result: Result) -> dict[str, float]:
    """By the names of METRICS; without those of a class that got no answer."""
    means = {row.name: row.mean_us for row in result.classes}
    found = {f"{name}_mean_us": mean for name, mean in means.items()} | {
        "all_mean_us": result.all.mean_us,
        "longest_wait_us": result.all.longest_wait_us,
        "requests_per_s": result.throughput_per_s,
    }
    if means["c1"] and means["c5"]:
        found["c5_by_c1"] = means["c5"] / means["c1"]
    return {name: float(value) for name, value in found.items() if value is not None}


if __name__ == "__main__":
    main()
