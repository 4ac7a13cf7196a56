"""Propose a step of one netdev's coalescing, or a return to earlier values, with the reason as a sentence."""

from collections.abc import Mapping

from msgspec.structs import replace

from coresteer_core.node.inventory import Netdev
from coresteer_core.node.nic_model import frame_wire_time_us
from coresteer_core.node.view import View
from coresteer_core.policies.base import Proposal
from coresteer_core.policies.coalescing.candidates import (
    ADAPTIVE_RX,
    DEFER_HARD_IRQS,
    GRO_FLUSH_TIMEOUT,
    RX_FRAMES,
    RX_USECS,
    Delay,
    KernelPolling,
    NicTimer,
    next_writes,
)
from coresteer_core.policies.coalescing.memory import NetdevMemory, update_after_read
from coresteer_core.policies.coalescing.netdev_traffic import NetdevTraffic
from coresteer_core.policies.coalescing.spec import Coalescing

MIN_STEP, MAX_STEP = 1.25, 4.0
"""Minimum and maximum factor by which one step changes the delay."""
_WORSE_DROPS = 1.5
"""Factor by which the share of dropped packets must grow after a step to be attributed to it."""
_FEW_IN_FLIGHT, _FEW_PER_INTERRUPT, _ANSWERED = 2.0, 1.5, 0.5
"""Request–response traffic: fewer packets in flight per queue and per interrupt, and at least this share answered."""


class NetdevSteps:
    """Proposals for the coalescing of one netdev in one round, or the reason why there are none.

    proposals, or why there are none. restores, reverts: keys as in Decision. after: state for the next round.
    """

    def __init__(self, view: View, spec: Coalescing, netdev: Netdev, was: NetdevMemory | None) -> None:
        self.netdev = netdev
        self.proposals: list[Proposal] = []
        self.restores: list[str] = []
        self.reverts: list[str] = []
        self.why = ""
        self._view, self._spec = view, spec
        self._current = {
            p: netdev.params[p]
            for p in (ADAPTIVE_RX, RX_USECS, RX_FRAMES, DEFER_HARD_IRQS, GRO_FLUSH_TIMEOUT)
            if p in netdev.params
        }
        self.after, self._changed = update_after_read(was or NetdevMemory(current=self._current), self._current)

    def _initial_delay(self, mechanism: NicTimer | KernelPolling, traffic: NetdevTraffic) -> Delay | str:
        goal = min(self._spec.packets_per_interrupt, mechanism.max_packets)
        return mechanism.initial_delay(goal, traffic.gap_us, self._wire_us(traffic), self._spec.max_added_us)

    def _drops_more(self, traffic: NetdevTraffic, was: NetdevTraffic) -> bool:
        """Return whether packet drops exceed the operator's limit, and clearly those before the step."""
        return traffic.dropped_percent > max(self._spec.max_dropped_percent, _WORSE_DROPS * was.dropped_percent)

    def _why_not_collectable(self, traffic: NetdevTraffic) -> str | None:
        """Return why a delay would collect no packets (one at a time is in flight and answered), else None."""
        in_flight = traffic.in_flight
        if in_flight is None or in_flight >= _FEW_IN_FLIGHT or traffic.per_interrupt > _FEW_PER_INTERRUPT:
            return None
        if traffic.sent_per_s < _ANSWERED * traffic.packets_per_s:
            return None
        return (
            f"{self._describe(traffic)} With a round-trip time of {traffic.rtt_us:,.0f} µs, {in_flight:.1f} packets "
            f"are in flight and answered: waiting up to {self._spec.max_added_us:g} µs would collect no more packets "
            "and only delay them"
        )

    @staticmethod
    def _per_interrupt(mechanism: NicTimer | KernelPolling, traffic: NetdevTraffic) -> float:
        """Return the packets per interrupt or, estimated from the delay, per poll of the kernel."""
        if isinstance(mechanism, KernelPolling) and mechanism.current_delay.usecs:
            return min(traffic.per_interrupt, mechanism.current_delay.usecs / traffic.gap_us)
        return traffic.per_interrupt

    def _wire_us(self, traffic: NetdevTraffic) -> float | None:
        speed = self.netdev.speed_bits_per_s
        return frame_wire_time_us(traffic.frame_bytes, speed) if speed else None

    def _describe(self, traffic: NetdevTraffic) -> str:
        wire_us = self._wire_us(traffic)
        wire = "" if wire_us is None else f" ({wire_us:,.3g} µs at line rate)"
        return (
            f"It receives {traffic.packets_per_s:,.0f} packets/s of {traffic.frame_bytes:,.0f} bytes, "
            f"{traffic.gap_us:,.3g} µs apart in its busiest queue{wire}, {traffic.per_interrupt:,.1f} per interrupt "
            f"({traffic.interrupts_per_s:,.0f} interrupts/s)."
        )

    @staticmethod
    def _current_text(mechanism: NicTimer | KernelPolling) -> str:
        return "adaptive-rx on" if mechanism.adaptive else mechanism.describe(mechanism.current_delay)

    def _own_values(self, mechanism: NicTimer | KernelPolling) -> dict[str, str]:
        """Return the netdev's original values, shortened to the operator's bound."""
        return self._within_bound(mechanism, {**self._current, **self.after.originals})

    def _within_bound(self, mechanism: NicTimer | KernelPolling, params: Mapping[str, str]) -> dict[str, str]:
        """Return earlier parameter values, shortened to the operator's bound."""
        found = {param: params[param] for param in mechanism.params if param in params}
        disables = self._spec.adaptive == "disable" and found.get(ADAPTIVE_RX) == "on"
        if found.get(ADAPTIVE_RX) == "on" and not disables:
            return found
        allowed = {**found, ADAPTIVE_RX: "off"} if disables else found
        delay = mechanism.delay_of(allowed)
        if mechanism.max_wait_us(delay) <= self._spec.max_added_us:
            return allowed
        shorter = mechanism.shortened_to(delay, self._spec.max_added_us)
        return {**allowed, **mechanism.params_for(shorter)} if isinstance(shorter, Delay) else found

    def _complete(self, why: str) -> None:
        """Propose the parameter values of the last step that are not written yet; without any, skip because of why."""
        if self.after.missing:
            self._propose(self.after.missing, why, reverts=not self.after.expects_gain)
        else:
            self.why = why

    def _step_to(
        self, mechanism: NicTimer | KernelPolling, target: Delay | str, because: str, *, expects_gain: bool
    ) -> None:
        """Propose another delay. expects_gain: the step is evaluated later, and reverted without a gain."""
        if isinstance(target, str):
            self.why = f"{because} {target}"
            return
        values = mechanism.params_for(target)
        if not next_writes(self._current, values):
            self.why = f"{because} {self._current_text(mechanism)} stays."
            return
        does = f"is the shortest delay that should collect {self._spec.packets_per_interrupt:g} per interrupt"
        if mechanism.max_wait_us(target) * MIN_STEP > self._spec.max_added_us:
            does = f"is close to the bound of {self._spec.max_added_us:g} µs"
        elif self.after.ceiling is not None and expects_gain:
            does = f"is half of the delay that did harm: {self.after.ceiling.why}"
        self.after = replace(self.after, target=values, expects_gain=expects_gain)
        self._propose(values, f"{because} {mechanism.describe(target)} {does}. {mechanism.why}")

    def _revert_to(self, mechanism: NicTimer | KernelPolling, values: dict[str, str], because: str) -> None:
        """Propose to return to earlier parameter values, unless they are the present ones."""
        if not next_writes(self._current, values):
            self.after = replace(self.after, on_trial=False)
            self.why = f"{because}: {self._current_text(mechanism)} stays."
            return
        self.after = replace(self.after, target=values, expects_gain=False)
        earlier = mechanism.describe(mechanism.delay_of(values))
        self._propose(values, f"{because}: reverted to {earlier}.", reverts=True)

    def _restore(self, why: str) -> None:
        """Propose to restore the netdev's original values."""
        originals = self.after.originals
        if not originals:
            self.after = replace(self.after, before=None, on_trial=False, target={})
            self.why = f"{why.rstrip('.')}."
            return
        self.after = replace(self.after, target=originals, expects_gain=False, on_trial=False, before=None)
        self._propose(originals, f"{why.rstrip('.')}: its own values are restored.", reverts=True)

    def _propose(self, values: Mapping[str, str], reason: str, *, reverts: bool = False) -> None:
        for param, value in next_writes(self._current, values):
            key = f"netdev/{self.netdev.name}/{param}"
            self.proposals.append(Proposal(key, value, self.netdev.name, reason))
            if self.after.originals.get(param) == value:
                self.restores.append(key)
            elif reverts:
                self.reverts.append(key)
