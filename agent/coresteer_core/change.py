"""A change's life on its node, as a pure state machine: what happened goes in, what is to be done comes out.

advance() knows neither kernel nor clock: whoever calls it carries the instructions out in their order,
feeds PlanRan and InverseRan back, and says what time it is (monotonic seconds). So every order of events
can be tried in a test, and the agent and a simulated node live by the same rules.
"""

import math
from typing import TypeAlias, assert_never

from msgspec.structs import replace

from coresteer_core.change_events import (
    ApplyRequested,
    BackendBack,
    BackendLost,
    Change,
    Changes,
    ConfirmRequested,
    Event,
    ExtendRequested,
    Instruction,
    InverseRan,
    LookAgain,
    LookedAgain,
    Measured,
    Note,
    NotKept,
    PlanRan,
    PutBack,
    Report,
    Restarted,
    ReturnRequested,
    RollbackRequested,
    RunInverse,
    RunPlan,
    RunReturn,
    SeenByBackend,
    Stopping,
    Tick,
)
from coresteer_core.guard import MAX_MOVES
from coresteer_core.guardrail import METRICS
from coresteer_core.plan import Plan, inverse
from coresteer_core.protocol import ChangeMessage, ChangeState, EndedBy, Outcome, Result

LOST_BACKEND_GRACE_S = 10.0
"""How long an unconfirmed change outlives the connection: a reconnect takes less, a person's page needs no more."""
MIN_TIMEOUT_S, MAX_TIMEOUT_S = 30.0, 600.0
STRIKES = 2
"""Intervals in a row over a guardrail's max that undo a change: one may be the disturbance of the move itself."""
STRIKES_S = 2.0
"""How long these intervals have to last together at least, to the next tenth of a second."""
REMEMBERED = 256
"""Changes kept for a later rollback or report; older ones that have ended are forgotten."""


Step: TypeAlias = tuple[Changes, list[Instruction]]

_CAUSES = {
    EndedBy.USER: "because it was asked for",
    EndedBy.TIMEOUT: "because nobody kept it in time",
    EndedBy.GUARDRAIL: "by its guardrail",
    EndedBy.LOST_BACKEND: f"because the backend was away for {LOST_BACKEND_GRACE_S:g} s while it was not confirmed",
    EndedBy.AGENT_RESTART: "because the agent stopped while it was not confirmed",
    EndedBy.ERROR: "because an action did not work",
}


def advance(state: Changes, event: Event, now: float) -> Step:  # noqa: PLR0911 - one return an event
    """The state after an event, and what is to be done because of it. now: monotonic seconds."""
    match event:
        case ApplyRequested():
            return _apply(state, event, now)
        case ReturnRequested():
            return _return(state, event, now)
        case Tick():
            return _tick(state, now)
        case Measured():
            return _measured(state, event, now)
        case BackendLost():
            return (state if state.lost_since is not None else replace(state, lost_since=now)), []
        case BackendBack():
            state = replace(state, lost_since=None)
            return state, [_report(change, now) for change in state.changes.values() if not change.seen]
        case Stopping():
            open_ones = [c for c in reversed(state.changes.values()) if c.state is ChangeState.UNCONFIRMED]
            return _undo_all(state, [(c, EndedBy.AGENT_RESTART, "") for c in open_ones])
        case PutBack():
            return _put_back(state, event.keys, now)
        case Restarted():
            return _restarted(state, event.changes)
        case NotKept():
            sentence = f"The journal cannot be written ({event.why}), so it cannot be kept yet."
            wait = event.change.keep_after_s
            waiting = replace(event.change, sentence=sentence, keep_at=None if wait is None else now + wait)
            return _keep(state, waiting), [_report(waiting, now)]
        case (
            PlanRan()
            | LookedAgain()
            | InverseRan()
            | ConfirmRequested()
            | RollbackRequested()
            | ExtendRequested()
            | SeenByBackend()
        ):
            change = state.changes.get(event.change_id)
            if change is None:  # an answer to Seen would be answered with Seen, and so on without end
                return state, [] if isinstance(event, SeenByBackend) else _unknown(state, event.change_id)
            return _about_one(state, change, event, now)
    assert_never(event)


def _about_one(  # noqa: PLR0911 - one return an event
    state: Changes,
    change: Change,
    event: PlanRan | LookedAgain | InverseRan | ConfirmRequested | RollbackRequested | ExtendRequested | SeenByBackend,
    now: float,
) -> Step:
    match event:
        case PlanRan():
            return _plan_ran(state, change, event.results, now)
        case LookedAgain():
            return _looked_again(state, change, event.results, now)
        case InverseRan():
            return _inverse_ran(state, change, event.results, now)
        case ConfirmRequested():
            return _confirm(state, change, now)
        case RollbackRequested():
            return _roll_back(state, change, now)
        case ExtendRequested():
            return _extend(state, change, event.seconds, now)
        case SeenByBackend():
            if change.open or change.seen or change.state is not event.state:
                return state, []
            change = replace(change, seen=True)
            return _keep(state, change), [Note(change)]
    assert_never(event)


def _apply(state: Changes, event: ApplyRequested, now: float) -> Step:
    known = state.changes.get(event.change_id)
    if known is not None:
        return state, [_report(known, now)]
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
        keep_after_s=event.keep_after_s,
    )
    if against := _objection(state, change):
        change = replace(change, state=ChangeState.FAILED, ended_by=EndedBy.ERROR, sentence=against)
        return _keep(state, change), [Note(change), _report(change, now)]
    return _keep(state, change), [Note(change), _report(change, now), RunPlan(change.change_id, change.plan)]


def _return(state: Changes, event: ReturnRequested, now: float) -> Step:
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
        return _keep(state, change), [Note(change), _report(change, now)]
    return _keep(state, change), [Note(change), _report(change, now), RunReturn(change.change_id, change.plan)]


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
            return _undo_all(_keep(state, change), [(change, EndedBy.ERROR, "")])
        change = replace(change, state=ChangeState.FAILED, ended_by=EndedBy.ERROR)
        return _keep(state, change), [Note(change), _report(change, now)]
    if (wait := change.keep_after_s) is not None:
        sentence = f"Applied and read back. Policy {change.policy} keeps it in {wait:g} s"
        sentence += " unless a guardrail trips." if change.guardrails else "."
        change = replace(change, state=ChangeState.UNCONFIRMED, sentence=sentence, keep_at=now + wait)
    else:
        change = replace(
            change,
            state=ChangeState.UNCONFIRMED,
            sentence=f"Applied and read back. It undoes itself in {change.confirm_timeout_s:g} s unless it is kept.",
            deadline=now + change.confirm_timeout_s,
        )
    return _keep(state, change), [Note(change), _report(change, now)]


def _returned(state: Changes, change: Change, results: list[Result], now: float) -> Step:
    stuck = [result.sentence for result in results if result.stuck]
    outcome = f"Not everything could be put back: {' '.join(stuck)}" if stuck else _as_before(results)
    change = replace(
        change,
        state=ChangeState.FAILED if stuck else ChangeState.CONFIRMED,
        sentence=f"{change.sentence} {outcome}",
        results=results,
        ended_by=EndedBy.ERROR if stuck else None,
    )
    return _keep(state, change), [Note(change), _report(change, now)]


def _looked_again(state: Changes, change: Change, results: list[Result], now: float) -> Step:
    """A policy keeps what stands; what somebody else has moved since is theirs, and the rest of it is put back."""
    if change.state is not ChangeState.UNCONFIRMED or change.ending is not None or change.keep_after_s is None:
        return state, []
    moved = {result.key: result.sentence for result in results if result.stuck}
    if moved:
        undo = Plan([action for action in change.undo.actions if action.key not in moved], allow_isolated=True)
        change = replace(change, undo=undo, sentence=f"Not kept by policy {change.policy}: {' '.join(moved.values())}")
        return _undo_all(_keep(state, change), [(change, EndedBy.ERROR, "")])
    held = "its guardrails held" if change.guardrails else "it stood"
    sentence = f"Kept by policy {change.policy}: {held} for {change.keep_after_s:g} s."
    change = replace(change, state=ChangeState.CONFIRMED, sentence=sentence, keep_at=None)
    return _keep(state, change), [Note(change), _report(change, now)]


def _touched(result: Result) -> bool:
    """The action may have left another value than it found: written, or written and read back otherwise."""
    otherwise = result.outcome is Outcome.FAILED and result.read_back != result.found
    return result.outcome is Outcome.APPLIED or otherwise


def _inverse_ran(state: Changes, change: Change, results: list[Result], now: float) -> Step:
    by = change.ending
    if by is None:
        return state, []
    # a setting that is gone has nothing left to be undone
    stuck = {result.key: result for result in results if result.stuck}
    left = [action for action in change.undo.actions if action.key in stuck]
    if stuck:
        outcome = "Not everything could be put back: " + " ".join(result.sentence for result in stuck.values())
    elif len(results) == 1:
        outcome = results[0].sentence
    else:
        outcome = _as_before(results)
    failed = by is EndedBy.ERROR
    change = replace(
        change,
        state=ChangeState.FAILED if failed or stuck else ChangeState.ROLLED_BACK,
        sentence=f"{change.sentence} {outcome}",
        results=change.results if failed else results,
        undo=Plan(left, allow_isolated=True),
        ending=None,
        ended_by=by,
        deadline=None,
        keep_at=None,
    )
    return _keep(state, change), [Note(change), _report(change, now)]


def _as_before(results: list[Result]) -> str:
    gone = [result.sentence for result in results if result.outcome is Outcome.UNSUPPORTED]
    match len(results) - len(gone), len(gone):
        case 0, 0:
            return "Nothing had to be put back."
        case back, 0:
            return f"All {back} settings are as before."
        case back, _:
            return " ".join([f"{back} of {len(results)} settings are as before.", *gone])


def _confirm(state: Changes, change: Change, now: float) -> Step:
    if change.state is not ChangeState.UNCONFIRMED or change.ending is not None:
        return state, [_report(change, now)]
    if change.deadline is not None and now >= change.deadline:
        return _undo_all(state, [(change, EndedBy.TIMEOUT, "")])
    change = replace(change, state=ChangeState.CONFIRMED, sentence="Kept.", deadline=None, keep_at=None)
    return _keep(state, change), [Note(change), _report(change, now)]


def _roll_back(state: Changes, change: Change, now: float) -> Step:
    kept = change.state in (ChangeState.UNCONFIRMED, ChangeState.CONFIRMED)
    unfinished = change.state is ChangeState.FAILED and bool(change.undo.actions)
    if change.ending is not None or not (kept or unfinished):
        return state, [_report(change, now)]
    if (later := _later(state, change)) is not None:
        message = _report(change, now).message
        sentence = f"Its settings were changed again by change {later.change_id}; roll that one back first."
        return state, [Report(replace(message, sentence=sentence))]
    return _undo_all(state, [(change, EndedBy.USER, "")])


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
        return state, [_report(change, now)]
    deadline = min(change.deadline + seconds, now + MAX_TIMEOUT_S)
    change = replace(
        change, deadline=deadline, sentence=f"Extended: it undoes itself in {deadline - now:.0f} s unless it is kept."
    )
    return _keep(state, change), [Note(change), _report(change, now)]


def _tick(state: Changes, now: float) -> Step:
    lost = state.lost_since is not None and now - state.lost_since >= LOST_BACKEND_GRACE_S
    due = []
    looks: list[Instruction] = []
    for change in reversed(state.changes.values()):
        if change.state is not ChangeState.UNCONFIRMED or change.ending is not None:
            continue
        if change.keep_at is not None:
            if now >= change.keep_at:
                looks.append(LookAgain(change.change_id, change.plan))
        elif change.deadline is not None and now >= change.deadline:
            due.append((change, EndedBy.TIMEOUT, ""))
        elif lost:
            due.append((change, EndedBy.LOST_BACKEND, ""))
    state, undo = _undo_all(state, due)
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
        state = _keep(state, counted)
        if tripped:
            due.append((counted, EndedBy.GUARDRAIL, tripped))
    return _undo_all(state, due)


def _put_back(state: Changes, keys: frozenset[str], now: float) -> Step:
    instructions: list[Instruction] = []
    for before in state.changes.values():
        left = [action for action in before.undo.actions if action.key not in keys]
        begun = before.state is ChangeState.APPLYING and before.keys & keys
        if len(left) == len(before.undo.actions) and not begun:
            continue
        change = replace(before, undo=Plan(left, allow_isolated=True))
        ended = not left and (change.open or change.state is ChangeState.CONFIRMED)
        if ended:
            failed = change.ending is EndedBy.ERROR
            change = replace(
                change,
                state=ChangeState.FAILED if failed else ChangeState.ROLLED_BACK,
                ending=None,
                ended_by=change.ending or EndedBy.USER,
                deadline=None,
                keep_at=None,
                seen=False,
                sentence="Put back on the node by coresteer-agent restore.",
            )
        state = _keep(state, change)
        instructions += [Note(change), _report(change, now)] if ended else [Note(change)]
    return state, instructions


def _restarted(state: Changes, changes: list[Change]) -> Step:
    for change in changes:
        state = _keep(state, change)
    open_ones = [change for change in reversed(changes) if change.open]
    return _undo_all(state, [(change, change.ending or EndedBy.AGENT_RESTART, "") for change in open_ones])


def after_reboot(changes: list[Change]) -> list[Change]:
    """What is left to tell of changes made before a reboot, which put every setting back by itself."""
    told = []
    for change in changes:
        if change.open:
            ended = replace(
                change,
                state=ChangeState.ROLLED_BACK,
                undo=Plan([]),
                ending=None,
                ended_by=EndedBy.AGENT_RESTART,
                deadline=None,
                keep_at=None,
                sentence="The node rebooted before it was kept; a reboot puts every setting back by itself.",
            )
            told.append(ended)
        elif not change.seen:
            told.append(replace(change, undo=Plan([])))
    return told


def _undo_all(state: Changes, due: list[tuple[Change, EndedBy, str]]) -> Step:
    """Begin the undo of changes, latest first. The sentence so far says why; the outcome is added when it ran."""
    instructions: list[Instruction] = []
    for change, by, cause in due:
        said = by is EndedBy.ERROR or change.ending is by
        sentence = change.sentence if said else cause or f"Rolled back {_CAUSES[by]}."
        ending = replace(change, ending=by, sentence=sentence, seen=False)
        state = _keep(state, ending)
        instructions += [Note(ending), RunInverse(ending.change_id, ending.undo, by)]
    return state, instructions


def _keep(state: Changes, change: Change) -> Changes:
    changes = {**state.changes, change.change_id: change}
    surplus = len(changes) - REMEMBERED
    if surplus > 0:
        ended = [c.change_id for c in changes.values() if not c.open and c.change_id != change.change_id]
        for change_id in ended[:surplus]:
            del changes[change_id]
    return replace(state, changes=changes)


def _report(change: Change, now: float) -> Report:
    waits = change.state is ChangeState.UNCONFIRMED and change.deadline is not None
    return Report(
        ChangeMessage(
            change_id=change.change_id,
            state=change.state,
            sentence=change.sentence,
            results=change.results,
            ended_by=change.ended_by,
            remaining_s=max(0.0, change.deadline - now) if waits and change.deadline is not None else None,
        )
    )


def _unknown(state: Changes, change_id: str) -> list[Instruction]:
    if state.observe_reason is not None:
        sentence = "This agent only observes and has no journal, so it cannot tell."
    else:
        sentence = (
            f"This node does not know change {change_id[:60]}: it never arrived, is long past, or its journal is gone."
        )
    return [Report(ChangeMessage(change_id, ChangeState.FAILED, sentence, [], EndedBy.ERROR))]
