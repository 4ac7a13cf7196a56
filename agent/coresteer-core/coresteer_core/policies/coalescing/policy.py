"""Policy ``coalescing``: set how long NICs wait before they interrupt, by traffic and allowed latency.

The rule of Park, Woo, Lee and Kim: rx-usecs just above the gap between the packets that really arrive, rx-frames just
high enough for few interrupts. Where the timer does not restart with each packet, rx-usecs is the time in which that
many packets arrive in the busiest queue. These are the first values of a netdev; measurements then correct them:

- A step up is evaluated by the rounds after it. It stays if each interrupt brings a tenth more packets and neither
  drops, throughput nor round-trip time get worse. Otherwise it is reverted, and no step goes there again until the
  traffic differs (by a multiple of its rate, or of the packets per interrupt).
- A netdev is settled when each interrupt brings the target number of packets, or when the bound, the driver or a
  reverted step allow no more. After that only half of the target, or three times as much, causes another step. So a
  steady load reaches a steady state.
- Where one packet at a time is in flight and answered, waiting collects nothing and costs latency: the netdev's own
  values are restored. It shows in the packets per interrupt, and in rate × round-trip time (Little's law).

A netdev's own values are only shortened for the bound, and they are restored when its traffic ends.
"""

from fnmatch import fnmatchcase

from msgspec import Struct

from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, PolicyKind, Scope
from coresteer_core.policies.coalescing.memory import NetdevMemory
from coresteer_core.policies.coalescing.netdev_round import NetdevRound
from coresteer_core.policies.coalescing.netdev_traffic import receive_interrupts_per_s
from coresteer_core.policies.coalescing.spec import Coalescing
from coresteer_core.policies.skipped import SkippedGroups


class CoalescingMemory(Struct, frozen=True, tag="coalescing"):
    """Memory of the coalescing policy for the next round, by netdev."""

    netdevs: dict[str, NetdevMemory] = {}


def decide(view: View, spec: Coalescing, scope: Scope, memory: CoalescingMemory) -> Decision:
    """Return proposals for netdevs whose coalescing delay should change, and why each other netdev is skipped."""
    loads = {load.name: load for load in view.load.netdevs}
    per_s = receive_interrupts_per_s(view)
    rounds = []
    for netdev in view.inventory.netdevs:
        was = memory.netdevs.get(netdev.name)
        in_scope = _matches(netdev.name, scope.netdevs) and _matches(netdev.driver or "", scope.drivers)
        if in_scope or (was is not None and was.originals):
            one = NetdevRound(view, spec, netdev, was)
            one.evaluate(loads.get(netdev.name), per_s.get(netdev.name, []), in_scope=in_scope)
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


def _sentence(rounds: list[NetdevRound], spec: Coalescing) -> str:
    if not rounds:
        return "No network device is in scope."
    many = f"{len(rounds)} network device{'s' if len(rounds) > 1 else ''} in scope"
    changing = sum(bool(one.proposals) and not one.restores for one in rounds)
    tuned = sum(bool(one.after.originals) for one in rounds)
    return (
        f"{many}: {changing} to change, {tuned} set by this policy, {sum(bool(one.restores) for one in rounds)} to "
        f"restore; the bound of added latency is {spec.max_added_us:g} µs."
    )


def _matches(text: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)


KIND = PolicyKind(Coalescing, CoalescingMemory, decide)
