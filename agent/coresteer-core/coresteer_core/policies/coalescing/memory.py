"""What the coalescing policy remembers of a netdev, and what happened to it between two rounds."""

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.policies.coalescing.candidates import ADAPTIVE, FRAMES, USECS
from coresteer_core.policies.coalescing.netdev_traffic import Traffic

_ANOTHER_RATE, _ANOTHER_KIND = 3.0, 2.0
"""Times the packets per second, or per interrupt, by which traffic is another than that of an experience."""


class Ceiling(Struct, frozen=True, gc=False):
    """A wait that is not tried again, why, and the traffic at the wait before it. usecs: from here on."""

    usecs: int
    why: str
    packets_per_s: float
    per_interrupt: float

    def holds(self, traffic: Traffic) -> bool:
        """Whether the traffic is still of that kind."""
        ratio = traffic.packets_per_s / self.packets_per_s if self.packets_per_s else _ANOTHER_RATE
        same_rate = 1 / _ANOTHER_RATE < ratio < _ANOTHER_RATE
        return same_rate and traffic.per_interrupt <= _ANOTHER_KIND * self.per_interrupt


class Stood(Struct, frozen=True):
    """Values and the traffic while they stood."""

    params: dict[str, str]
    traffic: Traffic


class Tuning(Struct, frozen=True):
    """What a round leaves for the next of one netdev.

    originals: of the parameters that the policy has set, as before it. stands: as last seen. wants: what it proposed
    then, or what a step on trial is to be; judged: whether that is to show that it pays. traffic: since these values
    stand, None where nothing was seen of it yet; while adaptive-rx is on the driver may change the others as it likes.
    before: what the last such step left; on_trial: it has not been judged yet. settled: no step for a little. quiet:
    rounds below the least rate.
    """

    originals: dict[str, str] = {}
    stands: dict[str, str] = {}
    wants: dict[str, str] = {}
    judged: bool = False
    traffic: Traffic | None = None
    before: Stood | None = None
    on_trial: bool = False
    settled: bool = False
    ceiling: Ceiling | None = None
    quiet: int = 0

    @property
    def missing(self) -> dict[str, str]:
        """What of the last step does not stand yet."""
        return {param: value for param, value in self.wants.items() if self.stands.get(param) != value}


def noticed(was: Tuning, stands: dict[str, str]) -> tuple[Tuning, bool]:
    """The memory after a look at the values, and whether others stand than before.

    They are what the policy proposed then, or somebody else changed them.
    """
    driven = was.stands.get(ADAPTIVE) == stands.get(ADAPTIVE) == "on"
    watched = [param for param in stands if not (driven and param in (USECS, FRAMES))]
    changed = [param for param in watched if stands[param] != was.stands.get(param)]
    if not changed:
        after = replace(was, stands=stands, wants=was.wants if was.on_trial else {})
    elif any(was.wants.get(param) != stands[param] or param not in was.stands for param in changed):
        after = Tuning(was.originals, stands, ceiling=_undone(was, stands))
    else:
        before = Stood(was.stands, was.traffic) if was.judged and was.traffic is not None else None
        if was.judged and was.on_trial and was.missing:
            before = was.before
        after = replace(
            was,
            originals={**{param: was.stands[param] for param in changed}, **was.originals},
            stands=stands,
            traffic=None,
            before=before,
            on_trial=before is not None,
            settled=not was.judged,
        )
    adaptive_again = stands.get(ADAPTIVE) == after.originals.get(ADAPTIVE) == "on"
    if adaptive_again or all(stands.get(param) == value for param, value in after.originals.items()):
        after = replace(after, originals={}, before=None, on_trial=False)
    return after, bool(changed)


def _undone(was: Tuning, stands: dict[str, str]) -> Ceiling | None:
    """After somebody else, or a guardrail, put back what stood before a step."""
    if was.before is None or was.before.params != stands:
        return None
    traffic = was.before.traffic
    why = "the last step was undone by a guardrail or a person"
    return Ceiling(0, why, traffic.packets_per_s, traffic.per_interrupt)
