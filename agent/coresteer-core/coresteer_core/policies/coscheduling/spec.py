"""Fields of the policy that runs first the process whose peer runs soonest."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta

from coresteer_core.policies.base import PolicySpec
from coresteer_core.policies.coscheduling.boost import BY_AGE
from coresteer_core.policies.coscheduling.reorder import AS_PRINTED, MINUS
from coresteer_core.policies.service_class.matching import Match
from coresteer_core.schema import labelled
from coresteer_core.settings.task import MIN_NICE

Enp = Annotated[
    Literal["union", "sum"],
    labelled(
        "Expected number of processes",
        "Whether a process with pending messages that is also among the next to run counts once or twice in ENP.",
        group="advanced",
        options={"union": "union: once", "sum": "sum: twice"},
    ),
]
ErtSign = Annotated[
    Literal["minus", "printed"],
    labelled(
        "Sign of the elapsed time",
        "The paper prints a plus, which contradicts its own algorithm.",
        group="advanced",
        options={"minus": "minus", "printed": "plus, as printed"},
    ),
]
SIGNS: Mapping[str, float] = MappingProxyType({"minus": MINUS, "printed": AS_PRINTED})
"""Of each ErtSign, as reorder.expected_run_time() takes it."""


class Coscheduling(PolicySpec, frozen=True, tag="coscheduling"):
    """Fields of the policy. The paper gives no constants: every default is ours."""

    label = "Coscheduling"
    summary = (
        "Lets the process run first whose peer on another machine or other CPUs is expected to run soonest, so that "
        "processes that exchange messages run at the same time."
    )

    match: Annotated[
        Match, labelled("Processes", "The processes of the parallel job; every list that is not empty must match.")
    ] = Match()
    period_ms: Annotated[
        int,
        Meta(ge=20, le=1000),
        labelled(
            "Period", "Processes are reordered this often, and a boost lasts one period.", unit="ms", group="advanced"
        ),
    ] = 50
    nice_boost: Annotated[
        int,
        Meta(ge=MIN_NICE, le=-1),
        labelled(
            "Nice value of a boost",
            "While boosted, a process has this nice value; otherwise its own.",
            group="advanced",
        ),
    ] = -10
    max_boosted_per_cpu: Annotated[
        int,
        Meta(ge=1, le=8),
        labelled("Boosted processes per CPU", "At most this many at the same time.", group="advanced"),
    ] = 1
    stale_ms: Annotated[
        int,
        Meta(ge=100, le=10_000),
        labelled(
            "Maximum age of a load",
            "Older loads of peers are ignored; their messages are ordered by age. At least two periods.",
            unit="ms",
            group="advanced",
        ),
    ] = 500
    min_peers: Annotated[
        int,
        Meta(ge=0, le=64),
        labelled("Minimum number of peers", "With fewer known loads of peers nothing is boosted.", group="advanced"),
    ] = 1
    reorder: Annotated[
        bool,
        labelled(
            "Reordering",
            "Order processes by when their peers are expected to run; otherwise the oldest message comes first.",
            group="advanced",
        ),
    ] = True
    enp: Enp = "union"
    ert_sign: ErtSign = "minus"

    @property
    def sign(self) -> float:
        """Return the sign of the elapsed time, as reorder.expected_run_time() takes it; BY_AGE without reordering."""
        return SIGNS[self.ert_sign] if self.reorder else BY_AGE

    @property
    def is_sum(self) -> bool:
        """Return whether reorder.expected_processes() counts a process twice."""
        return self.enp == "sum"

    @property
    def max_age_s(self) -> float:
        """Return how old a peer's load may be: two periods at least, as peers tell theirs once a period."""
        return max(self.stale_ms, 2 * self.period_ms) / 1000

    @property
    def steers(self) -> bool:
        """Return True: the agent boosts a process for one period at a time."""
        return True
