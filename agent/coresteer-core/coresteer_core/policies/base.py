"""What every policy takes and gives. A policy is one module beside this one, with decide(view, spec, memory)."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from coresteer_core.changes.plan import Action


class Mode(StrEnum):
    """How far a policy goes: it shows what it thinks, proposes plans, or carries them out."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    ENFORCE = "enforce"


class Ownership(StrEnum):
    """What to do where somebody else sets the same settings (another controller runs, or a value drifted)."""

    YIELD = "yield"
    WARN = "warn"
    REASSERT = "reassert"


class Scope(Struct, frozen=True):
    """What on a node a policy is about, as shell patterns (fnmatch); an empty list is everything.

    netdevs: names; drivers: of netdevs; tasks: names of processes; cgroups: paths.
    """

    netdevs: list[str] = []
    drivers: list[str] = []
    tasks: list[str] = []
    cgroups: list[str] = []


class Damping(Struct, frozen=True):
    """How a policy is kept from oscillating.

    moves_per_step: settings it writes in one round at most. dwell_s: how long a setting stays where a policy put it.
    window_s: a value that a setting left less than this ago is not returned to (ping-pong).
    """

    moves_per_step: Annotated[int, Meta(ge=1, le=64)] = 2
    dwell_s: Annotated[float, Meta(ge=0, le=86_400)] = 30.0
    window_s: Annotated[float, Meta(ge=0, le=86_400)] = 180.0


STEP_S = 5.0
"""How often the node loop decides."""


class Proposal(Struct, frozen=True):
    """A value that a policy wants a setting to have. subject: whom it is for, e.g. ``nginx (812)``, for people."""

    key: str
    value: str
    subject: str
    reason: str


class Skipped(Struct, frozen=True):
    """What a policy looked at and leaves as it is for one reason: the “why not”. subject: one, or many in ranges."""

    subject: str
    why: str


class Decision(Struct, frozen=True):
    """What a policy wants after looking at a node, before precedence, damping and guard.

    proposals: the most urgent first, only for settings that do not stand as wanted. returns: settings among them that
    go back to what they were before the policy, which neither dwell nor ping-pong holds up. retreats: settings among
    them that go back to an earlier value of the policy's own, as the last one did harm; the same holds for them.
    steers: settings that it goes on holding whatever it writes there later: a proposal for one that it holds already is
    left out, and what else it holds of what the view shows goes back to what it was before; None for other policies.
    sentence: the whole in one line with its numbers. memory: for the next round, the policy's own struct.
    """

    sentence: str
    memory: Struct
    proposals: list[Proposal] = []
    skipped: list[Skipped] = []
    returns: frozenset[str] = frozenset()
    retreats: frozenset[str] = frozenset()
    steers: frozenset[str] | None = None


class Deferred(Struct, frozen=True):
    """A proposal that is not carried out now, and why. code: overruled, dwell, flap_damping, moves, owned, refused."""

    proposal: Proposal
    code: str
    why: str


class Drift(Struct, frozen=True):
    """Somebody else changed a setting that a policy had set. cause: a controller's name, or None where not known."""

    key: str
    expected: str
    found: str
    cause: str | None
    response: Ownership


class Evaluation(Struct, frozen=True):
    """What one policy's round came to on one node, and why.

    actions: what is to be written now (enforce) or would be (recommend, observe). sentence: the whole in one line
    with its numbers.
    """

    policy_id: str
    version: int
    mode: Mode
    sentence: str
    actions: list[Action] = []
    deferred: list[Deferred] = []
    skipped: list[Skipped] = []
    drifts: list[Drift] = []
