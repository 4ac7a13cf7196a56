"""Setting: the base class of the kernel tunables that Coresteer can change, and helpers of its kinds."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from msgspec import Struct

from coresteer_core.cpuset import CpuListError, format_cpu_list, parse_cpu_list, shortest_cpu_list
from coresteer_core.node.reserved import ReservedCpus
from coresteer_core.node.view import View
from coresteer_core.settings.location import Location
from coresteer_core.settings.modified_view import ModifiedView
from coresteer_core.settings.plan_effect import PlanEffect

CPU_LIST_SCHEMA: dict[str, object] = {"type": "string", "format": "cpu-list"}
"""JSON Schema of a value that is a CPU list."""

NUMBER_PATTERN = r"(0|[1-9]\d{0,6})"
PID_PATTERN = r"([1-9]\d{0,6})"
_DECIMAL = re.compile(r"\d{1,10}\Z", re.ASCII)


_MAX_CACHED_TEXT = 1024
"""Characters: peers choose values, and 1,024 of 64 KiB would stay in memory."""
NUMA_BALANCING = "automatic NUMA balancing"
"""The kernel's own controller, by the name under which an Inventory lists it while it is on."""
CONTROLLED = {
    "irqbalance": r"irq/",
    "numad": r"task/\d+/(affinity|memory-nodes)$",
    "kubelet": r"task/\d+/affinity$|cgroup/.*/cpuset\.cpus$",
    NUMA_BALANCING: r"task/\d+/memory-nodes$",
}
"""Pattern of the keys of the settings that a controller changes, by its name; TuneD changes any."""


class SettingError(ValueError):
    """A key or value that is not valid for any setting; the message is a sentence for the person who entered it."""


class KeyForm(Struct, frozen=True):
    """Syntax of the keys of one kind of setting, and how to parse them.

    syntax: for people, ``irq/NUMBER/affinity``. pattern: a regular expression of the whole key that Python and
    JavaScript read alike. make: the setting of a match. subject, name: templates in which ``$1`` stands for the first
    group, for the short label of a setting: whose it is, and the end of its key. target: template of what a node's page
    shows of it, ``irq:$1``; None where it shows nothing.
    """

    syntax: str
    pattern: str
    make: Callable[[re.Match[str]], "Setting"]
    subject: str
    name: str
    target: str | None = None


class Setting(Struct, frozen=True):
    """One kernel tunable of a node, addressed by its key. Every kind is a subclass, listed in ``settings.KINDS``.

    Values are text; those passed to a method are canonical unless it says otherwise. A kind overrides what differs for
    it; guard, preview, effect, overlay, engine, simulator, ingest and the user interface ask the setting and list no
    kinds.

    forms: the keys of the kind. placeholders: in capitals in a form's syntax, with what may stand for each.
    complete_in_view: a View lists all of them that the node has; one of a process that does not communicate at the
    moment is not in it, nor one of a device that restarts. moves_pages: a write moves memory, which takes about a
    second for each GiB. Settings whose write does that or interrupts traffic stay in force while a policy is held out.
    places_work: work comes to the CPUs in a value; not with XPS, whose CPUs are those that send.
    unowned: of a kind whose values belong to who wrote them, the value that belongs to nobody: the executor overwrites
    only it and Coresteer's own.

    Every kind defines the members that raise NotImplementedError here.
    """

    forms: ClassVar[Sequence[KeyForm]] = ()
    placeholders: ClassVar[Mapping[str, Sequence[str]]] = {}
    complete_in_view: ClassVar[bool] = True
    moves_pages: ClassVar[bool] = False
    places_work: ClassVar[bool] = True
    unowned: ClassVar[str | None] = None

    @classmethod
    def examples(cls) -> "Sequence[Setting]":
        """Return one example setting for each name that the last part of this kind's keys can have."""
        raise NotImplementedError

    @property
    def key(self) -> str:
        """The setting's key, its unique address on a node: ``irq/41/affinity``."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The last part of the setting's key, without its subject: ``affinity``, ``coalesce/rx-usecs``."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """The setting's name as ethtool, sysfs or sysctl spells it; empty where its subject says enough."""
        return self.name

    @property
    def subject(self) -> str:
        """The device, queue, interrupt or process that the setting belongs to, for a sentence: ``eth0 rx-3``."""
        raise NotImplementedError

    @property
    def location(self) -> Location:
        """The place in a View of the node that holds the setting's value."""
        raise NotImplementedError

    @property
    def interrupts_traffic(self) -> bool:
        """Whether a write of the setting interrupts traffic: its network device may restart."""
        return False

    @property
    def interrupt(self) -> int | None:
        """The number of the interrupt whose affinity the setting sets; None for other kinds of setting."""
        return None

    @property
    def process(self) -> int | None:
        """The PID of the process that the setting belongs to; None for other kinds of setting."""
        return None

    @property
    def absence(self) -> str:
        """The end of a sentence about the setting on a node that lacks it."""
        return "does not exist on this node (any more)"

    @property
    def unit(self) -> str:
        """The unit of the setting's value (``µs``); empty for text and for numbers without a unit."""
        return ""

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the values that a person may enter for the setting."""
        raise NotImplementedError

    def canonical(self, value: str) -> str:
        """Return a value in its canonical spelling. Raises SettingError for a value that the kernel could not have."""
        raise NotImplementedError

    def equal(self, first: str, second: str) -> bool:
        """Return whether two values, in any spelling, mean the same to the kernel. Raises SettingError."""
        return self.canonical(first) == self.canonical(second)

    def value_in_view(self, value: str) -> str:
        """Return the text by which a View of the node represents this value of the setting."""
        return value

    def cpus(self, value: str) -> frozenset[int]:
        """Return the CPU numbers in a value of the setting; none for a kind whose values are not CPU lists."""
        return frozenset()

    def cpus_on(self, view: View, value: str) -> frozenset[int]:
        """Return the CPUs that a value stands for on a node: those in it, or those that it inherits there."""
        return self.cpus(value)

    def belongs_to(self, view: View, reserved: ReservedCpus) -> bool:
        """Return whether the setting is of the container or cpuset partition for which these CPUs are reserved."""
        return False

    def missing_reason(self, view: View) -> str | None:
        """Return a sentence that says why a node lacks the setting; None where the node has it."""
        raise NotImplementedError

    def current(self, view: View) -> str | None:
        """Return the setting's present value from a View of the node; None where it is unknown."""
        raise NotImplementedError

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return (code, sentence) pairs that say why this kind of setting must not get a value; empty if it may."""
        return []

    def combined_refusals(self, view: View, value: str, values: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return (code, sentence) pairs: why a plan must not give the setting a value. values: the plan's, by key."""
        return []

    def write_order(self, value: str) -> int:
        """Return the place of a write of this value in a plan: -1 before the others, 1 after them, 0 as the plan says.

        What settings refer to, as flow rules to an RSS context, is created before them and deleted after them.
        """
        return 0

    def warnings(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return (code of PlanWarning, sentence) pairs: side effects and risks of setting a value."""
        return []

    def combined_warnings(self, view: View, values: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return (code, sentence) pairs: risks of a plan's values for one subject together. values: by name."""
        return []

    def affected_netdev(self, view: View) -> str | None:
        """Return the network device whose packets the setting affects; None where that is not a single one."""
        return None

    def foreign_sentence(self, value: str) -> str:
        """Return a sentence that says that the setting has a value of another program, which is not overwritten."""
        return f"{self.describe()} ({value}) was set by another program, so Coresteer never changes it."

    def describe(self, view: View | None = None) -> str:
        """Return the setting's name for use in a sentence, with more detail when a View of the node is given."""
        return f"{self.title} of {self.subject}"

    def format_value(self, value: str) -> str:
        """Return a value of the setting with its unit, for use in a sentence."""
        return f"{value} {self.unit}".rstrip()

    def shell_command(self, value: str) -> str:
        """Return a shell command that gives the setting a value."""
        raise NotImplementedError

    def controllers(self, view: View) -> list[str]:
        """Return the names of controllers active on the node that may change the setting, too (``irqbalance``)."""
        return [name for name in view.inventory.controllers if re.match(CONTROLLED.get(name, ""), self.key)]

    def drift_cause(self, view: View) -> str | None:
        """Return the name of the program or driver that may have changed the setting; None where a View shows none."""
        return " and ".join(self.controllers(view)) or None

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Give the setting a value in a modified View; does nothing for kinds whose consequences are not modelled."""

    def add_effect(self, effect: PlanEffect, value: str) -> None:
        """Add a value of the setting to the input of a plan's predicted effect; adds nothing for most kinds."""


def canonical_cpu_list(value: str) -> str:
    """Return a CPU list in the kernel's canonical spelling. Raises SettingError with the part that is wrong."""
    try:
        return _shortest(value) if len(value) <= _MAX_CACHED_TEXT else shortest_cpu_list(value)
    except CpuListError as error:
        raise SettingError(str(error)) from None


_shortest = lru_cache(maxsize=1024)(shortest_cpu_list)  # a round of policies repeats the same few texts


@lru_cache(maxsize=1024)  # as above
def online_cpu_list(value: str, online: frozenset[int]) -> str:
    """Return a CPU list in the kernel's canonical spelling, without offline CPUs. Raises CpuListError."""
    return format_cpu_list(parse_cpu_list(value) & online)


def format_cpus(cpus: frozenset[int] | set[int]) -> str:
    """Return CPU numbers as text for a sentence: ``CPU 3``, ``CPUs 0-3``, ``no CPU``."""
    return f"CPU{'s' if len(cpus) > 1 else ''} {format_cpu_list(cpus)}" if cpus else "no CPU"


def whole_number(value: str, name: str, example: int) -> str:
    """Return a number without leading zeros. Raises SettingError for other text.

    name: of the value in the error's sentence, ``a weight``; example: a number that the sentence suggests.
    """
    text = value.strip()
    if _DECIMAL.match(text):
        return str(int(text))
    raise SettingError(f"“{text[:40]}” is not {name}; write a number, for example {example}.")


def bounds_refusals(name: str, value: str, least: int, most: int) -> list[tuple[str, str]]:
    """Return code ``bounds`` and a sentence for a number out of bounds; an empty list for one within them."""
    return [] if least <= int(value) <= most else [("bounds", f"{name} can be from {least} to {most}, not {value}.")]


def power_refusals(name: str, value: str) -> list[tuple[str, str]]:
    """Return code ``bounds`` and a sentence for a number that is neither 0 nor a power of two, else an empty list."""
    number = int(value)
    if number & (number - 1) == 0:
        return []
    above = 1 << number.bit_length()
    sentence = (
        f"{name} has to be 0 or a power of two, to which the kernel rounds up: {above // 2} or {above}, not {value}."
    )
    return [("bounds", sentence)]


def number_schema(minimum: int, maximum: int, unit: str = "") -> dict[str, object]:
    """Return the JSON Schema of an integer with its bounds and unit."""
    schema: dict[str, object] = {"type": "integer", "minimum": minimum, "maximum": maximum}
    return schema | {"x-unit": unit} if unit else schema
