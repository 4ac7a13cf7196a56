"""Interrupts spread over the CPUs near their devices, by load: what irqbalance does, aware of queues and isolation."""

from msgspec import Struct

from coresteer_core.model import View
from coresteer_core.policies.base import Decision, Scope


class IrqSpread(Struct, frozen=True, tag="irq-spread"):
    """What the operator wants.

    act_percent, gap_points: a CPU at this load or more gives an interrupt away, to one that is at least so many
    percentage points less loaded. numa: ``local`` keeps interrupts on their device's NUMA node, ``any`` does not.
    smt: whether a second thread of a core is used only when no core is free (``last``) or like any CPU (``any``).
    exclude: a CPU list that no interrupt goes to. allow_isolated: isolated CPUs are used too.
    """

    act_percent: float = 65.0
    gap_points: float = 20.0
    numa: str = "local"
    smt: str = "last"
    exclude: str = ""
    allow_isolated: bool = False


class IrqSpreadMemory(Struct, frozen=True, tag="irq-spread"):
    """What a round leaves for the next."""


def decide(view: View, spec: IrqSpread, scope: Scope, memory: IrqSpreadMemory) -> Decision:
    """Placeholder replaced by the policy."""
    raise NotImplementedError
