"""Evaluate all policies in force on a node in one round: precedence, flap damping, guard, drift.

Pure: the node loop, a preview in the backend and a backtest call the same evaluate_round().
"""

from collections.abc import Iterable

from msgspec.structs import replace

from coresteer_core.changes.guard import MAX_PLAN_ACTIONS, refusals
from coresteer_core.changes.plan import Action, in_write_order
from coresteer_core.node.view import View
from coresteer_core.policies import Memory, decide
from coresteer_core.policies.base import Decision, Deferred, Drift, Evaluation, Mode, Ownership, Proposal
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, Recommendation
from coresteer_core.policies.flap_damping import why_damped
from coresteer_core.policies.holdout import as_evaluated
from coresteer_core.policies.ownership import (
    controllers_of,
    current_value,
    describe_running,
    find_drifts,
    holding_view,
    interrupt_name,
    process_start_ticks,
    prune_memory,
    unbound_view,
)
from coresteer_core.settings import SettingError, parse_setting
from coresteer_core.settings.overlay import overlay

_STRENGTH = {Mode.OBSERVE: 0, Mode.RECOMMEND: 1, Mode.ENFORCE: 2}
_DEFERRED = {
    "refused": "refused",
    "owned": "owned by another controller",
    "overruled": "overruled",
    "dwell": "within dwell time",
    "flap_damping": "flap damping",
    "moves": "for a later round",
}
"""Text for a sentence by Deferred.code."""


def evaluate_round(
    view: View, policies: list[PolicyInForce], memory: EngineMemory
) -> tuple[list[Evaluation], EngineMemory]:
    """Return the evaluation of each policy for a view of the node, by rank, and the memory for the next round.

    An action becomes a holding only by record_write(). A policy overrules those after it in rank for a setting that it
    wants now or holds, but none with a stronger mode (an observing policy never blocks an enforcing one). Later
    policies see the actions of earlier ones as if they were written, so that two do not fill the same CPU at once.
    A policy that binds processes sees those that a later one bound as unbound, so that it takes them over.
    moves_per_step limits what is written, so it does not shorten a recommendation. A policy that is held out is
    evaluated as in mode recommend, but keeps its claim to the settings that it had set, so that no other takes them.
    What a policy proposes without writing stays for its dwell time, and after that while it is as good as what is
    proposed anew.
    """
    ranked = sorted((as_evaluated(policy, memory) for policy in policies), key=lambda policy: policy.precedence)
    round_ = _Round(view, prune_memory(view, ranked, memory))
    drifts = {policy.policy_id: round_.drifts(policy) for policy in ranked}
    by_id = {policy.policy_id: policy for policy in policies}
    for key, holding in round_.holdings.items():
        holder = by_id.get(holding.policy_id)
        if holder is not None and holder.mode is Mode.ENFORCE:
            round_.claims[key] = [holder]
    evaluations = []
    memories: dict[str, Memory] = {}
    recommended: dict[str, Recommendation] = {}
    planned = view
    for policy in ranked:
        seen = planned
        if policy.spec.places_processes:
            later = {each.policy_id for each in policies if each.precedence > policy.precedence}
            seen = holding_view(unbound_view(planned, round_.holdings, later), round_.holdings, policy.policy_id)
        decision = decide(seen, policy.spec, policy.scope, memory.memories.get(policy.policy_id))
        memories[policy.policy_id] = decision.memory
        evaluation = round_.evaluate(policy, decision, drifts[policy.policy_id])
        if policy.mode is not Mode.ENFORCE:
            recommended[policy.policy_id] = steady = round_.steady(policy, evaluation)
            evaluation = steady.evaluation
        evaluations.append(evaluation)
        if policy.mode is Mode.ENFORCE and policy is not ranked[-1]:
            planned = overlay(planned, {action.key: action.becomes for action in evaluation.actions})
    written = (action.key for each in evaluations for action in each.actions)
    touched = dict.fromkeys([*round_.holdings, *round_.yielded, *written])
    processes = {key: ticks for key in touched if (ticks := process_start_ticks(view, key, memory)) is not None}
    interrupts = {key: name for key in touched if (name := interrupt_name(view, key)) is not None}
    return evaluations, replace(
        round_.memory,
        holdings=round_.holdings,
        memories=memories,
        yielded=round_.yielded,
        processes=processes,
        interrupts=interrupts,
        recommended=recommended,
    )


def same_outcome(a: Evaluation, b: Evaluation) -> bool:
    """Return whether two evaluations agree in everything but the figures in their sentences."""

    def outcome(evaluation: Evaluation) -> tuple[object, ...]:
        return (
            (evaluation.policy_id, evaluation.version, evaluation.mode),
            [(action.key, action.was, action.becomes) for action in evaluation.actions],
            {(each.proposal.key, each.proposal.value, each.code) for each in evaluation.deferred},
            {skipped.subject for skipped in evaluation.skipped},
            evaluation.drifts,
            evaluation.controllers,
        )

    return outcome(a) == outcome(b)


def _owner(key: str) -> str:
    """Return what a setting belongs to: settings of a process, or of a device and its queues, are written together."""
    return "/".join(key.split("/", 2)[:2]) if key.startswith("netdev/") else key.rpartition("/")[0]


def _values(evaluation: Evaluation) -> dict[str, str]:
    return {action.key: action.becomes for action in evaluation.actions}


class _Round:
    """State of one round while it evaluates one policy after another."""

    def __init__(self, view: View, memory: EngineMemory) -> None:
        self.view = view
        self.memory = memory
        self.holdings = dict(memory.holdings)
        self.yielded = dict(memory.yielded)
        self.claims: dict[str, list[PolicyInForce]] = {}
        """Policies that want or hold a setting, by its key."""

    def drifts(self, policy: PolicyInForce) -> list[Drift]:
        """Return the drifts of the settings that a policy has set; a policy that yields gives these settings up."""
        found = find_drifts(self.view, policy, self.holdings)
        if policy.on_drift is Ownership.YIELD:
            for drift in found:
                del self.holdings[drift.key]
                self.yielded[drift.key] = policy.policy_id
        return found

    def evaluate(self, policy: PolicyInForce, decision: Decision, drifts: list[Drift]) -> Evaluation:
        """Return a policy's evaluation: the proposals that become actions, and why the others are deferred."""
        decision = self._with_releases(policy, decision, drifts)
        proposals = [*decision.proposals, *_reassertions(policy, decision, drifts)]
        drifted = {drift.key: drift for drift in drifts}
        most = policy.damping.moves_per_step if policy.mode is Mode.ENFORCE else MAX_PLAN_ACTIONS
        actions: list[Action] = []
        deferred: list[Deferred] = []
        owners, seen = set[str](), set[str]()
        for proposal in proposals:
            owner = _owner(proposal.key)
            full = len(actions) >= MAX_PLAN_ACTIONS or (len(owners) >= most and owner not in owners)
            if full and proposal.key not in seen:  # hundreds may follow, so they are not examined
                seen.add(proposal.key)
                why = (
                    f"At most {most} IRQs, devices or processes change in one round; this one follows in a later round."
                )
                deferred.append(self._overruled(policy, proposal) or Deferred(proposal, "moves", why))
                continue
            restores = proposal.key in decision.restores or (
                proposal.key in decision.reverts and self._is_original(proposal)
            )
            was, value, refused = self._admitted(policy, proposal, seen, restores=restores)
            seen.add(proposal.key)
            if refused is None and was == value:
                continue
            holding = self.holdings.get(proposal.key)
            undamped = restores or proposal.key in decision.reverts or (holding is not None and holding.held_out)
            reason = (
                refused
                or self._overruled(policy, proposal)
                or why_damped(
                    self.view, self.memory, self.holdings, policy, proposal, value,
                    undamped=undamped, drift=drifted.get(proposal.key),
                )
            )  # fmt: skip
            if reason is None:
                owners.add(owner)
                actions.append(Action(proposal.key, was, value, proposal.reason))
            else:
                deferred.append(reason)
        evaluation = Evaluation(
            policy.policy_id, policy.version, policy.mode, decision.sentence, in_write_order(actions), deferred,
            decision.skipped, drifts, self._controllers(policy, actions),
        )  # fmt: skip
        return replace(evaluation, sentence=self._sentence(policy, evaluation))

    def steady(self, policy: PolicyInForce, evaluation: Evaluation) -> Recommendation:
        """Return what a policy that does not write proposes: what it proposed last, or its new evaluation."""
        now_s = self.view.time_s
        last = self.memory.recommended.get(policy.policy_id)
        if last is None or not self._still_applies(policy, last.evaluation):
            return Recommendation(evaluation, now_s, now_s)
        before = last.evaluation
        wanted_s = now_s if evaluation.actions else last.wanted_s
        if _values(evaluation) == _values(before):
            return Recommendation(evaluation, last.since_s, wanted_s)
        damped_s = policy.damping.dwell_s
        fresh = 0 <= now_s - last.since_s < damped_s or (0 <= now_s - wanted_s < damped_s and not evaluation.actions)
        if not fresh and not (evaluation.actions and self._as_good(policy, before, evaluation)):
            return Recommendation(evaluation, now_s, now_s)
        kept = replace(before, drifts=evaluation.drifts, controllers=evaluation.controllers)
        return Recommendation(kept, last.since_s, wanted_s)

    def _still_applies(self, policy: PolicyInForce, evaluation: Evaluation) -> bool:
        """Return whether a recommendation can still be carried out: by this version, with nothing of it done yet."""
        if not evaluation.actions or (evaluation.version, evaluation.mode) != (policy.version, policy.mode):
            return False
        return all(
            current_value(self.view, action.key) == action.was
            and action.key not in self.memory.refused
            and _refused(self.view, action.key, action.becomes, policy.spec.allow_isolated) is None
            and self._overruled(policy, Proposal(action.key, action.becomes, action.key, action.reason)) is None
            for action in evaluation.actions
        )

    def _as_good(self, policy: PolicyInForce, before: Evaluation, after: Evaluation) -> bool:
        """Return whether the policy would want no more after what it recommended before than after the new one."""
        memory = self.memory.memories.get(policy.policy_id)
        wants = (
            len(decide(overlay(self.view, _values(one)), policy.spec, policy.scope, memory).proposals)
            for one in (before, after)
        )
        return next(wants) <= next(wants)

    def _controllers(self, policy: PolicyInForce, actions: list[Action]) -> list[str]:
        """Return the controllers that may change what the policy writes now, has set, or may write later."""
        if not self.view.inventory.controllers:
            return []
        held = [key for key, holding in self.holdings.items() if holding.policy_id == policy.policy_id]
        keys = {*(action.key for action in actions), *held, *policy.spec.example_keys}
        return sorted({name for key in keys for name in controllers_of(self.view, key)})

    def _with_releases(self, policy: PolicyInForce, decision: Decision, drifts: list[Drift]) -> Decision:
        """Restore what a policy holds but no longer wants; drop proposals for what a steering policy already holds.

        What something else has changed since is not restored, as in restore_actions().
        """
        if decision.wanted is None:
            return decision
        for drift in drifts:
            if drift.key not in decision.wanted:
                self.holdings.pop(drift.key, None)
        held = {key: holding for key, holding in self.holdings.items() if holding.policy_id == policy.policy_id}
        why = "The policy no longer sets it; its value from before the policy is restored."
        released = [
            Proposal(key, holding.original, key, why)
            for key, holding in held.items()
            if key not in decision.wanted and current_value(self.view, key) is not None
        ]
        wanted = [each for each in decision.proposals if not policy.spec.steers or each.key not in held]
        restores = decision.restores | {proposal.key for proposal in released}
        return replace(decision, proposals=[*released, *wanted], restores=restores)

    def _admitted(
        self, policy: PolicyInForce, proposal: Proposal, seen: set[str], *, restores: bool
    ) -> tuple[str, str, Deferred | None]:
        """Return a proposal's current and desired value, and why it must not be written (other policies aside)."""
        holding = self.holdings.get(proposal.key)
        try:
            setting = parse_setting(proposal.key)
            value = setting.canonical(proposal.value)
            was = setting.current(self.view)
            if restores and holding is not None:  # the original is restored literally, even if it is not canonical
                value, was, why = holding.original, was or holding.value, None
            else:
                why = _refused(self.view, proposal.key, value, policy.spec.allow_isolated)
        except SettingError as error:
            return "", "", Deferred(proposal, "refused", str(error))
        if refused := self.memory.refused.get(proposal.key):
            why = refused
        elif proposal.key in seen:
            why = f"{proposal.key} is proposed twice in one round; the first proposal counts."
        elif was is None:
            why = why or f"This node has no {proposal.key}, or its value cannot be read."
        if why is not None or was is None:
            return "", "", Deferred(proposal, "refused", why or "")
        return was, value, self._owned(policy, proposal)

    def _is_original(self, proposal: Proposal) -> bool:
        """Return whether a held setting would have its value from before the policy, which the guard does not judge."""
        holding = self.holdings.get(proposal.key)
        return holding is not None and parse_setting(proposal.key).value_in_view(holding.original) == proposal.value

    def _owned(self, policy: PolicyInForce, proposal: Proposal) -> Deferred | None:
        names = controllers_of(self.view, proposal.key)
        if names and policy.on_controller is Ownership.YIELD:
            return Deferred(proposal, "owned", f"{describe_running(names)} on this node, and this policy yields to it.")
        if self.yielded.get(proposal.key) == policy.policy_id:
            why = "This setting was changed by something else after the policy had set it, and this policy yields."
            return Deferred(proposal, "owned", why)
        return None

    def _overruled(self, policy: PolicyInForce, proposal: Proposal) -> Deferred | None:
        claims = self.claims.setdefault(proposal.key, [])
        winner = next(
            (
                other
                for other in claims
                if other.precedence < policy.precedence and _STRENGTH[other.mode] >= _STRENGTH[policy.mode]
            ),
            None,
        )
        if winner is None:
            claims.append(policy)
            return None
        lower = winner.rank < policy.rank
        ranks = "its rank is lower ({}, not {})" if lower else "both have rank {}, and it is older"
        why = f"“{winner.name}” takes precedence over “{policy.name}”: {ranks.format(winner.rank, policy.rank)}."
        return Deferred(proposal, "overruled", why)

    @staticmethod
    def _sentence(policy: PolicyInForce, evaluation: Evaluation) -> str:
        """Return the decision's sentence with what the engine adds to it."""
        parts = [evaluation.sentence]
        if evaluation.controllers and policy.on_controller is Ownership.WARN:
            what = "undo this" if evaluation.actions else "change the same settings"
            parts.append(f"{describe_running(evaluation.controllers)} on this node and may {what}.")
        if evaluation.deferred:
            codes = [each.code for each in evaluation.deferred]
            counts = ", ".join(f"{codes.count(code)} {_DEFERRED[code]}" for code in _DEFERRED if code in codes)
            parts.append(f"Deferred: {counts}.")
        if drifts := evaluation.drifts:
            many = "settings were" if len(drifts) > 1 else "setting was"
            parts.append(f"{len(drifts)} {many} changed by {drifts[0].cause or 'something else'}.")
        return " ".join(parts)


def _reassertions(policy: PolicyInForce, decision: Decision, drifts: list[Drift]) -> Iterable[Proposal]:
    """Yield the drifted settings that a policy writes again, unless it proposes another value for them."""
    proposed = {proposal.key for proposal in decision.proposals}
    for drift in drifts:
        wanted = decision.wanted is None or drift.key in decision.wanted
        if policy.on_drift is Ownership.REASSERT and wanted and drift.key not in proposed:
            source = drift.cause or "Something else"
            reason = f"{source} changed it from {drift.expected} to {drift.found}; this policy re-asserts its value."
            yield Proposal(drift.key, drift.expected, drift.key, reason)


def _refused(view: View, key: str, value: str, allow_isolated: bool) -> str | None:
    """Return why the guard refuses a value of a setting, else None. Raises SettingError for an unknown setting."""
    return next((refusal.sentence for refusal in refusals(view, [(key, value)], allow_isolated=allow_isolated)), None)
