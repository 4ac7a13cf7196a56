"""Simulated NUMA state: memory of nodes, and of the busiest processes, some of it on other nodes than their CPUs."""

from collections.abc import Mapping, Sequence

from coresteer_agent.simulate.machine import Machine
from coresteer_agent.simulate.net_tasks import cgroup_of
from coresteer_agent.simulate.seeded_random import seeded_random
from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.numa import NodeMemory, NumaState, NumaTask
from coresteer_core.node.tasks import Task

_MIB = 1 << 20
_KERNEL = "ksoftirqd"
_PAGES_PER_S = 4000.0
_UNKNOWN = "A simulated node has neither resctrl nor performance counters."


def numa_state(
    machine: Machine, tasks: Sequence[Task], affinities: Mapping[int, str], shares: Mapping[int, Mapping[int, float]]
) -> NumaState | None:
    """Return the NUMA state of a machine, None where it has a single node.

    tasks: the busiest. affinities: CPU lists by PID. shares: of a process's memory by node, where pages were moved.
    """
    topology = machine.topology
    nodes = [node.id for node in topology.numa_nodes]
    if len(nodes) < 2:
        return None
    everything = format_cpu_list(topology.online())
    made = []
    for task in tasks:
        if task.name == _KERNEL:
            continue
        own = seeded_random("memory", machine.seed, task.pid)
        size = own.randrange(64, 1500) * _MIB
        first, other, part = own.choice(nodes), own.choice(nodes), own.choice((0.0, 0.1, 0.3))
        affinity = affinities.get(task.pid, everything)
        allowed = parse_cpu_list(affinity)
        cpu = task.cpu if task.cpu in allowed else min(allowed)
        node = topology.nodes[cpu]
        split = shares.get(task.pid) or ({first: 1.0 - part, other: part} if first != other else {first: 1.0})
        made.append(
            NumaTask(
                pid=task.pid,
                started_ticks=task.pid,
                name=task.name,
                cgroup=cgroup_of(task.name),
                threads=1,
                affinity=affinity,
                allowed=everything,
                cpu=cpu,
                cpu_share=task.cpu_share,
                rss_bytes=size + 20 * _MIB,
                age_s=86_400.0,
                cpu_nodes={} if node is None else {node: task.cpu_share},
                mems_allowed=format_cpu_list(nodes),
                bytes_by_node={each: round(share * size) for each, share in split.items() if share},
                shared_bytes=20 * _MIB,
                command=task.name,
                unit=f"{task.name}.service",
                params={"nice": "0"},
            )
        )
    return NumaState(
        [_memory(machine, node.id, node.memory_bytes or 0, made) for node in topology.numa_nodes], made, _UNKNOWN
    )


def _memory(machine: Machine, node: int, total: int, tasks: Sequence[NumaTask]) -> NodeMemory:
    own = seeded_random("node memory", machine.seed, node)
    used = sum((task.bytes_by_node or {}).get(node, 0) for task in tasks)
    file_bytes = int(total * own.uniform(0.1, 0.4))
    remote = sum((task.bytes_by_node or {}).get(node, 0) for task in tasks if node not in task.cpu_nodes)
    share = remote / used if used else 0.0
    return NodeMemory(
        node=node,
        total_bytes=total,
        free_bytes=max(0, total - used - file_bytes),
        file_bytes=file_bytes,
        anon_bytes=used,
        local_pages_per_s=_PAGES_PER_S * (1.0 - share),
        remote_pages_per_s=_PAGES_PER_S * share,
    )
