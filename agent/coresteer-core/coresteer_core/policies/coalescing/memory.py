"""Memory of the coalescing policy for each netdev between two rounds."""

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.policies.coalescing.candidates import ADAPTIVE_RX, RX_FRAMES, RX_USECS
from coresteer_core.policies.coalescing.netdev_traffic import NetdevTraffic

_ANOTHER_RATE, _ANOTHER_KIND = 3.0, 2.0
"""Factors by which packets per second, and per interrupt, must change for a ceiling to be dropped."""


class Ceiling(Struct, frozen=True, gc=False):
    """Delay (usecs) from which on none is tried, as a step there did harm: the reason, and the traffic before it."""

    usecs: int
    why: str
    packets_per_s: float
    per_interrupt: float

    def applies_to(self, traffic: NetdevTraffic) -> bool:
        """Return whether traffic is still similar to that before the harmful step."""
        ratio = traffic.packets_per_s / self.packets_per_s if self.packets_per_s else _ANOTHER_RATE
        same_rate = 1 / _ANOTHER_RATE < ratio < _ANOTHER_RATE
        return same_rate and traffic.per_interrupt <= _ANOTHER_KIND * self.per_interrupt


class Snapshot(Struct, frozen=True):
    """Coalescing parameters before a step, and the traffic while they were set."""

    params: dict[str, str]
    traffic: NetdevTraffic


class NetdevMemory(Struct, frozen=True):
    """Memory of the coalescing policy about one netdev for the next round.

    originals: values from before the policy, of the parameters that it has set. current: as last read.
    target: values proposed then, or of a step on trial. expects_gain: that step is evaluated afterwards.
    traffic: mean since these values were set, None before any was measured; while adaptive-rx is on the driver may
    change the other values. before: what the last evaluated step replaced; on_trial: it has not been evaluated yet.
    settled: no step is taken for small differences. quiet: rounds below the minimum packet rate.
    """

    originals: dict[str, str] = {}
    current: dict[str, str] = {}
    target: dict[str, str] = {}
    expects_gain: bool = False
    traffic: NetdevTraffic | None = None
    before: Snapshot | None = None
    on_trial: bool = False
    settled: bool = False
    ceiling: Ceiling | None = None
    quiet: int = 0

    @property
    def missing(self) -> dict[str, str]:
        """Return the parameter values of the last step that are not set yet."""
        return {param: value for param, value in self.target.items() if self.current.get(param) != value}


def update_after_read(was: NetdevMemory, current: dict[str, str]) -> tuple[NetdevMemory, bool]:
    """Return a netdev's memory after its present parameter values were read, and whether these have changed.

    They changed to what the policy proposed, or something else changed them.
    """
    driven = was.current.get(ADAPTIVE_RX) == current.get(ADAPTIVE_RX) == "on"
    watched = [param for param in current if not (driven and param in (RX_USECS, RX_FRAMES))]
    changed = [param for param in watched if current[param] != was.current.get(param)]
    if not changed:
        after = replace(was, current=current, target=was.target if was.on_trial else {})
    elif any(was.target.get(param) != current[param] or param not in was.current for param in changed):
        after = NetdevMemory(was.originals, current, ceiling=_undone(was, current))
    else:
        before = Snapshot(was.current, was.traffic) if was.expects_gain and was.traffic is not None else None
        if was.expects_gain and was.on_trial and was.missing:
            before = was.before
        after = replace(
            was,
            originals={**{param: was.current[param] for param in changed}, **was.originals},
            current=current,
            traffic=None,
            before=before,
            on_trial=before is not None,
            settled=not was.expects_gain,
        )
    adaptive_again = current.get(ADAPTIVE_RX) == after.originals.get(ADAPTIVE_RX) == "on"
    if adaptive_again or all(current.get(param) == value for param, value in after.originals.items()):
        after = replace(after, originals={}, before=None, on_trial=False)
    return after, bool(changed)


def _undone(was: NetdevMemory, current: dict[str, str]) -> Ceiling | None:
    """Return a ceiling if a guardrail or a person restored the values from before the last step, else None."""
    if was.before is None or was.before.params != current:
        return None
    traffic = was.before.traffic
    why = "a guardrail or a person reverted the last step"
    return Ceiling(0, why, traffic.packets_per_s, traffic.per_interrupt)
