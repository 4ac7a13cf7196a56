"""RPS and XPS: CPUs of a receive or transmit queue (kernel: Documentation/networking/scaling.rst)."""

from collections.abc import Sequence
from typing import ClassVar

from coresteer_core.cpuset import format_cpu_mask, parse_cpu_list
from coresteer_core.node.view import View
from coresteer_core.settings.base import CPU_LIST_SCHEMA, KeyForm, Setting, canonical_cpu_list, format_cpus
from coresteer_core.settings.location import QueueCpusLocation
from coresteer_core.settings.modified_view import ModifiedView
from coresteer_core.settings.netdev import NETDEV_PATTERN, QUEUE_PATTERN, NetdevSetting

NO_CPUS = "none"


class _QueueCpus(NetdevSetting, frozen=True):
    """Base of RPS and XPS. The value is a CPU list, or ``none`` where RPS or XPS is off."""

    queue: int

    _kind: ClassVar[str] = ""
    _direction: ClassVar[str] = ""
    _file: ClassVar[str] = ""

    @classmethod
    def examples(cls) -> Sequence[Setting]:
        """Return one example setting."""
        return [cls("eth0", 0)]

    @property
    def queue_name(self) -> str:
        """The name of the queue in sysfs: ``rx-0``."""
        return f"{self._direction}-{self.queue}"

    @property
    def name(self) -> str:
        """The last part of the setting's key: ``rps``, ``xps``."""
        return self._kind.lower()

    @property
    def title(self) -> str:
        """The setting's name in the kernel's documentation: ``RPS``, ``XPS``."""
        return self._kind

    @property
    def path(self) -> str:
        """The path of the setting's file in /sys/class/net/NAME: ``queues/rx-0/rps_cpus``."""
        return f"queues/{self.queue_name}/{self._file}"

    @property
    def location(self) -> QueueCpusLocation:
        """The place in a View of the node that holds the queue's CPUs."""
        return QueueCpusLocation(self.netdev, self.queue_name)

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the setting's value, a CPU list."""
        return CPU_LIST_SCHEMA

    def canonical(self, value: str) -> str:
        """Return a CPU list as the kernel prints it; ``none`` for an empty one. Raises SettingError for other text."""
        return NO_CPUS if value.strip() == NO_CPUS else canonical_cpu_list(value) or NO_CPUS

    def equal(self, first: str, second: str) -> bool:
        """Return whether two values contain the same CPUs."""
        return self.cpus(first) == self.cpus(second)

    def cpus(self, value: str) -> frozenset[int]:
        """Return the CPU numbers in a value; none where RPS or XPS is off."""
        return frozenset() if value == NO_CPUS else parse_cpu_list(value)

    def current(self, view: View) -> str | None:
        """Return the queue's present CPUs from a View of the node; None where they are unknown."""
        queue = self.queue_in(view)
        value = None if queue is None else queue.rps if self._direction == "rx" else queue.xps
        return None if value is None else self.canonical(value)

    def format_value(self, value: str) -> str:
        """Return the CPUs in a value as text for a sentence: ``CPUs 0-3``, ``no CPU``."""
        return format_cpus(self.cpus(value))

    def mask(self, value: str) -> str:
        """Return a value as the hexadecimal CPU mask that the kernel file takes."""
        return format_cpu_mask(self.cpus(value))

    def shell_command(self, value: str) -> str:
        """Return a shell command that writes the CPU mask to the queue's file in sysfs."""
        return f"echo {self.mask(value)} > /sys/class/net/{self.netdev}/{self.path}"


class Rps(_QueueCpus, frozen=True):
    """``netdev/eth0/rx-0/rps``: the CPUs that process a receive queue's packets after its interrupt (RPS)."""

    _kind = "RPS"
    _direction = "rx"
    _file = "rps_cpus"
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "netdev/NAME/rx-NUMBER/rps",
            rf"netdev/{NETDEV_PATTERN}/rx-{QUEUE_PATTERN}/rps",
            lambda m: Rps(m[1], int(m[2])),
            subject="$1 rx-$2",
            name="rps",
            target="nic:$1",
        ),
    )


class Xps(_QueueCpus, frozen=True):
    """``netdev/eth0/tx-0/xps``: the CPUs whose outgoing packets use a transmit queue (XPS)."""

    places_work = False

    _kind = "XPS"
    _direction = "tx"
    _file = "xps_cpus"
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "netdev/NAME/tx-NUMBER/xps",
            rf"netdev/{NETDEV_PATTERN}/tx-{QUEUE_PATTERN}/xps",
            lambda m: Xps(m[1], int(m[2])),
            subject="$1 tx-$2",
            name="xps",
            target="nic:$1",
        ),
    )

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Let these CPUs send by the queue in a modified View."""
        view.set_xps(self.netdev, self.queue_name, "" if value == NO_CPUS else value)
