"""How long a NIC waits before it interrupts, for the traffic that is there and the latency that is allowed."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from coresteer_core.model import View
from coresteer_core.policies.base import Decision, Scope


class Coalescing(Struct, frozen=True, tag="coalescing"):
    """What the operator wants.

    max_added_us: no packet may wait longer for its interrupt. packets_per_interrupt: as many as the policy aims at.
    min_packets_per_s: a netdev that receives less gets its own values back. adaptive: what to do where adaptive-rx is
    on: ``leave`` the netdev alone, ``compare`` (turn it off for a while and keep what needs fewer interrupts within
    the bound), ``take_over`` (turn it off). software: where the NIC cannot wait, let the kernel
    (gro_flush_timeout, napi_defer_hard_irqs). max_dropped_percent: of the received packets; over it the last step is
    taken back.
    """

    max_added_us: Annotated[float, Meta(ge=1, le=10_000)] = 100.0
    packets_per_interrupt: Annotated[float, Meta(ge=2, le=256)] = 16.0
    min_packets_per_s: Annotated[float, Meta(ge=0, le=1e9)] = 1000.0
    adaptive: Literal["leave", "compare", "take_over"] = "leave"
    software: bool = False
    max_dropped_percent: Annotated[float, Meta(ge=0, le=100)] = 0.1

    @property
    def allow_isolated(self) -> bool:
        """It moves nothing onto any CPU."""
        return False


class CoalescingMemory(Struct, frozen=True, tag="coalescing"):
    """What a round leaves for the next."""


def decide(view: View, spec: Coalescing, scope: Scope, memory: CoalescingMemory) -> Decision:
    """What is to wait longer or shorter, and why each of the others is left."""
    return Decision("No network device is looked at.", memory)
