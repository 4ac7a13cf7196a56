"""PlanEffect: the values in a plan from which its effect is predicted (coresteer_core.changes.effect)."""

from msgspec import Struct, field


class PlanEffect(Struct):
    """Values of a plan that change CPU load or interrupt rates, collected by ``Setting.add_effect``.

    irqs: interrupts that move, each with the CPUs allowed afterwards, in the plan's order. coalescing: new values of
    interrupt coalescing by netdev and queue name (None: the netdev's own), by the end of their key.
    """

    irqs: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    coalescing: dict[tuple[str, str | None], dict[str, str]] = field(default_factory=dict)
