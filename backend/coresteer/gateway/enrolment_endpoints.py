"""Enrolment of agents over HTTP."""

from fastapi import APIRouter, Request, status

from coresteer.auth.dependencies import Admin
from coresteer.db import Session
from coresteer.gateway import enrolment
from coresteer.gateway.enrolment_schemas import EnrolmentToken, EnrolmentTokenCreate, EnrolRequest, EnrolResponse
from coresteer.origin import public_url

router = APIRouter(tags=["auth"])


@router.post("/api/enrolment-tokens", status_code=status.HTTP_201_CREATED)
async def create_enrolment_token(
    request: Request, by: Admin, body: EnrolmentTokenCreate, session: Session
) -> EnrolmentToken:
    """Create a one-time token with which one agent enrols, or any number of simulated nodes."""
    new = await enrolment.new_enrolment_token(session, by.username, body)
    backend = public_url(request)
    command = f"coresteer-agent simulate --backend {backend} --token {new.token}"
    if not body.simulated:
        command = (
            f"coresteer-agent enrol --backend {backend} --token {new.token} && coresteer-agent run --backend {backend}"
        )
    return EnrolmentToken(token=new.token, command=command, expires_at=new.expires_at)


@router.post("/api/enrol")
async def enrol(body: EnrolRequest, session: Session) -> EnrolResponse:
    """Exchange a one-time token for a node's own key; called by agents."""
    return await enrolment.enrol(session, body)
