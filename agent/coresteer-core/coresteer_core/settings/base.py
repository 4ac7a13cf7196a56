"""Setting: the base class of everything Coresteer can change, and what its kinds share."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from msgspec import Struct

from coresteer_core.cpuset import CpuListError, format_cpu_list, parse_cpu_list
from coresteer_core.node.view import View
from coresteer_core.settings.location import Location
from coresteer_core.settings.modified_view import ModifiedView
from coresteer_core.settings.plan_effect import PlanEffect

CPU_LIST_SCHEMA: dict[str, object] = {"type": "string", "format": "cpu-list"}
"""JSON Schema of a value that is a CPU list."""

NUMBER = r"(0|[1-9]\d{0,6})"
PID = r"([1-9]\d{0,6})"


class SettingError(ValueError):
    """A key or value that is not a Setting's; the message is a sentence for the person who asked."""


class Form(Struct, frozen=True):
    """One form of a kind's keys.

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
    """One kernel tunable of a node. Every kind is a subclass, listed in ``coresteer_core.settings.KINDS``.

    Values are text; those passed to a method are canonical unless it says otherwise. A kind overrides what differs for
    it; guard, preview, effect, overlay, engine, simulator, ingest and the user interface ask the setting and list no
    kinds.

    forms: the keys of the kind. placeholders: in capitals in a form's syntax, with what may stand for each.
    complete_in_view: a View lists all of them that the node has; one of a process that does not communicate at the
    moment is not in it.

    Every kind defines the members that raise NotImplementedError here.
    """

    forms: ClassVar[Sequence[Form]] = ()
    placeholders: ClassVar[Mapping[str, Sequence[str]]] = {}
    complete_in_view: ClassVar[bool] = True

    @classmethod
    def samples(cls) -> "Sequence[Setting]":
        """Return one setting for each name that the end of this kind's key can have, of any owner."""
        raise NotImplementedError

    @property
    def key(self) -> str:
        """Its address, ``irq/41/affinity``."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The end of its key, without whose it is: ``affinity``, ``coalesce/rx-usecs``."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """Its name as ethtool, sysfs or the kernel spells it; empty where its subject says enough."""
        return self.name

    @property
    def subject(self) -> str:
        """Whose it is, to begin a sentence: ``eth0 rx-3``."""
        raise NotImplementedError

    @property
    def location(self) -> Location:
        """Where a View has its value."""
        raise NotImplementedError

    @property
    def interrupt(self) -> int | None:
        """The interrupt whose delivery it sets; None for all others."""
        return None

    @property
    def process(self) -> int | None:
        """The PID of the process it belongs to; None for all others."""
        return None

    @property
    def unit(self) -> str:
        """The unit of its number; empty where it is no number or has none."""
        return ""

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of a value as a person may enter it."""
        raise NotImplementedError

    def canonical(self, value: str) -> str:
        """Return a value in its one spelling. Raises SettingError for a value that the kernel could not have."""
        raise NotImplementedError

    def equal(self, first: str, second: str) -> bool:
        """Return whether two values, in any spelling, are the same to the kernel. Raises SettingError."""
        return self.canonical(first) == self.canonical(second)

    def shown(self, value: str) -> str:
        """Return what a View shows where this value is set."""
        return value

    def cpus(self, value: str) -> frozenset[int]:
        """Return the CPUs that a value names; empty for a kind that names none."""
        return frozenset()

    def missing_reason(self, view: View) -> str | None:
        """Return why a node does not have it, as a sentence; None where it does."""
        raise NotImplementedError

    def current(self, view: View) -> str | None:
        """Return the value that a View shows, None where it is unknown."""
        raise NotImplementedError

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return why it cannot have a value, beside what the guard checks of every setting: codes and sentences."""
        return []

    def warnings(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return what a person should know before a value is set: codes of PlanWarning, each with a sentence."""
        return []

    def combined_warnings(self, view: View, values: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return warnings that follow from all values a plan sets for the same subject. values: by name."""
        return []

    def affected_netdev(self, view: View) -> str | None:
        """Return the netdev whose packets it affects; None where that is not a single one."""
        return None

    def describe(self, view: View | None = None) -> str:
        """Return its name in a sentence, with more detail when a View is given."""
        return f"{self.title} of {self.subject}"

    def format_value(self, value: str) -> str:
        """Return a value in a sentence, with its unit."""
        return f"{value} {self.unit}".rstrip()

    def shell_command(self, value: str) -> str:
        """Return the shell command that sets a value."""
        raise NotImplementedError

    def controllers(self, view: View) -> list[str]:
        """Return the running programs that may set it, too. irqbalance moves interrupts and nothing else."""
        return [name for name in view.inventory.controllers if name != "irqbalance"]

    def drift_cause(self, view: View) -> str | None:
        """Return what may have changed it, as far as a View shows it; None where nothing is known."""
        return " and ".join(self.controllers(view)) or None

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Set a value in a modified View; a kind without an override has no modelled consequence."""

    def add_effect(self, effect: PlanEffect, value: str) -> None:
        """Add what a value contributes to a plan's estimated effect; a kind without an override adds nothing."""


def cpu_list(value: str) -> str:
    """Return a CPU list as the kernel prints it. Raises SettingError with the part that is wrong."""
    try:
        return common_cpus(value, None)
    except CpuListError as error:
        raise SettingError(str(error)) from None


@lru_cache(maxsize=1024)  # a round of policies repeats the same few texts
def common_cpus(value: str, online: frozenset[int] | None) -> str:
    """Return a CPU list as the kernel prints it, without CPUs that are offline. Raises CpuListError."""
    cpus = parse_cpu_list(value)
    return format_cpu_list(cpus if online is None else cpus & online)


def format_cpus(cpus: frozenset[int] | set[int]) -> str:
    """Return a set of CPUs for a sentence: ``CPU 3``, ``CPUs 0-3``, ``no CPU``."""
    return f"CPU{'s' if len(cpus) > 1 else ''} {format_cpu_list(cpus)}" if cpus else "no CPU"


def no_netdev(name: str) -> str:
    """Return the sentence that a node has no such network device."""
    return f"This node has no network device {name}."


def number_schema(minimum: int, maximum: int, unit: str = "") -> dict[str, object]:
    """Return the JSON Schema of a whole number with its bounds and unit."""
    schema: dict[str, object] = {"type": "integer", "minimum": minimum, "maximum": maximum}
    return schema | {"x-unit": unit} if unit else schema
