"""Reads /proc/PID/stat of every process: CPU time and last CPU (kernel: fs/proc/array.c, proc_pid_stat(5))."""

import os
import resource
from pathlib import Path
from time import monotonic

from msgspec import Struct

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import DIGITS, names, open_file, parse_cpu_number
from coresteer_core.node.numa import MIN_NUMA_CPU_SHARE, MIN_NUMA_RSS_BYTES, NUMA_BUSY_FOR_S
from coresteer_core.node.tasks import Task

MAX_TASKS = 64
"""Number of processes reported, those with the most CPU time."""
_MOST_OPEN = 512
"""Stat files that stay open; the kernel keeps a page for each."""
_STAT_BYTES = 4096
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


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


class _Process(Struct):
    """A process as of the previous scan. fd: of its stat file, -1 if that is not open; text: what it said.

    large: its memory is. busy_s: time of the last scan in which it was busy, None before the first.
    """

    fd: int = -1
    text: bytes = b""
    large: bool = False
    busy_s: float | None = None


class TaskScanner:
    """Finds the processes with the most CPU time since the previous scan.

    Most processes are idle: their stat file is read, through a descriptor that stays open, and not parsed again.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._live = root == Path("/")
        self._known: dict[str, _Process] = {}
        self._open = 0
        self._most_open = min(_MOST_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 16)
        self._scanned_s: float | None = None
        self.numa_pids: list[int] = []
        """Of the last scan: processes to be placed on NUMA nodes, those that are neither busy now nor large last."""

    def scan(self) -> list[Task]:
        """Return the processes with the most CPU time since the previous scan, busiest first; none at the first.

        A process that started since the previous scan counts with all of its time. A process
        that ends during the scan is omitted.
        """
        now_s = monotonic()
        elapsed_s = None if self._scanned_s is None else now_s - self._scanned_s
        self._scanned_s = now_s
        least_ticks = MIN_NUMA_CPU_SHARE * _TICKS_PER_S * elapsed_s if elapsed_s else float("inf")
        before, self._known = self._known, {}
        moved: list[tuple[int, str, TaskStat]] = []
        for pid in names(self._root, "proc"):
            if not pid.isdecimal():
                continue
            path = f"proc/{pid}/stat"
            process = before.get(pid) or _Process()
            text = self._read(path, process)
            try:
                if not text or text != process.text:
                    task = parse_task_stat(text, path)
                    ticks_before = _ticks_before(task, process.text, path)
                    if (used := task.ticks - (ticks_before or 0)) > 0:
                        moved.append((used, pid, task))
                    if not task.rss_bytes or ticks_before is None:  # it has ended, or this is another one
                        process.busy_s = None
                    if task.rss_bytes and used >= least_ticks:
                        process.busy_s = now_s
                    process.text, process.large = text, task.rss_bytes >= MIN_NUMA_RSS_BYTES
            except ParseError:  # it ended, perhaps between two reads of its file
                self._close(process)
            else:
                self._known[pid] = process
        for pid in before.keys() - self._known.keys():
            self._close(before[pid])
        found = sorted(
            (process.busy_s != now_s and not process.large, int(pid))
            for pid, process in self._known.items()
            if process.large or (process.busy_s is not None and now_s - process.busy_s < NUMA_BUSY_FOR_S)
        )
        self.numa_pids = [pid for _, pid in found]
        if not elapsed_s:
            return []
        moved.sort(key=lambda found: (-found[0], int(found[1])))
        return [
            Task(int(pid), task.name, task.cpu, used / _TICKS_PER_S / elapsed_s)
            for used, pid, task in moved[:MAX_TASKS]
        ]

    def close(self) -> None:
        """Close the descriptors."""
        for process in self._known.values():
            self._close(process)
        self._known = {}

    def _read(self, path: str, process: _Process) -> bytes:
        """Return the text of a process's stat file, empty if it has ended."""
        if process.fd >= 0:
            # a file that was removed from a captured tree stays readable
            if (text := _read_or_empty(process.fd)) and (self._live or os.fstat(process.fd).st_nlink):
                return text
            self._close(process)  # it has ended, and its number may be another's now
        try:
            fd = open_file(self._root, path)
        except OSError:
            return b""
        text = _read_or_empty(fd)
        if text and self._open < self._most_open:
            self._open += 1
            process.fd = fd
        else:
            os.close(fd)
        return text

    def _close(self, process: _Process) -> None:
        if process.fd >= 0:
            os.close(process.fd)
            process.fd = -1
            self._open -= 1


def _read_or_empty(fd: int) -> bytes:
    try:
        return os.pread(fd, _STAT_BYTES, 0)
    except OSError:
        return b""


def _ticks_before(task: TaskStat, text: bytes, path: str) -> int | None:
    """Return a process's ticks by its previous text; None for a process that started since then."""
    before = parse_task_stat(text, path) if text else None
    return before.ticks if before is not None and before.started_ticks == task.started_ticks else None
