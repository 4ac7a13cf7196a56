"""Rules for messages about a node that relate several fields; each returns what is wrong, or None.

Each function returns a sentence that says what is wrong, or None.
"""

import socket
from collections import Counter
from collections.abc import Iterable
from ipaddress import ip_address

import numpy as np

from coresteer.gateway.setting_validation import invalid_params, invalid_value
from coresteer_core.node import nic
from coresteer_core.node.inventory import MAX_QUEUES
from coresteer_core.node.rates import ABSENT_SHARE, CPU_COUNTS, CPU_SHARES, SHARES_PER_UNIT
from coresteer_core.node.tasks import MAX_CLIENTS, MAX_HEAVY_FLOWS, MAX_PORTS, MAX_RX_PLACEMENTS
from coresteer_core.protocol import (
    ClassesMessage,
    FlowsMessage,
    InventoryMessage,
    LearnedMessage,
    RatesMessage,
    TopologyMessage,
)
from coresteer_core.settings import MACHINE_SETTINGS
from coresteer_core.settings.flow_rule_text import FlowRuleError, parse_rule

_INVALID_SHARE = bytes(set(range(256)) - set(range(SHARES_PER_UNIT + 1)) - {ABSENT_SHARE})
_VALID_SHARE = bytes(set(range(256)) - set(_INVALID_SHARE))


def invalid_columns(message: RatesMessage) -> str | None:
    """Return which column of a sample does not have one element per CPU, or a share outside 0 to 100 %, else None."""
    rates = message.rates
    for name in CPU_SHARES:
        share = rates.shares.get(name)
        if share is None:
            continue
        if len(share) != rates.cpus:
            return f"{name} has {len(share)} bytes for {rates.cpus} CPUs."
        if invalid := share.translate(None, _VALID_SHARE):
            return f"{name} contains {invalid[0]}; a share is 0 to {SHARES_PER_UNIT}, or {ABSENT_SHARE} for unknown."
    for name in CPU_COUNTS:
        count = rates.counts.get(name)
        if count is not None and len(count) != 4 * rates.cpus:
            return f"{name} has {len(count)} bytes for {rates.cpus} CPUs, four each."
    return None


def invalid_cells(message: RatesMessage) -> str | None:
    """Return why irq_ids, irq_cpus and irq_counts do not match, None if they do.

    All are absent, or all have as many elements, and no pair of IRQ and CPU is listed twice.
    """
    rates = message.rates
    ids, cpus, counts = rates.irq_ids, rates.irq_cpus, rates.irq_counts
    if ids is None or cpus is None or counts is None:
        return None if ids is cpus is counts else "only some of irq_ids, irq_cpus and irq_counts are present."
    cells = len(ids) // 4
    if (len(ids), len(cpus), len(counts)) != (4 * cells, 2 * cells, 4 * cells):
        return f"irq_ids, irq_cpus and irq_counts have {len(ids)}, {len(cpus)} and {len(counts)} bytes; cells differ."
    keys = np.frombuffer(ids, "<u4").astype(np.uint64) << np.uint64(16) | np.frombuffer(cpus, "<u2")
    return None if len(np.unique(keys)) == cells else "an interrupt cell is listed twice."


def duplicate_netdev(message: RatesMessage) -> str | None:
    """Return which netdev a sample contains twice, None if none."""
    return _duplicate("netdev", (netdev.name for netdev in message.rates.netdevs or ()))


def duplicate_cpu(message: TopologyMessage) -> str | None:
    """Return which CPU a topology lists twice, None if none."""
    return _duplicate("CPU", (cpu.cpu for cpu in message.topology.cpus))


def duplicate_irq(message: InventoryMessage) -> str | None:
    """Return which IRQ an inventory lists twice, None if none."""
    return _duplicate("IRQ", (irq.irq for irq in message.inventory.irqs))


def too_many_queues(message: InventoryMessage) -> str | None:
    """Return that an inventory has too many queues over all netdevs, else None."""
    return _too_many("queues", sum(len(netdev.queues) for netdev in message.inventory.netdevs), MAX_QUEUES)


def invalid_netdev_settings(message: InventoryMessage) -> str | None:
    """Return which speed or setting of a netdev is invalid, None if none."""
    for netdev in message.inventory.netdevs:
        if netdev.speed_bits_per_s == 0:
            return f"{netdev.name[:40]} has a speed of 0 bit/s; send None for an unknown speed."
        values = (("channels", netdev.channels), ("channels", netdev.channels_max), ("rss", netdev.rss))
        for name, value in values:
            if value is not None and (wrong := invalid_value(f"netdev/eth0/{name}", value)):
                return wrong
        for rule in netdev.flow_rules.rules if netdev.flow_rules is not None else []:
            if rule.text and (wrong := _invalid_flow_rule(rule.text)):
                return wrong
        for context in netdev.rss_contexts or []:
            if wrong := invalid_value("netdev/eth0/rss", context.rss):
                return wrong
    netdevs = message.inventory.netdevs
    queues = [queue for netdev in netdevs for queue in netdev.queues if queue.params]
    return (
        invalid_params("netdev/eth0", (params for netdev in netdevs for params in (netdev.params, netdev.params_max)))
        or invalid_params("netdev/eth0/rx-0", (queue.params for queue in queues if queue.name.startswith("rx-")))
        or invalid_params("netdev/eth0/tx-0", (queue.params for queue in queues if queue.name.startswith("tx-")))
    )


def invalid_machine_settings(message: InventoryMessage) -> str | None:
    """Return which known setting of the machine has an invalid value, None if none.

    Unknown keys of newer agents are accepted.
    """
    values = message.inventory.settings.items()
    known = ((key, value) for key, value in values if key in MACHINE_SETTINGS)
    return next((wrong for key, value in known if (wrong := invalid_value(key, value))), None)


def invalid_addresses(message: InventoryMessage) -> str | None:
    """Return which IP address of a netdev, or network of the limits, is none; None if all are valid."""
    try:
        for netdev in message.inventory.netdevs:
            for address in netdev.addresses:
                ip_address(address)
    except ValueError as error:
        return f"{error}."
    return message.inventory.limits.invalid()


def too_many_points(message: LearnedMessage) -> str | None:
    """Return that NIC observations have too many netdevs, or too many points of one, else None."""
    points = Counter(point.netdev for point in message.learned.points)
    return _too_many("netdevs with points", len(points), nic.MAX_NETDEVS) or _too_many(
        "points of one netdev", max(points.values(), default=0), nic.MAX_POINTS
    )


def too_many_flows(message: FlowsMessage) -> str | None:
    """Return that the tasks have too many RX placements, flows, ports or clients in total, else None."""
    tasks = message.tasks
    return (
        _too_many("RX placements", sum(len(task.rx_placements) for task in tasks), MAX_RX_PLACEMENTS)
        or _too_many("flows", sum(len(task.flows) for task in tasks), MAX_HEAVY_FLOWS)
        or _too_many("ports", sum(len(task.listens) for task in tasks), MAX_PORTS)
        or _too_many("clients", sum(len(task.clients) for task in tasks), MAX_CLIENTS)
    )


def invalid_flow_addresses(message: FlowsMessage) -> str | None:
    """Return which address of a flow is no IP address; None if all are."""
    try:
        for address in {each for task in message.tasks for flow in task.flows for each in (flow.local, flow.peer)}:
            if not _is_ipv4(address):
                ip_address(address)
    except ValueError as error:
        return f"{error}."
    return None


def invalid_task_settings(message: FlowsMessage) -> str | None:
    """Return which setting of a task or cgroup has an invalid value, None if none."""
    tasks = [*message.tasks, *(message.numa.tasks if message.numa is not None else ())]
    return invalid_params("task/1", (task.params for task in tasks)) or invalid_params(
        "cgroup/group", message.cgroups.values()
    )


def duplicate_class(message: ClassesMessage) -> str | None:
    """Return which service class a report lists twice, None if none."""
    return _duplicate("service class", (figures.name for figures in message.classes))


def _invalid_flow_rule(value: str) -> str | None:
    try:
        parse_rule(value)
    except FlowRuleError as error:
        return str(error)
    return None


def _is_ipv4(address: str) -> bool:
    """Return whether an address is one of IPv4; ip_address() takes longer, and a node has thousands of addresses."""
    try:
        socket.inet_pton(socket.AF_INET, address)
    except (OSError, ValueError):
        return False
    return True


def _duplicate(kind: str, names: Iterable[object]) -> str | None:
    seen = list(names)
    if len(set(seen)) == len(seen):
        return None
    name = next(name for name, times in Counter(seen).items() if times > 1)
    return f"the {kind} {name!s:.40} is listed twice."


def _too_many(kind: str, number: int, most: int) -> str | None:
    return f"{number} {kind} exceed the limit of {most}." if number > most else None
