"""Model which receive queue and CPU the flows of tasks have after a change of flow rules or RFS."""

from collections.abc import Mapping
from ipaddress import ip_address

from msgspec.structs import replace

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import FlowRuleTable, Inventory, Netdev, Queue, RssContext
from coresteer_core.node.tasks import HeavyFlow, NetTask, RxPlacement
from coresteer_core.settings.flow_rule_index import FlowRuleIndex
from coresteer_core.settings.flow_rule_text import parse_rule

RFS_TABLE = "kernel/rps_sock_flow_entries"


def rfs_queues(inventory: Inventory, netdev: Netdev) -> frozenset[str]:
    """Return the receive queues whose packets RFS passes to the CPU that reads them: both tables have entries."""
    if inventory.settings.get(RFS_TABLE, "0") == "0":
        return frozenset()
    return frozenset(queue.name for queue in netdev.queues if queue.params.get("rps_flow_cnt", "0") != "0")


def with_rules(table: FlowRuleTable | None, values: Mapping[int, str]) -> FlowRuleTable | None:
    """Return a NIC's table after Coresteer has set these rules (by location, empty: deleted)."""
    if table is None or not values:
        return table
    rules = [rule for rule in table.rules if rule.location not in values]
    rules += [parse_rule(value).row(location, ours=True) for location, value in values.items() if value]
    return replace(table, rules=sorted(rules, key=lambda rule: rule.location))


def with_contexts(contexts: list[RssContext] | None, values: Mapping[int, str]) -> list[RssContext] | None:
    """Return a NIC's RSS contexts after Coresteer has set these patterns (by number, empty: deleted)."""
    if contexts is None or not values:
        return contexts
    after = [each for each in contexts if each.number not in values]
    after += [RssContext(number, value, ours=True) for number, value in values.items() if value]
    return sorted(after, key=lambda each: each.number)


def steer_flows(tasks: list[NetTask], inventory: Inventory, netdevs: Mapping[str, Netdev]) -> list[NetTask]:
    """Return tasks with their flows on the queues that the flow rules of an inventory select, and with its RFS.

    netdevs: by name, those of which rules or RFS changed; flows on others stay. A flow without a rule is where the RSS
    table sends it, if its entry is known.
    """
    rules = {name: _rules(netdev) for name, netdev in netdevs.items()}
    rfs = {name: rfs_queues(inventory, netdev) for name, netdev in netdevs.items()}
    return [_steer(task, inventory, netdevs, rules, rfs) for task in tasks]


def _rules(netdev: Netdev) -> FlowRuleIndex[int]:
    """Return the receive queues of flows by the rules that name one; those of an RSS context depend on its hash."""
    found = FlowRuleIndex[int]()
    for each in netdev.flow_rules.rules if netdev.flow_rules is not None else []:
        if each.value:
            rule = parse_rule(each.value)
            if rule.action is not None:
                found.add(each.location, rule, rule.action)
    return found


def _steer(
    task: NetTask,
    inventory: Inventory,
    netdevs: Mapping[str, Netdev],
    rules: Mapping[str, FlowRuleIndex[int]],
    rfs: Mapping[str, frozenset[str]],
) -> NetTask:
    placements = list(task.rx_placements)
    flows = []
    for flow in task.flows:
        netdev = netdevs.get(flow.netdev)
        queue, how = _queue_of(flow, netdev, rules[netdev.name]) if netdev is not None else (None, None)
        if queue is None or queue.name == flow.queue:
            flows.append(flow)
            continue
        irq = inventory.irq(queue.irq) if queue.irq is not None else None
        cpus = parse_cpu_list((irq.effective or irq.requested or "") if irq is not None else "")
        cpu = min(cpus) if len(cpus) == 1 else None
        flows.append(replace(flow, queue=queue.name, cpu=cpu))
        _move(placements, flow, RxPlacement(flow.netdev, queue.name, queue.irq, cpu, how, 1, flow.rx_bytes_per_s, 0.0))
    placements = [
        replace(each, rfs=each.queue in rfs[each.netdev]) if each.netdev in rfs and each.queue is not None else each
        for each in placements
    ]
    return replace(task, rx_placements=placements, flows=flows)


def _queue_of(flow: HeavyFlow, netdev: Netdev, rules: FlowRuleIndex[int]) -> tuple[Queue | None, str]:
    action = _ruled(flow, rules)
    how = "rss" if action is None else "rule"
    if action is None and netdev.rss is not None and flow.rss_entry is not None:
        table = netdev.rss.split(",")
        action = int(table[flow.rss_entry % len(table)])
    return next((queue for queue in netdev.queues if queue.name == f"rx-{action}"), None), how


def _ruled(flow: HeavyFlow, rules: FlowRuleIndex[int]) -> int | None:
    """Return the receive queue that the rules of a NIC select for a flow; None if none matches it."""
    try:
        peer, local = ip_address(flow.peer), ip_address(flow.local)
    except ValueError:
        return None  # not an IP address: no rule can match
    ports = flow.peer_port.to_bytes(2, "big") + flow.local_port.to_bytes(2, "big")
    return rules.find(f"{flow.protocol}{local.version}", peer.packed, local.packed, ports)


def _move(placements: list[RxPlacement], flow: HeavyFlow, to: RxPlacement) -> None:
    """Move a flow's received bytes from the placement of its queue to another one, as far as they are in it."""
    index = next(
        (i for i, each in enumerate(placements) if (each.netdev, each.queue) == (flow.netdev, flow.queue)), None
    )
    if index is None:
        return
    left = placements[index]
    moved = min(flow.rx_bytes_per_s, left.rx_bytes_per_s)
    sockets = max(0, left.sockets - 1)
    if sockets == 0:
        placements[index] = replace(to, tx_bytes_per_s=left.tx_bytes_per_s, rx_bytes_per_s=left.rx_bytes_per_s)
        return
    placements[index] = replace(left, sockets=sockets, rx_bytes_per_s=left.rx_bytes_per_s - moved)
    placements.append(replace(to, rx_bytes_per_s=moved))
