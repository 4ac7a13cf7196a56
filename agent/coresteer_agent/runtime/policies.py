"""The agent's policy loop: evaluate policies, report, apply, and restore settings that no policy holds any more.

The evaluation is coresteer_core.policies.engine's. Here is what it needs of a machine: a state that outlives the agent,
the changes that apply its actions, and back-off after failures.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from coresteer_agent.runtime.holdouts import Holdouts
from coresteer_agent.runtime.policy_changes import ChangeHandler, PolicyChanges
from coresteer_agent.runtime.policy_state import PolicyState
from coresteer_agent.runtime.stops import Stops
from coresteer_core.bounds import MIN_CONFIRM_TIMEOUT_S
from coresteer_core.changes.events import ApplyRequested, Change, RestoreRequested
from coresteer_core.changes.guard import MAX_PLAN_ACTIONS
from coresteer_core.changes.plan import Action, Plan, as_reported
from coresteer_core.changes.report import ChangeState, Outcome
from coresteer_core.node.view import View
from coresteer_core.policies.base import Evaluation, HoldoutReport, Mode
from coresteer_core.policies.engine import evaluate_round, same_outcome
from coresteer_core.policies.engine_state import (
    EnforcementStop,
    EngineMemory,
    Holding,
    PolicyInForce,
    forget_ended,
    forget_holding,
    record_steering,
    record_write,
)
from coresteer_core.policies.holdout import as_evaluated
from coresteer_core.policies.ownership import restore_actions
from coresteer_core.protocol import DecisionMessage, StoppedMessage
from coresteer_core.settings import TaskMemoryNodes, parse_setting
from coresteer_core.settings.netdev import NetdevSetting

log = logging.getLogger("coresteer.policies")

CONFIRM_AFTER_S = 10.0
"""How long the guardrails watch a policy's change before it is confirmed."""
SKIPPED_REPORT_S = 60.0
"""Minimum time between reports of evaluations that differ only in what they skip, as with every idle device."""


class PolicyRunner:
    """Evaluates and applies the policies of one node.

    state: saved by the last run; save: saves it. report, report_stops: send to the backend. repeat: sends a decision
    once more; None: report does. ended: returns the held and yielded settings that are gone. observe_only: the agent
    may not write, so every policy only observes.
    While a stop of enforcement applies, nothing is written but what an experiment's policy has set is restored.
    """

    def __init__(
        self,
        changes: ChangeHandler,
        report: Callable[[DecisionMessage], None],
        *,
        repeat: Callable[[DecisionMessage], None] | None = None,
        report_stops: Callable[[StoppedMessage], None] = lambda _: None,
        state: PolicyState | None = None,
        save: Callable[[PolicyState], None] = lambda _: None,
        ended: Callable[[EngineMemory], list[str]] = lambda _: [],
        observe_only: bool = False,
    ) -> None:
        self._changes = changes
        self._report = report
        self._repeat = repeat or report
        self._tracked = PolicyChanges(changes, state or PolicyState())
        self._save_state = save
        self._unleased = self._state.policies
        """The last received policies without a lease."""
        self._unleased_hold_ms = self._state.hold_from_ms
        """hold_from_ms of these; 0 where they may not write: they wait for the backend."""
        self._saved = self._significant()
        self._ended = ended
        self._observe_only = observe_only
        self._reported: dict[str, DecisionMessage] = {}
        self._failing: set[tuple[str, int]] = set()
        self._unrecorded: list[tuple[str, str]] = []
        """Changes whose results are not recorded yet: policy id, change id."""
        self.stops = Stops(changes, self._tracked, report_stops, self._save)
        self._holdouts = Holdouts(changes, self._tracked, self._send, self._save)
        held = self._state.memory.holdings.items()
        self._steered_before = {key for key, holding in held if self._steers(holding) and not holding.held_out}

    @property
    def idle(self) -> bool:
        """Return whether step() would do nothing: no policy to evaluate and no setting to restore."""
        return self._state == PolicyState()

    @property
    def in_force(self) -> list[PolicyInForce]:
        """Return the policies in force on this node; one that is held out or stopped only recommends."""
        allowed = self.stops.allowed(self._state.policies)
        return [as_evaluated(policy, self._state.memory) for policy in allowed]

    @property
    def held(self) -> dict[str, str]:
        """Return the id of the policy that holds each setting, by key, without those restored for a holdout."""
        holdings = self._state.memory.holdings.items()
        return {key: holding.policy_id for key, holding in holdings if not holding.held_out}

    def steerable(self, policy_id: str) -> dict[str, str]:
        """Return the values of the settings that an enforced policy may steer now, by key."""
        if self.stops.waiting:
            return {}
        blocked = self._tracked.blocked_settings(time.monotonic())
        enforced = {policy.policy_id for policy in self.in_force if policy.mode is Mode.ENFORCE}
        return {
            key: holding.value
            for key, holding in self._state.memory.holdings.items()
            if holding.policy_id == policy_id and policy_id in enforced and key not in blocked
        }

    def original(self, key: str) -> str:
        """Return the value of a steerable setting from before any policy set it."""
        return self._state.memory.holdings[key].original

    def record_steering(self, key: str, value: str) -> None:
        """Record another value of a steerable setting; it is saved with the next step."""
        self._tracked.set_memory(record_steering(self._state.memory, key, value, time.monotonic()))

    def set_policies(
        self,
        policies: list[PolicyInForce],
        leave_pages: Iterable[str] = (),
        stops: Sequence[EnforcementStop] = (),
        hold_from_ms: int | None = None,
    ) -> None:
        """Replace the policies in force; the next step evaluates them.

        If one of them is leased, all of them are temporary: a restarted agent must not know an experiment's policy, and
        must resume those that pause for it. A holdout is temporary, too. leave_pages, stops, hold_from_ms: as in
        Policies.
        """
        leave, stopped, state = list(leave_pages), list(stops), self._state
        restored = self.stops.received(stopped)
        known_before = (state.policies, state.leave_pages, state.stops, state.hold_from_ms)
        if (policies, leave, stopped, hold_from_ms) == known_before:
            return
        if not any(policy.leased for policy in policies):
            held_out = any(policy.holdout for policy in policies)
            self._unleased = [replace(policy, holdout=False) for policy in policies] if held_out else policies
            self._unleased_hold_ms = 0 if stopped else hold_from_ms
        known = {**self._state.former, **{policy.policy_id: policy for policy in self._state.policies}}
        former = {policy_id: policy for policy_id, policy in known.items() if policy_id in self._holders}
        self._tracked.state = replace(
            state,
            policies=policies,
            former=former,
            leave_pages=leave,
            stops=stopped,
            restored=restored,
            hold_from_ms=hold_from_ms,
        )
        in_force = {policy.policy_id for policy in policies}
        self._reported = {policy_id: sent for policy_id, sent in self._reported.items() if policy_id in in_force}
        self._save()

    def end_leases(self) -> None:
        """End leased policies and holdouts while the backend is away; the policies from before are in force again."""
        state = self._state
        self.set_policies(self._unleased, state.leave_pages, state.stops, self._hold_without_leases())

    def stop(self, view: View) -> frozenset[str]:
        """Restore the settings of leased policies, and end holdouts, before the agent ends.

        Returns the keys written or tried.
        """
        if not any(policy.leased or policy.holdout for policy in self._state.policies):
            return frozenset()
        self.end_leases()
        self._tracked.record_outcomes(view.time_s)
        touched = self._restore(view)
        if not self._observe_only and not self.stops.apply:
            touched |= self._holdouts.step(view, self._state.policies, 0.0)
            self._holdouts.confirm()
        self._save()
        return touched

    def report_again(self) -> None:
        """Report the last evaluations again after a reconnect, because the latest messages may be lost."""
        for message in self._reported.values():
            self._repeat(message)

    def step(self, view: View) -> frozenset[str]:
        """Evaluate and apply all policies once; return the keys of settings written or tried.

        view.time_s: now, monotonic. Nothing is evaluated while a write is unfinished: values in between are no drift.
        """
        if self.idle or self._changes.busy or self.stops.waiting:
            return frozenset()
        if touched := self.stops.obey():
            return touched  # the view is from before
        self._tracked.record_outcomes(view.time_s)
        for key in self._ended(self._state.memory):
            # a netdev may have another name now, and a yielded key may be a change's own, for a later process
            if key in self._state.memory.holdings and not isinstance(parse_setting(key), NetdevSetting):
                self._changes.forget(key)
            self._tracked.set_memory(forget_ended(self._state.memory, key))
        self._adopt_steered(view)
        touched = self._restore(view)
        if not self._observe_only and not self.stops.apply:
            switched = self._holdouts.step(view, self._state.policies, CONFIRM_AFTER_S)
            if switched:  # the view is from before, and policies would take its values for somebody else's
                self._save()
                return touched | switched
        for evaluation in self._evaluate(view):
            touched |= self._apply(evaluation)
        self._save()
        return touched

    def record_written(self) -> None:
        """Record the results of the policies' changes that have run meanwhile."""
        self._record_written()
        self._save()

    @property
    def _state(self) -> PolicyState:
        return self._tracked.state

    @property
    def _holders(self) -> set[str]:
        """Return the ids of the policies that hold a setting or are writing one."""
        writing = {policy_id for policy_id, _ in self._unrecorded}
        return writing | {holding.policy_id for holding in self._state.memory.holdings.values()}

    def _steers(self, holding: Holding) -> bool:
        policy = self._policy(holding.policy_id)
        return policy is not None and policy.spec.steers

    def _adopt_steered(self, view: View) -> None:
        """Adopt the present values of steered settings: a killed agent did not save its last steps.

        Once for each setting, when a view first shows it.
        """
        for key in list(self._steered_before):
            if key not in self._state.memory.holdings:
                self._steered_before.discard(key)
            elif (current := parse_setting(key).current(view)) is not None:
                self._steered_before.discard(key)
                self.record_steering(key, current)

    def _restore(self, view: View) -> frozenset[str]:
        """Restore the settings of policies that are no longer enforced."""
        wanted, memory = restore_actions(view, self._state.policies, self._state.memory)
        self._tracked.set_memory(memory)
        blocked = self._tracked.unrestorable_settings(view.time_s)
        by_policy: dict[str, list[Action]] = {}
        for policy_id, action in sorted(wanted, key=lambda each: _moves_memory(each[1].key)):  # which may take long
            policy = self._policy(policy_id)
            stays = self.stops.apply and not (policy is not None and policy.leased)
            if action.key not in blocked and not stays:
                by_policy.setdefault(policy_id, []).append(action)
        touched: frozenset[str] = frozenset()
        for policy_id, actions in by_policy.items():
            for start in range(0, len(actions), MAX_PLAN_ACTIONS):
                touched |= self._restore_policy(policy_id, actions[start : start + MAX_PLAN_ACTIONS])
        return touched

    def _restore_policy(self, policy_id: str, actions: list[Action]) -> frozenset[str]:
        policy = self._policy(policy_id)
        name, version, mode = (policy.name, policy.version, policy.mode) if policy else (policy_id, 1, Mode.OBSERVE)
        why = f"Policy {name} is no longer enforced here."
        leaves = policy_id in self._state.leave_pages
        staying = [action for action in actions if leaves and _moves_memory(action.key)]
        actions = [action for action in actions if action not in staying]
        parts = [why]
        if actions:
            many = "1 setting is" if len(actions) == 1 else f"{len(actions)} settings are"
            parts.append(f"{many} restored to the value before the policy.")
        if staying:
            many = "1 process" if len(staying) == 1 else f"{len(staying)} processes"
            parts.append(f"The memory of {many} stays where it is, as requested.")
            self._leave(staying)
        sentence = " ".join(parts)
        if not actions:
            self._send(Evaluation(policy_id, version, mode, sentence))
            return frozenset()
        change_id = str(uuid.uuid4())
        self._send(Evaluation(policy_id, version, mode, sentence, actions), change_id)
        return self._write(policy_id, RestoreRequested(change_id, Plan(actions, allow_isolated=True), name, why))

    def _leave(self, actions: list[Action]) -> None:
        for action in actions:
            if self._changes.forget(action.key):
                self._tracked.set_memory(forget_holding(self._state.memory, action.key))

    def _write(self, policy_id: str, event: ApplyRequested | RestoreRequested) -> frozenset[str]:
        """Begin a change for a policy, and record its results if it has run already."""
        touched = self._changes.feed(event)
        self._unrecorded.append((policy_id, event.change_id))
        self._record_written()
        return touched

    def _record_written(self) -> None:
        unfinished = []
        for policy_id, change_id in self._unrecorded:
            change = self._changes.change(change_id)
            if change is not None and change.state is ChangeState.APPLYING:
                unfinished.append((policy_id, change_id))
            elif change is not None and change.restores:
                self._record_restored(policy_id, change)
            elif change is not None:
                self._tracked.record(policy_id, change, time.monotonic())
        self._unrecorded = unfinished

    def _record_restored(self, policy_id: str, change: Change) -> None:
        results = {result.key: result for result in change.results}
        now_s = time.monotonic()
        for action in change.plan.actions:
            result = results.get(action.key)
            if result is not None and result.done:
                self._tracked.set_memory(record_write(self._state.memory, policy_id, action, now_s))
            elif result is not None and result.outcome is Outcome.UNSUPPORTED:
                self._tracked.set_memory(forget_holding(self._state.memory, action.key))
            else:
                why = result.sentence if result is not None else change.sentence
                self._tracked.block_setting(action.key, why, now_s, restoring=True)

    def _evaluate(self, view: View) -> list[Evaluation]:
        policies = self.stops.allowed(self._state.policies)
        if self._observe_only:
            policies = [replace(policy, mode=Mode.OBSERVE) for policy in policies]
        memory = replace(self._state.memory, refused=self._tracked.blocked_settings(view.time_s))
        try:
            evaluations, after = evaluate_round(view, policies, memory)
        except Exception:
            sound = [policy for policy in policies if self._is_sound(view, policy, memory)]
            if len(sound) == len(policies):
                raise
            evaluations, after = evaluate_round(view, sound, memory)
            after = replace(after, memories={**memory.memories, **after.memories})
        self._tracked.set_memory(after)
        return evaluations

    def _is_sound(self, view: View, policy: PolicyInForce, memory: EngineMemory) -> bool:
        """Return whether a policy can be evaluated without an exception; an error in one must not stop the others."""
        try:
            evaluate_round(view, [policy], memory)
        except Exception as error:
            known = (policy.policy_id, policy.version)
            if known not in self._failing:
                self._failing.add(known)
                sentence = f"Policy {policy.name} is not evaluated because of an internal error; its settings stay."
                log.error("%s", sentence, exc_info=error)
                self._send(Evaluation(policy.policy_id, policy.version, policy.mode, f"{sentence} {error!r}"[:500]))
            return False
        self._failing.discard((policy.policy_id, policy.version))
        return True

    def _apply(self, evaluation: Evaluation) -> frozenset[str]:
        policy = self._policy(evaluation.policy_id)
        if policy is None or evaluation.mode is not Mode.ENFORCE or not evaluation.actions:
            if self._is_news(evaluation):
                self._send(evaluation)
            return frozenset()
        change_id = str(uuid.uuid4())
        self._send(evaluation, change_id)
        return self._write(
            policy.policy_id,
            ApplyRequested(
                change_id,
                Plan(evaluation.actions, allow_isolated=policy.spec.allow_isolated),
                MIN_CONFIRM_TIMEOUT_S,
                policy.guardrails,
                policy=policy.name,
                confirm_after_s=CONFIRM_AFTER_S,
            ),
        )

    def _is_news(self, evaluation: Evaluation) -> bool:
        """Return whether an evaluation differs from the last reported one."""
        before = self._reported.get(evaluation.policy_id)
        if before is None or before.holdout != self._holdout_report(evaluation.policy_id):
            return True
        now = _as_reported(evaluation)
        if not same_outcome(replace(before.evaluation, skipped=[]), replace(now, skipped=[])):
            return True
        long_ago = time.time_ns() // 1_000_000 - before.time_ms >= SKIPPED_REPORT_S * 1000
        return long_ago and not same_outcome(before.evaluation, now)

    def _send(self, evaluation: Evaluation, change_id: str | None = None) -> None:
        evaluation = _as_reported(evaluation)
        holdout = self._holdout_report(evaluation.policy_id)
        message = DecisionMessage(time.time_ns() // 1_000_000, evaluation, change_id, holdout)
        self._reported[evaluation.policy_id] = message
        self._report(message)

    def _holdout_report(self, policy_id: str) -> HoldoutReport | None:
        holdout = self._state.memory.holdouts.get(policy_id)
        return None if holdout is None else holdout.report

    def _policy(self, policy_id: str) -> PolicyInForce | None:
        in_force = next((policy for policy in self._state.policies if policy.policy_id == policy_id), None)
        return in_force or self._state.former.get(policy_id)

    def _save(self) -> None:
        """Save the state if a significant part has changed; per-round memories of policies are not significant."""
        former = {policy_id: policy for policy_id, policy in self._state.former.items() if policy_id in self._holders}
        self._tracked.state = replace(self._state, former=former)
        significant = self._significant()
        if significant != self._saved:
            state = self._without_leases()
            self._save_state(replace(state, memory=replace(state.memory, recommended={})))
            self._saved = significant

    def _without_leases(self) -> PolicyState:
        """Return the state for a restarted agent, in which leased policies are only to be restored."""
        if self._unleased is self._state.policies:
            return self._state
        held = {holding.policy_id for holding in self._state.memory.holdings.values()}
        leased = {policy.policy_id: policy for policy in self._state.policies if policy.policy_id in held}
        former = {**self._state.former, **leased}
        hold_from_ms = self._hold_without_leases()
        return replace(self._state, policies=self._unleased, former=former, hold_from_ms=hold_from_ms)

    def _hold_without_leases(self) -> int | None:
        """Return hold_from_ms once leased policies have ended: an experiment runs outside change windows, too."""
        is_leased = any(policy.leased for policy in self._state.policies)
        return self._unleased_hold_ms if is_leased else self._state.hold_from_ms

    def _significant(self) -> PolicyState:
        state = self._without_leases()
        memory = replace(state.memory, memories={}, recent_values={}, refused={}, recommended={})
        return replace(state, memory=memory, changes=dict(state.changes), refusals=dict(state.refusals))


def _as_reported(evaluation: Evaluation) -> Evaluation:
    return replace(evaluation, actions=[as_reported(action) for action in evaluation.actions])


def _moves_memory(key: str) -> bool:
    return isinstance(parse_setting(key), TaskMemoryNodes)
