"""The proof of policies over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse

from coresteer.auth.dependencies import Operator, Viewer
from coresteer.db import Session
from coresteer.inputs import STORABLE, RowId
from coresteer.origin import public_url
from coresteer.proof import handover, service
from coresteer.proof.schemas import FleetProof, PolicyProof
from coresteer_core.changes.handover_formats import FormatName

router = APIRouter()

Label = Annotated[
    str | None, Query(min_length=1, max_length=63, description="Label by whose values nodes are grouped."), STORABLE
]


@router.get("/policies/{policy_id}/proof")
async def get_policy_proof(session: Session, _: Viewer, policy_id: RowId, *, label: Label = None) -> PolicyProof:
    """Return the measured effect of each version of a policy: over time, on each metric, by group of nodes."""
    return await service.policy_proof(session, policy_id, label)


@router.get("/policies/{policy_id}/export", response_class=PlainTextResponse)
async def export_policy(
    request: Request, session: Session, _: Viewer, policy_id: RowId, *, node_id: RowId, format: FormatName
) -> PlainTextResponse:
    """Return what a policy holds on a node now as files of another tool, which keep it across reboots.

    Each file begins with its path and cites the proof; what the tool cannot set is listed with the reason.
    """
    name, text = await handover.handover(session, policy_id, node_id, format, public_url(request))
    return PlainTextResponse(text, headers={"Content-Disposition": f'attachment; filename="{name}"'})


@router.get("/proof")
async def get_fleet_proof(session: Session, _: Viewer) -> FleetProof:
    """Return the measured effect of each policy that is enforced, and the CPUs that all of them together save."""
    return await service.fleet_proof(session)


@router.post("/proof/pause")
async def pause_proof(request: Request, identity: Operator) -> FleetProof:
    """Pause all holdouts at once: every node enforces its policies again, and nothing is measured."""
    return await service.pause(request.app.state.proof, actor=identity.username)


@router.post("/proof/resume")
async def resume_proof(request: Request, identity: Operator) -> FleetProof:
    """Resume the holdouts of all policies."""
    return await service.resume(request.app.state.proof, actor=identity.username)
