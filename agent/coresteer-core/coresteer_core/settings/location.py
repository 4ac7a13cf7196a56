"""Places in a View that hold the values of settings: a closed set, whereas kinds of settings are added."""

from typing import TypeAlias

from msgspec import Struct


class IrqLocation(Struct, frozen=True):
    """``Inventory.irqs``: the affinity of one interrupt."""

    irq: int


class QueueCpusLocation(Struct, frozen=True):
    """``Netdev.queues``: RPS or XPS of one queue (``rx-0``)."""

    netdev: str
    queue_name: str


class ParamsLocation(Struct, frozen=True):
    """``Netdev.params``, or ``Queue.params`` where queue_name is not None."""

    netdev: str
    queue_name: str | None
    name: str


class QueuesLocation(Struct, frozen=True):
    """``Netdev.queues`` as a whole: after a write the netdev may have other queues and interrupts."""

    netdev: str


class TaskLocation(Struct, frozen=True):
    """``View.tasks``: one value of a process."""

    pid: int
    name: str


class CgroupLocation(Struct, frozen=True):
    """``View.cgroups``: one value of a cgroup."""

    path: str
    name: str


class MachineLocation(Struct, frozen=True):
    """``Inventory.settings``: a value of the machine as a whole. path: its file, below the root directory."""

    key: str
    path: str


Location: TypeAlias = (
    IrqLocation | QueueCpusLocation | ParamsLocation | QueuesLocation | TaskLocation | CgroupLocation | MachineLocation
)
