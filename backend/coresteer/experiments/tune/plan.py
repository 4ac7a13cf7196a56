"""The schedule of a tune, which follows from the results so far, and its result. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence

from coresteer.experiments import schedule
from coresteer.experiments.spec import Arm, Attempt, Interval, PlannedRun, RecordedRun, Spec
from coresteer.experiments.tune.result import Candidate, CandidateState, Stopped, TuneResult
from coresteer.experiments.tune.search import Goal, Measured, Search
from coresteer.experiments.tune.space import Space
from coresteer.experiments.tune.surrogate import Estimate
from coresteer_core.metrics import EXPERIMENT_METRICS

_Z = 1.96
_WHOLE = 0.1
"""From this share on, percents are whole."""


def plan_tune(spec: Spec, seed: int, runs: Sequence[RecordedRun]) -> list[PlannedRun]:
    """Return the runs of a tune so far, then the remaining ones of its present block; no further ones at its end.

    The same runs give the same plan, so that a restarted backend continues a block.
    """
    settled = _settled(runs)
    past = [planned for number, planned in _planned(runs).items() if number in settled]
    block = past[-1].block if past else 0
    begun = sum(planned.block == block for planned in past)
    order = _search(spec, seed, runs, block).next_block()
    if begun >= len(order) and past:
        block, begun = block + 1, 0
        order = _search(spec, seed, runs, block).next_block()
    order = order[: max(0, spec.tune.max_runs - len(past) + begun)]
    if begun == 0 and len(order) <= 1:  # the baseline alone tells nothing
        return past
    labels = {arm: label for label, arm in enumerate(schedule.arms_in_order(spec, past))}
    for arm in order[begun:]:
        label = labels.setdefault(arm, len(labels))
        past.append(PlannedRun(len(past), "main", block, label, arm))
    return past


def _search(spec: Spec, seed: int, runs: Sequence[RecordedRun], blocks: int | None = None) -> Search:
    """Return the search after a number of blocks (None: all)."""
    if blocks is None:
        blocks = 1 + max((run.planned.block for run in runs), default=-1)
    known = [run for run in runs if run.planned.block < blocks]
    counted = {run.planned.number: run for run in known if run.discarded is None and spec.primary in run.figures}
    measured = [
        Measured(run.planned.block, run.planned.arm, run.figures[spec.primary], run.figures.get(spec.tune.latency))
        for _, run in sorted(counted.items())
    ]
    return Search(Space(spec.factors), _goal(spec), measured, _failed(known), blocks=blocks, seed=seed)


def _planned(runs: Sequence[RecordedRun]) -> dict[int, PlannedRun]:
    return {run.planned.number: run.planned for run in sorted(runs, key=lambda run: run.planned.number)}


def _left_out(runs: Sequence[RecordedRun]) -> set[int]:
    """Return the numbers of the runs that are not attempted again."""
    return schedule.left_out([Attempt(run.planned.number, run.attempt, run.discarded, run.violated) for run in runs])


def _settled(runs: Sequence[RecordedRun]) -> set[int]:
    """Return the numbers of the runs that count or are not attempted again."""
    return _left_out(runs) | {run.planned.number for run in runs if run.discarded is None}


def _goal(spec: Spec) -> Goal:
    sign, limit_sign = (
        -1 if EXPERIMENT_METRICS[metric].better == "more" else 1 for metric in (spec.primary, spec.tune.latency)
    )
    return Goal(sign, spec.tune.limit, limit_sign)


def _failed(runs: Sequence[RecordedRun]) -> dict[Arm, str]:
    """Return the candidates that cannot be measured, with the reason."""
    numbers = _left_out(runs)
    return {
        run.planned.arm: run.discarded or "" for run in runs if run.planned.number in numbers and any(run.planned.arm)
    }


def tune_result(spec: Spec, seed: int, runs: Sequence[RecordedRun], *, has_ended: bool) -> TuneResult:
    """Return the result of a tune's runs so far. has_ended: no further run follows."""
    search, failed = _search(spec, seed, runs), _failed(runs)
    arms = schedule.arms_in_order(spec, [run.planned for run in runs])
    combinations = len(search.space)
    if not search.runs:
        found = [_unmeasured(spec, arm, failed) for arm in arms if arm in failed]
        return TuneResult(
            candidates=found,
            combinations=combinations,
            eliminated=len(found),
            best=None,
            noise=None,
            stopped="early" if has_ended else None,
        )
    front = search.front
    candidates = [_candidate(spec, search, arm, failed, front) for arm in arms]
    return TuneResult(
        candidates=candidates,
        combinations=combinations,
        eliminated=int((~search.open).sum()),
        best=None if search.best is None else search.space.arms[search.best],
        noise=search.cost_model.noise if search.cost_scale.logarithmic else None,
        stopped=_stopped(spec, search, len(_settled(runs))) if has_ended else None,
    )


def _unmeasured(spec: Spec, arm: Arm, failed: Mapping[Arm, str]) -> Candidate:
    return Candidate(
        arm=arm,
        name=schedule.arm_name(spec, arm),
        runs=0,
        state="failed" if arm in failed else "open" if any(arm) else "baseline",
        why=failed.get(arm, ""),
        front=False,
        cost=None,
        latency=None,
        effect=None,
    )


def _candidate(spec: Spec, search: Search, arm: Arm, failed: Mapping[Arm, str], front: frozenset[int]) -> Candidate:
    at = search.space.index[arm]
    if arm in failed or not search.counts[at]:
        return _unmeasured(spec, arm, failed)
    state, why = _state(spec, search, at)
    return Candidate(
        arm=arm,
        name=schedule.arm_name(spec, arm),
        runs=int(search.counts[at]),
        state=state,
        why=why,
        front=at in front,
        cost=_interval(search.cost, at, search.cost_scale.back),
        latency=None if search.latency is None else _interval(search.latency, at, search.latency_scale.back),
        effect=_effect(search, at),
    )


def _interval(estimate: Estimate, at: int, back: Callable[[float], float]) -> Interval:
    mean, half = float(estimate.mean[at]), _Z * float(estimate.variance[at]) ** 0.5
    return Interval(back(mean), back(mean - half), back(mean + half))


def _effect(search: Search, at: int) -> Interval | None:
    """Return a candidate's difference from the baseline in the primary metric, relative; None of the baseline."""
    if at == 0:
        return None
    cost = search.cost
    value = float(cost.mean[at] - cost.mean[0])
    half = _Z * max(0.0, float(cost.variance[at] + cost.variance[0] - 2 * cost.with_baseline[at])) ** 0.5
    ends = (value, value - half, value + half)
    if search.cost_scale.logarithmic:
        return Interval(*(math.expm1(each) for each in ends))
    base = abs(float(cost.mean[0]))
    return Interval(*(each / base for each in ends)) if base else None


def _state(spec: Spec, search: Search, at: int) -> tuple[CandidateState, str]:
    """Return the state of a measured candidate, and why it is eliminated."""
    if at == search.best:
        return "best", ""
    if search.over_limit[at]:
        label = EXPERIMENT_METRICS[spec.tune.latency].label
        if search.latency is None:
            return "limit", f"{label} was not measured, so it is unknown whether the limit is kept."
        sure = "above" if search.goal.limit_sign > 0 else "below"
        return "limit", f"{label}: {_percent(1 - search.keeps_limit[at])} sure to be {sure} the limit."
    if search.worse[at] and search.best is not None:
        behind = _behind(search, at)
        return ("baseline" if at == 0 else "worse"), f"{behind} {EXPERIMENT_METRICS[spec.primary].label} than the best."
    return ("baseline" if at == 0 else "open"), ""


def _behind(search: Search, at: int) -> str:
    """Return by how much a candidate is worse than the best one: “12 % more”."""
    assert search.best is not None  # noqa: S101 - for the type checker
    difference = float(search.cost.mean[at] - search.cost.mean[search.best])
    word = "more" if difference > 0 else "less"
    if not search.cost_scale.logarithmic:
        return word.capitalize()
    return f"{_percent(abs(math.expm1(difference)))} {word}"


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= _WHOLE else 1}f} %"


def _stopped(spec: Spec, search: Search, runs: int) -> Stopped:
    if search.is_converged:
        return "infeasible" if search.best is None else "converged"
    return "runs" if runs + 1 >= spec.tune.max_runs else "early"
