"""How a change is undone, and how the undo ends."""

from typing import TypeAlias

from msgspec.structs import replace

from coresteer_core.changes.events import Change, Changes, Instruction, Note, Report, RunInverse
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy, Outcome, Result

Step: TypeAlias = tuple[Changes, list[Instruction]]

LOST_BACKEND_GRACE_S = 10.0
"""How long an unconfirmed change outlives the connection: a reconnect takes less, a person's page needs no more."""
REMEMBERED = 256
"""Changes kept for a later rollback or report; older ones that have ended are forgotten."""

_CAUSES = {
    EndedBy.USER: "because it was asked for",
    EndedBy.TIMEOUT: "because nobody kept it in time",
    EndedBy.GUARDRAIL: "by its guardrail",
    EndedBy.LOST_BACKEND: f"because the backend was away for {LOST_BACKEND_GRACE_S:g} s while it was not confirmed",
    EndedBy.AGENT_RESTART: "because the agent stopped while it was not confirmed",
    EndedBy.ERROR: "because an action did not work",
}


def undo_all(state: Changes, due: list[tuple[Change, EndedBy, str]]) -> Step:
    """Begin the undo of changes, latest first. The sentence so far says why; the outcome is added when it ran."""
    instructions: list[Instruction] = []
    for change, by, cause in due:
        said = by is EndedBy.ERROR or change.ending is by
        sentence = change.sentence if said else cause or f"Rolled back {_CAUSES[by]}."
        ending = replace(change, ending=by, sentence=sentence, seen=False)
        state = keep(state, ending)
        instructions += [Note(ending), RunInverse(ending.change_id, ending.undo, by)]
    return state, instructions


def inverse_ran(state: Changes, change: Change, results: list[Result], now: float) -> Step:
    """The undo ended; what could not be put back stays in the change's undo."""
    by = change.ending
    if by is None:
        return state, []
    # a setting that is gone has nothing left to be undone
    stuck = {result.key: result for result in results if result.stuck}
    left = [action for action in change.undo.actions if action.key in stuck]
    if stuck:
        outcome = "Not everything could be put back: " + " ".join(result.sentence for result in stuck.values())
    else:
        outcome = as_before(results)
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
        confirm_at=None,
    )
    return keep(state, change), [Note(change), report(change, now)]


def as_before(results: list[Result]) -> str:
    """What came of putting settings back, in a sentence."""
    if len(results) == 1:
        return results[0].sentence
    gone = [result.sentence for result in results if result.outcome is Outcome.UNSUPPORTED]
    match len(results) - len(gone), len(gone):
        case 0, 0:
            return "Nothing had to be put back."
        case back, 0:
            return f"All {back} settings are as before."
        case back, _:
            return " ".join([f"{back} of {len(results)} settings are as before.", *gone])


def restored_externally(state: Changes, keys: frozenset[str], now: float) -> Step:
    """``coresteer-agent restore`` put settings back; a change with nothing left to undo has ended."""
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
                confirm_at=None,
                seen=False,
                sentence="Put back on the node by coresteer-agent restore.",
            )
        state = keep(state, change)
        instructions += [Note(change), report(change, now)] if ended else [Note(change)]
    return state, instructions


def restarted(state: Changes, changes: list[Change]) -> Step:
    """Take in what a journal held, oldest first; what was open is undone."""
    for change in changes:
        state = keep(state, change)
    open_ones = [change for change in reversed(changes) if change.open]
    return undo_all(state, [(change, change.ending or EndedBy.AGENT_RESTART, "") for change in open_ones])


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
                confirm_at=None,
                sentence="The node rebooted before it was kept; a reboot puts every setting back by itself.",
            )
            told.append(ended)
        elif not change.seen:
            told.append(replace(change, undo=Plan([])))
    return told


def keep(state: Changes, change: Change) -> Changes:
    """The state with a change as it is now."""
    changes = {**state.changes, change.change_id: change}
    surplus = len(changes) - REMEMBERED
    if surplus > 0:
        ended = [c for c in changes.values() if not c.open and c.change_id != change.change_id]
        ended.sort(key=lambda c: not c.policy)  # a policy makes many that nobody rolls back
        for forgotten in ended[:surplus]:
            del changes[forgotten.change_id]
    return replace(state, changes=changes)


def report(change: Change, now: float) -> Report:
    """What the backend is told of a change."""
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
