"""Records the outcomes of changes made for policies: settings held, and settings not written for a while."""

from typing import Protocol

from msgspec.structs import replace

from coresteer_agent.runtime.policy_state import PolicyChange, PolicyState, Refusal
from coresteer_core.changes.events import Change, Event
from coresteer_core.changes.plan import Action, Plan, inverse
from coresteer_core.changes.report import ChangeState, EndedBy, Outcome, Result
from coresteer_core.policies.engine_state import EngineMemory, Holding, record_write
from coresteer_core.policies.holdout import record_reverted, record_written_again

FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0
"""How long a setting is not written after a policy's change of it failed; doubled with each consecutive failure."""


class ChangeHandler(Protocol):
    """Applies changes: the agent's NodeChanges, or a simulated node's."""

    @property
    def busy(self) -> bool:
        """Return whether a write takes several steps and is not finished."""

    def feed(self, event: Event) -> frozenset[str]:
        """Handle an event of a change; return the keys of settings that were written or tried."""

    def change(self, change_id: str) -> Change | None:
        """Return a change by its id, None for an unknown one."""

    def forget(self, key: str) -> bool:
        """Leave a setting at its present value and forget its original; return whether that is recorded."""

    @property
    def changed_settings(self) -> frozenset[str]:
        """Return the keys of the settings that have not their original value."""

    def restore_all(self) -> frozenset[str]:
        """Begin to restore every original value; return the keys of settings that were restored at once."""


class PolicyChanges:
    """The state of a node's policies, updated by the outcomes of their changes."""

    def __init__(self, changes: ChangeHandler, state: PolicyState) -> None:
        self._changes = changes
        self.state = state

    def set_memory(self, memory: EngineMemory) -> None:
        """Replace the policy engine's memory."""
        self.state = replace(self.state, memory=memory)

    def record(self, policy_id: str, change: Change, now_s: float, *, again: bool = False) -> None:
        """Record a new change of a policy: the settings it wrote at once, or why it failed.

        again: it writes the values from before a holdout.
        """
        results = {result.key: result for result in change.results}
        written = set(results) if change.open else {action.key for action in change.undo.actions}
        done: list[Action] = []
        taken_over: dict[str, Holding] = {}
        for action in change.plan.actions:
            result = results.get(action.key)
            holding = self.state.memory.holdings.get(action.key)
            held = holding is not None
            if action.key in written and result is not None and (result.outcome is Outcome.APPLIED or held):
                done.append(replace(action, was=result.found or action.was))
                if holding is not None and holding.policy_id != policy_id:
                    taken_over[action.key] = holding
                if again and held:
                    self.set_memory(record_written_again(self.state.memory, action.key, now_s))
                else:
                    self.set_memory(record_write(self.state.memory, policy_id, done[-1], now_s))
            if not change.open and (not results or (result is not None and not result.done)):
                self.block_setting(action.key, _why(result, change), now_s)
        restored = [action.key for action in done if action.key not in self.state.memory.holdings]
        if change.open:
            self.state.changes[change.change_id] = PolicyChange(
                policy_id, done, restored, again=again, taken_over=taken_over
            )

    def record_restored(self) -> None:
        """Record that a stop restored the originals: what still differs is held, and nothing is refused."""
        changed = self._changes.changed_settings
        memory = self.state.memory
        holdings = {key: held for key, held in memory.holdings.items() if key in changed}
        self.set_memory(replace(memory, holdings=holdings, holdouts={}, recent_values={}, flaps={}))
        for change_id, own in list(self.state.changes.items()):
            if not changed & {action.key for action in own.actions}:
                del self.state.changes[change_id]

    def record_outcomes(self, now_s: float) -> None:
        """Record the outcomes of earlier changes, the latest first, and remove expired refusals."""
        for change_id, own in reversed(list(self.state.changes.items())):
            change = self._changes.change(change_id)
            if change is not None and change.open:
                continue
            if change is not None and change.state is not ChangeState.CONFIRMED:
                self._record_rollback(own, change, now_s)
            elif change is not None:
                if not own.confirmed:
                    self.state.changes[change_id] = replace(own, confirmed=True)
                    for action in own.actions:
                        self.state.refusals.pop(action.key, None)
                if any(action.key in self.state.memory.holdings for action in own.actions):
                    continue  # a person may still roll it back
            del self.state.changes[change_id]
        expired = [key for key, refusal in self.state.refusals.items() if now_s >= refusal.until_s + LONGEST_PAUSE_S]
        for key in expired:
            del self.state.refusals[key]

    def blocked_settings(self, now_s: float) -> dict[str, str]:
        """Return the settings that policies must not write now, each with the reason as a sentence."""
        blocked = {key: refusal.sentence for key, refusal in self.state.refusals.items() if now_s < refusal.until_s}
        why = "The last change of this setting is not confirmed yet."
        return blocked | dict.fromkeys(self.unconfirmed_settings(), why)

    def unrestorable_settings(self, now_s: float) -> set[str]:
        """Return the settings that must not be restored now: unconfirmed ones, and those that could not be restored.

        That policies must not write them, because they failed to or had to roll back, is no reason.
        """
        failed = {key for key, refusal in self.state.refusals.items() if refusal.restoring and now_s < refusal.until_s}
        return failed | self.unconfirmed_settings()

    def unconfirmed_settings(self) -> set[str]:
        """Return the settings that unconfirmed changes of policies have written."""
        found = set[str]()
        for change_id, own in self.state.changes.items():
            change = self._changes.change(change_id)
            if change is not None and change.open:
                found.update(action.key for action in own.actions)
        return found

    def block_setting(self, key: str, why: str, now_s: float, *, restoring: bool = False) -> None:
        """Do not let policies write a setting for a while, doubled with each consecutive refusal.

        restoring: it could not be restored, so do not try that either.
        """
        before = self.state.refusals.get(key)
        times = 1 if before is None or before.restoring is not restoring else before.times + 1
        pause_s = min(FIRST_PAUSE_S * 2 ** min(times - 1, 10), LONGEST_PAUSE_S)
        sentence = f"{why} It is not tried again for {pause_s:g} s."
        self.state.refusals[key] = Refusal(sentence, now_s + pause_s, times, restoring)

    def _record_rollback(self, own: PolicyChange, change: Change, now_s: float) -> None:
        stuck = {action.key for action in change.undo.actions}
        for action in inverse(Plan(own.actions)).actions:
            held = self.state.memory.holdings.get(action.key)
            if action.key in own.restored:
                is_own = held is None
            else:
                is_own = held is not None and held.policy_id == own.policy_id
            restart = change.ended_by is EndedBy.AGENT_RESTART  # not because of its effect
            if own.again and restart and is_own and action.key not in stuck:
                self.set_memory(record_reverted(self.state.memory, action.key))
                continue
            if is_own and action.key not in stuck:
                self.set_memory(record_write(self.state.memory, own.policy_id, action, now_s))
                if (before := own.taken_over.get(action.key)) is not None and before.value == action.becomes:
                    holdings = {**self.state.memory.holdings, action.key: before}
                    self.set_memory(replace(self.state.memory, holdings=holdings))
            if restart:  # so it may be tried again at once
                earlier = self.state.memory.recent_values
                others = {key: values for key, values in earlier.items() if key != action.key}
                self.set_memory(replace(self.state.memory, recent_values=others))
            else:
                self.block_setting(action.key, change.sentence, now_s)


def _why(result: Result | None, change: Change) -> str:
    return change.sentence if result is None else result.sentence
