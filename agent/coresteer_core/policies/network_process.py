"""Processes that receive from the network run where their packets are handled (Jang, Jin, Kim, 2009)."""

from msgspec import Struct

from coresteer_core.model import View
from coresteer_core.policies.base import Decision, Scope


class NetworkProcess(Struct, frozen=True, tag="network-process"):
    """What the operator wants.

    idle_s: a process silent for longer gets its original affinity back. min_bytes_per_s: below it a process is left
    alone. max_load: share of the interrupt's CPU, without the process itself, above which the next ring is tried.
    rings: how far from it a process may go: ``cpu``, ``smt``, ``l2``, ``l3`` or ``numa``, each with all before it.
    smt: whether the second thread of the interrupt's core is the ``first`` or the ``last`` choice within its ring.
    move_irq: where the process may not move, its interrupt may.
    """

    idle_s: float = 10.0
    min_bytes_per_s: float = 100_000.0
    max_load: float = 0.8
    rings: str = "l3"
    smt: str = "last"
    move_irq: bool = False
    allow_isolated: bool = False


class Placed(Struct, frozen=True):
    """A process that the policy placed. original: its affinity before. since_s: view time of the last move."""

    pid: int
    started_ticks: int
    original: str
    value: str
    since_s: float


class NetworkProcessMemory(Struct, frozen=True, tag="network-process"):
    """What a round leaves for the next: the processes that communicate, the one that did so last at the end."""

    placed: list[Placed] = []


def decide(view: View, spec: NetworkProcess, scope: Scope, memory: NetworkProcessMemory) -> Decision:
    """Placeholder replaced by the policy."""
    raise NotImplementedError
