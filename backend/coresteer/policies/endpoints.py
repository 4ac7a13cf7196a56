"""Policies, rollouts, decisions and drifts over HTTP."""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from coresteer.auth.dependencies import Operator, OperatorByBody, Viewer
from coresteer.auth.scope import Scope
from coresteer.db import Session
from coresteer.inputs import RowId
from coresteer.policies import backtest, evaluations, overview, preview, responses, rollouts, service
from coresteer.policies.approval_schemas import Approval
from coresteer.policies.overview_schemas import PolicyOverview
from coresteer.policies.rollout_schemas import Rollout, RolloutCreate, RolloutPace
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

router = APIRouter()

MAY_WAIT: dict[int | str, dict[str, Any]] = {  # Any: FastAPI's type
    202: {"model": Approval, "description": "It waits for the approval of another operator; nothing is changed yet."}
}

MatchedNodes = Annotated[Sequence[RowId], Query(max_length=50)]
LeavePages = Annotated[bool, Query(description="Memory that the policy has moved stays on its NUMA node.")]


@router.get("/policies")
async def list_policies(session: Session, _: Viewer) -> list[Policy]:
    """List all policies, ordered by rank and name."""
    return await service.list_policies(session)


@router.post("/policies", status_code=201)
async def create_policy(request: Request, identity: OperatorByBody, body: PolicyBody) -> Policy:
    """Create a policy. One in mode observe is enabled at once; any other must be enabled or rolled out."""
    identity.check_scope(Scope(selectors=[body.selector.labels]))
    return await service.create(request.app.state.policies, body, actor=identity.username)


# declared before the paths with {policy_id}, which would match "preview"
@router.post("/policies/preview")
async def preview_policy(request: Request, _: Viewer, body: PolicyPreviewRequest) -> list[NodeEvaluation]:
    """Evaluate a policy on nodes now as if it were enforced beside the policies in force. Changes nothing."""
    return await preview.preview(request.app.state.policies, body)


@router.post("/policies/matches")
async def match_policy_selector(
    request: Request, session: Session, _: Viewer, body: Selector, node_id: MatchedNodes = ()
) -> SelectorMatches:
    """Return how many nodes a selector matches now. Changes nothing. node_id: whether it matches these."""
    return await preview.matching_nodes(session, request.app.state.registry, body, node_id)


@router.get("/policies/{policy_id}")
async def get_policy(session: Session, _: Viewer, policy_id: RowId) -> Policy:
    """Return one policy."""
    return await service.get(session, policy_id)


@router.get("/policies/{policy_id}/overview")
async def get_policy_overview(request: Request, session: Session, _: Viewer, policy_id: RowId) -> PolicyOverview:
    """Return what a policy does on each of its nodes now, and what it did in the last 24 hours."""
    return await overview.overview(session, request.app.state.registry, policy_id)


@router.get("/policies/{policy_id}/overview.csv", response_class=Response)
async def get_policy_overview_csv(request: Request, session: Session, _: Viewer, policy_id: RowId) -> Response:
    """Return the latest decision on each node, with the changes that it makes or proposes, as CSV."""
    lines = await overview.overview_csv(session, request.app.state.registry, policy_id)
    headers = {"Content-Disposition": f'attachment; filename="policy-{policy_id}.csv"'}
    return Response(lines, media_type="text/csv", headers=headers)


@router.delete("/policies/{policy_id}", status_code=204, response_model=None, responses=MAY_WAIT)
async def delete_policy(
    request: Request, identity: Operator, policy_id: RowId, *, leave_pages: LeavePages = False
) -> Response | None:
    """Delete a policy; nodes restore the original values of the settings that it changed."""
    return _answer(
        await service.delete(request.app.state.policies, policy_id, leave_pages=leave_pages, actor=identity.username)
    )


@router.get("/policies/{policy_id}/versions")
async def list_policy_versions(session: Session, _: Viewer, policy_id: RowId) -> list[PolicyVersion]:
    """List the versions of a policy, newest first."""
    return await service.versions(session, policy_id)


@router.post("/policies/{policy_id}/versions", status_code=201)
async def create_policy_version(
    request: Request, identity: Operator, policy_id: RowId, body: PolicyVersionCreate
) -> PolicyVersion:
    """Create the next version. For a disabled policy it becomes the current one; an enabled one needs a rollout."""
    identity.check_scope(Scope(selectors=[body.body.selector.labels]))
    return await service.create_version(request.app.state.policies, policy_id, body, actor=identity.username)


@router.get("/policies/{policy_id}/diff")
async def diff_policy_versions(
    session: Session, _: Viewer, policy_id: RowId, *, from_version: RowId, to_version: RowId
) -> list[Difference]:
    """List the fields that differ between two versions."""
    return await service.diff(session, policy_id, from_version, to_version)


@router.post("/policies/{policy_id}/enable", response_model=Policy, responses=MAY_WAIT)
async def enable_policy(request: Request, identity: Operator, policy_id: RowId) -> Policy | Response:
    """Enable the policy on all nodes that its selector matches, at once."""
    return _answer(await service.set_enabled(request.app.state.policies, policy_id, True, actor=identity.username))


@router.post("/policies/{policy_id}/disable", response_model=Policy, responses=MAY_WAIT)
async def disable_policy(
    request: Request, identity: Operator, policy_id: RowId, *, leave_pages: LeavePages = False
) -> Policy | Response:
    """Disable the policy and roll back its rollout; nodes restore the original values that it changed."""
    return _answer(
        await service.set_enabled(
            request.app.state.policies, policy_id, False, leave_pages=leave_pages, actor=identity.username
        )
    )


@router.put("/policies/{policy_id}/pace")
async def set_policy_pace(request: Request, identity: Operator, policy_id: RowId, body: RolloutPace) -> Policy:
    """Set how the policy's next version spreads; a rollout's own request sets it too. Changes nothing on nodes."""
    return await service.set_pace(request.app.state.policies, policy_id, body, actor=identity.username)


@router.post("/policies/{policy_id}/backtest")
async def backtest_policy(request: Request, _: Viewer, policy_id: RowId, body: BacktestRequest) -> BacktestResult:
    """Evaluate the policy on a node's stored samples: the decisions it would have made. Changes nothing."""
    return await backtest.backtest(request.app.state.policies, policy_id, body)


@router.post("/policies/{policy_id}/rollouts", status_code=201, response_model=Rollout, responses=MAY_WAIT)
async def start_rollout(
    request: Request, identity: Operator, policy_id: RowId, body: RolloutCreate
) -> Rollout | Response:
    """Roll a version out to the connected nodes in stages; a violated guardrail, a lost node or harm rolls it back."""
    return _answer(await rollouts.start(request.app.state.policies, policy_id, body, actor=identity.username))


@router.get("/rollouts/{rollout_id}")
async def get_rollout(session: Session, _: Viewer, rollout_id: RowId) -> Rollout:
    """Return one rollout."""
    return await rollouts.get(session, rollout_id)


@router.post("/rollouts/{rollout_id}/stop")
async def stop_rollout(request: Request, identity: Operator, rollout_id: RowId, body: RolloutStop) -> Rollout:
    """Stop a rollout; with roll_back, nodes also return to the version that they had before."""
    return await rollouts.stop(
        request.app.state.policies, rollout_id, roll_back=body.roll_back, actor=identity.username
    )


@router.get("/nodes/{node_id}/decisions")
async def list_decisions(
    session: Session, _: Viewer, node_id: RowId, filters: Annotated[TimeFilter, Depends()]
) -> list[Decision]:
    """List the decisions of the policies on the node, newest first."""
    return await evaluations.decisions(session, node_id, filters)


@router.get("/nodes/{node_id}/decisions/latest")
async def list_latest_decisions(session: Session, _: Viewer, node_id: RowId) -> list[Decision]:
    """List the latest decision, however old, of each policy in force on the node and of its persisted settings."""
    return await evaluations.latest_decisions(session, node_id)


@router.get("/nodes/{node_id}/recommendations")
async def list_recommendations(session: Session, _: Viewer, node_id: RowId) -> list[Decision]:
    """List the latest decision of each policy in mode recommend that proposes changes on the node."""
    return await evaluations.recommendations(session, node_id)


@router.get("/nodes/{node_id}/drifts")
async def list_drifts(
    session: Session, _: Viewer, node_id: RowId, filters: Annotated[TimeFilter, Depends()]
) -> list[DriftEntry]:
    """List changes that other programs made to settings that policies had set, newest first."""
    return await evaluations.drifts(session, node_id, filters)


@router.post("/nodes/{node_id}/policy-responses")
async def preview_policy_responses(
    request: Request, session: Session, _: Viewer, node_id: RowId, body: PolicyResponsesRequest
) -> PolicyResponses:
    """Return what the enforced policies would do if these settings had these values. Changes nothing."""
    desired = {one.key: one.value for one in body.desired}
    registry = request.app.state.registry
    await request.app.state.interest.refresh(node_id)
    return await responses.to_values(session, registry, node_id, desired, rolled_back=body.rolled_back)


@router.get("/nodes/{node_id}/flows")
async def get_node_flows(request: Request, session: Session, _: Viewer, node_id: RowId) -> NodeFlows:
    """Return the processes that use the network, and the queues, interrupts and CPUs that receive their packets."""
    await request.app.state.interest.refresh(node_id)
    return await preview.node_flows(session, request.app.state.registry, node_id)


_Done = TypeVar("_Done", Policy, Rollout, None)


def _answer(outcome: _Done | Approval) -> _Done | Response:
    """Return what was done, or the response 202 with the request that waits for approval."""
    return JSONResponse(outcome.model_dump(mode="json"), 202) if isinstance(outcome, Approval) else outcome
