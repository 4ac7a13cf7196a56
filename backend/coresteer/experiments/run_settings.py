"""Applies the settings and policies of a run's arm, and rolls them back."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

import msgspec

from coresteer.auth.dependencies import Identity
from coresteer.auth.schemas import Role
from coresteer.changes import requests as changes
from coresteer.changes.schemas import ChangeRequest, GuardrailIn, PlanIn
from coresteer.db import Database
from coresteer.errors import Problem
from coresteer.experiments import arm_config
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.session_state import ActiveRun
from coresteer.experiments.spec import Arm, PlannedRun, Spec
from coresteer.policies import repository as policies
from coresteer.policies.in_force import to_policy_in_force
from coresteer.policies.schemas import PolicyBody
from coresteer_core.bounds import MAX_CONFIRM_TIMEOUT_S, MIN_CONFIRM_TIMEOUT_S
from coresteer_core.changes.plan import Plan, preview
from coresteer_core.node.view import View
from coresteer_core.policies.engine_state import PolicyInForce

log = logging.getLogger("coresteer.experiments")


@dataclass(frozen=True)
class ExperimentDefinition:
    """The part of an experiment that never changes: id and spec."""

    experiment_id: int
    spec: Spec

    @property
    def identity(self) -> Identity:
        """Return the identity under which the experiment's changes are made; no user's name contains a space."""
        return Identity(f"experiment {self.experiment_id}", Role.OPERATOR, "token")


async def apply(
    context: ExperimentContext,
    definition: ExperimentDefinition,
    planned: PlannedRun,
    view: View,
    *,
    netdev: str,
    timeout_s: float,
    leased: Sequence[PolicyInForce],
) -> ActiveRun:
    """Apply the settings of a run by a change that is never confirmed, so that every failure reverts it.

    netdev: the one by which the load arrives. timeout_s: confirmation timeout in addition to the run's own time.
    Raises Problem where the guard or the agent refuses them.
    """
    spec = definition.spec
    desired = arm_config.desired_of(spec, planned.arm, netdev)
    found = preview(view, desired, reason=f"Experiment {spec.name}.")
    if found.refused:
        raise Problem(found.sentence)
    run = ActiveRun(uuid4().hex, leased=frozenset(int(policy.policy_id) for policy in leased))
    if found.plan.actions:
        run_s = arm_config.warmup_s(spec, planned.arm) + arm_config.measure_s(spec, planned.arm)
        change = await changes.apply(
            context.changes,
            node_id=spec.node_id,
            request=_request(definition, planned, found.plan, confirm_timeout_s=run_s + timeout_s),
            identity=definition.identity,
            flows=context.registry.get(spec.node_id).flows,
            experiment_id=definition.experiment_id,
        )
        run.change_id = UUID(change.id)
    return run


def _request(
    definition: ExperimentDefinition, planned: PlannedRun, plan: Plan, *, confirm_timeout_s: float
) -> ChangeRequest:
    guardrails = arm_config.node_guardrails(definition.spec)
    return ChangeRequest(
        plan=PlanIn.model_validate(msgspec.to_builtins(plan)),
        confirm_timeout_s=min(MAX_CONFIRM_TIMEOUT_S, max(MIN_CONFIRM_TIMEOUT_S, confirm_timeout_s)),
        guardrails=[GuardrailIn.model_validate(msgspec.to_builtins(each)) for each in guardrails],
        reason=f"Run {planned.number + 1} of experiment {definition.experiment_id}.",
    )


async def roll_back(context: ExperimentContext, definition: ExperimentDefinition, change_id: UUID) -> None:
    """Roll back a change of an experiment; one that has ended, or whose agent is disconnected, is only logged."""
    try:
        await changes.roll_back(context.changes, change_id=change_id, identity=definition.identity)
    except Problem as problem:
        log.info(
            "Change %s of experiment %d was not rolled back: %s", change_id, definition.experiment_id, problem.detail
        )


async def leased_policies(database: Database, spec: Spec, arm: Arm) -> list[PolicyInForce]:
    """Return the policies of an arm as the agent receives them, with the guardrails of the experiment.

    Raises Problem where a version does not exist any more.
    """
    found = []
    async with database.session() as session:
        for level in arm_config.policies_of(spec, arm):
            version = await policies.find_version(session, level.policy_id, level.version)
            if version is None:
                raise Problem(f"Policy {level.policy_id} has no version {level.version}.")
            policy = to_policy_in_force(level.policy_id, level.version, PolicyBody.model_validate(version.body))
            guardrails = [*policy.guardrails, *arm_config.node_guardrails(spec)]
            found.append(msgspec.structs.replace(policy, mode=level.mode, leased=True, guardrails=guardrails))
    return found
