"""sysctl parameters of the whole machine (Documentation/admin-guide/sysctl/kernel.rst and net.rst)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from coresteer_core.node.view import View
from coresteer_core.settings.base import (
    NUMA_BALANCING,
    KeyForm,
    Setting,
    bounds_refusals,
    number_schema,
    power_refusals,
    whole_number,
)
from coresteer_core.settings.location import MachineLocation
from coresteer_core.settings.modified_view import ModifiedView


class Parameter(Struct, frozen=True):
    """Declaration of a sysctl parameter: bounds, the kernel's default, folder below /proc/sys, unit and help text.

    usual: None where it depends on the kernel's build, as the 2 ticks of its timer for netdev_budget_usecs do. powers:
    only 0 and powers of two, to which the kernel rounds other values up.
    """

    least: int
    most: int
    usual: int | None
    folder: str
    help: str
    unit: str = ""
    powers: bool = False


_MAX_WAIT_US = 10_000
PARAMETERS = {
    "numa_balancing": Parameter(
        0, 1, 1, "kernel", "1: the kernel moves memory to the NUMA node of the tasks that use it."
    ),
    "rps_sock_flow_entries": Parameter(
        0,
        1 << 20,
        0,
        "net/core",
        "Size of the table of CPUs on which sockets are read (RFS), a power of two; 0: RFS is off. A queue also needs "
        "rps_flow_cnt.",
        "flows",
        powers=True,
    ),
    "netdev_budget": Parameter(
        64, 65_536, 300, "net/core", "Packets from all queues that one softirq of a CPU processes at most.", "packets"
    ),
    "netdev_budget_usecs": Parameter(
        1, 100_000, None, "net/core", "Time that one softirq of a CPU spends on packets at most.", "µs"
    ),
    "busy_poll": Parameter(
        0, _MAX_WAIT_US, 0, "net/core", "Time for which poll and select poll the NIC instead of sleeping.", "µs"
    ),
    "busy_read": Parameter(
        0, _MAX_WAIT_US, 0, "net/core", "Time for which reads of new sockets poll the NIC instead of sleeping.", "µs"
    ),
}
"""Every parameter by the name of its file. A NAPI poll processes 64 packets, so a lower netdev_budget saves nothing."""


def kernel_controllers(settings: Mapping[str, str]) -> list[str]:
    """Return the controllers that the kernel itself has switched on. settings: values of the machine's own, by key."""
    return [NUMA_BALANCING] if settings.get("kernel/numa_balancing", "0") != "0" else []


class KernelParameter(Setting, frozen=True):
    """``kernel/numa_balancing``, ``kernel/rps_sock_flow_entries``: a sysctl parameter.

    A value out of bounds, such as numa_balancing 2 for memory tiering (kernel: include/linux/sched/sysctl.h), is
    restored as an original but never set. parameter: a name of PARAMETERS.
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
        """The parameter's name as sysctl spells it: ``kernel.numa_balancing``, ``net.core.busy_poll``."""
        return f"{self._declared.folder.replace('/', '.')}.{self.parameter}"

    @property
    def subject(self) -> str:
        """The subject of the setting in a sentence: ``the kernel``."""
        return "the kernel"

    @property
    def path(self) -> str:
        """The path of the parameter's file without the leading slash: ``proc/sys/kernel/numa_balancing``."""
        return f"proc/sys/{self._declared.folder}/{self.parameter}"

    @property
    def unit(self) -> str:
        """The unit of the parameter's value (``µs``); empty for a switch."""
        return self._declared.unit

    @property
    def location(self) -> MachineLocation:
        """The place in a View of the node that holds the parameter's value."""
        return MachineLocation(self.key, self.path)

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the parameter's value, an integer with its bounds and, where known, its default."""
        form = self._declared
        default = {} if form.usual is None else {"default": form.usual}
        return number_schema(form.least, form.most, form.unit) | default | {"description": form.help}

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
        """Return code ``bounds`` and a sentence for a value out of bounds, or one that the kernel would round."""
        form = self._declared
        found = bounds_refusals(self.title, value, form.least, form.most)
        return found or (power_refusals(self.title, value) if form.powers else [])

    def describe(self, view: View | None = None) -> str:
        """Return the parameter's name as sysctl spells it, for use in a sentence."""
        return self.title

    def shell_command(self, value: str) -> str:
        """Return a sysctl command that gives the parameter a value."""
        return f"sysctl {self.title}={value}"

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Set the parameter's value in a modified View; its effect on memory and load is not modelled."""
        view.set_machine_value(self.key, value)

    @property
    def _declared(self) -> Parameter:
        return PARAMETERS[self.parameter]
