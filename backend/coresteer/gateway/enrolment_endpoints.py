"""Enrolment of agents over HTTP."""

from fastapi import APIRouter, Request, status
from fastapi.responses import PlainTextResponse

from coresteer.auth.dependencies import Admin, Operator, lock_credential
from coresteer.auth.schemas import Role
from coresteer.config import Config
from coresteer.db import Session
from coresteer.errors import Forbidden, NotFound
from coresteer.gateway import enrolment
from coresteer.gateway.enrolment_schemas import (
    EnrolmentToken,
    EnrolmentTokenCreate,
    EnrolmentTokenCreated,
    EnrolRequest,
    EnrolResponse,
)
from coresteer.inputs import RowId
from coresteer.nodes.service import find_node
from coresteer.origin import public_url

router = APIRouter()
agents_router = APIRouter()
"""What agents use: its paths stay as long as the agents' protocol has them."""
CA = "/ca.pem"


async def _created(session: Session, new: enrolment.NewEnrolmentToken, command: str) -> EnrolmentTokenCreated:
    (described,) = await enrolment.describe(session, [new.row])
    return EnrolmentTokenCreated(**described.model_dump(), token=new.token, command=command)


@router.post("/enrolment-tokens", status_code=status.HTTP_201_CREATED)
async def create_enrolment_token(
    request: Request, by: Admin, body: EnrolmentTokenCreate, session: Session
) -> EnrolmentTokenCreated:
    """Create a token with which agents enrol, or any number of simulated nodes."""
    await lock_credential(session, request, by)
    new = enrolment.pinned(await enrolment.new_enrolment_token(session, by.username, body), request.app.state.config)
    backend = public_url(request)
    command = f"coresteer-agent simulate --backend {backend} --token {new.token}"
    if not body.simulated:
        command = (
            f"coresteer-agent enrol --backend {backend} --token {new.token} && coresteer-agent run --backend {backend}"
        )
    return await _created(session, new, command)


@router.get("/enrolment-tokens")
async def list_enrolment_tokens(_: Admin, session: Session) -> list[EnrolmentToken]:
    """List the enrolment tokens that have not expired, newest first, also those that are used up."""
    return await enrolment.enrolment_tokens(session)


@router.delete("/enrolment-tokens/{token_id}", status_code=status.HTTP_204_NO_CONTENT)
async def revoke_enrolment_token(by: Admin, token_id: RowId, session: Session) -> None:
    """Revoke an enrolment token; nodes that have enrolled with it keep their keys."""
    await enrolment.revoke_token(session, by.username, token_id)


@agents_router.get(CA, response_class=PlainTextResponse, include_in_schema=False)
async def certificate_authority(request: Request) -> PlainTextResponse:
    """Return the installation's own certificate authority; agents compare its fingerprint with that of their token."""
    config: Config = request.app.state.config
    if config.tls != "auto":
        raise NotFound("This backend has no certificate authority of its own; `coresteer serve --tls auto` has.")
    return PlainTextResponse(config.ca_path.read_text(), media_type="application/x-pem-file")


@router.post("/nodes/{node_id}/readmit", status_code=status.HTTP_201_CREATED)
async def readmit_node(request: Request, by: Operator, node_id: RowId, session: Session) -> EnrolmentTokenCreated:
    """Create a one-time token with which this node enrols again, such as after its system was installed anew.

    Its key so far is valid until then. A node whose key was revoked is readmitted by administrators only.
    """
    await lock_credential(session, request, by)
    node = await find_node(session, node_id)
    if node.key_hash is None and by.role is not Role.ADMIN:
        raise Forbidden(f"The key of {node.name} was revoked by an administrator; only an administrator readmits it.")
    new = enrolment.pinned(await enrolment.readmit(session, by.username, node), request.app.state.config)
    command = enrolment.readmission_command(new, node.name, public_url(request))
    return await _created(session, new, command)


@agents_router.post("/api/enrol")
async def enrol(body: EnrolRequest, session: Session) -> EnrolResponse:
    """Exchange a use of an enrolment token for a node's own key; called by agents."""
    return await enrolment.enrol(session, body)
