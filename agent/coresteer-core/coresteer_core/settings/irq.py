"""Where interrupts are delivered."""

from msgspec import Struct

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.view import View
from coresteer_core.settings.base import SettingError, cpu_list, say_cpus


class IrqAffinity(Struct, frozen=True):
    """``irq/41/affinity``: the CPUs an interrupt may be delivered to (/proc/irq/41/smp_affinity_list)."""

    irq: int

    @property
    def key(self) -> str:
        """Its address."""
        return f"irq/{self.irq}/affinity"

    @property
    def path(self) -> str:
        """The kernel file, below the root directory."""
        return f"proc/irq/{self.irq}/smp_affinity_list"

    def canonical(self, value: str) -> str:
        """The value as the kernel would print it. Raises SettingError for a value it could not take."""
        if cpus := cpu_list(value):
            return cpus
        raise SettingError("An interrupt needs at least one CPU; name one, for example 2 or 0-3.")

    def equal(self, first: str, second: str) -> bool:
        """Whether two values mean the same to the kernel."""
        return self.cpus(first) == self.cpus(second)

    def shown(self, value: str) -> str:
        """What a view shows where this value stands."""
        return value

    def cpus(self, value: str) -> frozenset[int]:
        """The CPUs that a value names."""
        return parse_cpu_list(value)

    def absent(self, view: View) -> str | None:
        """Why a node does not have it, as a sentence; None where it does."""
        return None if view.inventory.irq(self.irq) is not None else f"This node has no interrupt {self.irq}."

    def current(self, view: View) -> str | None:
        """The value that a view shows, None where it is not known."""
        irq = view.inventory.irq(self.irq)
        return self.canonical(irq.requested) if irq is not None and irq.requested else None

    def against(self, view: View, value: str) -> list[tuple[str, str]]:
        """What of the setting itself speaks against a value: codes of Refusal, each with a sentence."""
        irq = view.inventory.irq(self.irq)
        if irq is None or irq.movable is not False:
            return []
        why = irq.locked_reason or "The kernel keeps its affinity to itself."
        return [("managed", f"IRQ {self.irq} cannot be moved. {why}")]

    def about(self, view: View) -> str | None:
        """The netdev whose packets it is about."""
        irq = view.inventory.irq(self.irq)
        return irq.netdev if irq is not None else None

    def describe(self, view: View | None = None) -> str:
        """Its name in a sentence, with more in it when there is a view."""
        irq = view.inventory.irq(self.irq) if view is not None else None
        return f"IRQ {self.irq} ({irq.name})" if irq is not None and irq.name else f"IRQ {self.irq}"

    def say(self, value: str) -> str:
        """A value in a sentence."""
        return say_cpus(self.cpus(value))

    def shell(self, value: str) -> str:
        """The same by hand."""
        return f"echo {value} > /{self.path}"
