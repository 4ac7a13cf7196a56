"""A change's life on its node, as a pure state machine: what happened goes in, what is to be done comes out.

advance() knows neither kernel nor clock: whoever calls it carries the instructions out in their order,
feeds PlanRan and InverseRan back, and says what time it is (monotonic seconds). So every order of events
can be tried in a test, and the agent and a simulated node live by the same rules.
"""

import math
from typing import assert_never

from msgspec.structs import replace

from coresteer_core.changes.events import (
    AcknowledgedByBackend,
    ApplyRequested,
    BackendBack,
    BackendLost,
    Change,
    Changes,
    ConfirmFailed,
    ConfirmRequested,
    Delegated,
    Event,
    ExtendRequested,
    Instruction,
    InverseRan,
    Measured,
    Note,
    PlanRan,
    Recheck,
    Rechecked,
    Report,
    Restarted,
    RestoredExternally,
    RestoreRequested,
    RollbackRequested,
    RunPlan,
    RunRestore,
    Stopping,
    Tick,
)
from coresteer_core.changes.guard import MAX_MOVES
from coresteer_core.changes.guardrail import METRICS
from coresteer_core.changes.plan import Plan, inverse
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy, Outcome, Result
from coresteer_core.changes.undo import (
    LOST_BACKEND_GRACE_S,
    Step,
    as_before,
    inverse_ran,
    keep,
    report,
    restarted,
    restored_externally,
    undo_all,
)

MIN_TIMEOUT_S, MAX_TIMEOUT_S = 30.0, 600.0
STRIKES = 2
"""Intervals in a row over a guardrail's max that undo a change: one may be the disturbance of the move itself."""
STRIKES_S = 2.0
"""How long these intervals have to last together at least, to the next tenth of a second."""


def advance(state: Changes, event: Event, now: float) -> Step:  # noqa: PLR0911, PLR0912 - one return an event
    """The state after an event, and what is to be done because of it. now: monotonic seconds."""
    match event:
        case ApplyRequested():
            return _apply(state, event, now)
        case RestoreRequested():
            return _return(state, event, now)
        case Delegated():
            return _delegate(state, event)
        case Tick():
            return _tick(state, now)
        case Measured():
            return _measured(state, event, now)
        case BackendLost():
            return (state if state.lost_since is not None else replace(state, lost_since=now)), []
        case BackendBack():
            state = replace(state, lost_since=None)
            return state, [report(change, now) for change in state.changes.values() if not change.seen]
        case Stopping():
            open_ones = [c for c in reversed(state.changes.values()) if c.state is ChangeState.UNCONFIRMED]
            return undo_all(state, [(c, EndedBy.AGENT_RESTART, "") for c in open_ones])
        case RestoredExternally():
            return restored_externally(state, event.keys, now)
        case Restarted():
            return restarted(state, event.changes)
        case ConfirmFailed():
            sentence = f"The journal cannot be written ({event.why}), so it cannot be kept yet."
            wait = event.change.confirm_after_s
            waiting = replace(event.change, sentence=sentence, confirm_at=None if wait is None else now + wait)
            return keep(state, waiting), [report(waiting, now)]
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
            if change is None:  # an answer to ChangeAck would be answered with ChangeAck, and so on without end
                return state, [] if isinstance(event, AcknowledgedByBackend) else _unknown(state, event.change_id)
            return _about_one(state, change, event, now)
    assert_never(event)


def _about_one(  # noqa: PLR0911 - one return an event
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
) -> Step:
    match event:
        case PlanRan():
            return _plan_ran(state, change, event.results, now)
        case Rechecked():
            return _rechecked(state, change, event.results, now)
        case InverseRan():
            return inverse_ran(state, change, event.results, now)
        case ConfirmRequested():
            return _confirm(state, change, now)
        case RollbackRequested():
            return _roll_back(state, change, now)
        case ExtendRequested():
            return _extend(state, change, event.seconds, now)
        case AcknowledgedByBackend():
            if change.open or change.seen or change.state is not event.state:
                return state, []
            change = replace(change, seen=True)
            return keep(state, change), [Note(change)]
    assert_never(event)


def _apply(state: Changes, event: ApplyRequested, now: float) -> Step:
    known = state.changes.get(event.change_id)
    if known is not None:
        return state, [report(known, now)]
    change = Change(
        change_id=event.change_id,
        plan=event.plan,
        state=ChangeState.APPLYING,
        sentence="The agent is applying it.",
        confirm_timeout_s=event.confirm_timeout_s,
        guardrails=event.guardrails,
        strikes=[0] * len(event.guardrails),
        over_s=[0.0] * len(event.guardrails),
        policy=event.policy,
        confirm_after_s=event.confirm_after_s,
    )
    if against := _objection(state, change):
        change = replace(change, state=ChangeState.FAILED, ended_by=EndedBy.ERROR, sentence=against)
        return keep(state, change), [Note(change), report(change, now)]
    return keep(state, change), [Note(change), report(change, now), RunPlan(change.change_id, change.plan)]


def _return(state: Changes, event: RestoreRequested, now: float) -> Step:
    change = Change(
        change_id=event.change_id,
        plan=event.plan,
        state=ChangeState.APPLYING,
        sentence=event.why,
        confirm_timeout_s=MIN_TIMEOUT_S,
        policy=event.policy,
        returns=True,
    )
    if against := _objection(state, change):
        change = replace(change, state=ChangeState.FAILED, ended_by=EndedBy.ERROR, sentence=against)
        return keep(state, change), [Note(change), report(change, now)]
    return keep(state, change), [Note(change), report(change, now), RunRestore(change.change_id, change.plan)]


def _delegate(state: Changes, event: Delegated) -> Step:
    before = state.changes.get(event.change_id)
    stuck = {action.key: action for action in before.undo.actions} if before is not None else {}
    plan = Plan([stuck.pop(action.key, action) for action in event.plan.actions] + [*stuck.values()])
    change = Change(
        change_id=event.change_id,
        plan=plan,
        state=ChangeState.UNCONFIRMED,
        sentence="",
        confirm_timeout_s=MIN_TIMEOUT_S,
        undo=plan,
        delegated=True,
    )
    others = {name: other for name, other in state.changes.items() if name != event.change_id}
    return keep(replace(state, changes=others), change), [Note(change)]


def _objection(state: Changes, change: Change) -> str | None:  # noqa: PLR0911 - one return an objection
    """Why a plan is not even begun; the executor judges its single actions."""
    if state.observe_reason is not None:
        return f"This agent only observes. {state.observe_reason}"
    actions = change.plan.actions
    if not actions:
        return "The plan has no actions; there is nothing to apply."
    if len(actions) > MAX_MOVES:
        return f"{len(actions)} actions are more than the {MAX_MOVES} one plan may have."
    if len(change.keys) < len(actions):
        return "The plan names a setting twice; name each once."
    if not MIN_TIMEOUT_S <= change.confirm_timeout_s <= MAX_TIMEOUT_S:
        return f"A change waits {MIN_TIMEOUT_S:g} to {MAX_TIMEOUT_S:g} s to be kept, not {change.confirm_timeout_s:g}."
    for guardrail in change.guardrails:
        if guardrail.metric not in METRICS:
            return f"“{guardrail.metric[:40]}” is not a guardrail's metric; there are {', '.join(METRICS)}."
        if not math.isfinite(guardrail.max):
            return f"The guardrail on {guardrail.metric} needs a number as its max."
    for other in state.changes.values():
        if other.open and (shared := sorted(other.keys & change.keys)):
            if other.delegated:
                return f"{shared[0]} is delegated to another program until an experiment's run has ended."
            return (
                f"{shared[0]} is part of change {other.change_id}, which is not confirmed yet; "
                "keep it or roll it back first."
            )
    return None


def _plan_ran(state: Changes, change: Change, results: list[Result], now: float) -> Step:
    if change.state is not ChangeState.APPLYING or change.ending is not None:
        return state, []
    if change.returns:
        return _returned(state, change, results, now)
    touched = {result.key for result in results if _touched(result)}
    undo = inverse(Plan([action for action in change.plan.actions if action.key in touched]))
    wrong = next((result for result in results if not result.done), None)
    change = replace(change, results=results, undo=undo)
    if wrong is not None:
        change = replace(change, sentence=wrong.sentence)
        if undo.actions:
            return undo_all(keep(state, change), [(change, EndedBy.ERROR, "")])
        change = replace(change, state=ChangeState.FAILED, ended_by=EndedBy.ERROR)
        return keep(state, change), [Note(change), report(change, now)]
    if (wait := change.confirm_after_s) is not None:
        sentence = f"Applied and read back. Policy {change.policy} keeps it in {wait:g} s"
        sentence += " unless a guardrail trips." if change.guardrails else "."
        change = replace(change, state=ChangeState.UNCONFIRMED, sentence=sentence, confirm_at=now + wait)
    else:
        change = replace(
            change,
            state=ChangeState.UNCONFIRMED,
            sentence=f"Applied and read back. It undoes itself in {change.confirm_timeout_s:g} s unless it is kept.",
            deadline=now + change.confirm_timeout_s,
        )
    return keep(state, change), [Note(change), report(change, now)]


def _returned(state: Changes, change: Change, results: list[Result], now: float) -> Step:
    stuck = [result.sentence for result in results if result.stuck]
    outcome = f"Not everything could be put back: {' '.join(stuck)}" if stuck else as_before(results)
    change = replace(
        change,
        state=ChangeState.FAILED if stuck else ChangeState.CONFIRMED,
        sentence=f"{change.sentence} {outcome}",
        results=results,
        ended_by=EndedBy.ERROR if stuck else None,
    )
    return keep(state, change), [Note(change), report(change, now)]


def _rechecked(state: Changes, change: Change, results: list[Result], now: float) -> Step:
    """A policy keeps what stands; what somebody else has moved since is theirs, and the rest of it is put back."""
    if change.state is not ChangeState.UNCONFIRMED or change.ending is not None or change.confirm_after_s is None:
        return state, []
    wrong = [result for result in results if result.stuck]
    if wrong:
        moved = {result.key for result in wrong if result.read_back is not None}  # not what could not be read
        undo = Plan([action for action in change.undo.actions if action.key not in moved], allow_isolated=True)
        why = " ".join(result.sentence for result in wrong)
        change = replace(change, undo=undo, sentence=f"Not kept by policy {change.policy}: {why}")
        return undo_all(keep(state, change), [(change, EndedBy.ERROR, "")])
    held = "its guardrails held" if change.guardrails else "it stood"
    sentence = f"Kept by policy {change.policy}: {held} for {change.confirm_after_s:g} s."
    change = replace(change, state=ChangeState.CONFIRMED, sentence=sentence, confirm_at=None)
    return keep(state, change), [Note(change), report(change, now)]


def _touched(result: Result) -> bool:
    """The action may have left another value than it found: written, or written and read back otherwise."""
    otherwise = result.outcome is Outcome.FAILED and result.read_back != result.found
    return result.outcome is Outcome.APPLIED or otherwise


def _confirm(state: Changes, change: Change, now: float) -> Step:
    if change.state is not ChangeState.UNCONFIRMED or change.ending is not None or change.delegated:
        return state, [report(change, now)]
    if change.deadline is not None and now >= change.deadline:
        return undo_all(state, [(change, EndedBy.TIMEOUT, "")])
    change = replace(change, state=ChangeState.CONFIRMED, sentence="Kept.", deadline=None, confirm_at=None)
    return keep(state, change), [Note(change), report(change, now)]


def _roll_back(state: Changes, change: Change, now: float) -> Step:
    kept = change.state in (ChangeState.UNCONFIRMED, ChangeState.CONFIRMED)
    unfinished = change.state is ChangeState.FAILED and bool(change.undo.actions)
    if change.ending is not None or not (kept or unfinished):
        return state, [report(change, now)]
    if (later := _later(state, change)) is not None:
        message = report(change, now).message
        sentence = f"Its settings were changed again by change {later.change_id}; roll that one back first."
        if later.delegated:
            sentence = "Its settings are delegated to another program until an experiment's run has ended."
        return state, [Report(replace(message, sentence=sentence))]
    return undo_all(state, [(change, EndedBy.USER, "")])


def _later(state: Changes, change: Change) -> Change | None:
    """A later change that stands on this one: undoing this one below it would leave a value nobody chose."""
    after = False
    for other in state.changes.values():
        stands = other.open or other.state is ChangeState.CONFIRMED
        if after and stands and other.keys & change.keys:
            return other
        after = after or other.change_id == change.change_id
    return None


def _extend(state: Changes, change: Change, seconds: float, now: float) -> Step:
    waits = change.state is ChangeState.UNCONFIRMED and change.ending is None
    if change.deadline is None or not waits or now >= change.deadline or not 0 < seconds < math.inf:
        return state, [report(change, now)]
    deadline = min(change.deadline + seconds, now + MAX_TIMEOUT_S)
    change = replace(
        change, deadline=deadline, sentence=f"Extended: it undoes itself in {deadline - now:.0f} s unless it is kept."
    )
    return keep(state, change), [Note(change), report(change, now)]


def _tick(state: Changes, now: float) -> Step:
    lost = state.lost_since is not None and now - state.lost_since >= LOST_BACKEND_GRACE_S
    due = []
    looks: list[Instruction] = []
    for change in reversed(state.changes.values()):
        if change.state is not ChangeState.UNCONFIRMED or change.ending is not None:
            continue
        if change.confirm_at is not None:
            if now >= change.confirm_at:
                looks.append(Recheck(change.change_id, change.plan))
        elif change.deadline is not None and now >= change.deadline:
            due.append((change, EndedBy.TIMEOUT, ""))
        elif lost:
            due.append((change, EndedBy.LOST_BACKEND, ""))
    state, undo = undo_all(state, due)
    return state, undo + looks


def _measured(state: Changes, event: Measured, now: float) -> Step:
    due = []
    for change in reversed(state.changes.values()):
        if change.state is not ChangeState.UNCONFIRMED or change.ending is not None or not change.guardrails:
            continue
        strikes = []
        over_s = []
        tripped = ""
        for guardrail, times, lasted in zip(change.guardrails, change.strikes, change.over_s, strict=True):
            value = event.metrics.get(guardrail.metric)
            over = value is not None and value > guardrail.max
            strikes.append(times + 1 if over else 0)
            over_s.append(lasted + event.duration_s if over else 0.0)
            if strikes[-1] >= STRIKES and round(over_s[-1], 1) >= STRIKES_S and not tripped:
                tripped = (
                    f"The {METRICS[guardrail.metric]} was {value:.6g} and so for {strikes[-1]} intervals in a row "
                    f"over its guardrail of {guardrail.max:.6g}."
                )
        counted = replace(change, strikes=strikes, over_s=over_s)
        state = keep(state, counted)
        if tripped:
            due.append((counted, EndedBy.GUARDRAIL, tripped))
    return undo_all(state, due)


def _unknown(state: Changes, change_id: str) -> list[Instruction]:
    if state.observe_reason is not None:
        sentence = "This agent only observes and has no journal, so it cannot tell."
    else:
        sentence = (
            f"This node does not know change {change_id[:60]}: it never arrived, is long past, or its journal is gone."
        )
    return [Report(ChangeMessage(change_id, ChangeState.FAILED, sentence, [], EndedBy.ERROR))]
