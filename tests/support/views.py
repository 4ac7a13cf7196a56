"""Views of small nodes, for tests of what is decided from a view."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil
from msgspec.structs import replace

from coresteer_core.cpuset import format_cpu_list
from coresteer_core.node.inventory import Inventory, Irq, Netdev
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.topology import Cache, Cpu, NumaNode, Topology
from coresteer_core.node.view import View

EMPTY = View(Topology([], [], []), Inventory([], []))
"""A node about which nothing is known."""


def make_view(
    cpus: int | Iterable[int] = 0,
    *,
    offline: Iterable[int] = (),
    isolated: str = "",
    netdevs: Sequence[Netdev] = (),
    irqs: Sequence[Irq] = (),
    controllers: Sequence[str] = (),
    **fields: object,
) -> View:
    """Return a node of one package and NUMA node without SMT. cpus: how many, or their numbers; fields: of View."""
    numbers = range(cpus) if isinstance(cpus, int) else cpus
    topology = Topology([Cpu(n, n, 0, 0, online=n not in offline) for n in numbers], [], [], isolated=isolated)
    return replace(View(topology, Inventory(list(netdevs), list(irqs), list(controllers))), **fields)


def make_netdev(name: str = "eth0", driver: str | None = "igb", **fields: object) -> Netdev:
    """Return a physical netdev that is up, with 1 Gbit/s and no queues. fields: of Netdev."""
    return replace(Netdev(name, driver, 10**9, 1500, 0, True, virtual=False, management=False, queues=[]), **fields)


def observed_task(pid: int, **fields: object) -> NetTask:
    """Return a process that runs here as an agent that has seen it use the network describes it. fields: of NetTask."""
    fields_after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpus = format_cpu_list(os.sched_getaffinity(pid))
    params = {"nice": str(os.getpriority(os.PRIO_PROCESS, pid))}
    task = NetTask(pid, int(fields_after_name[19]), "observed", None, 1, cpus, cpus, 0, 0.0, 0.0, [], params=params)
    return replace(task, **fields)


def observed_children() -> list[NetTask]:
    """Return the processes that this one has started, as if it had seen them use the network."""
    return [observed_task(child.pid) for child in psutil.Process().children() if child.is_running()]


def make_topology(
    *,
    packages: int,
    nodes_per_package: int,
    cores_per_node: int,
    threads: int,
    missing: int = 0,
    threads_last: bool = True,
    offline: Iterable[int] = (),
    isolated: Iterable[int] = (),
    nohz_full: Iterable[int] = (),
) -> Topology:
    """A machine of equal NUMA nodes, each with one L3. missing: CPUs that its last cores lack.

    threads_last: second threads are numbered after all first ones, as on most x86; else beside their first.
    """
    cores = packages * nodes_per_package * cores_per_node
    total = cores * threads - missing
    away = frozenset(offline)

    def core_of(cpu: int) -> int:
        return cpu % cores if threads_last else cpu // threads

    on = [cpu for cpu in range(total) if cpu not in away]
    cpus = []
    for cpu in range(total):
        core = core_of(cpu)
        node = core // cores_per_node
        if cpu in away:
            cpus.append(Cpu(cpu, None, None, node, online=False))
        else:
            siblings = format_cpu_list(c for c in on if core_of(c) == core)
            cpus.append(Cpu(cpu, core, node // nodes_per_package, node, online=True, siblings=siblings))
    caches = [Cache(2, "Unified", 1 << 20, s) for s in dict.fromkeys(c.siblings for c in cpus if c.online)]
    count = packages * nodes_per_package
    numa_nodes = []
    for node in range(count):
        members = format_cpu_list(c.cpu for c in cpus if c.online and c.numa_node == node)
        same = [
            10 if n == node else 12 if n // nodes_per_package == node // nodes_per_package else 21 for n in range(count)
        ]
        numa_nodes.append(NumaNode(node, members, None, same))
        if members:
            caches.append(Cache(3, "Unified", 32 << 20, members))
    return Topology(cpus, numa_nodes, caches, format_cpu_list(isolated), format_cpu_list(nohz_full))
