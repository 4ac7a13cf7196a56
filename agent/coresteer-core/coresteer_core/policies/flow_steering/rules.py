"""Flow rules: the heaviest long-lived flows get a slot of their NIC each, while slots are free."""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.node.inventory import FlowRule, FlowRuleTable, Netdev
from coresteer_core.node.tasks import HeavyFlow
from coresteer_core.policies.flow_steering.memory import FlowSteeringMemory, HeldRule
from coresteer_core.policies.flow_steering.traffic import MAX_MOVES, MIN_GAIN, Consumer, Traffic, name_flow
from coresteer_core.settings.flow_rule import EMPTY
from coresteer_core.settings.flow_rule_text import Rule, parse_rule

_BARRED_S = 3600.0
_MOST_REFUSED = 2
"""Number of flows of a netdev whose rules were never written, from which on it gets no more rules."""
_SATURATED = 0.98
"""Load of a CPU from which on a flow that was steered there gets its own hash's queue again."""


class SteerableFlow(Struct, frozen=True, gc=False):
    """A heavy flow of a process. gain_ns: CPU time per second that its nearest queue would save."""

    key: str
    flow: HeavyFlow
    consumer: Consumer
    gain_ns: float


class DesiredValue(Struct, frozen=True):
    """A value that the policy wants a setting to have. why: completed by the process's shares when all is decided."""

    key: str
    value: str
    consumer: Consumer | None
    why: str


class Rules(Struct):
    """What a round decides about flow rules. free: slots by netdev. steered: flows that have one; open: netdevs on
    which more flows may get one in a later round.
    """

    held: dict[str, HeldRule]
    desired: list[DesiredValue]
    restores: list[DesiredValue]
    barred: dict[str, float]
    refused: dict[str, float]
    free: dict[str, int]
    steered: set[str]
    open: set[str]


def rule_value(flow: HeavyFlow, queue: int) -> str:
    """Return the value of a setting netdev/NAME/flow-rule/LOCATION that brings exactly this flow to a queue.

    Raises ValueError for a flow whose addresses are none.
    """
    peer, local = _address(flow.peer), _address(flow.local)
    flow_type = f"{flow.protocol}{local.version}"
    return str(Rule(flow_type, queue, peer, local, flow.peer_port, flow.local_port))


def _address(text: str) -> IPv4Address | IPv6Address:
    """Return an IP address as it is in packets: one of IPv4 where a socket of IPv6 receives it."""
    address = ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_expressible(flow: HeavyFlow) -> bool:
    try:
        parse_rule(rule_value(flow, 0))
    except ValueError:
        return False
    return True


def find_rule(netdev: Netdev | None, key: str) -> FlowRule | None:
    """Return the rule in the slot of a setting's key, None where that is empty."""
    table = netdev.flow_rules if netdev is not None else None
    location = _place(key)[1]
    return next((rule for rule in table.rules if rule.location == location), None) if table is not None else None


def why_no_rules(netdev: Netdev, max_rules: int) -> str | None:
    """Return why the flows of a netdev get no rules, as a sentence; None if they may."""
    table = netdev.flow_rules
    if max_rules == 0 or table is None or table.size == 0:
        return "It has no flow rules." if max_rules else "The policy uses no flow rules."
    if netdev.params.get("ntuple") == "off":
        return "Its flow rules are off (ethtool -K ntuple)."
    return None if table.complete else "Not all of its flow rules could be read, so no slot is known to be free."


def decide_rules(
    traffic: Traffic, memory: FlowSteeringMemory, flows: dict[str, SteerableFlow], candidates: Iterable[SteerableFlow]
) -> Rules:
    """Return the rules of this round. flows: those of rules that are held, by key; candidates: others, best first."""
    now = traffic.now
    barred = {key: until_s for key, until_s in memory.barred.items() if now < until_s}
    refused = {key: until_s for key, until_s in memory.refused.items() if now < until_s}
    rules = Rules({}, [], [], barred, refused, {}, set(), set())
    tables = {
        name: netdev.flow_rules
        for name, netdev in traffic.netdevs.items()
        if netdev.flow_rules is not None and why_no_rules(netdev, traffic.spec.max_rules) is None
    }
    slots = {name: _slots(netdev) for name, netdev in traffic.netdevs.items()}
    for key, held in memory.rules.items():
        name, location = _place(key)
        if name not in slots:
            why = f"{name} is not in the policy's scope any more."  # the slots of one that is gone cannot be freed
            rules.restores.append(DesiredValue(key, EMPTY, None, why))
            continue
        of_netdev = slots[name]
        if of_netdev is None:  # a failed read, as in a driver reset, says nothing about the rules
            rules.held[key] = held
            rules.steered.add(held.flow)
            continue
        present = of_netdev.get(location)
        if present is not None and not present.ours and present.value != held.value:
            continue  # another program's rule took the slot
        _keep(traffic, rules, key, held, EMPTY if present is None else present.value, flows.get(held.flow))
    taken = {name: _locations(name, rules).union(slots[name] or ()) for name in tables}
    foreign = {name: _foreign(table) for name, table in tables.items()}
    refusals = Counter(key.rpartition(" ")[2] for key in refused)
    refusing = {name for name, count in refusals.items() if count >= _MOST_REFUSED}
    left = {
        name: 0
        if name in refusing
        else min(MAX_MOVES, table.size - len(taken[name]), traffic.spec.max_rules - len(_locations(name, rules)))
        for name, table in tables.items()
    }
    without = rules.steered | barred.keys()
    waiting = [each for each in candidates if left.get(each.flow.netdev, 0) > 0 and each.key not in without]
    for each in traffic.turns(waiting):
        flow, name = each.flow, each.flow.netdev
        if left[name] <= 0 or _is_matched(foreign[name], flow) or not _is_expressible(flow):
            continue
        queue = _queue_for(traffic, each)
        if queue is None:
            continue
        location = next(n for n in range(tables[name].size - 1, -1, -1) if n not in taken[name])
        key, value = f"netdev/{name}/flow-rule/{location}", rule_value(flow, queue)
        taken[name].add(location)
        left[name] -= 1
        task = each.consumer.task
        rules.held[key] = HeldRule(each.key, task.pid, task.started_ticks, value, now, missing_s=now)
        rules.steered.add(each.key)
        rules.desired.append(DesiredValue(key, value, each.consumer, _describe(traffic, each, queue)))
    rules.free = {name: table.size - len(taken[name]) for name, table in tables.items()}
    rules.open = {
        name
        for name, free in rules.free.items()
        if free and len(_locations(name, rules)) < traffic.spec.max_rules and name not in refusing
    }
    return rules


def _keep(  # noqa: PLR0917 - one rule: its setting, what is wanted, what is there, and whose it is
    traffic: Traffic, rules: Rules, key: str, held: HeldRule, present: str, found: SteerableFlow | None
) -> None:
    """Keep a rule, change its queue, or free its slot. present: the value of the slot."""
    now, dwell_s = traffic.now, traffic.spec.dwell_s
    name = _place(key)[0]
    queue = int(held.value.rpartition(" ")[2])
    cpu = traffic.queues[name].get(queue)
    gone_s = None if found is not None else now if held.gone_s is None else held.gone_s
    missing_s = None if present == held.value else now if held.missing_s is None else held.missing_s
    held = replace(held, gone_s=gone_s, missing_s=missing_s)
    why, harmful = _why_freed(traffic, held, found)
    if why:
        rules.restores.append(DesiredValue(key, EMPTY, None, why))
        if harmful:
            rules.barred[held.flow] = now + _BARRED_S
            if present == EMPTY and held.missing_s == held.moved_s:
                rules.refused[held.flow] = now + _BARRED_S
        return
    if found is not None:
        away = cpu is None or cpu not in traffic.usable
        gain = 0.0 if cpu is None else found.consumer.reach[cpu] - found.consumer.nearest[name]
        if away or (gain >= MIN_GAIN and found.consumer.settled and now - held.moved_s >= dwell_s):
            better = _queue_for(traffic, found, None if away else cpu)
            if away and better is None:
                why = f"rx-{queue} is gone, or a CPU polls it that must not or is unknown, and no other queue has room."
                rules.restores.append(DesiredValue(key, EMPTY, None, why))
                return
            if better is not None:
                held, queue = replace(held, value=rule_value(found.flow, better), moved_s=now, missing_s=now), better
        elif present != held.value and cpu is not None:
            found.consumer.move(found.flow.rx_bytes_per_s, traffic.polled_on(found.flow), cpu)
    rules.held[key] = held
    rules.steered.add(held.flow)
    if held.value != present:
        why = "Its rule is missing" if found is None else _describe(traffic, found, queue)
        rules.desired.append(DesiredValue(key, held.value, None if found is None else found.consumer, why))


def _why_freed(  # noqa: PLR0911 - one return for each reason
    traffic: Traffic, held: HeldRule, found: SteerableFlow | None
) -> tuple[str, bool]:
    """Return why a rule's slot is freed, empty if it is not, and whether its flow must not get another one soon."""
    now, queue = traffic.now, held.value.rpartition(" ")[2]
    if traffic.spec.max_rules == 0:
        return "The policy uses no flow rules.", False
    if found is None:
        gone_s = 0.0 if held.gone_s is None else now - held.gone_s
        ended = gone_s > traffic.spec.dwell_s
        return f"Its flow has ended or was not among the heavy ones for {gone_s:.0f} s." if ended else "", False
    if not found.consumer.fixed:
        return f"{found.consumer.name} may run on any CPU now, so a rule cannot follow it.", False
    if held.missing_s is not None:  # refused, only recommended, or left to another program
        late = now - held.missing_s > traffic.spec.dwell_s
        return f"It is not in force after {traffic.spec.dwell_s:.0f} s." if late else "", late
    if now - held.moved_s < traffic.spec.dwell_s:
        return "", False
    if found.flow.queue is not None and found.flow.queue != f"rx-{queue}":
        return f"It had no effect: the flow still arrives at {found.flow.queue}.", True
    cpu = traffic.queues[found.flow.netdev].get(int(queue))
    load = None if cpu is None else traffic.room.load(cpu)
    if load is not None and load >= _SATURATED:
        return f"CPU {cpu} is {100 * load:.0f} % busy with it, so its flow is spread by its hash again.", True
    return "", False


def _queue_for(traffic: Traffic, each: SteerableFlow, present: int | None = None) -> int | None:
    """Return the queue nearest to a flow's process that has room for it, None where none is clearly nearer.

    present: the CPU that polls it, where that is known better than by the flow. Takes the room.
    """
    flow, reach, room = each.flow, each.consumer.reach, traffic.room
    cpu = traffic.polled_on(flow) if present is None else present
    need = room.need(cpu, flow.rx_bytes_per_s)
    limit = float("inf") if cpu is None else reach[cpu] - MIN_GAIN
    found = [
        (reach[at], room.load(at) or 0.0, queue, at)
        for queue, at in traffic.queues[flow.netdev].items()
        if reach[at] <= limit and room.fits(at, need)
    ]
    if not found:
        return None
    *_, queue, at = min(found)
    room.take(cpu, at, need)
    each.consumer.move(flow.rx_bytes_per_s, cpu, at)
    return queue


def _describe(traffic: Traffic, each: SteerableFlow, queue: int) -> str:
    at = traffic.queues[each.flow.netdev][queue]
    was = traffic.polled_on(each.flow)
    before = "an unknown CPU" if was is None else f"CPU {was}"
    return f"{name_flow(each.flow)} goes to rx-{queue} on CPU {at} instead of {before}"


def _foreign(table: FlowRuleTable) -> list[dict[str, str]]:
    """Return the fields of the rules that are not Coresteer's, by their names."""
    split = [rule.value.split() for rule in table.rules if not rule.ours]
    return [dict(zip(words[::2], words[1::2], strict=False)) for words in split]


def _is_matched(foreign: list[dict[str, str]], flow: HeavyFlow) -> bool:
    """Return whether one of these rules brings a flow to a queue."""
    has = {
        "src-ip": flow.peer,
        "dst-ip": flow.local,
        "src-port": str(flow.peer_port),
        "dst-port": str(flow.local_port),
    }
    return any(
        rule.get("flow-type", "").startswith(flow.protocol)
        and all(rule.get(name, value) == value for name, value in has.items())
        for rule in foreign
    )


def _slots(netdev: Netdev) -> dict[int, FlowRule] | None:
    """Return the rules of a netdev by location; None where they are not known completely."""
    table = netdev.flow_rules
    return {rule.location: rule for rule in table.rules} if table is not None and table.complete else None


def _locations(name: str, rules: Rules) -> set[int]:
    """Return the slots of the rules that are held on a netdev."""
    return {location for netdev, location in map(_place, rules.held) if netdev == name}


@lru_cache(maxsize=4096)  # the same rules in every round
def _place(key: str) -> tuple[str, int]:
    """Return netdev and location of the key of a flow rule."""
    _, name, _, location = key.split("/")
    return name, int(location)
