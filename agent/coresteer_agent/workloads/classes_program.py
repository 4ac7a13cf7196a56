"""Program that runs the service classes' experiment as a workload and prints its metrics as the last line.

python -m coresteer_agent.workloads.classes_program CONFIG         (ClassesConfig as JSON)
"""

import signal
import sys

import msgspec
from msgspec import Struct

from coresteer_agent.workloads.classes import run
from coresteer_agent.workloads.classes_model import Result, Setup, WorkloadError
from coresteer_agent.workloads.process_control import end_with_parent
from coresteer_agent.workloads.traffic_protocol import exit_with_error, print_line
from coresteer_core.experiments.model import Classes


class ClassesConfig(Struct):
    """Configuration of the program. parent: PID of the process with which it ends."""

    parent: int
    workload: Classes


def main() -> None:
    """Run the service classes' experiment once and print its metrics as JSON."""
    config = msgspec.json.decode(sys.argv[1], type=ClassesConfig)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    end_with_parent(config.parent, signal.SIGTERM)
    try:
        workload = config.workload
        result = run(Setup(method=workload.method, requests=workload.requests, window_s=workload.window_s))
    except WorkloadError as error:
        exit_with_error(str(error))
    print_line(msgspec.json.encode(figures(result)).decode())


def figures(result: Result) -> dict[str, float]:
    """Return metrics by name from a result of the service classes' experiment; none for a class without answers."""
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
