"""Affinity of interrupts (kernel: kernel/irq/proc.c)."""

from collections.abc import Sequence
from typing import ClassVar

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.view import View
from coresteer_core.settings.base import CPU_LIST_SCHEMA, NUMBER, Form, Setting, SettingError, cpu_list, format_cpus
from coresteer_core.settings.location import IrqLocation
from coresteer_core.settings.modified_view import ModifiedView
from coresteer_core.settings.plan_effect import PlanEffect


class IrqAffinity(Setting, frozen=True):
    """``irq/41/affinity``: the CPUs an interrupt may be delivered to (/proc/irq/41/smp_affinity_list)."""

    irq: int

    forms: ClassVar[Sequence[Form]] = (
        Form(
            "irq/NUMBER/affinity",
            rf"irq/{NUMBER}/affinity",
            lambda m: IrqAffinity(int(m[1])),
            subject="IRQ $1",
            name="affinity",
            target="irq:$1",
        ),
    )

    @classmethod
    def samples(cls) -> Sequence[Setting]:
        """Return one setting."""
        return [cls(0)]

    @property
    def key(self) -> str:
        """Its address."""
        return f"irq/{self.irq}/affinity"

    @property
    def name(self) -> str:
        """The end of its key."""
        return "affinity"

    @property
    def title(self) -> str:
        """Empty: ``IRQ 41`` says enough."""
        return ""

    @property
    def subject(self) -> str:
        """Its interrupt."""
        return f"IRQ {self.irq}"

    @property
    def path(self) -> str:
        """The kernel file, below the root directory."""
        return f"proc/irq/{self.irq}/smp_affinity_list"

    @property
    def location(self) -> IrqLocation:
        """Where a View has its value."""
        return IrqLocation(self.irq)

    @property
    def interrupt(self) -> int:
        """Its interrupt's number."""
        return self.irq

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of a CPU list."""
        return CPU_LIST_SCHEMA

    def canonical(self, value: str) -> str:
        """Return a CPU list as the kernel prints it. Raises SettingError, also for an empty one."""
        if cpus := cpu_list(value):
            return cpus
        raise SettingError("An interrupt needs at least one CPU; name one, for example 2 or 0-3.")

    def equal(self, first: str, second: str) -> bool:
        """Return whether two lists name the same CPUs."""
        return self.cpus(first) == self.cpus(second)

    def cpus(self, value: str) -> frozenset[int]:
        """Return the CPUs that a value names."""
        return parse_cpu_list(value)

    def missing_reason(self, view: View) -> str | None:
        """Return why a node does not have it, as a sentence; None where it does."""
        return None if view.inventory.irq(self.irq) is not None else f"This node has no interrupt {self.irq}."

    def current(self, view: View) -> str | None:
        """Return the requested affinity, None where it is unknown."""
        irq = view.inventory.irq(self.irq)
        return self.canonical(irq.requested) if irq is not None and irq.requested else None

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return ``managed`` for an interrupt whose affinity the kernel manages."""
        irq = view.inventory.irq(self.irq)
        if irq is None or irq.movable is not False:
            return []
        why = irq.locked_reason or "The kernel keeps its affinity to itself."
        return [("managed", f"IRQ {self.irq} cannot be moved. {why}")]

    def affected_netdev(self, view: View) -> str | None:
        """Return the netdev that it serves."""
        irq = view.inventory.irq(self.irq)
        return irq.netdev if irq is not None else None

    def describe(self, view: View | None = None) -> str:
        """Return its name in a sentence, with the kernel's name for it when a View is given."""
        irq = view.inventory.irq(self.irq) if view is not None else None
        return f"IRQ {self.irq} ({irq.name})" if irq is not None and irq.name else f"IRQ {self.irq}"

    def format_value(self, value: str) -> str:
        """Return the CPUs in a sentence."""
        return format_cpus(self.cpus(value))

    def shell_command(self, value: str) -> str:
        """Return the shell command that sets a value."""
        return f"echo {value} > /{self.path}"

    def controllers(self, view: View) -> list[str]:
        """Return the running programs that may move it, irqbalance among them."""
        return view.inventory.controllers

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Deliver the interrupt to these CPUs; its load moves with it."""
        view.set_irq_affinity(self.irq, value)

    def add_effect(self, effect: PlanEffect, value: str) -> None:
        """Add the move, from which the change of the CPUs' load is estimated."""
        effect.irqs.append((self.irq, self.cpus(value)))
