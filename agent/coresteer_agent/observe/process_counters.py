"""Memory traffic and waiting for memory of processes, from the performance counters of their CPUs."""

import errno
import os
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from coresteer_agent.collect.files import list_numbered, read_text
from coresteer_agent.linux import perf_event
from coresteer_agent.linux.perf_event import Count, Event
from coresteer_core.node.numa import NumaTask

LINE_BYTES = 64
MAX_COUNTERS = 384
"""Open at the same time, over all processes; the busiest processes come first."""
MISSES, CYCLES, STALLS = "misses of the last-level cache", "cycles", "cycles in which a process waits for memory"
_PMU = "sys/bus/event_source/devices/cpu/caps/pmu_name"
_PARANOID = "proc/sys/kernel/perf_event_paranoid"
_TASK_CLOCK = Event(perf_event.SOFTWARE, 1)
_CYCLES = Event(perf_event.HARDWARE, 0)
# Generic events differ by CPU: PERF_COUNT_HW_CACHE_MISSES is the last level on Intel, but L2 on AMD and L1 on ARM,
# where the events of the cache named LL are exact or absent.
_EVENTS = {MISSES: Event(perf_event.CACHE, 0x1_00_02), CYCLES: _CYCLES, STALLS: Event(perf_event.HARDWARE, 8)}
_INTEL = {MISSES: Event(perf_event.HARDWARE, 3), CYCLES: _CYCLES, STALLS: Event(perf_event.RAW, 0x06_00_06_A3)}
"""STALLS: CYCLE_ACTIVITY.STALLS_L3_MISS (kernel: tools/perf/pmu-events/arch/x86)."""
_INTEL_PMUS = frozenset({"skylake", "icelake", "sapphire_rapids", "granite_rapids"})


class Figures(Struct, frozen=True):
    """Of one process in the last interval; None where unknown. memory_bound: share of its cycles, 0.0 to 1.0."""

    bytes_per_s: float | None
    memory_bound: float | None


class _Process(Struct):
    """Open counters of a process: (event, descriptor). before: what they had counted."""

    started_ticks: int
    opened: list[tuple[str, int]]
    read_s: float
    before: list[Count]


class ProcessCounters:
    """Counts for the busiest processes of a machine. Not thread-safe. open_counter, read_counter: of perf_event."""

    def __init__(
        self,
        root: Path,
        open_counter: Callable[[Event, int], int] = perf_event.open_counter,
        read_counter: Callable[[int], Count] = perf_event.read_counter,
    ) -> None:
        self._root = root
        self._open_counter, self._read_counter = open_counter, read_counter
        self._events: dict[str, Event] = {}
        self.refused: str | None = None if root == Path("/") else "A captured tree has no performance counters."
        self.absent: list[str] = []
        """Events that this machine does not count: in a virtual machine often all."""
        self._probed = self.refused is not None
        self._processes: dict[int, _Process] = {}
        self._failed: dict[int, int] = {}
        """Start times of processes whose counters could not be opened, by PID: not tried again."""
        self._most = min(MAX_COUNTERS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    def read(self, tasks: Sequence[NumaTask]) -> dict[int, Figures]:
        """Return the figures since the last read, by PID; open counters for new processes and close those of others."""
        if not self._probed:
            self._probe()
        if not self._events:
            return {}
        wanted = self._wanted(tasks)
        self._failed = {t.pid: t.started_ticks for t in tasks if self._failed.get(t.pid) == t.started_ticks}
        for pid, process in list(self._processes.items()):
            if pid not in wanted or wanted[pid].started_ticks != process.started_ticks:
                self._close(pid)
        found = {}
        for pid, task in wanted.items():
            if pid in self._processes:
                found[pid] = self._figures(self._processes[pid])
            elif not self._open(task):
                self._failed[pid] = task.started_ticks
        return found

    def close(self) -> None:
        """Close all counters."""
        for pid in list(self._processes):
            self._close(pid)

    def _probe(self) -> None:
        """Find out once, on the calling thread, what this machine counts."""
        self._probed = True
        try:
            os.close(self._open_counter(_TASK_CLOCK, 0))  # which every machine counts, so it fails for other reasons
        except OSError as error:
            self.refused = self._reason(error)
            return
        events = _INTEL if read_text(self._root, _PMU) in _INTEL_PMUS else _EVENTS
        for name, event in events.items():
            try:
                os.close(self._open_counter(event, 0))
            except OSError:  # ENOENT, EOPNOTSUPP or EINVAL, depending on the CPU
                self.absent.append(name)
            else:
                self._events[name] = event
        if not {CYCLES, STALLS} <= self._events.keys():
            self._events = {name: event for name, event in self._events.items() if name == MISSES}

    def _reason(self, error: OSError) -> str:
        """Return why no event can be counted, as a sentence."""
        match error.errno:
            case errno.EACCES | errno.EPERM:
                level = read_text(self._root, _PARANOID)
                return (
                    "The kernel does not let this agent use performance counters, for which it needs CAP_PERFMON "
                    f"(kernel.perf_event_paranoid is {level})."
                )
            case errno.EINVAL | errno.E2BIG:
                return "Performance counters by process need Linux 5.13."
            case errno.ENOSYS:
                return "This kernel has no performance counters."
        return f"The kernel refuses performance counters: {error.strerror}."

    def _wanted(self, tasks: Sequence[NumaTask]) -> dict[int, NumaTask]:
        """Return the busiest processes whose counters fit, by PID."""
        left, found = self._most, {}
        for task in sorted(tasks, key=lambda each: -each.cpu_share):
            opened = self._processes.get(task.pid)
            need = len(opened.opened) if opened is not None else task.threads * len(self._events)
            if need <= left and self._failed.get(task.pid) != task.started_ticks:
                left -= need
                found[task.pid] = task
        return found

    def _open(self, task: NumaTask) -> bool:
        """Count for every thread of a process; later threads inherit. Return whether that is possible."""
        opened: list[tuple[str, int]] = []
        try:
            for tid in list_numbered(self._root, f"proc/{task.pid}/task", "")[: task.threads]:
                for name, event in self._events.items():
                    opened.append((name, self._open_counter(event, tid)))
            before = [self._read_counter(fd) for _, fd in opened]
        except OSError:
            for _, fd in opened:
                os.close(fd)
            return False
        self._processes[task.pid] = _Process(task.started_ticks, opened, time.monotonic(), before)
        return True

    def _figures(self, process: _Process) -> Figures:
        now_s, now = time.monotonic(), [self._read_counter(fd) for _, fd in process.opened]
        counted: dict[str, float | None] = dict.fromkeys(self._events, 0.0)
        for (name, _), was, count in zip(process.opened, process.before, now, strict=True):
            sum_, more = counted[name], increment(was, count)
            counted[name] = None if sum_ is None or more is None else sum_ + more
        seconds = now_s - process.read_s
        process.read_s, process.before = now_s, now
        misses, cycles, stalls = (counted.get(name) for name in (MISSES, CYCLES, STALLS))
        return Figures(
            None if misses is None or seconds <= 0 else misses * LINE_BYTES / seconds,
            None if stalls is None or not cycles else min(1.0, stalls / cycles),
        )

    def _close(self, pid: int) -> None:
        for _, fd in self._processes.pop(pid).opened:
            os.close(fd)


def increment(was: Count, now: Count) -> float | None:
    """Return how many events there were between two reads; None if the counter was off while the thread ran.

    Where more events are open than the CPU has counters, they are counted by turns, and the result is extrapolated.
    """
    running, enabled = now.running_ns - was.running_ns, now.enabled_ns - was.enabled_ns
    if running <= 0:
        return None if enabled > 0 else 0.0
    return (now.events - was.events) * enabled / running
