"""Settings of the kernel as a whole, in /proc/sys/kernel (kernel: Documentation/admin-guide/sysctl/kernel.rst)."""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from coresteer_core.node.view import View
from coresteer_core.settings.base import Form, Setting, SettingError, number_schema
from coresteer_core.settings.location import MachineLocation
from coresteer_core.settings.modified_view import ModifiedView

PARAMETERS = {"numa_balancing": (0, 1, 1)}
"""Least and greatest value that may be set, and the usual one, by the file's name."""

_DECIMAL = re.compile(r"\d{1,10}\Z", re.ASCII)


class KernelParameter(Setting, frozen=True):
    """``kernel/numa_balancing``: 1 where the kernel moves memory to the NUMA node of the tasks that access it, else 0.

    Other values, such as 2 for memory tiering, are restored as originals but never set (kernel:
    include/linux/sched/sysctl.h). parameter: a name of PARAMETERS.
    """

    parameter: str

    placeholders: ClassVar[Mapping[str, Sequence[str]]] = {"PARAMETER": tuple(PARAMETERS)}
    forms: ClassVar[Sequence[Form]] = (
        Form(
            "kernel/PARAMETER",
            rf"kernel/({'|'.join(PARAMETERS)})",
            lambda m: KernelParameter(m[1]),
            subject="",
            name="$1",
        ),
    )

    @classmethod
    def samples(cls) -> Sequence[Setting]:
        """Return one setting for each parameter."""
        return [cls(name) for name in PARAMETERS]

    @property
    def key(self) -> str:
        """Its address."""
        return f"kernel/{self.parameter}"

    @property
    def name(self) -> str:
        """The end of its key."""
        return self.parameter

    @property
    def title(self) -> str:
        """Its name as sysctl spells it: ``kernel.numa_balancing``."""
        return f"kernel.{self.parameter}"

    @property
    def subject(self) -> str:
        """The kernel."""
        return "the kernel"

    @property
    def path(self) -> str:
        """The kernel file, below the root directory."""
        return f"proc/sys/kernel/{self.parameter}"

    @property
    def location(self) -> MachineLocation:
        """Where a View has its value."""
        return MachineLocation(self.key, self.path)

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of a number with its bounds and usual value."""
        least, most, usual = PARAMETERS[self.parameter]
        return number_schema(least, most) | {"default": usual}

    def canonical(self, value: str) -> str:
        """Return a number without leading zeros. Raises SettingError for a value that is no number."""
        text = value.strip()
        if _DECIMAL.match(text):
            return str(int(text))
        raise SettingError(f"“{text[:40]}” is not a value of {self.title}; write a number, for example 0.")

    def missing_reason(self, view: View) -> str | None:
        """Return why a node does not have it, as a sentence; None where it does."""
        if self.current(view) is not None:
            return None
        return f"This node's kernel has no {self.title}: /{self.path} is missing."

    def current(self, view: View) -> str | None:
        """Return the value that a View shows, None where the node does not have it."""
        return view.inventory.settings.get(self.key)

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return ``bounds`` for a value that may not be set."""
        least, most, _ = PARAMETERS[self.parameter]
        if least <= int(value) <= most:
            return []
        return [("bounds", f"{self.title} can be from {least} to {most}, not {value}.")]

    def describe(self, view: View | None = None) -> str:
        """Return its name in a sentence."""
        return self.title

    def shell_command(self, value: str) -> str:
        """Return the shell command that sets a value."""
        return f"sysctl {self.title}={value}"

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Set the value; its effect on memory and load is not modelled."""
        view.set_machine_value(self.key, value)
