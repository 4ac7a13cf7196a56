"""CPU affinity of interrupts (kernel: kernel/irq/proc.c)."""

from collections.abc import Sequence
from typing import ClassVar

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.view import View
from coresteer_core.settings.base import (
    CPU_LIST_SCHEMA,
    NUMBER_PATTERN,
    KeyForm,
    Setting,
    SettingError,
    canonical_cpu_list,
    format_cpus,
)
from coresteer_core.settings.location import IrqLocation
from coresteer_core.settings.modified_view import ModifiedView
from coresteer_core.settings.plan_effect import PlanEffect


class IrqAffinity(Setting, frozen=True):
    """``irq/41/affinity``: the CPUs an interrupt may be delivered to (/proc/irq/41/smp_affinity_list)."""

    irq: int

    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "irq/NUMBER/affinity",
            rf"irq/{NUMBER_PATTERN}/affinity",
            lambda m: IrqAffinity(int(m[1])),
            subject="IRQ $1",
            name="affinity",
            target="irq:$1",
        ),
    )

    @classmethod
    def examples(cls) -> Sequence[Setting]:
        """Return one example setting."""
        return [cls(0)]

    @property
    def key(self) -> str:
        """The setting's key: ``irq/41/affinity``."""
        return f"irq/{self.irq}/affinity"

    @property
    def name(self) -> str:
        """The last part of the setting's key, ``affinity``."""
        return "affinity"

    @property
    def title(self) -> str:
        """Empty: the subject, ``IRQ 41``, says enough."""
        return ""

    @property
    def subject(self) -> str:
        """The interrupt that the affinity belongs to, for a sentence: ``IRQ 41``."""
        return f"IRQ {self.irq}"

    @property
    def path(self) -> str:
        """The path of smp_affinity_list without the leading slash: ``proc/irq/41/smp_affinity_list``."""
        return f"proc/irq/{self.irq}/smp_affinity_list"

    @property
    def location(self) -> IrqLocation:
        """The place in a View of the node that holds the interrupt's affinity."""
        return IrqLocation(self.irq)

    @property
    def interrupt(self) -> int:
        """The number of the interrupt whose affinity this is."""
        return self.irq

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the affinity, a CPU list."""
        return CPU_LIST_SCHEMA

    def canonical(self, value: str) -> str:
        """Return an affinity as the kernel prints it. Raises SettingError for an invalid or empty CPU list."""
        if cpus := canonical_cpu_list(value):
            return cpus
        raise SettingError("An interrupt needs at least one CPU; name one, for example 2 or 0-3.")

    def equal(self, first: str, second: str) -> bool:
        """Return whether two affinities contain the same CPUs."""
        return self.cpus(first) == self.cpus(second)

    def cpus(self, value: str) -> frozenset[int]:
        """Return the CPU numbers in an affinity."""
        return parse_cpu_list(value)

    def missing_reason(self, view: View) -> str | None:
        """Return a sentence that says that a node lacks this interrupt; None where the node has it."""
        return None if view.inventory.irq(self.irq) is not None else f"This node has no interrupt {self.irq}."

    def current(self, view: View) -> str | None:
        """Return the interrupt's requested affinity from a View of the node; None where it is unknown."""
        irq = view.inventory.irq(self.irq)
        return self.canonical(irq.requested) if irq is not None and irq.requested else None

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return code ``managed`` and a sentence if only the kernel may set the interrupt's affinity.

        None for an interrupt of a queue user, which the guard refuses as in use.
        """
        irq = view.inventory.irq(self.irq)
        if irq is None or irq.movable is not False or view.inventory.user_of_irq(irq) is not None:
            return []
        why = irq.locked_reason or "The kernel keeps its affinity to itself."
        return [("managed", f"IRQ {self.irq} cannot be moved. {why}")]

    def affected_netdev(self, view: View) -> str | None:
        """Return the network device that the interrupt serves; None where it serves none."""
        irq = view.inventory.irq(self.irq)
        return irq.netdev if irq is not None else None

    def describe(self, view: View | None = None) -> str:
        """Return the interrupt's number for a sentence, with its name in /proc/interrupts when a View is given."""
        irq = view.inventory.irq(self.irq) if view is not None else None
        return f"IRQ {self.irq} ({irq.name})" if irq is not None and irq.name else f"IRQ {self.irq}"

    def format_value(self, value: str) -> str:
        """Return an affinity as text for a sentence: ``CPUs 0-3``."""
        return format_cpus(self.cpus(value))

    def shell_command(self, value: str) -> str:
        """Return a shell command that writes the affinity to smp_affinity_list."""
        return f"echo {value} > /{self.path}"

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Deliver the interrupt to these CPUs in a modified View; its load moves with it."""
        view.set_irq_affinity(self.irq, value)

    def add_effect(self, effect: PlanEffect, value: str) -> None:
        """Add the interrupt's new CPUs to the input of a plan's predicted effect."""
        effect.irqs.append((self.irq, self.cpus(value)))
