"""Guardrail: a bound on a metric whose violation rolls a change back."""

from msgspec import Struct

from coresteer_core.metrics import GUARDRAIL as METRICS
from coresteer_core.node.metric_values import guardrail_values as measure

__all__ = ["METRICS", "Guardrail", "measure"]


class Guardrail(Struct, frozen=True):
    """Roll back as soon as metric, a key of METRICS, stays above max."""

    metric: str
    max: float
