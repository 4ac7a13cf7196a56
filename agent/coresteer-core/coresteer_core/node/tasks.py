"""Processes of a node, and where the packets of those that use the network are received."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.bounds import CgroupPath, Count, CpuList, CpuNumber, Name, Pid, Quantity

MAX_TASKS = 256
MAX_NET_TASKS = 4096
MAX_RX_PLACEMENTS = 16_384
"""Of all tasks together, as are the following two."""
MAX_PORTS = 262_144
MAX_CLIENTS = 16_384

Port: TypeAlias = Annotated[int, Meta(ge=1, le=65_535)]


class RxPlacement(Struct, frozen=True):
    """Where packets of a task arrive: its flows that share netdev, queue and CPU, taken together.

    netdev: empty where not known. queue, irq, cpu: None where not known. how: the CPU was found by ``rss`` (hash over
    the NIC's key and table), ``rps`` (the same over the queue's RPS CPUs), ``queue`` (the netdev has one receive queue)
    or ``softirq`` (a virtual netdev: where its packets are handled); None with an unknown CPU.
    """

    netdev: Name
    queue: Name | None
    irq: Annotated[int, Meta(ge=0, lt=2**31)] | None
    cpu: CpuNumber | None
    how: Name | None
    sockets: Count
    rx_bytes_per_s: Quantity
    tx_bytes_per_s: Quantity

    @property
    def bytes_per_s(self) -> float:
        """Both directions."""
        return self.rx_bytes_per_s + self.tx_bytes_per_s


class NetTask(Struct, frozen=True):
    """A process that talks over the network.

    affinity: where its threads may run now, a CPU list; where threads differ, all of their CPUs. allowed: what its
    cpuset lets it have. cpu: where its busiest thread ran last. cpu_share: of one CPU, 0.0 to its threads' number.
    idle_s: since the last byte went either way. started_ticks tells it from a later process with its number.
    bound: a kernel thread that stays on its CPUs. user, command, unit: None where not known. listens: TCP ports that it
    accepts connections at, the lowest 1,024; such a process is a NetTask also while it is silent. clients: addresses at
    the other end of connections that it accepted, the busiest few. params: its other settings by the end of their key,
    such as ``nice``. cpu_cgroup: its path where version 1 of cgroups has the CPU; cgroup is of version 2. kernel: a
    kernel thread. realtime: its main thread, or any that was looked at, is scheduled before all that have a nice value.
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


class Task(Struct, frozen=True):
    """A process with the CPU it last ran on. cpu_share: of one CPU, 0.0 to the number of its threads."""

    pid: Pid
    name: Name
    cpu: CpuNumber
    cpu_share: Annotated[float, Meta(ge=0, le=2**20)]
