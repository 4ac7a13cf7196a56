"""Change windows over HTTP."""

from fastapi import APIRouter, Request

from coresteer.auth.dependencies import Admin, Viewer
from coresteer.change_windows import service
from coresteer.change_windows.schemas import ChangeWindow, ChangeWindowBody
from coresteer.db import Session
from coresteer.inputs import RowId

router = APIRouter(prefix="/change-windows")


@router.get("")
async def list_change_windows(session: Session, _: Viewer) -> list[ChangeWindow]:
    """List the change windows by name, with whether each is open now."""
    return await service.list_windows(session)


@router.post("", status_code=201)
async def create_change_window(request: Request, by: Admin, body: ChangeWindowBody) -> ChangeWindow:
    """Create a change window: outside of their windows, policies write nothing on its nodes."""
    return await service.create(request.app.state.policies, body, actor=by.username)


@router.delete("/{window_id}", status_code=204)
async def delete_change_window(request: Request, by: Admin, window_id: RowId) -> None:
    """Delete a change window; nodes without any other one are open at all times."""
    await service.delete(request.app.state.policies, window_id, actor=by.username)
