"""Program that runs parallel jobs of processes that exchange messages over TCP on loopback, and prints their times.

python -m coresteer_agent.workloads.bsp CONFIG            (BspConfig as JSON)

All jobs arrive at once. The first ``mpl`` jobs share one group of CPUs, the next ones another, as long as there are
groups; further jobs wait for one of their group to end, which counts in their response time. Each CPU of a group
belongs to one process of each job, so it has the role of a node with a run queue of its own.
"""

import gc
import os
import select
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec
from msgspec import Struct

from coresteer_agent.collect.files import read_bytes
from coresteer_agent.collect.stat import PATH as STAT_PATH
from coresteer_agent.collect.stat import parse_stat
from coresteer_agent.workloads.bsp_process import Report, neighbours_of, run_loops
from coresteer_agent.workloads.process_control import end_with_parent, minimize_timer_slack, rename_process
from coresteer_agent.workloads.traffic_protocol import exit_with_error, parse_cpus, print_line
from coresteer_core.experiments.parallel_jobs import COMMAND, Bsp

LIMIT_S = 600.0
"""Longest time of all jobs together."""
_READ_BYTES = 64 * 1024
_IDLE = slice(3, 5)
"""idle and iowait among the times of a CPU."""


class BspConfig(Struct):
    """Configuration of the program. parent: PID of the process with which it ends."""

    parent: int
    workload: Bsp


class Outcome(NamedTuple):
    """Results of all processes. start_s: monotonic, the arrival of all jobs. idle_percent: of the used CPUs' time."""

    start_s: float
    reports: list[Report]
    idle_percent: float | None


def main() -> None:
    """Run all jobs once and print the metrics as JSON."""
    config = msgspec.json.decode(sys.argv[1], type=BspConfig)
    end_with_parent(config.parent)
    try:
        outcome = run(config.workload)
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


def cpu_groups(workload: Bsp, cpus: list[int]) -> list[list[int]]:
    """Return each job's CPUs, one for each of its processes. cpus: those that may be used."""
    count = workload.processes
    groups = max(1, len(cpus) // count)
    firsts = [(job // workload.mpl % groups) * count for job in range(workload.jobs)]
    return [[cpus[(first + rank) % len(cpus)] for rank in range(count)] for first in firsts]


def run(workload: Bsp) -> Outcome:
    """Fork the processes of all jobs, run the jobs and return their results. Raises OSError and ValueError."""
    cpus = parse_cpus(workload.cpus) or sorted(os.sched_getaffinity(0))
    groups = cpu_groups(workload, cpus)
    used = frozenset(cpu for group in groups for cpu in group)
    gc.freeze()  # avoids copies of pages by the garbage collector
    gc.disable()
    results, result = os.pipe()
    starts = [_fork_job(workload, job, group, result) for job, group in enumerate(groups)]
    os.close(result)
    reports = _reports(results, time.monotonic() + LIMIT_S)
    for _ in range(workload.jobs * workload.processes):
        next(reports)  # each is ready
    before = _idle_and_all(used)
    start_s = time.monotonic()
    finished = _run_jobs(workload, groups, starts, reports)
    after = _idle_and_all(used)
    for _ in finished:
        os.wait()
    elapsed = after[1] - before[1]
    return Outcome(start_s, finished, 100 * (after[0] - before[0]) / elapsed if elapsed else None)


def _run_jobs(workload: Bsp, groups: list[list[int]], starts: list[int], reports: Iterator[Report]) -> list[Report]:
    """Start each job as soon as fewer than ``mpl`` jobs run on its CPUs; return the results of all processes."""
    waiting, finished = [*range(workload.jobs)], list[Report]()
    running = dict[int, int]()
    while waiting or running:
        for job in [*waiting]:
            if sum(groups[other] == groups[job] for other in running) < workload.mpl:
                waiting.remove(job)
                running[job] = workload.processes
                os.write(starts[job], bytes(workload.processes))
        report = next(reports)
        finished.append(report)
        running[report.job] -= 1
        if not running[report.job]:
            del running[report.job]
    return finished


def _reports(results: int, until_s: float) -> Iterator[Report]:
    """Yield the reports of the processes as they arrive. Exits with the reason if one failed or the time is over."""
    decoder, rest = msgspec.json.Decoder(Report), b""
    watch = select.poll()
    watch.register(results, select.POLLIN)
    while watch.poll(max(0.0, until_s - time.monotonic()) * 1000):
        read = os.read(results, _READ_BYTES)
        if not read:
            exit_with_error("The processes of the parallel jobs ended before their work was done.")
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            report = decoder.decode(line)
            if report.error:
                exit_with_error(report.error)
            yield report
    exit_with_error(f"The parallel jobs were not finished after {LIMIT_S:g} s.")


def _fork_job(workload: Bsp, job: int, cpus: list[int], result: int) -> int:
    """Fork the processes of a job, connected with each other; return a pipe that starts one with each byte."""
    own = os.getpid()
    start, starts = os.pipe()
    ends = _connect(workload)
    for rank, cpu in enumerate(cpus):
        if os.fork() == 0:
            os.close(starts)
            peers = ends.pop(rank)
            for others in ends.values():
                for unused in others:
                    unused.close()
            _process(own, workload, job, rank, cpu, peers, start, result)
    os.close(start)
    for peers in ends.values():
        for peer in peers:
            peer.close()
    return starts


def _connect(workload: Bsp) -> dict[int, list[socket.socket]]:
    """Return each process's connections to its peers within a job, by rank."""
    ranks = range(workload.processes)
    ends: dict[int, list[socket.socket]] = {rank: [] for rank in ranks}
    pairs = [(rank, other) for rank in ranks for other in neighbours_of(workload, rank) if rank < other]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for rank, other in pairs:
            near = socket.create_connection(listener.getsockname())
            far, address = listener.accept()
            while address != near.getsockname():  # another program's connection
                far.close()
                far, address = listener.accept()
            ends[rank].append(near)
            ends[other].append(far)
    for peer in (peer for peers in ends.values() for peer in peers):
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ends


def _process(  # noqa: PLR0917 - what a process has of its own, each once
    parent: int,
    workload: Bsp,
    job: int,
    rank: int,
    cpu: int,
    peers: list[socket.socket],
    start: int,
    result: int,
) -> None:
    """Be one of the processes; never returns."""
    reason: object = "an internal error, which is in the agent's log"
    try:
        end_with_parent(parent)
        rename_process(COMMAND)
        minimize_timer_slack()
        os.sched_setaffinity(0, {cpu})
        _send(result, Report(job))
        os.read(start, 1)
        _send(result, run_loops(workload, job, rank, peers))
        os._exit(0)
    except ConnectionError:
        reason = "another process of its job ended"
    except OSError as error:
        reason = error.strerror or error
    except Exception:
        traceback.print_exc()
    _send(result, Report(job, error=f"Process {rank} of job {job} failed on CPU {cpu}: {reason}."))
    os._exit(1)


def _send(result: int, report: Report) -> None:
    os.write(result, msgspec.json.encode(report) + b"\n")  # shorter than PIPE_BUF: in one piece


def _idle_and_all(cpus: frozenset[int]) -> tuple[int, int]:
    """Return the idle time and the whole time of CPUs since boot, in ticks."""
    times = parse_stat(read_bytes(Path("/"), STAT_PATH) or b"")
    of_cpus = [times[cpu] for cpu in cpus if cpu in times]
    return sum(sum(each[_IDLE]) for each in of_cpus), sum(sum(each) for each in of_cpus)


if __name__ == "__main__":
    main()
