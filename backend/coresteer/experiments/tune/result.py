"""Result of a tune: every measured candidate with its estimates, which are eliminated and why, and the best."""

from typing import Literal, TypeAlias

from msgspec import Struct

from coresteer.experiments.spec import Arm, Interval

CandidateState: TypeAlias = Literal["baseline", "best", "open", "worse", "limit", "failed"]
"""open: not eliminated. worse: cannot be better than the best. limit: exceeds the limit. failed: not measurable."""

Stopped: TypeAlias = Literal["converged", "infeasible", "runs", "early"]
"""converged: nothing better is expected. infeasible: nothing keeps the limit. runs: it took as many as it may."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A measured combination of levels. cost, latency: estimates of the primary metric and of the other one.

    Both are of the model over all runs, with 95 % intervals, None for one without runs that count. effect: of the
    primary metric relative to the baseline. front: no other measured candidate is better in both. runs: that count.
    why: of its elimination, in a sentence; empty while it is open.
    """

    arm: Arm
    name: str
    runs: int
    state: CandidateState
    why: str
    front: bool
    cost: Interval | None
    latency: Interval | None
    effect: Interval | None


class TuneResult(Struct, frozen=True, kw_only=True):
    """What a tune has found so far. candidates: measured ones, in the order of their first run.

    combinations: all there are. eliminated: of these, by a measurement or by the estimate. best: the arm with the best
    estimate among those that keep the limit, None while there is none.
    noise: estimated deviation of the primary metric between equal runs, relative. stopped: why no run follows, None
    while it runs.
    """

    candidates: list[Candidate]
    combinations: int
    eliminated: int
    best: Arm | None
    noise: float | None
    stopped: Stopped | None
