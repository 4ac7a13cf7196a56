"""Parameters of the policy ``flow-steering``."""

from typing import Annotated, Literal

from msgspec import Meta

from coresteer_core.policies.base import PolicySpec
from coresteer_core.schema import labelled


class FlowSteering(PolicySpec, frozen=True, tag="flow-steering"):
    """Parameters of the policy that brings packets to the CPUs of the processes that read them."""

    label = "Steer flows to processes"
    summary = "Brings packets to the CPU of the process that reads them: by flow rules, the RSS table and RFS."

    min_bytes_per_s: Annotated[
        float,
        Meta(ge=0, le=1e15),
        labelled("Minimum traffic", "Processes that receive less are skipped.", unit="bytes/s"),
    ] = 1_000_000.0
    max_rules: Annotated[
        int,
        Meta(ge=0, le=1024),
        labelled(
            "Maximum flow rules",
            "For each network device that has flow rules, for the flows that receive most. Another program's rules "
            "stay as they are. 0: none.",
        ),
    ] = 64
    rss_table: Annotated[
        bool,
        labelled("RSS table", "Give entries of the RSS table with heavy flows to the queue nearest to their process."),
    ] = True
    rfs: Annotated[
        Literal["off", "try", "on"],
        labelled(
            "RFS",
            "The kernel passes each packet on to the CPU on which its process last read.",
            options={"off": "off", "try": "on, if it does not cost more CPU time", "on": "on"},
            option_help={
                "off": "RFS stays as it is.",
                "try": "CPU time per gigabit received is compared before and after; if it rises, RFS is off for an "
                "hour.",
                "on": "RFS is on while processes receive far from their packets, whatever it costs.",
            },
        ),
    ] = "try"
    xps: Annotated[
        bool,
        labelled(
            "XPS",
            "Each CPU sends by the transmit queue with the nearest interrupt: completions arrive near the sender.",
        ),
    ] = False
    dwell_s: Annotated[
        float,
        Meta(ge=5, le=3600),
        labelled(
            "Minimum age of a flow",
            "A flow must last this long before it is steered, and it moves at most once in this time.",
            unit="s",
            group="advanced",
        ),
    ] = 30.0
    max_load: Annotated[
        float,
        Meta(ge=0, le=1),
        labelled(
            "Maximum load of a CPU",
            "No flow is steered to a CPU whose load would be higher with it.",
            unit="%",
            scale=100,
        ),
    ] = 0.8
