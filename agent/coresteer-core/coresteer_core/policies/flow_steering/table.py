"""The RSS table: entries with heavy flows go to the queue nearest to the processes of these; the others stay."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from math import inf
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.node.inventory import Netdev
from coresteer_core.node.tasks import HeavyFlow
from coresteer_core.policies.flow_steering.memory import FlowSteeringMemory, HeldEntry, HeldTable
from coresteer_core.policies.flow_steering.rules import DesiredValue, SteerableFlow
from coresteer_core.policies.flow_steering.traffic import MAX_MOVES, MIN_GAIN, Consumer, Traffic, flow_key
from coresteer_core.settings.netdev import RssTable

EntryFlow: TypeAlias = tuple[HeavyFlow, Consumer]


class HeavyEntries(Struct, frozen=True):
    """The RSS entries, by netdev, with heavy flows of processes that stay on their CPUs. with_rules: flows that have
    rules, by key, which do not count.
    """

    entries: Mapping[str, AbstractSet[int]]
    with_rules: Mapping[str, SteerableFlow]

    def flows(self, traffic: Traffic, netdev: str, wanted: AbstractSet[int]) -> dict[int, list[EntryFlow]]:
        """Return the heavy flows of a few entries, by entry: most entries stay, and nobody needs their flows."""
        found: dict[int, list[EntryFlow]] = {entry: [] for entry in wanted}
        for consumer in traffic.consumers if wanted else ():
            for flow in consumer.task.flows if consumer.fixed else ():
                entry = flow.rss_entry
                if entry not in found or flow.netdev != netdev or flow.rx_bytes_per_s < traffic.least_flow:
                    continue
                with_rule = self.with_rules.get(flow_key(flow))
                if with_rule is None or with_rule.consumer is not consumer:
                    found[entry].append((flow, consumer))
        return found


class Tables(Struct):
    """What a round decides about RSS tables. moved: number of entries that the policy gave to other queues."""

    held: dict[str, HeldTable]
    desired: list[DesiredValue]
    restores: list[DesiredValue]
    moved: int = 0


def decide_tables(
    traffic: Traffic,
    memory: FlowSteeringMemory,
    flows: Iterable[SteerableFlow],
    heavy: HeavyEntries,
) -> Tables:
    """Return the tables of this round. flows: those that are to be steered."""
    found = Tables({}, [], [])
    gains: dict[str, dict[int, float]] = {}
    for each in flows:
        if each.flow.rss_entry is not None and each.gain_ns > 0:
            of_netdev = gains.setdefault(each.flow.netdev, {})
            of_netdev[each.flow.rss_entry] = of_netdev.get(each.flow.rss_entry, 0.0) + each.gain_ns
    for name in {**memory.tables, **gains}:
        netdev = traffic.netdevs.get(name)
        if netdev is None and name in memory.tables:  # the table of one that is gone cannot be restored
            why = f"{name} is not in the policy's scope any more."
            found.restores.append(DesiredValue(f"netdev/{name}/rss", memory.tables[name].original, None, why))
        if netdev is None or netdev.rss is None or not netdev.rss_entries:
            continue
        before = memory.restoring.get(f"netdev/{name}/rss", netdev.rss)
        was = memory.tables.get(name) or HeldTable(before)
        has = {queue.name for queue in netdev.queues}
        queues = set(was.original.split(","))
        if any(f"rx-{queue}" not in has for queue in queues) or not queues.issuperset(netdev.rss.split(",")):
            was = HeldTable(netdev.rss)  # its number of queues has changed, and its table with it
        _decide_table(_TableRound(traffic, netdev, was, gains.get(name, {}), heavy), found)
    return found


class _TableRound(Struct):
    """One table in one round. gains: CPU time in ns per second that entries may save."""

    traffic: Traffic
    netdev: Netdev
    was: HeldTable
    gains: Mapping[int, float]
    heavy: HeavyEntries


def _decide_table(one: _TableRound, found: Tables) -> None:
    traffic, netdev, was = one.traffic, one.netdev, one.was
    name, entries = netdev.name, netdev.rss_entries or 0
    try:
        original, present = RssTable.table(was.original, entries), RssTable.table(netdev.rss or "0", entries)
    except ValueError:
        return  # the table became shorter, or is none
    cpus = {queue: traffic.queues[name][queue] for queue in set(original) if queue in traffic.queues[name]}
    held = _kept(one, entries, cpus) if traffic.spec.rss_table else {}
    desired = _moves(one, original, held, cpus) if held or one.gains else []
    table = list(original)
    for entry, each in held.items():
        table[entry] = each.queue
    if held:
        found.held[name] = HeldTable(was.original, held)
        found.moved += len(held)
    if table == present:
        return
    key = f"netdev/{name}/rss"
    if table == original:
        found.restores.append(DesiredValue(key, was.original, None, "Its entries have no heavy flows any more."))
        return
    first = desired[0] if desired else DesiredValue(key, "", None, f"{len(held)} of its {entries} entries go elsewhere")
    more = f", and {len(desired) - 1} entries more" if len(desired) > 1 else ""
    found.desired.append(replace(first, value=RssTable.pattern(table), why=f"{first.why}{more}"))


def _kept(one: _TableRound, entries: int, cpus: Mapping[int, int]) -> dict[int, HeldEntry]:
    """Return the held entries whose queue is still there, except those without a heavy flow for dwell_s."""
    now, held = one.traffic.now, dict[int, HeldEntry]()
    in_use = one.heavy.entries.get(one.netdev.name, frozenset[int]())
    for entry, each in one.was.entries.items():
        if entry >= entries or each.queue not in cpus:
            continue
        if entry in in_use:
            held[entry] = each if each.gone_s is None else replace(each, gone_s=None)
        elif each.gone_s is None:
            held[entry] = replace(each, gone_s=now)
        elif now - each.gone_s <= one.traffic.spec.dwell_s:
            held[entry] = each
    return held


def _moves(
    one: _TableRound, original: list[int], held: dict[int, HeldEntry], cpus: dict[int, int]
) -> list[DesiredValue]:
    """Give entries to nearer queues, those that save most first; at most MAX_MOVES. Changes held."""
    traffic, name, now = one.traffic, one.netdev.name, one.traffic.now
    if not traffic.spec.rss_table:
        return []
    waiting = sorted(
        (-gain_ns, entry)
        for entry, gain_ns in one.gains.items()
        if entry < len(original) and (entry not in held or now - held[entry].moved_s >= traffic.spec.dwell_s)
    )
    desired: list[DesiredValue] = []
    tried = traffic.turns(waiting)
    flows_by_entry = one.heavy.flows(traffic, name, {entry for _, entry in tried})
    for _, entry in tried:
        if len(desired) == MAX_MOVES:
            break
        flows = flows_by_entry[entry]
        queue = held[entry].queue if entry in held else original[entry]
        best = _best(traffic, flows, cpus, cpus.get(queue))
        if best is None:
            continue
        held[entry] = HeldEntry(best, now)
        _, consumer = max(flows, key=lambda each: each[0].rx_bytes_per_s)
        why = f"entry {entry} of the RSS table of {name} goes to rx-{best} on CPU {cpus[best]} instead of rx-{queue}"
        desired.append(DesiredValue(f"netdev/{name}/rss", "", consumer, why))
    return desired


def _best(traffic: Traffic, flows: list[EntryFlow], cpus: dict[int, int], present: int | None) -> int | None:
    """Return the queue with the least mean distance from the processes of these flows that has room, and takes it.

    None where none is clearly nearer than the CPU that polls the entry now (present).
    """
    total = sum([flow.rx_bytes_per_s for flow, _ in flows])
    need = traffic.room.need(present, total)
    weights = [(flow.rx_bytes_per_s / total, consumer.reach) for flow, consumer in flows]
    queues = list(cpus.items())

    limit = inf if present is None else sum([weight * reach[present] for weight, reach in weights]) - MIN_GAIN
    rows = [[weight * reach[cpu] for _, cpu in queues] for weight, reach in weights]
    means = map(sum, zip(*rows, strict=True))
    found = [
        (mean, traffic.room.load(cpu) or 0.0, queue)
        for (queue, cpu), mean in zip(queues, means, strict=True)
        if mean <= limit and traffic.room.fits(cpu, need)
    ]
    if not found:
        return None
    *_, queue = min(found)
    traffic.room.take(present, cpus[queue], need)
    for flow, consumer in flows:
        consumer.move(flow.rx_bytes_per_s, traffic.polled_on(flow), cpus[queue])
    return queue
