"""How many queues a netdev has, and which of them get packets."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from coresteer_core.node.view import View
from coresteer_core.settings.base import SettingError, no_netdev

_MAX_VALUE = 32_768
"""More than the longest table of a driver, 4096 queues of four digits."""
_QUEUE = re.compile(r"\d{1,4}\Z", re.ASCII)
_CHANNEL = re.compile(r"(rx|tx|combined) (\d{1,4})\Z", re.ASCII)


class _OfNetdev(Struct, frozen=True):
    """What is common to settings of a netdev as a whole: they name no CPUs."""

    netdev: str

    _name = ""

    @property
    def key(self) -> str:
        """Its address."""
        return f"netdev/{self.netdev}/{self._name}"

    def shown(self, value: str) -> str:
        """What a view shows where this value stands."""
        return value

    def cpus(self, value: str) -> frozenset[int]:
        """None: it names no CPUs."""
        return frozenset()

    def absent(self, view: View) -> str | None:
        """Why a node does not have it, as a sentence; None where it does."""
        return None if view.inventory.netdev(self.netdev) is not None else no_netdev(self.netdev)

    def about(self, view: View) -> str | None:
        """The netdev whose packets it is about."""
        return self.netdev


class RssTable(_OfNetdev, frozen=True):
    """``netdev/eth0/rss``: the receive queues of the hash's buckets, their shortest pattern, ``0,1,2,3``."""

    _name = "rss"

    def canonical(self, value: str) -> str:
        """The shortest spelling. Raises SettingError for what is no list of queues."""
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
        """The value of a table; its last repetition may be cut."""
        period = next(n for n in range(1, len(table) + 1) if all(q == table[i % n] for i, q in enumerate(table)))
        return ",".join(map(str, table[:period]))

    @staticmethod
    def table(value: str, entries: int) -> list[int]:
        """The table of a value. Raises SettingError where it is longer than the table."""
        queues = [int(queue) for queue in value.split(",")]
        if len(queues) > entries:
            raise SettingError(f"The pattern of {len(queues)} queues is longer than the table, which has {entries}.")
        return [queues[entry % len(queues)] for entry in range(entries)]

    def equal(self, first: str, second: str) -> bool:
        """Whether two values mean the same to the kernel."""
        return self.canonical(first) == self.canonical(second)

    def current(self, view: View) -> str | None:
        """The value that a view shows, None where it is not known."""
        netdev = view.inventory.netdev(self.netdev)
        return netdev.rss if netdev is not None else None

    def against(self, view: View, value: str) -> list[tuple[str, str]]:
        """What of the setting itself speaks against a value: codes of Refusal, each with a sentence."""
        netdev = view.inventory.netdev(self.netdev)
        has = {queue.name for queue in netdev.queues} if netdev is not None else set()
        wrong = [queue for queue in value.split(",") if has and f"rx-{queue}" not in has]
        return [("queue", f"{self.netdev} has no receive queue {wrong[0]}.")] if wrong else []

    def describe(self, view: View | None = None) -> str:
        """Its name in a sentence."""
        return f"RSS of {self.netdev}"

    def say(self, value: str) -> str:
        """A value in a sentence."""
        return f"queue{'s' if ',' in value else ''} {value}"

    def shell(self, value: str) -> str:
        """The same by hand; where queues are not one after the other, in the same shares but another order."""
        queues = [int(queue) for queue in value.split(",")]
        if queues == list(range(queues[0], queues[0] + len(queues))):
            return f"ethtool -X {self.netdev} start {queues[0]} equal {len(queues)}"
        weights = [str(queues.count(queue)) for queue in range(max(queues) + 1)]
        return f"ethtool -X {self.netdev} weight {' '.join(weights)}"


class Channels(_OfNetdev, frozen=True):
    """``netdev/eth0/channels``: how many queues there are of each kind, ``combined 4`` or ``rx 2,tx 2``."""

    _name = "channels"

    def canonical(self, value: str) -> str:
        """Kinds in order, without those that have none. Raises SettingError for what makes no sense."""
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
        """The value of these counts by kind."""
        return ",".join(f"{kind} {counts[kind]}" for kind in ("rx", "tx", "combined") if counts.get(kind))

    @staticmethod
    def counts(value: str) -> dict[str, int]:
        """By kind, what a canonical value says."""
        return {kind: int(count) for kind, count in (part.split(" ") for part in value.split(",") if part)}

    def equal(self, first: str, second: str) -> bool:
        """Whether two values mean the same to the kernel."""
        return self.canonical(first) == self.canonical(second)

    def current(self, view: View) -> str | None:
        """The value that a view shows, None where it is not known."""
        netdev = view.inventory.netdev(self.netdev)
        return netdev.channels if netdev is not None else None

    def against(self, view: View, value: str) -> list[tuple[str, str]]:
        """What of the setting itself speaks against a value: codes of Refusal, each with a sentence."""
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None or netdev.channels_max is None:
            return []
        most = self.counts(netdev.channels_max)
        if all(count <= most.get(kind, 0) for kind, count in self.counts(value).items()):
            return []
        return [("channels", f"{self.netdev} has channels for {netdev.channels_max} at the most, not {value}.")]

    def describe(self, view: View | None = None) -> str:
        """Its name in a sentence."""
        return f"{self.netdev}'s number of channels"

    def say(self, value: str) -> str:
        """A value in a sentence."""
        return value

    def shell(self, value: str) -> str:
        """The same by hand."""
        return f"ethtool -L {self.netdev} {value.replace(',', ' ')}"
