"""Policies over HTTP, and what nodes evaluated from them."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import AwareDatetime

from coresteer.auth.dependencies import Operator, Viewer
from coresteer.db import Session
from coresteer.inputs import RowId
from coresteer.policies import backtest, evaluations, preview, rollouts, service
from coresteer.policies.schemas import (
    BacktestRequest,
    BacktestResult,
    Decision,
    Difference,
    DriftEntry,
    NodeEvaluation,
    NodeFlows,
    Policy,
    PolicyBody,
    PolicyPreviewRequest,
    PolicyVersion,
    PolicyVersionCreate,
    Rollout,
    RolloutCreate,
    RolloutStop,
)

router = APIRouter(tags=["policies"])

Limit = Annotated[int, Query(ge=1, le=500)]


@router.get("/api/policies")
async def list_policies(session: Session, _: Viewer) -> list[Policy]:
    """Every policy, by rank and name."""
    return await service.every(session)


@router.post("/api/policies", status_code=201)
async def create_policy(request: Request, identity: Operator, body: PolicyBody) -> Policy:
    """A new policy. One that observes is in force at once; others wait to be enabled or rolled out."""
    return await service.create(request.app.state.policies, body, actor=identity.username)


# before the paths with a policy's number, which would take "preview" for one
@router.post("/api/policies/preview")
async def preview_policy(request: Request, _: Viewer, body: PolicyPreviewRequest) -> list[NodeEvaluation]:
    """What a policy would do on these nodes now if it were enforced, beside those in force. Changes nothing."""
    return await preview.preview(request.app.state.policies, body)


@router.get("/api/policies/{policy_id}")
async def get_policy(session: Session, _: Viewer, policy_id: RowId) -> Policy:
    """One policy."""
    return await service.get(session, policy_id)


@router.delete("/api/policies/{policy_id}", status_code=204)
async def delete_policy(request: Request, identity: Operator, policy_id: RowId) -> None:
    """Take a policy out of force for good; nodes put back what it set."""
    await service.delete(request.app.state.policies, policy_id, actor=identity.username)


@router.get("/api/policies/{policy_id}/versions")
async def list_policy_versions(session: Session, _: Viewer, policy_id: RowId) -> list[PolicyVersion]:
    """Every version, newest first."""
    return await service.versions(session, policy_id)


@router.post("/api/policies/{policy_id}/versions", status_code=201)
async def create_policy_version(
    request: Request, identity: Operator, policy_id: RowId, body: PolicyVersionCreate
) -> PolicyVersion:
    """The next version. Of a disabled policy it takes the place of the last; an enabled one needs a rollout."""
    return await service.create_version(request.app.state.policies, policy_id, body, actor=identity.username)


@router.get("/api/policies/{policy_id}/diff")
async def diff_policy_versions(
    session: Session, _: Viewer, policy_id: RowId, *, from_version: RowId, to_version: RowId
) -> list[Difference]:
    """What differs between two versions."""
    return await service.diff(session, policy_id, from_version, to_version)


@router.post("/api/policies/{policy_id}/enable")
async def enable_policy(request: Request, identity: Operator, policy_id: RowId) -> Policy:
    """Put the policy in force on all of its nodes at once."""
    return await service.set_enabled(request.app.state.policies, policy_id, True, actor=identity.username)


@router.post("/api/policies/{policy_id}/disable")
async def disable_policy(request: Request, identity: Operator, policy_id: RowId) -> Policy:
    """Take the policy out of force; nodes put back what it set. Its rollout ends."""
    return await service.set_enabled(request.app.state.policies, policy_id, False, actor=identity.username)


@router.post("/api/policies/{policy_id}/backtest")
async def backtest_policy(request: Request, _: Viewer, policy_id: RowId, body: BacktestRequest) -> BacktestResult:
    """What the policy would have done on a node in a time of which its samples are stored."""
    return await backtest.replay(request.app.state.policies, policy_id, body)


@router.post("/api/policies/{policy_id}/rollouts", status_code=201)
async def start_rollout(request: Request, identity: Operator, policy_id: RowId, body: RolloutCreate) -> Rollout:
    """Give a version to the connected nodes in stages; undone by itself when one of them fares badly."""
    return await rollouts.start(request.app.state.policies, policy_id, body, actor=identity.username)


@router.get("/api/rollouts/{rollout_id}")
async def get_rollout(session: Session, _: Viewer, rollout_id: RowId) -> Rollout:
    """One rollout."""
    return await rollouts.get(session, rollout_id)


@router.post("/api/rollouts/{rollout_id}/stop")
async def stop_rollout(request: Request, identity: Operator, rollout_id: RowId, body: RolloutStop) -> Rollout:
    """Go no further; with undo, also take the version back from the nodes that have it."""
    return await rollouts.stop(request.app.state.policies, rollout_id, undo=body.undo, actor=identity.username)


@router.get("/api/nodes/{node_id}/decisions")
async def list_decisions(
    session: Session,
    _: Viewer,
    node_id: RowId,
    *,
    from_time: AwareDatetime | None = None,
    to_time: AwareDatetime | None = None,
    limit: Limit = 100,
) -> list[Decision]:
    """What policies evaluated on the node, newest first."""
    return await evaluations.decisions(session, node_id, from_time=from_time, to_time=to_time, limit=limit)


@router.get("/api/nodes/{node_id}/recommendations")
async def list_recommendations(session: Session, _: Viewer, node_id: RowId) -> list[Decision]:
    """The last word of each policy in force that recommends and has something to propose."""
    return await evaluations.recommendations(session, node_id)


@router.get("/api/nodes/{node_id}/drifts")
async def list_drifts(
    session: Session,
    _: Viewer,
    node_id: RowId,
    *,
    from_time: AwareDatetime | None = None,
    to_time: AwareDatetime | None = None,
    limit: Limit = 100,
) -> list[DriftEntry]:
    """What somebody else changed of what policies had set, newest first."""
    return await evaluations.drifts(session, node_id, from_time=from_time, to_time=to_time, limit=limit)


@router.get("/api/nodes/{node_id}/flows")
async def get_node_flows(request: Request, session: Session, _: Viewer, node_id: RowId) -> NodeFlows:
    """The processes that talk over the network, and where their packets arrive."""
    return await preview.flows(session, request.app.state.registry, node_id)
