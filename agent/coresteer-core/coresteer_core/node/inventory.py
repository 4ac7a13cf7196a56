"""Inventory of a node: network devices, their queues, interrupts, and other controllers. Absent is None, never 0."""

from functools import cached_property
from typing import Annotated

from msgspec import Meta, Struct

from coresteer_core.bounds import CpuList, CpuNumber, KernelInteger, Name, PolicyId, Sentence, Value
from coresteer_core.cpuset import MAX_CPUS
from coresteer_core.node.limits import Limits
from coresteer_core.node.reserved import MAX_RESERVED, ReservedCpus

MAX_NETDEVS = 4096
MAX_BOOT_SETTINGS = 4096
MAX_ADDRESSES = 256
"""Maximum number of reported IP addresses of a network device."""
MAX_IRQS = 65_536
MAX_QUEUES = 65_536
"""Maximum number of queues of all network devices together."""
MAX_FLOW_RULES = 4096
"""Maximum number of reported flow rules of one network device."""
MAX_RSS_CONTEXTS = 1024
"""Maximum number of reported RSS contexts of one network device; drivers have at most some dozens."""
_MAX_NAMED = 3
"""Maximum number of queues that a sentence names."""
MAX_HELD = 8192
"""Maximum number of settings that policies hold and that an inventory names."""
MAX_RSS_ENTRIES = 65_536
"""Maximum length of an RSS table; those of present NICs have at most 4,096 entries."""


class Queue(Struct, frozen=True):
    """One receive or transmit queue of a netdev.

    name: ``rx-3`` as in sysfs. irq: None where unknown. source: of the IRQ, ``netlink``, ``msi_irqs`` or ``name``.
    rps and xps: CPU lists, None where the queue has no such file. params: as in Netdev, where the driver or the kernel
    has them per queue.
    """

    name: Name
    irq: KernelInteger | None = None
    source: Name | None = None
    napi_id: KernelInteger | None = None
    rps: CpuList | None = None
    xps: CpuList | None = None
    params: dict[Name, Name] = {}


class FlowRule(Struct, frozen=True):
    """One RX flow classification rule of a NIC (ethtool -n).

    location: its slot, which is also its priority. value: in ethtool's words, ``flow-type tcp4 dst-ip 10.0.0.1 dst-port
    80 action 3``; empty where Coresteer cannot express it. ours: Coresteer added it, and it has not changed since.
    context_rule: the rule where it names an RSS context; value is empty then, as backends of 0.3 refuse such a text.
    """

    location: KernelInteger
    value: Value
    ours: bool = False
    context_rule: Value = ""

    @property
    def text(self) -> str:
        """The rule in ethtool's words, whatever it names; empty where Coresteer cannot express it."""
        return self.value or self.context_rule


class FlowRuleTable(Struct, frozen=True):
    """The flow rules of a NIC, by ascending location. size: its number of slots. complete: all rules could be read;
    otherwise the table is partial, or as it was at the last successful read."""

    size: KernelInteger
    rules: Annotated[list[FlowRule], Meta(max_length=MAX_FLOW_RULES)] = []
    complete: bool = True


class RssContext(Struct, frozen=True):
    """An additional RSS table of a NIC, for the packets of the flow rules that name its number (ethtool -x context N).

    rss: its pattern of queues, as in Netdev. ours: Coresteer created it, and it has not changed since.
    """

    number: KernelInteger
    rss: Value
    ours: bool = False


class Netdev(Struct, frozen=True):
    """One network device. management: it carries the agent's connection to the backend.

    channels, channels_max, rss: values of the settings (``combined 4``, ``0,1,2,3``); None where unknown or where the
    device has none. params: values of its other settings by the end of their key, such as ``coalesce/rx-usecs``,
    ``ring/rx`` or ``gro_flush_timeout``; those the driver does not have are missing. params_max: maxima that the
    device reports. addresses: its IP addresses. firmware: the version that the driver states, None where it states
    none. flow_rules: None where the driver has no flow rules, or they could not be read yet. rss_entries: the length of
    the RSS table, in which the pattern rss repeats; None where unknown. rss_contexts: None where kernel or driver has
    none, or they could not be read. lower: the netdevs below a bond, bridge or VLAN, which receive its packets.
    """

    name: Name
    driver: Name | None
    speed_bits_per_s: KernelInteger | None
    mtu: KernelInteger | None
    numa_node: KernelInteger | None
    up: bool | None
    virtual: bool
    management: bool
    queues: Annotated[list[Queue], Meta(max_length=MAX_QUEUES)]
    channels: Name | None = None
    channels_max: Name | None = None
    rss: Value | None = None
    params: dict[Name, Name] = {}
    params_max: dict[Name, Name] = {}
    addresses: Annotated[list[Name], Meta(max_length=MAX_ADDRESSES)] = []
    firmware: Name | None = None
    flow_rules: FlowRuleTable | None = None
    rss_entries: Annotated[int, Meta(ge=1, le=MAX_RSS_ENTRIES)] | None = None
    rss_contexts: Annotated[list[RssContext], Meta(max_length=MAX_RSS_CONTEXTS)] | None = None
    lower: Annotated[list[Name], Meta(max_length=MAX_NETDEVS)] = []

    def queue_differing(self, param: str) -> Queue | None:
        """Return the first queue whose value of a parameter differs from the netdev's; None where none does."""
        if (value := self.params.get(param)) is None:
            return None
        return next((queue for queue in self.queues if queue.params.get(param, value) != value), None)


class Irq(Struct, frozen=True):
    """One numbered interrupt.

    requested: smp_affinity_list; effective: effective_affinity_list, which stays stale until the
    next interrupt. movable: False where only the kernel sets the affinity (a managed interrupt) or a queue user has
    the interrupt, with the reason in locked_reason; None where unknown. netdev, queues: served by it.
    """

    irq: KernelInteger
    name: Name
    chip: Name
    requested: CpuList | None
    effective: CpuList | None
    numa_node: KernelInteger | None
    movable: bool | None
    locked_reason: Sentence | None = None
    netdev: Name | None = None
    queues: Annotated[list[Name], Meta(max_length=4096)] = []


class QueueUser(Struct, frozen=True):
    """A program that takes a device's packets before the network stack or past it; Coresteer leaves its queues alone.

    kind: ``XDP``, ``AF_XDP``, or the driver that hands a PCI device to a program, such as ``vfio-pci``. device: the
    netdev, or the PCI address of a device that is no netdev. queues: ``rx-3``; empty for all of the device. name: of
    the XDP program or of the socket's process; None where unknown. irqs: of a device that is no netdev.
    """

    kind: Name
    device: Name
    queues: Annotated[list[Name], Meta(max_length=MAX_QUEUES)] = []
    name: Name | None = None
    irqs: Annotated[list[KernelInteger], Meta(max_length=MAX_IRQS)] = []

    @property
    def sentence(self) -> str:
        """Return a sentence that says who uses what: ``The XDP program xdp_lb runs on eth0.``."""
        if self.kind == XDP:
            return f"The XDP program {self.name or 'of another process'} runs on {self.device}."
        if self.kind == AF_XDP:
            of = f"of {self.name} uses" if self.name else "uses"
            return f"An AF_XDP socket {of} {_named(self.queues)} of {self.device}."
        return f"{self.device} belongs to a program in user space, such as DPDK or a virtual machine ({self.kind})."

    def uses(self, irq: Irq) -> bool:
        """Return whether an interrupt serves a queue of this user."""
        if irq.netdev is None or irq.netdev != self.device:
            return irq.irq in self.irqs
        return not self.queues or not set(self.queues).isdisjoint(irq.queues)


XDP, AF_XDP = "XDP", "AF_XDP"
"""Kinds of QueueUser."""


def _named(queues: list[str]) -> str:
    """Return queues for a Sentence, which has no room for all queues of a large NIC."""
    return (
        ", ".join(queues) if len(queues) <= _MAX_NAMED else f"{', '.join(queues[:2])} and {len(queues) - 2} more queues"
    )


class BootSetting(Struct, frozen=True):
    """What a file of another program sets when the machine starts, or when a network device appears or is activated.

    key: of the setting; value: in the setting's form, or the file's own text where that cannot be converted (``max``);
    file: its path.
    """

    key: Name
    value: Name
    file: Name


class FreeVectors(Struct, frozen=True):
    """How many interrupts more a CPU can take."""

    cpu: CpuNumber
    count: KernelInteger


class Inventory(Struct, frozen=True, dict=True):
    """Network devices, queues, interrupts and controllers of a node; may change at any time, but rarely does.

    controllers: what else moves interrupts, processes or their memory: running programs (``irqbalance``, ``tuned``,
    ``numad``, ``kubelet`` with static CPUs), and the kernel's automatic NUMA balancing while it is on. settings: values
    of the machine's own settings by key; those that the node does not have are not in it. conditions: what else
    determines how fast the machine is, such as governor, SMT and mitigations, by name. limits: what the node's
    administrator lets any backend do.
    changed_settings: how many settings Coresteer has changed and not restored; None from an agent that does not count.
    held: the id of the policy that holds each setting and whose end would restore it, by key. None for more than
    MAX_HELD settings, and from an agent that does not say.
    reserved: CPUs of single containers and cpuset partitions.
    dropped_rows: which rows or values of kernel files the agent could not parse and left out, a sentence by path.
    queue_users: programs whose queues and interrupts Coresteer leaves alone. free_vectors: of the CPUs that are online;
    empty where the kernel does not show them. boot_settings: what files of other programs set at the next boot, of the
    settings that Coresteer knows.

    Backends store it as JSON, whose keys are text: a dictionary has no numbers as keys.
    """

    netdevs: Annotated[list[Netdev], Meta(max_length=MAX_NETDEVS)]
    irqs: Annotated[list[Irq], Meta(max_length=MAX_IRQS)]
    controllers: Annotated[list[Name], Meta(max_length=64)] = []
    settings: Annotated[dict[Name, Name], Meta(max_length=256)] = {}
    conditions: Annotated[dict[Name, Value], Meta(max_length=64)] = {}
    limits: Limits = Limits()
    dropped_rows: Annotated[dict[Name, Sentence], Meta(max_length=64)] = {}
    changed_settings: KernelInteger | None = None
    held: Annotated[dict[Value, PolicyId], Meta(max_length=MAX_HELD)] | None = None
    queue_users: Annotated[list[QueueUser], Meta(max_length=MAX_NETDEVS)] = []
    free_vectors: Annotated[list[FreeVectors], Meta(max_length=MAX_CPUS)] = []
    reserved: Annotated[list[ReservedCpus], Meta(max_length=MAX_RESERVED)] = []
    boot_settings: Annotated[list[BootSetting], Meta(max_length=MAX_BOOT_SETTINGS)] = []

    def netdev(self, name: str | None) -> Netdev | None:
        """Return the network device of this name; None where the node has none."""
        return next((n for n in self.netdevs if n.name == name), None)

    def physical_netdevs(self) -> frozenset[str]:
        """Return the names of the network devices that are hardware: a bridge or veth counts the same bytes again."""
        return self._physical

    @cached_property
    def _physical(self) -> frozenset[str]:
        return frozenset(netdev.name for netdev in self.netdevs if not netdev.virtual and netdev.name != "lo")

    def nics_below(self, name: str) -> frozenset[str]:
        """Return the names of the physical netdevs below a bond, bridge or VLAN; none for other netdevs."""
        lower = self._lower
        below, waiting = set[str](), list(lower.get(name, ()))
        while waiting:
            if (each := waiting.pop()) not in below:
                below.add(each)
                waiting += lower.get(each, ())
        return self.physical_netdevs() & below

    @cached_property
    def _lower(self) -> dict[str, list[str]]:
        return {netdev.name: netdev.lower for netdev in self.netdevs}

    def active_nics(self) -> list[Netdev]:
        """Return the physical netdevs that are up, management ones last.

        Traffic that another node sends for an experiment uses the first one with an address.
        """
        cards = [
            netdev for netdev in self.netdevs if not netdev.virtual and netdev.name != "lo" and netdev.up is not False
        ]
        return sorted(cards, key=lambda netdev: netdev.management)

    @cached_property
    def reserved_cpus(self) -> frozenset[int]:
        """Return the numbers of the CPUs that are reserved for a container or a cpuset partition."""
        return frozenset[int]().union(*(each.numbers for each in self.reserved))

    def irq(self, number: int) -> Irq | None:
        """Return the interrupt of this number; None where the node has none."""
        return self._by_number.get(number)

    def user_of(self, netdev: str, queue: str | None = None) -> QueueUser | None:
        """Return a program that uses a queue of a netdev, or any queue where none is named; None without one."""
        users = (user for user in self.queue_users if user.device == netdev)
        return next((user for user in users if queue is None or not user.queues or queue in user.queues), None)

    def user_of_irq(self, irq: Irq) -> QueueUser | None:
        """Return a program that uses an interrupt; None without one."""
        return next((user for user in self.queue_users if user.uses(irq)), None)

    @cached_property
    def _by_number(self) -> dict[int, Irq]:
        return {irq.irq: irq for irq in self.irqs}
