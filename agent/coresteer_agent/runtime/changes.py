"""Carries out what the change machine of the core says: journal, executor, messages."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec.structs import replace

from coresteer_agent.apply.executor import Executor, reason
from coresteer_agent.apply.journal import Journal, JournalError
from coresteer_core.changes.events import (
    AcknowledgedByBackend,
    ApplyRequested,
    Change,
    Changes,
    ConfirmFailed,
    ConfirmRequested,
    Delegated,
    Event,
    ExtendRequested,
    InverseRan,
    Measured,
    Note,
    PlanRan,
    Recheck,
    Rechecked,
    Report,
    Restarted,
    RestoredExternally,
    RollbackRequested,
    RunInverse,
    RunPlan,
    RunRestore,
    Tick,
)
from coresteer_core.changes.guardrail import measure
from coresteer_core.changes.machine import advance
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.node.effective import Attempt
from coresteer_core.node.rates import Rates
from coresteer_core.node.view import View
from coresteer_core.protocol import (
    Apply,
    ChangeAck,
    ChangeMessage,
    ChangeState,
    Confirm,
    Extend,
    Outcome,
    Result,
    Rollback,
)

log = logging.getLogger("coresteer.changes")

LOAN = "delegated"
"""The id of the change that puts delegated settings back."""


class ChangeKeeper:
    """The changes of one node. Raises JournalError when the journal cannot be used.

    observe_reason: why nothing may be changed here, None when it may. report: sends to the backend. attempted: as the
    executor's.
    """

    def __init__(
        self,
        root: Path,
        journal_path: Path,
        observe_reason: str | None,
        view_source: Callable[[], View],
        report: Callable[[ChangeMessage], None],
        *,
        attempted: Callable[[Attempt], None] = lambda _: None,
    ) -> None:
        self._report = report
        self._state = Changes(observe_reason=observe_reason)
        self._complaint = ""
        self._taken = 0
        self._journal = Journal(journal_path, root) if observe_reason is None else None
        self._executor = Executor(root, self._journal, view_source, attempted) if self._journal is not None else None
        if self._journal is not None:
            self.feed(Restarted(self._journal.changes()))

    def asked(self, message: Apply | Confirm | Rollback | Extend | ChangeAck) -> frozenset[str]:
        """What the backend wants. Returns the settings that were worked on, as feed does."""
        match message:
            case Apply():
                return self.feed(
                    ApplyRequested(message.change_id, message.plan, message.confirm_timeout_s, message.guardrails)
                )
            case Confirm():
                return self.feed(ConfirmRequested(message.change_id))
            case Rollback():
                return self.feed(RollbackRequested(message.change_id))
            case Extend():
                return self.feed(ExtendRequested(message.change_id, message.seconds))
            case ChangeAck():
                return self.feed(AcknowledgedByBackend(message.change_id, message.state))

    def tick(self) -> frozenset[str]:
        """Once a second: timers, and what somebody restored beside us."""
        keys = self._restored_by_others()
        touched = keys | self.feed(RestoredExternally(keys)) if keys else frozenset()
        return touched | self.feed(Tick())

    def measured(self, rates: Rates) -> frozenset[str]:
        """Hold an interval against the guardrails of the open changes."""
        if any(change.open and change.guardrails for change in self._state.changes.values()):
            return self.feed(Measured(measure(rates), rates.duration_s))
        return frozenset()

    def feed(self, event: Event) -> frozenset[str]:
        """Something happened: do what follows from it. Returns the settings that were written or tried."""
        touched: set[str] = set()
        events = deque([event])
        while events:
            before = self._state
            self._state, instructions = advance(before, events.popleft(), time.monotonic())
            for instruction in instructions:
                if isinstance(instruction, Note):
                    if (not_kept := self._note(instruction, before)) is not None:
                        events.append(not_kept)
                        break
                elif (outcome := self._carry_out(instruction)) is not None:
                    events.append(outcome)
                    if isinstance(outcome, PlanRan | InverseRan):
                        touched.update(result.key for result in outcome.results)
        return frozenset(touched)

    def steer(self, action: Action) -> Result:
        """Give a setting that a change has written another value; see Executor.steer."""
        if self._executor is None:
            return Result(action.key, Outcome.REFUSED, "This agent only observes.")
        return self._executor.steer(action)

    def delegate(self, keys: Iterable[str]) -> frozenset[str]:
        """Let another program write settings until take_back(); returns which. Open changes keep theirs.

        Whatever ends the agent or the connection meanwhile, they go back. Raises OSError or JournalError, and lends
        nothing then.
        """
        if self._executor is None:
            return frozenset()
        taken = frozenset[str]().union(*(change.keys for change in self._state.changes.values() if change.open))
        actions = self._executor.standing(key for key in keys if key not in taken)
        self._taken = 0
        self.feed(Delegated(LOAN, Plan(actions)))
        try:
            self._executor.delegate(LOAN, actions)
        except (OSError, JournalError):
            self.feed(RollbackRequested(LOAN))
            raise
        return frozenset(action.key for action in actions)

    def take_back(self, at_most: int) -> list[Result] | None:
        """Put so many delegated settings back; what became of each of all of them once it is done, None before.

        The program must have ended.
        """
        change = self._state.changes.get(LOAN)
        if self._executor is None or change is None or not change.open:
            return []
        self._taken += at_most
        for action in change.plan.actions[self._taken - at_most : self._taken]:
            self._executor.undo(action)
        if self._taken < len(change.plan.actions):
            return None
        self.feed(RollbackRequested(LOAN))
        return self._state.changes[LOAN].results

    def gone(self, keys: Iterable[str]) -> list[str]:
        """Those of them that the node has no more, or that are another one's by now; none where that is not known."""
        if self._executor is None:
            return []
        try:
            return [key for key in keys if self._executor.gone(key)]
        except (OSError, JournalError):  # tick() says so
            return []

    def change(self, change_id: str) -> Change | None:
        """What is known of a change."""
        return self._state.changes.get(change_id)

    def close(self) -> None:
        """Let the journal go."""
        if self._journal is not None:
            self._journal.close()

    def _restored_by_others(self) -> frozenset[str]:
        if self._journal is None:
            return frozenset()
        try:
            keys = self._journal.restored_by_others()
        except (OSError, JournalError) as error:
            if self._complaint != str(error):
                self._complaint = str(error)
                log.error("The journal %s cannot be used: %s.", self._journal.path, reason(error))
            return frozenset()
        self._complaint = ""
        return keys

    def _carry_out(
        self, instruction: RunPlan | RunRestore | Recheck | RunInverse | Report
    ) -> PlanRan | Rechecked | ConfirmFailed | InverseRan | None:
        match instruction:
            case Report():
                self._tell(instruction.message)
            case RunPlan():
                return PlanRan(instruction.change_id, self._run(instruction.change_id, instruction.plan))
            case RunRestore():
                return PlanRan(instruction.change_id, [self._undo(action) for action in instruction.plan.actions])
            case Recheck():
                return self._recheck(instruction)
            case RunInverse():
                return InverseRan(instruction.change_id, [self._undo(action) for action in instruction.plan.actions])
        return None

    def _run(self, change_id: str, plan: Plan) -> list[Result]:
        results: list[Result] = []
        for action in plan.actions:
            if self._executor is None:
                results.append(Result(action.key, Outcome.REFUSED, "This agent only observes."))
            else:
                results.append(self._executor.apply(action, change_id=change_id, allow_isolated=plan.allow_isolated))
            if not results[-1].done:
                break
        return results

    def _undo(self, action: Action) -> Result:
        if self._executor is None:
            return Result(action.key, Outcome.REFUSED, "This agent only observes.")
        return self._executor.undo(action)

    def _recheck(self, instruction: Recheck) -> Rechecked | ConfirmFailed:
        try:
            return Rechecked(instruction.change_id, [self._stands(a) for a in instruction.plan.actions])
        except (OSError, JournalError) as error:
            return ConfirmFailed(self._state.changes[instruction.change_id], reason(error))

    def _stands(self, action: Action) -> Result:
        if self._executor is None:
            return Result(action.key, Outcome.REFUSED, "This agent only observes.")
        return self._executor.stands(action)

    def _note(self, note: Note, before: Changes) -> ConfirmFailed | None:
        if self._journal is None:
            return None
        change_id = note.change.change_id
        try:
            self._journal.note(note.change)
        except (OSError, JournalError) as error:
            # each write still notes its original first or is not done, so undo goes on working
            log.error("The journal could not note change %s: %s.", change_id, reason(error))
            waiting = before.changes.get(change_id)
            if note.change.state is ChangeState.CONFIRMED and waiting is not None and waiting.open:
                return ConfirmFailed(waiting, reason(error))
        return None

    def _tell(self, message: ChangeMessage) -> None:
        change = self._state.changes.get(message.change_id)
        if change is not None and change.delegated:
            return
        log.info("Change %s is %s. %s", message.change_id[:60], message.state.replace("_", " "), message.sentence)
        if message.remaining_s is not None:
            message = replace(message, deadline_ms=time.time_ns() // 1_000_000 + int(message.remaining_s * 1000))
        self._report(message)
