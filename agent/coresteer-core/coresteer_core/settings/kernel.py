"""sysctl parameters of the whole machine in /proc/sys/kernel (Documentation/admin-guide/sysctl/kernel.rst)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from coresteer_core.node.view import View
from coresteer_core.settings.base import (
    NUMA_BALANCING,
    KeyForm,
    Setting,
    bounds_refusals,
    number_schema,
    whole_number,
)
from coresteer_core.settings.location import MachineLocation
from coresteer_core.settings.modified_view import ModifiedView

PARAMETERS = {"numa_balancing": (0, 1, 1)}
"""Minimum, maximum and default of each parameter, by the name of its file in /proc/sys/kernel."""


def kernel_controllers(settings: Mapping[str, str]) -> list[str]:
    """Return the controllers that the kernel itself has switched on. settings: values of the machine's own, by key."""
    return [NUMA_BALANCING] if settings.get("kernel/numa_balancing", "0") != "0" else []


class KernelParameter(Setting, frozen=True):
    """``kernel/numa_balancing``: 1 lets the kernel move memory to the NUMA node of the tasks that use it, 0 does not.

    Other values, such as 2 for memory tiering, are restored as originals but never set (kernel:
    include/linux/sched/sysctl.h). parameter: a name of PARAMETERS.
    """

    parameter: str

    placeholders: ClassVar[Mapping[str, Sequence[str]]] = {"PARAMETER": tuple(PARAMETERS)}
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "kernel/PARAMETER",
            rf"kernel/({'|'.join(PARAMETERS)})",
            lambda m: KernelParameter(m[1]),
            subject="",
            name="$1",
        ),
    )

    @classmethod
    def examples(cls) -> Sequence[Setting]:
        """Return one example setting for each sysctl parameter."""
        return [cls(name) for name in PARAMETERS]

    @property
    def key(self) -> str:
        """The setting's key: ``kernel/numa_balancing``."""
        return f"kernel/{self.parameter}"

    @property
    def name(self) -> str:
        """The last part of the setting's key: ``numa_balancing``."""
        return self.parameter

    @property
    def title(self) -> str:
        """The parameter's name as sysctl spells it: ``kernel.numa_balancing``."""
        return f"kernel.{self.parameter}"

    @property
    def subject(self) -> str:
        """The subject of the setting in a sentence: ``the kernel``."""
        return "the kernel"

    @property
    def path(self) -> str:
        """The path of the parameter's file without the leading slash: ``proc/sys/kernel/numa_balancing``."""
        return f"proc/sys/kernel/{self.parameter}"

    @property
    def location(self) -> MachineLocation:
        """The place in a View of the node that holds the parameter's value."""
        return MachineLocation(self.key, self.path)

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the parameter's value, an integer with its bounds and default."""
        least, most, usual = PARAMETERS[self.parameter]
        return number_schema(least, most) | {"default": usual}

    def canonical(self, value: str) -> str:
        """Return a number without leading zeros. Raises SettingError for text that is not a number."""
        return whole_number(value, f"a value of {self.title}", example=0)

    def missing_reason(self, view: View) -> str | None:
        """Return a sentence that says that a node's kernel lacks the parameter; None where the node has it."""
        if self.current(view) is not None:
            return None
        return f"This node's kernel has no {self.title}: /{self.path} is missing."

    def current(self, view: View) -> str | None:
        """Return the parameter's present value from a View of the node; None where the node lacks it."""
        return view.inventory.settings.get(self.key)

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return code ``bounds`` and a sentence for a value out of bounds."""
        least, most, _ = PARAMETERS[self.parameter]
        return bounds_refusals(self.title, value, least, most)

    def describe(self, view: View | None = None) -> str:
        """Return the parameter's name as sysctl spells it, for use in a sentence."""
        return self.title

    def shell_command(self, value: str) -> str:
        """Return a sysctl command that gives the parameter a value."""
        return f"sysctl {self.title}={value}"

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Set the parameter's value in a modified View; its effect on memory and load is not modelled."""
        view.set_machine_value(self.key, value)
