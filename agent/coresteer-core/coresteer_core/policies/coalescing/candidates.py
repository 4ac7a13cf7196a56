"""What of a netdev can wait, how long at most, and which values there are to choose from."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import ceil, exp, inf
from typing import ClassVar

from msgspec import Struct

from coresteer_core.node.inventory import Netdev
from coresteer_core.node.nic import (
    Learned,
    Timer,
    Tried,
    Verdict,
    added_bound_us,
    product_bound_us,
    sets_own_pace,
    timer_of,
)

USECS, FRAMES, ADAPTIVE = "coalesce/rx-usecs", "coalesce/rx-frames", "coalesce/adaptive-rx"
FLUSH_NS, DEFER = "gro_flush_timeout", "napi_defer_hard_irqs"
PAST_THE_GAP = 1.25
"""A timer that restarts waits so many times the gap between packets, as gaps are not all alike."""

_MOST_US = 10_000
_ROUND = [digit * 10**power // 10 for power in range(5) for digit in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)]
_GRID = [*sorted({value for value in _ROUND if value < _MOST_US}), _MOST_US]
"""Times in µs that are asked for: so few that a driver which refuses some is soon known."""
_MORE, _WORTH = 1.02, 1.2
"""A longer time is worth so much more to collect, and waiting at all so many packets to an interrupt."""
_ORDINARY_US = 50
"""A driver that can wait can wait as long as that; many refuse less."""
_HOPELESS = 2
"""So many values that came to nothing, and none that was taken: the driver has the parameter in name only."""
_DEFERRED_POLLS = "2"
"""Empty polls before interrupts are enabled again (kernel: Documentation/networking/napi.rst)."""


class Waiting(Struct, frozen=True):
    """How long is waited: µs, and packets where they count (0: they do not)."""

    usecs: int
    frames: int | None = None


class _Way(ABC):
    """What is common to both: values of one parameter that the driver is not known to spoil."""

    params: tuple[str, ...]
    """What is set, in the order in which it is to be written."""
    why: str

    def __init__(self, netdev: Netdev, learned: Learned) -> None:
        self.netdev = netdev
        self._learned = learned
        self.stands = {param: netdev.params[param] for param in self.params if param in netdev.params}

    @property
    def adaptive(self) -> bool:
        """Whether the driver sets the values as the load goes."""
        return self.stands.get(ADAPTIVE) == "on"

    @property
    def standing(self) -> Waiting:
        """What stands now."""
        return self.waiting(self.stands)

    @abstractmethod
    def waiting(self, params: Mapping[str, str]) -> Waiting:
        """The wait that some values are."""

    @staticmethod
    def _times(most_us: float) -> list[int]:
        """In µs, those that are asked for up to some time, and that itself."""
        whole = int(min(most_us, _MOST_US))
        return [value for value in _GRID if value < whole] + [whole] * (whole >= 1)

    def hopeless(self, param: str) -> Tried | None:
        """What was tried last of a parameter that the driver has in name only; None where it can be set."""
        tried = [each for each in self._learned.tried(self.netdev.driver, param) if self._tells(param, each.asked)]
        spoilt = [each for each in tried if each.verdict not in (Verdict.TAKEN, Verdict.ROUNDED)]
        enough = _HOPELESS if param in (USECS, FRAMES) else 1
        untrue = sum(each.verdict is Verdict.NO_EFFECT for each in spoilt)
        if untrue >= enough or (len(spoilt) >= enough and len(spoilt) == len(tried)):
            return spoilt[-1]
        return None

    def _tells(self, param: str, asked: str) -> bool:
        """Whether a value tells if a driver can be asked at all: no time so short that only that may be the matter."""
        match param:
            case "coalesce/adaptive-rx":
                return asked == "off"
            case "coalesce/rx-usecs":
                return int(asked) >= _ORDINARY_US
            case "gro_flush_timeout":
                return int(asked) >= _ORDINARY_US * 1000
        return asked not in ("0", "1")

    def _offered(self, param: str, candidates: list[int], least: int, most: float) -> int | None:
        """The first of some values, or what the driver makes of it, that is within bounds and not spoilt."""
        known = {each.asked: each for each in self._learned.tried(self.netdev.driver, param)}

        def good(value: int) -> bool:
            tried = known.get(str(value))
            fits = least <= value <= most and not (param == USECS and sets_own_pace(self.netdev.driver, value))
            return fits and (tried is None or tried.verdict is Verdict.TAKEN)

        for value in candidates:
            if good(value):
                return value
            tried = known.get(str(value))
            if tried is not None and tried.verdict is Verdict.ROUNDED and good(made := int(tried.stood or 0)):
                return made
        return None


class Hardware(_Way):
    """A NIC that waits by its own timer."""

    params = (ADAPTIVE, USECS, FRAMES)
    by: ClassVar[str] = "rx-usecs"

    def __init__(self, netdev: Netdev, learned: Learned) -> None:
        super().__init__(netdev, learned)
        self.timer, self.why = timer_of(netdev.driver, netdev.params)
        self._counts = FRAMES in self.stands
        self._settable_frames = self._counts and self.hopeless(FRAMES) is None
        ring = netdev.params.get("ring/rx")
        self.most_packets = int(ring) / 2 if ring is not None else inf
        """Half of the ring, so that the other half takes what comes until the CPU does."""

    def waiting(self, params: Mapping[str, str]) -> Waiting:
        """The wait that some values are."""
        return Waiting(int(params[USECS]), int(params[FRAMES]) if self._counts else None)

    def timed(self, waiting: Waiting) -> int:
        """For how many µs it waits; 0 where that is no time or none."""
        return 0 if sets_own_pace(self.netdev.driver, waiting.usecs) else waiting.usecs

    def bound_us(self, waiting: Waiting) -> float:
        """How long a packet may wait, by the authors' product unless the timer is known not to restart."""
        if sets_own_pace(self.netdev.driver, waiting.usecs):
            return 0.0
        bound = added_bound_us(self.timer, waiting.usecs, waiting.frames)
        product = product_bound_us(waiting.usecs, waiting.frames)
        return max(bound, product or 0.0) if self.restarts and waiting.frames != 1 else bound

    def written(self, waiting: Waiting) -> dict[str, str]:
        """The values of the parameters, those that are written first before the others."""
        values = {USECS: str(waiting.usecs)}
        if waiting.frames is not None:
            values[FRAMES] = str(waiting.frames)
        return {ADAPTIVE: "off", **values} if ADAPTIVE in self.stands else values

    def first(self, goal: float, gap_us: float, wire_us: float | None, bound_us: float) -> Waiting | str:
        """The shortest wait by which the timer's model collects goal packets, or as many as the bound allows."""
        if not self.restarts:
            usecs = goal * gap_us if self.timer is Timer.THROTTLE else (goal - 1) * gap_us
            return self.about(usecs, self._enough_frames(goal), 0, bound_us)
        if not self._counts:
            return f"{self.why} It has no rx-frames that would end the wait, so no time is within any bound."
        if self.standing == Waiting(0, 0):
            return f"{self.why} It neither times nor counts: whichever began would have no end before the other did."
        usecs, frames = PAST_THE_GAP * gap_us, ceil(goal)
        if not self._settable_frames:
            frames = self.standing.frames or 0
            usecs = min(usecs, bound_us / frames) if frames else inf
        elif ceil(usecs) * frames > bound_us:
            return self.fullest(goal, gap_us, wire_us, bound_us)
        return self.about(usecs, frames, 0, bound_us)

    def fullest(self, goal: float, gap_us: float, wire_us: float | None, bound_us: float) -> Waiting | str:
        """Of the pairs whose product is the bound, the one that collects most packets where they come at random."""
        best, most = None, 1.0
        for usecs in self._times(bound_us / 2):
            frames = min(ceil(goal), int(bound_us // usecs))
            ends = exp(-usecs / gap_us)
            collected = (1 - (1 - ends) ** frames) / ends if ends > 0 else frames
            if usecs > (wire_us or 0.0) and collected > most * _MORE:
                best, most = (usecs, frames), collected
        if best is None or most < _WORTH:
            return (
                f"Packets are {gap_us:,.0f} µs apart in its busiest queue: within {bound_us:g} µs hardly two of them "
                "come to an interrupt of a timer that restarts."
            )
        return self.about(*best, 0, bound_us)

    def about(self, usecs: float, frames: int | None, least_us: int, bound_us: float) -> Waiting | str:
        """A wait of some µs, or the nearest that can be had from least_us up and within a bound."""
        most = bound_us // frames if self.restarts and frames else bound_us
        values = self._times(most)
        upwards = [value for value in values if value >= usecs]
        downwards = [value for value in reversed(values) if value < usecs]
        found = self._offered(USECS, [*upwards, *downwards], max(1, least_us), most)
        if found is None:
            return f"{self.netdev.driver} takes no rx-usecs from {max(1, least_us)} to {most:g} µs."
        if frames is None or frames == self.standing.frames:
            return Waiting(found, frames)
        offered = self._offered(FRAMES, list(range(frames, max(1, frames // 2), -1)), 1, frames)
        return Waiting(found, offered) if offered is not None else f"{self.netdev.driver} takes no rx-frames {frames}."

    def shortened(self, waiting: Waiting, bound_us: float) -> Waiting | str:
        """A wait cut to a bound."""
        usecs, frames = self.timed(waiting), waiting.frames
        if not self.restarts:
            return self.about(min(max(1, usecs), bound_us), frames, 0, bound_us)
        if self._settable_frames:
            usecs = min(max(1, usecs), int(bound_us // 2) or 1)
            fits = int(bound_us // usecs)
            return self.about(usecs, min(fits, frames or fits), 0, bound_us)
        return self.about(bound_us / frames, frames, 0, bound_us) if frames else self.why

    def frames_for(self, goal: float) -> int | None:
        """How many packets are counted to while a wait is corrected."""
        return self.standing.frames if self.restarts else self._enough_frames(goal)

    def say(self, waiting: Waiting) -> str:
        """A wait in a sentence, with the longest that it adds and the authors' bound."""
        if sets_own_pace(self.netdev.driver, waiting.usecs):
            return f"rx-usecs {waiting.usecs} (with which {self.netdev.driver} chooses the time itself)"
        values = f"rx-usecs {waiting.usecs}" + (f", rx-frames {waiting.frames}" if waiting.frames is not None else "")
        product = product_bound_us(waiting.usecs, waiting.frames)
        authors = f"; rx-usecs × rx-frames is {product:,.0f} µs" if product is not None else "; it counts no packets"
        bound_us = self.bound_us(waiting)
        most = (
            f"a packet waits {bound_us:,.0f} µs at most" if bound_us < inf else "nothing bounds how long a packet waits"
        )
        return f"{values} ({most}{authors})"

    @property
    def restarts(self) -> bool:
        """Whether each packet may begin the wait anew, as far as is known."""
        return self.timer in (None, Timer.RESTARTING)

    def _enough_frames(self, goal: float) -> int | None:
        """The count that stands, or goal where it would end the wait before."""
        frames = self.standing.frames
        return ceil(goal) if self._settable_frames and frames and frames < goal else frames


class Software(_Way):
    """A netdev for which the kernel waits: it polls again after gro_flush_timeout instead of enabling interrupts.

    It counts from the last poll, so it is a throttle (kernel: net/core/dev.c, napi_complete_done).
    """

    params = (DEFER, FLUSH_NS)
    by: ClassVar[str] = "gro_flush_timeout"
    timer = Timer.THROTTLE
    why = "The kernel counts gro_flush_timeout from its last poll."
    most_packets = inf
    restarts = False

    def waiting(self, params: Mapping[str, str]) -> Waiting:
        """The wait that some values are."""
        return Waiting(int(params[FLUSH_NS]) // 1000 if params[DEFER] != "0" else 0)

    def timed(self, waiting: Waiting) -> int:
        """For how many µs it waits."""
        return waiting.usecs

    def bound_us(self, waiting: Waiting) -> float:
        """How long a packet may wait."""
        return float(waiting.usecs)

    def written(self, waiting: Waiting) -> dict[str, str]:
        """The values of the parameters, those that are written first before the others."""
        polls = self.stands[DEFER] if self.stands[DEFER] != "0" else _DEFERRED_POLLS
        return {DEFER: polls, FLUSH_NS: str(waiting.usecs * 1000)}

    def first(self, goal: float, gap_us: float, wire_us: float | None, bound_us: float) -> Waiting | str:
        """The shortest wait that collects goal packets."""
        return self.about(goal * gap_us, None, 0, bound_us)

    def about(self, usecs: float, frames: int | None, least_us: int, bound_us: float) -> Waiting | str:
        """A wait of some µs, or the nearest from least_us up and within a bound."""
        values = [value for value in self._times(bound_us) if value >= least_us]
        upwards = [value for value in values if value >= usecs]
        if not values:
            return f"No wait from {max(1, least_us)} to {bound_us:g} µs can be asked for."
        return Waiting(min(upwards) if upwards else max(values))

    def shortened(self, waiting: Waiting, bound_us: float) -> Waiting | str:
        """A wait cut to a bound."""
        return self.about(min(waiting.usecs, bound_us), None, 0, bound_us)

    def frames_for(self, goal: float) -> None:
        """It counts none."""

    def say(self, waiting: Waiting) -> str:
        """A wait in a sentence."""
        polls = self.written(waiting)[DEFER]
        return (
            f"gro_flush_timeout {waiting.usecs * 1000} ns, napi_defer_hard_irqs {polls} (a packet waits "
            f"{waiting.usecs:,} µs at most; it counts no packets)"
        )


def way_of(netdev: Netdev, learned: Learned, *, software: bool) -> Hardware | Software | str:
    """What can wait for a netdev; or why nothing can."""
    if USECS in netdev.params:
        hardware = Hardware(netdev, learned)
        spoilt = hardware.hopeless(USECS)
        if spoilt is None:
            return hardware
        why = f"Its driver {netdev.driver} has rx-usecs in name only: {spoilt.asked} was {became(spoilt)}"
    else:
        why = f"Its driver {netdev.driver or ''}".rstrip() + " has no rx-usecs."
    if not software or netdev.virtual:
        return why if not netdev.virtual else "It has no interrupts of its own that could wait."
    if not {FLUSH_NS, DEFER} <= netdev.params.keys():
        return f"{why} The kernel has no gro_flush_timeout and napi_defer_hard_irqs for it either."
    kernels = Software(netdev, learned)
    spoilt = kernels.hopeless(FLUSH_NS) or kernels.hopeless(DEFER)
    return kernels if spoilt is None else f"{why} {spoilt.name} {spoilt.asked} was {became(spoilt)}"


def in_order(stands: Mapping[str, str], wanted: Mapping[str, str]) -> list[tuple[str, str]]:
    """What of the wanted does not stand and may be written now, in order, so that no wait in between is longer.

    The driver gives up its own choice first and gets it back last. Of time and count the one that shortens the wait
    comes first, and the other once that stands, as it may be refused. Without a time only the count ends a wait, so
    while rx-usecs is 0 no count is written, and it becomes 0 after the count is as wanted.
    """
    differs = {param: value for param, value in wanted.items() if param in stands and stands[param] != value}
    if USECS in differs and FRAMES in differs:
        shortens = {p: _length(p, differs[p]) < _length(p, stands[p]) for p in (USECS, FRAMES)}
        if stands[USECS] == "0":
            del differs[FRAMES]
        elif differs[USECS] == "0" or (shortens[FRAMES] and not shortens[USECS]):
            del differs[USECS]
        elif shortens[USECS] and not shortens[FRAMES]:
            del differs[FRAMES]
    last = ADAPTIVE in differs and differs[ADAPTIVE] == "on"
    if last and len(differs) > 1:
        del differs[ADAPTIVE]
    return sorted(differs.items(), key=lambda item: item[0] != ADAPTIVE)


def _length(param: str, value: str) -> float:
    """How long a value makes packets wait: a count of 0 has no end."""
    return inf if param == FRAMES and value == "0" else float(value)


def became(tried: Tried) -> str:
    """What became of a value, for the end of a sentence: ``refused (Operation not supported).``"""
    words = tried.words.rstrip(".")
    return f"{tried.verdict.value.replace('_', ' ')}{f' ({words})' if words else ''}."
