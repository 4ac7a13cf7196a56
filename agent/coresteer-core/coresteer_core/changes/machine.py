"""Life cycle of a change on its node, as a pure state machine: events in, instructions out.

advance() accesses neither kernel nor clock: the caller carries the instructions out in order, feeds PlanRan and
InverseRan back, and passes the time (monotonic seconds). So tests can try every order of events, and the agent and a
simulated node follow the same rules.
"""

import math
from typing import assert_never

from msgspec.structs import replace

from coresteer_core.bounds import MAX_CONFIRM_TIMEOUT_S, MIN_CONFIRM_TIMEOUT_S
from coresteer_core.changes.events import (
    AcknowledgedByBackend,
    AgentRestarted,
    AgentStopping,
    ApplyRequested,
    BackendLost,
    BackendReconnected,
    Change,
    Changes,
    ConfirmFailed,
    ConfirmRequested,
    Event,
    ExtendRequested,
    Instruction,
    InverseRan,
    MetricsMeasured,
    PlanRan,
    Recheck,
    Rechecked,
    RecordChange,
    RestoredExternally,
    RestoreRequested,
    RollbackRequested,
    RunPlan,
    RunRestore,
    SendChangeState,
    SettingsDelegated,
    Tick,
)
from coresteer_core.changes.guard import MAX_PLAN_ACTIONS
from coresteer_core.changes.guardrail import Strikes
from coresteer_core.changes.plan import Plan, inverse
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy, Outcome, Result
from coresteer_core.changes.undo import (
    LOST_BACKEND_GRACE_S,
    Transition,
    apply_external_restore,
    begin_undo,
    describe_restored,
    finish_undo,
    resume_changes,
    send_state,
    text_length,
    with_change,
)
from coresteer_core.metrics import GUARDRAIL_METRICS

MAX_PLAN_CHARACTERS = 1024 * 1024
"""Of the keys, values and reasons of a plan: what a plan for 8,192 CPUs needs."""
MAX_OPEN_CHANGES = 64
"""Of unconfirmed changes: an agent that stops rolls this number back in about a second."""


def advance(state: Changes, event: Event, now: float) -> Transition:  # noqa: PLR0911, PLR0912 - one return an event
    """Return the state of all changes after an event, and the instructions to carry out. now: monotonic seconds."""
    match event:
        case ApplyRequested():
            return _apply(state, event, now)
        case RestoreRequested():
            return _restore(state, event, now)
        case SettingsDelegated():
            return _delegate(state, event)
        case Tick():
            return _tick(state, now)
        case MetricsMeasured():
            return _measured(state, event)
        case BackendLost():
            return (state if state.lost_since is not None else replace(state, lost_since=now)), []
        case BackendReconnected():
            state = replace(state, lost_since=None)
            return state, [send_state(change, now) for change in state.changes.values() if not change.acknowledged]
        case AgentStopping():
            open_ones = [c for c in reversed(state.changes.values()) if c.state is ChangeState.UNCONFIRMED]
            return begin_undo(state, [(c, EndedBy.AGENT_RESTART, "") for c in open_ones])
        case RestoredExternally():
            return apply_external_restore(state, event, now)
        case AgentRestarted():
            return resume_changes(state, event.changes)
        case ConfirmFailed():
            sentence = f"The journal cannot be written ({event.why}), so the change cannot be confirmed yet."
            wait = event.change.confirm_after_s
            waiting = replace(event.change, sentence=sentence, confirm_at=None if wait is None else now + wait)
            return with_change(state, waiting), [send_state(waiting, now)]
        case (
            PlanRan()
            | Rechecked()
            | InverseRan()
            | ConfirmRequested()
            | RollbackRequested()
            | ExtendRequested()
            | AcknowledgedByBackend()
        ):
            change = state.changes.get(event.change_id)
            if change is None:  # else report and acknowledgement would answer each other without end
                return state, [] if isinstance(event, AcknowledgedByBackend) else _unknown(state, event.change_id)
            return _advance_change(state, change, event, now)
    assert_never(event)


def _advance_change(  # noqa: PLR0911 - one return an event
    state: Changes,
    change: Change,
    event: PlanRan
    | Rechecked
    | InverseRan
    | ConfirmRequested
    | RollbackRequested
    | ExtendRequested
    | AcknowledgedByBackend,
    now: float,
) -> Transition:
    match event:
        case PlanRan():
            return _plan_ran(state, change, event.results, now)
        case Rechecked():
            return _rechecked(state, change, event.results, now)
        case InverseRan():
            return finish_undo(state, change, event.results, now)
        case ConfirmRequested():
            return _confirm(state, change, now)
        case RollbackRequested():
            return _roll_back(state, change, now)
        case ExtendRequested():
            return _extend(state, change, event.seconds, now)
        case AcknowledgedByBackend():
            if change.open or change.acknowledged or change.state is not event.state:
                return state, []
            change = replace(change, acknowledged=True)
            return with_change(state, change), [RecordChange(change)]
    assert_never(event)


def _apply(state: Changes, event: ApplyRequested, now: float) -> Transition:
    known = state.changes.get(event.change_id)
    if known is not None:
        return state, [send_state(known, now)]
    change = Change(
        change_id=event.change_id,
        plan=event.plan,
        state=ChangeState.APPLYING,
        sentence="The agent is applying the plan.",
        confirm_timeout_s=event.confirm_timeout_s,
        guardrails=event.guardrails,
        policy=event.policy,
        confirm_after_s=event.confirm_after_s,
    )
    return _begin(state, change, RunPlan(change.change_id, change.plan), now)


def _begin(state: Changes, change: Change, run: RunPlan | RunRestore, now: float) -> Transition:
    """Return the step that begins a change and runs its plan, or that records the change as failed if it is invalid."""
    if rejection := _rejection(state, change):
        # without its plan, of any size, which nothing needs any more
        change = replace(
            change, plan=Plan([]), guardrails=[], state=ChangeState.FAILED, ended_by=EndedBy.ERROR, sentence=rejection
        )
        return with_change(state, change), [RecordChange(change), send_state(change, now)]
    return with_change(state, change), [RecordChange(change), send_state(change, now), run]


def _restore(state: Changes, event: RestoreRequested, now: float) -> Transition:
    change = Change(
        change_id=event.change_id,
        plan=event.plan,
        state=ChangeState.APPLYING,
        sentence=event.why,
        confirm_timeout_s=MIN_CONFIRM_TIMEOUT_S,
        policy=event.policy,
        restores=True,
    )
    return _begin(state, change, RunRestore(change.change_id, change.plan), now)


def _delegate(state: Changes, event: SettingsDelegated) -> Transition:
    before = state.changes.get(event.change_id)
    stuck = {action.key: action for action in before.undo.actions} if before is not None else {}
    plan = Plan([stuck.pop(action.key, action) for action in event.plan.actions] + [*stuck.values()])
    change = Change(
        change_id=event.change_id,
        plan=plan,
        state=ChangeState.UNCONFIRMED,
        sentence="",
        confirm_timeout_s=MIN_CONFIRM_TIMEOUT_S,
        undo=plan,
        delegated=True,
    )
    others = {name: other for name, other in state.changes.items() if name != event.change_id}
    return with_change(replace(state, changes=others), change), [RecordChange(change)]


def _rejection(state: Changes, change: Change) -> str | None:  # noqa: PLR0911, PLR0912 - one return a reason
    """Return a sentence that says why a whole change is rejected, else None; the executor checks each action."""
    if state.observe_reason is not None:
        return f"This agent only observes. {state.observe_reason}"
    actions = change.plan.actions
    if not actions:
        return "The plan has no actions; there is nothing to apply."
    if len(actions) > MAX_PLAN_ACTIONS:
        return f"The plan has {len(actions)} actions; a plan may have at most {MAX_PLAN_ACTIONS}."
    if not change.restores and (characters := text_length(change.plan)) > MAX_PLAN_CHARACTERS:
        return f"The plan has {characters} characters; a plan may have at most {MAX_PLAN_CHARACTERS}."
    if not change.restores and sum(other.open for other in state.changes.values()) >= MAX_OPEN_CHANGES:
        return f"{MAX_OPEN_CHANGES} changes are not confirmed yet; confirm some or roll them back first."
    if len(change.keys) < len(actions):
        return "The plan names a setting twice; name each once."
    if not MIN_CONFIRM_TIMEOUT_S <= change.confirm_timeout_s <= MAX_CONFIRM_TIMEOUT_S:
        timeout_s = change.confirm_timeout_s
        bounds = f"{MIN_CONFIRM_TIMEOUT_S:g} to {MAX_CONFIRM_TIMEOUT_S:g} s"
        return f"The confirmation timeout must be {bounds}, not {timeout_s:g}."
    for guardrail in change.guardrails:
        if guardrail.metric not in GUARDRAIL_METRICS:
            metrics = ", ".join(GUARDRAIL_METRICS)
            return f"“{guardrail.metric[:40]}” is not a metric that a guardrail can bound; use {metrics}."
        if not math.isfinite(guardrail.max):
            return f"The maximum of the guardrail on {guardrail.metric} must be a finite number."
    for other in state.changes.values():
        if other.open and (shared := sorted(other.keys & change.keys)):
            if other.delegated:
                return f"{shared[0]} is delegated to another program until an experiment's run has ended."
            return (
                f"{shared[0]} is part of change {other.change_id}, which is not confirmed yet; "
                "confirm it or roll it back first."
            )
    return None


def _plan_ran(state: Changes, change: Change, results: list[Result], now: float) -> Transition:
    if change.state is not ChangeState.APPLYING or change.ending is not None:
        return state, []
    if change.restores:
        return _restored(state, change, results, now)
    touched = {result.key: result for result in results if _touched(result)}
    written = [action for action in change.plan.actions if action.key in touched]
    # a failed write may have left any value
    undo = inverse(Plan([each if touched[each.key].done else replace(each, becomes="") for each in written]))
    wrong = next((result for result in results if not result.done), None)
    change = replace(change, results=results, undo=undo)
    if wrong is not None:
        change = replace(change, sentence=wrong.sentence)
        if undo.actions:
            return begin_undo(with_change(state, change), [(change, EndedBy.ERROR, "")])
        change = replace(change, state=ChangeState.FAILED, ended_by=EndedBy.ERROR)
        return with_change(state, change), [RecordChange(change), send_state(change, now)]
    if change.rollback_requested:
        return begin_undo(with_change(state, change), [(change, EndedBy.USER, "")])
    if (wait := change.confirm_after_s) is not None:
        sentence = f"Applied and read back. Policy {change.policy} confirms it in {wait:g} s"
        sentence += " unless a guardrail is violated." if change.guardrails else "."
        change = replace(change, state=ChangeState.UNCONFIRMED, sentence=sentence, confirm_at=now + wait)
    else:
        change = replace(
            change,
            state=ChangeState.UNCONFIRMED,
            sentence=f"Applied and read back. Reverts in {change.confirm_timeout_s:g} s unless confirmed.",
            deadline=now + change.confirm_timeout_s,
        )
    return with_change(state, change), [RecordChange(change), send_state(change, now)]


def _restored(state: Changes, change: Change, results: list[Result], now: float) -> Transition:
    stuck = [result.sentence for result in results if result.stuck]
    outcome = f"Not every setting could be restored: {' '.join(stuck)}" if stuck else describe_restored(results)
    change = replace(
        change,
        state=ChangeState.FAILED if stuck else ChangeState.CONFIRMED,
        sentence=f"{change.sentence} {outcome}",
        results=results,
        ended_by=EndedBy.ERROR if stuck else None,
    )
    return with_change(state, change), [RecordChange(change), send_state(change, now)]


def _rechecked(state: Changes, change: Change, results: list[Result], now: float) -> Transition:
    """Confirm a policy's change if all its values remain; else restore those that no other program has changed."""
    if change.state is not ChangeState.UNCONFIRMED or change.ending is not None or change.confirm_after_s is None:
        return state, []
    wrong = [result for result in results if result.stuck]
    if wrong:
        moved = {result.key for result in wrong if result.read_back is not None}  # not what could not be read
        undo = Plan([action for action in change.undo.actions if action.key not in moved], allow_isolated=True)
        why = " ".join(result.sentence for result in wrong)
        found = {result.key: result for result in [*change.results, *wrong]}
        sentence = f"Not confirmed by policy {change.policy}: {why}"
        change = replace(change, undo=undo, results=[*found.values()], sentence=sentence)
        return begin_undo(with_change(state, change), [(change, EndedBy.ERROR, "")])
    held = ", without a guardrail violation" if change.guardrails else ""
    sentence = f"Confirmed by policy {change.policy} after {change.confirm_after_s:g} s{held}."
    change = replace(change, state=ChangeState.CONFIRMED, sentence=sentence, confirm_at=None)
    return with_change(state, change), [RecordChange(change), send_state(change, now)]


def _touched(result: Result) -> bool:
    """Return whether an action may have changed its setting: it was written, even if another value reads back."""
    otherwise = result.outcome is Outcome.FAILED and result.read_back != result.found
    return result.outcome is Outcome.APPLIED or otherwise


def _confirm(state: Changes, change: Change, now: float) -> Transition:
    if change.state is not ChangeState.UNCONFIRMED or change.ending is not None or change.delegated:
        return state, [send_state(change, now)]
    if change.deadline is not None and now >= change.deadline:
        return begin_undo(state, [(change, EndedBy.TIMEOUT, "")])
    change = replace(change, state=ChangeState.CONFIRMED, sentence="Confirmed.", deadline=None, confirm_at=None)
    return with_change(state, change), [RecordChange(change), send_state(change, now)]


def _roll_back(state: Changes, change: Change, now: float) -> Transition:
    if change.state is ChangeState.APPLYING and change.ending is None and not change.restores:
        change = replace(change, rollback_requested=True)
        return with_change(state, change), [RecordChange(change)]
    applied = change.state in (ChangeState.UNCONFIRMED, ChangeState.CONFIRMED)
    unfinished = change.state is ChangeState.FAILED and bool(change.undo.actions)
    if change.ending is not None or not (applied or unfinished):
        return state, [send_state(change, now)]
    if (later := _later_change(state, change)) is not None:
        message = send_state(change, now).message
        sentence = f"Its settings were changed again by change {later.change_id}; roll that one back first."
        if later.delegated:
            sentence = "Its settings are delegated to another program until an experiment's run has ended."
        return state, [SendChangeState(replace(message, sentence=sentence))]
    return begin_undo(state, [(change, EndedBy.USER, "")])


def _later_change(state: Changes, change: Change) -> Change | None:
    """Return a later change of the same settings, which has to be rolled back first; None without one."""
    after = False
    for other in state.changes.values():
        applied = other.open or other.state is ChangeState.CONFIRMED
        if after and applied and other.keys & change.keys:
            return other
        after = after or other.change_id == change.change_id
    return None


def _extend(state: Changes, change: Change, seconds: float, now: float) -> Transition:
    waiting = change.state is ChangeState.UNCONFIRMED and change.ending is None
    if change.deadline is None or not waiting or now >= change.deadline or not 0 < seconds < math.inf:
        return state, [send_state(change, now)]
    deadline = min(change.deadline + seconds, now + MAX_CONFIRM_TIMEOUT_S)
    change = replace(
        change, deadline=deadline, sentence=f"Extended: reverts in {deadline - now:.0f} s unless confirmed."
    )
    return with_change(state, change), [RecordChange(change), send_state(change, now)]


def _tick(state: Changes, now: float) -> Transition:
    lost = state.lost_since is not None and now - state.lost_since >= LOST_BACKEND_GRACE_S
    due = []
    rechecks: list[Instruction] = []
    for change in reversed(state.changes.values()):
        if change.state is not ChangeState.UNCONFIRMED or change.ending is not None:
            continue
        if change.confirm_at is not None:
            if now >= change.confirm_at:
                rechecks.append(Recheck(change.change_id, change.plan))
        elif change.deadline is not None and now >= change.deadline:
            due.append((change, EndedBy.TIMEOUT, ""))
        elif lost:
            due.append((change, EndedBy.LOST_BACKEND, ""))
    state, undo = begin_undo(state, due)
    return state, undo + rechecks


def _measured(state: Changes, event: MetricsMeasured) -> Transition:
    due = []
    for change in reversed(state.changes.values()):
        if change.state is not ChangeState.UNCONFIRMED or change.ending is not None or not change.guardrails:
            continue
        before = change.guardrail_strikes or [Strikes()] * len(change.guardrails)
        values = [event.metrics.get(guardrail.metric) for guardrail in change.guardrails]
        strikes = [
            strike.count(guardrail, value, event.duration_s)
            for guardrail, strike, value in zip(change.guardrails, before, values, strict=True)
        ]
        counted = replace(change, guardrail_strikes=strikes)
        state = with_change(state, counted)
        violations = (s.violation(g, v) for g, s, v in zip(change.guardrails, strikes, values, strict=True))
        if violation := next(filter(None, violations), None):
            due.append((counted, EndedBy.GUARDRAIL, f"The {violation}"))
    return begin_undo(state, due)


def _unknown(state: Changes, change_id: str) -> list[Instruction]:
    if state.observe_reason is not None:
        sentence = "This agent only observes and has no journal, so the state of the change is unknown."
    else:
        why = "it never arrived, it ended long ago, or the journal was lost."
        sentence = f"This node does not know change {change_id[:60]}: {why}"
    return [SendChangeState(ChangeMessage(change_id, ChangeState.FAILED, sentence, [], EndedBy.ERROR))]
