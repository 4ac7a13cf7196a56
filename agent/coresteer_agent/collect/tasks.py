"""Reads /proc/PID/stat of every process: CPU time and last CPU (kernel: fs/proc/array.c, proc_pid_stat(5))."""

import os
from pathlib import Path
from time import monotonic

from msgspec import Struct

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import DIGITS, names, parse_cpu_number, read_bytes
from coresteer_core.node.tasks import Task

MAX_TASKS = 64
"""Number of processes reported, those with the most CPU time."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MIN_NUMA_CPU_SHARE = 0.2
MIN_NUMA_RSS_BYTES = 256 << 20
"""A process with less than both is not placed on NUMA nodes."""


class TaskStat(Struct, frozen=True):
    """CPU time of a process and the CPU of its main thread. ticks: user and system time of all threads.

    rss_bytes: resident memory. Of a thread's own stat file, threads and rss_bytes are those of its process.
    """

    name: str
    ticks: int
    threads: int
    started_ticks: int
    cpu: int
    rss_bytes: int


REALTIME_POLICIES = frozenset({1, 2, 6})
"""Scheduling policies that run before all with a nice value: SCHED_FIFO, SCHED_RR, SCHED_DEADLINE."""
_KERNEL_THREAD = 0x0020_0000
_NO_SETAFFINITY = 0x0400_0000
"""PF_KTHREAD and PF_NO_SETAFFINITY (kernel: include/linux/sched.h) of the flags."""


class Scheduling(Struct, frozen=True):
    """How the main thread of a process is scheduled. kernel: a kernel thread; bound: its CPUs cannot be changed."""

    nice: int
    realtime: bool
    kernel: bool
    bound: bool


def parse_scheduling(text: bytes, path: str) -> Scheduling:
    """Parse a process's nice value, scheduling policy and flags from its stat file. Raises ParseError."""
    fields = text.rpartition(b") ")[2].split(None, 39)
    try:
        flags = int(fields[6])
        return Scheduling(
            nice=int(fields[16]),
            realtime=int(fields[38]) in REALTIME_POLICIES,
            kernel=bool(flags & _KERNEL_THREAD),
            bound=bool(flags & _NO_SETAFFINITY),
        )
    except (IndexError, ValueError):
        raise ParseError(path, 1, "A field that should be a number is none.") from None


def parse_parent(text: bytes, path: str) -> int:
    """Parse the PID of a process's parent from its stat file; 0 for the first process. Raises ParseError."""
    fields = text.rpartition(b") ")[2].split(None, 2)
    try:
        return _natural(fields[1])
    except (IndexError, ValueError):
        raise ParseError(path, 1, "The parent's PID is not a number.") from None


def parse_task_stat(text: bytes, path: str) -> TaskStat:
    """Parse a process's stat file, in which the name may contain spaces and brackets. Raises ParseError."""
    head, bracket, rest = text.rpartition(b") ")
    fields = rest.split(None, 38)
    if not bracket or len(fields) < 37:
        raise ParseError(path, 1, f"The line has {len(fields)} fields after the name; at least 37 were expected.")
    try:
        return TaskStat(
            name=without_control_characters(head.partition(b"(")[2].decode("utf-8", "replace")),
            ticks=_natural(fields[11]) + _natural(fields[12]),
            threads=_natural(fields[17]),
            started_ticks=int(fields[19]),
            cpu=parse_cpu_number(fields[36], path, 1),
            rss_bytes=max(0, int(fields[21])) * _PAGE_BYTES,
        )
    except ParseError:
        raise
    except ValueError:
        raise ParseError(path, 1, "A field that should be a number is none.") from None


def without_control_characters(name: str) -> str:
    """Return a process's name without control characters, which the backend rejects."""
    return name if name.isprintable() else "".join(c if c.isprintable() else "?" for c in name)


def _natural(text: bytes) -> int:
    if not text.isdigit() or len(text) > DIGITS:
        raise ValueError(text)
    return int(text)


class TaskScanner:
    """Finds the processes with the most CPU time since the previous scan; takes 12 µs per process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._previous: dict[str, tuple[int, int]] = {}
        self._scanned_s: float | None = None
        self.numa_pids: list[int] = []
        """Of the last scan: processes that are busy or large enough to be placed on NUMA nodes."""

    def scan(self) -> list[Task]:
        """Return the processes with the most CPU time since the previous scan, busiest first; none at the first.

        A process that started since the previous scan counts with all of its time. A process
        that ends during the scan is omitted.
        """
        now_s = monotonic()
        before, self._previous = self._previous, {}
        moved: list[tuple[int, str, TaskStat]] = []
        large: set[int] = set()
        for pid in names(self._root, "proc"):
            if not pid.isdecimal():
                continue
            path = f"proc/{pid}/stat"
            text = read_bytes(self._root, path)
            if text is None:
                continue
            try:
                task = parse_task_stat(text, path)
            except ParseError:
                continue  # it ended between two reads of its file
            self._previous[pid] = (task.started_ticks, task.ticks)
            started, ticks = before.get(pid, (task.started_ticks, 0))
            used = task.ticks - (ticks if started == task.started_ticks else 0)
            if used > 0:
                moved.append((used, pid, task))
            if task.rss_bytes >= MIN_NUMA_RSS_BYTES:
                large.add(int(pid))
        elapsed_s = None if self._scanned_s is None else now_s - self._scanned_s
        self._scanned_s = now_s
        least_ticks = MIN_NUMA_CPU_SHARE * _TICKS_PER_S * (elapsed_s or 0.0)
        busy = {int(pid) for used, pid, task in moved if elapsed_s and used >= least_ticks and task.rss_bytes}
        self.numa_pids = sorted(busy | large)
        if not elapsed_s:
            return []
        moved.sort(key=lambda found: (-found[0], int(found[1])))
        return [
            Task(int(pid), task.name, task.cpu, used / _TICKS_PER_S / elapsed_s)
            for used, pid, task in moved[:MAX_TASKS]
        ]
