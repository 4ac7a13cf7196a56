"""Processes of a node, and where the packets of those that use the network are received."""

from msgspec import Struct


class RxPlacement(Struct, frozen=True):
    """Where packets of a task arrive: its flows that share netdev, queue and CPU, taken together.

    netdev: empty where not known. queue, irq, cpu: None where not known. how: the CPU was found by ``rss`` (hash over
    the NIC's key and table), ``rps`` (the same over the queue's RPS CPUs), ``queue`` (the netdev has one receive queue)
    or ``softirq`` (a virtual netdev: where its packets are handled); None with an unknown CPU.
    """

    netdev: str
    queue: str | None
    irq: int | None
    cpu: int | None
    how: str | None
    sockets: int
    rx_bytes_per_s: float
    tx_bytes_per_s: float

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

    pid: int
    started_ticks: int
    name: str
    cgroup: str | None
    threads: int
    affinity: str
    allowed: str
    cpu: int
    cpu_share: float
    idle_s: float
    rx_placements: list[RxPlacement]
    bound: bool = False
    user: str | None = None
    command: str | None = None
    unit: str | None = None
    listens: list[int] = []
    clients: list[str] = []
    params: dict[str, str] = {}
    cpu_cgroup: str | None = None
    kernel: bool = False
    realtime: bool = False


class Task(Struct, frozen=True):
    """A process with the CPU it last ran on. cpu_share: of one CPU, 0.0 to the number of its threads."""

    pid: int
    name: str
    cpu: int
    cpu_share: float
