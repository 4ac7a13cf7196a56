"""Simulated run times of the workload memory, from the node's topology and its automatic NUMA balancing."""

from coresteer_agent.simulate.node import SimulatedNode
from coresteer_agent.simulate.numa_tasks import has_traffic
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.experiments.model import Memory
from coresteer_core.node.topology import Topology
from coresteer_core.policies.numa.factors import Machine, Process, contention

_MEMORY_BOUND = 0.6
_BALANCED = 0.5
"""Share of the remote memory that automatic NUMA balancing has not moved, mean over a run."""
_STREAM_BYTES_PER_S = 15e9
_STREAMS_OF_A_NODE = 4.0
"""Streaming processes that use up the bandwidth of a NUMA node."""
_PAGES_PER_MIB = 256


def memory_figures(node: SimulatedNode, workload: Memory) -> dict[str, float]:
    """Return run times, remote share, moved pages and, where traffic is measured, the contention factor, without noise.

    The policy does not act on these processes.
    """
    topology = node.machine.topology
    balances = node.inventory.settings.get("kernel/numa_balancing") == "1" and not workload.memory_cpus
    first = _remote_share(topology, workload)
    remote = first * (_BALANCED if balances else 1.0)
    distance = max((each for each in topology.numa_nodes[0].distances), default=10) / 10
    used = len(topology.numa_nodes) if workload.first_touch == "own" and not workload.memory_cpus else 1
    streams = workload.memory_processes / used if workload.access == "stream" else 0.0
    waits = _MEMORY_BOUND * (1.0 + remote * (distance - 1.0)) * max(1.0, streams / _STREAMS_OF_A_NODE)
    turns = max(1.0, (workload.compute_processes + workload.memory_processes) / len(topology.online()))
    times = {"memory_run_s": turns * workload.work_s * (1.0 - _MEMORY_BOUND + waits)}
    if workload.compute_processes:
        times["compute_run_s"] = turns * workload.work_s
    moved = (first - remote) * workload.mib * _PAGES_PER_MIB * workload.memory_processes
    share = {"remote_numa_share": remote} if len(topology.numa_nodes) > 1 else {}
    factor = {"contention_factor": _contention(streams)} if has_traffic(node.machine) and streams else {}
    return times | share | factor | {"makespan_s": max(times.values()), "pages_moved": moved}


def _contention(streams: float) -> float:
    """Return the policy's contention factor of one of the processes that stream from a NUMA node."""
    process = Process(1.0, (1.0,), (1.0,), _MEMORY_BOUND, _STREAM_BYTES_PER_S)
    machine = Machine([0], [[1.0]], [1.0], [_STREAMS_OF_A_NODE * _STREAM_BYTES_PER_S])
    return contention(machine, process, [streams * _STREAM_BYTES_PER_S]) or 0.0


def _remote_share(topology: Topology, workload: Memory) -> float:
    """Return the share of memory that is remote after the first touch."""
    if workload.first_touch == "own":
        return 0.0
    if not workload.memory_cpus:
        return 1.0 - 1.0 / max(1, len(topology.numa_nodes))
    lowest = topology.numa_nodes[0].id if topology.numa_nodes else None
    cpus = sorted(parse_cpu_list(workload.memory_cpus))
    placed = [cpus[place % len(cpus)] for place in range(workload.memory_processes)]
    return sum(topology.nodes.get(cpu) != lowest for cpu in placed) / len(placed)
