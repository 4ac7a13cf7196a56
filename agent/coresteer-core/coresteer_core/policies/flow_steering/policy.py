"""Policy ``flow-steering``: bring packets to the process that reads them, the other half of ``network-process``.

Which of the two moves: ``network-process`` places a process near its main queue, then what arrives at other queues is
steered to it. So here the affinity of a process is given, and only flows of processes that stay on their CPUs for
dwell_s get a rule or an RSS entry; a process that may run on any CPU is followed by RFS alone. Mechanisms, in order:

1. A flow rule for each of the heaviest flows, in slots that nothing else uses (rules.py).
2. RSS entries with heavy flows to the nearest queue; the rest of the table stays (table.py).
3. RFS for all others: protocol work only, measured, and off for an hour where it costs more than it saves (rfs.py).

What processes send follows XPS, if that is wanted (xps.py).

Stability: a flow, and an RSS entry, is steered after dwell_s, only to a clearly nearer queue, and again only after
dwell_s; its CPU has room for it, so that no other policy moves work away from there. Packets that a rule brought to a
process do not attract that process (network-process).
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain, islice
from typing import TypeAlias

from coresteer_core.node.tasks import HeavyFlow
from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, PolicyKind, Proposal, Scope
from coresteer_core.policies.flow_steering.cost import REORDERING_NS
from coresteer_core.policies.flow_steering.memory import FlowSteeringMemory
from coresteer_core.policies.flow_steering.rfs import RfsRound, decide_rfs
from coresteer_core.policies.flow_steering.rules import (
    DesiredValue,
    Rules,
    SteerableFlow,
    decide_rules,
    find_rule,
    why_no_rules,
)
from coresteer_core.policies.flow_steering.spec import FlowSteering
from coresteer_core.policies.flow_steering.table import HeavyEntries, Tables, decide_tables
from coresteer_core.policies.flow_steering.traffic import MIN_GAIN, MOST_TRACKED, Consumer, Traffic, flow_key
from coresteer_core.policies.flow_steering.xps import XpsRound, decide_xps
from coresteer_core.policies.skipped import Reason, ReasonText, SkippedGroups, format_rate, name_tasks
from coresteer_core.settings import SettingError, parse_setting

_SHARES = "{0:.0f} % of its {1:rate} are polled within its L2, {2:.0f} → {3:.0f} % processed there"
_OF_EACH = "{0:.0f} % of the {1:rate} of each are polled within its L2, {2:.0f} → {3:.0f} % processed there"
_FREE = ReasonText(
    f"{_SHARES}; it may run on any CPU, so only RFS follows it.",
    f"{_OF_EACH}; they may run on any CPU, so only RFS follows them.",
)
_FIXED = ReasonText(
    f"{_SHARES}; no heavy flow of it has a clearly nearer queue with room.",
    f"{_OF_EACH}; no heavy flow has a clearly nearer queue with room.",
)
_YOUNG = ReasonText(
    f"{_SHARES}; it has been on these CPUs for less than {{4}} s.",
    f"{_OF_EACH}; they have been on their CPUs for less than {{4}} s.",
)


def decide(view: View, spec: FlowSteering, scope: Scope, memory: FlowSteeringMemory) -> Decision:
    """Return proposals that steer flows to their processes or end that, and why other processes are skipped."""
    traffic = Traffic(view, spec, scope, memory)
    steerable = _Steerable(traffic, memory)
    rules = decide_rules(traffic, memory, steerable.held, steerable.candidates)
    for_tables = [
        each
        for each in steerable.candidates
        if each.key not in rules.steered and (each.flow.netdev not in rules.open or each.key in rules.barred)
    ]
    tables = decide_tables(traffic, memory, for_tables, HeavyEntries(steerable.entries, steerable.held))
    rfs = decide_rfs(traffic, memory.rfs, memory.restoring)
    xps = decide_xps(traffic, scope, memory)
    wanted = {each.key for each in (*rules.desired, *tables.desired, *xps.desired)} | rfs.values.keys()
    restores = {
        key: each
        for key, each in _restores(memory, rules, tables, rfs, xps).items()
        if key not in wanted and key not in rules.held and _is_restorable(view, key, each.value)
    }
    after = FlowSteeringMemory(
        steerable.first_seen,
        traffic.settled,
        rules.held,
        tables.held,
        rules.barred,
        rules.refused,
        rfs.memory,
        {key: each.value for key, each in restores.items()},
        xps.held,
    )
    proposals = [
        *(Proposal(each.key, each.value, _subject(each), each.why) for each in restores.values()),
        *(Proposal(each.key, each.value, _subject(each), _reason(traffic, rules, each)) for each in rules.desired),
        *(Proposal(each.key, each.value, _subject(each), _reason(traffic, rules, each)) for each in tables.desired),
        *(Proposal(each.key, each.value, _subject(each), _reason(traffic, rules, each)) for each in xps.desired),
        *(
            Proposal(key, value, "RFS", rfs.sentence)
            for key, value in rfs.values.items()
            if rfs.present.get(key) != value
        ),
    ]
    return Decision(
        _sentence(traffic, rules, tables, rfs),
        after,
        proposals,
        _skipped(traffic, rfs).skipped(),
        frozenset(restores),
    )


_WaitingFlow: TypeAlias = tuple[HeavyFlow, Consumer, float]
"""A heavy flow with a clearly nearer queue, its process, and the gain in distance."""


class _Steerable:
    """The heavy flows of processes that stay on their CPUs.

    held: those that have rules, by key; candidates: others that are old enough, the greatest gain first; entries: RSS
    entries of all without a rule, by netdev. first_seen: of the MOST_TRACKED others with the greatest gain.
    """

    def __init__(self, traffic: Traffic, memory: FlowSteeringMemory) -> None:
        self.held: dict[str, SteerableFlow] = {}
        self.entries: dict[str, set[int]] = {name: set() for name in _steerable_netdevs(traffic)}
        self._waiting: dict[int, list[_WaitingFlow]] = defaultdict(list)
        """By a coarse rank of the gain, so that fluctuations do not change who waits."""
        held_keys = {rule.flow for rule in memory.rules.values()}
        holders = {(rule.pid, rule.started_ticks) for rule in memory.rules.values()}
        for consumer in traffic.consumers:
            flows = consumer.task.flows
            if (consumer.task.pid, consumer.task.started_ticks) in holders:
                flows = self._without_held(consumer, held_keys)
            if consumer.fixed:
                self._add(traffic, consumer, flows)
        self.first_seen: dict[str, float] = {}
        self.candidates: list[SteerableFlow] = []
        reordering_ns = REORDERING_NS / traffic.spec.dwell_s
        waiting = chain.from_iterable(self._waiting[rank] for rank in sorted(self._waiting, reverse=True))
        for flow, consumer, gain in islice(waiting, MOST_TRACKED):
            key = flow_key(flow)
            since_s = self.first_seen[key] = memory.first_seen.get(key, traffic.now)
            if consumer.settled and traffic.now - since_s >= traffic.spec.dwell_s:
                gain_ns = traffic.costs.distance_ns(flow.rx_bytes_per_s, gain) - reordering_ns
                self.candidates.append(SteerableFlow(key, flow, consumer, gain_ns))
        self.candidates.sort(key=lambda each: (-each.gain_ns, each.key))

    def _without_held(self, consumer: Consumer, held_keys: set[str]) -> list[HeavyFlow]:
        """Add the flows of a process that have rules to held; return the others."""
        others = []
        for flow in consumer.task.flows:
            if flow.netdev in self.entries and (key := flow_key(flow)) in held_keys:
                self.held[key] = SteerableFlow(key, flow, consumer, 0.0)
            else:
                others.append(flow)
        return others

    def _add(self, traffic: Traffic, consumer: Consumer, flows: Iterable[HeavyFlow]) -> None:
        """Add the entries of heavy flows, and those with a clearly nearer queue to what waits."""
        reach, least, cpus_by_queue = consumer.reach, traffic.least_flow, traffic.cpus_by_queue
        last = ""
        for flow in flows:
            name, bytes_per_s = flow.netdev, flow.rx_bytes_per_s
            if bytes_per_s < least or name not in self.entries:
                continue
            if name != last:  # most processes receive by one netdev
                entries, cpus, nearest, last = self.entries[name], cpus_by_queue[name], consumer.nearest[name], name
            if (entry := flow.rss_entry) is not None:
                entries.add(entry)
            cpu = cpus.get(flow.queue, flow.cpu)
            if cpu is not None and cpu < len(reach) and (gain := reach[cpu] - nearest) >= MIN_GAIN:
                self._waiting[int(gain * bytes_per_s).bit_length()].append((flow, consumer, gain))


def _steerable_netdevs(traffic: Traffic) -> list[str]:
    spec = traffic.spec
    return [
        name
        for name, netdev in traffic.netdevs.items()
        if (spec.rss_table and netdev.rss and netdev.rss_entries) or why_no_rules(netdev, spec.max_rules) is None
    ]


def _subject(desired: DesiredValue) -> str:
    return desired.key.split("/")[1] if desired.consumer is None else desired.consumer.name


def _reason(traffic: Traffic, rules: Rules, desired: DesiredValue) -> str:
    """Return the reason for a value with the share and the costs of its process, and the slots that are left."""
    if desired.consumer is None:
        return f"{desired.why}."
    name = desired.key.split("/")[1]
    if "/flow-rule/" in desired.key:
        table = traffic.netdevs[name].flow_rules
        size = table.size if table is not None else 0
        slots = f" {rules.free.get(name, 0)} of {size} slots of {name} stay free."
    else:
        slots = ""
    return f"{desired.consumer.shares()}: {desired.why}.{slots} Estimated cost: {traffic.describe(desired.consumer)}."


def _restores(
    memory: FlowSteeringMemory, rules: Rules, tables: Tables, rfs: RfsRound, xps: XpsRound
) -> dict[str, DesiredValue]:
    """Return by key the values from before the policy that this round and earlier ones restore."""
    earlier = [DesiredValue(key, value, None, "The policy gave it up.") for key, value in memory.restoring.items()]
    why_rfs = "It is not in the policy's scope any more." if rfs.values else rfs.sentence
    of_rfs = [DesiredValue(key, value, None, why_rfs) for key, value in rfs.originals.items()]
    return {each.key: each for each in (*earlier, *rules.restores, *tables.restores, *of_rfs, *xps.restores)}


def _is_restorable(view: View, key: str, original: str) -> bool:
    """Return whether a setting still has another value than its original, which nothing else has written since."""
    if "/flow-rule/" in key:
        rule = find_rule(view.inventory.netdev(key.split("/")[1]), key)
        return rule is not None and rule.ours
    try:
        present = parse_setting(key).current(view)
    except SettingError:
        return False
    return present is not None and present != original


def _sentence(traffic: Traffic, rules: Rules, tables: Tables, rfs: RfsRound) -> str:
    many, total = len(traffic.consumers), traffic.bytes_per_s
    least = format_rate(traffic.spec.min_bytes_per_s)
    if not many and not traffic.unplaced:
        return f"No process in scope receives {least} or more."
    parts = []
    if many:
        near = sum(consumer.near for consumer in traffic.consumers)
        moved = sum(consumer.moved for consumer in traffic.consumers)
        shares = f"{100 * near / total:.0f} % → {100 * (near + moved) / total:.0f} %"
        in_force = sum(held.missing_s is None for held in rules.held.values())
        parts.append(
            f"{many} of {len(traffic.view.tasks)} processes receive {least} or more: {shares} of their bytes polled "
            f"within their L2; {in_force} flow rules, {tables.moved} RSS entries moved."
        )
    if traffic.unplaced:
        rate = format_rate(sum(per_s for _, per_s in traffic.unplaced))
        parts.append(f"{rate} more arrive over sockets whose queue is unknown, as of UDP: only RFS serves them.")
    return " ".join([*parts, rfs.sentence]).strip()


def _skipped(traffic: Traffic, rfs: RfsRound) -> SkippedGroups:
    """Return why no flow of a process changes its queue in this round."""
    groups = SkippedGroups(name_tasks)
    for consumer in traffic.consumers:
        if consumer.moved:
            continue
        per_s = consumer.rx_bytes_per_s
        near, protocol = 100 * consumer.near / per_s, 100 * consumer.near_protocol / per_s
        figures = (near, per_s, protocol, 100.0 if rfs.values else near if rfs.originals else protocol)
        if not consumer.fixed:
            why = Reason(_FREE, figures)
        elif not consumer.settled:
            why = Reason(_YOUNG, figures, (f"{traffic.spec.dwell_s:.0f}",))
        else:
            why = Reason(_FIXED, figures)
        groups.add(consumer.task.name, consumer.task.pid, why)
    return groups


KIND = PolicyKind(FlowSteering, FlowSteeringMemory, decide)
