"""Enrolment of agents: exchanges a use of a token for the node's own key."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.auth import repository
from coresteer.auth.secrets import ENROLMENT_TOKEN_PREFIX, new_token, token_hash
from coresteer.auth.tables import EnrolmentTokenRow
from coresteer.config import Config
from coresteer.errors import Conflict, Forbidden, Invalid, NotFound
from coresteer.gateway.enrolment_schemas import EnrolmentToken, EnrolmentTokenCreate, EnrolRequest, EnrolResponse
from coresteer.nodes.repository import Existing, list_nodes
from coresteer.nodes.service import create_nodes as enrol_nodes
from coresteer.nodes.service import find_node
from coresteer.nodes.tables import NodeRow

LOCAL_AGENT = "coresteer up"
"""Creator of tokens that may replace the key of an existing node; user names contain no space."""

_READMISSION_LIFE = timedelta(hours=1)
_MAX_NAMES_IN_AUDIT = 20


@dataclass(frozen=True)
class NewEnrolmentToken:
    """A new enrolment token: its text, which is not stored, and its row."""

    token: str
    row: EnrolmentTokenRow


async def new_enrolment_token(session: AsyncSession, by: str, request: EnrolmentTokenCreate) -> NewEnrolmentToken:
    """Create an enrolment token for agents, or for any number of simulated nodes at once."""
    now = datetime.now(UTC)
    rejoin = request.rejoin_for_minutes
    row = EnrolmentTokenRow(
        simulated=request.simulated,
        created_by=by,
        expires_at=now + timedelta(minutes=request.expires_in_minutes),
        max_uses=request.max_uses,
        labels=request.labels,
        name_pattern=request.name_pattern,
        rejoin_until=None if rejoin is None else now + timedelta(minutes=rejoin),
    )
    new = await _store(session, row)
    record(session, actor=by, action="enrolment-token.create", target=_target(row), detail=request.model_dump())
    return new


async def _store(session: AsyncSession, row: EnrolmentTokenRow) -> NewEnrolmentToken:
    token = new_token(ENROLMENT_TOKEN_PREFIX)
    row.token_hash = token_hash(token)
    session.add(row)
    await session.flush()
    await session.refresh(row)  # with the database's defaults
    return NewEnrolmentToken(token, row)


def _target(row: EnrolmentTokenRow) -> str:
    return f"enrolment token {row.id}"


async def enrolment_tokens(session: AsyncSession) -> list[EnrolmentToken]:
    """Return every enrolment token that has not expired, newest first, also those that are used up."""
    return await describe(session, await repository.list_enrolment_tokens(session))


async def describe(session: AsyncSession, rows: Sequence[EnrolmentTokenRow]) -> list[EnrolmentToken]:
    """Return what administrators see of enrolment tokens."""
    names = {node.id: node.name for node in await list_nodes(session, [row.node_id for row in rows if row.node_id])}
    return [
        EnrolmentToken(
            id=row.id,
            created_by=row.created_by,
            created_at=row.created_at,
            expires_at=row.expires_at,
            max_uses=row.max_uses,
            uses_left=row.max_uses - row.uses,
            last_used_at=row.last_used_at,
            simulated=row.simulated,
            node_name=None if row.node_id is None else names.get(row.node_id),
            name_pattern=row.name_pattern,
            labels=row.labels,
            rejoin_until=row.rejoin_until,
        )
        for row in rows
    ]


async def revoke_token(session: AsyncSession, by: str, token_id: int) -> None:
    """Delete an enrolment token, which admits nobody from then on; its nodes keep their keys. Raises NotFound."""
    row = await session.get(EnrolmentTokenRow, token_id)
    if row is None:
        raise NotFound(f"There is no enrolment token {token_id}; it may have expired.")
    await session.delete(row)
    record(
        session,
        actor=by,
        action="enrolment-token.revoke",
        target=_target(row),
        detail={"uses": row.uses, "max_uses": row.max_uses},
    )


def pinned(new: NewEnrolmentToken, config: Config) -> NewEnrolmentToken:
    """Return the token as an agent gets it: with the fingerprint of the only authority that it is to trust, if any."""
    fingerprint = config.ca_fingerprint
    return new if fingerprint is None else replace(new, token=f"{new.token}.{fingerprint}")


async def readmit(session: AsyncSession, by: str, node: NodeRow) -> NewEnrolmentToken:
    """Create a token with which one agent enrols as this node; its key so far ends then. Raises Conflict."""
    if node.simulated:
        raise Conflict(f"“{node.name}” is simulated; an enrolment token for simulated nodes admits it again.")
    row = EnrolmentTokenRow(node_id=node.id, created_by=by, expires_at=datetime.now(UTC) + _READMISSION_LIFE)
    new = await _store(session, row)
    record(session, actor=by, action="node.readmit", target=node.name, node_id=node.id)
    return new


def readmission_command(new: NewEnrolmentToken, name: str, backend: str) -> str:
    """Return the shell command with which the node enrols again and its agent starts."""
    enrol = f"coresteer-agent enrol --backend {backend} --token {new.token} --name {name}"
    return f"{enrol} && coresteer-agent run --backend {backend}"


async def enrol(session: AsyncSession, request: EnrolRequest) -> EnrolResponse:
    """Exchange a use of an enrolment token for one key per node.

    Raises Forbidden, Invalid and Conflict; then nothing is used.
    """
    token = await repository.use_enrolment_token(session, token_hash(request.token))
    if token is None:
        raise Forbidden(
            "The enrolment token is unknown, used up, revoked or expired; an administrator can create a new one."
        )
    _check_names(token, request.names)
    if token.node_id is not None:
        node = await find_node(session, token.node_id)
        if request.names != [node.name]:
            raise Invalid(f"This token readmits {node.name}; enrol with --name {node.name}.", field="names")
    existing = _existing(token)
    enrolled = await enrol_nodes(
        session, request.names, simulated=token.simulated, existing=existing, labels=token.labels
    )
    detail: dict[str, object] = {"simulated": token.simulated, "nodes": len(enrolled), "enrolment_token": token.id}
    if token.labels:
        detail["labels"] = token.labels
    if ended := sum(node.existed for node in enrolled):
        detail |= {"keys_ended": ended, "readmitted_by_an_operator": existing == "readmit"}
    names = ", ".join(request.names[:_MAX_NAMES_IN_AUDIT])
    more = f" and {len(request.names) - _MAX_NAMES_IN_AUDIT} more" if len(request.names) > _MAX_NAMES_IN_AUDIT else ""
    record(
        session,
        actor=token.created_by,
        action="node.re-enrol" if all(node.existed for node in enrolled) else "node.enrol",
        target=f"node {names}{more}",
        node_id=enrolled[0].node_id if len(enrolled) == 1 else None,
        detail=detail,
    )
    return EnrolResponse(nodes=enrolled)


def _check_names(token: EnrolmentTokenRow, names: list[str]) -> None:
    if len(names) > 1 and not token.simulated:
        raise Invalid("Each use of this token enrols one node; several need one for simulated nodes.", field="names")
    pattern = token.name_pattern
    if pattern is not None and (others := [name for name in names if not fnmatchcase(name, pattern)]):
        raise Invalid(
            f"This token enrols nodes named {pattern}, which “{others[0]}” does not match; enrol with --name.",
            field="names",
        )


def _existing(token: EnrolmentTokenRow) -> Existing:
    """Return what the token may do with a node that exists."""
    if token.created_by == LOCAL_AGENT or token.node_id is not None:
        return "readmit"
    return "rejoin" if token.rejoin_until is not None and datetime.now(UTC) < token.rejoin_until else "refuse"
