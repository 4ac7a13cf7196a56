"""Which version of which policy a node has now. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from coresteer.policies.schemas import PolicyBody, RolloutState
from coresteer.policies.selector import Facts, fits
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import PolicyInForce

UNFINISHED = (RolloutState.CANARY, RolloutState.BATCHES, RolloutState.STOPPED)
"""While a rollout is one of these, it says which node has which version."""


@dataclass(frozen=True)
class Partly:
    """A rollout that is not over: the nodes that have to_version; the others have from_version, None for nothing."""

    from_version: int | None
    to_version: int
    nodes: frozenset[int]


@dataclass(frozen=True)
class Enabled:
    """An enabled policy with the bodies of every version that a node may have now."""

    policy_id: int
    version: int
    partly: Partly | None
    bodies: Mapping[int, PolicyBody]

    def version_on(self, node_id: int) -> int | None:
        """What the node has if the selector fits, None for nothing."""
        if self.partly is None:
            return self.version
        return self.partly.to_version if node_id in self.partly.nodes else self.partly.from_version


def in_force(policies: Iterable[Enabled], facts: Facts) -> list[PolicyInForce]:
    """What a node's agent is told, in order of rank."""
    found = []
    for policy in policies:
        version = policy.version_on(facts.node_id)
        if version is not None and fits(policy.bodies[version].selector, facts):
            found.append(for_agent(policy.policy_id, version, policy.bodies[version]))
    return sorted(found, key=lambda policy: policy.precedence)


def during_experiment(policies: Iterable[PolicyInForce], leased: Iterable[PolicyInForce]) -> list[PolicyInForce]:
    """What a node's agent is told while an experiment runs there: only the experiment's own policies act.

    Those that pause are leased too: without the backend they go on.
    """
    delegated = {policy.policy_id: policy for policy in leased}
    others = [policy for policy in policies if policy.policy_id not in delegated]
    paused = [
        replace(policy, mode=Mode.RECOMMEND, leased=True) if policy.mode is Mode.ENFORCE else policy
        for policy in others
    ]
    return sorted([*paused, *delegated.values()], key=lambda policy: policy.precedence)


def for_agent(policy_id: int | str, version: int, body: PolicyBody) -> PolicyInForce:
    """A version as the core takes it."""
    return PolicyInForce(
        policy_id=str(policy_id),
        version=version,
        name=body.name,
        rank=body.rank,
        mode=body.mode,
        spec=body.spec,
        scope=body.scope,
        damping=body.damping,
        on_controller=body.on_controller,
        on_drift=body.on_drift,
        guardrails=[Guardrail(guardrail.metric, guardrail.max) for guardrail in body.guardrails],
    )
