"""Simulated NUMA state: memory of nodes, and of the busiest processes, some of it on other nodes than their CPUs."""

from collections.abc import Mapping, Sequence

from coresteer_agent.simulate.cpusets import CgroupValues, effective, list_text
from coresteer_agent.simulate.machine import Machine
from coresteer_agent.simulate.net_tasks import cgroup_of
from coresteer_agent.simulate.seeded_random import seeded_random
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.numa import NodeMemory, NumaState, NumaTask
from coresteer_core.node.tasks import Task

_MIB = 1 << 20
_KERNEL = "ksoftirqd"
_PAGES_PER_S = 4000.0
_NO_RESCTRL = "This simulated node has no resctrl."
_UNKNOWN = "This simulated node has neither resctrl nor performance counters."
_BANDWIDTH_BYTES_PER_S = 60e9


def numa_state(
    machine: Machine,
    tasks: Sequence[Task],
    affinities: Mapping[int, str],
    shares: Mapping[int, Mapping[int, float]],
    values: CgroupValues,
) -> NumaState | None:
    """Return the NUMA state of a machine, None where it has a single node.

    tasks: the busiest. affinities: CPU lists by PID. shares: of a process's memory by node, where pages were moved.
    values: of files of cgroups.
    """
    topology = machine.topology
    if len(topology.numa_nodes) < 2:
        return None
    monitored = has_traffic(machine)
    made = [_task(machine, task, affinities, shares.get(task.pid), values) for task in tasks if task.name != _KERNEL]
    return NumaState(
        [_memory(machine, node.id, node.memory_bytes or 0, made) for node in topology.numa_nodes],
        made,
        None if monitored else _UNKNOWN,
        None if monitored else _NO_RESCTRL,
    )


def _task(
    machine: Machine,
    task: Task,
    affinities: Mapping[int, str],
    moved: Mapping[int, float] | None,
    values: CgroupValues,
) -> NumaTask:
    """Return one process. moved: shares of its memory by node, None where its pages were not moved."""
    topology = machine.topology
    nodes = [node.id for node in topology.numa_nodes]
    own = seeded_random("memory", machine.seed, task.pid)
    size = own.randrange(64, 1500) * _MIB
    first, other, part = own.choice(nodes), own.choice(nodes), own.choice((0.0, 0.1, 0.3))
    split = moved or ({first: 1.0 - part, other: part} if first != other else {first: 1.0})
    group = cgroup_of(task.name)
    cpus = effective(topology.online(), values, group.lstrip("/"), "cpuset.cpus")
    allowed = parse_cpu_list(affinities.get(task.pid, list_text(cpus))) & cpus or cpus
    cpu = task.cpu if task.cpu in allowed else min(allowed)
    node = topology.nodes[cpu]
    monitored = has_traffic(machine)
    return NumaTask(
        pid=task.pid,
        started_ticks=task.pid,
        name=task.name,
        cgroup=group,
        threads=1,
        affinity=list_text(allowed),
        allowed=list_text(cpus),
        cpu=cpu,
        cpu_share=task.cpu_share,
        rss_bytes=size + 20 * _MIB,
        age_s=86_400.0,
        cpu_nodes={} if node is None else {node: task.cpu_share},
        mems_allowed=list_text(effective(nodes, values, group.lstrip("/"), "cpuset.mems")),
        bytes_by_node={each: round(share * size) for each, share in split.items() if share},
        shared_bytes=20 * _MIB,
        command=task.name,
        unit=f"{task.name}.service",
        params={"nice": "0"},
        bytes_per_s=task.cpu_share * own.uniform(0.1, 12.0) * 1e9 if monitored else None,
        memory_bound=own.uniform(0.05, 0.8) if monitored else None,
    )


def has_traffic(machine: Machine) -> bool:
    """Return whether a simulated machine measures memory traffic; about every second one does."""
    return seeded_random("resctrl", machine.seed).random() < 0.5


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
        **_traffic(node, tasks) if has_traffic(machine) else {},
    )


def _traffic(node: int, tasks: Sequence[NumaTask]) -> dict[str, float]:
    """Return the fields of NodeMemory on traffic, that of a node's processes."""
    here = [task for task in tasks if node in task.cpu_nodes]
    total = sum(task.bytes_per_s or 0.0 for task in here)
    remote = sum((task.bytes_per_s or 0.0) * (task.remote_share or 0.0) for task in here)
    return {
        "bandwidth_bytes_per_s": _BANDWIDTH_BYTES_PER_S,
        "latency_ns": 80.0,
        "local_bytes_per_s": total - remote,
        "remote_bytes_per_s": remote,
    }
