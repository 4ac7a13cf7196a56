"""Memory of a node's NUMA nodes, and the processes whose place on them matters."""

from typing import Annotated

from msgspec import Meta, Struct

from coresteer_core.bounds import CgroupPath, Count, CpuList, CpuNumber, Name, Pid, Quantity, Sentence
from coresteer_core.node.topology import MAX_NUMA_NODES, BytesByNode, NumaNodeNumber

MAX_NUMA_TASKS = 1024
MIN_NUMA_CPU_SHARE = 0.2
"""Load of a process in one interval of the agent, in CPUs, from which on it is busy."""
NUMA_BUSY_FOR_S = 30.0
"""How long a process is reported after its last busy interval: it may pause, for example while its pages move."""
MIN_NUMA_RSS_BYTES = 256 << 20
"""Memory from which on a process is reported although it is not busy."""
NUMA_TASK_CRITERION = (
    f"used {MIN_NUMA_CPU_SHARE:g} CPUs in the last {NUMA_BUSY_FOR_S:g} s "
    f"or has {MIN_NUMA_RSS_BYTES >> 20} MiB of memory"
)
"""What the processes in a NumaState did or have, for a sentence."""
NO_CPU_TIME = "It used no CPU time in the last interval."
"""Why nothing is predicted for a process that pauses."""
PAGE_BYTES = 4096
"""Unit of counts of pages, whatever the size of a mapping's pages."""
PAGE_COST_S = 3e-6
"""Assumed time to move a page of 4 KiB; not measured on the node."""


class NodeMemory(Struct, frozen=True):
    """Memory of one NUMA node (kernel: drivers/base/node.c).

    total_bytes, free_bytes, file_bytes, anon_bytes: of meminfo. local_pages_per_s, remote_pages_per_s: allocations on
    this node by its own CPUs and by those of other nodes (numastat). bandwidth_bytes_per_s, latency_ns: of reads of its
    memory, as the firmware states it (HMAT), and with write_ those of writes. local_bytes_per_s, remote_bytes_per_s:
    what its CPUs transfer with its own memory and with that of other nodes (resctrl). None where unknown.
    """

    node: NumaNodeNumber
    total_bytes: Count | None = None
    free_bytes: Count | None = None
    file_bytes: Count | None = None
    anon_bytes: Count | None = None
    local_pages_per_s: Quantity | None = None
    remote_pages_per_s: Quantity | None = None
    bandwidth_bytes_per_s: Quantity | None = None
    write_bandwidth_bytes_per_s: Quantity | None = None
    latency_ns: Quantity | None = None
    write_latency_ns: Quantity | None = None
    local_bytes_per_s: Quantity | None = None
    remote_bytes_per_s: Quantity | None = None


class NumaTask(Struct, frozen=True):
    """A process that used 0.2 CPUs in an interval of 5 s within the last 30 s, or has 256 MiB of memory.

    affinity, allowed, cpu, cpu_share, started_ticks, bound, kernel, realtime, params, cgroup, threads_differ: as in
    NetTask.
    cpu_nodes: its CPU time of the last interval in CPUs, by NUMA node. mems_allowed: a list of its cpuset's NUMA nodes.
    bytes_by_node: resident memory by NUMA node (numa_maps), None with the reason in unknown. shared_bytes: the part of
    it that other processes map, too, which does not move with it. mempolicy: the memory policy that the program set,
    None for the kernel's default. from_cgroup: bytes_by_node is its anonymous memory as its cgroup counts it
    (memory.numa_stat), because a read of numa_maps takes too long; mempolicy is unknown. age_s: since its start.
    bytes_per_s: its memory traffic (resctrl, or misses of the last-level cache). memory_bound: the share of its cycles
    in which it waits for memory. None where unknown.
    """

    pid: Pid
    started_ticks: Count
    name: Name
    cgroup: CgroupPath | None
    threads: Count
    affinity: CpuList
    allowed: CpuList
    cpu: CpuNumber
    cpu_share: Quantity
    rss_bytes: Count
    age_s: Quantity
    cpu_nodes: Annotated[dict[NumaNodeNumber, Quantity], Meta(max_length=MAX_NUMA_NODES)] = {}
    mems_allowed: CpuList = ""
    bytes_by_node: BytesByNode | None = None
    unknown: Sentence | None = None
    shared_bytes: Count = 0
    mempolicy: Name | None = None
    from_cgroup: bool = False
    bytes_per_s: Quantity | None = None
    memory_bound: Annotated[float, Meta(ge=0, le=1)] | None = None
    bound: bool = False
    user: Name | None = None
    command: Name | None = None
    unit: Name | None = None
    params: dict[Name, Name] = {}
    kernel: bool = False
    realtime: bool = False
    threads_differ: bool = False

    @property
    def why_unpredicted(self) -> str:
        """Return as a sentence why neither its remote share nor its run time can be predicted."""
        if self.unknown is not None or not self.bytes_by_node:
            return self.unknown or "Its memory by NUMA node is unknown."
        if not self.cpu_share:
            return NO_CPU_TIME
        return "Its CPU time by NUMA node is unknown."

    @property
    def remote_share(self) -> float | None:
        """Return the share of its memory on other nodes than its CPU time, 0.0 to 1.0; None where unknown."""
        total = sum((self.bytes_by_node or {}).values())
        used = sum(self.cpu_nodes.values())
        if self.bytes_by_node is None or not total or not used:
            return None
        local = sum(share / used * self.bytes_by_node.get(node, 0) for node, share in self.cpu_nodes.items())
        return 1.0 - local / total


class NumaState(Struct, frozen=True):
    """Memory and processes of a node by NUMA node.

    bandwidth_unknown: why the memory traffic of processes, or their waiting for memory, is unknown: there is no
    contention factor then. traffic_unknown: why the traffic of NUMA nodes is.
    """

    nodes: Annotated[list[NodeMemory], Meta(max_length=MAX_NUMA_NODES)] = []
    tasks: Annotated[list[NumaTask], Meta(max_length=MAX_NUMA_TASKS)] = []
    bandwidth_unknown: Sentence | None = None
    traffic_unknown: Sentence | None = None
