"""Saved views of the fleet page, of one user or shared with all: list, create, delete, over HTTP."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field
from sqlalchemy import or_, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.auth.dependencies import Identity, Viewer
from coresteer.auth.schemas import Role
from coresteer.db import Session
from coresteer.errors import Conflict, Forbidden, Invalid, NotFound
from coresteer.fleet.tables import FleetViewRow
from coresteer.inputs import STORABLE, RequestBody, RowId

MAX_VIEWS = 50
"""Of one user."""

router = APIRouter(prefix="/fleet-views")


class FleetViewCreate(RequestBody):
    """A view to save. search: the query of the fleet page's address, without a question mark."""

    name: Annotated[str, Field(min_length=1, max_length=60), STORABLE]
    search: Annotated[str, Field(max_length=2000), STORABLE]
    shared: bool = False


class FleetView(BaseModel):
    """A saved view. shared: everyone has it."""

    id: int
    name: str
    search: str
    shared: bool
    created_by: str


@router.get("")
async def list_fleet_views(session: Session, identity: Viewer) -> list[FleetView]:
    """List the user's saved views of the fleet page and the shared ones, by name."""
    rows = await session.scalars(
        select(FleetViewRow)
        .where(or_(FleetViewRow.shared, FleetViewRow.created_by == identity.username))
        .order_by(FleetViewRow.name, FleetViewRow.id)
    )
    return [FleetView.model_validate(row, from_attributes=True) for row in rows]


@router.post("", status_code=201)
async def create_fleet_view(session: Session, identity: Viewer, body: FleetViewCreate) -> FleetView:
    """Save a view of the fleet page for oneself or, as an operator, for everyone."""
    if body.shared and identity.role is Role.VIEWER:
        raise Forbidden("Only operators and administrators share views with everyone.")
    mine = await _lock_views_of(session, identity.username)
    if body.name in mine:
        raise Invalid("You have a view of this name; delete it first, or choose another name.", field="name")
    if len(mine) >= MAX_VIEWS:
        raise Conflict(f"You have {MAX_VIEWS} views; delete one first.")
    row = FleetViewRow(**body.model_dump(), created_at=datetime.now(UTC), created_by=identity.username)
    session.add(row)
    await session.flush()
    detail = {"search": body.search, "shared": body.shared}
    record(session, actor=identity.username, action="fleet-view.create", target=body.name, detail=detail)
    return FleetView.model_validate(row, from_attributes=True)


@router.delete("/{view_id}", status_code=204)
async def delete_fleet_view(session: Session, identity: Viewer, view_id: RowId) -> None:
    """Delete one's own view or, as an administrator, a shared one."""
    row = await session.get(FleetViewRow, view_id, with_for_update=True)
    if row is None or not (row.shared or _is_own(row, identity)):
        raise NotFound(f"There is no view {view_id}; it may have been deleted.")
    if not _is_own(row, identity) and identity.role is not Role.ADMIN:
        raise Forbidden(f"Only {row.created_by} and administrators delete this view.")
    await session.delete(row)
    record(session, actor=identity.username, action="fleet-view.delete", target=row.name)


def _is_own(row: FleetViewRow, identity: Identity) -> bool:
    return row.created_by == identity.username


async def _lock_views_of(session: AsyncSession, username: str) -> set[str]:
    """Return the names of a user's views; until the end of the transaction no other request adds one."""
    await session.execute(
        text("SELECT pg_advisory_xact_lock(hashtext('fleet_view'), hashtext(:name))"), {"name": username}
    )
    return set(await session.scalars(select(FleetViewRow.name).where(FleetViewRow.created_by == username)))
