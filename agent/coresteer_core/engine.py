"""One round of all policies in force on a node: precedence, damping, guard, ownership.

Pure; the node loop, a preview in the backend and a replay call the same step().
"""

from msgspec import Struct

from coresteer_core.guardrail import Guardrail
from coresteer_core.model import View
from coresteer_core.plan import Action
from coresteer_core.policies import Memory, Spec
from coresteer_core.policies.base import Conclusion, Damping, Mode, Ownership, Scope


class PolicyInForce(Struct, frozen=True):
    """A version of a policy as a node gets it. rank: of two that want the same setting the lower one has it.

    on_controller: what to do while irqbalance or TuneD runs; on_drift: when somebody changed what the policy set.
    guardrails: undo a move when one of them trips shortly after it.
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


class Holding(Struct, frozen=True):
    """A setting that a policy has set. original: before the first time; left: values it had and when they ended."""

    policy_id: str
    original: str
    value: str
    since_s: float
    left: list[tuple[str, float]] = []
    reasserted: int = 0


class EngineMemory(Struct, frozen=True):
    """What a round leaves for the next. holdings: by setting key; memories: by policy id.

    refused: settings that are not written now, by key, with the sentence why: a proposal for one is HeldBack as
    ``refused`` and takes none of the moves of a step. Whoever carries actions out keeps it; step() only hands it on.
    """

    holdings: dict[str, Holding] = {}
    memories: dict[str, Memory] = {}
    refused: dict[str, str] = {}


def step(view: View, policies: list[PolicyInForce], memory: EngineMemory) -> tuple[list[Conclusion], EngineMemory]:
    """Decide once. Conclusions in order of rank. What is to be written becomes a holding only by wrote()."""
    raise NotImplementedError


def wrote(memory: EngineMemory, policy_id: str, action: Action, time_s: float) -> EngineMemory:
    """A setting was written for a policy (or put back: then nothing is held any more)."""
    raise NotImplementedError
