"""NUMA state over HTTP: read only; changes go through previews and changes like those of any setting."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from coresteer.auth.dependencies import Viewer
from coresteer.db import Session
from coresteer.inputs import RowId
from coresteer.numa import service
from coresteer.numa.schemas import NodeNuma, NumaMoveOption

router = APIRouter()

ProcessId = Annotated[int, Path(ge=1, lt=2**31)]


@router.get("/nodes/{node_id}/numa")
async def get_numa(request: Request, session: Session, _: Viewer, node_id: RowId) -> NodeNuma:
    """Return the memory of a node's NUMA nodes and of its busy or large processes, as last reported."""
    await request.app.state.interest.refresh(node_id)
    return await service.numa(session, request.app.state.registry, node_id)


@router.get("/nodes/{node_id}/numa/{pid}/options")
async def get_numa_options(
    request: Request, session: Session, _: Viewer, node_id: RowId, pid: ProcessId
) -> list[NumaMoveOption]:
    """Return what moving a process's CPUs, or its CPUs and pages, to each NUMA node is predicted to save and cost."""
    await request.app.state.interest.refresh(node_id)
    return await service.move_options(session, request.app.state.registry, node_id, pid)
