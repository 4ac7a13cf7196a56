"""CPU time of the NUMA monitor with many large processes: python -m tests.bench.bench_numa_monitor [--processes 500].

Forks idle processes that share 1 GiB of anonymous memory with this one (each has page tables of its own, which is what
a read of numa_maps walks), and runs the agent's NumaReader on them: a tick each second, a read of all each 5 s. Needs
about 2 MiB of page tables for each process. Time is the thread's CPU time; the agent's limit is BUDGET of one CPU.
"""

import argparse
import mmap
import os
import signal
import statistics
import time
from pathlib import Path

from coresteer_agent.collect.topology import read_topology
from coresteer_agent.observe.numa_tasks import BUDGET, NumaReader

ROUND_S = 5


def fork_idle(count: int) -> list[int]:
    """Fork processes that wait for a signal; return their PIDs."""
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        pids.append(pid)
    return pids


def measure(pids: list[int], rounds: int) -> None:
    """Print the CPU time of rounds, reads of numa_maps, and their share of one CPU."""
    reader, topology = NumaReader(Path("/")), read_topology(Path("/"))
    reads, ticks = [], []
    for _ in range(rounds):
        began = time.thread_time()
        reader.read(pids, topology)
        reads.append(time.thread_time() - began)
        for _ in range(ROUND_S):
            time.sleep(1)
            began = time.thread_time()
            reader.tick()
            ticks.append(time.thread_time() - began)
    known = sum(task.bytes_by_node is not None for task in reader.read(pids, topology).tasks)
    walking, rest = sum(ticks) / (rounds * ROUND_S), statistics.fmean(reads[1:]) / ROUND_S
    print(f"{len(pids)} processes of 1 GiB, {rounds * ROUND_S} s")
    print(f"numa_maps: {statistics.median(ticks) * 1000:.1f} ms a read, {walking:.2%} of a CPU (limit {BUDGET:.0%});")
    print(f"  {known} processes read, all of them every {len(pids) * rounds * ROUND_S / max(1, known):.0f} s")
    print(f"everything else: {statistics.fmean(reads[1:]) * 1000:.0f} ms every {ROUND_S} s, {rest:.2%} of a CPU")


def main() -> None:
    """Fork, measure, and end the processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=12)
    arguments = parser.parse_args()
    memory = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, 1 << 30, mmap.PAGESIZE):
        memory[at] = 1
    pids = fork_idle(arguments.processes)
    try:
        measure(pids, arguments.rounds)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
