"""How long a NIC waits before it interrupts, for the traffic that is there and the latency that is allowed.

The rule of Park, Woo, Lee and Kim: rx-usecs just over the gap of the packets that are really there, rx-frames as low as
interrupts are few. Where the timer does not restart with each packet, rx-usecs is what collects as many packets at the
rate of the busiest queue. That is where a netdev's tuning begins; then what is measured corrects it:

- A step up is judged by the rounds after it. It stays if a tenth more packets come with each interrupt, and nothing
  suffers: drops, throughput, round-trip time. Else it is taken back, and no step goes there again until the traffic is
  another (a multiple of its rate, or of the packets that come with an interrupt).
- A netdev is settled when each interrupt brings what was aimed at, or the bound, the driver or such an experience allow
  no more. From then on only half of the aim, or three times as much, makes another step. So a steady load settles.
- Where one packet at a time is on its way and answered, waiting collects nothing and costs all: the netdev's own values
  come back. It shows in the packets per interrupt, and in rate × round-trip time (Little's law).

A netdev's own values are never shortened but for the bound, and they are what comes back when it falls silent.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from coresteer_core.node.inventory import Netdev
from coresteer_core.node.load import NetdevLoad
from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, PolicyKind, PolicySpec, Proposal, Scope
from coresteer_core.policies.coalescing.candidates import (
    ADAPTIVE,
    DEFER,
    FLUSH_NS,
    FRAMES,
    USECS,
    Hardware,
    Software,
    Waiting,
    became,
    in_order,
    way_of,
)
from coresteer_core.policies.coalescing.memory import Ceiling, Stood, Tuning, noticed
from coresteer_core.policies.coalescing.netdev_traffic import NO_INTERRUPTS, Traffic, interrupts, one_round
from coresteer_core.policies.skipped import SkippedGroups
from coresteer_core.schema import labelled
from coresteer_core.simulate.nic import packet_gap_us

_LOOK = 4
"""Rounds after a step before it is judged, and of other traffic before it makes a step."""
_LOOK_ONCE = 2
"""Rounds that are enough for drops, and for packets that are alone."""
_QUIET = 3
"""Rounds below the least rate before a netdev's own values come back."""
_SLOWED = 0.3
"""Packets to each wait: so many and no more come where each is waited for before the next is sent."""
_BEGIN = 1.25
"""Times the least rate before a netdev is begun with."""
_PAYS = 1.1
_STEP = (1.25, 4.0)
"""By what a correction changes the time, at least and at most."""
_NEAR, _SETTLED, _FAR = 0.9, 0.5, 3.0
"""Times the aim: reached; still reached once settled; so much more that a shorter wait does."""
_WORSE_DROPS = 1.5
_THROUGHPUT = 0.8
"""Less than this share of what it was before a step is a fall."""
_ALONE, _ALONE_PER_INTERRUPT, _ANSWERED = 2.0, 1.5, 0.5
"""Fewer packets on their way in a queue, with no more to an interrupt, and this share of them answered."""


class Coalescing(PolicySpec, frozen=True, tag="coalescing"):
    """Fields of the policy that sets how long NICs wait before they interrupt."""

    label = "Interrupt coalescing"
    summary = "Lets NICs collect more packets per interrupt while the traffic is worth it, within the allowed latency."

    max_added_us: Annotated[
        float,
        Meta(ge=1, le=10_000),
        labelled("Maximum added latency", "No packet waits longer for its interrupt.", unit="µs"),
    ] = 100.0
    packets_per_interrupt: Annotated[
        float,
        Meta(ge=2, le=256),
        labelled("Target packets per interrupt", "The NIC waits no longer than these take to arrive.", unit="packets"),
    ] = 16.0
    min_packets_per_s: Annotated[
        float,
        Meta(ge=0, le=1e9),
        labelled("Minimum packet rate", "A device that receives less gets its original values back.", unit="packets/s"),
    ] = 1000.0
    adaptive: Annotated[
        Literal["leave", "compare", "disable"],
        labelled(
            "Adaptive coalescing (adaptive-rx)",
            "What to do with a device whose driver adapts coalescing itself.",
            options={
                "leave": "skip the device",
                "compare": "turn it off temporarily and keep whichever needs fewer interrupts",
                "disable": "turn it off",
            },
        ),
    ] = "leave"
    software: Annotated[
        bool,
        labelled(
            "Software coalescing",
            "Use gro_flush_timeout and napi_defer_hard_irqs where the NIC has no coalescing of its own.",
        ),
    ] = False
    max_dropped_percent: Annotated[
        float,
        Meta(ge=0, le=100),
        labelled("Maximum packet drops", "Share of received packets; above it the last step is undone.", unit="%"),
    ] = 0.1


class CoalescingMemory(Struct, frozen=True, tag="coalescing"):
    """What a round leaves for the next, by netdev."""

    netdevs: dict[str, Tuning] = {}


def decide(view: View, spec: Coalescing, scope: Scope, memory: CoalescingMemory) -> Decision:
    """What is to wait longer or shorter, and why each of the others is left."""
    loads = {load.name: load for load in view.load.netdevs}
    per_s = interrupts(view)
    rounds = []
    for netdev in view.inventory.netdevs:
        was = memory.netdevs.get(netdev.name)
        in_scope = _matches(netdev.name, scope.netdevs) and _matches(netdev.driver or "", scope.drivers)
        if in_scope or (was is not None and was.originals):
            one = _Round(view, spec, netdev, was)
            one.decide(loads.get(netdev.name), per_s.get(netdev.name, []), in_scope=in_scope)
            rounds.append(one)
    skipped = SkippedGroups(lambda names: ", ".join(name for name, _ in names))
    for number, one in enumerate(rounds):
        if one.why:
            skipped.add(one.netdev.name, number, one.why)
    return Decision(
        _sentence(rounds, spec),
        CoalescingMemory({one.netdev.name: one.after for one in rounds}),
        [proposal for one in rounds for proposal in one.proposals],
        skipped.skipped(),
        frozenset(key for one in rounds for key in one.restores),
        frozenset(key for one in rounds for key in one.reverts),
    )


def _sentence(rounds: "list[_Round]", spec: Coalescing) -> str:
    if not rounds:
        return "No network device is in scope."
    many = f"{len(rounds)} network device{'s' if len(rounds) > 1 else ''} in scope"
    changing = sum(bool(one.proposals) and not one.restores for one in rounds)
    tuned = sum(bool(one.after.originals) for one in rounds)
    return (
        f"Of {many}, {tuned} wait{'s' if tuned == 1 else ''} as this policy set it, {changing} to change, "
        f"{sum(bool(one.restores) for one in rounds)} to get its own values back; no packet may wait longer than "
        f"{spec.max_added_us:g} µs."
    )


class _Round:
    """One netdev in one round: proposals, or why it is left; after: what the next round gets."""

    def __init__(self, view: View, spec: Coalescing, netdev: Netdev, was: Tuning | None) -> None:
        self.netdev = netdev
        self.proposals: list[Proposal] = []
        self.restores: list[str] = []
        self.reverts: list[str] = []
        self.why = ""
        self._view, self._spec = view, spec
        self._begins = True
        """Nothing is known of it from earlier rounds."""
        self._stands = {p: netdev.params[p] for p in (ADAPTIVE, USECS, FRAMES, DEFER, FLUSH_NS) if p in netdev.params}
        self.after, self._changed = noticed(was or Tuning(stands=self._stands), self._stands)

    def decide(self, load: NetdevLoad | None, per_s: list[float], *, in_scope: bool) -> None:
        """The whole round."""
        way = way_of(self.netdev, self._view.learned, software=self._spec.software)
        if not in_scope:
            self._give_back("It is no longer in scope")
        elif isinstance(way, str):
            self._give_back(way)
        elif not self.after.originals.keys() <= set(way.params):
            self._give_back(f"{way.why} It takes the place of what was set before")
        elif load is None or not per_s:
            what = "What it receives" if load is None else "How often its interrupts arrive"
            self.why = f"{what} is not known."
        elif way.adaptive and self._spec.adaptive == "leave":
            self._give_back(
                "Its adaptive-rx is on: the driver chooses the time, and this policy is to leave that alone"
            )
        elif way.adaptive and (spoilt := way.hopeless(ADAPTIVE)) is not None:
            self._give_back(f"Its adaptive-rx is on, and to turn it off was {became(spoilt)}")
        else:
            rtt_us = self._view.load.rtt_p50_us
            self._tune(way, one_round(load, per_s, None if rtt_us is None else float(rtt_us)))

    # What it comes to

    def _tune(self, way: Hardware | Software, one: Traffic) -> None:
        spec, after = self._spec, self.after
        if one.packets_per_s < spec.min_packets_per_s:
            self.after = after = replace(after, quiet=after.quiet + 1)
            why = f"It receives {one.packets_per_s:,.0f} packets/s, under {spec.min_packets_per_s:,.0f}"
            if after.originals and after.quiet < _QUIET:
                self.why = f"{why}; with {_QUIET - after.quiet} more such rounds its own values come back."
                return
            waited_for = one.packets_per_s * way.timed(way.standing) / 1e6
            if after.on_trial and after.before is not None and waited_for >= _SLOWED:
                was = after.before.traffic
                why = f"It received {was.packets_per_s:,.0f} packets/s before {way.say(way.standing)}. {why}"
                self.after = replace(after, ceiling=Ceiling(0, why, was.packets_per_s, was.per_interrupt))
            elif not after.originals and after.quiet >= _QUIET:
                self.after = replace(after, ceiling=None)
            self._give_back(why)
            return
        if not after.originals and one.packets_per_s < _BEGIN * spec.min_packets_per_s and after.quiet:
            self.why = (
                f"It receives {one.packets_per_s:,.0f} packets/s; it is begun with again from "
                f"{_BEGIN * spec.min_packets_per_s:,.0f}."
            )
            return
        self.after = replace(after, quiet=0)
        if self._changed:
            self._complete(f"{way.say(way.standing)} stands since the last round; what it does is not known yet.")
            return
        anew = after.traffic is not None and not after.on_trial and one.unlike(after.traffic)
        seen = one if anew else one.after(after.traffic)
        self._begins = after.traffic is None and not after.originals
        self.after = replace(self.after, traffic=seen)
        if after.on_trial and after.before is not None:
            self._judge(way, seen, after.before)
            if self.after.on_trial or self.proposals:
                return
        if self.after.ceiling is not None and not self.after.ceiling.holds(seen) and seen.rounds >= _LOOK:
            self.after = replace(self.after, ceiling=None, settled=False)
        alone = self._alone(seen)
        if alone is not None and (self._begins or seen.rounds >= _LOOK_ONCE):
            self._go_back(way, self._floor(way), alone)
        else:
            self._rest(way, seen)

    def _judge(self, way: Hardware | Software, seen: Traffic, before: Stood) -> None:
        """Whether the last step stays."""
        was, tried = before.traffic, way.say(way.standing)
        if seen.rounds >= _LOOK_ONCE and self._drops(seen, was):
            self._harm(way, seen, was, before.params)
            return
        if seen.rounds < _LOOK:
            self._complete(f"{self._told(seen)} {tried} is judged after {_LOOK - seen.rounds} more rounds.")
            return
        adaptive, slower_us = before.params.get(ADAPTIVE) == "on", 0.0
        if seen.rtt_us is not None and was.rtt_us is not None:
            slower_us = seen.rtt_us - was.rtt_us
        why = None
        from_us = way.timed(way.standing)
        if adaptive and (self._spec.adaptive == "disable" or slower_us < -self._spec.max_added_us):
            why = None  # as the operator wants, or what the driver chose waited longer than it may
        elif seen.per_interrupt < _PAYS * was.per_interrupt:
            from_us = way.timed(way.waiting(before.params)) + 1
            why = (
                f"{seen.per_interrupt:.1f} packets came to an interrupt after {was.per_interrupt:.1f} before, which "
                "does not pay"
            )
        elif slower_us > self._spec.max_added_us:
            why = f"the round-trip time p50 rose from {was.rtt_us:,.0f} to {seen.rtt_us:,.0f} µs"
        elif seen.bytes_per_s < _THROUGHPUT * was.bytes_per_s:
            why = f"throughput fell from {was.bytes_per_s / 1e6:,.1f} to {seen.bytes_per_s / 1e6:,.1f} MB/s"
        if why is None:
            self.after = replace(self.after, on_trial=False, wants={}, judged=False)
        else:
            self._take_back(way, from_us, f"with {tried} {why}", was, before.params)

    def _harm(self, way: Hardware | Software, seen: Traffic, was: Traffic, params: Mapping[str, str]) -> None:
        """Too much is dropped."""
        standing = way.standing
        why = (
            f"with {way.say(standing)} {seen.dropped_percent:.2g} % of what came was dropped, over "
            f"{self._spec.max_dropped_percent:g} %"
        )
        self._take_back(way, way.timed(standing), why, was, params)

    def _take_back(
        self, way: Hardware | Software, from_us: int, why: str, was: Traffic, params: Mapping[str, str]
    ) -> None:
        """The last step. from_us: no wait from here on is tried again. was: the traffic before it."""
        ceiling = Ceiling(from_us, why, was.packets_per_s, was.per_interrupt)
        self.after = replace(self.after, ceiling=ceiling)
        self._go_back(way, self._allowed(way, params), why[0].upper() + why[1:])

    def _rest(self, way: Hardware | Software, seen: Traffic) -> None:
        """No step is being judged: another one, or none."""
        spec, standing, told = self._spec, way.standing, self._told(seen)
        if not way.adaptive and way.bound_us(standing) > spec.max_added_us:
            shorter = self._first(way, seen)
            if isinstance(shorter, str):
                shorter = way.shortened(standing, spec.max_added_us)
            because = f"{told} {way.say(standing)} is over the bound of {spec.max_added_us:g} µs."
            if self.after.ceiling is not None and not self.after.originals:
                self.why = f"{because} {self.after.ceiling.why}"
            elif isinstance(shorter, str) and self.after.originals:
                ceiling = Ceiling(0, shorter, seen.packets_per_s, NO_INTERRUPTS)
                self._give_back(f"{because} {shorter}")
                self.after = replace(self.after, ceiling=ceiling)
            else:
                self._go(way, shorter, because, judged=False)
            return
        last = self.after.before
        if last is not None and self._drops(seen, last.traffic):
            self._harm(way, seen, seen, last.params)
            return
        goal = min(spec.packets_per_interrupt, way.most_packets)
        have = self._collected(way, seen)
        aim = min(goal, standing.frames) if way.restarts and standing.frames and self.after.originals else goal
        if way.adaptive and spec.adaptive == "disable":
            wanted = self._first(way, seen)
            if isinstance(wanted, str):
                self._go_back(way, self._floor(way), f"{told} adaptive-rx is to be off. {wanted}")
            else:
                self._go(way, wanted, told, judged=True)
        elif not self._begins and seen.rounds < _LOOK:
            self.why = (
                f"{told} {self._standing(way)} stays while this is looked at for {_LOOK - seen.rounds} more rounds."
            )
        elif have >= aim * (_SETTLED if self.after.settled else _NEAR):
            self._enough(way, seen, aim, goal)
        else:
            self._more(way, seen, goal)

    def _enough(self, way: Hardware | Software, seen: Traffic, aim: float, goal: float) -> None:
        """As many come with each interrupt as wanted; a wait much longer than needed is cut, a count too low raised."""
        standing, have = way.standing, self._collected(way, seen)
        told, usecs = self._told(seen), way.timed(standing)
        own = way.timed(way.waiting({**self._stands, **self.after.originals}))
        if self.after.originals and not way.adaptive and have > _FAR * aim and usecs > own * _STEP[0]:
            shorter = way.about(usecs * aim / have, standing.frames, own, self._spec.max_added_us)
            if isinstance(shorter, Waiting) and shorter.usecs * _STEP[0] <= usecs:
                self._go(way, shorter, f"{told} That is more than {_FAR:g} times {aim:g}.", judged=False)
                return
        if aim < goal and have >= _NEAR * aim and self.after.ceiling is None:
            wider = self._first(way, seen)
            if isinstance(wider, Waiting) and wider.frames and wider.frames >= 1.5 * aim:
                self._go(way, wider, told, judged=True)
                return
        self.after = replace(self.after, settled=True)
        reached = "as many as are aimed at" if have >= _NEAR * aim else f"settled until it is under half of {aim:g}"
        bound = f"no packet may wait over {self._spec.max_added_us:g} µs"
        self.why = f"{told} That is {reached}, and {bound}: {self._standing(way)} stays."

    def _more(self, way: Hardware | Software, seen: Traffic, goal: float) -> None:
        """More packets are to come with each interrupt, as far as bound, driver and experience allow."""
        bound_us, told, ceiling = self._spec.max_added_us, self._told(seen), self.after.ceiling
        if ceiling is None:
            wanted = self._longer(way, seen, goal, bound_us)
        elif way.adaptive:
            wanted = f"It waits no longer: {ceiling.why}."
        else:
            wanted = self._longer(way, seen, goal, min(bound_us, ceiling.usecs // 2))
            wanted = wanted if isinstance(wanted, Waiting) else f"It waits no longer: {ceiling.why}."
        if isinstance(wanted, Waiting):
            self._go(way, wanted, told, judged=True)
            return
        self.after = replace(self.after, settled=True)
        self.why = f"{told} {self._standing(way)} stays. {wanted}"

    def _longer(self, way: Hardware | Software, seen: Traffic, goal: float, most_us: float) -> Waiting | str:
        """A wait that should bring more to an interrupt than what stands; or why there is none."""
        spec, standing = self._spec, way.standing
        usecs = 0 if way.adaptive else way.timed(standing)
        if most_us < max(1.0, usecs * _PAYS):
            return f"It waits no longer, as the bound is {spec.max_added_us:g} µs."
        wanted = self._first(way, seen)
        if isinstance(wanted, str):
            return wanted
        ratio = min(_STEP[1], max(_STEP[0], goal / self._collected(way, seen)))
        if usecs and self.after.originals:
            frames = way.frames_for(goal)
            corrected = way.about(usecs * ratio, frames, usecs, spec.max_added_us)
            short = isinstance(corrected, str) or corrected.usecs < usecs * _PAYS
            if short and isinstance(way, Hardware) and way.restarts and self.after.ceiling is None:
                corrected = way.fullest(goal, seen.gap_us, self._wire_us(seen), spec.max_added_us)
            wanted = corrected
        elif usecs and wanted.usecs < usecs * _STEP[0]:
            wanted = way.about(usecs * _STEP[0], wanted.frames, usecs, spec.max_added_us)
        if isinstance(wanted, Waiting) and wanted.usecs > most_us:
            wanted = way.about(most_us, wanted.frames, usecs, most_us)
        if isinstance(wanted, str):
            return wanted
        counts_further = self.after.ceiling is None and (wanted.frames or 0) > (standing.frames or 0) > 0
        if way.adaptive or wanted.usecs >= usecs * _PAYS or (counts_further and not self.after.originals):
            return wanted
        return f"It waits no longer, as the bound is {spec.max_added_us:g} µs."

    # Parts of it

    def _first(self, way: Hardware | Software, seen: Traffic) -> Waiting | str:
        goal = min(self._spec.packets_per_interrupt, way.most_packets)
        return way.first(goal, seen.gap_us, self._wire_us(seen), self._spec.max_added_us)

    def _drops(self, seen: Traffic, was: Traffic) -> bool:
        """Whether more are dropped than may be, and clearly more than before the step."""
        return seen.dropped_percent > max(self._spec.max_dropped_percent, _WORSE_DROPS * was.dropped_percent)

    def _alone(self, seen: Traffic) -> str | None:
        """Why waiting can collect nothing: one packet at a time is on its way and answered."""
        in_flight = seen.in_flight
        if in_flight is None or in_flight >= _ALONE or seen.per_interrupt > _ALONE_PER_INTERRUPT:
            return None
        if seen.sent_per_s < _ANSWERED * seen.packets_per_s:
            return None
        return (
            f"{self._told(seen)} At a round-trip time of {seen.rtt_us:,.0f} µs {in_flight:.1f} of them are on their "
            f"way at a time, and they are answered: waiting up to {self._spec.max_added_us:g} µs would collect no more "
            "and only delay them"
        )

    def _collected(self, way: Hardware | Software, seen: Traffic) -> float:
        """Packets that come together: for the kernel's own polling, which interrupts do not show, by its time."""
        if isinstance(way, Software) and way.standing.usecs:
            return min(seen.per_interrupt, way.standing.usecs / seen.gap_us)
        return seen.per_interrupt

    def _wire_us(self, seen: Traffic) -> float | None:
        speed = self.netdev.speed_bits_per_s
        return packet_gap_us(seen.frame_bytes, speed) if speed else None

    def _told(self, seen: Traffic) -> str:
        wire_us = self._wire_us(seen)
        wire = "" if wire_us is None else f"{wire_us:,.3g} µs apart on the wire, "
        return (
            f"It receives {seen.packets_per_s:,.0f} packets/s of {seen.frame_bytes:,.0f} bytes, {wire}"
            f"{seen.gap_us:,.3g} µs in its busiest queue, {seen.per_interrupt:,.1f} to an interrupt "
            f"({seen.interrupts_per_s:,.0f}/s)."
        )

    def _standing(self, way: Hardware | Software) -> str:
        return "adaptive-rx on" if way.adaptive else way.say(way.standing)

    def _floor(self, way: Hardware | Software) -> dict[str, str]:
        """What a netdev goes back to while it has traffic: its own values within the bound."""
        return self._allowed(way, {**self._stands, **self.after.originals})

    def _allowed(self, way: Hardware | Software, params: Mapping[str, str]) -> dict[str, str]:
        """Earlier values as far as the operator's bound and on_drift allow."""
        found = {param: params[param] for param in way.params if param in params}
        turns_off = self._spec.adaptive == "disable" and found.get(ADAPTIVE) == "on"
        if found.get(ADAPTIVE) == "on" and not turns_off:
            return found
        allowed = {**found, ADAPTIVE: "off"} if turns_off else found
        waiting = way.waiting(allowed)
        if way.bound_us(waiting) <= self._spec.max_added_us:
            return allowed
        shorter = way.shortened(waiting, self._spec.max_added_us)
        return {**allowed, **way.written(shorter)} if isinstance(shorter, Waiting) else found

    def _complete(self, why: str) -> None:
        """What of the last step is still to be written."""
        if self.after.missing:
            self._propose(self.after.missing, why, back=not self.after.judged)
        else:
            self.why = why

    def _go(self, way: Hardware | Software, wanted: Waiting | str, because: str, *, judged: bool) -> None:
        """To another wait. judged: it is to show that it pays."""
        if isinstance(wanted, str):
            self.why = f"{because} {wanted}"
            return
        values = way.written(wanted)
        if not in_order(self._stands, values):
            self.why = f"{because} {self._standing(way)} stays."
            return
        does = f"is the shortest wait that should bring {self._spec.packets_per_interrupt:g} to an interrupt"
        if way.bound_us(wanted) * _STEP[0] > self._spec.max_added_us:
            does = f"is about as long as the bound of {self._spec.max_added_us:g} µs allows"
        elif self.after.ceiling is not None and judged:
            does = f"is half of what did harm: {self.after.ceiling.why}"
        self.after = replace(self.after, wants=values, judged=judged)
        self._propose(values, f"{because} {way.say(wanted)} {does}. {way.why}")

    def _go_back(self, way: Hardware | Software, values: dict[str, str], because: str) -> None:
        """To an earlier wait, or stay where that is what stands."""
        if not in_order(self._stands, values):
            self.after = replace(self.after, on_trial=False)
            self.why = f"{because}: {self._standing(way)} stays."
            return
        self.after = replace(self.after, wants=values, judged=False)
        self._propose(values, f"{because}: back to {way.say(way.waiting(values))}.", back=True)

    def _give_back(self, why: str) -> None:
        """Its own values again."""
        originals = self.after.originals
        if not originals:
            self.after = replace(self.after, before=None, on_trial=False, wants={})
            self.why = f"{why.rstrip('.')}."
            return
        self.after = replace(self.after, wants=originals, judged=False, on_trial=False, before=None)
        self._propose(originals, f"{why.rstrip('.')}: its own values again.", back=True)

    def _propose(self, values: Mapping[str, str], reason: str, *, back: bool = False) -> None:
        for param, value in in_order(self._stands, values):
            key = f"netdev/{self.netdev.name}/{param}"
            self.proposals.append(Proposal(key, value, self.netdev.name, reason))
            if self.after.originals.get(param) == value:
                self.restores.append(key)
            elif back:
                self.reverts.append(key)


def _matches(text: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)


KIND = PolicyKind(Coalescing, CoalescingMemory, decide)
