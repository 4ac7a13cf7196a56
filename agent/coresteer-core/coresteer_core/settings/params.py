"""Numbers and switches of a netdev or of one of its queues: when it interrupts, its rings, when the kernel polls it.

One table of what there is. Kernel: Documentation/networking/ethtool-netlink.rst (COALESCE, RINGS),
Documentation/networking/napi.rst, Documentation/netlink/specs/netdev.yaml (napi-set).
"""

import re

from msgspec import Struct

from coresteer_core.node.inventory import Netdev
from coresteer_core.node.nic import ASKED_AGAIN_S, Verdict
from coresteer_core.node.view import View
from coresteer_core.settings.base import SettingError, no_netdev

_DECIMAL = re.compile(r"\d{1,20}\Z", re.ASCII)
_U64 = 1 << 64
_MAX_WAIT_US = 10_000
_MAX_FRAMES = 65_535
_AGAIN = f"It can be asked again {ASKED_AGAIN_S // 3600} hours later."
_ON_OFF = {"on": "on", "1": "on", "off": "off", "0": "off"}


class Param(Struct, frozen=True):
    """One of them. name: the end of the key. unit: of its number, empty where it is a switch, ``on`` or ``off``.

    least, most: what may be asked for, sane for any device; a device's own bounds come on top. queue: the kind of
    queue that may have its own, ``rx`` or ``tx``; None where only the netdev has it.
    """

    name: str
    unit: str
    most: int = 0
    least: int = 0
    queue: str | None = None

    @property
    def word(self) -> str:
        """Its name as ethtool or sysfs spells it: ``rx-usecs``; a ring is ``rx ring``."""
        group, _, name = self.name.rpartition("/")
        return f"{name} ring" if group == "ring" else name

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return not self.unit


def _coalesce(way: str) -> list[Param]:
    return [
        Param(f"coalesce/{way}-usecs", "µs", _MAX_WAIT_US, queue=way),
        Param(f"coalesce/{way}-frames", "packets", _MAX_FRAMES, queue=way),
        Param(f"coalesce/{way}-usecs-irq", "µs", _MAX_WAIT_US, queue=way),
        Param(f"coalesce/{way}-frames-irq", "packets", _MAX_FRAMES, queue=way),
        Param(f"coalesce/adaptive-{way}", "", queue=way),
        Param(f"coalesce/cqe-mode-{way}", ""),
    ]


PARAMS = {
    param.name: param
    for param in (
        *_coalesce("rx"),
        *_coalesce("tx"),
        Param("ring/rx", "descriptors", 65_536, 1),
        Param("ring/tx", "descriptors", 65_536, 1),
        Param("gro_flush_timeout", "ns", _MAX_WAIT_US * 1000, queue="rx"),
        Param("napi_defer_hard_irqs", "polls", 1000, queue="rx"),
    )
}
"""Every one of them by name."""

IN_SYSFS = frozenset({"gro_flush_timeout", "napi_defer_hard_irqs"})
"""Those of the kernel's own packet polling (NAPI): a file of the netdev, netlink for one queue's."""


class _OfParam(Struct, frozen=True):
    """What is common to a netdev's and a queue's. param: a name of PARAMS."""

    netdev: str
    param: str

    def canonical(self, value: str) -> str:
        """The value in its one spelling. Raises SettingError for a value it could not take."""
        text = value.strip()
        if self._param.is_switch:
            if text in _ON_OFF:
                return _ON_OFF[text]
            raise SettingError(f"“{text[:40]}” is neither on nor off, which is all that {self._param.word} can be.")
        if _DECIMAL.match(text) and (number := int(text)) < _U64:
            return str(number)
        raise SettingError(f"“{text[:40]}” is not a number of {self._param.unit}; write for example 64.")

    def equal(self, first: str, second: str) -> bool:
        """Whether two values mean the same to the kernel."""
        return self.canonical(first) == self.canonical(second)

    def shown(self, value: str) -> str:
        """What a view shows where this value stands."""
        return value

    def cpus(self, value: str) -> frozenset[int]:
        """None: it names no CPUs."""
        return frozenset()

    def about(self, view: View) -> str | None:
        """The netdev whose packets it is about."""
        return self.netdev

    def against(self, view: View, value: str) -> list[tuple[str, str]]:
        """What of the setting itself speaks against a value: codes of Refusal, each with a sentence."""
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None:
            return []
        found = [("bounds", sentence)] if (sentence := self._out_of_bounds(netdev, value)) else []
        return found + [("learned", sentence) for sentence in self._learned(view, netdev, value)]

    def say(self, value: str) -> str:
        """A value in a sentence."""
        return value if self._param.is_switch else f"{value} {self._param.unit}"

    def _out_of_bounds(self, netdev: Netdev, value: str) -> str | None:
        if self._param.is_switch:
            return None
        most = min(int(netdev.params_max.get(self._param.name, self._param.most)), self._param.most)
        if self._param.least <= int(value) <= most:
            return None
        return f"{self.describe()} can be from {self._param.least} to {self.say(str(most))}, not {value}."

    def _learned(self, view: View, netdev: Netdev, value: str) -> list[str]:
        """What the driver made of that very value before, where it was not what was asked."""
        word, asked = self._param.word, self.say(value)
        found = []
        for tried in view.learned.tried(netdev.driver, self._param.name):
            if tried.asked != value:
                continue
            if tried.verdict is Verdict.REFUSED:
                found.append(
                    f"{netdev.driver} refused {word} {asked} before. Its words: {tried.words.rstrip('.')}. {_AGAIN}"
                )
            elif tried.verdict is Verdict.ROUNDED and tried.stood is not None:
                found.append(f"{netdev.driver} made {word} {tried.stood} of {value}; ask for {tried.stood}.")
            elif tried.verdict is Verdict.IGNORED:
                found.append(f"{netdev.driver} took {word} {asked} before and changed nothing. {_AGAIN}")
        return found

    @property
    def whose(self) -> str:
        """What has it, in a sentence."""
        return self.netdev

    def beside(self, view: View) -> dict[str, str]:
        """All values of whose it is, as a view shows them."""
        netdev = view.inventory.netdev(self.netdev)
        return netdev.params if netdev is not None else {}

    def current(self, view: View) -> str | None:
        """The value that a view shows, None where it is not known."""
        return self.beside(view).get(self.param)

    def moved_by(self, view: View) -> str | None:
        """The switch that is on and lets the driver change it as the load goes; None where there is none."""
        group, _, name = self.param.rpartition("/")
        way, _, what = name.partition("-")
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None or group != "coalesce" or what not in ("usecs", "frames"):
            return None
        return (
            f"adaptive-{way}" if (netdev.params | self.beside(view)).get(f"coalesce/adaptive-{way}") == "on" else None
        )

    def describe(self, view: View | None = None) -> str:
        """Its name in a sentence."""
        return f"{self._param.word} of {self.whose}"

    @property
    def _param(self) -> Param:
        return PARAMS[self.param]

    @property
    def way(self) -> str | None:
        """``rx`` or ``tx`` where it is about how long packets of that direction wait, else None."""
        if self.param in IN_SYSFS:
            return "rx"
        return None if self.param.startswith("ring/") else "rx" if "rx" in self.param else "tx"


class NetdevParam(_OfParam, frozen=True):
    """``netdev/eth0/coalesce/rx-usecs``: of a netdev as a whole."""

    @property
    def key(self) -> str:
        """Its address."""
        return f"netdev/{self.netdev}/{self.param}"

    @property
    def path(self) -> str:
        """The kernel file below the netdev's folder, of those IN_SYSFS."""
        return self.param

    def absent(self, view: View) -> str | None:
        """Why a node does not have it, as a sentence; None where it does."""
        return None if view.inventory.netdev(self.netdev) is not None else no_netdev(self.netdev)

    def shell(self, value: str) -> str:
        """The same by hand."""
        group, _, name = self.param.rpartition("/")
        match group:
            case "coalesce":
                return f"ethtool -C {self.netdev} {name} {value}"
            case "ring":
                return f"ethtool -G {self.netdev} {name} {value}"
        return f"echo {value} > /sys/class/net/{self.netdev}/{self.param}"


class QueueParam(_OfParam, frozen=True):
    """``netdev/eth0/rx-3/coalesce/rx-usecs``: of one queue, ``rx-3``, where the driver has it of its own."""

    queue_name: str

    @property
    def queue(self) -> int:
        """The queue's number among those of its kind."""
        return int(self.queue_name.partition("-")[2])

    @property
    def key(self) -> str:
        """Its address."""
        return f"netdev/{self.netdev}/{self.queue_name}/{self.param}"

    @property
    def whose(self) -> str:
        """What has it, in a sentence."""
        return f"{self.netdev} {self.queue_name}"

    def beside(self, view: View) -> dict[str, str]:
        """All values of whose it is, as a view shows them."""
        netdev = view.inventory.netdev(self.netdev)
        queues = netdev.queues if netdev is not None else []
        return next((queue.params for queue in queues if queue.name == self.queue_name), {})

    def absent(self, view: View) -> str | None:
        """Why a node does not have it, as a sentence; None where it does."""
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None:
            return no_netdev(self.netdev)
        has = any(queue.name == self.queue_name for queue in netdev.queues)
        return None if has else f"{self.netdev} has no queue {self.queue_name}."

    def shell(self, value: str) -> str:
        """The same by hand."""
        if self.param not in IN_SYSFS:
            name = self.param.rpartition("/")[2]
            mask = f"{1 << self.queue:#x}"
            return f"ethtool --per-queue {self.netdev} queue_mask {mask} --coalesce {name} {value}"
        ifindex = f"$(cat /sys/class/net/{self.netdev}/ifindex)"
        which = f'{{\\"ifindex\\": {ifindex}, \\"type\\": \\"rx\\", \\"id\\": {self.queue}}}'
        napi_id = f'$(ynl --family netdev --output-json --do queue-get --json "{which}" | jq \'.["napi-id"]\')'
        attribute = "defer-hard-irqs" if self.param == "napi_defer_hard_irqs" else "gro-flush-timeout"
        return f'ynl --family netdev --do napi-set --json "{{\\"id\\": {napi_id}, \\"{attribute}\\": {value}}}"'
