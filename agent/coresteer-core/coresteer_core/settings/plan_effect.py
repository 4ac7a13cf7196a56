"""PlanEffect: what the settings of a plan contribute to the estimate of its effect."""

from msgspec import Struct, field


class PlanEffect(Struct):
    """Collected from a plan's settings by ``Setting.add_effect``.

    irqs: interrupts that move, each with the CPUs allowed afterwards, in the plan's order. coalescing: new values of
    interrupt coalescing by netdev and queue name (None: the netdev's own), by the end of their key.
    """

    irqs: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    coalescing: dict[tuple[str, str | None], dict[str, str]] = field(default_factory=dict)
