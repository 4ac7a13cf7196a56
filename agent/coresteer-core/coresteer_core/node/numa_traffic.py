"""Memory accesses between NUMA nodes, by pair: measured as far as the CPU counts them, else derived."""

from collections.abc import Sequence

from msgspec import Struct

from coresteer_core.node.numa import NodeMemory, NumaState


class NodeTraffic(Struct, frozen=True):
    """Accesses from the CPUs of one NUMA node to the memory of another, or its own.

    cpus: CPUs' worth of accesses, Σ over the processes of their CPU time on from_node × the share of their memory on
    to_node; None where no process's memory is known. bytes_per_s: measured for each node (resctrl), else that of the
    processes; split by cpus where several nodes are remote. None where unknown.
    """

    from_node: int
    to_node: int
    cpus: float | None
    bytes_per_s: float | None


def traffic_between(nodes: Sequence[int], state: NumaState) -> list[NodeTraffic]:
    """Return the accesses for every pair of NUMA nodes, by row."""
    cpus, of_processes = _derived(nodes, state)
    measured = {memory.node: memory for memory in state.nodes}
    return [
        NodeTraffic(origin, node, None if cpus is None else cpus[origin, node], bytes_per_s[node])
        for origin in nodes
        for bytes_per_s in [_bytes_from(origin, nodes, measured.get(origin), cpus, of_processes)]
        for node in nodes
    ]


_Pairs = dict[tuple[int, int], float]


def _derived(nodes: Sequence[int], state: NumaState) -> tuple[_Pairs | None, _Pairs | None]:
    """Return CPUs and bytes per second by pair of nodes. None where no, or not every such process is known."""
    cpus = dict.fromkeys(((origin, node) for origin in nodes for node in nodes), 0.0)
    transferred: _Pairs | None = dict(cpus)
    known = False
    for task in state.tasks:
        sizes, used = task.bytes_by_node, sum(task.cpu_nodes.values())
        total = sum(sizes.values()) if sizes else 0
        if not sizes or not total or not used:
            continue
        known = True
        if task.bytes_per_s is None:
            transferred = None
        for origin, share in task.cpu_nodes.items():
            for node, size in sizes.items():
                if (origin, node) not in cpus:
                    continue
                cpus[origin, node] += share * size / total
                if transferred is not None and task.bytes_per_s is not None:
                    transferred[origin, node] += task.bytes_per_s * share / used * size / total
    return (cpus, transferred) if known else (None, None)


def _bytes_from(
    origin: int, nodes: Sequence[int], memory: NodeMemory | None, cpus: _Pairs | None, of_processes: _Pairs | None
) -> dict[int, float | None]:
    """Return the bytes per second from one node's CPUs by the node of the memory."""
    local, remote = (None, None) if memory is None else (memory.local_bytes_per_s, memory.remote_bytes_per_s)
    if local is None or remote is None:
        return {node: None if of_processes is None else of_processes[origin, node] for node in nodes}
    others = [node for node in nodes if node != origin]
    accesses = {node: cpus[origin, node] if cpus is not None else 0.0 for node in others}
    total = sum(accesses.values())
    found: dict[int, float | None] = {origin: local}
    for node in others:
        if len(others) == 1 or not remote:
            found[node] = remote
        else:
            found[node] = remote * accesses[node] / total if total else None
    return found
