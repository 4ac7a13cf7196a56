"""Guardrails: bounds on metrics of one interval's Rates, whose violation rolls a change back."""

from msgspec import Struct

from coresteer_core.metrics import GUARDRAIL_METRICS

MIN_STRIKES = 2
"""Consecutive intervals above the bound that violate a guardrail; a single one may be caused by the write itself."""
MIN_STRIKES_S = 2.0
"""Shortest total duration in seconds of those intervals (compared to the nearest tenth of a second)."""
VIOLATION_PERIOD = f"for {MIN_STRIKES} intervals in a row and at least {MIN_STRIKES_S:g} s"
"""How long a metric must exceed its bound to violate a guardrail, as part of a sentence."""


class Guardrail(Struct, frozen=True):
    """Bound on a metric, a key of coresteer_core.metrics.GUARDRAIL_METRICS: violated when it stays above max."""

    metric: str
    max: float


class Strikes(Struct, frozen=True):
    """Number and total duration of the latest consecutive intervals in which a metric exceeded a guardrail's bound."""

    intervals: int = 0
    seconds: float = 0.0

    def count(self, guardrail: Guardrail, value: float | None, duration_s: float) -> "Strikes":
        """Return the strikes after another interval with this value of the metric; None (unknown) resets them."""
        if value is None or value <= guardrail.max:
            return Strikes()
        return Strikes(self.intervals + 1, self.seconds + duration_s)

    @property
    def violated(self) -> bool:
        """Return whether the metric exceeded the bound for long enough."""
        return self.intervals >= MIN_STRIKES and round(self.seconds, 1) >= MIN_STRIKES_S

    def violation(self, guardrail: Guardrail, value: float | None) -> str | None:
        """Return a sentence (without “The”) if the guardrail is violated, else None. value: the metric's latest."""
        if value is None or not self.violated:
            return None
        return (
            f"{GUARDRAIL_METRICS[guardrail.metric]} was {value:.6g}, above its guardrail of {guardrail.max:.6g} "
            f"for {self.intervals} intervals in a row."
        )
