"""Enrolment of agents: exchanges a one-time token for the node's own key."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.auth import repository
from coresteer.auth.secrets import ENROLMENT_TOKEN_PREFIX, new_token, token_hash
from coresteer.auth.tables import OneTimeTokenRow
from coresteer.config import Config
from coresteer.errors import Conflict, Forbidden, Invalid
from coresteer.gateway.enrolment_schemas import EnrolmentTokenCreate, EnrolRequest, EnrolResponse
from coresteer.nodes.repository import find_by_name
from coresteer.nodes.service import create_nodes as enrol_nodes
from coresteer.nodes.service import find_node
from coresteer.nodes.tables import NodeRow

LOCAL_AGENT = "coresteer up"
"""Creator of tokens that may replace the key of an existing node; user names contain no space."""

_READMISSION_LIFE = timedelta(hours=1)
_MAX_NAMES_IN_AUDIT = 20


@dataclass(frozen=True)
class NewEnrolmentToken:
    """A new enrolment token: its text, which is not stored, and its expiry."""

    token: str
    expires_at: datetime


async def new_enrolment_token(session: AsyncSession, by: str, request: EnrolmentTokenCreate) -> NewEnrolmentToken:
    """Create an enrolment token for one agent, or for any number of simulated nodes at once."""
    new = NewEnrolmentToken(
        new_token(ENROLMENT_TOKEN_PREFIX), datetime.now(UTC) + timedelta(minutes=request.expires_in_minutes)
    )
    session.add(
        OneTimeTokenRow(
            token_hash=token_hash(new.token),
            purpose="enrolment",
            simulated=request.simulated,
            created_by=by,
            expires_at=new.expires_at,
        )
    )
    record(
        session,
        actor=by,
        action="enrolment-token.create",
        target="enrolment token",
        detail={"simulated": request.simulated, "expires_in_minutes": request.expires_in_minutes},
    )
    return new


def pinned(new: NewEnrolmentToken, config: Config) -> NewEnrolmentToken:
    """Return the token as an agent gets it: with the fingerprint of the only authority that it is to trust, if any."""
    fingerprint = config.ca_fingerprint
    return new if fingerprint is None else replace(new, token=f"{new.token}.{fingerprint}")


async def readmit(session: AsyncSession, by: str, node: NodeRow) -> NewEnrolmentToken:
    """Create a token with which one agent enrols as this node; its key so far ends then. Raises Conflict."""
    if node.simulated:
        raise Conflict(f"“{node.name}” is simulated; an enrolment token for simulated nodes admits it again.")
    new = NewEnrolmentToken(new_token(ENROLMENT_TOKEN_PREFIX), datetime.now(UTC) + _READMISSION_LIFE)
    session.add(
        OneTimeTokenRow(
            token_hash=token_hash(new.token),
            purpose="enrolment",
            node_id=node.id,
            created_by=by,
            expires_at=new.expires_at,
        )
    )
    record(session, actor=by, action="node.readmit", target=node.name, node_id=node.id)
    return new


def readmission_command(new: NewEnrolmentToken, name: str, backend: str) -> str:
    """Return the shell command with which the node enrols again and its agent starts."""
    enrol = f"coresteer-agent enrol --backend {backend} --token {new.token} --name {name}"
    return f"{enrol} && coresteer-agent run --backend {backend}"


async def enrol(session: AsyncSession, request: EnrolRequest) -> EnrolResponse:
    """Exchange an enrolment token for one key per node.

    Raises Forbidden, Invalid and Conflict; then the token stays valid.
    """
    token = await repository.consume_one_time_token(session, token_hash(request.token), "enrolment")
    if token is None:
        raise Forbidden("The enrolment token is unknown, used or expired; an administrator can create a new one.")
    if len(request.names) > 1 and not token.simulated:
        raise Invalid("This token enrols one node; several need a token for simulated nodes.", field="names")
    if token.node_id is not None:
        node = await find_node(session, token.node_id)
        if request.names != [node.name]:
            raise Invalid(f"This token readmits {node.name}; enrol with --name {node.name}.", field="names")
    replace_keys = token.created_by == LOCAL_AGENT or token.node_id is not None
    is_known = replace_keys and await find_by_name(session, request.names[0]) is not None
    enrolled = await enrol_nodes(session, request.names, simulated=token.simulated, replace_keys=replace_keys)
    names = ", ".join(request.names[:_MAX_NAMES_IN_AUDIT])
    more = f" and {len(request.names) - _MAX_NAMES_IN_AUDIT} more" if len(request.names) > _MAX_NAMES_IN_AUDIT else ""
    record(
        session,
        actor=token.created_by,
        action="node.re-enrol" if is_known else "node.enrol",
        target=f"node {names}{more}",
        node_id=enrolled[0].node_id if len(enrolled) == 1 else None,
        detail={"simulated": token.simulated, "nodes": len(enrolled)},
    )
    return EnrolResponse(nodes=enrolled)
