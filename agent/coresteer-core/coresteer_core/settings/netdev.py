"""NetdevSetting, the base class of settings of a NIC; its number of queues and its RSS table (ethtool -L, -X)."""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from coresteer_core.node.inventory import Queue
from coresteer_core.node.view import View
from coresteer_core.settings.base import KeyForm, Setting, SettingError
from coresteer_core.settings.location import QueuesLocation
from coresteer_core.settings.modified_view import ModifiedView

NETDEV_PATTERN = r"([A-Za-z0-9_][A-Za-z0-9_.@+-]{0,14})"
"""Regular expression of a network device's name in a key."""
QUEUE_PATTERN = r"(0|[1-9]\d{0,4})"
"""Regular expression of a queue's number in a key."""

_MAX_VALUE = 32_768
"""Maximum length of an RSS value: more than the longest table of a driver, 4096 queues of four digits."""
_QUEUE = re.compile(r"\d{1,4}\Z", re.ASCII)
CHANNEL_KINDS = ("rx", "tx", "combined")
"""Kinds of channels that Coresteer sets, in the order of a value."""
_CHANNEL = re.compile(r"(rx|tx|combined) (\d{1,4})\Z", re.ASCII)


class NetdevSetting(Setting, frozen=True):
    """Base class of settings of a netdev as a whole, and of settings of one of its queues."""

    netdev: str

    @property
    def queue_name(self) -> str | None:
        """The queue that the setting belongs to, ``rx-0`` as in sysfs; None for a setting of the netdev as a whole."""
        return None

    @property
    def key(self) -> str:
        """The setting's key, such as ``netdev/eth0/rss`` or ``netdev/eth0/rx-0/rps``."""
        owner = self.netdev if self.queue_name is None else f"{self.netdev}/{self.queue_name}"
        return f"netdev/{owner}/{self.name}"

    @property
    def subject(self) -> str:
        """The netdev or the queue that the setting belongs to, ``eth0`` or ``eth0 rx-0``."""
        return self.netdev if self.queue_name is None else f"{self.netdev} {self.queue_name}"

    def missing_reason(self, view: View) -> str | None:
        """Return a sentence that says that a node lacks the netdev or the queue; None where the node has it."""
        if view.inventory.netdev(self.netdev) is None:
            return f"This node has no network device {self.netdev}."
        if self.queue_name is None or self.queue_in(view) is not None:
            return None
        return f"{self.netdev} has no queue {self.queue_name}."

    def affected_netdev(self, view: View) -> str | None:
        """Return the name of the netdev that the setting belongs to."""
        return self.netdev

    def queue_in(self, view: View) -> Queue | None:
        """Return the setting's queue from a View of the node; None where the node has no such queue."""
        netdev = view.inventory.netdev(self.netdev)
        queues = netdev.queues if netdev is not None else []
        return next((queue for queue in queues if queue.name == self.queue_name), None)


class _OfNetdev(NetdevSetting, frozen=True):
    """Base of the settings that change which queues a network device has or uses."""

    _name: ClassVar[str] = ""

    @classmethod
    def examples(cls) -> Sequence[Setting]:
        """Return one example setting."""
        return [cls("eth0")]

    @property
    def name(self) -> str:
        """The last part of the setting's key: ``rss``, ``channels``."""
        return self._name

    @property
    def location(self) -> QueuesLocation:
        """The place in a View of the node that holds the setting's value."""
        return QueuesLocation(self.netdev)


class RssTable(_OfNetdev, frozen=True):
    """``netdev/eth0/rss``: the RSS indirection table as its shortest repeating pattern of queues, ``0,1,2,3``."""

    _name = "rss"
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "netdev/NAME/rss",
            rf"netdev/{NETDEV_PATTERN}/rss",
            lambda m: RssTable(m[1]),
            subject="$1",
            name="rss",
            target="nic:$1",
        ),
    )

    @property
    def title(self) -> str:
        """The setting's name in ethtool and documentation: ``RSS``."""
        return "RSS"

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the table's pattern, a list of queue numbers."""
        return {"type": "string", "pattern": r"^\d{1,4}(,\d{1,4})*$"}

    def canonical(self, value: str) -> str:
        """Return the shortest pattern of receive queues. Raises SettingError for text that is not a list of queues."""
        queues = [part.strip() for part in value.split(",")]
        wrong = next((queue for queue in queues if _QUEUE.match(queue) is None), None)
        if wrong is not None:
            raise SettingError(f"“{wrong[:40]}” is not the number of a receive queue; write for example 0,1,2,3.")
        if len(value) > _MAX_VALUE:
            raise SettingError(
                "The list is too long; name the receive queues that get packets in turn, for example 0,1,2,3."
            )
        numbers = [int(queue) for queue in queues]
        whole = len(numbers)
        period = next(n for n in range(1, whole + 1) if whole % n == 0 and numbers[:n] * (whole // n) == numbers)
        return ",".join(map(str, numbers[:period]))

    @staticmethod
    def pattern(table: Sequence[int]) -> str:
        """Return the shortest pattern that repeats in an indirection table; its last repetition may be incomplete."""
        period = next(n for n in range(1, len(table) + 1) if table[n:] == table[: len(table) - n])
        return ",".join(map(str, table[:period]))

    @staticmethod
    def table(value: str, entries: int) -> list[int]:
        """Return the indirection table that repeats a pattern. Raises SettingError if the table is shorter."""
        queues = [int(queue) for queue in value.split(",")]
        if len(queues) > entries:
            raise SettingError(f"The pattern of {len(queues)} queues is longer than the RSS table ({entries} entries).")
        return [queues[entry % len(queues)] for entry in range(entries)]

    def current(self, view: View) -> str | None:
        """Return the present value from a View of the node; None where it is unknown."""
        netdev = view.inventory.netdev(self.netdev)
        return netdev.rss if netdev is not None else None

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return code ``queue`` and a sentence for a receive queue that the netdev lacks, or a too long pattern."""
        netdev, queues = view.inventory.netdev(self.netdev), value.split(",")
        has = {queue.name for queue in netdev.queues} if netdev is not None else set()
        wrong = [queue for queue in queues if has and f"rx-{queue}" not in has]
        if wrong:
            return [("queue", f"{self.netdev} has no receive queue {wrong[0]}.")]
        try:
            self.table(value, netdev.rss_entries if netdev is not None and netdev.rss_entries else len(queues))
        except SettingError as error:
            return [("queue", str(error))]
        return []

    def format_value(self, value: str) -> str:
        """Return the receive queues of a pattern for a sentence: ``queues 0,1,2,3``."""
        return f"queue{'s' if ',' in value else ''} {value}"

    def shell_command(self, value: str) -> str:
        """Return an ``ethtool -X`` command; non-consecutive queues get the same shares in another order."""
        queues = [int(queue) for queue in value.split(",")]
        if queues == list(range(queues[0], queues[0] + len(queues))):
            return f"ethtool -X {self.netdev} start {queues[0]} equal {len(queues)}"
        weights = [str(queues.count(queue)) for queue in range(max(queues) + 1)]
        return f"ethtool -X {self.netdev} weight {' '.join(weights)}"

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Set the table in a modified View; heavy flows move to the queues of their entries."""
        view.set_rss(self.netdev, value)


class Channels(_OfNetdev, frozen=True):
    """``netdev/eth0/channels``: the number of queues (ethtool -L) of each kind, ``combined 4`` or ``rx 2,tx 2``."""

    _name = "channels"
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "netdev/NAME/channels",
            rf"netdev/{NETDEV_PATTERN}/channels",
            lambda m: Channels(m[1]),
            "$1",
            "channels",
            "nic:$1",
        ),
    )

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the numbers of channels, ``combined 4`` or ``rx 2,tx 2``."""
        return {"type": "string", "pattern": r"^(rx|tx|combined) \d{1,4}(,(rx|tx|combined) \d{1,4})*$"}

    def canonical(self, value: str) -> str:
        """Return numbers of channels in fixed order without zeros. Raises SettingError if invalid or none."""
        counts: dict[str, int] = {}
        for part in value.split(","):
            match = _CHANNEL.match(part.strip())
            if match is None or match[1] in counts:
                raise SettingError(
                    f"“{part.strip()[:40]}” is invalid or repeats a kind of channel; "
                    "write for example combined 4, or rx 2,tx 2."
                )
            counts[match[1]] = int(match[2])
        if not any(counts.values()):
            raise SettingError("A network device needs at least one channel; write for example combined 1.")
        return self.value(counts)

    @staticmethod
    def value(counts: Mapping[str, int]) -> str:
        """Return the setting's value for numbers of channels: ``{"combined": 4}`` is ``combined 4``."""
        return ",".join(f"{kind} {counts[kind]}" for kind in CHANNEL_KINDS if counts.get(kind))

    @staticmethod
    def counts(value: str) -> dict[str, int]:
        """Return the numbers of channels in a value by kind: ``rx 2,tx 2`` is ``{"rx": 2, "tx": 2}``."""
        return {kind: int(count) for kind, count in (part.split(" ") for part in value.split(",") if part)}

    def current(self, view: View) -> str | None:
        """Return the present value from a View of the node; None where it is unknown."""
        netdev = view.inventory.netdev(self.netdev)
        return netdev.channels if netdev is not None else None

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return code ``channels`` and a sentence for more channels than the network device can have."""
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None or netdev.channels_max is None:
            return []
        most = self.counts(netdev.channels_max)
        if all(count <= most.get(kind, 0) for kind, count in self.counts(value).items()):
            return []
        return [("channels", f"{self.netdev} has channels for {netdev.channels_max} at the most, not {value}.")]

    @property
    def interrupts_traffic(self) -> bool:
        """True: the network device restarts when its channels change."""
        return True

    def warnings(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return code ``restart`` and a sentence: the network device restarts when its channels change."""
        sentence = (
            f"{self.netdev} restarts when its channels change: packets are lost for a moment, "
            "and its queues and interrupts start with default RPS and affinity."
        )
        return [("restart", sentence)]

    def describe(self, view: View | None = None) -> str:
        """Return the setting's name for use in a sentence: ``eth0's number of channels``."""
        return f"{self.netdev}'s number of channels"

    def shell_command(self, value: str) -> str:
        """Return an ``ethtool -L`` command that sets the numbers of channels."""
        return f"ethtool -L {self.netdev} {value.replace(',', ' ')}"
