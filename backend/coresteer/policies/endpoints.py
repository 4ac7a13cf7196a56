"""Policies, rollouts, decisions and drifts over HTTP."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from coresteer.auth.dependencies import Operator, Viewer
from coresteer.db import Session
from coresteer.inputs import RowId
from coresteer.policies import backtest, evaluations, overview, preview, responses, rollouts, service
from coresteer.policies.overview_schemas import PolicyOverview
from coresteer.policies.rollout_schemas import Rollout, RolloutCreate
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
    PolicyResponses,
    PolicyResponsesRequest,
    PolicyVersion,
    PolicyVersionCreate,
    RolloutStop,
    Selector,
    SelectorMatches,
    TimeFilter,
)

router = APIRouter(tags=["policies"])

MatchedNodes = Annotated[Sequence[RowId], Query(max_length=50)]
LeavePages = Annotated[bool, Query(description="Memory that the policy has moved stays on its NUMA node.")]


@router.get("/api/policies")
async def list_policies(session: Session, _: Viewer) -> list[Policy]:
    """List all policies, ordered by rank and name."""
    return await service.list_policies(session)


@router.post("/api/policies", status_code=201)
async def create_policy(request: Request, identity: Operator, body: PolicyBody) -> Policy:
    """Create a policy. One in mode observe is enabled at once; any other must be enabled or rolled out."""
    return await service.create(request.app.state.policies, body, actor=identity.username)


# declared before the paths with {policy_id}, which would match "preview"
@router.post("/api/policies/preview")
async def preview_policy(request: Request, _: Viewer, body: PolicyPreviewRequest) -> list[NodeEvaluation]:
    """Evaluate a policy on nodes now as if it were enforced beside the policies in force. Changes nothing."""
    return await preview.preview(request.app.state.policies, body)


@router.post("/api/policies/matches")
async def match_policy_selector(
    request: Request, session: Session, _: Viewer, body: Selector, node_id: MatchedNodes = ()
) -> SelectorMatches:
    """Return how many nodes a selector matches now. Changes nothing. node_id: whether it matches these."""
    return await preview.matching_nodes(session, request.app.state.registry, body, node_id)


@router.get("/api/policies/{policy_id}")
async def get_policy(session: Session, _: Viewer, policy_id: RowId) -> Policy:
    """Return one policy."""
    return await service.get(session, policy_id)


@router.get("/api/policies/{policy_id}/overview")
async def get_policy_overview(request: Request, session: Session, _: Viewer, policy_id: RowId) -> PolicyOverview:
    """Return what a policy does on each of its nodes now, and what it did in the last 24 hours."""
    return await overview.overview(session, request.app.state.registry, policy_id)


@router.get("/api/policies/{policy_id}/overview.csv", response_class=Response)
async def get_policy_overview_csv(request: Request, session: Session, _: Viewer, policy_id: RowId) -> Response:
    """Return the latest decision on each node, with the changes that it makes or proposes, as CSV."""
    lines = await overview.overview_csv(session, request.app.state.registry, policy_id)
    headers = {"Content-Disposition": f'attachment; filename="policy-{policy_id}.csv"'}
    return Response(lines, media_type="text/csv", headers=headers)


@router.delete("/api/policies/{policy_id}", status_code=204)
async def delete_policy(
    request: Request, identity: Operator, policy_id: RowId, *, leave_pages: LeavePages = False
) -> None:
    """Delete a policy; nodes restore the original values of the settings that it changed."""
    await service.delete(request.app.state.policies, policy_id, leave_pages=leave_pages, actor=identity.username)


@router.get("/api/policies/{policy_id}/versions")
async def list_policy_versions(session: Session, _: Viewer, policy_id: RowId) -> list[PolicyVersion]:
    """List the versions of a policy, newest first."""
    return await service.versions(session, policy_id)


@router.post("/api/policies/{policy_id}/versions", status_code=201)
async def create_policy_version(
    request: Request, identity: Operator, policy_id: RowId, body: PolicyVersionCreate
) -> PolicyVersion:
    """Create the next version. For a disabled policy it becomes the current one; an enabled one needs a rollout."""
    return await service.create_version(request.app.state.policies, policy_id, body, actor=identity.username)


@router.get("/api/policies/{policy_id}/diff")
async def diff_policy_versions(
    session: Session, _: Viewer, policy_id: RowId, *, from_version: RowId, to_version: RowId
) -> list[Difference]:
    """List the fields that differ between two versions."""
    return await service.diff(session, policy_id, from_version, to_version)


@router.post("/api/policies/{policy_id}/enable")
async def enable_policy(request: Request, identity: Operator, policy_id: RowId) -> Policy:
    """Enable the policy on all nodes that its selector matches, at once."""
    return await service.set_enabled(request.app.state.policies, policy_id, True, actor=identity.username)


@router.post("/api/policies/{policy_id}/disable")
async def disable_policy(
    request: Request, identity: Operator, policy_id: RowId, *, leave_pages: LeavePages = False
) -> Policy:
    """Disable the policy and roll back its rollout; nodes restore the original values that it changed."""
    return await service.set_enabled(
        request.app.state.policies, policy_id, False, leave_pages=leave_pages, actor=identity.username
    )


@router.post("/api/policies/{policy_id}/backtest")
async def backtest_policy(request: Request, _: Viewer, policy_id: RowId, body: BacktestRequest) -> BacktestResult:
    """Evaluate the policy on a node's stored samples: the decisions it would have made. Changes nothing."""
    return await backtest.backtest(request.app.state.policies, policy_id, body)


@router.post("/api/policies/{policy_id}/rollouts", status_code=201)
async def start_rollout(request: Request, identity: Operator, policy_id: RowId, body: RolloutCreate) -> Rollout:
    """Roll a version out to the connected nodes in stages; it is rolled back when a guardrail is violated."""
    return await rollouts.start(request.app.state.policies, policy_id, body, actor=identity.username)


@router.get("/api/rollouts/{rollout_id}")
async def get_rollout(session: Session, _: Viewer, rollout_id: RowId) -> Rollout:
    """Return one rollout."""
    return await rollouts.get(session, rollout_id)


@router.post("/api/rollouts/{rollout_id}/stop")
async def stop_rollout(request: Request, identity: Operator, rollout_id: RowId, body: RolloutStop) -> Rollout:
    """Stop a rollout; with roll_back, nodes also return to the version that they had before."""
    return await rollouts.stop(
        request.app.state.policies, rollout_id, roll_back=body.roll_back, actor=identity.username
    )


@router.get("/api/nodes/{node_id}/decisions")
async def list_decisions(
    session: Session, _: Viewer, node_id: RowId, filters: Annotated[TimeFilter, Depends()]
) -> list[Decision]:
    """List the decisions of the policies on the node, newest first."""
    return await evaluations.decisions(session, node_id, filters)


@router.get("/api/nodes/{node_id}/recommendations")
async def list_recommendations(session: Session, _: Viewer, node_id: RowId) -> list[Decision]:
    """List the latest decision of each policy in mode recommend that proposes changes on the node."""
    return await evaluations.recommendations(session, node_id)


@router.get("/api/nodes/{node_id}/drifts")
async def list_drifts(
    session: Session, _: Viewer, node_id: RowId, filters: Annotated[TimeFilter, Depends()]
) -> list[DriftEntry]:
    """List changes that other programs made to settings that policies had set, newest first."""
    return await evaluations.drifts(session, node_id, filters)


@router.post("/api/nodes/{node_id}/policy-responses")
async def preview_policy_responses(
    request: Request, session: Session, _: Viewer, node_id: RowId, body: PolicyResponsesRequest
) -> PolicyResponses:
    """Return what the enforced policies would do if these settings had these values. Changes nothing."""
    desired = {one.key: one.value for one in body.desired}
    registry = request.app.state.registry
    return await responses.to_values(session, registry, node_id, desired, rolled_back=body.rolled_back)


@router.get("/api/nodes/{node_id}/flows")
async def get_node_flows(request: Request, session: Session, _: Viewer, node_id: RowId) -> NodeFlows:
    """Return the processes that use the network, and the queues, interrupts and CPUs that receive their packets."""
    return await preview.node_flows(session, request.app.state.registry, node_id)
