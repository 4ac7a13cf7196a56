"""What comes next in an experiment. Pure: rows and what agents said on their connections go in, a step comes out.

runner.py asks promotable() who begins and gives each a drive; drive.py gathers the Facts from rows and from heard.py,
asks next_step(), carries the step out, and asks again.

All that must survive a restart of the backend is in rows, so a driver that begins with nothing heard goes on where the
last one was cut off: what stands is rolled back, and the first place of the schedule without a run that counts is next.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from coresteer.experiments import schedule
from coresteer.experiments.arms import netdev_keys, warmup_s
from coresteer.experiments.repository import Taken
from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.spec import PlannedRun
from coresteer.experiments.steps import (
    Begin,
    Conclude,
    EndLease,
    Facts,
    Finish,
    Keep,
    Look,
    Lose,
    Open,
    Pause,
    RollBack,
    Start,
    Step,
    TakeBefore,
    TellEnd,
    Wait,
)
from coresteer_core.experiments.model import Measured, RunState
from coresteer_core.protocol import ChangeState, EndedBy

ATTEMPTS = 3
_PRIOR_RUNS = 2
"""So many runs count as having taken as long as planned, before there are any."""
_OF_THE_CLIENT = ("throughput_bit_per_s", "requests_per_s", "rtt_p50_us", "rtt_p95_us", "rtt_p99_us")
"""Figures of the load; all others are those of the node under test."""


def next_step(facts: Facts) -> Step:
    """What to do now."""
    if facts.ending is not None:
        return _wind_down(facts)
    kept = {attempt.number for attempt in facts.attempts if attempt.discarded is None}
    planned = next((run for run in facts.plan if run.number not in kept), None)
    if planned is None:
        discarded = len(facts.attempts) - len(kept)
        return Conclude(ExperimentState.DONE, f"{len(kept)} runs were measured; {discarded} did not count.")
    vain = [attempt for attempt in facts.attempts if attempt.number == planned.number]
    if facts.at_hand:
        return _with_run(facts, planned, len(vain))
    if len(vain) >= ATTEMPTS:
        sentence = f"Run {planned.number + 1} was tried {len(vain)} times and never counted, the last time because: "
        return Conclude(ExperimentState.FAILED, sentence + (vain[-1].discarded or ""))
    return _between_runs(facts, planned, len(vain))


def _between_runs(facts: Facts, planned: PlannedRun, attempt: int) -> Step:  # noqa: PLR0911 - one return a step
    if (away := _away(facts)) is not None:
        return away
    if (undo := _undo(facts)) is not None:
        if facts.now_s < facts.since_s + facts.patience.returned_s:
            return undo
        return Conclude(ExperimentState.FAILED, f"{facts.sides[0].name} did not say that the run's settings went back.")
    if facts.before is None:
        if facts.paused_at_s is None:
            return Pause()
        if facts.pauses and facts.now_s < (until_s := facts.paused_at_s + facts.patience.pause_s):
            return Wait("Waiting for the paused policies to give back what they held.", until_s)
        return TakeBefore()
    for place, side in enumerate(facts.sides):
        if side.begun_at_s is None:
            return Begin(place)
        if side.word is not None and side.word.state is RunState.FAILED:
            return Lose(planned, attempt, f"{side.name}: {side.word.sentence}")
        if side.word is None:
            until_s = side.begun_at_s + facts.patience.ready_s
            if facts.now_s >= until_s:
                return Lose(planned, attempt, f"{side.name} was not ready after {facts.patience.ready_s:.0f} s.")
            return Wait(f"{side.name} is getting ready.", until_s)
    return _as_before(facts, planned) or Open(planned)


def _as_before(facts: Facts, planned: PlannedRun) -> Step | None:
    """What is to be done until all settings are as they were before the experiment; None when they are."""
    if facts.settings is None:
        return Look()
    until_s = facts.since_s + facts.patience.returned_s
    missing = set(netdev_keys(facts.spec, facts.netdev)) - facts.settings.keys()
    differing = _differing(facts, {**(facts.before or {}), **facts.netdev_before})
    if not missing and not differing:
        return None
    if facts.now_s < until_s:
        return Wait(f"Before run {planned.number + 1}: waiting until all settings are as before.", until_s)
    if differing:
        return Conclude(ExperimentState.FAILED, f"Something else changed what it is about: {differing}")
    return Conclude(ExperimentState.FAILED, f"The node has no {min(missing)}.")


def _differing(facts: Facts, wanted: Mapping[str, str]) -> str:
    """Which settings are not as before, in sentences; empty when all are."""
    settings = facts.settings or {}
    wrong = [key for key, value in wanted.items() if settings.get(key) != value]
    told = [f"{key} is {settings.get(key, 'not there')} instead of {wanted[key]}." for key in wrong[:5]]
    return " ".join([*told, *([f"So are {len(wrong) - 5} others."] if len(wrong) > 5 else [])])


def _with_run(  # noqa: PLR0911, PLR0912 - one return a step
    facts: Facts, planned: PlannedRun, attempt: int
) -> Step:
    if facts.tripped is not None:
        return Conclude(ExperimentState.STOPPED, facts.tripped)
    change = facts.change
    if change is not None and change.state not in (ChangeState.APPLYING, ChangeState.UNCONFIRMED):
        if change.ended_by is EndedBy.GUARDRAIL:
            return Conclude(ExperimentState.STOPPED, change.sentence)
        if change.ended_by is EndedBy.USER or change.state is ChangeState.CONFIRMED:
            return Conclude(
                ExperimentState.CANCELLED, f"Somebody ended the change of run {planned.number + 1} by hand."
            )
        return Lose(planned, attempt, change.sentence)
    measured = [side.measured for side in facts.sides if side.measured is not None]
    if len(measured) == len(facts.sides):
        whole = merged(measured, [side.name for side in facts.sides])
        return Keep(planned, attempt, whole, schedule.discard_reason(whole, facts.spec))
    if facts.broken is not None:  # told when it is back: a backend that is being stopped loses everybody
        return _away(facts) or Lose(planned, attempt, facts.broken)
    name = f"Run {planned.number + 1} of {len(facts.plan)}, {schedule.arm_name(facts.spec, planned.arm)}"
    if change is not None and change.state is ChangeState.APPLYING:
        until_s = facts.since_s + facts.patience.returned_s
        if facts.now_s >= until_s:
            return Lose(planned, attempt, "The agent did not say whether it applied the run's settings.")
        return Wait(f"{name}: applying its settings.", until_s)
    for place, side in enumerate(facts.sides):
        if side.measured is None and side.begun_at_s is None:  # it connected anew while its settings were put in place
            return Lose(planned, attempt, f"The connection with {side.name} was lost before the run.")
        if side.run_at_s is None:
            return Start(planned, place)
        if side.word is not None and side.word.state is RunState.FAILED:
            return Lose(planned, attempt, f"{side.name}: {side.word.sentence}")
        if side.run_word is not None and side.run_word.state is RunState.FAILED:
            return Lose(planned, attempt, f"{side.name}: {side.run_word.sentence}")
        until_s = side.run_at_s + warmup_s(facts.spec, planned.arm) + facts.spec.measure_s + facts.patience.run_s
        if side.measured is None and facts.now_s >= until_s:
            return Lose(planned, attempt, f"{side.name} did not say what the run came to.")
        if side.run_word is None:  # a client has nobody to talk to before its server is there
            return Wait(f"{name}: starting its load.", until_s)
    until_s = min(side.run_at_s or facts.now_s for side in facts.sides if side.measured is None)
    until_s += warmup_s(facts.spec, planned.arm) + facts.spec.measure_s + facts.patience.run_s
    return Wait(f"{name}: measuring.", until_s)


def _wind_down(facts: Facts) -> Step:  # noqa: PLR0911 - one return a step
    node = facts.sides[0]
    if node.away_since_s is not None:
        if facts.now_s >= max(node.away_since_s, facts.since_s) + facts.patience.away_s:
            return Finish(
                None, f"{node.name} was away at the end: its agent undoes by itself what stood, but that was not seen."
            )
        return Wait(
            f"Waiting for {node.name}, which is away, to see that its settings are as before.",
            max(node.away_since_s, facts.since_s) + facts.patience.away_s,
        )
    until_s = facts.since_s + facts.patience.returned_s
    undo = _undo(facts) if facts.now_s < until_s else None
    # a netdev that is there for the experiment has its settings back before it goes, where nobody waits for the end
    if undo is not None and (facts.told_to_end or facts.ending == ExperimentState.DONE):
        return undo
    if not facts.told_to_end:
        return TellEnd()
    if facts.before is None:
        return Finish(None, "")
    if facts.settings is None:
        return Look()
    differing = _differing(facts, facts.before)
    if differing and facts.now_s < until_s:
        return Wait("Waiting until all settings are as before.", until_s)
    after = {key: facts.settings[key] for key in facts.before if key in facts.settings}
    return Finish(after, f"Not all settings are as before: {differing}" if differing else "")


def _undo(facts: Facts) -> Step | None:
    if facts.leased:
        return EndLease()
    return RollBack(facts.open_changes[0].change_id) if facts.open_changes else None


def _away(facts: Facts) -> Step | None:
    """What to do about a node that is away; None where all are there."""
    for side in facts.sides:
        if side.away_since_s is not None:
            until_s = side.away_since_s + facts.patience.away_s
            if facts.now_s >= until_s:
                return Conclude(ExperimentState.FAILED, f"{side.name} was away for {facts.patience.away_s:.0f} s.")
            return Wait(f"Waiting for {side.name}, which is away.", until_s)
    return None


def merged(measured: Sequence[Measured], names: Sequence[str]) -> Measured:
    """The node's run, with the figures of the load from the client on its peer, and with what disturbed either."""
    whole, *others = measured
    for name, other in zip(names[1:], others, strict=True):
        load = {figure: other.figures[figure] for figure in _OF_THE_CLIENT if figure in other.figures}
        disturbed = [*whole.disturbed, *(f"{name}: {why}" for why in other.disturbed)]
        whole = replace(whole, figures=whole.figures | load, disturbed=disturbed)
    return whole


def promotable(not_over: Sequence[Taken]) -> list[int]:
    """Those in the queue that can begin: all of their nodes are free, and nobody before them waits for one of these.

    not_over: oldest first.
    """
    busy = {node_id for taken in not_over if taken.state == ExperimentState.RUNNING for node_id in taken.node_ids}
    found = []
    for taken in not_over:
        if taken.state == ExperimentState.QUEUED:
            if busy.isdisjoint(taken.node_ids):
                found.append(taken.experiment_id)
            busy.update(taken.node_ids)
    return found


def remaining_s(*, planned_s: float, planned: int, done: int, elapsed_s: float) -> float:
    """How long it will still take, from what the runs so far took with all that was lost on the way."""
    each_s = (_PRIOR_RUNS * planned_s / planned + elapsed_s) / (_PRIOR_RUNS + done + 0.5)
    return max(0.0, each_s * (planned - done - 0.5))
