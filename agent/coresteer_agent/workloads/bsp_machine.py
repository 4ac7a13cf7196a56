"""The processes of parallel jobs on one machine: their CPUs, and how the second of two machines runs its own."""

import gc
import os
import select
import socket
import traceback
from collections.abc import Collection, Mapping
from itertools import chain
from typing import NoReturn

import msgspec

from coresteer_agent.workloads.bsp_links import CONTROL, Link, connect_job, links_of, open_links, ranks_of
from coresteer_agent.workloads.bsp_process import Report, run_loops
from coresteer_agent.workloads.process_control import end_with_parent, minimize_timer_slack, rename_process
from coresteer_agent.workloads.traffic_protocol import exit_with_error
from coresteer_core.experiments.parallel_jobs import COMMAND, Bsp

_READ_BYTES = 64 * 1024


def cpu_groups(workload: Bsp, cpus: list[int]) -> list[list[int]]:
    """Return each job's CPUs, one for each of its processes. cpus: those that may be used."""
    count = workload.processes
    groups = max(1, len(cpus) // count)
    firsts = [(job // workload.mpl % groups) * count for job in range(workload.jobs)]
    return [[cpus[(first + rank) % len(cpus)] for rank in range(count)] for first in firsts]


def cpus_of_jobs(workload: Bsp, cpus: list[int], machine: int, *, one_node: bool) -> list[list[int]]:
    """Return the CPUs of each job's processes on a machine, ascending by rank.

    one_node: both machines are namespaces of this node and share its CPUs. On two nodes all jobs use the same CPUs, so
    that as many of them run at the same time on either.
    """
    ranks = ranks_of(workload, machine)
    if one_node:
        return [[group[rank] for rank in ranks] for group in cpu_groups(workload, cpus)]
    return [[cpus[index % len(cpus)] for index in range(len(ranks))]] * workload.jobs


def fork_jobs(
    workload: Bsp, machine: int, cpus: list[list[int]], links: Mapping[Link, socket.socket], result: int
) -> list[int]:
    """Fork a machine's processes of all jobs; return a pipe for each job, of which each byte starts a process.

    cpus: as cpus_of_jobs() returns them. links: to the other machine; closed here but for CONTROL. result: a pipe to
    which each process writes that it is ready, then its result, as lines of JSON.
    """
    gc.freeze()  # avoids copies of pages by the garbage collector
    gc.disable()
    starts = []
    for job, own in enumerate(cpus):
        ends = connect_job(workload, job, machine, links)
        unused = [connection for link, connection in links.items() if link.job != job]
        starts.append(_fork_job(workload, job, own, ends, unused, result))
    return starts


def _fork_job(  # noqa: PLR0917 - what the processes of a job have in common
    workload: Bsp,
    job: int,
    cpus: list[int],
    ends: dict[int, list[socket.socket]],
    unused: Collection[socket.socket],
    result: int,
) -> int:
    own = os.getpid()
    start, starts = os.pipe()
    for rank, cpu in zip(list(ends), cpus, strict=True):
        if os.fork() == 0:
            os.close(starts)
            peers = ends.pop(rank)
            for other in chain(*ends.values(), unused):
                other.close()
            _process(own, workload, job, rank, cpu, peers, start, result)
    os.close(start)
    for peer in chain(*ends.values()):
        peer.close()
    return starts


def _process(  # noqa: PLR0917 - what a process has of its own, each once
    parent: int,
    workload: Bsp,
    job: int,
    rank: int,
    cpu: int,
    peers: list[socket.socket],
    start: int,
    result: int,
) -> NoReturn:
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


def run_second_machine(workload: Bsp, address: tuple[str, int], cpus: list[list[int]]) -> None:
    """Run the second machine's processes until the first one, at this address, closes CONTROL. Raises OSError.

    Over CONTROL the first machine sends the number of each job that starts, and this one the reports of its processes.
    """
    links = open_links(address, links_of(workload))
    results, result = os.pipe()
    starts = fork_jobs(workload, 1, cpus, links, result)
    os.close(result)
    if _relay(links[CONTROL], results, starts, cpus) < 2 * sum(map(len, cpus)):  # that it is ready, and its result
        exit_with_error("The first machine ended the jobs before their work was done.")


def _relay(control: socket.socket, results: int, starts: list[int], cpus: list[list[int]]) -> int:
    """Start jobs and send reports until the first machine closes the connection; return the number of reports."""
    count = 0
    watch = select.poll()
    for source in (results, control.fileno()):
        watch.register(source, select.POLLIN)
    while True:
        for source, _ in watch.poll():
            if source == results:
                if reports := os.read(results, _READ_BYTES):
                    control.sendall(reports)
                    count += reports.count(b"\n")
                else:
                    watch.unregister(results)
                continue
            if not (jobs := control.recv(_READ_BYTES)):
                return count
            for job in jobs:
                os.write(starts[job], bytes(len(cpus[job])))
