"""What a process that communicates is and where it may run: /proc/PID and its threads, its control group."""

import os
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from coresteer_agent.collect.cpuset import read_cpuset
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import numbered, read_bytes, read_cpus
from coresteer_agent.collect.process_identity import Who, WhoReader
from coresteer_agent.collect.tasks import Scheduling, TaskStat, parse_scheduling, parse_task_stat
from coresteer_core.cpuset import format_cpu_list

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_ONLINE = "sys/devices/system/cpu/online"
_CGROUP_2 = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
_THREADS = 64
"""Threads of a process looked at each time, about 10 µs each; of more, so many each time in turn."""
_THREADS_IN_ALL = 400
_WHO_S = 30.0
"""How often it is looked up again whose a process is."""


class Facts(Struct, frozen=True):
    """The fields of a NetTask that say what it is. affinity and allowed are CPU lists."""

    started_ticks: int
    name: str
    who: Who
    scheduling: Scheduling
    threads: int
    affinity: str
    allowed: str
    cpu: int
    cpu_share: float


class _Thread(Struct):
    ticks: int
    read_s: float
    share: float
    cpu: int
    affinity: frozenset[int]


class _Known(Struct):
    """What the last look found. next: place in the list of threads where the next look begins."""

    started_ticks: int
    ticks: int
    read_s: float
    who: Who
    who_read_s: float
    threads: dict[int, _Thread] = {}
    next: int = 0


class NetTasks:
    """Looks at processes again and again. Threads are looked at _THREADS_IN_ALL a round(), first come first served."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[int, _Known] = {}
        self._threads_left = 0
        self._allowed: dict[tuple[str | None, str | None], frozenset[int]] = {}
        self._now_s = 0.0
        self._who = WhoReader(root)

    def round(self) -> None:
        """What was read of control groups is read anew from here on."""
        self._threads_left = _THREADS_IN_ALL
        self._allowed = {}
        self._now_s = time.monotonic()

    def forget(self, pid: int) -> None:
        """It ended, or is not of interest."""
        self._known.pop(pid, None)

    def look(self, pid: int) -> Facts | None:
        """A process now; None where it ended.

        At the first look its CPU share is the mean since it started. cpu is that of its busiest thread; of a process
        with many threads, among those looked at so far.
        """
        path = f"proc/{pid}/stat"
        text = read_bytes(self._root, path)
        try:
            stat, scheduling = parse_task_stat(text or b"", path), parse_scheduling(text or b"", path)
        except ParseError:  # it ended, maybe between two reads of its file
            self.forget(pid)
            return None
        known = self._known.get(pid)
        if known is None or known.started_ticks != stat.started_ticks:
            started_s = self._now_s - time.clock_gettime(time.CLOCK_BOOTTIME) + stat.started_ticks / TICKS_PER_S
            known = self._known[pid] = _Known(stat.started_ticks, 0, started_s, self._who.look(pid), self._now_s)
        share = max(stat.ticks - known.ticks, 0) / TICKS_PER_S / max(self._now_s - known.read_s, 1 / TICKS_PER_S)
        known.ticks, known.read_s = stat.ticks, self._now_s
        if self._now_s - known.who_read_s >= _WHO_S:
            known.who, known.who_read_s = self._who.look(pid), self._now_s
        try:
            affinity, cpu = self._threads(pid, known, stat)
        except ProcessLookupError:
            self.forget(pid)
            return None
        return Facts(
            started_ticks=stat.started_ticks,
            name=stat.name,
            who=known.who,
            scheduling=scheduling,
            threads=stat.threads,
            affinity=format_cpu_list(affinity),
            allowed=format_cpu_list(self._allowed_cpus(pid, known)),
            cpu=cpu,
            cpu_share=min(share, float(stat.threads)),
        )

    def _threads(self, pid: int, known: _Known, main: TaskStat) -> tuple[frozenset[int], int]:
        """All CPUs where threads may run, and where the busiest ran last."""
        if main.threads == 1:
            known.threads = {}
            return frozenset(os.sched_getaffinity(pid)), main.cpu
        tids = numbered(self._root, f"proc/{pid}/task", "")
        known.threads = {tid: thread for tid, thread in known.threads.items() if tid in set(tids)}
        count = min(_THREADS, self._threads_left, len(tids))
        self._threads_left -= count
        start = known.next if known.next < len(tids) else 0
        known.next = start + count
        for tid in (tids + tids)[start : start + count]:
            self._look_at_thread(pid, tid, known)
        if not known.threads:
            return frozenset(os.sched_getaffinity(pid)), main.cpu
        busiest = max(known.threads.values(), key=lambda thread: thread.share)
        return frozenset().union(*(thread.affinity for thread in known.threads.values())), busiest.cpu

    def _look_at_thread(self, pid: int, tid: int, known: _Known) -> None:
        stat = self._stat(f"proc/{pid}/task/{tid}/stat")
        try:
            affinity = frozenset(os.sched_getaffinity(tid))
        except ProcessLookupError:
            stat = None
        if stat is None:
            known.threads.pop(tid, None)
            return
        before = known.threads.get(tid)
        share = 0.0
        if before is not None:
            if before.affinity == affinity:
                affinity = before.affinity
            elapsed_s = max(self._now_s - before.read_s, 1 / TICKS_PER_S)
            share = (stat.ticks - before.ticks) / TICKS_PER_S / elapsed_s
        known.threads[tid] = _Thread(stat.ticks, self._now_s, share, stat.cpu, affinity)

    def _stat(self, path: str) -> TaskStat | None:
        text = read_bytes(self._root, path)
        try:
            return None if text is None else parse_task_stat(text, path)
        except ParseError:
            return None  # it ended between two reads of its file

    def _allowed_cpus(self, pid: int, known: _Known) -> frozenset[int]:
        key = (known.who.groups.unified, known.who.groups.cpuset)
        if (allowed := self._allowed.get(key)) is None:
            allowed = read_cpuset(self._root, pid) or read_cpus(self._root, _ONLINE) or frozenset()
            self._allowed[key] = allowed
        return allowed


def read_cgroup_ids(root: Path) -> dict[int, str]:
    """The path below root of each control group's folder, by the number that sockets tell of it."""
    mount = next((m for m in reversed(_CGROUP_2) if (root / m / "cgroup.procs").exists()), None)
    if mount is None:
        return {}
    found = {}
    for folder, _, _ in os.walk(root / mount):
        with suppress(FileNotFoundError):  # it was removed meanwhile
            found[Path(folder).stat().st_ino] = str(Path(folder).relative_to(root))
    return found


def read_cgroup_processes(root: Path, folder: str) -> list[int]:
    """The processes of one control group, the youngest first."""
    text = read_bytes(root, f"{folder}/cgroup.procs") or b""
    return sorted((int(line) for line in text.split() if line.isdigit()), reverse=True)
