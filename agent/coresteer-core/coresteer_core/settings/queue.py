"""CPUs that work for a queue of a netdev: RPS and XPS (kernel: Documentation/networking/scaling.rst)."""

from collections.abc import Sequence
from typing import ClassVar

from coresteer_core.cpuset import format_cpu_mask, parse_cpu_list
from coresteer_core.node.inventory import Queue
from coresteer_core.node.view import View
from coresteer_core.settings.base import CPU_LIST_SCHEMA, Form, Setting, cpu_list, format_cpus, no_netdev
from coresteer_core.settings.location import QueueCpusLocation
from coresteer_core.settings.netdev import NETDEV, QUEUE

NONE = "none"


class _QueueCpus(Setting, frozen=True):
    """A CPU list, or ``none`` where it is switched off."""

    netdev: str
    queue: int

    _kind: ClassVar[str] = ""
    _direction: ClassVar[str] = ""
    _file: ClassVar[str] = ""

    @classmethod
    def samples(cls) -> Sequence[Setting]:
        """Return one setting."""
        return [cls("eth0", 0)]

    @property
    def queue_name(self) -> str:
        """``rx-0``, as in sysfs."""
        return f"{self._direction}-{self.queue}"

    @property
    def key(self) -> str:
        """Its address."""
        return f"netdev/{self.netdev}/{self.queue_name}/{self.name}"

    @property
    def name(self) -> str:
        """The end of its key."""
        return self._kind.lower()

    @property
    def title(self) -> str:
        """``RPS`` or ``XPS``."""
        return self._kind

    @property
    def subject(self) -> str:
        """Its queue."""
        return f"{self.netdev} {self.queue_name}"

    @property
    def path(self) -> str:
        """The kernel file, below the netdev's folder."""
        return f"queues/{self.queue_name}/{self._file}"

    @property
    def location(self) -> QueueCpusLocation:
        """Where a View has its value."""
        return QueueCpusLocation(self.netdev, self.queue_name)

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of a CPU list."""
        return CPU_LIST_SCHEMA

    def canonical(self, value: str) -> str:
        """Return a CPU list as the kernel prints it, or ``none``. Raises SettingError."""
        return NONE if value.strip() == NONE else cpu_list(value) or NONE

    def equal(self, first: str, second: str) -> bool:
        """Return whether two values name the same CPUs."""
        return self.cpus(first) == self.cpus(second)

    def cpus(self, value: str) -> frozenset[int]:
        """Return the CPUs that a value names."""
        return frozenset() if value == NONE else parse_cpu_list(value)

    def missing_reason(self, view: View) -> str | None:
        """Return why a node does not have it, as a sentence; None where it does."""
        if view.inventory.netdev(self.netdev) is None:
            return no_netdev(self.netdev)
        return None if self._found(view) is not None else f"{self.netdev} has no queue {self.queue_name}."

    def current(self, view: View) -> str | None:
        """Return the value that a View shows, None where it is unknown."""
        queue = self._found(view)
        value = None if queue is None else queue.rps if self._direction == "rx" else queue.xps
        return None if value is None else self.canonical(value)

    def affected_netdev(self, view: View) -> str | None:
        """Return its netdev."""
        return self.netdev

    def format_value(self, value: str) -> str:
        """Return the CPUs in a sentence."""
        return format_cpus(self.cpus(value))

    def mask(self, value: str) -> str:
        """Return a value as the hexadecimal mask that the kernel reads."""
        return format_cpu_mask(self.cpus(value))

    def shell_command(self, value: str) -> str:
        """Return the shell command that sets a value."""
        return f"echo {self.mask(value)} > /sys/class/net/{self.netdev}/{self.path}"

    def _found(self, view: View) -> Queue | None:
        netdev = view.inventory.netdev(self.netdev)
        queues = netdev.queues if netdev is not None else []
        return next((queue for queue in queues if queue.name == self.queue_name), None)


class Rps(_QueueCpus, frozen=True):
    """``netdev/eth0/rx-0/rps``: the CPUs that process the packets of a receive queue after its interrupt."""

    _kind = "RPS"
    _direction = "rx"
    _file = "rps_cpus"
    forms: ClassVar[Sequence[Form]] = (
        Form(
            "netdev/NAME/rx-NUMBER/rps",
            rf"netdev/{NETDEV}/rx-{QUEUE}/rps",
            lambda m: Rps(m[1], int(m[2])),
            subject="$1 rx-$2",
            name="rps",
            target="nic:$1",
        ),
    )


class Xps(_QueueCpus, frozen=True):
    """``netdev/eth0/tx-0/xps``: the CPUs whose packets are sent by a transmit queue."""

    _kind = "XPS"
    _direction = "tx"
    _file = "xps_cpus"
    forms: ClassVar[Sequence[Form]] = (
        Form(
            "netdev/NAME/tx-NUMBER/xps",
            rf"netdev/{NETDEV}/tx-{QUEUE}/xps",
            lambda m: Xps(m[1], int(m[2])),
            subject="$1 tx-$2",
            name="xps",
            target="nic:$1",
        ),
    )
