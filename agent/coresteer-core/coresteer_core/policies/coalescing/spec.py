"""Parameters of the policy ``coalescing``."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from coresteer_core.policies.base import PolicySpec
from coresteer_core.schema import Preset, labelled


class Coalescing(PolicySpec, frozen=True, tag="coalescing"):
    """Parameters of the policy that sets how long NICs wait before they interrupt."""

    label = "Interrupt coalescing"
    summary = "Raises the number of packets per interrupt of busy NICs, within the allowed latency."
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "bulk transfer",
            "The bounds of Park, Woo, Lee and Kim, 42 packets × 90 µs: fewest interrupts, for traffic that may wait.",
            {"max_added_us": 3780.0, "packets_per_interrupt": 42.0},
        ),
        Preset(
            "balanced",
            "Several packets per interrupt also at 1 Gbit/s in frames of 9,000 bytes, half a millisecond at most.",
            {"max_added_us": 500.0, "packets_per_interrupt": 16.0},
        ),
        Preset(
            "latency first",
            "Collects packets only where they arrive within 100 µs; 1 Gbit/s in frames of 9,000 bytes does not.",
            {"max_added_us": 100.0, "packets_per_interrupt": 16.0},
        ),
    )

    max_added_us: Annotated[
        float,
        Meta(ge=1, le=10_000),
        labelled("Maximum added latency", "No packet waits longer than this for its interrupt.", unit="µs"),
    ] = 100.0
    packets_per_interrupt: Annotated[
        float,
        Meta(ge=2, le=256),
        labelled(
            "Target packets per interrupt",
            "The NIC's delay is at most the time in which this many packets arrive.",
            unit="packets",
        ),
    ] = 16.0
    min_packets_per_s: Annotated[
        float,
        Meta(ge=0, le=1e9),
        labelled(
            "Minimum packet rate",
            "On a device that receives fewer packets, the original values are restored.",
            unit="packets/s",
            group="advanced",
        ),
    ] = 1000.0
    adaptive: Annotated[
        Literal["leave", "compare", "disable"],
        labelled(
            "Adaptive coalescing (adaptive-rx)",
            "Treatment of devices whose driver adapts the coalescing values to the load.",
            group="advanced",
            options={
                "leave": "skip the device",
                "compare": "turn it off temporarily and keep the state with fewer interrupts",
                "disable": "turn it off",
            },
        ),
    ] = "leave"
    software: Annotated[
        bool,
        labelled(
            "Software coalescing",
            "Use gro_flush_timeout and napi_defer_hard_irqs where the NIC has no coalescing parameters.",
            group="advanced",
        ),
    ] = False
    max_dropped_percent: Annotated[
        float,
        Meta(ge=0, le=100),
        labelled(
            "Maximum packet drops",
            "Share of received packets; above it the policy returns to its previous values.",
            unit="%",
        ),
    ] = 0.1
