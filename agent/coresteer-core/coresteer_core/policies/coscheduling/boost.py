"""Choose the processes to boost from their pending messages, by reorder.py's functions.

A Reordering records everything that one choice depends on, so that it can be computed again from the record.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.policies.coscheduling.load import PeerLoad
from coresteer_core.policies.coscheduling.reorder import MINUS, expected_run_time, first_to_run, rebase

_NEWER_S = 0.010
"""Data is newer than known if it is by more than this: the kernel tells its age in its own ticks."""


BY_AGE = 0.0
"""Sign of a Reordering that orders by the age of messages alone: periodic boost without reordering (PB)."""


class PendingMessage(Struct, frozen=True):
    """Bytes that wait for a process, all from one peer. heard_s: when the last of them arrived (T of figure 3).

    peer: an address, or CPUs of the same machine. peer_heard_s: when the last data of this peer arrived for any of the
    job's processes here. load: the peer's, with ENP of when the message arrived; None where unknown or too old.
    """

    pid: int
    peer: str
    pending_bytes: int
    heard_s: float
    peer_heard_s: float
    load: PeerLoad | None


class Reordering(Struct, frozen=True):
    """The inputs of one choice on one set of CPUs, and the processes chosen, the most urgent first.

    slots: how many may be boosted. peers: number of peers whose load is known; with fewer than min_peers none is.
    """

    time_s: float
    cpus: str
    sign: float
    slots: int
    peers: int
    min_peers: int
    messages: list[PendingMessage]
    boosted: list[int] = []

    @property
    def lacks_loads(self) -> bool:
        """Return whether the loads of too few peers are known to boost a process; by age none is needed."""
        return self.sign != BY_AGE and self.peers < self.min_peers


class Urgency(Struct, frozen=True):
    """How urgent a process is. ert_s: the least expected run time of its peers; message: the one that has it."""

    pid: int
    ert_s: float
    message: PendingMessage
    pending_bytes: int


def message_run_time(message: PendingMessage, now_s: float, sign: float) -> float:
    """Return in how many seconds the sender of a message is expected to run again (ERT).

    Without its load, and BY_AGE, only the age counts, as if it had run at once: the oldest message is the most urgent.
    """
    if message.load is None or sign == BY_AGE:
        return expected_run_time(0.0, message.heard_s, 0.0, now_s, MINUS)
    enp, heard_s = rebase(message.load.enp, message.heard_s, message.peer_heard_s, message.load.ts_s)
    return expected_run_time(enp, heard_s, message.load.ts_s, now_s, sign)


def order(reordering: Reordering) -> list[Urgency]:
    """Return the processes with pending messages, that with the least expected run time first."""
    urgencies: dict[int, Urgency] = {}
    oldest_s: dict[int, float] = {}
    for message in reordering.messages:
        ert_s = message_run_time(message, reordering.time_s, reordering.sign)
        known = urgencies.get(message.pid)
        pending_bytes = message.pending_bytes + (0 if known is None else known.pending_bytes)
        first = message if known is None or ert_s < known.ert_s else known.message
        least_s = ert_s if known is None else min(ert_s, known.ert_s)
        urgencies[message.pid] = Urgency(message.pid, least_s, first, pending_bytes)
        oldest_s[message.pid] = min(message.heard_s, oldest_s.get(message.pid, message.heard_s))
    left = [urgencies[pid] for pid in sorted(urgencies)]
    found = []
    while left:
        index = first_to_run(
            [each.ert_s for each in left],
            [0] * len(left),
            [oldest_s[each.pid] for each in left],
            range(len(left)),
            len(left),
        )
        found.append(left.pop(index))
    return found


def choose(reordering: Reordering) -> Reordering:
    """Return a reordering with the processes to boost now: the first of the order, as many as there are slots."""
    if reordering.lacks_loads:
        return reordering
    return replace(reordering, boosted=[each.pid for each in order(reordering)[: reordering.slots]])


class Received(Struct, frozen=True):
    """What one socket of a process received. heard_s: when the last data arrived; pending_bytes: not read yet."""

    pid: int
    peer: str
    pending_bytes: int
    heard_s: float


class ArrivalLoads:
    """Remembers with which ENP of its sender each message arrived: the beacon's latest at that time."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[float, float | None]] = {}

    def messages(self, received: Sequence[Received], loads: Mapping[str, PeerLoad]) -> list[PendingMessage]:
        """Return the pending messages, one for each process and peer. loads: by peer, only those recent enough."""
        latest: dict[tuple[int, str], Received] = {}
        for each in received:
            key = each.pid, each.peer
            before = latest.get(key)
            pending_bytes = each.pending_bytes + (0 if before is None else before.pending_bytes)
            heard_s = each.heard_s if before is None else max(each.heard_s, before.heard_s)
            latest[key] = Received(each.pid, each.peer, pending_bytes, heard_s)
        self._note(latest.values(), loads)
        peer_heard_s: dict[str, float] = {}
        for pid, peer in latest:
            peer_heard_s[peer] = max(self._known[pid, peer][0], peer_heard_s.get(peer, float("-inf")))
        found = []
        for (pid, peer), each in latest.items():
            if each.pending_bytes:
                heard_s, enp = self._known[pid, peer]
                load = loads.get(peer)
                at_arrival = load and PeerLoad(load.ts_s, load.enp if enp is None else enp)
                found.append(PendingMessage(pid, peer, each.pending_bytes, heard_s, peer_heard_s[peer], at_arrival))
        return found

    def _note(self, received: Iterable[Received], loads: Mapping[str, PeerLoad]) -> None:
        known, self._known = self._known, {}
        for each in received:
            key = each.pid, each.peer
            before = known.get(key)
            if before is None or each.heard_s > before[0] + _NEWER_S:
                load = loads.get(each.peer)
                before = each.heard_s, None if load is None else load.enp
            self._known[key] = before
