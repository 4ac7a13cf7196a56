"""Measures TS and ENP of a set of CPUs: how long its processes run at a time, and how many run before the next turn."""

from collections.abc import Mapping, Set

from msgspec import Struct

from coresteer_core.node.tasks import ThreadActivity
from coresteer_core.policies.coscheduling.reorder import expected_processes

_WEIGHT = 1 / 8
"""Of a new value in the means."""


class PeerLoad(Struct, frozen=True):
    """What a set of CPUs tells its peers. ts_s: TS, the mean time slice; enp: ENP, the expected number of processes.

    With several CPUs, enp is the number of processes divided by that of the CPUs, which take them at the same time.
    """

    ts_s: float
    enp: float


class LoadMeter:
    """Measures the load of one set of CPUs from the activity of a job's processes on them, one period after another."""

    def __init__(self) -> None:
        self._before: dict[int, ThreadActivity] = {}
        self._ts_s: float | None = None
        self._woken: float | None = None
        self._run_ns = self._slices = 0

    def measure(
        self, now: Mapping[int, ThreadActivity], pending: Set[int], cpus: int, *, is_sum: bool = False
    ) -> PeerLoad | None:
        """Return the load after another period; None before a first time slice was measured.

        now: by PID. pending: PIDs of processes with pending messages. cpus: number of CPUs in the set. is_sum:
        as reorder.expected_processes() takes it; those ready to run are the highest level. The kernel does not tell
        which of the runnable processes runs: the busiest of the period, one a CPU, count as running.
        """
        ran = {pid: each.run_ns - self._before[pid].run_ns for pid, each in now.items() if pid in self._before}
        self._add_slices(now, ran)
        woken = sum(1 for pid in ran if now[pid].sleeps > self._before[pid].sleeps)
        self._woken = woken if self._woken is None else self._woken + _WEIGHT * (woken - self._woken)
        self._before = dict(now)
        if self._ts_s is None:
            return None
        runnable = sorted((pid for pid in now if now[pid].runnable), key=lambda pid: -ran.get(pid, 0))
        ready = set(runnable[cpus:])
        others = [pid for pid in now if pid not in runnable[:cpus]]
        enp = expected_processes(
            [pid in pending for pid in others], [pid in ready for pid in others], len(others), self._woken, is_sum
        )
        return PeerLoad(self._ts_s, enp / cpus)

    def _add_slices(self, now: Mapping[int, ThreadActivity], ran: Mapping[int, int]) -> None:
        """Add a period to the mean time slice; a slice that began in an earlier period counts when the next begins."""
        self._run_ns += sum(max(run_ns, 0) for run_ns in ran.values())
        self._slices += sum(max(now[pid].slices - self._before[pid].slices, 0) for pid in ran)
        if self._slices and self._run_ns:
            ts_s = self._run_ns / self._slices / 1e9
            self._ts_s = ts_s if self._ts_s is None else self._ts_s + _WEIGHT * (ts_s - self._ts_s)
            self._run_ns = self._slices = 0
