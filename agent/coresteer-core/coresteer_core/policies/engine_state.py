"""Policies in force on a node, settings that they have set, and the engine's memory between two rounds."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.plan import Action
from coresteer_core.policies import Memory, Spec
from coresteer_core.policies.base import Damping, Evaluation, HoldoutReport, Mode, Ownership, Scope

_MAX_FLAPS = 5
"""Maximum doublings of the minimum time before reverting: from 180 s to 96 minutes."""


class PolicyInForce(Struct, frozen=True):
    """A policy version as the backend sends it to a node to evaluate and, by its mode, to enforce.

    rank: precedence; where two policies want the same setting, the lower rank wins.
    on_controller: reaction while irqbalance or TuneD runs; on_drift: reaction when something else changed a setting
    that the policy had set. guardrails: a violation shortly after a move rolls it back. leased: in force, or paused,
    only for an experiment. Without the backend and after a restart, an agent uses the last list without a lease.
    holdout: hold the policy out for a comparison, if its mode is enforce: the settings that it set are restored, it is
    evaluated as in mode recommend, and afterwards the values that were in force are written again. Without the backend
    and after a restart, nothing is held out.
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
    holdout: bool = False

    @property
    def precedence(self) -> tuple[int, int, str]:
        """Return the sort key of policies: the lowest wins a setting; of the same rank that is the older policy."""
        return self.rank, len(self.policy_id), self.policy_id


StopId: TypeAlias = Annotated[int, Meta(gt=0, lt=2**31)]
MAX_STOPS = 64
"""Maximum number of stops of enforcement that apply to one node."""


class EnforcementStop(Struct, frozen=True):
    """A stop of enforcement that applies to a node: until it is lifted, no policy writes there.

    restore: every setting that Coresteer changed gets its original value, once; otherwise settings keep their values.
    """

    stop_id: StopId
    restore: bool = False


class Holding(Struct, frozen=True):
    """A setting that a policy has set, with its original value.

    original: its value before any policy set it. value: as written last, at since_s (view time).
    reasserted: consecutive times that it was written again because something else had changed it.
    held_out: restored to its original while its policy is held out; value is written again afterwards.
    """

    policy_id: str
    original: str
    value: str
    since_s: float
    reasserted: int = 0
    held_out: bool = False


class Holdout(Struct, frozen=True):
    """The engine's memory of a policy's holdout.

    keys: the settings that were restored. memory: the policy's own memory from before the holdout.
    """

    report: HoldoutReport
    keys: list[str] = []
    memory: Memory | None = None


class Recommendation(Struct, frozen=True):
    """What a policy that does not enforce proposes, and the view time at which it last wanted to change anything."""

    evaluation: Evaluation
    since_s: float
    wanted_s: float


class EngineMemory(Struct, frozen=True):
    """The engine's state between two rounds. memories, holdouts, recommended: by policy id; others: by setting key.

    recent_values: values that a setting had, with the view time at which each ended, for flap damping.
    flaps: consecutive returns to such a value; each doubles the damping window.
    yielded: id of the policy that gave a setting up because something else had changed it.
    processes: started_ticks of the processes of task settings, to detect a reused PID. interrupts: the names of the
    interrupts of settings, to detect a reused number.
    refused: settings that must not be written now, with the reason as a sentence. A proposal for one is deferred as
    ``refused`` and uses none of the round's moves. Maintained by the caller that writes; evaluate_round() only passes
    it on.
    """

    holdings: dict[str, Holding] = {}
    memories: dict[str, Memory] = {}
    recent_values: dict[str, list[tuple[str, float]]] = {}
    flaps: dict[str, int] = {}
    yielded: dict[str, str] = {}
    processes: dict[str, int] = {}
    interrupts: dict[str, str] = {}
    refused: dict[str, str] = {}
    holdouts: dict[str, Holdout] = {}
    recommended: dict[str, Recommendation] = {}


def record_write(memory: EngineMemory, policy_id: str, action: Action, time_s: float) -> EngineMemory:
    """Return the engine's memory after a setting was written for a policy, or restored to its original value.

    action.was: the value that the executor found. Call it also with the inverse actions of a change that a guardrail
    rolled back: flap damping then refuses the value that was tried. time_s: view time.
    """
    holding = memory.holdings.get(action.key)
    original = action.was if holding is None else holding.original
    holdings = {key: held for key, held in memory.holdings.items() if key != action.key}
    if action.becomes != original:
        disturbed = holding is not None and holding.policy_id == policy_id and action.was != holding.value
        reasserted = holding.reasserted + 1 if disturbed and holding is not None else 0
        holdings[action.key] = Holding(policy_id, original, action.becomes, time_s, reasserted)
    earlier = memory.recent_values.get(action.key, [])
    others = [(value, ended_s) for value, ended_s in earlier if value != action.was]
    recent_values = {**memory.recent_values, action.key: [*others, (action.was, time_s)]}
    flaps = memory.flaps
    if action.becomes != original and any(value == action.becomes for value, _ in earlier):
        flaps = {**flaps, action.key: min(flaps.get(action.key, 0) + 1, _MAX_FLAPS)}
    return replace(memory, holdings=holdings, recent_values=recent_values, flaps=flaps)


def record_steering(memory: EngineMemory, key: str, value: str, time_s: float) -> EngineMemory:
    """Return the engine's memory after a policy adjusted a setting that it had set before, outside of a round.

    Unlike with record_write() the setting stays held even at its original value, and the step is not damped.
    """
    holding = replace(memory.holdings[key], value=value, since_s=time_s)
    return replace(memory, holdings={**memory.holdings, key: holding})


def forget_holding(memory: EngineMemory, key: str) -> EngineMemory:
    """Return the engine's memory without a setting that no longer exists, as its process has ended."""
    return replace(memory, holdings={k: held for k, held in memory.holdings.items() if k != key})


def forget_ended(memory: EngineMemory, key: str) -> EngineMemory:
    """Return the engine's memory without a setting of a process that has ended, whether held or yielded."""
    yielded = {k: policy for k, policy in memory.yielded.items() if k != key}
    return replace(forget_holding(memory, key), yielded=yielded)
