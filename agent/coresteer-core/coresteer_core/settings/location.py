"""Places in a View of a node that hold the values of settings."""

from typing import TypeAlias

from msgspec import Struct


class IrqLocation(Struct, frozen=True):
    """Place of an interrupt's affinity in a View: ``Inventory.irqs``."""

    irq: int


class QueueCpusLocation(Struct, frozen=True):
    """Place of a queue's RPS or XPS CPUs in a View: ``Netdev.queues``. queue_name: ``rx-0``."""

    netdev: str
    queue_name: str


class ParamsLocation(Struct, frozen=True):
    """Place of a netdev's or queue's parameter in a View: ``Netdev.params``, or ``Queue.params`` with a queue_name."""

    netdev: str
    queue_name: str | None
    name: str


class QueuesLocation(Struct, frozen=True):
    """Place of RSS and channels in a View: a netdev, whose queues and interrupts may be others after a write."""

    netdev: str


class FlowRuleLocation(Struct, frozen=True):
    """Place of a flow rule in a View: ``Netdev.flow_rules``. location: its slot."""

    netdev: str
    location: int


class RssContextLocation(Struct, frozen=True):
    """Place of an RSS context's table in a View: ``Netdev.rss_contexts``."""

    netdev: str
    number: int


class TaskLocation(Struct, frozen=True):
    """Place of a process's affinity or nice value in a View: ``View.tasks``."""

    pid: int
    name: str


class CgroupLocation(Struct, frozen=True):
    """Place of a cgroup's value in a View: a weight in ``View.cgroups``, CPUs and NUMA nodes in ``View.cpusets``."""

    path: str
    name: str


class MachineLocation(Struct, frozen=True):
    """Place of a sysctl parameter's value in a View: ``Inventory.settings``. path: its file, without leading slash."""

    key: str
    path: str


Location: TypeAlias = (
    IrqLocation
    | QueueCpusLocation
    | ParamsLocation
    | QueuesLocation
    | FlowRuleLocation
    | RssContextLocation
    | TaskLocation
    | CgroupLocation
    | MachineLocation
)
