"""What a node is and does, as values: topology, inventory, rates.

Absent is None, never 0. CPU sets travel as the kernel's CPU lists (``0-3,8``).
"""

from functools import cached_property

from msgspec import Struct

from coresteer_core.attainment import ClassFigures
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.nic import Learned


class Cpu(Struct, frozen=True):
    """One logical CPU.

    core: number of its physical core, unique on the machine; package: physical_package_id.
    siblings: CPU list of its SMT siblings, itself included. capacity: cpu_capacity, None where the
    kernel does not tell (most x86). Offline CPUs have no core, package or siblings.
    """

    cpu: int
    core: int | None
    package: int | None
    numa_node: int | None
    online: bool
    siblings: str = ""
    capacity: int | None = None


class NumaNode(Struct, frozen=True):
    """distances: to every node, in the order of the nodes' ids (10 is local)."""

    id: int
    cpus: str
    memory_bytes: int | None
    distances: list[int] = []


class Cache(Struct, frozen=True):
    """One cache and the CPUs that share it. type: Data, Instruction or Unified, as sysfs spells it."""

    level: int
    type: str
    size_bytes: int | None
    cpus: str


class Topology(Struct, frozen=True, dict=True):
    """What changes only with hot-plug. isolated and nohz_full are the kernel's CPU lists."""

    cpus: list[Cpu]
    numa_nodes: list[NumaNode]
    caches: list[Cache]
    isolated: str = ""
    nohz_full: str = ""

    def online(self) -> frozenset[int]:
        """CPUs that can run something now."""
        return self._online

    @cached_property
    def _online(self) -> frozenset[int]:
        return frozenset(c.cpu for c in self.cpus if c.online)

    @cached_property
    def kept_free(self) -> frozenset[int]:
        """CPUs that isolcpus or nohz_full keep free of other work."""
        return parse_cpu_list(self.isolated) | parse_cpu_list(self.nohz_full)

    @cached_property
    def cores(self) -> dict[int, frozenset[int]]:
        """The threads of its core, itself included, by CPU."""
        return {cpu.cpu: parse_cpu_list(cpu.siblings) | {cpu.cpu} for cpu in self.cpus}

    @cached_property
    def nodes(self) -> dict[int, int | None]:
        """The NUMA node by CPU, None where it is not known."""
        return {cpu.cpu: cpu.numa_node for cpu in self.cpus}


class Queue(Struct, frozen=True):
    """One receive or transmit queue of a netdev.

    name: ``rx-3`` as in sysfs. irq: None where unknown. source: how the IRQ was found, ``netlink``,
    ``msi_irqs`` or ``name``. rps and xps: CPU lists, None where the queue has no such file. params: as Netdev's, where
    the driver or the kernel has them for a queue of its own.
    """

    name: str
    irq: int | None = None
    source: str | None = None
    napi_id: int | None = None
    rps: str | None = None
    xps: str | None = None
    params: dict[str, str] = {}


class Netdev(Struct, frozen=True):
    """One network device. management: it carries the agent's own connection or the default route.

    channels, channels_max, rss: as the settings of that name have them (``combined 4``, ``0,1,2,3``); None where not
    known or where the device has none. params: values of its other settings by the end of their key, such as
    ``coalesce/rx-usecs``, ``ring/rx`` or ``gro_flush_timeout``; what the driver does not have is not in it.
    params_max: the most of those that have a bound of their own.
    """

    name: str
    driver: str | None
    speed_bits_per_s: int | None
    mtu: int | None
    numa_node: int | None
    up: bool | None
    virtual: bool
    management: bool
    queues: list[Queue]
    channels: str | None = None
    channels_max: str | None = None
    rss: str | None = None
    params: dict[str, str] = {}
    params_max: dict[str, str] = {}


class Irq(Struct, frozen=True):
    """One numbered interrupt.

    requested: smp_affinity_list; effective: effective_affinity_list, which stays stale until the
    next interrupt. movable: False where the kernel keeps the affinity to itself (a managed
    interrupt), with the sentence why in locked_reason; None where that could not be found out.
    netdev and queues: what it serves.
    """

    irq: int
    name: str
    chip: str
    requested: str | None
    effective: str | None
    numa_node: int | None
    movable: bool | None
    locked_reason: str | None = None
    netdev: str | None = None
    queues: list[str] = []


class Inventory(Struct, frozen=True, dict=True):
    """What may change at any time but seldom does: devices, queues, interrupts and who steers them.

    controllers: other programs found running that move interrupts (``irqbalance``, ``tuned``).
    """

    netdevs: list[Netdev]
    irqs: list[Irq]
    controllers: list[str] = []

    def netdev(self, name: str | None) -> Netdev | None:
        """The network device with that name."""
        return next((n for n in self.netdevs if n.name == name), None)

    def wires(self) -> list[Netdev]:
        """Network cards that are up, those last that carry the agent's own connection or the default route.

        Traffic that another node sends for an experiment comes by the first one that has an address.
        """
        cards = [
            netdev for netdev in self.netdevs if not netdev.virtual and netdev.name != "lo" and netdev.up is not False
        ]
        return sorted(cards, key=lambda netdev: netdev.management)

    def irq(self, number: int) -> Irq | None:
        """The interrupt with that number."""
        return self._by_number.get(number)

    @cached_property
    def _by_number(self) -> dict[int, Irq]:
        return {irq.irq: irq for irq in self.irqs}


class IrqLoad(Struct, frozen=True, array_like=True):
    """How often an interrupt arrived on a CPU."""

    irq: int
    cpu: int
    per_s: float


class NetdevLoad(Struct, frozen=True, array_like=True):
    """What a netdev moved. dropped_per_s: of what it received."""

    name: str
    rx_packets_per_s: float
    rx_bytes_per_s: float
    tx_packets_per_s: float
    tx_bytes_per_s: float
    dropped_per_s: float


class Load(Struct, frozen=True):
    """What the CPUs did lately, as means over some seconds.

    busy, softirq: shares of the interval, 0.0 to 1.0, by CPU number; softirq includes the time in interrupts. None
    where not known. irqs: numbered interrupts that arrived. rtt_p99_us, dropped_per_s and busiest_cpu_percent are what
    guardrails watch. netdevs: those that were counted throughout.
    """

    seconds: float = 0.0
    busy: list[float | None] = []
    softirq: list[float | None] = []
    irqs: list[IrqLoad] = []
    rtt_p99_us: int | None = None
    dropped_per_s: float | None = None
    busiest_cpu_percent: float | None = None
    rtt_p50_us: int | None = None
    netdevs: list[NetdevLoad] = []


class Landing(Struct, frozen=True):
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
    landings: list[Landing]
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


class View(Struct, frozen=True, dict=True):
    """A node as far as decisions look at it. time_s: of the node's monotonic clock.

    classes: by policy id. cgroups: by path without the slash before it, values of the settings of those that processes
    in tasks are in, by the end of their key, such as ``cpu.weight``.
    """

    topology: Topology
    inventory: Inventory
    load: Load = Load()
    tasks: list[NetTask] = []
    time_s: float = 0.0
    learned: Learned = Learned()
    classes: dict[str, list[ClassFigures]] = {}
    cgroups: dict[str, dict[str, str]] = {}

    def task(self, pid: int) -> NetTask | None:
        """The process with that number, if it talks over the network."""
        return self._by_pid.get(pid)

    @cached_property
    def _by_pid(self) -> dict[int, NetTask]:
        return {task.pid: task for task in self.tasks}


class Task(Struct, frozen=True):
    """A process with the CPU it last ran on. cpu_share: of one CPU, 0.0 to the number of its threads."""

    pid: int
    name: str
    cpu: int
    cpu_share: float


class NetdevCounts(Struct, frozen=True, array_like=True):
    """What one netdev counted during an interval."""

    name: str
    rx_bytes: int
    tx_bytes: int
    rx_packets: int
    tx_packets: int
    rx_dropped: int
    tx_dropped: int
    rx_errors: int
    tx_errors: int


class TcpLatency(Struct, frozen=True, array_like=True):
    """Smoothed round-trip times of the TCP sockets to other hosts that were active in the interval."""

    sockets: int
    rtt_p50_us: int
    rtt_p95_us: int
    rtt_p99_us: int


ABSENT_SHARE = 255
"""In a share column: this CPU was offline or could not be read."""
SHARES_PER_UNIT = 200
"""A share column's unit is 0.5 %: 0 is idle, 200 is the whole interval. At 1 Hz that is half a kernel tick."""
ABSENT_U32 = 0xFFFF_FFFF
"""In a u32 column: not known."""

CPU_SHARES = ("busy", "user", "system", "irq", "softirq", "steal", "iowait")
CPU_COUNTS = ("net_rx", "net_tx", "softirq_other", "processed", "dropped", "time_squeeze")


class Rates(Struct, frozen=True):
    """What happened between two Samples: increments, never totals. Divide by duration_s for a rate.

    Wrap, reset and hot-plug are already handled (coresteer_core.rates). Columns are raw
    little-endian arrays, one element a CPU number from 0 to the highest present CPU; None means
    the source could not be read.

    shares: u8 columns named as in CPU_SHARES, in units of 0.5 %, ABSENT_SHARE where unknown.
    busy is everything but idle and iowait; user includes nice and guest.
    counts: u32 columns named as in CPU_COUNTS, ABSENT_U32 where unknown. net_rx, net_tx and
    softirq_other count softirqs raised; processed, dropped and time_squeeze are softnet_stat's.
    irq_ids (u32), irq_cpus (u16), irq_counts (u32): the IRQ × CPU cells that moved, others are 0.
    An irq_id is the interrupt's number, or for architecture rows such as LOC four ASCII bytes
    (see encode_irq_id).
    """

    seq: int
    time_ms: int
    duration_s: float
    cpus: int
    shares: dict[str, bytes | None]
    counts: dict[str, bytes | None]
    irq_ids: bytes | None
    irq_cpus: bytes | None
    irq_counts: bytes | None
    netdevs: list[NetdevCounts] | None
    tcp: TcpLatency | None
    tcp_out_segments: int | None
    tcp_retransmits: int | None
    agent_cpu_s: float | None
    agent_rss_bytes: int | None


FIRST_LABEL_ID = 0x2100_0000
"""IRQ ids from here on are labels of architecture rows."""


def encode_irq_id(label: str) -> int | None:
    """A row label of /proc/interrupts as a number: ``41`` is 41, ``LOC`` its four padded ASCII bytes.

    Labels start at 0x21000000, far above any interrupt number. None for a label that is neither.
    """
    if label.isdecimal():
        number = int(label)
        return number if number < FIRST_LABEL_ID else None
    if not 0 < len(label) <= 4 or not label.isascii() or not label.isprintable() or " " in label:
        return None
    return int.from_bytes(label.ljust(4).encode(), "big")


def decode_irq_id(irq_id: int) -> str:
    """The row label that encode_irq_id took."""
    if irq_id < FIRST_LABEL_ID:
        return str(irq_id)
    return irq_id.to_bytes(4, "big").decode("ascii", "replace").rstrip()
