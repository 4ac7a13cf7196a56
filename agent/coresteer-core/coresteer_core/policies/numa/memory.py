"""What the policy remembers between rounds: behavior at the last decision, and its own moves with their evaluation."""

from msgspec import Struct

from coresteer_core.policies.numa.triggers import Behavior

EVALUATION_ROUNDS = 4
"""Rounds after a move in which its effect is measured."""
MIN_ACHIEVED = 0.5
"""Share of the predicted reduction in run time below which a move is rolled back."""
REJECTED_S = 600.0
"""A place that did not pay off is not tried again for this long."""
FORGET_S = 3600.0
"""A process that is not observed any more is remembered this long."""


class PastMove(Struct, frozen=True, gc=False):
    """A move that the policy proposed. values: by key. was: the values before, in order to roll back.

    node, origin: NUMA nodes. before, predicted: run time τ before the move and as predicted. since_s: view time at
    which the View first showed it, None until then. measured: τ in the first rounds since. pages: its memory was to
    move.
    """

    pid: int
    started_ticks: int
    node: int
    origin: int
    values: dict[str, str]
    was: dict[str, str]
    before: float
    predicted: float
    pages: bool
    seen_s: float
    since_s: float | None = None
    measured: list[float] = []
    rejected_s: float | None = None

    @property
    def applied(self) -> bool:
        """Return whether the View showed it."""
        return self.since_s is not None

    def pays_off(self) -> bool | None:
        """Return whether it achieved half of its predicted effect; None while it is being measured."""
        if self.since_s is None or len(self.measured) < EVALUATION_ROUNDS:
            return None
        achieved = self.before - sum(self.measured) / len(self.measured)
        return achieved >= MIN_ACHIEVED * (self.before - self.predicted)


class NumaMemory(Struct, frozen=True, tag="numa"):
    """State for the next round. behaviors: at the last decision. pending: it had moves, perhaps not yet written."""

    behaviors: list[Behavior] = []
    moves: list[PastMove] = []
    pending: bool = False
