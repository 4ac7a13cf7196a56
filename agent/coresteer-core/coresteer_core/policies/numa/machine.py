"""The machine and its processes as the factors need them, from a View."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.numa import NumaTask
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.numa.factors import Machine, Process

T = TypeVar("T")


def machine_of(view: View, usable: frozenset[int]) -> tuple[Machine, list[frozenset[int]]]:
    """Return all NUMA nodes of a View, and the usable CPUs of each, by index."""
    topology = view.topology
    memory = {each.node: each for each in (view.numa.nodes if view.numa is not None else [])}
    nodes = sorted(topology.numa_nodes, key=lambda node: node.id)
    order = {node.id: index for index, node in enumerate(topology.numa_nodes)}
    power = _power(topology)
    cpus = [parse_cpu_list(node.cpus) & usable for node in nodes]
    return Machine(
        nodes=[node.id for node in nodes],
        distance=[
            [
                node.distances[order[other.id]] / 10 if len(node.distances) == len(nodes) else 1.0 + (node is not other)
                for other in nodes
            ]
            for node in nodes
        ],
        power=[sum(power[cpu] for cpu in own) / len(own) if own else 1.0 for own in cpus],
        bandwidth=[memory[node.id].bandwidth_bytes_per_s if node.id in memory else None for node in nodes],
    ), cpus


def _power(topology: Topology) -> dict[int, float]:
    """Return the capacity of each CPU relative to the strongest one."""
    most = max((cpu.capacity or 0 for cpu in topology.cpus), default=0)
    return {cpu.cpu: cpu.capacity / most if cpu.capacity and most else 1.0 for cpu in topology.cpus}


def process_of(task: NumaTask, machine: Machine, weight: float) -> Process | None:
    """Return what the factors need of a process; None where its memory or its CPUs are unknown."""
    sizes = task.bytes_by_node
    total = sum(sizes.values()) if sizes else 0
    used = sum(task.cpu_nodes.values())
    if sizes is None or not total or not used:
        return None
    return Process(
        cpu_share=task.cpu_share,
        cpus=tuple([task.cpu_nodes.get(node, 0.0) / used for node in machine.nodes]),
        pages=tuple([sizes.get(node, 0) / total for node in machine.nodes]),
        memory_bound=task.memory_bound,
        bytes_per_s=task.bytes_per_s,
        weight=weight,
    )


def rule_for(task: NumaTask, rules: Mapping[str, T]) -> T | None:
    """Return the value of the first pattern that matches a process's name, cgroup or unit; None without one."""
    if not rules:
        return None
    names = [name for name in (task.name, task.cgroup, task.unit) if name]
    return next((value for pattern, value in rules.items() if any(fnmatchcase(n, pattern) for n in names)), None)
