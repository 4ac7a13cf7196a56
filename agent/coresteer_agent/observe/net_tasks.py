"""Reads tasks that use the network: identity, scheduling, CPUs and utilization, from /proc/PID and its cgroup."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from coresteer_agent.collect.cgroups import find_version_2
from coresteer_agent.collect.cpuset import read_cpuset
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import DIGITS, list_numbered, read_bytes, read_cpus
from coresteer_agent.collect.process_identity import ProcessIdentity, ProcessIdentityReader
from coresteer_agent.collect.tasks import Scheduling, TaskStat, parse_scheduling, parse_task_stat
from coresteer_core.cpuset import format_cpu_list

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_ONLINE = "sys/devices/system/cpu/online"
_MAX_THREADS = 64
"""Threads of one process read per round, about 10 µs each; the others follow in the next rounds."""
_MAX_THREADS_PER_ROUND = 400
_IDENTITY_S = 30.0
"""Interval of reading the identity of a process again."""


class TaskFacts(Struct, frozen=True):
    """Fields of a NetTask without its traffic. affinity, allowed: CPU lists. cpu_share: CPUs used, 1.0 is one CPU.
    threads_differ: in the CPUs that they may run on, as far as they were read.

    cpus: shares by the CPU on which each thread ran last, of the threads that were read. age_s: since its start.
    """

    started_ticks: int
    name: str
    identity: ProcessIdentity
    scheduling: Scheduling
    threads: int
    affinity: str
    threads_differ: bool
    allowed: str
    cpu: int
    cpu_share: float
    rss_bytes: int
    age_s: float
    cpus: dict[int, float]


class _Thread(Struct):
    ticks: int
    read_s: float
    share: float
    cpu: int
    affinity: frozenset[int]


class _Previous(Struct):
    """Values of a process's previous read. next_thread: index of the thread at which the next read continues."""

    started_ticks: int
    ticks: int
    read_s: float
    identity: ProcessIdentity
    identity_read_s: float
    threads: dict[int, _Thread] = {}
    next_thread: int = 0


class TaskReader:
    """Reads processes periodically, at most _MAX_THREADS_PER_ROUND threads of each process per round."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._previous: dict[int, _Previous] = {}
        self._threads_left = 0
        self._allowed: dict[tuple[str | None, str | None], frozenset[int]] = {}
        self._now_s = 0.0
        self._identity_reader = ProcessIdentityReader(root)

    def begin_round(self) -> None:
        """Begin a round of reads: reset the limit of threads, and read cgroups again."""
        self._threads_left = _MAX_THREADS_PER_ROUND
        self._allowed = {}
        self._now_s = time.monotonic()

    def forget(self, pid: int) -> None:
        """Remove the cached values of a process that has ended or is no longer needed."""
        self._previous.pop(pid, None)

    def read(self, pid: int) -> TaskFacts | None:
        """Return a process's identity, scheduling, CPUs and utilization; None if it has ended.

        Its first CPU share is the mean since its start. cpu is that of its busiest thread, among those read so far.
        """
        path = f"proc/{pid}/stat"
        text = read_bytes(self._root, path)
        try:
            stat, scheduling = parse_task_stat(text or b"", path), parse_scheduling(text or b"", path)
        except ParseError:  # it ended, perhaps between two reads of its file
            self.forget(pid)
            return None
        previous = self._previous.get(pid)
        if previous is None or previous.started_ticks != stat.started_ticks:
            started_s = self._now_s - time.clock_gettime(time.CLOCK_BOOTTIME) + stat.started_ticks / TICKS_PER_S
            previous = self._previous[pid] = _Previous(
                stat.started_ticks, 0, started_s, self._identity_reader.read(pid), self._now_s
            )
        share = max(stat.ticks - previous.ticks, 0) / TICKS_PER_S / max(self._now_s - previous.read_s, 1 / TICKS_PER_S)
        previous.ticks, previous.read_s = stat.ticks, self._now_s
        if self._now_s - previous.identity_read_s >= _IDENTITY_S:
            previous.identity, previous.identity_read_s = self._identity_reader.read(pid), self._now_s
        try:
            affinity, cpu = self._threads(pid, previous, stat)
        except ProcessLookupError:
            self.forget(pid)
            return None
        return TaskFacts(
            started_ticks=stat.started_ticks,
            name=stat.name,
            identity=previous.identity,
            scheduling=scheduling,
            threads=stat.threads,
            affinity=format_cpu_list(affinity),
            threads_differ=any(thread.affinity != affinity for thread in previous.threads.values()),
            allowed=format_cpu_list(self._allowed_cpus(pid, previous)),
            cpu=cpu,
            cpu_share=min(share, float(stat.threads)),
            rss_bytes=stat.rss_bytes,
            age_s=max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - stat.started_ticks / TICKS_PER_S),
            cpus=_shares_by_cpu(previous.threads.values()) or {cpu: min(share, float(stat.threads))},
        )

    def _threads(self, pid: int, previous: _Previous, main: TaskStat) -> tuple[frozenset[int], int]:
        """Return the CPUs on which a process's threads may run, and the last CPU of its busiest thread."""
        if main.threads == 1:
            previous.threads = {}
            return frozenset(os.sched_getaffinity(pid)), main.cpu
        tids = list_numbered(self._root, f"proc/{pid}/task", "")
        alive = set(tids)
        previous.threads = {tid: thread for tid, thread in previous.threads.items() if tid in alive}
        count = min(_MAX_THREADS, self._threads_left, len(tids))
        self._threads_left -= count
        start = previous.next_thread if previous.next_thread < len(tids) else 0
        previous.next_thread = start + count
        for tid in (tids + tids)[start : start + count]:
            self._read_thread(pid, tid, previous)
        if not previous.threads:
            return frozenset(os.sched_getaffinity(pid)), main.cpu
        busiest = max(previous.threads.values(), key=lambda thread: thread.share)
        return frozenset().union(*(thread.affinity for thread in previous.threads.values())), busiest.cpu

    def _read_thread(self, pid: int, tid: int, previous: _Previous) -> None:
        stat = self._stat(f"proc/{pid}/task/{tid}/stat")
        try:
            affinity = frozenset(os.sched_getaffinity(tid))
        except ProcessLookupError:
            stat = None
        if stat is None:
            previous.threads.pop(tid, None)
            return
        before = previous.threads.get(tid)
        share = 0.0
        if before is not None:
            if before.affinity == affinity:
                affinity = before.affinity
            elapsed_s = max(self._now_s - before.read_s, 1 / TICKS_PER_S)
            share = (stat.ticks - before.ticks) / TICKS_PER_S / elapsed_s
        previous.threads[tid] = _Thread(stat.ticks, self._now_s, share, stat.cpu, affinity)

    def _stat(self, path: str) -> TaskStat | None:
        text = read_bytes(self._root, path)
        try:
            return None if text is None else parse_task_stat(text, path)
        except ParseError:
            return None  # it ended between two reads of its file

    def _allowed_cpus(self, pid: int, previous: _Previous) -> frozenset[int]:
        key = (previous.identity.groups.unified, previous.identity.groups.cpuset)
        if (allowed := self._allowed.get(key)) is None:
            allowed = read_cpuset(self._root, pid) or read_cpus(self._root, _ONLINE) or frozenset()
            self._allowed[key] = allowed
        return allowed


def _shares_by_cpu(threads: Iterable[_Thread]) -> dict[int, float]:
    found: dict[int, float] = {}
    for thread in threads:
        if thread.share > 0:
            found[thread.cpu] = found.get(thread.cpu, 0.0) + thread.share
    return found


def read_cgroup_ids(root: Path) -> dict[int, str]:
    """Return the path below root of each cgroup's folder by cgroup id, which the kernel reports for sockets."""
    mount = find_version_2(root)
    if mount is None:
        return {}
    found = {}
    for folder, _, _ in os.walk(root / mount):
        with suppress(FileNotFoundError):  # it was removed in the meantime
            found[Path(folder).stat().st_ino] = str(Path(folder).relative_to(root))
    return found


def read_cgroup_processes(root: Path, folder: str) -> list[int]:
    """Return the PIDs of the processes in one cgroup, the highest first."""
    text = read_bytes(root, f"{folder}/cgroup.procs") or b""
    return sorted((int(line) for line in text.split() if line.isdigit() and len(line) <= DIGITS), reverse=True)
