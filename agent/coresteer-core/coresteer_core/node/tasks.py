"""Processes of a node, and the RX placement of those that communicate over the network."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.bounds import MAX_INTEGER, CgroupPath, Count, CpuList, CpuNumber, Name, Pid, Quantity, Sentence

MAX_TASKS = 256
MAX_NET_TASKS = 4096
MAX_RX_PLACEMENTS = 16_384
"""Maximum number of RX placements of all tasks together; the three bounds below are also of all tasks."""
MAX_PORTS = 262_144
MAX_CLIENTS = 16_384
MAX_HEAVY_FLOWS = 2048

Port: TypeAlias = Annotated[int, Meta(ge=1, le=65_535)]


class RxPlacement(Struct, frozen=True):
    """Where packets of a task are received: sum of its flows that share netdev, queue and CPU.

    netdev: empty where unknown. queue, irq, cpu: None where unknown. cpu: where the packets are polled, or where RPS
    passes them on to. how: that CPU was determined by ``rss`` (hash over the NIC's key and table), ``rps`` (the same
    over the queue's RPS CPUs), ``rule`` (one of the NIC's flow rules), ``queue`` (the netdev has one receive queue) or
    ``softirq`` (a virtual netdev: where its packets are processed); None with an unknown CPU. rfs: RFS passes the
    packets on to the CPU on which the task reads them, which then does the protocol work (SO_INCOMING_CPU).
    """

    netdev: Name
    queue: Name | None
    irq: Annotated[int, Meta(ge=0, lt=2**31)] | None
    cpu: CpuNumber | None
    how: Name | None
    sockets: Count
    rx_bytes_per_s: Quantity
    tx_bytes_per_s: Quantity
    rfs: bool = False

    @property
    def bytes_per_s(self) -> float:
        """Return the received plus sent bytes per second."""
        return self.rx_bytes_per_s + self.tx_bytes_per_s


class HeavyFlow(Struct, frozen=True):
    """A connected flow of a task that receives much, with what a flow rule or an RSS table needs to steer it.

    protocol: ``tcp`` or ``udp``. rss_entry: the entry of the NIC's RSS table that its hash selects. queue, rss_entry,
    cpu: None where unknown; as in RxPlacement.
    """

    protocol: Name
    local: Name
    local_port: Port
    peer: Name
    peer_port: Port
    netdev: Name
    queue: Name | None
    cpu: CpuNumber | None
    rss_entry: Count | None
    rx_bytes_per_s: Quantity


class Coscheduled(Struct, frozen=True):
    """What the policy ``coscheduling`` did with a process since the last report. why: of the last boost, or why not.

    pending_bytes: waiting to be read now. ert_s: the expected run time of the peer that runs soonest, None without a
    pending message, without that peer's load, and where the policy orders by age alone. boosts: periods in which it
    was boosted, of all periods; by a policy that is not enforced, in which it would have been.
    """

    pending_bytes: Count
    ert_s: Annotated[float, Meta(ge=-float(MAX_INTEGER), le=float(MAX_INTEGER))] | None
    boosts: Count
    periods: Count
    why: Sentence


class NetTask(Struct, frozen=True):
    """A process that communicates over the network.

    affinity: the CPUs its threads may run on, a CPU list; where threads differ (threads_differ), the union. allowed:
    the CPUs of its cpuset. cpu: where its busiest thread ran last. cpu_share: of one CPU, 0.0 to its number of threads.
    idle_s: since the last byte in either direction. started_ticks: its start time, which distinguishes it from a later
    process with the same PID. bound: a kernel thread bound to its CPUs. user, command, unit: None where unknown.
    listens: its listening TCP ports, the lowest 1,024; such a process is also included while it is idle. clients:
    remote addresses of accepted connections, the busiest few. params: its other settings by the end of their key, such
    as ``nice``. cpu_cgroup: its path in version 1 of cgroups where that controls the CPU; cgroup: in version 2. kernel:
    a kernel thread. realtime: its main thread, or another one that was read, has a real-time scheduling policy. agent:
    the agent itself. coscheduled: None unless a policy coscheduling applies to the process. flows: those that receive
    most, the heaviest first. pod: its namespace, pod and container in Kubernetes, ``shop/web-1/app``.
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
    idle_s: Quantity
    rx_placements: Annotated[list[RxPlacement], Meta(max_length=MAX_RX_PLACEMENTS)]
    bound: bool = False
    user: Name | None = None
    command: Name | None = None
    unit: Name | None = None
    listens: Annotated[list[Port], Meta(max_length=MAX_PORTS)] = []
    clients: Annotated[list[Name], Meta(max_length=MAX_CLIENTS)] = []
    params: dict[Name, Name] = {}
    cpu_cgroup: CgroupPath | None = None
    kernel: bool = False
    realtime: bool = False
    agent: bool = False
    coscheduled: Coscheduled | None = None
    flows: Annotated[list[HeavyFlow], Meta(max_length=MAX_HEAVY_FLOWS)] = []
    pod: Name | None = None
    threads_differ: bool = False


class ThreadActivity(Struct, frozen=True):
    """What a process's main thread has done since its start. runnable: it runs or waits for a CPU (state R).

    run_ns: time on a CPU. slices: number of times that it got one. sleeps: number of times that it gave its CPU up to
    wait (voluntary context switches), as it does for messages.
    """

    runnable: bool
    run_ns: int
    slices: int
    sleeps: int


class Task(Struct, frozen=True):
    """A process, the CPU it last ran on, and its CPU time as a share of one CPU (up to the number of threads)."""

    pid: Pid
    name: Name
    cpu: CpuNumber
    cpu_share: Annotated[float, Meta(ge=0, le=2**20)]
