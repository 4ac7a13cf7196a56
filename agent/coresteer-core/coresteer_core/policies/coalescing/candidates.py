"""Mechanisms of interrupt coalescing (NIC timer, kernel polling), and the delays that each can be set to."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from math import ceil, exp, inf
from typing import ClassVar

from msgspec import Struct

from coresteer_core.node.inventory import Netdev
from coresteer_core.node.nic import (
    DriverResponse,
    NicKnowledge,
    Timer,
    Verdict,
    interrupt_timer,
    max_wait_us,
    product_bound_us,
    selects_adaptive_mode,
)

RX_USECS, RX_FRAMES, ADAPTIVE_RX = "coalesce/rx-usecs", "coalesce/rx-frames", "coalesce/adaptive-rx"
GRO_FLUSH_TIMEOUT, DEFER_HARD_IRQS = "gro_flush_timeout", "napi_defer_hard_irqs"
GAP_FACTOR = 1.25
"""Factor by which a timer that restarts with each packet must exceed the mean packet gap, because gaps vary."""

_MOST_US = 10_000
_ROUND = [digit * 10**power // 10 for power in range(5) for digit in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)]
_GRID = [*sorted({value for value in _ROUND if value < _MOST_US}), _MOST_US]
"""Delays in µs to choose from: few, so that it is soon known which of them a driver refuses."""
_MIN_GAIN, _MIN_PACKETS = 1.02, 1.2
"""Minimum gain in packets per interrupt of a longer delay, and of any delay."""
_ORDINARY_US = 50
"""Delay in µs that every driver with a timer accepts; many refuse shorter ones."""
_MAX_FAILURES = 2
"""Failed values without a successful one after which a parameter counts as not supported."""
_DEFERRED_POLLS = "2"
"""Empty polls before interrupts are enabled again (kernel: Documentation/networking/napi.rst)."""


class Delay(Struct, frozen=True):
    """Coalescing delay: µs or packets until an interrupt. frames: None without a packet count, 0 where it is off."""

    usecs: int
    frames: int | None = None


class _Mechanism(ABC):
    """Base of the mechanisms of interrupt coalescing; chooses values that the driver is not known to refuse."""

    params: tuple[str, ...]
    """Names of the mechanism's parameters, in the order in which they are written."""
    why: str
    """Sentence that says from which event the delay counts."""

    def __init__(self, netdev: Netdev, learned: NicKnowledge) -> None:
        self.netdev = netdev
        self._learned = learned
        self.current = {param: netdev.params[param] for param in self.params if param in netdev.params}

    @property
    def adaptive(self) -> bool:
        """Return whether the driver adapts the delay to the load (adaptive-rx is on)."""
        return self.current.get(ADAPTIVE_RX) == "on"

    @property
    def current_delay(self) -> Delay:
        """Return the delay that the present parameter values set."""
        return self.delay_of(self.current)

    @abstractmethod
    def delay_of(self, params: Mapping[str, str]) -> Delay:
        """Return the delay that these parameter values set."""

    @staticmethod
    def _times(most_us: float) -> list[int]:
        """Return the delays in µs to choose from up to a maximum, and the maximum itself."""
        whole = int(min(most_us, _MOST_US))
        return [value for value in _GRID if value < whole] + [whole] * (whole >= 1)

    def unsupported_by(self, param: str) -> DriverResponse | None:
        """Return the response that shows that the driver does not support a parameter; None where it may."""
        responses = [
            each
            for each in self._learned.responses(self.netdev.driver, param)
            if self._is_conclusive(param, each.requested)
        ]
        failed = [each for each in responses if each.verdict not in (Verdict.ACCEPTED, Verdict.ROUNDED)]
        enough = _MAX_FAILURES if param in (RX_USECS, RX_FRAMES) else 1
        untrue = sum(each.verdict is Verdict.NO_EFFECT for each in failed)
        if untrue >= enough or (len(failed) >= enough and len(failed) == len(responses)):
            return failed[-1]
        return None

    def _is_conclusive(self, param: str, requested: str) -> bool:
        """Return whether a failed write of a value shows that the parameter is unsupported, not only the value."""
        match param:
            case "coalesce/adaptive-rx":
                return requested == "off"
            case "coalesce/rx-usecs":
                return int(requested) >= _ORDINARY_US
            case "gro_flush_timeout":
                return int(requested) >= _ORDINARY_US * 1000
        return requested not in ("0", "1")

    def _first_accepted(self, param: str, candidates: list[int], least: int, most: float) -> int | None:
        """Return the first candidate, or its rounded value, within bounds and not known to fail; else None."""
        known = {each.requested: each for each in self._learned.responses(self.netdev.driver, param)}

        def good(value: int) -> bool:
            response = known.get(str(value))
            fits = least <= value <= most and not (
                param == RX_USECS and selects_adaptive_mode(self.netdev.driver, value)
            )
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
    """Interrupt coalescing by the NIC's timer: rx-usecs and rx-frames."""

    params = (ADAPTIVE_RX, RX_USECS, RX_FRAMES)
    by: ClassVar[str] = "rx-usecs"

    def __init__(self, netdev: Netdev, learned: NicKnowledge) -> None:
        super().__init__(netdev, learned)
        self.timer, self.why = interrupt_timer(netdev.driver, netdev.params)
        self._has_frames = RX_FRAMES in self.current
        self._settable_frames = self._has_frames and self.unsupported_by(RX_FRAMES) is None
        ring = netdev.params.get("ring/rx")
        self.max_packets = int(ring) / 2 if ring is not None else inf
        """Maximum packets per interrupt: half of the RX ring; the other half receives until the CPU polls."""

    def delay_of(self, params: Mapping[str, str]) -> Delay:
        """Return the delay that these parameter values set."""
        return Delay(int(params[RX_USECS]), int(params[RX_FRAMES]) if self._has_frames else None)

    def delay_us(self, delay: Delay) -> int:
        """Return a delay's time in µs; 0 where its value lets the driver choose."""
        return 0 if selects_adaptive_mode(self.netdev.driver, delay.usecs) else delay.usecs

    def max_wait_us(self, delay: Delay) -> float:
        """Return the longest time in µs that a packet waits; rx-usecs × rx-frames for a timer that restarts."""
        if selects_adaptive_mode(self.netdev.driver, delay.usecs):
            return 0.0
        return max_wait_us(self.timer, delay.usecs, delay.frames)

    def params_for(self, delay: Delay) -> dict[str, str]:
        """Return the parameter values that set a delay, in the order in which they are written."""
        values = {RX_USECS: str(delay.usecs)}
        if delay.frames is not None:
            values[RX_FRAMES] = str(delay.frames)
        return {ADAPTIVE_RX: "off", **values} if ADAPTIVE_RX in self.current else values

    def initial_delay(self, goal: float, gap_us: float, wire_us: float | None, bound_us: float) -> Delay | str:
        """Return the shortest delay that should collect goal packets per interrupt, or as many as the bound allows.

        A sentence says why there is none. gap_us: between packets of the busiest queue; wire_us: of one frame.
        """
        if not self.restarts:
            usecs = goal * gap_us if self.timer is Timer.THROTTLE else (goal - 1) * gap_us
            return self.nearest_delay(usecs, self._enough_frames(goal), 0, bound_us)
        if not self._has_frames:
            return f"{self.why} Without rx-frames nothing ends its delay, so no rx-usecs is within any bound."
        if self.current_delay == Delay(0, 0):
            return f"{self.why} rx-usecs and rx-frames are both 0: with only one of them written, no delay would end."
        usecs, frames = GAP_FACTOR * gap_us, ceil(goal)
        if not self._settable_frames:
            frames = self.current_delay.frames or 0
            usecs = min(usecs, bound_us / frames) if frames else inf
        elif ceil(usecs) * frames > bound_us:
            return self.best_within_bound(goal, gap_us, wire_us, bound_us)
        return self.nearest_delay(usecs, frames, 0, bound_us)

    def best_within_bound(self, goal: float, gap_us: float, wire_us: float | None, bound_us: float) -> Delay | str:
        """Return the delay with rx-usecs × rx-frames within a bound that collects most packets of Poisson arrivals.

        bound_us, gap_us, wire_us: as in initial_delay(). A sentence says why there is none.
        """
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
        """Return the settable delay nearest to usecs, from least_us to bound_us; a sentence if there is none."""
        most = bound_us // frames if self.restarts and frames else bound_us
        values = self._times(most)
        upwards = [value for value in values if value >= usecs]
        downwards = [value for value in reversed(values) if value < usecs]
        found = self._first_accepted(RX_USECS, [*upwards, *downwards], max(1, least_us), most)
        if found is None:
            return f"{self.netdev.driver} accepts no rx-usecs from {max(1, least_us)} to {most:g} µs."
        if frames is None or frames == self.current_delay.frames:
            return Delay(found, frames)
        offered = self._first_accepted(RX_FRAMES, list(range(frames, max(1, frames // 2), -1)), 1, frames)
        return Delay(found, offered) if offered is not None else f"{self.netdev.driver} accepts no rx-frames {frames}."

    def shortened_to(self, delay: Delay, bound_us: float) -> Delay | str:
        """Return a delay shortened to a bound in µs; a sentence that says why if that is impossible."""
        usecs, frames = self.delay_us(delay), delay.frames
        if not self.restarts:
            return self.nearest_delay(min(max(1, usecs), bound_us), frames, 0, bound_us)
        if self._settable_frames:
            usecs = min(max(1, usecs), int(bound_us // 2) or 1)
            fits = int(bound_us // usecs)
            return self.nearest_delay(usecs, min(fits, frames or fits), 0, bound_us)
        return self.nearest_delay(bound_us / frames, frames, 0, bound_us) if frames else self.why

    def frames_to_use(self, goal: float) -> int | None:
        """Return the rx-frames to use while rx-usecs is adjusted towards goal packets per interrupt."""
        return self.current_delay.frames if self.restarts else self._enough_frames(goal)

    def describe(self, delay: Delay) -> str:
        """Return a delay's parameter values for a sentence, with the longest time that a packet waits."""
        if selects_adaptive_mode(self.netdev.driver, delay.usecs):
            return f"rx-usecs {delay.usecs} (the driver {self.netdev.driver} chooses the delay)"
        values = f"rx-usecs {delay.usecs}" + (f", rx-frames {delay.frames}" if delay.frames is not None else "")
        product = product_bound_us(delay.usecs, delay.frames)
        authors = f"; rx-usecs × rx-frames is {product:,.0f} µs" if product is not None else "; no packet count"
        bound_us = self.max_wait_us(delay)
        most = f"a packet waits at most {bound_us:,.0f} µs" if bound_us < inf else "the delay of a packet is unbounded"
        return f"{values} ({most}{authors})"

    @property
    def restarts(self) -> bool:
        """Return whether each packet restarts the NIC's timer; True also where that is unknown."""
        return self.timer in (None, Timer.RESTARTING)

    def _enough_frames(self, goal: float) -> int | None:
        """Return the present rx-frames, raised to goal where it would end the delay earlier."""
        frames = self.current_delay.frames
        return ceil(goal) if self._settable_frames and frames and frames < goal else frames


class KernelPolling(_Mechanism):
    """Interrupt coalescing by the kernel: after gro_flush_timeout it polls again instead of enabling interrupts.

    The time counts from the last poll, so it is a throttle (kernel: net/core/dev.c, napi_complete_done).
    """

    params = (DEFER_HARD_IRQS, GRO_FLUSH_TIMEOUT)
    by: ClassVar[str] = "gro_flush_timeout"
    timer = Timer.THROTTLE
    why = "The kernel counts gro_flush_timeout from its last poll."
    max_packets = inf
    restarts = False

    def delay_of(self, params: Mapping[str, str]) -> Delay:
        """Return the delay that these parameter values set."""
        return Delay(int(params[GRO_FLUSH_TIMEOUT]) // 1000 if params[DEFER_HARD_IRQS] != "0" else 0)

    def delay_us(self, delay: Delay) -> int:
        """Return a delay's time in µs."""
        return delay.usecs

    def max_wait_us(self, delay: Delay) -> float:
        """Return the longest time in µs that a packet waits."""
        return float(delay.usecs)

    def params_for(self, delay: Delay) -> dict[str, str]:
        """Return the parameter values that set a delay, in the order in which they are written."""
        polls = self.current[DEFER_HARD_IRQS] if self.current[DEFER_HARD_IRQS] != "0" else _DEFERRED_POLLS
        return {DEFER_HARD_IRQS: polls, GRO_FLUSH_TIMEOUT: str(delay.usecs * 1000)}

    def initial_delay(self, goal: float, gap_us: float, wire_us: float | None, bound_us: float) -> Delay | str:
        """Return the shortest delay that should collect goal packets per poll."""
        return self.nearest_delay(goal * gap_us, None, 0, bound_us)

    def nearest_delay(self, usecs: float, frames: int | None, least_us: int, bound_us: float) -> Delay | str:
        """Return the delay nearest to usecs, from least_us to bound_us; a sentence if there is none."""
        values = [value for value in self._times(bound_us) if value >= least_us]
        upwards = [value for value in values if value >= usecs]
        if not values:
            return f"No delay from {max(1, least_us)} to {bound_us:g} µs can be set."
        return Delay(min(upwards) if upwards else max(values))

    def shortened_to(self, delay: Delay, bound_us: float) -> Delay | str:
        """Return a delay shortened to a bound in µs; a sentence that says why if that is impossible."""
        return self.nearest_delay(min(delay.usecs, bound_us), None, 0, bound_us)

    def frames_to_use(self, goal: float) -> None:
        """Return None, because kernel polling has no packet count."""

    def describe(self, delay: Delay) -> str:
        """Return a delay's parameter values for a sentence, with the longest time that a packet waits."""
        polls = self.params_for(delay)[DEFER_HARD_IRQS]
        return (
            f"gro_flush_timeout {delay.usecs * 1000} ns, napi_defer_hard_irqs {polls} (a packet waits "
            f"at most {delay.usecs:,} µs; no packet count)"
        )


def find_mechanism(netdev: Netdev, learned: NicKnowledge, *, software: bool) -> NicTimer | KernelPolling | str:
    """Return how a network device's interrupts can be coalesced; or a sentence that says why they cannot."""
    if RX_USECS in netdev.params:
        hardware = NicTimer(netdev, learned)
        failed = hardware.unsupported_by(RX_USECS)
        if failed is None:
            return hardware
        why = f"Its driver {netdev.driver} does not support rx-usecs: {failed.requested} was {describe_outcome(failed)}"
    else:
        why = f"Its driver {netdev.driver or ''}".rstrip() + " has no rx-usecs."
    if not software or netdev.virtual:
        return why if not netdev.virtual else "It has no interrupts of its own to coalesce."
    if not {GRO_FLUSH_TIMEOUT, DEFER_HARD_IRQS} <= netdev.params.keys():
        return f"{why} The kernel has no gro_flush_timeout and napi_defer_hard_irqs for it either."
    kernels = KernelPolling(netdev, learned)
    failed = kernels.unsupported_by(GRO_FLUSH_TIMEOUT) or kernels.unsupported_by(DEFER_HARD_IRQS)
    return kernels if failed is None else f"{why} {failed.name} {failed.requested} was {describe_outcome(failed)}"


def describe_own_value(netdev: Netdev, params: Iterable[str]) -> str | None:
    """Return a sentence on a queue whose own value of a parameter a write to the netdev would replace for good.

    None where there is none. Under adaptive-rx the delay and count of a queue are the driver's, not an operator's.
    """
    adaptive = netdev.params.get(ADAPTIVE_RX) == "on" and netdev.queue_differing(ADAPTIVE_RX) is None
    for param in params:
        queue = netdev.queue_differing(param)
        if queue is not None and not (adaptive and param in (RX_USECS, RX_FRAMES)):
            return (
                f"Its queue {queue.name} has {param.rpartition('/')[2]} {queue.params[param]} instead of "
                f"{netdev.params[param]}, which a write to all queues would replace"
            )
    return None


def next_writes(current: Mapping[str, str], wanted: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (parameter, value) pairs to write now, in an order in which no intermediate state delays packets longer.

    adaptive-rx is turned off first and on last. Of rx-usecs and rx-frames the one that shortens the delay is written
    first, and the other only after that has its value, because it may be refused. While rx-usecs is 0 only the count
    ends the delay, so no count is written then, and rx-usecs becomes 0 only after the count has its value.
    """
    differs = {param: value for param, value in wanted.items() if param in current and current[param] != value}
    if RX_USECS in differs and RX_FRAMES in differs:
        shortens = {p: _delay_of_value(p, differs[p]) < _delay_of_value(p, current[p]) for p in (RX_USECS, RX_FRAMES)}
        if current[RX_USECS] == "0":
            del differs[RX_FRAMES]
        elif differs[RX_USECS] == "0" or (shortens[RX_FRAMES] and not shortens[RX_USECS]):
            del differs[RX_USECS]
        elif shortens[RX_USECS] and not shortens[RX_FRAMES]:
            del differs[RX_FRAMES]
    last = ADAPTIVE_RX in differs and differs[ADAPTIVE_RX] == "on"
    if last and len(differs) > 1:
        del differs[ADAPTIVE_RX]
    return sorted(differs.items(), key=lambda item: item[0] != ADAPTIVE_RX)


def _delay_of_value(param: str, value: str) -> float:
    """Return a parameter's value as a number that compares delays; rx-frames 0 is infinite."""
    return inf if param == RX_FRAMES and value == "0" else float(value)


def describe_outcome(response: DriverResponse) -> str:
    """Return how a driver treated a write, for the end of a sentence: ``refused (Operation not supported).``"""
    message = response.message.rstrip(".")
    return f"{response.verdict.value.replace('_', ' ')}{f' ({message})' if message else ''}."
