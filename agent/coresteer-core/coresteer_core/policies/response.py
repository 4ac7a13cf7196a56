"""What enforced policies do about values that a person sets, such as those of an undo. Pure."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from coresteer_core.node.view import View
from coresteer_core.policies.base import ROUND_PERIOD_S, Evaluation, Mode, Ownership
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, Holding, PolicyInForce
from coresteer_core.settings import parse_setting
from coresteer_core.settings.overlay import overlay

_LONG_AGO_S = -1e9
"""When the policies wrote their settings, so that no dwell time or flap damping delays the answer."""
_MAX_NAMED = 2


class Reaction(StrEnum):
    """What a policy does about a value that it did not set: write its own again, warn and leave it, or give it up."""

    WRITES = "writes"
    WARNS = "warns"
    YIELDS = "yields"


class Response(Struct, frozen=True):
    """The reaction of one policy to some settings' values, with a sentence."""

    policy_id: str
    name: str
    reaction: Reaction
    keys: list[str]
    sentence: str


class Written(Struct, frozen=True):
    """A setting that a policy wrote last: its value before any policy, and the one written."""

    policy_id: str
    original: str
    value: str


def responses(
    view: View,
    policies: Sequence[PolicyInForce],
    written: Mapping[str, Written],
    desired: Mapping[str, str],
    *,
    rolled_back: bool = False,
) -> list[Response]:
    """Return what the enforced policies do in the rounds after these settings get these values.

    It evaluates the policies as their node does, on the view with the desired values, for the load as it is now: a
    policy that decides from the load may decide otherwise later. rolled_back: the values are those before changes of
    the policies, which no longer hold their settings then. Raises SettingError for a key that is no setting's.
    """
    enforced = [policy for policy in policies if policy.mode is Mode.ENFORCE and not policy.holdout]
    after = overlay(view, dict(desired))
    holdings = {
        key: Holding(one.policy_id, one.original, one.value, _LONG_AGO_S)
        for key, one in written.items()
        if one.value != one.original and not (rolled_back and key in desired)
    }
    evaluations, _ = evaluate_round(after, enforced, EngineMemory(holdings=holdings))
    by_id = {policy.policy_id: policy for policy in enforced}
    return [
        Response(each.policy_id, by_id[each.policy_id].name, reaction, list(found), sentence)
        for each in evaluations
        for reaction, found in _reactions(each, desired).items()
        if (sentence := _sentence(by_id[each.policy_id].name, reaction, found, rolled_back))
    ]


def _reactions(evaluation: Evaluation, desired: Mapping[str, str]) -> dict[Reaction, dict[str, str]]:
    """Return the desired settings that a policy writes, only warns about, or gives up, each with the policy's value."""
    writes = {action.key: action.becomes for action in evaluation.actions}
    writes |= {each.proposal.key: each.proposal.value for each in evaluation.deferred if each.code == "moves"}
    found: dict[Reaction, dict[str, str]] = {Reaction.WRITES: {k: v for k, v in writes.items() if k in desired}}
    drifts = [drift for drift in evaluation.drifts if drift.key in desired and drift.key not in writes]
    for response, reaction in ((Ownership.WARN, Reaction.WARNS), (Ownership.YIELD, Reaction.YIELDS)):
        found[reaction] = {drift.key: drift.expected for drift in drifts if drift.response is response}
    return found


def _sentence(name: str, reaction: Reaction, values: Mapping[str, str], rolled_back: bool) -> str:
    """Return a sentence on a policy's reaction; empty without settings."""
    if not values:
        return ""
    named = []
    for key, value in list(values.items())[:_MAX_NAMED]:
        setting = parse_setting(key)
        named.append(" ".join(part for part in (setting.subject, setting.title, "to", value) if part))
    more = len(values) - len(named)
    what = ", ".join(named) + (f" and {more} more" if more > 0 else "")
    match reaction:
        case Reaction.WRITES:
            soon = f"; it is evaluated every {ROUND_PERIOD_S:g} s"
            later = ", after a pause that doubles with each undo"
            return f"“{name}” is enforced here and sets {what} again{later if rolled_back else soon}."
        case Reaction.WARNS:
            return f"“{name}” had set {what}; it warns of the drift and leaves the value as it is."
        case Reaction.YIELDS:
            return f"“{name}” had set {what}; it yields and leaves the value as it is."
