"""How a policy proves its effect while it is in force: fields of its versions."""

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from coresteer.application_metrics.reading import PREFIX
from coresteer.inputs import STORABLE, RequestBody, validation_error
from coresteer.structs import FormField
from coresteer_core.metrics import REPORT_METRICS
from coresteer_core.schema import labelled

PROOF_METRICS = REPORT_METRICS
"""Metrics that are stored every minute, by name."""

if TYPE_CHECKING:
    ProofMetric: TypeAlias = str
else:
    ProofMetric = Literal[tuple(PROOF_METRICS)]  # which a type checker cannot follow

_OPTIONS = {name: metric.label for name, metric in PROOF_METRICS.items()}


def _primary(metric: str) -> str:
    if metric not in PROOF_METRICS and not metric.startswith(PREFIX):
        raise validation_error(f"There is no metric {metric}; an application metric is {PREFIX}NAME.")
    return metric


class ProofSettings(RequestBody):
    """How a policy in mode enforce is compared with its own absence, on all of its nodes, at random moments.

    holdout_percent: of each node's time, 0 for none. roll_back: on a metric that the version worsens.
    """

    holdout_percent: Annotated[
        float,
        Field(ge=0, le=20),
        FormField(
            labelled(
                "Holdout",
                "Share of each node's time in which the policy is held out to measure its effect; 0: no proof.",
                unit="%",
            )
        ),
    ] = 5.0
    block_s: Annotated[
        int,
        Field(ge=10, le=21_600),
        FormField(
            labelled(
                "Block length",
                "Length of a holdout block and of the enforced one next to it; later effects are not seen.",
                unit="s",
                group="advanced",
            )
        ),
    ] = 600
    metric: Annotated[
        str,
        Field(min_length=1, max_length=44),
        STORABLE,
        AfterValidator(_primary),
        FormField(
            labelled(
                "Primary metric",
                "The metric that the policy should improve; app.NAME is an application metric.",
                options=_OPTIONS,
                format="proof-metric",
            )
        ),
    ] = "cpu_s_per_gbit"
    guardrails: Annotated[
        list[ProofMetric],
        Field(max_length=8),
        FormField(
            labelled(
                "Metrics it must not worsen",
                "Measured in the same blocks; they share one error probability of 5 %.",
                options=_OPTIONS,
            )
        ),
    ] = Field(default=["cpu_softirq_percent", "rtt_p99_us", "softnet_dropped_per_s"])
    application_metrics: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=40), STORABLE]],
        Field(max_length=4),
        FormField(
            labelled(
                "Application metrics it must not worsen",
                "Names of Prometheus queries, as declared in the settings; measured in the same blocks.",
                group="advanced",
            )
        ),
    ] = Field(default=[])
    min_bit_per_s: Annotated[
        float,
        Field(ge=0, le=1e12),
        FormField(
            labelled(
                "Minimum traffic",
                "Blocks count if the node received and sent as much before the first one.",
                unit="bit/s",
                group="advanced",
            )
        ),
    ] = 1e6
    domain_label: Annotated[
        str,
        Field(max_length=63),
        STORABLE,
        FormField(
            labelled(
                "Failure domain",
                "Label whose values are failure domains, for example rack; empty: the whole fleet is one.",
                placeholder="whole fleet",
                group="advanced",
            )
        ),
    ] = ""
    domain_percent: Annotated[
        float,
        Field(gt=0, le=100),
        FormField(
            labelled(
                "Most of a failure domain",
                "Share of a failure domain's nodes that may be compared at the same time; one node always may.",
                unit="%",
                group="advanced",
            )
        ),
    ] = 25.0
    roll_back: Annotated[
        bool,
        FormField(
            labelled(
                "Roll back when it worsens a metric",
                "The version before is put in force again; without one the policy is disabled.",
            )
        ),
    ] = False

    @property
    def others(self) -> list[str]:
        """Return the metrics that it must not worsen, application metrics with their prefix."""
        return [*self.guardrails, *(f"{PREFIX}{name}" for name in self.application_metrics)]

    @property
    def own_metrics(self) -> list[str]:
        """Return the metrics that the node's agent measures."""
        return [name for name in dict.fromkeys((self.metric, *self.guardrails)) if name in PROOF_METRICS]

    @property
    def applications(self) -> list[str]:
        """Return the names of the application metrics, without their prefix; the primary one first."""
        primary = [] if self.metric in PROOF_METRICS else [self.metric.removeprefix(PREFIX)]
        return [*dict.fromkeys((*primary, *self.application_metrics))]
