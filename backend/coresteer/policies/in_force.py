"""Which version of which policy is in force on a node. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from coresteer.policies.rollout_schemas import RolloutState
from coresteer.policies.schemas import PolicyBody, VersionNodes
from coresteer.policies.selector import NodeAttributes, matches
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import PolicyInForce

IN_PROGRESS_STATES = (RolloutState.CANARY, RolloutState.BATCHES)
UNFINISHED_STATES = (*IN_PROGRESS_STATES, RolloutState.STOPPED)
"""While a rollout is one of these, it says which node has which version."""


@dataclass(frozen=True)
class PartialRollout:
    """An unfinished rollout: its nodes have to_version, all others from_version (None: no version).

    compared: the nodes of all its stages, empty once it is stopped. Their figures decide on its next stage, so no
    policy is held out there.
    """

    from_version: int | None
    to_version: int
    nodes: frozenset[int]
    compared: frozenset[int] = frozenset()


@dataclass(frozen=True)
class EnabledPolicy:
    """An enabled policy with the bodies of every version that a node may have now."""

    policy_id: int
    version: int
    partial: PartialRollout | None
    bodies: Mapping[int, PolicyBody]

    def version_on(self, node_id: int) -> int | None:
        """Return the policy's version on a node that the selector matches, None if it has none yet."""
        if self.partial is None:
            return self.version
        return self.partial.to_version if node_id in self.partial.nodes else self.partial.from_version


def version_in_force(policy: EnabledPolicy, attributes: NodeAttributes) -> int | None:
    """Return the version of a policy that is in force on a node, None if it does not apply there."""
    version = policy.version_on(attributes.node_id)
    return version if version is not None and matches(policy.bodies[version].selector, attributes) else None


def version_counts(policy: EnabledPolicy, nodes: Iterable[NodeAttributes]) -> list[VersionNodes]:
    """Return on how many of the nodes each version of a policy is in force, oldest version first."""
    versions = Counter(version for node in nodes if (version := version_in_force(policy, node)) is not None)
    return [VersionNodes(version=version, nodes=count) for version, count in sorted(versions.items())]


def in_force(policies: Iterable[EnabledPolicy], attributes: NodeAttributes) -> list[PolicyInForce]:
    """Return the policies in force on a node, ordered by rank."""
    found = [
        to_policy_in_force(policy.policy_id, version, policy.bodies[version])
        for policy in policies
        if (version := version_in_force(policy, attributes)) is not None
    ]
    return sorted(found, key=lambda policy: policy.precedence)


def holding_out(policies: list[PolicyInForce], held_out: tuple[int, int] | None) -> list[PolicyInForce]:
    """Return the policies in force on a node that holds one of them out. held_out: its id and version, or None."""
    if held_out is None:
        return policies
    policy_id, version = str(held_out[0]), held_out[1]
    return [
        replace(policy, holdout=True) if (policy.policy_id, policy.version) == (policy_id, version) else policy
        for policy in policies
    ]


def during_experiment(policies: Iterable[PolicyInForce], leased: Iterable[PolicyInForce]) -> list[PolicyInForce]:
    """Return the policies in force on a node while an experiment runs there: only leased ones enforce, others pause.

    Others in mode enforce are leased in mode recommend, so that they resume when the agent loses the backend.
    """
    delegated = {policy.policy_id: policy for policy in leased}
    others = [policy for policy in policies if policy.policy_id not in delegated]
    paused = [
        replace(policy, mode=Mode.RECOMMEND, leased=True) if policy.mode is Mode.ENFORCE else policy
        for policy in others
    ]
    return sorted([*paused, *delegated.values()], key=lambda policy: policy.precedence)


def to_policy_in_force(policy_id: int | str, version: int, body: PolicyBody) -> PolicyInForce:
    """Convert a version of a policy to coresteer_core's PolicyInForce."""
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
