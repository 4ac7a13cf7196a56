"""Undo changes: begin and finish an undo, and treat open changes after a restart or reboot."""

from typing import TypeAlias

from msgspec.structs import replace

from coresteer_core.changes.events import (
    Change,
    Changes,
    Instruction,
    RecordChange,
    RestoredExternally,
    RunInverse,
    RunRestore,
    SendChangeState,
)
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy, Outcome, Result

Transition: TypeAlias = tuple[Changes, list[Instruction]]

LOST_BACKEND_GRACE_S = 10.0
"""Seconds without a backend after which unconfirmed changes are rolled back; a reconnect takes less."""
MAX_REMEMBERED_CHANGES = 256
"""Maximum number of changes kept for a later rollback; older ones that have ended are dropped."""
MAX_REMEMBERED_CHARACTERS = 16 * 1024 * 1024
"""Maximum text of the plans of all changes kept, for the same reason."""

_CAUSES = {
    EndedBy.USER: "on request",
    EndedBy.TIMEOUT: "because it was not confirmed in time",
    EndedBy.GUARDRAIL: "by its guardrail",
    EndedBy.LOST_BACKEND: f"because the backend was unreachable for {LOST_BACKEND_GRACE_S:g} s before it was confirmed",
    EndedBy.AGENT_RESTART: "because the agent stopped before it was confirmed",
    EndedBy.ERROR: "because an action failed",
}


def begin_undo(state: Changes, due: list[tuple[Change, EndedBy, str]]) -> Transition:
    """Return the state and the instructions that begin to undo changes, given latest first, each with its cause."""
    instructions: list[Instruction] = []
    for change, by, cause in due:
        has_cause = by is EndedBy.ERROR or change.ending is by
        sentence = change.sentence if has_cause else cause or f"Rolled back {_CAUSES[by]}."
        ending = replace(change, ending=by, sentence=sentence, acknowledged=False)
        state = with_change(state, ending)
        instructions += [RecordChange(ending), RunInverse(ending.change_id, ending.undo, by)]
    return state, instructions


def finish_undo(state: Changes, change: Change, results: list[Result], now: float) -> Transition:
    """Return the state after an undo; actions whose setting could not be restored remain in the change's undo plan."""
    by = change.ending
    if by is None:
        return state, []
    # a setting that is gone has nothing left to be undone
    stuck = {result.key: result for result in results if result.stuck}
    remaining = [action for action in change.undo.actions if action.key in stuck]
    if stuck:
        outcome = "Not every setting could be restored: " + " ".join(result.sentence for result in stuck.values())
    else:
        outcome = describe_restored(results)
    failed = by is EndedBy.ERROR
    change = replace(
        change,
        state=ChangeState.FAILED if failed or stuck else ChangeState.ROLLED_BACK,
        sentence=f"{change.sentence} {outcome}",
        results=change.results if failed else results,
        undo=Plan(remaining, allow_isolated=True),
        ending=None,
        ended_by=by,
        deadline=None,
        confirm_at=None,
    )
    return with_change(state, change), [RecordChange(change), send_state(change, now)]


def describe_restored(results: list[Result]) -> str:
    """Return a sentence that says how many settings were restored, and which no longer exist."""
    if len(results) == 1:
        return results[0].sentence
    gone = [result.sentence for result in results if result.outcome is Outcome.UNSUPPORTED]
    match len(results) - len(gone), len(gone):
        case 0, 0:
            return "Nothing had to be restored."
        case back, 0:
            return f"All {back} settings are restored."
        case back, _:
            return " ".join([f"{back} of {len(results)} settings are restored.", *gone])


def apply_external_restore(state: Changes, event: RestoredExternally, now: float) -> Transition:
    """Return the state after settings were restored apart from their changes; one with nothing left to undo ends."""
    keys = event.keys
    instructions: list[Instruction] = []
    for before in state.changes.values():
        remaining = [action for action in before.undo.actions if action.key not in keys]
        begun = before.state is ChangeState.APPLYING and before.keys & keys
        if len(remaining) == len(before.undo.actions) and not begun:
            continue
        change = replace(before, undo=Plan(remaining, allow_isolated=True))
        ended = not remaining and (change.open or change.state is ChangeState.CONFIRMED)
        if ended:
            failed = change.ending is EndedBy.ERROR
            change = replace(
                change,
                state=ChangeState.FAILED if failed else ChangeState.ROLLED_BACK,
                ending=None,
                ended_by=change.ending or EndedBy.USER,
                deadline=None,
                confirm_at=None,
                acknowledged=False,
                sentence=event.sentence,
            )
        state = with_change(state, change)
        instructions += [RecordChange(change), send_state(change, now)] if ended else [RecordChange(change)]
    return state, instructions


def resume_changes(state: Changes, changes: list[Change]) -> Transition:
    """Return the state with the changes of a journal, oldest first, and instructions that undo the open ones.

    A change that restores originals is continued instead. An interrupted write may have left any value.
    """
    for change in changes:
        state = with_change(state, change)
    open_ones = [change for change in reversed(changes) if change.open]
    restoring = [change for change in open_ones if change.restores]
    interrupted = [
        replace(change, undo=_expecting_any_value(change.undo))
        if change.state is ChangeState.APPLYING or change.ending is not None
        else change
        for change in open_ones
        if not change.restores
    ]
    state, undo = begin_undo(state, [(change, change.ending or EndedBy.AGENT_RESTART, "") for change in interrupted])
    return state, [*undo, *(RunRestore(each.change_id, _expecting_any_value(each.plan)) for each in restoring)]


def _expecting_any_value(plan: Plan) -> Plan:
    return replace(plan, actions=[replace(action, was="") for action in plan.actions])


def changes_after_reboot(changes: list[Change]) -> list[Change]:
    """Return the changes that the backend must still learn of after a reboot, which restored every setting."""
    unreported = []
    for change in changes:
        if change.open:
            ended = replace(
                change,
                state=ChangeState.ROLLED_BACK,
                undo=Plan([]),
                ending=None,
                ended_by=EndedBy.AGENT_RESTART,
                deadline=None,
                confirm_at=None,
                sentence="The node rebooted before the change was confirmed; a reboot restores every setting.",
            )
            unreported.append(ended)
        elif not change.acknowledged:
            unreported.append(replace(change, undo=Plan([])))
    return unreported


def with_change(state: Changes, change: Change) -> Changes:
    """Return the state of all changes with one added or updated; drops old ended ones above the maximum."""
    changes = {**state.changes, change.change_id: change}
    if change.change_id not in state.changes:
        changes = without_surplus(changes, keep=change.change_id)
    return replace(state, changes=changes)


def without_surplus(changes: dict[str, Change], *, keep: str = "") -> dict[str, Change]:
    """Return changes by change_id, oldest first, without old ended ones above the maximum. keep: an id to keep."""
    lengths = {change_id: text_length(each.plan) for change_id, each in changes.items()}
    surplus, excess = len(changes) - MAX_REMEMBERED_CHANGES, sum(lengths.values()) - MAX_REMEMBERED_CHARACTERS
    if surplus <= 0 and excess <= 0:
        return changes
    ended = [change for change in changes.values() if not change.open and change.change_id != keep]
    # policies make many, which are seldom rolled back; the backend does not know yet what it has not acknowledged
    ended.sort(key=lambda change: (not change.policy, not change.acknowledged))
    dropped = set[str]()
    for change in ended:
        if surplus <= 0 and excess <= 0:
            break
        surplus, excess = surplus - 1, excess - lengths[change.change_id]
        dropped.add(change.change_id)
    return {change_id: each for change_id, each in changes.items() if change_id not in dropped}


def text_length(plan: Plan) -> int:
    """Return the number of characters of a plan's keys, values and reasons."""
    return sum(len(a.key) + len(a.was) + len(a.becomes) + len(a.reason) for a in plan.actions)


def send_state(change: Change, now: float) -> SendChangeState:
    """Return the instruction to send a change's present state to the backend. now: monotonic seconds."""
    waiting = change.state is ChangeState.UNCONFIRMED and change.deadline is not None
    return SendChangeState(
        ChangeMessage(
            change_id=change.change_id,
            state=change.state,
            sentence=change.sentence,
            results=change.results,
            ended_by=change.ended_by,
            remaining_s=max(0.0, change.deadline - now) if waiting and change.deadline is not None else None,
        ).shortened()
    )
