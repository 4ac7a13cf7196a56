"""The node's own loop over its policies: decide, tell, carry out, and put back what no policy wants any more.

The decisions are coresteer_core.policies.engine's; here is what they need of a machine: a memory that outlives the
agent, the changes that carry them out, and patience with what did not work.
"""

import logging
import time
import uuid
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.changes.events import ApplyRequested, Change, Event, RestoreRequested
from coresteer_core.changes.guard import MAX_MOVES
from coresteer_core.changes.machine import MIN_TIMEOUT_S
from coresteer_core.changes.plan import Action, Plan, inverse
from coresteer_core.changes.report import ChangeState, EndedBy, Outcome, Result
from coresteer_core.node.view import View
from coresteer_core.policies.base import Evaluation, Mode
from coresteer_core.policies.engine import same_outcome, step
from coresteer_core.policies.engine_state import (
    EngineMemory,
    Holding,
    PolicyInForce,
    forget,
    record_steering,
    record_write,
)
from coresteer_core.policies.ownership import restorations
from coresteer_core.policies.service_class.policy import ServiceClasses
from coresteer_core.protocol import DecisionMessage
from coresteer_core.settings import parse_setting

log = logging.getLogger("coresteer.policies")

KEEP_AFTER_S = 10.0
"""How long the guardrails watch a policy's change before it is kept."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0
"""How long a setting is left alone after a policy's change of it did not work; twice as long each time in a row."""

LEFT_ALONE_S = 60.0
"""How often a evaluation is told of which only that differs what is left alone, as it does with every idle device."""


class Own(Struct, frozen=True):
    """A change made for a policy. actions: those that wrote, with what they found; returned: settings put back."""

    policy_id: str
    actions: list[Action]
    returned: list[str] = []
    confirmed: bool = False


class Refusal(Struct, frozen=True):
    """A setting that a policy leaves alone for a while. times: in a row; until_s: monotonic."""

    sentence: str
    until_s: float
    times: int


class Kept(Struct, frozen=True):
    """What outlives the agent. All but policies ends with the boot, which puts every setting back.

    former: policies that set something and are no longer enforced, until it is put back. changes: by change id.
    refusals: by setting key.
    """

    policies: list[PolicyInForce] = []
    former: dict[str, PolicyInForce] = {}
    memory: EngineMemory = EngineMemory()
    changes: dict[str, Own] = {}
    refusals: dict[str, Refusal] = {}


class Changing(Protocol):
    """What carries changes out: the agent's NodeChanges, or a simulated node's."""

    def feed(self, event: Event) -> frozenset[str]:
        """Do what follows from an event; returns the settings that were worked on."""

    def change(self, change_id: str) -> Change | None:
        """What is known of a change."""


class PolicyKeeper:
    """The policies of one node.

    kept: from the last run. keep: makes it outlive this one. tell: to the backend. ended: the settings among the held
    ones whose process has ended. observes: the agent may not write, so every policy only observes.
    """

    def __init__(
        self,
        changes: Changing,
        tell: Callable[[DecisionMessage], None],
        *,
        kept: Kept | None = None,
        keep: Callable[[Kept], None] = lambda _: None,
        ended: Callable[[EngineMemory], list[str]] = lambda _: [],
        observes: bool = False,
    ) -> None:
        self._changes = changes
        self._tell = tell
        self._kept = kept or Kept()
        self._keep = keep
        self._unleased = self._kept.policies
        """Those told last of which none was leased."""
        self._saved = self._lasting()
        self._ended = ended
        self._observes = observes
        self._told: dict[str, DecisionMessage] = {}
        self._mistaken: set[tuple[str, int]] = set()
        self._steered_before = {key for key, holding in self._kept.memory.holdings.items() if self._steers(holding)}

    @property
    def idle(self) -> bool:
        """There is nothing to decide and nothing to give back, so a step would do nothing."""
        return self._kept == Kept()

    @property
    def in_force(self) -> list[PolicyInForce]:
        """The policies in force."""
        return self._kept.policies

    def steerable(self, policy_id: str) -> dict[str, str]:
        """The settings that an enforced policy may steer now, and what it gave them last."""
        waiting = self._waiting(time.monotonic())
        enforced = {policy.policy_id for policy in self._kept.policies if policy.mode is Mode.ENFORCE}
        return {
            key: holding.value
            for key, holding in self._kept.memory.holdings.items()
            if holding.policy_id == policy_id and policy_id in enforced and key not in waiting
        }

    def record_steering(self, key: str, value: str) -> None:
        """A steerable setting was given another value. It is on disk with the next step."""
        self._remember(record_steering(self._kept.memory, key, value, time.monotonic()))

    def told(self, policies: list[PolicyInForce]) -> None:
        """These are in force from now on, in the place of those before; the next step acts on it.

        Where one of them is leased, all of them are: an experiment's is not to be known to an agent that starts anew,
        and those that pause for it are to go on there.
        """
        if policies == self._kept.policies:
            return
        if not any(policy.leased for policy in policies):
            self._unleased = policies
        known = {**self._kept.former, **{policy.policy_id: policy for policy in self._kept.policies}}
        held = {holding.policy_id for holding in self._kept.memory.holdings.values()}
        former = {policy_id: policy for policy_id, policy in known.items() if policy_id in held}
        self._kept = replace(self._kept, policies=policies, former=former)
        in_force = {policy.policy_id for policy in policies}
        self._told = {policy_id: told for policy_id, told in self._told.items() if policy_id in in_force}
        self._save()

    def end_leases(self) -> None:
        """The backend stays away: what was in force before an experiment is so again."""
        self.told(self._unleased)

    def stop(self, view: View) -> frozenset[str]:
        """The agent is about to end: what leased policies set goes back. Returns the settings that were worked on."""
        if not any(policy.leased for policy in self._kept.policies):
            return frozenset()
        self.end_leases()
        self._settle(view.time_s)
        touched = self._give_back(view)
        self._save()
        return touched

    def tell_again(self) -> None:
        """The connection was away, and what was said into it just before may never have arrived."""
        for message in self._told.values():
            self._tell(message)

    def step(self, view: View) -> frozenset[str]:
        """One round. Returns the settings that were worked on. view.time_s is now."""
        if self.idle:
            return frozenset()
        self._settle(view.time_s)
        for key in self._ended(self._kept.memory):
            self._remember(forget(self._kept.memory, key))
        self._adopt(view)
        touched = self._give_back(view)
        for evaluation in self._decide(view):
            touched |= self._carry_out(evaluation)
        self._save()
        return touched

    def _steers(self, holding: Holding) -> bool:
        policy = self._policy(holding.policy_id)
        return policy is not None and isinstance(policy.spec, ServiceClasses)

    def _adopt(self, view: View) -> None:
        """What an agent that was killed had steered since its last step is not on disk, so what stands is taken for it.

        Once for each setting, when the view shows it first.
        """
        for key in list(self._steered_before):
            if key not in self._kept.memory.holdings:
                self._steered_before.discard(key)
            elif (stands := parse_setting(key).current(view)) is not None:
                self._steered_before.discard(key)
                self.record_steering(key, stands)

    def _settle(self, now_s: float) -> None:
        """Take in what became of the changes made so far, the latest first."""
        for change_id, own in reversed(list(self._kept.changes.items())):
            change = self._changes.change(change_id)
            if change is not None and change.open:
                continue
            if change is not None and change.state is not ChangeState.CONFIRMED:
                self._undone(own, change, now_s)
            elif change is not None:
                if not own.confirmed:
                    self._kept.changes[change_id] = replace(own, confirmed=True)
                    for action in own.actions:
                        self._kept.refusals.pop(action.key, None)
                if any(action.key in self._kept.memory.holdings for action in own.actions):
                    continue  # a person may still undo it
            del self._kept.changes[change_id]
        forgiven = [key for key, refusal in self._kept.refusals.items() if now_s >= refusal.until_s + LONGEST_PAUSE_S]
        for key in forgiven:
            del self._kept.refusals[key]

    def _undone(self, own: Own, change: Change, now_s: float) -> None:
        stuck = {action.key for action in change.undo.actions}
        for action in inverse(Plan(own.actions)).actions:
            held = self._kept.memory.holdings.get(action.key)
            mine = held is None if action.key in own.returned else held is not None and held.policy_id == own.policy_id
            if mine and action.key not in stuck:
                self._remember(record_write(self._kept.memory, own.policy_id, action, now_s))
            if change.ended_by is EndedBy.AGENT_RESTART:  # nothing spoke against it, so it may be tried again at once
                earlier = self._kept.memory.recent_values
                others = {key: values for key, values in earlier.items() if key != action.key}
                self._remember(replace(self._kept.memory, recent_values=others))
            else:
                self._refuse(action.key, change.sentence, now_s)

    def _give_back(self, view: View) -> frozenset[str]:
        """Settings of policies that are no longer enforced go back to what they were before."""
        wanted, memory = restorations(view, self._kept.policies, self._kept.memory)
        self._remember(memory)
        waiting = self._waiting(view.time_s)
        by_policy: dict[str, list[Action]] = {}
        for policy_id, action in wanted:
            if action.key not in waiting:
                by_policy.setdefault(policy_id, []).append(action)
        touched: frozenset[str] = frozenset()
        for policy_id, actions in by_policy.items():
            for start in range(0, len(actions), MAX_MOVES):
                touched |= self._return(policy_id, actions[start : start + MAX_MOVES])
        return touched

    def _return(self, policy_id: str, actions: list[Action]) -> frozenset[str]:
        policy = self._policy(policy_id)
        name, version, mode = (policy.name, policy.version, policy.mode) if policy else (policy_id, 1, Mode.OBSERVE)
        why = f"Policy {name} is no longer enforced here."
        many = "1 setting goes" if len(actions) == 1 else f"{len(actions)} settings go"
        sentence = f"{why} {many} back to what stood there before it."
        change_id = str(uuid.uuid4())
        self._say(Evaluation(policy_id, version, mode, sentence, actions), change_id)
        touched = self._changes.feed(RestoreRequested(change_id, Plan(actions, allow_isolated=True), name, why))
        change = self._changes.change(change_id)
        results = {result.key: result for result in change.results} if change is not None else {}
        for action in actions:
            result = results.get(action.key)
            if result is not None and result.done:
                self._remember(record_write(self._kept.memory, policy_id, action, time.monotonic()))
            elif result is not None and result.outcome is Outcome.UNSUPPORTED:
                self._remember(forget(self._kept.memory, action.key))
            elif change is not None:
                self._refuse(action.key, result.sentence if result is not None else change.sentence, time.monotonic())
        return touched

    def _decide(self, view: View) -> list[Evaluation]:
        policies = self._kept.policies
        if self._observes:
            policies = [replace(policy, mode=Mode.OBSERVE) for policy in policies]
        memory = replace(self._kept.memory, refused=self._waiting(view.time_s))
        try:
            evaluations, after = step(view, policies, memory)
        except Exception:
            sound = [policy for policy in policies if self._is_sound(view, policy, memory)]
            if len(sound) == len(policies):
                raise
            evaluations, after = step(view, sound, memory)
            after = replace(after, memories={**memory.memories, **after.memories})
        self._remember(after)
        return evaluations

    def _is_sound(self, view: View, policy: PolicyInForce, memory: EngineMemory) -> bool:
        """Whether a policy can be decided at all; a mistake in one must not stop the others."""
        try:
            step(view, [policy], memory)
        except Exception as error:
            known = (policy.policy_id, policy.version)
            if known not in self._mistaken:
                self._mistaken.add(known)
                sentence = f"Policy {policy.name} is left out because of a mistake in it. What it set stays."
                log.error("%s", sentence, exc_info=error)
                self._say(Evaluation(policy.policy_id, policy.version, policy.mode, f"{sentence} {error!r}"[:500]))
            return False
        self._mistaken.discard((policy.policy_id, policy.version))
        return True

    def _carry_out(self, evaluation: Evaluation) -> frozenset[str]:
        policy = self._policy(evaluation.policy_id)
        if policy is None or evaluation.mode is not Mode.ENFORCE or not evaluation.actions:
            if self._is_news(evaluation):
                self._say(evaluation)
            return frozenset()
        change_id = str(uuid.uuid4())
        self._say(evaluation, change_id)
        touched = self._changes.feed(
            ApplyRequested(
                change_id,
                Plan(evaluation.actions, allow_isolated=policy.spec.allow_isolated),
                MIN_TIMEOUT_S,
                policy.guardrails,
                policy=policy.name,
                confirm_after_s=KEEP_AFTER_S,
            )
        )
        if (change := self._changes.change(change_id)) is not None:
            self._wrote(policy.policy_id, change, time.monotonic())
        return touched

    def _wrote(self, policy_id: str, change: Change, now_s: float) -> None:
        """Take in what a change did at once, or why it did nothing."""
        results = {result.key: result for result in change.results}
        stands = set(results) if change.open else {action.key for action in change.undo.actions}
        done: list[Action] = []
        for action in change.plan.actions:
            result = results.get(action.key)
            held = action.key in self._kept.memory.holdings
            if action.key in stands and result is not None and (result.outcome is Outcome.APPLIED or held):
                done.append(replace(action, was=result.found or action.was))
                self._remember(record_write(self._kept.memory, policy_id, done[-1], now_s))
            if not change.open and (not results or (result is not None and not result.done)):
                self._refuse(action.key, _why(result, change), now_s)
        returned = [action.key for action in done if action.key not in self._kept.memory.holdings]
        if change.open:
            self._kept.changes[change.change_id] = Own(policy_id, done, returned)

    def _is_news(self, evaluation: Evaluation) -> bool:
        before = self._told.get(evaluation.policy_id)
        if before is None or not same_outcome(replace(before.evaluation, skipped=[]), replace(evaluation, skipped=[])):
            return True
        long_ago = time.time_ns() // 1_000_000 - before.time_ms >= LEFT_ALONE_S * 1000
        return long_ago and not same_outcome(before.evaluation, evaluation)

    def _say(self, evaluation: Evaluation, change_id: str | None = None) -> None:
        message = DecisionMessage(time.time_ns() // 1_000_000, evaluation, change_id)
        self._told[evaluation.policy_id] = message
        self._tell(message)

    def _waiting(self, now_s: float) -> dict[str, str]:
        """Settings that are left alone now, and why."""
        waiting = {key: refusal.sentence for key, refusal in self._kept.refusals.items() if now_s < refusal.until_s}
        for change_id, own in self._kept.changes.items():
            change = self._changes.change(change_id)
            if change is not None and change.open:
                waiting |= {action.key: "Its last change is not kept yet." for action in own.actions}
        return waiting

    def _refuse(self, key: str, why: str, now_s: float) -> None:
        before = self._kept.refusals.get(key)
        times = 1 if before is None else before.times + 1
        pause_s = min(FIRST_PAUSE_S * 2 ** min(times - 1, 10), LONGEST_PAUSE_S)
        sentence = f"{why} It is not tried again for {pause_s:g} s."
        self._kept.refusals[key] = Refusal(sentence, now_s + pause_s, times)

    def _policy(self, policy_id: str) -> PolicyInForce | None:
        in_force = next((policy for policy in self._kept.policies if policy.policy_id == policy_id), None)
        return in_force or self._kept.former.get(policy_id)

    def _remember(self, memory: EngineMemory) -> None:
        self._kept = replace(self._kept, memory=memory)

    def _save(self) -> None:
        """Keep what counts when something that counts has changed; what policies note every round does not."""
        held = {holding.policy_id for holding in self._kept.memory.holdings.values()}
        former = {policy_id: policy for policy_id, policy in self._kept.former.items() if policy_id in held}
        self._kept = replace(self._kept, former=former)
        lasting = self._lasting()
        if lasting != self._saved:
            self._keep(self._outliving())
            self._saved = lasting

    def _outliving(self) -> Kept:
        """What an agent that starts anew is to know: leased policies only as what has to be put back."""
        if self._unleased is self._kept.policies:
            return self._kept
        held = {holding.policy_id for holding in self._kept.memory.holdings.values()}
        leased = {policy.policy_id: policy for policy in self._kept.policies if policy.policy_id in held}
        return replace(self._kept, policies=self._unleased, former={**self._kept.former, **leased})

    def _lasting(self) -> Kept:
        kept = self._outliving()
        memory = replace(kept.memory, memories={}, recent_values={}, refused={})
        return replace(kept, memory=memory, changes=dict(kept.changes), refusals=dict(kept.refusals))


def _why(result: Result | None, change: Change) -> str:
    return change.sentence if result is None else result.sentence
