"""Decide on the coalescing of one netdev in one round: take, evaluate or revert a step, or none."""

from collections.abc import Mapping

from msgspec.structs import replace

from coresteer_core.node.load import NetdevLoad
from coresteer_core.policies.coalescing.candidates import (
    ADAPTIVE_RX,
    Delay,
    KernelPolling,
    NicTimer,
    describe_outcome,
    describe_own_value,
    find_mechanism,
)
from coresteer_core.policies.coalescing.memory import Ceiling, Snapshot
from coresteer_core.policies.coalescing.netdev_traffic import NO_INTERRUPTS, NetdevTraffic, measure_round
from coresteer_core.policies.coalescing.steps import MAX_STEP, MIN_STEP, NetdevSteps

_ROUNDS = 4
"""Rounds after a step before it is evaluated, and rounds of different traffic before another step."""
_FEW_ROUNDS = 2
"""Rounds that are enough to detect drops and request–response traffic."""
_QUIET_ROUNDS = 3
"""Rounds below the minimum packet rate before a netdev's own values are restored."""
_SLOWED = 0.3
"""Packets per delay from which a low packet rate is attributed to the delay: the sender waits for answers."""
_RESUME = 1.25
"""Multiple of the minimum packet rate from which a quiet netdev is tuned again."""
_GAIN = 1.1
"""Minimum factor by which a step must raise packets per interrupt, and by which it changes the delay."""
_REACHED, _SETTLED, _EXCESS = 0.9, 0.5, 3.0
"""Multiples of the target packets per interrupt: reached; still reached once settled; too many."""
_THROUGHPUT = 0.8
"""Share of the throughput before a step below which throughput counts as fallen."""


class NetdevRound(NetdevSteps):
    """Decision of the coalescing policy on one netdev in one round; call evaluate() once."""

    _is_new = True
    """Whether nothing is known of the netdev from earlier rounds."""

    def evaluate(self, load: NetdevLoad | None, per_s: list[float], *, in_scope: bool) -> None:
        """Set proposals, or why there are none. load: the netdev's traffic; per_s: interrupts/s by receive queue."""
        mechanism = find_mechanism(self.netdev, self._view.learned, software=self._spec.software)
        if not in_scope:
            self._restore("It is no longer in scope")
        elif isinstance(mechanism, str):
            self._restore(mechanism)
        elif not self.after.originals.keys() <= set(mechanism.params):
            self._restore(f"{mechanism.why} It replaces the mechanism that was set before")
        elif not self.after.originals and (own := describe_own_value(self.netdev, mechanism.params)) is not None:
            self._restore(own)
        elif load is None or not per_s:
            self.why = f"Its {'traffic' if load is None else 'interrupt rate'} is not known."
        elif mechanism.adaptive and self._spec.adaptive == "leave":
            self._restore("Its adaptive-rx is on: the driver chooses the delay, and this policy skips such devices")
        elif mechanism.adaptive and (failed := mechanism.unsupported_by(ADAPTIVE_RX)) is not None:
            self._restore(f"Its adaptive-rx is on, and turning it off was {describe_outcome(failed)}")
        else:
            rtt_us = self._view.load.rtt_p50_us
            traffic = measure_round(load, per_s, None if rtt_us is None else float(rtt_us))
            if not self._is_quiet(mechanism, traffic):
                self._tune(mechanism, traffic)

    def _is_quiet(self, mechanism: NicTimer | KernelPolling, now: NetdevTraffic) -> bool:
        """Return whether the netdev has too few packets to be tuned; restore its values if that lasts."""
        after, least = self.after, max(1.0, self._spec.min_packets_per_s)
        if now.packets_per_s < least:
            self.after = after = replace(after, quiet=after.quiet + 1)
            why = f"It receives {now.packets_per_s:,.0f} packets/s, under {least:,.0f}"
            if after.originals and after.quiet < _QUIET_ROUNDS:
                more = _QUIET_ROUNDS - after.quiet
                self.why = f"{why}; after {more} more such round{'s' if more > 1 else ''} its own values are restored."
                return True
            current = mechanism.current_delay
            per_delay = now.packets_per_s * mechanism.delay_us(current) / 1e6
            if after.on_trial and after.before is not None and per_delay >= _SLOWED:
                was = after.before.traffic
                why = f"It received {was.packets_per_s:,.0f} packets/s before {mechanism.describe(current)}. {why}"
                self.after = replace(after, ceiling=Ceiling(0, why, was.packets_per_s, was.per_interrupt))
            elif not after.originals and after.quiet >= _QUIET_ROUNDS:
                self.after = replace(after, ceiling=None)
            self._restore(why)
            return True
        if not after.originals and now.packets_per_s < _RESUME * least and after.quiet:
            self.why = f"It receives {now.packets_per_s:,.0f} packets/s; it is set again from {_RESUME * least:,.0f}."
            return True
        self.after = replace(after, quiet=0)
        return False

    def _tune(self, mechanism: NicTimer | KernelPolling, now: NetdevTraffic) -> None:
        after = self.after
        if self._changed:
            current = mechanism.describe(mechanism.current_delay)
            self._complete(f"{current} was set in the last round; its effect is not known yet.")
            return
        differs = after.traffic is not None and not after.on_trial and now.differs_from(after.traffic)
        traffic = now if differs else now.averaged_with(after.traffic)
        self._is_new = after.traffic is None and not after.originals
        self.after = replace(self.after, traffic=traffic)
        if after.on_trial and after.before is not None:
            self._evaluate_step(mechanism, traffic, after.before)
            if self.after.on_trial or self.proposals:
                return
        ceiling = self.after.ceiling
        if ceiling is not None and not ceiling.applies_to(traffic) and traffic.rounds >= _ROUNDS:
            self.after = replace(self.after, ceiling=None, settled=False)
        why = self._why_not_collectable(traffic)
        if why is not None and (self._is_new or traffic.rounds >= _FEW_ROUNDS):
            self._revert_to(mechanism, self._own_values(mechanism), why)
        else:
            self._next_step(mechanism, traffic)

    def _evaluate_step(self, mechanism: NicTimer | KernelPolling, traffic: NetdevTraffic, before: Snapshot) -> None:
        """Keep or revert the last step, by the traffic measured since."""
        was, tried = before.traffic, mechanism.describe(mechanism.current_delay)
        if traffic.rounds >= _FEW_ROUNDS and self._drops_more(traffic, was):
            self._revert_for_drops(mechanism, traffic, was, before.params)
            return
        if traffic.rounds < _ROUNDS:
            more = _ROUNDS - traffic.rounds
            self._complete(
                f"{self._describe(traffic)} {tried} is evaluated after {more} more round{'s' if more > 1 else ''}."
            )
            return
        adaptive, slower_us = before.params.get(ADAPTIVE_RX) == "on", 0.0
        if traffic.rtt_us is not None and was.rtt_us is not None:
            slower_us = traffic.rtt_us - was.rtt_us
        why = None
        from_us = mechanism.delay_us(mechanism.current_delay)
        if adaptive and (self._spec.adaptive == "disable" or slower_us < -self._spec.max_added_us):
            why = None  # as the operator wants, or the driver's choice exceeded the bound
        elif traffic.per_interrupt < _GAIN * was.per_interrupt:
            from_us = mechanism.delay_us(mechanism.delay_of(before.params)) + 1
            why = (
                f"packets per interrupt changed from {was.per_interrupt:.1f} to {traffic.per_interrupt:.1f}, a gain of "
                f"less than {100 * (_GAIN - 1):.0f} %"
            )
        elif slower_us > self._spec.max_added_us:
            why = f"the round-trip time p50 rose from {was.rtt_us:,.0f} to {traffic.rtt_us:,.0f} µs"
        elif traffic.bytes_per_s < _THROUGHPUT * was.bytes_per_s:
            why = f"throughput fell from {was.bytes_per_s / 1e6:,.1f} to {traffic.bytes_per_s / 1e6:,.1f} MB/s"
        if why is None:
            ceiling = self.after.ceiling
            if ceiling is not None:  # packets per interrupt changed by the step, not by other traffic
                ceiling = replace(ceiling, per_interrupt=max(ceiling.per_interrupt, traffic.per_interrupt))
            self.after = replace(self.after, on_trial=False, target={}, expects_gain=False, ceiling=ceiling)
        else:
            self._revert_step(mechanism, from_us, f"with {tried}, {why}", was, before.params)

    def _revert_for_drops(
        self, mechanism: NicTimer | KernelPolling, traffic: NetdevTraffic, was: NetdevTraffic, params: Mapping[str, str]
    ) -> None:
        current = mechanism.current_delay
        why = (
            f"with {mechanism.describe(current)}, {traffic.dropped_percent:.2g} % of the packets were dropped, over "
            f"{self._spec.max_dropped_percent:g} %"
        )
        self._revert_step(mechanism, mechanism.delay_us(current), why, was, params)

    def _revert_step(
        self,
        mechanism: NicTimer | KernelPolling,
        from_us: int,
        why: str,
        was: NetdevTraffic,
        params: Mapping[str, str],
    ) -> None:
        """Revert to params. from_us: no delay from here on is tried again. was: the traffic before the step."""
        ceiling = Ceiling(from_us, why, was.packets_per_s, was.per_interrupt)
        self.after = replace(self.after, ceiling=ceiling)
        self._revert_to(mechanism, self._within_bound(mechanism, params), why[0].upper() + why[1:])

    def _next_step(self, mechanism: NicTimer | KernelPolling, traffic: NetdevTraffic) -> None:
        """Take another step, or none. Called only while no step is being evaluated."""
        spec, current, text = self._spec, mechanism.current_delay, self._describe(traffic)
        if not mechanism.adaptive and mechanism.max_wait_us(current) > spec.max_added_us:
            self._shorten(mechanism, traffic, current)
            return
        last = self.after.before
        if last is not None and self._drops_more(traffic, last.traffic):
            self._revert_for_drops(mechanism, traffic, traffic, last.params)
            return
        goal = min(spec.packets_per_interrupt, mechanism.max_packets)
        counts = mechanism.restarts and current.frames and self.after.originals
        target = min(goal, current.frames) if counts and current.frames else goal
        if mechanism.adaptive and spec.adaptive == "disable":
            wanted = self._initial_delay(mechanism, traffic)
            if isinstance(wanted, str):
                self._revert_to(mechanism, self._own_values(mechanism), f"{text} adaptive-rx is to be off. {wanted}")
            else:
                self._step_to(mechanism, wanted, text, expects_gain=True)
        elif not self._is_new and traffic.rounds < _ROUNDS:
            more = _ROUNDS - traffic.rounds
            self.why = (
                f"{text} {self._current_text(mechanism)} stays while it is measured for {more} more "
                f"round{'s' if more > 1 else ''}."
            )
        elif self._per_interrupt(mechanism, traffic) >= target * (_SETTLED if self.after.settled else _REACHED):
            self._settle(mechanism, traffic, target, goal)
        else:
            self._lengthen(mechanism, traffic, goal)

    def _shorten(self, mechanism: NicTimer | KernelPolling, traffic: NetdevTraffic, current: Delay) -> None:
        """Shorten a delay that exceeds the operator's bound."""
        bound_us = self._spec.max_added_us
        shorter = self._initial_delay(mechanism, traffic)
        if isinstance(shorter, str):
            shorter = mechanism.shortened_to(current, bound_us)
        because = f"{self._describe(traffic)} {mechanism.describe(current)} exceeds the bound of {bound_us:g} µs."
        if self.after.ceiling is not None and not self.after.originals:
            self.why = f"{because} {self.after.ceiling.why}"
        elif isinstance(shorter, str) and self.after.originals:
            ceiling = Ceiling(0, shorter, traffic.packets_per_s, NO_INTERRUPTS)
            self._restore(f"{because} {shorter}")
            self.after = replace(self.after, ceiling=ceiling)
        else:
            self._step_to(mechanism, shorter, because, expects_gain=False)

    def _settle(self, mechanism: NicTimer | KernelPolling, traffic: NetdevTraffic, target: float, goal: float) -> None:
        """The target is reached: shorten a delay that is much longer than needed, raise a count that is too low."""
        current, per_interrupt = mechanism.current_delay, self._per_interrupt(mechanism, traffic)
        text, usecs = self._describe(traffic), mechanism.delay_us(current)
        own = mechanism.delay_us(mechanism.delay_of({**self._current, **self.after.originals}))
        excess = self.after.originals and not mechanism.adaptive and per_interrupt > _EXCESS * target
        if excess and usecs > own * MIN_STEP:
            shorter = mechanism.nearest_delay(
                usecs * target / per_interrupt, current.frames, own, self._spec.max_added_us
            )
            if isinstance(shorter, Delay) and shorter.usecs * MIN_STEP <= usecs:
                because = f"{text} That is more than {_EXCESS:g} times the target of {target:g}."
                self._step_to(mechanism, shorter, because, expects_gain=False)
                return
        if target < goal and per_interrupt >= _REACHED * target and self.after.ceiling is None:
            wider = self._initial_delay(mechanism, traffic)
            if isinstance(wider, Delay) and wider.frames and wider.frames >= 1.5 * target:
                self._step_to(mechanism, wider, text, expects_gain=True)
                return
        self.after = replace(self.after, settled=True)
        if per_interrupt >= _REACHED * target:
            reached = f"The target of {target:g} is reached"
        else:
            reached = f"No step is taken until that falls below half of the target of {target:g}"
        bound = f"the bound is {self._spec.max_added_us:g} µs"
        self.why = f"{text} {reached}, and {bound}: {self._current_text(mechanism)} stays."

    def _lengthen(self, mechanism: NicTimer | KernelPolling, traffic: NetdevTraffic, goal: float) -> None:
        """Collect more packets per interrupt, as far as bound, driver and reverted steps allow."""
        bound_us, ceiling = self._spec.max_added_us, self.after.ceiling
        text = self._describe(traffic)
        if ceiling is None:
            wanted = self._longer(mechanism, traffic, goal, bound_us)
        elif mechanism.adaptive:
            wanted = f"The delay is not increased: {ceiling.why}."
        else:
            wanted = self._longer(mechanism, traffic, goal, min(bound_us, ceiling.usecs // 2))
            wanted = wanted if isinstance(wanted, Delay) else f"The delay is not increased: {ceiling.why}."
        if isinstance(wanted, Delay):
            self._step_to(mechanism, wanted, text, expects_gain=True)
            return
        self.after = replace(self.after, settled=True)
        self.why = f"{text} {self._current_text(mechanism)} stays. {wanted}"

    def _longer(
        self, mechanism: NicTimer | KernelPolling, traffic: NetdevTraffic, goal: float, most_us: float
    ) -> Delay | str:
        """Return a delay that should collect more packets per interrupt; or, as a sentence, why there is none."""
        spec, current = self._spec, mechanism.current_delay
        at_bound = f"The delay is not increased: the bound is {spec.max_added_us:g} µs."
        usecs = 0 if mechanism.adaptive else mechanism.delay_us(current)
        if most_us < max(1.0, usecs * _GAIN):
            return at_bound
        wanted = self._initial_delay(mechanism, traffic)
        if isinstance(wanted, str):
            return wanted
        ratio = min(MAX_STEP, max(MIN_STEP, goal / self._per_interrupt(mechanism, traffic)))
        if usecs and self.after.originals:
            frames = mechanism.frames_to_use(goal)
            corrected = mechanism.nearest_delay(usecs * ratio, frames, usecs, spec.max_added_us)
            short = isinstance(corrected, str) or corrected.usecs < usecs * _GAIN
            if short and isinstance(mechanism, NicTimer) and mechanism.restarts and self.after.ceiling is None:
                wire_us = self._wire_us(traffic)
                corrected = mechanism.best_within_bound(goal, traffic.gap_us, wire_us, spec.max_added_us)
            wanted = corrected
        elif usecs and wanted.usecs < usecs * MIN_STEP:
            wanted = mechanism.nearest_delay(usecs * MIN_STEP, wanted.frames, usecs, spec.max_added_us)
        if isinstance(wanted, Delay) and wanted.usecs > most_us:
            wanted = mechanism.nearest_delay(most_us, wanted.frames, usecs, most_us)
        if isinstance(wanted, str):
            return wanted
        more_frames = self.after.ceiling is None and (wanted.frames or 0) > (current.frames or 0) > 0
        if mechanism.adaptive or wanted.usecs >= usecs * _GAIN or (more_frames and not self.after.originals):
            return wanted
        return at_bound
