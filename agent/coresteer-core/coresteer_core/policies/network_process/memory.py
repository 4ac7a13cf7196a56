"""Memory of the policy ``network-process`` between rounds: affinities of processes and interrupts that it has set."""

from msgspec import Struct


class PlacedAffinity(Struct, frozen=True, gc=False):
    """An affinity, of a process or of its interrupt, that the policy has set or proposed.

    original: the value before the policy. current: as last read; the original until the policy's value was written.
    value: the policy's desired value. last_s: view time of the process's last traffic.
    """

    key: str
    pid: int
    started_ticks: int
    original: str
    current: str
    value: str
    last_s: float


class NetworkProcessMemory(Struct, frozen=True, tag="network-process"):
    """Memory of the policy for the next round: affinities it has set, by last traffic of their processes."""

    placed: list[PlacedAffinity] = []


def is_ours(placed: PlacedAffinity, found: str) -> bool:
    """Return whether an affinity is still the policy's, now or as in the round before."""
    return found in (placed.value, placed.current) and found != placed.original


def updated(was: PlacedAffinity, found: str, last_s: float, *, ours: bool) -> PlacedAffinity:
    """Return an affinity for the next round's memory, after its present value (found) was read."""
    current = found if ours else was.original
    return PlacedAffinity(was.key, was.pid, was.started_ticks, was.original, current, was.value, last_s)
