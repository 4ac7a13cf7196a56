"""Which CPUs work for a queue of a netdev (kernel: Documentation/networking/scaling.rst)."""

from msgspec import Struct

from coresteer_core.cpuset import format_cpu_mask, parse_cpu_list
from coresteer_core.node.inventory import Queue
from coresteer_core.node.view import View
from coresteer_core.settings.base import cpu_list, no_netdev, say_cpus

NONE = "none"


class _QueueCpus(Struct, frozen=True):
    """A CPU list, or ``none``: then it is switched off."""

    netdev: str
    queue: int

    _kind = ""
    _way = ""
    _file = ""

    @property
    def queue_name(self) -> str:
        """``rx-0``, as in sysfs."""
        return f"{self._way}-{self.queue}"

    @property
    def key(self) -> str:
        """Its address."""
        return f"netdev/{self.netdev}/{self.queue_name}/{self._kind.lower()}"

    @property
    def path(self) -> str:
        """The kernel file, below the netdev's folder."""
        return f"queues/{self.queue_name}/{self._file}"

    def canonical(self, value: str) -> str:
        """The value in its one spelling. Raises SettingError for a value it could not take."""
        return NONE if value.strip() == NONE else cpu_list(value) or NONE

    def equal(self, first: str, second: str) -> bool:
        """Whether two values mean the same to the kernel."""
        return self.cpus(first) == self.cpus(second)

    def shown(self, value: str) -> str:
        """What a view shows where this value stands."""
        return value

    def cpus(self, value: str) -> frozenset[int]:
        """The CPUs that a value names."""
        return frozenset() if value == NONE else parse_cpu_list(value)

    def absent(self, view: View) -> str | None:
        """Why a node does not have it, as a sentence; None where it does."""
        if view.inventory.netdev(self.netdev) is None:
            return no_netdev(self.netdev)
        return None if self._found(view) is not None else f"{self.netdev} has no queue {self.queue_name}."

    def current(self, view: View) -> str | None:
        """The value that a view shows, None where it is not known."""
        queue = self._found(view)
        value = None if queue is None else queue.rps if self._way == "rx" else queue.xps
        return None if value is None else self.canonical(value)

    def against(self, view: View, value: str) -> list[tuple[str, str]]:
        """Nothing of its own speaks against a value."""
        return []

    def about(self, view: View) -> str | None:
        """The netdev whose packets it is about."""
        return self.netdev

    def describe(self, view: View | None = None) -> str:
        """Its name in a sentence."""
        return f"{self._kind} of {self.netdev} {self.queue_name}"

    def say(self, value: str) -> str:
        """A value in a sentence."""
        return say_cpus(self.cpus(value))

    def mask(self, value: str) -> str:
        """A value as the kernel takes it."""
        return format_cpu_mask(self.cpus(value))

    def shell(self, value: str) -> str:
        """The same by hand."""
        return f"echo {self.mask(value)} > /sys/class/net/{self.netdev}/{self.path}"

    def _found(self, view: View) -> Queue | None:
        netdev = view.inventory.netdev(self.netdev)
        queues = netdev.queues if netdev is not None else []
        return next((queue for queue in queues if queue.name == self.queue_name), None)


class Rps(_QueueCpus, frozen=True):
    """``netdev/eth0/rx-0/rps``: the CPUs that a receive queue's packets are passed on to."""

    _kind = "RPS"
    _way = "rx"
    _file = "rps_cpus"


class Xps(_QueueCpus, frozen=True):
    """``netdev/eth0/tx-0/xps``: the CPUs that send by a transmit queue."""

    _kind = "XPS"
    _way = "tx"
    _file = "xps_cpus"
