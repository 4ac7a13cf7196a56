"""One round of all policies in force on a node: precedence, damping, guard, ownership.

Pure; the node loop, a preview in the backend and a replay call the same step().
"""

from collections.abc import Iterable, Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.changes.guard import MAX_MOVES, refusals
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.plan import Action
from coresteer_core.node.view import View
from coresteer_core.policies import Memory, Spec, decide
from coresteer_core.policies.base import (
    Damping,
    Decision,
    Deferred,
    Drift,
    Evaluation,
    Mode,
    Ownership,
    Proposal,
    Scope,
)
from coresteer_core.settings import NetdevParam, QueueParam, SettingError, TaskAffinity, TaskNice, parse_setting
from coresteer_core.settings.overlay import overlay

_MOST_DOUBLINGS = 10
"""A setting that somebody keeps changing is put back about every eight hours in the end (30 s dwell time)."""
_MOST_SWINGS = 5
"""A setting that two policies or a slow swing of the load throw to and fro moves once in 96 minutes in the end."""
_FAR = {Mode.OBSERVE: 0, Mode.RECOMMEND: 1, Mode.ENFORCE: 2}


class PolicyInForce(Struct, frozen=True):
    """A version of a policy as a node gets it. rank: of two that want the same setting the lower one has it.

    on_controller: what to do while irqbalance or TuneD runs; on_drift: when somebody changed what the policy set.
    guardrails: undo a move when one of them trips shortly after it. leased: it is in force for an
    experiment only, or pauses for one. Without the backend, and in a restarted agent, those told last of which none was
    leased are in force again.
    """

    policy_id: str
    version: int
    name: str
    rank: int
    mode: Mode
    spec: Spec
    scope: Scope = Scope()
    damping: Damping = Damping()
    on_controller: Ownership = Ownership.WARN
    on_drift: Ownership = Ownership.WARN
    guardrails: list[Guardrail] = []
    leased: bool = False

    @property
    def precedence(self) -> tuple[int, int, str]:
        """Sorts policies; the lower one has a setting that two want. Of the same rank, that is the older policy."""
        return self.rank, len(self.policy_id), self.policy_id


class Holding(Struct, frozen=True):
    """A setting that a policy has set. original: before the first time; since_s: when value was written last.

    reasserted: how often in a row it was written again because somebody else had changed it.
    """

    policy_id: str
    original: str
    value: str
    since_s: float
    reasserted: int = 0


class EngineMemory(Struct, frozen=True):
    """What a round leaves for the next. memories: by policy id; the others by setting key.

    left: values that a setting had and when they ended, for ping-pong. swings: how often in a row a setting went back
    to such a value; each time doubles its window. yielded: the policy that gave a setting up because somebody else
    had changed it. processes: started_ticks of the processes that task settings are about, so
    that a later process with the number of an earlier one is told from it. refused: settings that are not written now,
    with the sentence why: a proposal for one is Deferred as ``refused`` and takes none of the moves of a step. Whoever
    carries actions out keeps it; step() only hands it on.
    """

    holdings: dict[str, Holding] = {}
    memories: dict[str, Memory] = {}
    left: dict[str, list[tuple[str, float]]] = {}
    swings: dict[str, int] = {}
    yielded: dict[str, str] = {}
    processes: dict[str, int] = {}
    refused: dict[str, str] = {}


def step(view: View, policies: list[PolicyInForce], memory: EngineMemory) -> tuple[list[Evaluation], EngineMemory]:
    """Decide once. Conclusions in order of rank. What is to be written becomes a holding only by wrote().

    A policy overrules those after it in rank for a setting that it wants now or holds, but none that goes further
    than itself (an observing one never holds up an enforcing one). Policies see what those before them are about to
    write as if it stood already, so that two do not fill the same CPU at once. moves_per_step bounds what is written,
    so it does not shorten a recommendation.
    """
    ranked = sorted(policies, key=lambda policy: policy.precedence)
    round_ = _Round(view, _still_there(view, ranked, memory))
    drifts = {policy.policy_id: round_.drifts(policy) for policy in ranked}
    by_id = {policy.policy_id: policy for policy in ranked}
    for key, holding in round_.holdings.items():
        holder = by_id.get(holding.policy_id)
        if holder is not None and holder.mode is Mode.ENFORCE:
            round_.claims[key] = [holder]
    evaluations = []
    memories: dict[str, Memory] = {}
    seen = view
    for policy in ranked:
        decision = decide(seen, policy.spec, policy.scope, memory.memories.get(policy.policy_id))
        # decide() gives a policy's own struct back, as Decision cannot say
        memories[policy.policy_id] = cast(Memory, decision.memory)
        evaluations.append(evaluation := round_.evaluate(policy, decision, drifts[policy.policy_id]))
        if policy.mode is Mode.ENFORCE and policy is not ranked[-1]:
            seen = overlay(seen, {action.key: action.becomes for action in evaluation.actions})
    touched = dict.fromkeys([*round_.holdings, *(action.key for said in evaluations for action in said.actions)])
    processes = {key: ticks for key in touched if (ticks := _process(view, key, memory)) is not None}
    return evaluations, replace(
        round_.memory, holdings=round_.holdings, memories=memories, yielded=round_.yielded, processes=processes
    )


def wrote(memory: EngineMemory, policy_id: str, action: Action, time_s: float) -> EngineMemory:
    """A setting was written for a policy (or put back: then nothing is held any more).

    action.was: what really stood there, as the executor found it. Also to be called with the inverse actions of a
    change that a guardrail undid: the value that it tried is then not tried again within the window.
    """
    holding = memory.holdings.get(action.key)
    original = action.was if holding is None else holding.original
    holdings = {key: held for key, held in memory.holdings.items() if key != action.key}
    if action.becomes != original:
        disturbed = holding is not None and holding.policy_id == policy_id and action.was != holding.value
        reasserted = holding.reasserted + 1 if disturbed and holding is not None else 0
        holdings[action.key] = Holding(policy_id, original, action.becomes, time_s, reasserted)
    others = [(old, ended_s) for old, ended_s in memory.left.get(action.key, []) if old != action.was]
    left = {**memory.left, action.key: [*others, (action.was, time_s)]}
    swings = memory.swings
    if action.becomes != original and any(old == action.becomes for old, _ in memory.left.get(action.key, [])):
        swings = {**swings, action.key: min(swings.get(action.key, 0) + 1, _MOST_SWINGS)}
    return replace(memory, holdings=holdings, left=left, swings=swings)


def steered(memory: EngineMemory, key: str, value: str, time_s: float) -> EngineMemory:
    """A held setting was given another value by the policy that holds it and steers it.

    Unlike wrote() it stays held where that is the original value, and is no move to be damped.
    """
    holding = replace(memory.holdings[key], value=value, since_s=time_s)
    return replace(memory, holdings={**memory.holdings, key: holding})


def forget(memory: EngineMemory, key: str) -> EngineMemory:
    """The node has no such setting any more (its process ended): nothing is held."""
    return replace(memory, holdings={k: held for k, held in memory.holdings.items() if k != key})


def returns(
    view: View, policies: list[PolicyInForce], memory: EngineMemory
) -> tuple[list[tuple[str, Action]], EngineMemory]:
    """What puts back the settings of policies that no longer enforce, each with its policy's id.

    policies: all that are in force. What somebody else has changed since, or what stands as it was before, is not
    written but left out of the memory returned; each of the others leaves it by wrote() once it is put back, or by
    forget() when it is gone. What was written last goes back first: some drivers take no rx-usecs while adaptive-rx
    is on.
    """
    enforcing = {policy.policy_id for policy in policies if policy.mode is Mode.ENFORCE}
    memory = replace(memory, holdings=_held_by_same(view, memory))
    actions = []
    for key, holding in reversed(memory.holdings.items()):
        if holding.policy_id in enforcing:
            continue
        if _stands(view, key, holding.value) is False:
            memory = forget(memory, key)
            continue
        reason = "The policy that set this is no longer enforced here; back to what it was before."
        actions.append((holding.policy_id, Action(key, holding.value, holding.original, reason)))
    return actions, memory


def alike(a: Evaluation, b: Evaluation) -> bool:
    """Whether two evaluations say the same but for the figures in their sentences."""

    def gist(evaluation: Evaluation) -> tuple[object, ...]:
        return (
            (evaluation.policy_id, evaluation.version, evaluation.mode),
            [(action.key, action.was, action.becomes) for action in evaluation.actions],
            {(held.proposal.key, held.proposal.value, held.code) for held in evaluation.deferred},
            {skipped.subject for skipped in evaluation.skipped},
            evaluation.drifts,
        )

    return gist(a) == gist(b)


class _Round:
    """The state of one step() while it goes through the policies."""

    def __init__(self, view: View, memory: EngineMemory) -> None:
        self.view = view
        self.memory = memory
        self.holdings = dict(memory.holdings)
        self.yielded = dict(memory.yielded)
        self.claims: dict[str, list[PolicyInForce]] = {}
        """Who wants or holds a setting."""

    def drifts(self, policy: PolicyInForce) -> list[Drift]:
        """What somebody else changed of what a policy holds; a yielding policy gives it up."""
        found: list[Drift] = []
        if policy.mode is not Mode.ENFORCE:
            return found
        for key, holding in list(self.holdings.items()):
            if holding.policy_id != policy.policy_id or self.view.time_s <= holding.since_s:
                continue  # not its own, or a view from before the write
            if _stands(self.view, key, holding.value) is not False:
                continue
            cause = _cause(self.view, key)
            found.append(Drift(key, holding.value, _current(self.view, key) or "", cause, policy.on_drift))
            if policy.on_drift is Ownership.YIELD:
                del self.holdings[key]
                self.yielded[key] = policy.policy_id
        return found

    def evaluate(self, policy: PolicyInForce, decision: Decision, drifts: list[Drift]) -> Evaluation:
        """What of a policy's proposals is to be written."""
        decision = self._steered(policy, decision)
        proposals = [*decision.proposals, *_reassertions(policy, decision, drifts)]
        drifted = {drift.key: drift for drift in drifts}
        most = policy.damping.moves_per_step if policy.mode is Mode.ENFORCE else MAX_MOVES
        actions: list[Action] = []
        deferred: list[Deferred] = []
        seen: set[str] = set()
        for proposal in proposals:
            returning = proposal.key in decision.returns
            if len(actions) >= most and proposal.key not in seen:  # hundreds may wait, so they are not looked into
                seen.add(proposal.key)
                why = f"{most} settings in one round are the most; this one waits for a later one."
                deferred.append(self._overruled(policy, proposal) or Deferred(proposal, "moves", why))
                continue
            was, value, held = self._admitted(policy, proposal, seen, returning)
            seen.add(proposal.key)
            if held is None and was == value:
                continue
            held = held or self._overruled(policy, proposal)
            free = returning or proposal.key in decision.retreats
            held = held or self._damped(policy, proposal, value, free, drifted.get(proposal.key))
            if held is None:
                actions.append(Action(proposal.key, was, value, proposal.reason))
            else:
                deferred.append(held)
        return Evaluation(
            policy.policy_id,
            policy.version,
            policy.mode,
            self._sentence(policy, decision, actions, deferred, drifts),
            actions,
            deferred,
            decision.skipped,
            drifts,
        )

    def _steered(self, policy: PolicyInForce, decision: Decision) -> Decision:
        """For a policy that steers what it holds: without proposals for that, and with what it no longer wants."""
        if decision.steers is None:
            return decision
        held = {key: holding for key, holding in self.holdings.items() if holding.policy_id == policy.policy_id}
        why = "It is of no class any more; back to what it was before."
        released = [
            Proposal(key, holding.original, key, why)
            for key, holding in held.items()
            if key not in decision.steers and _current(self.view, key) is not None
        ]
        wanted = [proposal for proposal in decision.proposals if proposal.key not in held]
        returns = decision.returns | {proposal.key for proposal in released}
        return replace(decision, proposals=[*released, *wanted], returns=returns)

    def _admitted(
        self, policy: PolicyInForce, proposal: Proposal, seen: set[str], returning: bool
    ) -> tuple[str, str, Deferred | None]:
        """The current and the wanted value, and what forbids to write it whatever the other policies want."""
        holding = self.holdings.get(proposal.key)
        try:
            setting = parse_setting(proposal.key)
            value = setting.canonical(proposal.value)
            was = setting.current(self.view)
            if returning and holding is not None:  # odd as the original may be, it goes back to just that
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

    def _owned(self, policy: PolicyInForce, proposal: Proposal) -> Deferred | None:
        controllers = _controllers(self.view, proposal.key)
        if controllers and policy.on_controller is Ownership.YIELD:
            return Deferred(proposal, "owned", f"{_run(controllers)} on this node, and this policy yields to it.")
        if self.yielded.get(proposal.key) == policy.policy_id:
            why = "Somebody else changed this setting after the policy had set it, and this policy yields."
            return Deferred(proposal, "owned", why)
        return None

    def _overruled(self, policy: PolicyInForce, proposal: Proposal) -> Deferred | None:
        claims = self.claims.setdefault(proposal.key, [])
        winner = next(
            (
                other
                for other in claims
                if other.precedence < policy.precedence and _FAR[other.mode] >= _FAR[policy.mode]
            ),
            None,
        )
        if winner is None:
            claims.append(policy)
            return None
        why = f"“{winner.name}” (rank {winner.rank}) has this setting before “{policy.name}” (rank {policy.rank})."
        return Deferred(proposal, "overruled", why)

    def _damped(
        self, policy: PolicyInForce, proposal: Proposal, value: str, free: bool, drift: Drift | None
    ) -> Deferred | None:
        now = self.view.time_s
        holding = self.holdings.get(proposal.key)
        if drift is not None and drift.response is Ownership.WARN:
            why = f"{drift.cause or 'Somebody else'} set it to {drift.found}; this policy warns and leaves it."
            return Deferred(proposal, "owned", why)
        if free:
            return None
        if holding is not None:
            stood_s = now - holding.since_s
            wait_s = policy.damping.dwell_s
            if drift is not None:
                wait_s *= 1 << min(holding.reasserted, _MOST_DOUBLINGS)
            if 0 <= stood_s < wait_s:
                why = f"It was set {stood_s:.0f} s ago and stays for {wait_s:.0f} s."
                return Deferred(proposal, "dwell", why)
        window_s = policy.damping.window_s * (1 << self.memory.swings.get(proposal.key, 0))
        for old, ended_s in self.memory.left.get(proposal.key, []):
            if old == value and 0 <= now - ended_s < window_s:
                why = f"It left {value} {now - ended_s:.0f} s ago and does not go back within {window_s:.0f} s."
                return Deferred(proposal, "flap_damping", why)
        return None

    def _sentence(
        self,
        policy: PolicyInForce,
        decision: Decision,
        actions: list[Action],
        deferred: list[Deferred],
        drifts: list[Drift],
    ) -> str:
        parts = [decision.sentence]
        who = sorted({name for action in actions for name in _controllers(self.view, action.key)})
        if who and policy.on_controller is Ownership.WARN:
            parts.append(f"{_run(who)} on this node and may undo this.")
        if deferred:
            codes = [held.code for held in deferred]
            counts = ", ".join(f"{codes.count(code)} {_DEFERRED[code]}" for code in _DEFERRED if code in codes)
            parts.append(f"Held back: {counts}.")
        if drifts:
            many = "settings were" if len(drifts) > 1 else "setting was"
            parts.append(f"{len(drifts)} {many} changed by {drifts[0].cause or 'somebody else'}.")
        return " ".join(parts)


_DEFERRED = {
    "refused": "refused",
    "owned": "left to another controller",
    "overruled": "overruled",
    "dwell": "set too recently",
    "flap_damping": "not to go back and forth",
    "moves": "for a later round",
}


def _reassertions(policy: PolicyInForce, decision: Decision, drifts: list[Drift]) -> Iterable[Proposal]:
    """What a policy that takes over writes again, where it does not want something new by itself."""
    wanted = {proposal.key for proposal in decision.proposals}
    for drift in drifts:
        if policy.on_drift is Ownership.REASSERT and drift.key not in wanted:
            who = drift.cause or "Somebody else"
            reason = f"{who} changed it from {drift.expected} to {drift.found}; this policy takes it over again."
            yield Proposal(drift.key, drift.expected, drift.key, reason)


def _refused(view: View, key: str, value: str, allow_isolated: bool) -> str | None:
    """Why the guard does not let a value be written. Raises SettingError for what is not a setting."""
    return next((refusal.sentence for refusal in refusals(view, [(key, value)], allow_isolated=allow_isolated)), None)


def _current(view: View, key: str) -> str | None:
    """The value of a setting that the view shows; None where it does not know it."""
    try:
        return parse_setting(key).current(view)
    except SettingError:
        return None


def _stands(view: View, key: str, value: str) -> bool | None:
    """Whether a setting has a value, but for CPUs that went offline since; None where the view does not know."""
    current = _current(view, key)
    if current is None or current == value:
        return None if current is None else True
    setting = parse_setting(key)
    cpus = setting.cpus(value)
    return setting.equal(current, setting.shown(value)) or (
        bool(cpus) and setting.cpus(current) == cpus & view.topology.online()
    )


def _controllers(view: View, key: str) -> list[str]:
    """Running programs that set the same as a key; irqbalance moves interrupts and nothing else."""
    return [name for name in view.inventory.controllers if name != "irqbalance" or key.startswith("irq/")]


def _cause(view: View, key: str) -> str | None:
    """Who may have changed a setting, as far as the node shows it: another controller, or the driver that was let."""
    setting = parse_setting(key)
    driver = setting.moved_by(view) if isinstance(setting, NetdevParam | QueueParam) else None
    return driver or " and ".join(_controllers(view, key)) or None


def _run(controllers: Sequence[str]) -> str:
    return f"{' and '.join(controllers)} {'runs' if len(controllers) == 1 else 'run'}"


def _process(view: View, key: str, memory: EngineMemory) -> int | None:
    """started_ticks of the process that a task setting is about, as last known."""
    setting = parse_setting(key)
    if not isinstance(setting, TaskAffinity | TaskNice):
        return None
    seen = view.task(setting.pid)
    return memory.processes.get(key) if seen is None else seen.started_ticks


def _held_by_same(view: View, memory: EngineMemory) -> dict[str, Holding]:
    """Holdings without those of processes whose number another process has now."""
    return {
        key: holding
        for key, holding in memory.holdings.items()
        if key not in memory.processes or memory.processes[key] == _process(view, key, memory)
    }


def _still_there(view: View, policies: list[PolicyInForce], memory: EngineMemory) -> EngineMemory:
    """A memory without what is gone or over.

    A process that no longer talks, and its cgroup, is not in the view and yet there, so its holdings stay; devices are
    all in the view, unless it has none at all because they could not be read.
    """
    window_s = max((policy.damping.window_s for policy in policies), default=0.0)
    yielding = {policy.policy_id for policy in policies if policy.on_drift is Ownership.YIELD}

    def remembered_s(key: str) -> float:
        """Twice the time for which a value is not returned to: going back soon after that is a swing too."""
        return 2 * window_s * (1 << memory.swings.get(key, 0))

    def there(key: str) -> bool:
        return key.startswith(("task/", "cgroup/")) or not view.inventory.irqs or _current(view, key) is not None

    left = {
        key: recent
        for key, values in memory.left.items()
        if (recent := [(value, at_s) for value, at_s in values if 0 <= view.time_s - at_s < remembered_s(key)])
    }
    return replace(
        memory,
        holdings={key: held for key, held in _held_by_same(view, memory).items() if there(key)},
        left=left,
        swings={key: count for key, count in memory.swings.items() if key in left},
        yielded={key: who for key, who in memory.yielded.items() if who in yielding and there(key)},
    )
