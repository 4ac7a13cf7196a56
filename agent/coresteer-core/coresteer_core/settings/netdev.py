"""Number of queues of a netdev, and the queues that receive packets (ethtool -L, -X)."""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from coresteer_core.node.view import View
from coresteer_core.settings.base import Form, Setting, SettingError, no_netdev
from coresteer_core.settings.location import QueuesLocation

NETDEV = r"([A-Za-z0-9_][A-Za-z0-9_.@+-]{0,14})"
"""A netdev's name in a key."""
QUEUE = r"(0|[1-9]\d{0,4})"
"""A queue's number in a key."""

_MAX_VALUE = 32_768
"""More than the longest table of a driver, 4096 queues of four digits."""
_QUEUE = re.compile(r"\d{1,4}\Z", re.ASCII)
_CHANNEL = re.compile(r"(rx|tx|combined) (\d{1,4})\Z", re.ASCII)


class _OfNetdev(Setting, frozen=True):
    """Base of settings of a netdev as a whole that change which queues it has or uses."""

    netdev: str

    _name: ClassVar[str] = ""

    @classmethod
    def samples(cls) -> Sequence[Setting]:
        """Return one setting."""
        return [cls("eth0")]

    @property
    def key(self) -> str:
        """Its address."""
        return f"netdev/{self.netdev}/{self._name}"

    @property
    def name(self) -> str:
        """The end of its key."""
        return self._name

    @property
    def subject(self) -> str:
        """Its netdev."""
        return self.netdev

    @property
    def location(self) -> QueuesLocation:
        """Where a View has its value."""
        return QueuesLocation(self.netdev)

    def missing_reason(self, view: View) -> str | None:
        """Return why a node does not have it, as a sentence; None where it does."""
        return None if view.inventory.netdev(self.netdev) is not None else no_netdev(self.netdev)

    def affected_netdev(self, view: View) -> str | None:
        """Return its netdev."""
        return self.netdev


class RssTable(_OfNetdev, frozen=True):
    """``netdev/eth0/rss``: the receive queues of the hash's buckets as their shortest pattern, ``0,1,2,3``."""

    _name = "rss"
    forms: ClassVar[Sequence[Form]] = (
        Form(
            "netdev/NAME/rss",
            rf"netdev/{NETDEV}/rss",
            lambda m: RssTable(m[1]),
            subject="$1",
            name="rss",
            target="nic:$1",
        ),
    )

    @property
    def title(self) -> str:
        """``RSS``."""
        return "RSS"

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of a list of queue numbers."""
        return {"type": "string", "pattern": r"^\d{1,4}(,\d{1,4})*$"}

    def canonical(self, value: str) -> str:
        """Return the shortest pattern. Raises SettingError for a value that is no list of queues."""
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
        """Return the value of a table; its last repetition may be cut."""
        period = next(n for n in range(1, len(table) + 1) if all(q == table[i % n] for i, q in enumerate(table)))
        return ",".join(map(str, table[:period]))

    @staticmethod
    def table(value: str, entries: int) -> list[int]:
        """Return the table of a value. Raises SettingError where the pattern is longer than the table."""
        queues = [int(queue) for queue in value.split(",")]
        if len(queues) > entries:
            raise SettingError(f"The pattern of {len(queues)} queues is longer than the table, which has {entries}.")
        return [queues[entry % len(queues)] for entry in range(entries)]

    def current(self, view: View) -> str | None:
        """Return the value that a View shows, None where it is unknown."""
        netdev = view.inventory.netdev(self.netdev)
        return netdev.rss if netdev is not None else None

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return ``queue`` for a receive queue that the netdev does not have."""
        netdev = view.inventory.netdev(self.netdev)
        has = {queue.name for queue in netdev.queues} if netdev is not None else set()
        wrong = [queue for queue in value.split(",") if has and f"rx-{queue}" not in has]
        return [("queue", f"{self.netdev} has no receive queue {wrong[0]}.")] if wrong else []

    def format_value(self, value: str) -> str:
        """Return the queues in a sentence."""
        return f"queue{'s' if ',' in value else ''} {value}"

    def shell_command(self, value: str) -> str:
        """Return the command; where queues are not consecutive, with the same shares in another order."""
        queues = [int(queue) for queue in value.split(",")]
        if queues == list(range(queues[0], queues[0] + len(queues))):
            return f"ethtool -X {self.netdev} start {queues[0]} equal {len(queues)}"
        weights = [str(queues.count(queue)) for queue in range(max(queues) + 1)]
        return f"ethtool -X {self.netdev} weight {' '.join(weights)}"


class Channels(_OfNetdev, frozen=True):
    """``netdev/eth0/channels``: the number of queues of each kind, ``combined 4`` or ``rx 2,tx 2``."""

    _name = "channels"
    forms: ClassVar[Sequence[Form]] = (
        Form(
            "netdev/NAME/channels", rf"netdev/{NETDEV}/channels", lambda m: Channels(m[1]), "$1", "channels", "nic:$1"
        ),
    )

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of numbers by kind."""
        return {"type": "string", "pattern": r"^(rx|tx|combined) \d{1,4}(,(rx|tx|combined) \d{1,4})*$"}

    def canonical(self, value: str) -> str:
        """Return numbers by kind in order, without zeros. Raises SettingError for anything else, also for none."""
        counts: dict[str, int] = {}
        for part in value.split(","):
            match = _CHANNEL.match(part.strip())
            if match is None or match[1] in counts:
                raise SettingError(
                    f"“{part.strip()[:40]}” is not understood; write for example combined 4, or rx 2,tx 2."
                )
            counts[match[1]] = int(match[2])
        if not any(counts.values()):
            raise SettingError("A network device needs at least one channel; write for example combined 1.")
        return self.value(counts)

    @staticmethod
    def value(counts: Mapping[str, int]) -> str:
        """Return the value of numbers by kind."""
        return ",".join(f"{kind} {counts[kind]}" for kind in ("rx", "tx", "combined") if counts.get(kind))

    @staticmethod
    def counts(value: str) -> dict[str, int]:
        """Return the numbers of a value by kind."""
        return {kind: int(count) for kind, count in (part.split(" ") for part in value.split(",") if part)}

    def current(self, view: View) -> str | None:
        """Return the value that a View shows, None where it is unknown."""
        netdev = view.inventory.netdev(self.netdev)
        return netdev.channels if netdev is not None else None

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return ``channels`` for more of a kind than the netdev can have."""
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None or netdev.channels_max is None:
            return []
        most = self.counts(netdev.channels_max)
        if all(count <= most.get(kind, 0) for kind, count in self.counts(value).items()):
            return []
        return [("channels", f"{self.netdev} has channels for {netdev.channels_max} at the most, not {value}.")]

    def warnings(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return ``restart``: the netdev restarts when its queues change."""
        sentence = (
            f"{self.netdev} restarts for it: packets are lost for a moment, "
            "and its queues and interrupts begin anew, RPS and affinity included."
        )
        return [("restart", sentence)]

    def describe(self, view: View | None = None) -> str:
        """Return its name in a sentence."""
        return f"{self.netdev}'s number of channels"

    def shell_command(self, value: str) -> str:
        """Return the shell command that sets a value."""
        return f"ethtool -L {self.netdev} {value.replace(',', ' ')}"
