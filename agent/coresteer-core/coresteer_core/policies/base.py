"""Input and output types of all policies. Each is a folder here with decide(view, spec, scope, memory)."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from coresteer_core.changes.plan import Action


class Mode(StrEnum):
    """How far a policy goes: show its decisions, propose plans, or write them."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    ENFORCE = "enforce"


class Ownership(StrEnum):
    """Reaction where something else writes the same settings: another controller runs, or a value drifted."""

    YIELD = "yield"
    WARN = "warn"
    REASSERT = "reassert"


class Scope(Struct, frozen=True):
    """The part of a node that a policy applies to, as shell patterns (fnmatch); an empty list matches everything.

    netdevs: names; drivers: of netdevs; tasks: names of processes; cgroups: paths.
    """

    netdevs: list[str] = []
    drivers: list[str] = []
    tasks: list[str] = []
    cgroups: list[str] = []


class Damping(Struct, frozen=True):
    """Limits that prevent a policy from oscillating.

    moves_per_step: at most this many settings are written in one round. dwell_s: minimum time between two moves of a
    setting. window_s: flap damping; a setting does not return to a value that it left less than this ago.
    """

    moves_per_step: Annotated[int, Meta(ge=1, le=64)] = 2
    dwell_s: Annotated[float, Meta(ge=0, le=86_400)] = 30.0
    window_s: Annotated[float, Meta(ge=0, le=86_400)] = 180.0


STEP_S = 5.0
"""Period of the evaluation rounds of the node loop."""


class Proposal(Struct, frozen=True):
    """A value that a policy wants a setting to have. subject: what it is for, e.g. ``nginx (812)``, for people."""

    key: str
    value: str
    subject: str
    reason: str


class Skipped(Struct, frozen=True):
    """Subjects that a policy examined and does not change, with the common reason. subject: one, or many in ranges."""

    subject: str
    why: str


class Decision(Struct, frozen=True):
    """What a policy wants for one view, before precedence, flap damping and guard.

    proposals: the most urgent first, only for settings that do not have the desired value yet.
    restores: keys of proposals that restore the value from before the policy; reverts: keys of proposals that return to
    an earlier value of the policy because the last one did harm. Neither dwell time nor flap damping delays these.
    steered: None, or for a policy that goes on adjusting its settings by itself, the keys that it wants to hold:
    proposals for those that it holds are dropped, and all others that it holds are restored.
    sentence: the whole in one line with its numbers. memory: the policy's own struct for the next round.
    """

    sentence: str
    memory: Struct
    proposals: list[Proposal] = []
    skipped: list[Skipped] = []
    restores: frozenset[str] = frozenset()
    reverts: frozenset[str] = frozenset()
    steered: frozenset[str] | None = None


class Deferred(Struct, frozen=True):
    """A proposal not written in this round, and why. code: overruled, dwell, flap_damping, moves, owned, refused."""

    proposal: Proposal
    code: str
    why: str


class Drift(Struct, frozen=True):
    """Something else changed a setting that a policy had set. cause: e.g. a controller's name; None where not known."""

    key: str
    expected: str
    found: str
    cause: str | None
    response: Ownership


class Evaluation(Struct, frozen=True):
    """The result of one policy in one round on one node, with its reasons.

    actions: written now (enforce) or proposed (recommend, observe). sentence: the whole in one line with its numbers.
    """

    policy_id: str
    version: int
    mode: Mode
    sentence: str
    actions: list[Action] = []
    deferred: list[Deferred] = []
    skipped: list[Skipped] = []
    drifts: list[Drift] = []
