"""Begins and ends holdouts of policies: one plan through the executor restores their settings, one writes them again.

The state is saved before each plan, so an agent that was killed meanwhile puts the policy in force again at its next
start: holdouts are leased, and it knows only policies that are not held out.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator

from coresteer_agent.runtime.policy_changes import ChangeHandler, PolicyChanges
from coresteer_core.bounds import MIN_CONFIRM_TIMEOUT_S
from coresteer_core.changes.events import ApplyRequested, Change, RestoreRequested, Tick
from coresteer_core.changes.guard import MAX_PLAN_ACTIONS
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import Outcome
from coresteer_core.node.view import View
from coresteer_core.policies.base import Evaluation, HoldoutState, Mode
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce
from coresteer_core.policies.holdout import begin_holdout, end_holdout, is_due, record_restored

_ATTEMPTS = 3
"""Plans per round that write the values again; each leaves out the setting at which the one before failed."""


class Holdouts:
    """Switches the holdouts of one node's policies.

    report: sends an evaluation with the change that carries it out. save: saves the state of tracked.
    """

    def __init__(
        self,
        changes: ChangeHandler,
        tracked: PolicyChanges,
        report: Callable[[Evaluation, str], None],
        save: Callable[[], None],
    ) -> None:
        self._changes = changes
        self._tracked = tracked
        self._report = report
        self._save = save

    def step(self, view: View, policies: Iterable[PolicyInForce], confirm_after_s: float) -> frozenset[str]:
        """Begin and end the holdouts that are due; return the keys of settings written or tried.

        confirm_after_s: how long guardrails watch the values that are in force again.
        """
        touched: frozenset[str] = frozenset()
        for policy in policies:
            if policy.mode is Mode.ENFORCE:
                if is_due(policy, self._memory) is True:
                    touched |= self._begin(view, policy)
                if is_due(policy, self._memory) is False:  # also where it could not begin completely
                    touched |= self._end(view, policy, confirm_after_s)
        return touched

    def confirm(self) -> None:
        """Confirm values that are in force again and are not watched (``confirm_after_s`` is 0)."""
        self._changes.feed(Tick())

    @property
    def _memory(self) -> EngineMemory:
        return self._tracked.state.memory

    def _begin(self, view: View, policy: PolicyInForce) -> frozenset[str]:
        own = {key for key, held in self._memory.holdings.items() if held.policy_id == policy.policy_id}
        if own & self._tracked.unconfirmed_settings():
            return frozenset()  # it begins when they are confirmed or reverted
        blocked = self._tracked.blocked_settings(view.time_s)
        actions, memory = begin_holdout(view, policy, self._memory, blocked, _now_ms())
        self._tracked.set_memory(memory)
        self._save()
        touched: frozenset[str] = frozenset()
        why = f"Policy {policy.name} is held out for a comparison."
        failed, gone = dict[str, str](), list[str]()
        for some in _plans(actions):
            sentence = f"{why} {_settings(some)} restored to the value before the policy."
            event = RestoreRequested(str(uuid.uuid4()), Plan(some, allow_isolated=True), policy.name, why)
            self._report(Evaluation(policy.policy_id, policy.version, Mode.RECOMMEND, sentence, some), event.change_id)
            touched |= self._changes.feed(event)
            change = self._changes.change(event.change_id)
            for key, reason in _not_restored(some, change):
                failed[key] = reason
                self._tracked.block_setting(key, reason, view.time_s)
            gone += _gone(change)
        if self._memory.holdouts[policy.policy_id].report.state is HoldoutState.ENTERING:
            self._tracked.set_memory(record_restored(self._memory, policy, failed, gone, _now_ms()))
            self._save()
        return touched

    def _end(self, view: View, policy: PolicyInForce, confirm_after_s: float) -> frozenset[str]:
        touched: frozenset[str] = frozenset()
        for _ in range(_ATTEMPTS):
            blocked = self._tracked.blocked_settings(view.time_s)
            actions, memory = end_holdout(view, policy, self._memory, blocked, _now_ms())
            self._tracked.set_memory(memory)
            self._save()
            if not actions:
                break
            for some in _plans(actions):
                touched |= self._write_again(policy, some, confirm_after_s)
        return touched

    def _write_again(self, policy: PolicyInForce, actions: list[Action], confirm_after_s: float) -> frozenset[str]:
        change_id = str(uuid.uuid4())
        sentence = f"Policy {policy.name} is in force again. {_settings(actions)} set to the value before the holdout."
        self._report(Evaluation(policy.policy_id, policy.version, policy.mode, sentence, actions), change_id)
        touched = self._changes.feed(
            ApplyRequested(
                change_id,
                Plan(actions, allow_isolated=policy.spec.allow_isolated),
                MIN_CONFIRM_TIMEOUT_S,
                policy.guardrails,
                policy=policy.name,
                confirm_after_s=confirm_after_s,
            )
        )
        if (change := self._changes.change(change_id)) is not None:
            self._tracked.record(policy.policy_id, change, time.monotonic(), again=True)
        return touched


def _plans(actions: list[Action]) -> Iterator[list[Action]]:
    for start in range(0, len(actions), MAX_PLAN_ACTIONS):
        yield actions[start : start + MAX_PLAN_ACTIONS]


def _settings(actions: list[Action]) -> str:
    return "1 setting is" if len(actions) == 1 else f"{len(actions)} settings are"


def _not_restored(actions: list[Action], change: Change | None) -> Iterator[tuple[str, str]]:
    """Yield the settings that a plan should have restored and did not, each with the reason as a sentence."""
    results = {} if change is None else {result.key: result for result in change.results}
    for action in actions:
        result = results.get(action.key)
        if result is None:
            yield action.key, "The change was lost." if change is None else change.sentence
        elif result.stuck:
            yield action.key, result.sentence


def _gone(change: Change | None) -> list[str]:
    results = [] if change is None else change.results
    return [result.key for result in results if result.outcome is Outcome.UNSUPPORTED]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
