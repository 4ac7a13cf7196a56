"""Sets of managed resources over HTTP."""

from fastapi import APIRouter

from coresteer.auth.dependencies import OperatorByBody, Viewer
from coresteer.db import Session
from coresteer.gitops import service
from coresteer.gitops.schemas import ManagedSet, ManagedSetBody, SetName

router = APIRouter()


@router.get("/managed-sets")
async def list_managed_sets(session: Session, _: Viewer) -> list[ManagedSet]:
    """List which resources were applied from which set of YAML files."""
    return await service.list_sets(session)


@router.put("/managed-sets/{name}")
async def replace_managed_set(
    session: Session, identity: OperatorByBody, name: SetName, body: ManagedSetBody
) -> ManagedSet:
    """Say which resources a set of YAML files manages; `coresteer apply --prune` deletes no others."""
    return await service.replace_set(session, name, body, identity)
