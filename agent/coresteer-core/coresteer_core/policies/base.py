"""Input and output types of policies: modes, scope, flap damping, proposals, decisions, evaluations."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias  # Any: each kind takes its own spec and memory

from msgspec import Meta, Struct

from coresteer_core.bounds import Name, PolicyId, Sentence, UnixMs, Value, Version
from coresteer_core.changes.plan import Action
from coresteer_core.node.view import View
from coresteer_core.schema import labelled

MAX_DECISION_ACTIONS = 256
MAX_REASONS = 4096


class Mode(StrEnum):
    """How far a policy goes: show its decisions, propose plans, or write them."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    ENFORCE = "enforce"


class Ownership(StrEnum):
    """A policy's reaction when something else writes its settings: another controller runs, or a value drifted."""

    YIELD = "yield"
    WARN = "warn"
    REASSERT = "reassert"


MODE_FIELD = labelled(
    "Mode",
    options={mode.value: mode.value for mode in Mode},
    option_help={
        "observe": "The policy is evaluated and its result is shown on each node; nothing is changed.",
        "recommend": "The policy proposes changes on each node's page; a person applies them.",
        "enforce": "Each node applies the changes itself; guardrails roll back harmful ones.",
    },
)
"""Label and help texts of form fields for a Mode."""

OWNERSHIP_LABELS = {
    "warn": "warn and continue",
    "yield": "yield: leave the setting as it is",
    "reassert": "re-assert: write the policy's value again",
}
"""Labels of the values of Ownership for forms."""

Globs: TypeAlias = Annotated[list[Annotated[str, Meta(max_length=4096)]], Meta(max_length=64)]
"""List of shell patterns (fnmatch); an empty list matches everything."""


class Scope(Struct, frozen=True):
    """The netdevs, drivers, processes and cgroups that a policy applies to, as shell patterns; empty: all."""

    netdevs: Annotated[
        Globs, labelled("Network devices", "Only these devices, for example eth*.", placeholder="all")
    ] = []
    drivers: Annotated[
        Globs, labelled("Drivers", "Only devices of these drivers, for example igb.", placeholder="all")
    ] = []
    tasks: Annotated[
        Globs, labelled("Processes", "Only processes with these names, for example nginx postgres*.", placeholder="all")
    ] = []
    cgroups: Annotated[
        Globs,
        labelled("Cgroups", "Only processes in these cgroups, for example /system.slice/web*.", placeholder="all"),
    ] = []


ROUND_PERIOD_S = 5.0
"""Seconds between two evaluation rounds of an agent."""


class Damping(Struct, frozen=True):
    """Flap damping of a policy: limits that keep it from changing settings back and forth."""

    moves_per_step: Annotated[
        int,
        Meta(ge=1, le=64),
        labelled(
            "Maximum changes per round",
            "IRQs, devices or processes that the policy may change per evaluation, each with all its settings; "
            f"a node evaluates every {ROUND_PERIOD_S:g} s.",
        ),
    ] = 2
    dwell_s: Annotated[
        float,
        Meta(ge=0, le=86_400),
        labelled("Dwell time", "A setting that the policy changed is not changed again for this long.", unit="s"),
    ] = 30.0
    min_revert_s: Annotated[
        float,
        Meta(ge=0, le=86_400),
        labelled(
            "Minimum time before reverting",
            "A setting is not changed back within this time; the time doubles with each repetition.",
            unit="s",
        ),
    ] = 180.0


class PolicySpec(Struct, frozen=True):
    """Base of the parameters of each kind of policy. label, summary: the kind's name and a sentence, for forms."""

    label: ClassVar[str]
    summary: ClassVar[str]

    @property
    def allow_isolated(self) -> bool:
        """Return whether the policy may place work on isolated CPUs (isolcpus, nohz_full)."""
        return False

    @property
    def steers(self) -> bool:
        """Return whether the agent goes on adjusting the policy's settings between two rounds."""
        return False

    @property
    def places_processes(self) -> bool:
        """Return whether the policy binds processes to CPUs, also those that a policy after it in rank bound."""
        return False

    @property
    def example_keys(self) -> tuple[str, ...]:
        """Return a key of each kind of setting about which the policy warns while another controller may write it."""
        return ()


ALLOW_ISOLATED_FIELD = labelled(
    "Use isolated CPUs", "Also place work on CPUs that isolcpus or nohz_full reserve.", group="advanced"
)
"""Label and help text of the field ``allow_isolated`` of the policies that choose CPUs."""


class Proposal(Struct, frozen=True):
    """A value that a policy wants a setting to have now, with the reason. subject: for people, ``nginx (812)``."""

    key: Name
    value: Value
    subject: Name
    reason: Value


class Skipped(Struct, frozen=True):
    """Interrupts, processes or netdevs that a policy examined and does not change, with their common reason."""

    subject: Value
    why: Value


PERSISTED_POLICY_ID, PERSISTED_POLICY = "0", "persisted settings"
"""Id and name under which an agent reports that it applies persisted settings after a reboot; no policy has this id."""


class Decision(Struct, frozen=True):
    """Proposals and skipped subjects of one policy for one view of a node, before precedence, flap damping and guard.

    proposals: the most urgent first, only for settings that do not have the desired value yet.
    restores: keys of proposals that restore the value from before the policy; reverts: keys of proposals that return to
    an earlier value of the policy because the last one did harm. Neither dwell time nor flap damping delays these.
    wanted: None, or the keys of all settings that the policy wants to hold: others that it holds are restored. A policy
    that goes on adjusting its settings by itself proposes nothing for those that it holds.
    sentence: the whole in one line with its numbers. memory: the policy's own struct for the next round.
    """

    sentence: str
    memory: Struct
    proposals: list[Proposal] = []
    skipped: list[Skipped] = []
    restores: frozenset[str] = frozenset()
    reverts: frozenset[str] = frozenset()
    wanted: frozenset[str] | None = None


class Deferred(Struct, frozen=True):
    """A proposal that is not written in this round, and why.

    code: overruled (by another policy), dwell, flap_damping, moves (limit per round), owned (by another program),
    refused (by the guard).
    """

    proposal: Proposal
    code: Name
    why: Value


class Drift(Struct, frozen=True):
    """A change by something else of a setting that a policy had set. cause: a program's name; None where unknown."""

    key: Name
    expected: Value
    found: Value
    cause: Name | None
    response: Ownership


class Evaluation(Struct, frozen=True):
    """The result of one policy in one round on one node, with its reasons.

    actions: written now (enforce) or proposed (recommend, observe). sentence: the whole in one line with its numbers.
    controllers: others that are active on the node and may change settings that the policy writes or has set.
    """

    policy_id: PolicyId
    version: Version
    mode: Mode
    sentence: Value
    actions: Annotated[list[Action], Meta(max_length=MAX_DECISION_ACTIONS)] = []
    deferred: Annotated[list[Deferred], Meta(max_length=MAX_REASONS)] = []
    skipped: Annotated[list[Skipped], Meta(max_length=MAX_REASONS)] = []
    drifts: Annotated[list[Drift], Meta(max_length=MAX_DECISION_ACTIONS)] = []
    controllers: Annotated[list[Name], Meta(max_length=64)] = []


class HoldoutState(StrEnum):
    """State of a policy's holdout: its settings are being restored, are restored, being written again, in force.

    refused: it cannot be held out, so it is in force.
    """

    ENTERING = "entering"
    HELD_OUT = "held_out"
    LEAVING = "leaving"
    IN_FORCE = "in_force"
    REFUSED = "refused"


class HoldoutReport(Struct, frozen=True):
    """State of a policy's holdout on a node, and since when.

    since_ms: Unix time of the node's clock at which the state was reached. excepted: settings that are not in this
    state, with the reason. why: a sentence for refused, in which the policy is in force; else empty.
    """

    state: HoldoutState
    version: Version
    since_ms: UnixMs
    excepted: Annotated[list[Skipped], Meta(max_length=MAX_REASONS)] = []
    why: Sentence = ""


class PolicyKind(NamedTuple):
    """A kind of policy: its parameters, its memory between rounds, and its pure decision function."""

    spec: type[PolicySpec]
    memory: type[Struct]
    decide: Callable[[View, Any, Scope, Any], Decision]
