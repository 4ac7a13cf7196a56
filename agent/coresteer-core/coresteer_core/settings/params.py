"""Parameters of a network device or one of its queues: interrupt coalescing, ring sizes, NAPI polling, steering.

PARAMS declares each once. Kernel: Documentation/networking/ethtool-netlink.rst (COALESCE, RINGS),
Documentation/networking/napi.rst, scaling.rst (RFS), Documentation/netlink/specs/netdev.yaml (napi-set).
"""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from coresteer_core.node.inventory import Netdev
from coresteer_core.node.nic import RETRY_AFTER_S, Verdict, interrupt_timer
from coresteer_core.node.view import View
from coresteer_core.settings.base import KeyForm, Setting, SettingError, number_schema, power_refusals
from coresteer_core.settings.latency import latency_warnings
from coresteer_core.settings.location import ParamsLocation
from coresteer_core.settings.modified_view import ModifiedView
from coresteer_core.settings.netdev import NETDEV_PATTERN, QUEUE_PATTERN, NetdevSetting
from coresteer_core.settings.plan_effect import PlanEffect

_DECIMAL = re.compile(r"\d{1,20}\Z", re.ASCII)
_U64 = 1 << 64
_MAX_WAIT_US = 10_000
_MAX_FRAMES = 65_535
_AGAIN = f"It can be tried again {RETRY_AFTER_S // 3600} hours later."
_ON_OFF = {"on": "on", "1": "on", "off": "off", "0": "off"}


class Param(Struct, frozen=True):
    """Declaration of one parameter of network devices: name in keys, unit, bounds and help text.

    name: ``coalesce/rx-usecs``, the last part of a key. unit: empty for a switch and for a number without a unit.
    group, help: the part of a form that shows it, and its effect in one sentence. least, most: bounds for any device; a
    device's own bounds apply in addition; a switch (on or off) has none. queue: the kind of queue that may have its own
    value, ``rx`` or ``tx``; None where only the netdev has it. of_netdev: the netdev as a whole has it. powers: only 0
    and powers of two, to which the kernel rounds other values up.
    """

    name: str
    unit: str
    group: str
    help: str
    most: int = 0
    least: int = 0
    queue: str | None = None
    of_netdev: bool = True
    powers: bool = False

    @property
    def title(self) -> str:
        """The parameter's name as ethtool or sysfs spells it: ``rx-usecs``; a ring is ``rx ring``."""
        group, _, name = self.name.rpartition("/")
        return f"{name} ring" if group == "ring" else name

    @property
    def is_switch(self) -> bool:
        """Whether the parameter is a switch (on or off) instead of a number."""
        return not self.most


_DELAY = "Time that the NIC waits for more packets before it raises an interrupt."
_FRAMES = "Number of packets after which the NIC raises an interrupt at once."
_DURING = "The limit that applies while the previous interrupt is still being handled."
_ADAPTIVE = "On: the driver adapts the delay and the number of packets to the load."
_CQE = "On: the delay restarts with each packet (completion queue entry), instead of each interrupt."
_KERNEL = "Kernel (software coalescing)"
_GRO = "Time until the kernel polls the queue again without an interrupt; requires napi_defer_hard_irqs > 0."
_THREADED = (
    "1: a kernel thread for each queue polls it, placed by the scheduler; 0: a softirq of the interrupt's CPU does."
)
NO_NTUPLE = "cannot be changed: its driver has it fixed, so it has no flow rules and no accelerated RFS"
_STEERING = "Flow steering"
_NTUPLE = (
    "On: the NIC follows flow rules. While RFS is on, too, the kernel may add rules of its own (accelerated RFS), "
    "which most drivers list nowhere, so that queues of flows are unknown. Some drivers restart their device for it."
)
_FLOW_CNT = (
    "Number of flows of this queue that follow their sockets (RFS), a power of two; 0: none. "
    "It also needs rps_sock_flow_entries."
)
_DEFER = "Number of polls without packets before the interrupt is enabled again."


def _coalesce(direction: str, group: str) -> list[Param]:
    return [
        Param(f"coalesce/{direction}-usecs", "µs", group, _DELAY, _MAX_WAIT_US, queue=direction),
        Param(f"coalesce/{direction}-frames", "packets", group, _FRAMES, _MAX_FRAMES, queue=direction),
        Param(f"coalesce/adaptive-{direction}", "", group, _ADAPTIVE, queue=direction),
        Param(f"coalesce/{direction}-usecs-irq", "µs", group, _DURING, _MAX_WAIT_US, queue=direction),
        Param(f"coalesce/{direction}-frames-irq", "packets", group, _DURING, _MAX_FRAMES, queue=direction),
        Param(f"coalesce/cqe-mode-{direction}", "", group, _CQE),
    ]


PARAMS = {
    param.name: param
    for param in (
        *_coalesce("rx", "NIC, receive"),
        *_coalesce("tx", "NIC, transmit"),
        Param("gro_flush_timeout", "ns", _KERNEL, _GRO, _MAX_WAIT_US * 1000, queue="rx"),
        Param("napi_defer_hard_irqs", "polls", _KERNEL, _DEFER, 1000, queue="rx"),
        Param("threaded", "", _KERNEL, _THREADED, 1),
        Param("ntuple", "", _STEERING, _NTUPLE),
        Param("rps_flow_cnt", "flows", _STEERING, _FLOW_CNT, 1 << 20, queue="rx", of_netdev=False, powers=True),
        Param(
            "ring/rx", "descriptors", "Rings", "Received packets that the NIC can buffer before it drops.", 65_536, 1
        ),
        Param("ring/tx", "descriptors", "Rings", "Number of packets that can wait for transmission.", 65_536, 1),
    )
}
"""Every parameter of network devices and queues, by name (``coalesce/rx-usecs``)."""

NAPI_PARAMS = frozenset({"gro_flush_timeout", "napi_defer_hard_irqs"})
"""Parameters of packet polling (NAPI): in sysfs for a netdev, by netlink for one queue."""
NETDEV_FILES = NAPI_PARAMS | {"threaded"}
"""Parameters in the files of /sys/class/net/NAME."""
QUEUE_FILES = frozenset({"rps_flow_cnt"})
"""Parameters in the files of /sys/class/net/NAME/queues/rx-N."""
_TIMING = frozenset(f"coalesce/{name}" for name in ("rx-usecs", "rx-frames", "adaptive-rx", "cqe-mode-rx"))
"""Parameters that the model of a NIC's receive interrupts reads."""


class _OfParam(NetdevSetting, frozen=True):
    """Base of the settings for parameters of a network device or queue. param: a name of PARAMS."""

    param: str

    placeholders: ClassVar[Mapping[str, Sequence[str]]] = {"PARAM": tuple(PARAMS)}

    @property
    def name(self) -> str:
        """The last part of the setting's key: ``coalesce/rx-usecs``."""
        return self.param

    @property
    def title(self) -> str:
        """The parameter's name as ethtool or sysfs spells it: ``rx-usecs``."""
        return self._param.title

    @property
    def unit(self) -> str:
        """The unit of the parameter's value (``µs``); empty for a switch."""
        return self._param.unit

    @property
    def location(self) -> ParamsLocation:
        """The place in a View of the node that holds the parameter's value."""
        return ParamsLocation(self.netdev, self.queue_name, self.param)

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the parameter's value (switch or number with bounds and unit), with its help text."""
        form = {"description": self._param.help, "x-group": self._param.group}
        if self._param.is_switch:
            return {"type": "string", "enum": ["on", "off"], **form}
        return number_schema(self._param.least, self._param.most, self._param.unit) | form

    def canonical(self, value: str) -> str:
        """Return ``on``, ``off`` or a number without leading zeros. Raises SettingError for any other text."""
        text = value.strip()
        if self._param.is_switch:
            if text in _ON_OFF:
                return _ON_OFF[text]
            raise SettingError(f"“{text[:40]}” is neither on nor off, the only values of {self._param.title}.")
        if _DECIMAL.match(text) and (number := int(text)) < _U64:
            return str(number)
        unit = f" of {self._param.unit}" if self._param.unit else ""
        raise SettingError(f"“{text[:40]}” is not a number{unit}; write for example {min(64, self._param.most)}.")

    def current(self, view: View) -> str | None:
        """Return the parameter's present value from a View of the node; None where it is unknown."""
        return self.values_of_subject(view).get(self.param)

    def values_of_subject(self, view: View) -> dict[str, str]:
        """Return by name all known parameters of the network device or queue that the setting belongs to."""
        subject = view.inventory.netdev(self.netdev) if self.queue_name is None else self.queue_in(view)
        return subject.params if subject is not None else {}

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return (code, sentence) pairs: ``bounds``, or ``learned`` if the driver rejected the value before."""
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None:
            return []
        found = [("bounds", sentence)] if (sentence := self._out_of_bounds(netdev, value)) else []
        if self.param == "ntuple" and value == "off" and netdev.flow_rules is not None and netdev.flow_rules.rules:
            found.append(("rules", f"{self.netdev} has flow rules, which ntuple off would remove; delete them first."))
        found += power_refusals(self.describe(), value) if self._param.powers and not found else []
        return found + [("learned", sentence) for sentence in self._learned(view, netdev, value)]

    def combined_warnings(self, view: View, values: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return (code, sentence) pairs, ``latency`` or ``adaptive``, for all values of a plan together."""
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None or self.direction is None:
            return []
        after = self.values_of_subject(view) | dict(values)
        timer, _ = interrupt_timer(netdev.driver, netdev.params | after)
        return [(code, f"{self.subject}: {text}") for code, text in latency_warnings(timer, after, self.direction)]

    def drift_cause(self, view: View) -> str | None:
        """Return ``adaptive-rx`` where that lets the driver change the parameter, else a program that may have."""
        return self._adaptive_switch(view) or super().drift_cause(view)

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Set the parameter in a modified View; the interrupt rate follows the NIC model."""
        view.set_param(self.netdev, self.queue_name, self.param, value)

    def add_effect(self, effect: PlanEffect, value: str) -> None:
        """Add a value of receive coalescing to the input of a plan's predicted effect; other parameters add nothing."""
        if self.param in _TIMING:
            effect.coalescing.setdefault((self.netdev, self.queue_name), {})[self.param] = value

    @property
    def direction(self) -> str | None:
        """Direction (``rx``, ``tx``) of the packets that the parameter delays; None for other parameters."""
        if self.param in NAPI_PARAMS:
            return "rx"
        return ("rx" if "rx" in self.param else "tx") if self.param.startswith("coalesce/") else None

    @property
    def _param(self) -> Param:
        return PARAMS[self.param]

    def _out_of_bounds(self, netdev: Netdev, value: str) -> str | None:
        if self._param.is_switch:
            return None
        most = min(int(netdev.params_max.get(self._param.name, self._param.most)), self._param.most)
        if self._param.least <= int(value) <= most:
            return None
        return f"{self.describe()} can be from {self._param.least} to {self.format_value(str(most))}, not {value}."

    def _learned(self, view: View, netdev: Netdev, value: str) -> list[str]:
        """Return a sentence for each earlier write of this value that the driver refused, rounded or ignored."""
        title, formatted = self._param.title, self.format_value(value)
        found = []
        for response in view.learned.responses(netdev.driver, self._param.name):
            if response.requested != value:
                continue
            if response.verdict is Verdict.REFUSED:
                answer = response.message.rstrip(".")
                found.append(f"{netdev.driver} refused {title} {formatted} before. Its answer: {answer}. {_AGAIN}")
            elif response.verdict is Verdict.ROUNDED and response.read_back is not None:
                found.append(
                    f"{netdev.driver} set {title} {response.read_back} instead of {value}; use {response.read_back}."
                )
            elif response.verdict is Verdict.IGNORED:
                found.append(f"{netdev.driver} accepted {title} {formatted} before and changed nothing. {_AGAIN}")
        return found

    def _adaptive_switch(self, view: View) -> str | None:
        group, _, name = self.param.rpartition("/")
        direction, _, bound = name.partition("-")
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None or group != "coalesce" or bound not in ("usecs", "frames"):
            return None
        params = netdev.params | self.values_of_subject(view)
        return f"adaptive-{direction}" if params.get(f"coalesce/adaptive-{direction}") == "on" else None


class NetdevParam(_OfParam, frozen=True):
    """``netdev/eth0/coalesce/rx-usecs``: a parameter of a whole network device."""

    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "netdev/NAME/PARAM",
            rf"netdev/{NETDEV_PATTERN}/({'|'.join(p.name for p in PARAMS.values() if p.of_netdev)})",
            lambda m: NetdevParam(m[1], m[2]),
            subject="$1",
            name="$2",
            target="nic:$1",
        ),
    )

    @classmethod
    def examples(cls) -> Sequence[Setting]:
        """Return one example setting for each parameter of a network device."""
        return [cls("eth0", param.name) for param in PARAMS.values() if param.of_netdev]

    @property
    def path(self) -> str:
        """The name of the parameter's file in /sys/class/net/NAME, for those in NETDEV_FILES."""
        return self.param

    def missing_reason(self, view: View) -> str | None:
        """Return a sentence that says why a node lacks the parameter; None where it has it or that is unknown."""
        if (missing := super().missing_reason(view)) is not None:
            return missing
        return f"{self.describe()} {NO_NTUPLE}." if self.param == "ntuple" and self.current(view) is None else None

    @property
    def absence(self) -> str:
        """The end of a sentence that says that a node lacks the parameter; a driver may have ntuple fixed."""
        return NO_NTUPLE if self.param == "ntuple" else super().absence

    @property
    def interrupts_traffic(self) -> bool:
        """True for a ring size, whose change may restart the NIC."""
        return self.param.startswith("ring/")

    def warnings(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return (code, sentence) pairs: ``restart`` for a ring size, ``queue`` where a queue has its own value."""
        netdev = view.inventory.netdev(self.netdev)
        if netdev is not None and (queue := netdev.queue_differing(self.param)) is not None:
            own = f"{queue.name} has {self._param.title} {self.format_value(queue.params[self.param])} of its own"
            return [("queue", f"{self.netdev} {own}, which this replaces; a rollback does not bring it back.")]
        if not self.interrupts_traffic:
            return []
        return [("restart", f"{self.netdev} may restart when its ring size changes: packets are lost for a moment.")]

    def shell_command(self, value: str) -> str:
        """Return a shell command (ethtool, sysfs or ynl) that gives the parameter a value."""
        group, _, name = self.param.rpartition("/")
        match group:
            case "coalesce":
                return f"ethtool -C {self.netdev} {name} {value}"
            case "ring":
                return f"ethtool -G {self.netdev} {name} {value}"
        if self.param == "ntuple":
            return f"ethtool -K {self.netdev} ntuple {value}"
        return f"echo {value} > /sys/class/net/{self.netdev}/{self.param}"


class QueueParam(_OfParam, frozen=True):
    """``netdev/eth0/rx-3/coalesce/rx-usecs``: a parameter of one queue, where the driver has values per queue."""

    queue_name: str

    forms: ClassVar[Sequence[KeyForm]] = tuple(
        KeyForm(
            f"netdev/NAME/{direction}-NUMBER/PARAM",
            rf"netdev/{NETDEV_PATTERN}/({direction}-{QUEUE_PATTERN})/"
            rf"({'|'.join(p.name for p in PARAMS.values() if p.queue == direction)})",
            lambda m: QueueParam(m[1], m[4], m[2]),
            subject="$1 $2",
            name="$4",
            target="nic:$1",
        )
        for direction in ("rx", "tx")
    )

    @classmethod
    def examples(cls) -> Sequence[Setting]:
        """Return one example setting for each parameter that a queue can have."""
        return [cls("eth0", param.name, f"{param.queue}-0") for param in PARAMS.values() if param.queue]

    @property
    def queue(self) -> int:
        """The number of the queue: 3 for ``rx-3``."""
        return int(self.queue_name.partition("-")[2])

    @property
    def path(self) -> str:
        """The path of the parameter's file in /sys/class/net/NAME, for those in QUEUE_FILES."""
        return f"queues/{self.queue_name}/{self.param}"

    def shell_command(self, value: str) -> str:
        """Return a shell command (ethtool, sysfs or ynl) that gives the parameter a value."""
        if self.param in QUEUE_FILES:
            return f"echo {value} > /sys/class/net/{self.netdev}/{self.path}"
        if self.param not in NAPI_PARAMS:
            name = self.param.rpartition("/")[2]
            mask = f"{1 << self.queue:#x}"
            return f"ethtool --per-queue {self.netdev} queue_mask {mask} --coalesce {name} {value}"
        ifindex = f"$(cat /sys/class/net/{self.netdev}/ifindex)"
        which = f'{{\\"ifindex\\": {ifindex}, \\"type\\": \\"rx\\", \\"id\\": {self.queue}}}'
        napi_id = f'$(ynl --family netdev --output-json --do queue-get --json "{which}" | jq \'.["napi-id"]\')'
        attribute = "defer-hard-irqs" if self.param == "napi_defer_hard_irqs" else "gro-flush-timeout"
        return f'ynl --family netdev --do napi-set --json "{{\\"id\\": {napi_id}, \\"{attribute}\\": {value}}}"'
