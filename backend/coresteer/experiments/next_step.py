"""Decides the next step of an experiment. Pure: rows and the agents' messages go in, a Step comes out.

runner.py creates a RunLoop for each of startable_experiments(). The loop collects the Facts from rows and from
session_state.py, calls next_step(), carries the step out, and repeats.

All that must survive a restart of the backend is in rows. A RunLoop that starts without any message therefore resumes
where the last one was interrupted: it rolls back open changes, then continues with the first run of the schedule that
has no counted attempt.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from coresteer.experiments import schedule
from coresteer.experiments.arm_config import measure_s, netdev_keys, warmup_s
from coresteer.experiments.repository import UnfinishedExperiment
from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.spec import PlannedRun
from coresteer.experiments.steps import (
    AbandonRun,
    ApplySettings,
    AwaitMessage,
    ChangeStatus,
    EndLoad,
    EndPolicyLease,
    Facts,
    Finish,
    Participant,
    PausePolicies,
    Prepare,
    ReadSettings,
    RecordRun,
    RecordSettings,
    RollBackChange,
    StartRun,
    Step,
    StopMeasuring,
)
from coresteer_core.changes.report import ChangeState, EndedBy
from coresteer_core.experiments.model import RunResult, RunState

_PRIOR_RUNS = 2
"""Weight of the planned duration in the estimate of the remaining time, in runs."""
_LISTED_SETTINGS = 5
_CLIENT_METRICS = ("throughput_bit_per_s", "requests_per_s", "rtt_p50_us", "rtt_p95_us", "rtt_p99_us")
"""Metrics that the client of the load measures; all others are measured on the node under test."""


def next_step(facts: Facts) -> Step:
    """Return the step of the experiment to carry out now."""
    if facts.ending_state is not None:
        return _wind_down(facts)
    if facts.stopped:  # after it began: a new stop cancels the experiments on its nodes itself
        return StopMeasuring(ExperimentState.CANCELLED, "Enforcement was stopped.")
    counted = {attempt.number for attempt in facts.attempts if attempt.discarded is None}
    left_out = schedule.left_out(facts.attempts)
    if not facts.run_active and (hopeless := _hopeless(facts, counted, left_out)) is not None:
        return StopMeasuring(ExperimentState.FAILED, hopeless)
    planned = next((run for run in facts.plan if run.number not in counted | left_out), None)
    if planned is None or (_is_out_of_time(facts) and not facts.run_active):
        discarded = len(facts.attempts) - len(counted)
        sentence = f"Runs measured: {len(counted)}; discarded: {discarded}."
        return StopMeasuring(ExperimentState.DONE, sentence)
    if facts.run_active:
        return _during_run(facts, planned, _failed_attempts(facts, planned))
    return _between_runs(facts, planned, _failed_attempts(facts, planned))


def _failed_attempts(facts: Facts, planned: PlannedRun) -> int:
    return sum(attempt.number == planned.number for attempt in facts.attempts)


def _hopeless(facts: Facts, counted: set[int], left_out: set[int]) -> str | None:
    """Return why further runs of an arm are not worth their time: its last two were left out, or its only one.

    A tune goes on without an arm that cannot be measured, but not without its baseline.
    """
    for number in sorted(left_out, reverse=True):
        arm = facts.plan[number].arm
        if facts.spec.kind == "tune" and any(arm):
            continue
        of_arm = [run.number for run in facts.plan if run.arm == arm and run.number in counted | left_out]
        if left_out.issuperset(of_arm[-2:]):
            reasons = [attempt.discarded or "" for attempt in facts.attempts if attempt.number == number]
            return f"Run {number + 1} was discarded in {len(reasons)} attempts. Last reason: {reasons[-1]}"
    return None


def _is_out_of_time(facts: Facts) -> bool:
    return facts.spec.kind == "tune" and facts.elapsed_s >= 60 * facts.spec.tune.max_minutes


def _between_runs(facts: Facts, planned: PlannedRun, attempt: int) -> Step:
    if (away := _await_reconnect(facts)) is not None:
        return away
    if (undo := _undo(facts)) is not None:
        if facts.now_s < facts.phase_started_s + facts.timeouts.restored_s:
            return undo
        sentence = f"{facts.participants[0].name} did not report that the settings of the run were rolled back."
        return StopMeasuring(ExperimentState.FAILED, sentence)
    if facts.settings_before is None:
        return _record_settings(facts)
    for index in range(len(facts.participants)):
        if (step := _preparation(facts, planned, attempt, index)) is not None:
            return step
    return _verify_restored(facts, planned) or ApplySettings(planned)


def _record_settings(facts: Facts) -> Step:
    if facts.paused_at_s is None:
        return PausePolicies()
    if facts.policies_paused and facts.now_s < (until_s := facts.paused_at_s + facts.timeouts.pause_s):
        return AwaitMessage("Waiting until the paused policies have restored their settings.", until_s)
    return RecordSettings()


def _preparation(facts: Facts, planned: PlannedRun, attempt: int, index: int) -> Step | None:
    """Return the step that prepares a participant, None when it is ready."""
    participant = facts.participants[index]
    if participant.prepare_sent_at_s is None:
        return Prepare(index)
    message = participant.session_message
    if message is None:
        until_s = participant.prepare_sent_at_s + facts.timeouts.ready_s
        if facts.now_s >= until_s:
            reason = f"{participant.name} was not ready after {facts.timeouts.ready_s:.0f} s."
            return AbandonRun(planned, attempt, reason)
        return AwaitMessage(f"{participant.name} is preparing the load.", until_s)
    if message.state is RunState.FAILED:
        return AbandonRun(planned, attempt, f"{participant.name}: {message.sentence}")
    return None


def _verify_restored(facts: Facts, planned: PlannedRun) -> Step | None:
    """Return the step to take until all settings have their values before the experiment; None when they have."""
    if facts.settings is None:
        return ReadSettings()
    until_s = facts.phase_started_s + facts.timeouts.restored_s
    missing = set(netdev_keys(facts.spec, facts.netdev)) - facts.settings.keys()
    differing = _differing(facts, {**(facts.settings_before or {}), **facts.netdev_settings_before})
    if not missing and not differing:
        return None
    if facts.now_s < until_s:
        return AwaitMessage(f"Before run {planned.number + 1}: waiting until all settings are restored.", until_s)
    if differing:
        sentence = f"Something other than the experiment changed its settings: {differing}"
        return StopMeasuring(ExperimentState.FAILED, sentence)
    return StopMeasuring(ExperimentState.FAILED, f"The node has no setting {min(missing)}.")


def _differing(facts: Facts, expected: Mapping[str, str]) -> str:
    """Return the settings that differ from the expected values, in sentences; empty when none does."""
    settings = facts.settings or {}
    wrong = [key for key, value in expected.items() if settings.get(key) != value]
    sentences = [f"{key} is {settings.get(key, 'missing')} instead of {expected[key]}." for key in wrong]
    more = len(sentences) - _LISTED_SETTINGS
    return " ".join([*sentences[:_LISTED_SETTINGS], *([f"{more} more differ."] if more > 0 else [])])


def _during_run(facts: Facts, planned: PlannedRun, attempt: int) -> Step:  # noqa: PLR0911 - one return a step
    if facts.violation is not None:
        return _after_violation(facts, planned, attempt, facts.violation)
    change = facts.change
    if change is not None and change.state not in (ChangeState.APPLYING, ChangeState.UNCONFIRMED):
        return _after_change_ended(facts, change, planned, attempt)
    measured = [participant.measured for participant in facts.participants if participant.measured is not None]
    if len(measured) == len(facts.participants):
        whole = merge_results(measured, [participant.name for participant in facts.participants])
        return RecordRun(planned, attempt, whole, schedule.discard_reason(whole, facts.spec))
    if facts.failure is not None:  # recorded after the reconnect: a backend that is being stopped loses all connections
        return _await_reconnect(facts) or AbandonRun(planned, attempt, facts.failure)
    at_most = "at most " if facts.spec.kind == "tune" else ""
    name = f"Run {planned.number + 1} of {at_most}{schedule.run_count(facts.spec)}"
    name += f", {schedule.arm_name(facts.spec, planned.arm)}"
    if change is not None and change.state is ChangeState.APPLYING:
        until_s = facts.phase_started_s + facts.timeouts.restored_s
        if facts.now_s >= until_s:
            reason = "The agent did not report whether it applied the settings of the run."
            return AbandonRun(planned, attempt, reason)
        return AwaitMessage(f"{name}: applying its settings.", until_s)
    for index in range(len(facts.participants)):
        if (step := _participation(facts, planned, attempt, index, name)) is not None:
            return step
    open_ended = [participant for participant in facts.participants if participant.measured is None]
    until_s = min(_result_due_s(facts, planned, participant) for participant in open_ended)
    return AwaitMessage(f"{name}: measuring.", until_s)


def _after_violation(facts: Facts, planned: PlannedRun, attempt: int, sentence: str) -> Step:
    """Return the step after a guardrail was violated: a tune goes on without the candidate."""
    if facts.spec.kind == "tune" and any(planned.arm):
        return AbandonRun(planned, attempt, sentence, violated=True)
    return StopMeasuring(ExperimentState.STOPPED, sentence)


def _after_change_ended(facts: Facts, change: ChangeStatus, planned: PlannedRun, attempt: int) -> Step:
    """Return the step after the change of a run ended before the run did."""
    if change.ended_by is EndedBy.GUARDRAIL:
        return _after_violation(facts, planned, attempt, change.sentence)
    if change.ended_by is EndedBy.USER or change.state is ChangeState.CONFIRMED:
        sentence = f"The change of run {planned.number + 1} was ended manually."
        return StopMeasuring(ExperimentState.CANCELLED, sentence)
    return AbandonRun(planned, attempt, change.sentence)


def _participation(facts: Facts, planned: PlannedRun, attempt: int, index: int, name: str) -> Step | None:
    """Return the step that starts a participant's part of a run; None while it measures or when it has measured."""
    participant = facts.participants[index]
    if participant.measured is None and participant.prepare_sent_at_s is None:  # it reconnected since the last run
        return AbandonRun(planned, attempt, f"The connection to {participant.name} was lost before the run.")
    if participant.run_sent_at_s is None:
        return StartRun(planned, index)
    for message in (participant.session_message, participant.run_message):
        if message is not None and message.state is RunState.FAILED:
            return AbandonRun(planned, attempt, f"{participant.name}: {message.sentence}")
    until_s = _result_due_s(facts, planned, participant)
    if participant.measured is None and facts.now_s >= until_s:
        return AbandonRun(planned, attempt, f"{participant.name} did not report the result of the run.")
    if participant.run_message is None:  # a client cannot connect before its server has started
        return AwaitMessage(f"{name}: starting its load.", until_s)
    return None


def _result_due_s(facts: Facts, planned: PlannedRun, participant: Participant) -> float:
    """Return when the result of a participant's run is overdue, s of time.monotonic()."""
    sent_at_s = facts.now_s if participant.run_sent_at_s is None else participant.run_sent_at_s
    return sent_at_s + warmup_s(facts.spec, planned.arm) + measure_s(facts.spec, planned.arm) + facts.timeouts.run_s


def _wind_down(facts: Facts) -> Step:  # noqa: PLR0911 - one return a step
    node = facts.participants[0]
    if node.away_since_s is not None:
        until_s = max(node.away_since_s, facts.phase_started_s) + facts.timeouts.away_s
        if facts.now_s >= until_s:
            note = (
                f"{node.name} was disconnected at the end: its agent rolls back open changes by itself, "
                "but this was not verified."
            )
            return Finish(None, note)
        return AwaitMessage(f"Waiting for {node.name} to reconnect, to verify that its settings are restored.", until_s)
    until_s = facts.phase_started_s + facts.timeouts.restored_s
    undo = _undo(facts) if facts.now_s < until_s else None
    # A netdev that exists only for the experiment must be restored before it is removed, unless the end is urgent.
    if undo is not None and (facts.end_sent or facts.ending_state == ExperimentState.DONE):
        return undo
    if not facts.end_sent:
        return EndLoad()
    if facts.settings_before is None:
        return Finish(None, "")
    if facts.settings is None:
        return ReadSettings()
    differing = _differing(facts, facts.settings_before)
    if differing and facts.now_s < until_s:
        return AwaitMessage("Waiting until all settings are restored.", until_s)
    after = {key: facts.settings[key] for key in facts.settings_before if key in facts.settings}
    return Finish(after, f"Not all settings were restored: {differing}" if differing else "")


def _undo(facts: Facts) -> Step | None:
    """Return the step that undoes the experiment's most recent effect on the node, None when nothing is left."""
    if facts.leased:
        return EndPolicyLease()
    return RollBackChange(facts.open_changes[0].change_id) if facts.open_changes else None


def _await_reconnect(facts: Facts) -> Step | None:
    """Return the step for a disconnected node; None when all nodes are connected."""
    for participant in facts.participants:
        if participant.away_since_s is not None:
            until_s = participant.away_since_s + facts.timeouts.away_s
            if facts.now_s >= until_s:
                sentence = f"{participant.name} was disconnected for {facts.timeouts.away_s:.0f} s."
                return StopMeasuring(ExperimentState.FAILED, sentence)
            return AwaitMessage(f"Waiting for {participant.name} to reconnect.", until_s)
    return None


def merge_results(measured: Sequence[RunResult], names: Sequence[str]) -> RunResult:
    """Return the node's result with the client's metrics of the load and the disturbances of all participants.

    measured, names: of each participant, the node under test first.
    """
    whole, *others = measured
    for name, other in zip(names[1:], others, strict=True):
        load = {metric: other.figures[metric] for metric in _CLIENT_METRICS if metric in other.figures}
        disturbed = [*whole.disturbed, *(f"{name}: {reason}" for reason in other.disturbed)]
        whole = replace(whole, figures=whole.figures | load, disturbed=disturbed)
    return whole


def startable_experiments(unfinished: Sequence[UnfinishedExperiment]) -> list[int]:
    """Return the ids of queued experiments whose nodes are free, so that they can start.

    Each of their nodes is free, and no earlier experiment is queued for one of these. unfinished: oldest first.
    """
    running = [experiment for experiment in unfinished if experiment.state == ExperimentState.RUNNING]
    busy = {node_id for experiment in running for node_id in experiment.node_ids}
    found = []
    for experiment in unfinished:
        if experiment.state == ExperimentState.QUEUED:
            if busy.isdisjoint(experiment.node_ids):
                found.append(experiment.experiment_id)
            busy.update(experiment.node_ids)
    return found


def estimate_remaining_s(*, planned_s: float, planned: int, done: int, elapsed_s: float) -> float:
    """Return the estimated remaining time of an experiment, s.

    It follows from the duration of the runs so far, including discarded ones.
    """
    each_s = (_PRIOR_RUNS * planned_s / planned + elapsed_s) / (_PRIOR_RUNS + done + 0.5)
    return max(0.0, each_s * (planned - done - 0.5))
