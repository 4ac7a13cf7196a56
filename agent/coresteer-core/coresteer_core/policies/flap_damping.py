"""Delay proposals that would change a setting too often: dwell time, re-assertion back-off, flap damping."""

from collections.abc import Mapping

from coresteer_core.node.view import View
from coresteer_core.policies.base import Deferred, Drift, Ownership, Proposal
from coresteer_core.policies.engine_state import EngineMemory, Holding, PolicyInForce

_MAX_DOUBLINGS = 10
"""Maximum doublings of the dwell time, one per re-assertion: from 30 s to 8 h 32 min."""


def why_damped(  # noqa: PLR0917 - the round's state and one proposal
    view: View,
    memory: EngineMemory,
    holdings: Mapping[str, Holding],
    policy: PolicyInForce,
    proposal: Proposal,
    value: str,
    *,
    undamped: bool,
    drift: Drift | None,
) -> Deferred | None:
    """Return why a proposal must wait (``owned``, ``dwell``, ``flap_damping``); None if it may be written now.

    undamped: it restores or reverts a value, so neither dwell time nor flap damping applies. drift: of this setting.
    """
    now_s = view.time_s
    holding = holdings.get(proposal.key)
    if drift is not None and drift.response is Ownership.WARN:
        changed_by = drift.cause or "Something else"
        why = f"{changed_by} set it to {drift.found}; this policy warns and does not change it."
        return Deferred(proposal, "owned", why)
    if undamped:
        return None
    if holding is not None:
        held_s = now_s - holding.since_s
        dwell_s = policy.damping.dwell_s
        if drift is not None:
            dwell_s *= 1 << min(holding.reasserted, _MAX_DOUBLINGS)
        if 0 <= held_s < dwell_s:
            why = f"It was set {held_s:.0f} s ago; the dwell time is {dwell_s:.0f} s."
            return Deferred(proposal, "dwell", why)
    min_revert_s = policy.damping.min_revert_s * (1 << memory.flaps.get(proposal.key, 0))
    for earlier, ended_s in memory.recent_values.get(proposal.key, []):
        if earlier == value and 0 <= now_s - ended_s < min_revert_s:
            why = (
                f"It had the value {value} until {now_s - ended_s:.0f} s ago; "
                f"flap damping refuses that value for {min_revert_s:.0f} s."
            )
            return Deferred(proposal, "flap_damping", why)
    return None
