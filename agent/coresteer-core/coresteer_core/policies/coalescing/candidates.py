"""Mechanisms of interrupt coalescing of a netdev (NIC timer, kernel polling), and the delays that it can be set to."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import ceil, exp, inf
from typing import ClassVar

from msgspec import Struct

from coresteer_core.node.inventory import Netdev
from coresteer_core.node.nic import (
    DriverResponse,
    Learned,
    Timer,
    Verdict,
    added_bound_us,
    product_bound_us,
    selects_adaptive_mode,
    timer_of,
)

USECS, FRAMES, ADAPTIVE = "coalesce/rx-usecs", "coalesce/rx-frames", "coalesce/adaptive-rx"
FLUSH_NS, DEFER = "gro_flush_timeout", "napi_defer_hard_irqs"
GAP_FACTOR = 1.25
"""Multiple of the packet gap for a timer that restarts with each packet, because gaps vary."""

_MOST_US = 10_000
_ROUND = [digit * 10**power // 10 for power in range(5) for digit in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)]
_GRID = [*sorted({value for value in _ROUND if value < _MOST_US}), _MOST_US]
"""Delays in µs that are tried: few, so that it is soon known which of them a driver refuses."""
_MIN_GAIN, _MIN_PACKETS = 1.02, 1.2
"""Gain that a longer delay must bring, and packets per interrupt from which any delay pays."""
_ORDINARY_US = 50
"""Every driver with a timer accepts this delay; many refuse shorter ones."""
_MAX_FAILURES = 2
"""Failed values without a successful one after which a parameter counts as not supported."""
_DEFERRED_POLLS = "2"
"""Empty polls before interrupts are enabled again (kernel: Documentation/networking/napi.rst)."""


class Delay(Struct, frozen=True):
    """A delay before an interrupt, in µs and packets. frames: None without a packet count, 0 where it is off."""

    usecs: int
    frames: int | None = None


class _Mechanism(ABC):
    """Common part of the mechanisms: parameter values that the driver is not known to refuse or change."""

    params: tuple[str, ...]
    """Parameters in the order in which they are written."""
    why: str
    """Sentence that says from when the delay counts."""

    def __init__(self, netdev: Netdev, learned: Learned) -> None:
        self.netdev = netdev
        self._learned = learned
        self.current = {param: netdev.params[param] for param in self.params if param in netdev.params}

    @property
    def adaptive(self) -> bool:
        """Return whether the driver adapts the values to the load."""
        return self.current.get(ADAPTIVE) == "on"

    @property
    def current_delay(self) -> Delay:
        """Return the delay of the present values."""
        return self.delay_of(self.current)

    @abstractmethod
    def delay_of(self, params: Mapping[str, str]) -> Delay:
        """Return the delay that parameter values mean."""

    @staticmethod
    def _times(most_us: float) -> list[int]:
        """Return the delays in µs that are tried up to a maximum, and the maximum itself."""
        whole = int(min(most_us, _MOST_US))
        return [value for value in _GRID if value < whole] + [whole] * (whole >= 1)

    def unusable(self, param: str) -> DriverResponse | None:
        """Return the last failed attempt at a parameter that the driver does not support; None where it can be set."""
        responses = [
            each
            for each in self._learned.responses(self.netdev.driver, param)
            if self._is_conclusive(param, each.requested)
        ]
        failed = [each for each in responses if each.verdict not in (Verdict.ACCEPTED, Verdict.ROUNDED)]
        enough = _MAX_FAILURES if param in (USECS, FRAMES) else 1
        untrue = sum(each.verdict is Verdict.NO_EFFECT for each in failed)
        if untrue >= enough or (len(failed) >= enough and len(failed) == len(responses)):
            return failed[-1]
        return None

    def _is_conclusive(self, param: str, requested: str) -> bool:
        """Return whether a failure with a value shows that the parameter is unsupported, not just too short a delay."""
        match param:
            case "coalesce/adaptive-rx":
                return requested == "off"
            case "coalesce/rx-usecs":
                return int(requested) >= _ORDINARY_US
            case "gro_flush_timeout":
                return int(requested) >= _ORDINARY_US * 1000
        return requested not in ("0", "1")

    def _first_accepted(self, param: str, candidates: list[int], least: int, most: float) -> int | None:
        """Return the first value, or what the driver rounds it to, that is within bounds and not known to fail."""
        known = {each.requested: each for each in self._learned.responses(self.netdev.driver, param)}

        def good(value: int) -> bool:
            response = known.get(str(value))
            fits = least <= value <= most and not (param == USECS and selects_adaptive_mode(self.netdev.driver, value))
            return fits and (response is None or response.verdict is Verdict.ACCEPTED)

        for value in candidates:
            if good(value):
                return value
            response = known.get(str(value))
            if (
                response is not None
                and response.verdict is Verdict.ROUNDED
                and good(made := int(response.read_back or 0))
            ):
                return made
        return None


class NicTimer(_Mechanism):
    """Coalescing by the timer of the NIC."""

    params = (ADAPTIVE, USECS, FRAMES)
    by: ClassVar[str] = "rx-usecs"

    def __init__(self, netdev: Netdev, learned: Learned) -> None:
        super().__init__(netdev, learned)
        self.timer, self.why = timer_of(netdev.driver, netdev.params)
        self._has_frames = FRAMES in self.current
        self._settable_frames = self._has_frames and self.unusable(FRAMES) is None
        ring = netdev.params.get("ring/rx")
        self.max_packets = int(ring) / 2 if ring is not None else inf
        """Half of the RX ring, so that the other half can receive until the CPU polls."""

    def delay_of(self, params: Mapping[str, str]) -> Delay:
        """Return the delay that parameter values mean."""
        return Delay(int(params[USECS]), int(params[FRAMES]) if self._has_frames else None)

    def time_us(self, delay: Delay) -> int:
        """Return the delay in µs; 0 without a delay, or where the value lets the driver choose."""
        return 0 if selects_adaptive_mode(self.netdev.driver, delay.usecs) else delay.usecs

    def bound_us(self, delay: Delay) -> float:
        """Return the longest delay of a packet in µs: the authors' product unless the timer does not restart."""
        if selects_adaptive_mode(self.netdev.driver, delay.usecs):
            return 0.0
        bound = added_bound_us(self.timer, delay.usecs, delay.frames)
        product = product_bound_us(delay.usecs, delay.frames)
        return max(bound, product or 0.0) if self.restarts and delay.frames != 1 else bound

    def params_for(self, delay: Delay) -> dict[str, str]:
        """Return the parameter values of a delay, in the order in which they are written."""
        values = {USECS: str(delay.usecs)}
        if delay.frames is not None:
            values[FRAMES] = str(delay.frames)
        return {ADAPTIVE: "off", **values} if ADAPTIVE in self.current else values

    def initial_delay(self, goal: float, gap_us: float, wire_us: float | None, bound_us: float) -> Delay | str:
        """Return the shortest delay that collects goal packets by the timer's model, or as many as the bound allows.

        A sentence says why there is none. gap_us: between packets of the busiest queue; wire_us: of one frame.
        """
        if not self.restarts:
            usecs = goal * gap_us if self.timer is Timer.THROTTLE else (goal - 1) * gap_us
            return self.nearest_delay(usecs, self._enough_frames(goal), 0, bound_us)
        if not self._has_frames:
            return f"{self.why} Without rx-frames nothing ends its delay, so no rx-usecs is within any bound."
        if self.current_delay == Delay(0, 0):
            return f"{self.why} rx-usecs and rx-frames are both 0: writing one of them first would end no delay."
        usecs, frames = GAP_FACTOR * gap_us, ceil(goal)
        if not self._settable_frames:
            frames = self.current_delay.frames or 0
            usecs = min(usecs, bound_us / frames) if frames else inf
        elif ceil(usecs) * frames > bound_us:
            return self.best_within_bound(goal, gap_us, wire_us, bound_us)
        return self.nearest_delay(usecs, frames, 0, bound_us)

    def best_within_bound(self, goal: float, gap_us: float, wire_us: float | None, bound_us: float) -> Delay | str:
        """Return the pair within the product bound that collects most packets of random (Poisson) arrivals."""
        best, most = None, 1.0
        for usecs in self._times(bound_us / 2):
            frames = min(ceil(goal), int(bound_us // usecs))
            ends = exp(-usecs / gap_us)
            collected = (1 - (1 - ends) ** frames) / ends if ends > 0 else frames
            if usecs > (wire_us or 0.0) and collected > most * _MIN_GAIN:
                best, most = (usecs, frames), collected
        if best is None or most < _MIN_PACKETS:
            return (
                f"Packets are {gap_us:,.0f} µs apart in its busiest queue: within {bound_us:g} µs a timer that "
                "restarts collects hardly two of them."
            )
        return self.nearest_delay(*best, 0, bound_us)

    def nearest_delay(self, usecs: float, frames: int | None, least_us: int, bound_us: float) -> Delay | str:
        """Return the delay nearest to usecs from least_us to the bound; a sentence where the driver takes none."""
        most = bound_us // frames if self.restarts and frames else bound_us
        values = self._times(most)
        upwards = [value for value in values if value >= usecs]
        downwards = [value for value in reversed(values) if value < usecs]
        found = self._first_accepted(USECS, [*upwards, *downwards], max(1, least_us), most)
        if found is None:
            return f"{self.netdev.driver} accepts no rx-usecs from {max(1, least_us)} to {most:g} µs."
        if frames is None or frames == self.current_delay.frames:
            return Delay(found, frames)
        offered = self._first_accepted(FRAMES, list(range(frames, max(1, frames // 2), -1)), 1, frames)
        return Delay(found, offered) if offered is not None else f"{self.netdev.driver} accepts no rx-frames {frames}."

    def limited_to(self, delay: Delay, bound_us: float) -> Delay | str:
        """Return a delay shortened to a bound in µs; a sentence where that is impossible."""
        usecs, frames = self.time_us(delay), delay.frames
        if not self.restarts:
            return self.nearest_delay(min(max(1, usecs), bound_us), frames, 0, bound_us)
        if self._settable_frames:
            usecs = min(max(1, usecs), int(bound_us // 2) or 1)
            fits = int(bound_us // usecs)
            return self.nearest_delay(usecs, min(fits, frames or fits), 0, bound_us)
        return self.nearest_delay(bound_us / frames, frames, 0, bound_us) if frames else self.why

    def frames_for(self, goal: float) -> int | None:
        """Return rx-frames while a delay is corrected."""
        return self.current_delay.frames if self.restarts else self._enough_frames(goal)

    def describe(self, delay: Delay) -> str:
        """Return a delay for a sentence, with the longest that it adds and the authors' product."""
        if selects_adaptive_mode(self.netdev.driver, delay.usecs):
            return f"rx-usecs {delay.usecs} (the driver {self.netdev.driver} chooses the delay)"
        values = f"rx-usecs {delay.usecs}" + (f", rx-frames {delay.frames}" if delay.frames is not None else "")
        product = product_bound_us(delay.usecs, delay.frames)
        authors = f"; rx-usecs × rx-frames is {product:,.0f} µs" if product is not None else "; no packet count"
        bound_us = self.bound_us(delay)
        most = f"a packet waits at most {bound_us:,.0f} µs" if bound_us < inf else "the delay of a packet is unbounded"
        return f"{values} ({most}{authors})"

    @property
    def restarts(self) -> bool:
        """Return whether each packet may restart the timer, as far as known."""
        return self.timer in (None, Timer.RESTARTING)

    def _enough_frames(self, goal: float) -> int | None:
        """Return the present rx-frames, or goal where the present count would end the delay earlier."""
        frames = self.current_delay.frames
        return ceil(goal) if self._settable_frames and frames and frames < goal else frames


class KernelPolling(_Mechanism):
    """Coalescing by the kernel: it polls again after gro_flush_timeout instead of enabling interrupts.

    The time counts from the last poll, so it is a throttle (kernel: net/core/dev.c, napi_complete_done).
    """

    params = (DEFER, FLUSH_NS)
    by: ClassVar[str] = "gro_flush_timeout"
    timer = Timer.THROTTLE
    why = "The kernel counts gro_flush_timeout from its last poll."
    max_packets = inf
    restarts = False

    def delay_of(self, params: Mapping[str, str]) -> Delay:
        """Return the delay that parameter values mean."""
        return Delay(int(params[FLUSH_NS]) // 1000 if params[DEFER] != "0" else 0)

    def time_us(self, delay: Delay) -> int:
        """Return the delay in µs."""
        return delay.usecs

    def bound_us(self, delay: Delay) -> float:
        """Return the longest delay of a packet in µs."""
        return float(delay.usecs)

    def params_for(self, delay: Delay) -> dict[str, str]:
        """Return the parameter values of a delay, in the order in which they are written."""
        polls = self.current[DEFER] if self.current[DEFER] != "0" else _DEFERRED_POLLS
        return {DEFER: polls, FLUSH_NS: str(delay.usecs * 1000)}

    def initial_delay(self, goal: float, gap_us: float, wire_us: float | None, bound_us: float) -> Delay | str:
        """Return the shortest delay that collects goal packets."""
        return self.nearest_delay(goal * gap_us, None, 0, bound_us)

    def nearest_delay(self, usecs: float, frames: int | None, least_us: int, bound_us: float) -> Delay | str:
        """Return the delay nearest to usecs from least_us to the bound; a sentence where there is none."""
        values = [value for value in self._times(bound_us) if value >= least_us]
        upwards = [value for value in values if value >= usecs]
        if not values:
            return f"No delay from {max(1, least_us)} to {bound_us:g} µs can be set."
        return Delay(min(upwards) if upwards else max(values))

    def limited_to(self, delay: Delay, bound_us: float) -> Delay | str:
        """Return a delay shortened to a bound in µs; a sentence where that is impossible."""
        return self.nearest_delay(min(delay.usecs, bound_us), None, 0, bound_us)

    def frames_for(self, goal: float) -> None:
        """Return None: it has no packet count."""

    def describe(self, delay: Delay) -> str:
        """Return a delay for a sentence."""
        polls = self.params_for(delay)[DEFER]
        return (
            f"gro_flush_timeout {delay.usecs * 1000} ns, napi_defer_hard_irqs {polls} (a packet waits "
            f"at most {delay.usecs:,} µs; no packet count)"
        )


def find_mechanism(netdev: Netdev, learned: Learned, *, software: bool) -> NicTimer | KernelPolling | str:
    """Return the coalescing mechanism of a netdev; or, as a sentence, why it has none."""
    if USECS in netdev.params:
        hardware = NicTimer(netdev, learned)
        failed = hardware.unusable(USECS)
        if failed is None:
            return hardware
        why = f"Its driver {netdev.driver} does not support rx-usecs: {failed.requested} was {describe_outcome(failed)}"
    else:
        why = f"Its driver {netdev.driver or ''}".rstrip() + " has no rx-usecs."
    if not software or netdev.virtual:
        return why if not netdev.virtual else "It has no interrupts of its own to coalesce."
    if not {FLUSH_NS, DEFER} <= netdev.params.keys():
        return f"{why} The kernel has no gro_flush_timeout and napi_defer_hard_irqs for it either."
    kernels = KernelPolling(netdev, learned)
    failed = kernels.unusable(FLUSH_NS) or kernels.unusable(DEFER)
    return kernels if failed is None else f"{why} {failed.name} {failed.requested} was {describe_outcome(failed)}"


def next_writes(current: Mapping[str, str], wanted: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the parameters to write now, in order, so that no intermediate state delays packets longer.

    adaptive-rx is turned off first and on last. Of rx-usecs and rx-frames the one that shortens the delay is written
    first, and the other only after that has its value, because it may be refused. While rx-usecs is 0 only the count
    ends the delay, so no count is written then, and rx-usecs becomes 0 only after the count has its value.
    """
    differs = {param: value for param, value in wanted.items() if param in current and current[param] != value}
    if USECS in differs and FRAMES in differs:
        shortens = {p: _delay_of_value(p, differs[p]) < _delay_of_value(p, current[p]) for p in (USECS, FRAMES)}
        if current[USECS] == "0":
            del differs[FRAMES]
        elif differs[USECS] == "0" or (shortens[FRAMES] and not shortens[USECS]):
            del differs[USECS]
        elif shortens[USECS] and not shortens[FRAMES]:
            del differs[FRAMES]
    last = ADAPTIVE in differs and differs[ADAPTIVE] == "on"
    if last and len(differs) > 1:
        del differs[ADAPTIVE]
    return sorted(differs.items(), key=lambda item: item[0] != ADAPTIVE)


def _delay_of_value(param: str, value: str) -> float:
    """Return the delay that a value stands for, for comparison; a count of 0 never ends."""
    return inf if param == FRAMES and value == "0" else float(value)


def describe_outcome(response: DriverResponse) -> str:
    """Return the outcome of an attempt, for the end of a sentence: ``refused (Operation not supported).``"""
    words = response.message.rstrip(".")
    return f"{response.verdict.value.replace('_', ' ')}{f' ({words})' if words else ''}."
