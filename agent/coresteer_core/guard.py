"""What no plan may do, and what a person should know first. Checked in preview and again before each write."""

from msgspec import Struct

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.model import Irq, View
from coresteer_core.settings import parse_setting

MAX_MOVES = 64
"""Actions in one plan: enough for every queue of a large NIC, too few for a runaway program."""


class Refusal(Struct, frozen=True):
    """Why a setting is not written. code: invalid, unknown, unsupported, offline, isolated, managed, too_many."""

    code: str
    key: str
    sentence: str


class Warned(Struct, frozen=True):
    """What somebody should know. code: other_numa_node, smt_sibling, isolated, management, one_core, controller."""

    code: str
    key: str
    sentence: str


def refusals(view: View, wanted: list[tuple[str, str]], *, allow_isolated: bool) -> list[Refusal]:
    """Reasons against writing (key, canonical value) pairs on a node; empty when they may be written."""
    found: list[Refusal] = []
    if len(wanted) > MAX_MOVES:
        found.append(
            Refusal(
                "too_many",
                "",
                f"{len(wanted)} settings at once are more than the {MAX_MOVES} one plan may change.",
            )
        )
    online = view.topology.online()
    isolated = parse_cpu_list(view.topology.isolated) | parse_cpu_list(view.topology.nohz_full)
    for key, value in wanted:
        setting = parse_setting(key)
        cpus = setting.cpus(value)
        irq = view.inventory.irq(setting.irq)
        if irq is not None and irq.movable is False:
            why = irq.locked_reason or "The kernel keeps its affinity to itself."
            found.append(Refusal("managed", key, f"IRQ {setting.irq} cannot be moved. {why}"))
        if away := cpus - online:
            found.append(
                Refusal(
                    "offline",
                    key,
                    f"{_cpus(away)} {_is(away)} not online on this node; it has {_cpus(online)}.",
                )
            )
        if (touched := cpus & isolated) and not allow_isolated:
            found.append(
                Refusal(
                    "isolated",
                    key,
                    f"{_cpus(touched)} {_is(touched)} kept free by isolcpus or nohz_full; "
                    "allow isolated CPUs in this plan if that is what you want.",
                )
            )
    return found


def warnings(view: View, wanted: list[tuple[str, str]], *, allow_isolated: bool) -> list[Warned]:
    """What a person should know before writing (key, canonical value) pairs."""
    found: list[Warned] = []
    isolated = parse_cpu_list(view.topology.isolated) | parse_cpu_list(view.topology.nohz_full)
    after = {parse_setting(key).irq: parse_setting(key).cpus(value) for key, value in wanted}
    for key, _ in wanted:
        setting = parse_setting(key)
        irq = view.inventory.irq(setting.irq)
        if irq is None:
            continue
        cpus = after[setting.irq]
        if allow_isolated and (touched := cpus & isolated):
            found.append(
                Warned("isolated", key, f"{_cpus(touched)} {_is(touched)} kept free by isolcpus or nohz_full.")
            )
        found += _placement(view, key, irq, cpus, after)
        if view.inventory.controllers:
            who = " and ".join(view.inventory.controllers)
            found.append(Warned("controller", key, f"{who} runs on this node and may move the interrupt again."))
    return found


def _placement(view: View, key: str, irq: Irq, cpus: frozenset[int], after: dict[int, frozenset[int]]) -> list[Warned]:
    found: list[Warned] = []
    netdev = next((n for n in view.inventory.netdevs if n.name == irq.netdev), None)
    home = netdev.numa_node if netdev is not None else irq.numa_node
    if home is not None and len(view.topology.numa_nodes) > 1:
        foreign = {c.cpu for c in view.topology.cpus if c.cpu in cpus and c.numa_node not in (None, home)}
        if foreign:
            device = irq.netdev or f"IRQ {irq.irq}'s device"
            found.append(
                Warned(
                    "other_numa_node",
                    key,
                    f"{_cpus(foreign)} {_is(foreign)} on another NUMA node than {device} (node {home}).",
                )
            )
    if netdev is None:
        return found
    if netdev.management:
        found.append(
            Warned(
                "management",
                key,
                f"{netdev.name} carries this node's management connection; the change undoes itself if it is lost.",
            )
        )
    others = _other_queues(view, netdev.name, irq.irq, after)
    if shared := {cpu for cpu in _siblings(view, cpus) - cpus if any(cpu in o for o in others)}:
        found.append(
            Warned(
                "smt_sibling",
                key,
                f"{_cpus(shared)} shares a core with {_cpus(cpus)} and serves another queue of {netdev.name}.",
            )
        )
    if len(cpus) == 1 and others and all(o == cpus for o in others):
        found.append(
            Warned(
                "one_core",
                key,
                f"All {len(others) + 1} interrupts of {netdev.name} would be served by {_cpus(cpus)} alone.",
            )
        )
    return found


def _other_queues(view: View, netdev: str, but: int, after: dict[int, frozenset[int]]) -> list[frozenset[int]]:
    """Where the netdev's other queue interrupts land once the plan is applied."""
    lands = []
    for other in view.inventory.irqs:
        if other.netdev != netdev or other.irq == but or not other.queues:
            continue
        if other.irq in after:
            lands.append(after[other.irq])
        elif where := other.effective or other.requested:
            lands.append(parse_cpu_list(where))
    return lands


def _siblings(view: View, cpus: frozenset[int]) -> frozenset[int]:
    return frozenset().union(*(parse_cpu_list(c.siblings) for c in view.topology.cpus if c.cpu in cpus))


def _cpus(cpus: frozenset[int] | set[int]) -> str:
    return f"CPU{'s' if len(cpus) > 1 else ''} {format_cpu_list(cpus)}"


def _is(cpus: frozenset[int] | set[int]) -> str:
    return "are" if len(cpus) > 1 else "is"
