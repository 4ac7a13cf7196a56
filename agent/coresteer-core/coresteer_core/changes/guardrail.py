"""Guardrails: bounds on metrics of one interval's Rates, whose violation rolls a change back."""

from msgspec import Struct

from coresteer_core.metrics import GUARDRAIL

STRIKES = 2
"""Consecutive intervals above the bound that make a violation; a single one may be the disturbance of the change."""
STRIKES_S = 2.0
"""Least duration of these intervals together, compared to the next tenth of a second."""


class Guardrail(Struct, frozen=True):
    """Bound on a metric, a key of coresteer_core.metrics.GUARDRAIL: violated when it stays above max."""

    metric: str
    max: float


class Strikes(Struct, frozen=True):
    """Consecutive intervals above a guardrail's bound, and how long they lasted together."""

    intervals: int = 0
    seconds: float = 0.0

    def count(self, guardrail: Guardrail, value: float | None, duration_s: float) -> "Strikes":
        """Return the strikes after another interval. value: the metric's, None where unknown, which ends the series."""
        if value is None or value <= guardrail.max:
            return Strikes()
        return Strikes(self.intervals + 1, self.seconds + duration_s)

    def violation(self, guardrail: Guardrail, value: float | None) -> str | None:
        """Return the violation as a sentence without its article, None where there is none. value: the last one."""
        if value is None or self.intervals < STRIKES or round(self.seconds, 1) < STRIKES_S:
            return None
        return (
            f"{GUARDRAIL[guardrail.metric]} was {value:.6g}, above its guardrail of {guardrail.max:.6g} "
            f"for {self.intervals} intervals in a row."
        )
