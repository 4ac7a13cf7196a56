"""Program that runs parallel jobs of processes that exchange messages over TCP, and prints their times.

python -m coresteer_agent.workloads.bsp CONFIG            (BspConfig as JSON)

All jobs arrive at once. The first ``mpl`` jobs share one group of CPUs, the next ones another, as long as there are
groups; further jobs wait for one of their group to end, which counts in their response time. Each CPU of a group
belongs to one process of each job, so it has the role of a node with a run queue of its own.

With two machines, a second program of this kind runs every other process: on another node, or in a network namespace
of this one. The first program decides when jobs start and collects all results.
"""

import os
import select
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.collect.files import read_bytes
from coresteer_agent.collect.stat import PATH as STAT_PATH
from coresteer_agent.collect.stat import parse_stat
from coresteer_agent.workloads.bsp_links import CONTROL, Link, accept_links, links_of
from coresteer_agent.workloads.bsp_machine import cpus_of_jobs, fork_jobs, run_second_machine
from coresteer_agent.workloads.bsp_process import Report
from coresteer_agent.workloads.process_control import end_with_parent, enter_network_namespace
from coresteer_agent.workloads.receipts import begin_receipts
from coresteer_agent.workloads.traffic_protocol import (
    ReceiptsPart,
    exit_with_error,
    parse_cpus,
    print_line,
    split_address,
)
from coresteer_core.experiments.model import Role
from coresteer_core.experiments.parallel_jobs import Bsp

LIMIT_S = 600.0
"""Longest time of all jobs together."""
_READ_BYTES = 64 * 1024
_IDLE = slice(3, 5)
"""idle and iowait among the times of a CPU."""


class BspConfig(Struct):
    """Configuration of the program. parent: PID of the process with which it ends. role: client is the second machine.

    address: of the first machine. listeners: descriptor of its listening socket. network: path of the network namespace
    that is the second machine, empty if that is another node, or if there is none.
    """

    parent: int
    workload: Bsp
    role: Role = "alone"
    address: str = ""
    listeners: list[int] = []
    network: str = ""
    receipts: ReceiptsPart | None = None


class Outcome(NamedTuple):
    """Results of all processes. start_s: monotonic, the arrival of all jobs. idle_percent: of the used CPUs' time."""

    start_s: float
    reports: list[Report]
    idle_percent: float | None


def main() -> None:
    """Run all jobs once and print the metrics as JSON; on the second machine, take part in them."""
    _play_role(msgspec.json.decode(sys.argv[1], type=BspConfig))


def _play_role(config: BspConfig) -> None:
    end_with_parent(config.parent)
    begin_receipts(config.receipts)
    try:
        if config.role == "client":
            enter_network_namespace(config.network)
            run_second_machine(config.workload, split_address(config.address), _cpus_of(config, 1))
            return
        outcome = run(config)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        exit_with_error(f"The parallel jobs failed: {reason}.")
    print_line(msgspec.json.encode(figures(config.workload, outcome)).decode())


def figures(workload: Bsp, outcome: Outcome) -> dict[str, float]:
    """Return metrics by name from the results of all processes."""
    loops = workload.jobs * workload.loops
    ends = [max(each.end_s for each in outcome.reports if each.job == job) for job in range(workload.jobs)]
    makespan_s = max(ends) - outcome.start_s
    found = {
        "job_response_s": fmean(ends) - outcome.start_s,
        "makespan_s": makespan_s,
        "loops_per_s": loops / makespan_s,
        "spin_s": sum(each.spin_s for each in outcome.reports),
        "voluntary_switches_per_loop": sum(each.voluntary for each in outcome.reports) / loops,
        "involuntary_switches_per_loop": sum(each.involuntary for each in outcome.reports) / loops,
    }
    return found if outcome.idle_percent is None else found | {"idle_percent": outcome.idle_percent}


def run(config: BspConfig) -> Outcome:
    """Fork the processes of all jobs, run the jobs and return their results. Raises OSError and ValueError."""
    workload, own = config.workload, _cpus_of(config, 0)
    used = frozenset(chain(*own, *(_cpus_of(config, 1) if config.network else [])))
    links = _connect_second_machine(config)
    results, result = os.pipe()
    starts = fork_jobs(workload, 0, own, links, result)
    os.close(result)
    control = links.get(CONTROL)
    sources = [results] if control is None else [results, control.fileno()]
    reports = _reports(sources, workload.jobs, time.monotonic() + LIMIT_S)
    for _ in range(workload.jobs * workload.processes):
        next(reports)  # each is ready
    before = _idle_and_all(used)
    start_s = time.monotonic()
    finished = _run_jobs(workload, own, starts, reports, control)
    after = _idle_and_all(used)
    if control is not None:
        control.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()
    elapsed = after[1] - before[1]
    return Outcome(start_s, finished, 100 * (after[0] - before[0]) / elapsed if elapsed else None)


def _cpus_of(config: BspConfig, machine: int) -> list[list[int]]:
    cpus = parse_cpus(config.workload.cpus) or sorted(os.sched_getaffinity(0))
    one_node = config.role == "alone" or bool(config.network)
    return cpus_of_jobs(config.workload, cpus, machine, one_node=one_node)


def _connect_second_machine(config: BspConfig) -> dict[Link, socket.socket]:
    """Return the connections with the second machine, which begins here if it is a namespace; none with one machine."""
    if config.workload.machines == 1:
        return {}
    own = os.getpid()
    if config.network and os.fork() == 0:
        _play_role(replace(config, parent=own, role="client"))
        os._exit(0)
    [descriptor] = config.listeners
    with socket.socket(fileno=descriptor) as listener:
        return accept_links(listener, links_of(config.workload))


def _run_jobs(
    workload: Bsp,
    cpus: list[list[int]],
    starts: list[int],
    reports: Iterator[Report],
    control: socket.socket | None = None,
) -> list[Report]:
    """Start each job as soon as fewer than ``mpl`` jobs run on its CPUs; return the results of all processes."""
    waiting, finished = [*range(workload.jobs)], list[Report]()
    running = dict[int, int]()
    while waiting or running:
        for job in [*waiting]:
            if sum(cpus[other] == cpus[job] for other in running) < workload.mpl:
                waiting.remove(job)
                running[job] = workload.processes
                os.write(starts[job], bytes(len(cpus[job])))
                if control is not None:
                    control.sendall(bytes([job]))
        report = next(reports)
        finished.append(report)
        running[report.job] -= 1
        if not running[report.job]:
            del running[report.job]
    return finished


def _reports(sources: list[int], jobs: int, until_s: float) -> Iterator[Report]:
    """Yield the reports of the processes as they arrive. Exits with the reason if one failed or the time is over.

    sources: descriptors, first that of this machine's processes, then CONTROL. The clock of another machine is not
    comparable: its processes end when their reports arrive.
    """
    decoder, rests = msgspec.json.Decoder(Report), dict.fromkeys(sources, b"")
    watch = select.poll()
    for source in sources:
        watch.register(source, select.POLLIN)
    while rests and (ready := watch.poll(max(0.0, until_s - time.monotonic()) * 1000)):
        for source, _ in ready:
            read = os.read(source, _READ_BYTES)
            *lines, rests[source] = (rests[source] + read).split(b"\n")
            if len(rests[source]) > _READ_BYTES:
                raise ValueError("something else than a report arrived")
            for line in lines:
                report = decoder.decode(line)
                if report.error:
                    exit_with_error(report.error)
                if report.job not in range(jobs):
                    raise ValueError("a report of none of the jobs arrived")
                yield report if source == sources[0] else replace(report, end_s=time.monotonic())
            if not read:
                watch.unregister(source)
                del rests[source]
    if rests:
        exit_with_error(f"The parallel jobs were not finished after {LIMIT_S:g} s.")
    exit_with_error("The processes of the parallel jobs ended before their work was done.")


def _idle_and_all(cpus: frozenset[int]) -> tuple[int, int]:
    """Return the idle time and the whole time of CPUs since boot, in ticks."""
    times = parse_stat(read_bytes(Path("/"), STAT_PATH) or b"")
    of_cpus = [times[cpu] for cpu in cpus if cpu in times]
    return sum(sum(each[_IDLE]) for each in of_cpus), sum(sum(each) for each in of_cpus)


if __name__ == "__main__":
    main()
