"""Fields of the policy that places processes and their memory on NUMA nodes."""

from typing import Annotated

from msgspec import Meta

from coresteer_core.policies.base import ALLOW_ISOLATED_FIELD, PolicySpec
from coresteer_core.schema import labelled

Weight = Annotated[float, Meta(ge=0.1, le=10)]
Pattern = Annotated[str, Meta(max_length=256)]
NodeList = Annotated[
    str, Meta(pattern="^[0-9,-]+$", max_length=256, description="NUMA nodes are a list, for example 1 or 0-1.")
]


class Numa(PolicySpec, frozen=True, tag="numa"):
    """Fields of the policy. The paper gives no thresholds: every default is ours."""

    label = "Place processes on NUMA nodes"
    summary = "Moves processes and their memory to the same NUMA node, and apart where they contend for bandwidth."

    gain: Annotated[
        float,
        Meta(ge=1.0, le=10),
        labelled("Minimum speed-up", "A process is moved only for a predicted speed-up of at least this factor."),
    ] = 1.1
    move_pages: Annotated[
        bool, labelled("Move pages", "Moves memory that stays behind, where that pays off within 30 s.")
    ] = False
    max_page_move_bytes: Annotated[
        int,
        Meta(ge=1 << 20, le=1 << 36),
        labelled(
            "Maximum page move",
            "Of one process at a time; about 1 s per GB.",
            unit="MiB",
            scale=1 / (1 << 20),
            group="advanced",
        ),
    ] = 256 << 20
    contention: Annotated[
        float,
        Meta(ge=0.05, le=100),
        labelled(
            "Maximum contention factor",
            "Above it, processes that use much bandwidth are moved apart, with their pages: needs Move pages.",
            group="advanced",
        ),
    ] = 0.5
    max_node_gap: Annotated[
        float,
        Meta(ge=0.01, le=1),
        labelled(
            "Imbalance",
            "Difference of load or of used memory between two nodes that counts as unbalanced.",
            unit="percentage points",
            scale=100,
            group="advanced",
        ),
    ] = 0.25
    behavior_change: Annotated[
        float,
        Meta(ge=0.05, le=10),
        labelled(
            "Behavior change",
            "Relative change of a process's load or bandwidth.",
            unit="%",
            scale=100,
            group="advanced",
        ),
    ] = 0.5
    reserve_cores: Annotated[
        float, Meta(ge=0, le=1024), labelled("Reserved CPUs", "Left free on each node.", group="advanced")
    ] = 0.0
    min_age_s: Annotated[
        float,
        Meta(ge=0, le=86_400),
        labelled("Minimum age", "Younger processes are skipped.", unit="s", group="advanced"),
    ] = 5.0
    min_rss_bytes: Annotated[
        int,
        Meta(ge=0, le=1 << 40),
        labelled("Minimum memory", "Smaller processes are skipped.", unit="MiB", scale=1 / (1 << 20), group="advanced"),
    ] = 16 << 20
    pins: Annotated[
        dict[Pattern, NodeList],
        Meta(max_length=64),
        labelled(
            "Static pins",
            "NUMA node by process name, cgroup or unit (shell patterns); takes precedence over every prediction.",
            placeholder="postgres*=1 web.slice=0-1",
        ),
    ] = {}
    weights: Annotated[
        dict[Pattern, Weight],
        Meta(max_length=64),
        labelled(
            "Weights",
            "From 0.1 to 10, by process name, cgroup or unit (shell patterns); 1 for all others.",
            group="advanced",
            placeholder="batch*=0.5 nginx=2",
        ),
    ] = {}
    allow_isolated: Annotated[bool, ALLOW_ISOLATED_FIELD] = False

    @property
    def places_processes(self) -> bool:
        """Return True: the policy binds processes to the CPUs of a NUMA node."""
        return True

    @property
    def example_keys(self) -> tuple[str, ...]:
        """Return the key of a process's affinity, and of its memory nodes where the policy moves pages."""
        return ("task/1/affinity", "task/1/memory-nodes") if self.move_pages else ("task/1/affinity",)
