"""Two-person approval over HTTP."""

from fastapi import APIRouter, Request

from coresteer.approvals import service
from coresteer.auth.dependencies import Admin, Operator, Viewer
from coresteer.db import Session
from coresteer.inputs import RowId
from coresteer.policies.approval_schemas import Approval, ApprovalThreshold, Rejection

router = APIRouter(prefix="/approvals", tags=["approvals"])


@router.get("")
async def list_approvals(session: Session, _: Viewer) -> list[Approval]:
    """List requests for the approval of another operator: those that wait, and decided ones; the newest 200."""
    return await service.list_approvals(session)


# declared before the path with {approval_id}, which would match "threshold"
@router.get("/threshold")
async def get_approval_threshold(session: Session, _: Viewer) -> ApprovalThreshold:
    """Return above how many nodes actions on policies wait for approval; 0 for never."""
    return await service.get_threshold(session)


@router.put("/threshold")
async def set_approval_threshold(session: Session, by: Admin, body: ApprovalThreshold) -> ApprovalThreshold:
    """Set above how many nodes actions on policies wait for approval; what waits already goes on waiting."""
    return await service.set_threshold(session, body, actor=by.username)


@router.get("/{approval_id}")
async def get_approval(session: Session, _: Viewer, approval_id: RowId) -> Approval:
    """Return one request."""
    return await service.get(session, approval_id)


@router.post("/{approval_id}/approve")
async def approve(request: Request, by: Operator, approval_id: RowId) -> Approval:
    """Approve another operator's request; exactly what was requested is carried out now, or nothing."""
    return await service.approve(request.app.state.policies, approval_id, actor=by.username)


@router.post("/{approval_id}/reject")
async def reject(request: Request, by: Operator, approval_id: RowId, body: Rejection) -> Approval:
    """Reject another operator's request."""
    return await service.reject(request.app.state.policies, approval_id, body.reason, actor=by.username)


@router.post("/{approval_id}/withdraw")
async def withdraw(request: Request, by: Operator, approval_id: RowId) -> Approval:
    """Withdraw one's own request."""
    return await service.withdraw(request.app.state.policies, approval_id, actor=by.username)
