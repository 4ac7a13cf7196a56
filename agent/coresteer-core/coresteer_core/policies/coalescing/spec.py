"""Fields of the coalescing policy."""

from typing import Annotated, Literal

from msgspec import Meta

from coresteer_core.policies.base import PolicySpec
from coresteer_core.schema import labelled


class Coalescing(PolicySpec, frozen=True, tag="coalescing"):
    """Fields of the policy that sets how long NICs wait before they interrupt."""

    label = "Interrupt coalescing"
    summary = "Lets NICs collect more packets per interrupt while the traffic is worth it, within the allowed latency."

    max_added_us: Annotated[
        float,
        Meta(ge=1, le=10_000),
        labelled("Maximum added latency", "No packet waits longer for its interrupt.", unit="µs"),
    ] = 100.0
    packets_per_interrupt: Annotated[
        float,
        Meta(ge=2, le=256),
        labelled("Target packets per interrupt", "The NIC waits no longer than these take to arrive.", unit="packets"),
    ] = 16.0
    min_packets_per_s: Annotated[
        float,
        Meta(ge=0, le=1e9),
        labelled("Minimum packet rate", "A device that receives less gets its original values back.", unit="packets/s"),
    ] = 1000.0
    adaptive: Annotated[
        Literal["leave", "compare", "disable"],
        labelled(
            "Adaptive coalescing (adaptive-rx)",
            "What to do with a device whose driver adapts coalescing itself.",
            options={
                "leave": "skip the device",
                "compare": "turn it off temporarily and keep whichever needs fewer interrupts",
                "disable": "turn it off",
            },
        ),
    ] = "leave"
    software: Annotated[
        bool,
        labelled(
            "Software coalescing",
            "Use gro_flush_timeout and napi_defer_hard_irqs where the NIC has no coalescing of its own.",
        ),
    ] = False
    max_dropped_percent: Annotated[
        float,
        Meta(ge=0, le=100),
        labelled("Maximum packet drops", "Share of received packets; above it the last step is undone.", unit="%"),
    ] = 0.1
