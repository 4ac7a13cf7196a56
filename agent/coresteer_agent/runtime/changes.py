"""Runs the change state machine on a node: applies its instructions, journals changes, reports to the backend."""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from msgspec.structs import replace

from coresteer_agent.apply.executor import Executor, Steps
from coresteer_agent.apply.journal import Journal, JournalError
from coresteer_agent.apply.results import journal_error_text
from coresteer_core.changes.events import (
    AcknowledgedByBackend,
    AgentRestarted,
    AgentStopping,
    ApplyRequested,
    Change,
    Changes,
    ConfirmFailed,
    ConfirmRequested,
    Event,
    ExtendRequested,
    InverseRan,
    MetricsMeasured,
    PlanRan,
    Recheck,
    Rechecked,
    RecordChange,
    RestoredExternally,
    RollbackRequested,
    RunInverse,
    RunPlan,
    RunRestore,
    SendChangeState,
    SettingsDelegated,
    Tick,
)
from coresteer_core.changes.machine import advance
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState, Outcome, Result
from coresteer_core.node.metric_values import guardrail_values
from coresteer_core.node.rates import Rates
from coresteer_core.node.view import View
from coresteer_core.policies.coalescing.effective import WriteAttempt
from coresteer_core.protocol import Apply, ChangeAck, Confirm, Extend, Rollback

log = logging.getLogger("coresteer.changes")

DELEGATED_CHANGE_ID = "delegated"
"""The id of the change that restores delegated settings."""

_OBSERVES = "This agent only observes and changes no settings."


class ChangeRunner:
    """Runs the change state machine of one node with an executor.

    executor: None where nothing may be changed; observe_reason says why. report: sends a message to the backend. clock:
    monotonic seconds. logger: gets a line for each state of a change.
    """

    def __init__(
        self,
        executor: Executor | None,
        report: Callable[[ChangeMessage], None],
        *,
        observe_reason: str | None = None,
        clock: Callable[[], float] | None = None,
        logger: logging.Logger = log,
    ) -> None:
        self._actions = executor
        self._report = report
        self._clock = clock
        self._log = logger
        self._state = Changes(observe_reason=observe_reason)
        self._unfinished: list[Steps[PlanRan | InverseRan | RestoredExternally]] = []
        """Plans whose writes are paused."""

    @property
    def busy(self) -> bool:
        """Return whether a write takes several steps and is not finished; step() continues it."""
        return bool(self._unfinished)

    def step(self) -> frozenset[str]:
        """Continue unfinished writes by one step each. Returns keys as handle() does."""
        unfinished, self._unfinished = self._unfinished, []
        return frozenset[str]().union(*(self._continue(steps) for steps in unfinished))

    def stop(self) -> frozenset[str]:
        """Finish writes and undo unconfirmed changes before the agent ends. Returns keys as handle() does."""
        return self._finish() | self.feed(AgentStopping()) | self._finish()

    def handle(self, message: Apply | Confirm | Rollback | Extend | ChangeAck) -> frozenset[str]:
        """Handle a message of the backend about a change; return the keys of settings that were written or tried."""
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
        """Advance confirmation and retry timers; call it once a second. Returns keys as handle() does."""
        return self.feed(Tick())

    def check_guardrails(self, rates: Rates) -> frozenset[str]:
        """Check an interval's rates against the guardrails of open changes. Returns keys as handle() does."""
        if any(change.open and change.guardrails for change in self._state.changes.values()):
            return self.feed(MetricsMeasured(guardrail_values(rates), rates.duration_s))
        return frozenset()

    def feed(self, event: Event) -> frozenset[str]:
        """Pass an event to the state machine and carry out its instructions.

        Returns the keys of settings that were written or tried.
        """
        touched: set[str] = set()
        events = deque([event])
        while events:
            before, event = self._state, events.popleft()
            if isinstance(event, PlanRan | InverseRan):
                touched.update(result.key for result in event.results)
            elif isinstance(event, RestoredExternally):
                touched.update(event.keys)
            self._state, instructions = advance(before, event, self._now_s())
            for instruction in instructions:
                if isinstance(instruction, RecordChange):
                    if (failed := self._record(instruction, before)) is not None:
                        events.append(failed)
                        break
                elif isinstance(instruction, SendChangeState):
                    self._send(instruction.message)
                elif isinstance(instruction, Recheck):
                    events.append(self._recheck(instruction))
                elif (outcome := self._next(self._run(instruction))) is not None:
                    events.append(outcome)
        return frozenset(touched)

    def change(self, change_id: str) -> Change | None:
        """Return a change by its id, None if it is unknown."""
        return self._state.changes.get(change_id)

    @property
    def changed_settings(self) -> frozenset[str]:
        """Return the keys of the settings that have not their original value."""
        return frozenset() if self._actions is None else self._actions.changed_settings

    @property
    def own_values(self) -> Mapping[str, Collection[str]]:
        """Return the values that are Coresteer's, by key, of settings that keep others' values (Setting.unowned)."""
        return {} if self._actions is None else self._actions.own_values

    def restore_all(self) -> frozenset[str]:
        """Begin to restore every original value; return the keys of settings that were restored at once."""
        if self._actions is None:
            return frozenset()
        try:
            return self._continue(self._restore_all(self._actions, self._actions.original_actions()))
        except (OSError, JournalError) as error:
            self._log.error("The journal cannot be read, so nothing is restored: %s.", journal_error_text(error))
            return frozenset()

    @staticmethod
    def _restore_all(executor: Executor, actions: list[Action]) -> Steps[RestoredExternally]:
        done = set[str]()
        for action in actions:
            result = yield from executor.undo_in_steps(action)
            if not result.stuck:
                done.add(action.key)
        return RestoredExternally(frozenset(done), "Restored by a stop of enforcement.")

    def forget(self, key: str) -> bool:
        """Leave a setting at its present value and forget its original; return whether that is recorded."""
        try:
            if self._actions is not None:
                self._actions.forget(key)
        except (OSError, JournalError) as error:
            self._log.error("The journal could not record that %s stays: %s.", key, journal_error_text(error))
            return False
        return self._actions is not None

    def _now_s(self) -> float:
        return self._clock() if self._clock is not None else time.monotonic()

    def _next(
        self, steps: Steps[PlanRan | InverseRan | RestoredExternally]
    ) -> PlanRan | InverseRan | RestoredExternally | None:
        """Run a plan to its next pause; return the event with its results at its end, None before."""
        try:
            next(steps)
        except StopIteration as end:
            outcome: PlanRan | InverseRan | RestoredExternally = end.value
            return outcome
        self._unfinished.append(steps)
        return None

    def _continue(self, steps: Steps[PlanRan | InverseRan | RestoredExternally]) -> frozenset[str]:
        outcome = self._next(steps)
        return frozenset() if outcome is None else self.feed(outcome)

    def _finish(self) -> frozenset[str]:
        touched: frozenset[str] = frozenset()
        while self._unfinished:
            touched |= self.step()
        return touched

    def _run(self, instruction: RunPlan | RunRestore | RunInverse) -> Steps[PlanRan | InverseRan]:
        change_id, plan = instruction.change_id, instruction.plan
        results: list[Result] = []
        executor = self._actions if isinstance(instruction, RunPlan) else None
        if executor is not None and (refused := executor.refuse_together(plan.actions)) is not None:
            return PlanRan(change_id, [refused])
        for action in plan.actions:
            if self._actions is None:
                results.append(Result(action.key, Outcome.REFUSED, _OBSERVES))
            elif isinstance(instruction, RunPlan):
                steps = self._actions.apply_in_steps(action, change_id=change_id, allow_isolated=plan.allow_isolated)
                results.append((yield from steps))
            else:
                results.append((yield from self._actions.undo_in_steps(action)))
            if isinstance(instruction, RunPlan) and not results[-1].done:
                break
        return InverseRan(change_id, results) if isinstance(instruction, RunInverse) else PlanRan(change_id, results)

    def _recheck(self, instruction: Recheck) -> Rechecked | ConfirmFailed:
        try:
            return Rechecked(instruction.change_id, [self._verify(a) for a in instruction.plan.actions])
        except (OSError, JournalError) as error:
            return ConfirmFailed(self._state.changes[instruction.change_id], journal_error_text(error))

    def _verify(self, action: Action) -> Result:
        if self._actions is None:
            return Result(action.key, Outcome.REFUSED, _OBSERVES)
        return self._actions.verify(action)

    def _record(self, instruction: RecordChange, before: Changes) -> ConfirmFailed | None:
        """Record a change durably, which this class does not do. before: the state before the event."""
        return None

    def _send(self, message: ChangeMessage) -> None:
        change = self._state.changes.get(message.change_id)
        if change is not None and change.delegated:
            return
        state = message.state.replace("_", " ")
        self._log.info("Change %s is %s. %s", message.change_id[:60], state, message.sentence)
        if message.remaining_s is not None:
            message = replace(message, deadline_ms=time.time_ns() // 1_000_000 + int(message.remaining_s * 1000))
        self._report(message)


class NodeChanges(ChangeRunner):
    """Applies the changes of one machine and records them in a journal. Raises JournalError if it is unusable.

    observe_reason: why nothing may be changed here, None when it may. view_source, attempted: as the executor's.
    """

    def __init__(
        self,
        root: Path,
        journal_path: Path,
        observe_reason: str | None,
        view_source: Callable[[], View],
        report: Callable[[ChangeMessage], None],
        *,
        attempted: Callable[[WriteAttempt], None] = lambda _: None,
    ) -> None:
        self._journal = Journal(journal_path, root) if observe_reason is None else None
        self._executor = Executor(root, self._journal, view_source, attempted) if self._journal is not None else None
        super().__init__(self._executor, report, observe_reason=observe_reason)
        self._complaint = ""
        self._revoked = 0
        if self._journal is not None:
            self.feed(AgentRestarted(self._journal.changes()))

    def tick(self) -> frozenset[str]:
        """Advance timers, and handle settings that ``coresteer-agent restore`` restored meanwhile."""
        keys = self._restored_by_others()
        touched = self.feed(RestoredExternally(keys)) if keys else frozenset()
        return touched | super().tick()

    def steer(self, action: Action) -> Result:
        """Write another value to a setting that a change has written; see Executor.steer."""
        if self._executor is None:
            return Result(action.key, Outcome.REFUSED, _OBSERVES)
        return self._executor.steer(action)

    def delegate(self, keys: Iterable[str]) -> frozenset[str]:
        """Let another program write settings until revoke(); return the keys delegated, without those of open changes.

        The settings are restored whatever ends the agent or the connection meanwhile. Raises OSError or JournalError,
        and delegates nothing then.
        """
        if self._executor is None:
            return frozenset()
        taken = frozenset[str]().union(*(change.keys for change in self._state.changes.values() if change.open))
        actions = self._executor.restoring_actions(key for key in keys if key not in taken)
        self._revoked = 0
        self.feed(SettingsDelegated(DELEGATED_CHANGE_ID, Plan(actions)))
        try:
            self._executor.delegate(DELEGATED_CHANGE_ID, actions)
        except (OSError, JournalError):
            self.feed(RollbackRequested(DELEGATED_CHANGE_ID))
            raise
        return frozenset(action.key for action in actions)

    def revoke(self, at_most: int) -> list[Result] | None:
        """Restore some delegated settings per call; return all results once every one is restored, None before.

        The program must have ended.
        """
        change = self._state.changes.get(DELEGATED_CHANGE_ID)
        if self._executor is None or change is None or not change.open:
            return []
        self._revoked += at_most
        for action in change.plan.actions[self._revoked - at_most : self._revoked]:
            self._executor.undo(action)
        if self._revoked < len(change.plan.actions):
            return None
        self.feed(RollbackRequested(DELEGATED_CHANGE_ID))
        return self._state.changes[DELEGATED_CHANGE_ID].results

    def removed_settings(self, keys: Iterable[str]) -> list[str]:
        """Return the keys of settings that the node no longer has, or whose device or process was replaced."""
        if self._executor is None:
            return []
        try:
            return [key for key in keys if self._executor.is_removed(key)]
        except (OSError, JournalError):  # tick() reports it
            return []

    def locked(self) -> AbstractContextManager[None]:
        """Hold the journal's lock against other processes. Raises OSError or JournalError."""
        return nullcontext() if self._journal is None else self._journal.locked()

    def close(self) -> None:
        """Finish unfinished writes and close the journal."""
        self._finish()
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
                log.error("The journal %s cannot be used: %s.", self._journal.path, journal_error_text(error))
            return frozenset()
        self._complaint = ""
        return keys

    def _record(self, instruction: RecordChange, before: Changes) -> ConfirmFailed | None:
        if self._journal is None:
            return None
        change_id = instruction.change.change_id
        try:
            self._journal.record(instruction.change)
        except (OSError, JournalError) as error:
            # each write still records its original first or is not done, so undo continues to work
            log.error("The journal could not record change %s: %s.", change_id, journal_error_text(error))
            waiting = before.changes.get(change_id)
            confirmed = instruction.change.state is ChangeState.CONFIRMED
            if confirmed and waiting is not None and waiting.state is ChangeState.UNCONFIRMED:
                return ConfirmFailed(waiting, journal_error_text(error))
        return None
