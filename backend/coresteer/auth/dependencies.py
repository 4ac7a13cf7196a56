"""Authentication by session cookie or API token, and authorization by role."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from secrets import compare_digest
from typing import Annotated, Literal, TypeAlias

from fastapi import Depends, Request, WebSocket, WebSocketException, status
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import HTTPConnection

from coresteer.auth import repository, role_labels, scope
from coresteer.auth.schemas import Role
from coresteer.auth.secrets import SESSION_COOKIE, token_hash
from coresteer.auth.tables import SessionRow
from coresteer.db import Database
from coresteer.errors import DATABASE_UNAVAILABLE, Forbidden, Unauthenticated, is_database_unavailable
from coresteer.origin import is_cross_origin

_RANK = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}
SIGNED_IN = "is_signed_in"
"""Attribute of a request's state, set when its user is known; the HTTP server reads it."""
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_UNKNOWN_LENGTH_BYTES = 1024 * 1024
"""Counted for a body in chunks, whose length is not known in advance: the most that most requests may have."""


RenewSession: TypeAlias = Callable[[str], Awaitable[SessionRow | None]]
"""Asks the issuer about the session of a cookie whose renew_at or issuer_ends_at has passed; None if it has ended."""


@dataclass(frozen=True)
class Identity:
    """The authenticated user with the present rights. csrf_token: of the session, None for an API token.

    limits: of the role operator, patterns that the labels of a node must all match; elsewhere, it is a viewer. issuer:
    its address, None of a local user.
    """

    username: str
    role: Role
    via: Literal["session", "token"]
    csrf_token: str | None = None
    limits: tuple[role_labels.Patterns, ...] = ()
    issuer: str | None = None

    def role_on(self, labels: Mapping[str, str]) -> Role:
        """Return the role on a node with these labels."""
        return self.role if all(role_labels.match(labels, each) for each in self.limits) else Role.VIEWER

    def check_scope(self, about: scope.Scope) -> None:
        """Check that the limits include all nodes that a request is about. Raises Forbidden."""
        what = f"{self.username} is operator of {role_labels.to_text(self.limits)} only"
        if any(self.role_on(labels) is not self.role for labels in about.nodes):
            raise Forbidden(f"{what}, and a viewer of this node.")
        if any(not role_labels.implies(selected, each) for each in self.limits for selected in about.selectors):
            raise Forbidden(f"{what}: every version's selector must contain these labels.")

    async def check_nodes(self, database: Database, node_ids: Sequence[int]) -> None:
        """Check that the limits include these nodes. Raises Forbidden."""
        if self.limits:
            async with database.session() as session:
                self.check_scope(await scope.scope_of_nodes(session, node_ids))


def credential_hash(connection: HTTPConnection) -> bytes | None:
    """Return the hash of the API token or session cookie that a request presents, None without one."""
    token = _bearer_token(connection) or connection.cookies.get(SESSION_COOKIE)
    return token_hash(token) if token else None


def _bearer_token(connection: HTTPConnection) -> str | None:
    kind, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


async def _identify(connection: HTTPConnection) -> Identity:
    """Authenticate. Raises Unauthenticated. Transactions of its own, so that no request locks its session's row."""
    database: Database = connection.app.state.database
    if (token := _bearer_token(connection)) is not None:
        async with database.autocommitting() as session:
            api_token = await repository.use_api_token(session, token_hash(token))
        if api_token is None:
            raise Unauthenticated(
                "The API token is unknown, has expired, or its owner is disabled. Make a new one in the settings.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        role = min(Role(api_token.role), Role(api_token.user.role), key=lambda role: _RANK[role])
        limits = limits_of(role, api_token.user.role_labels, api_token.role_labels)
        return Identity(api_token.user.username, role, "token", limits=limits, issuer=api_token.user.issuer)
    if cookie := connection.cookies.get(SESSION_COOKIE):
        async with database.autocommitting() as session:
            row = await repository.use_session(session, token_hash(cookie))
        due = [] if row is None or row.renew_at is None else [row.renew_at, row.issuer_ends_at or row.renew_at]
        if due and min(due) <= datetime.now(UTC):
            renew: RenewSession = connection.app.state.renew_session
            row = await renew(cookie)
        if row is not None:
            limits = limits_of(role := Role(row.user.role), row.user.role_labels)
            return Identity(row.user.username, role, "session", row.csrf_token, limits, row.user.issuer)
    raise Unauthenticated(
        f"Sign in first; a session ends after {repository.SESSION_HOURS} hours without use, and after "
        f"{repository.MAX_SESSION_DAYS} days."
    )


def limits_of(role: Role, *given: role_labels.Patterns) -> tuple[role_labels.Patterns, ...]:
    """Return the limits of a role: those of an operator, without empty ones."""
    return tuple(patterns for patterns in given if patterns) if role is Role.OPERATOR else ()


async def identify_request(request: Request) -> Identity:
    """Authenticate a request. An unsafe method with a cookie needs the session's CSRF token."""
    identity = await _identify(request)
    setattr(request.state, SIGNED_IN, True)
    if identity.csrf_token is not None and request.method not in _SAFE_METHODS:
        sent = request.headers.get("x-csrf-token", "")
        if not compare_digest(sent.encode(), identity.csrf_token.encode()):
            raise Forbidden(
                "The X-CSRF-Token header is missing or not this session's; GET /api/v1/auth/me returns it. "
                "Reload the page and try again."
            )
    if request.method not in _SAFE_METHODS:
        in_chunks = "transfer-encoding" in request.headers
        length = _UNKNOWN_LENGTH_BYTES if in_chunks else int(request.headers.get("content-length", 0))
        request.app.state.quotas.admit_request(identity.username, length)
    return identity


async def lock_credential(session: AsyncSession, request: Request, by: Identity) -> None:
    """Lock the caller's user until the end of the transaction, for a request that creates a token.

    What ends the user's sessions and tokens waits for it, and then ends the new one as well. Raises Unauthenticated if
    it was earlier.
    """
    presented, user = credential_hash(request), await repository.lock_user(session, by.username)
    # a statement of its own: the one that waited for the lock still sees what was there before it
    if (
        presented is None
        or user is None
        or _RANK[Role(user.role)] < _RANK[by.role]
        or not await repository.has_credential(session, user, presented)
    ):
        raise Unauthenticated(f"The session, token or role of {by.username} has ended meanwhile. Sign in again.")


async def authorized_body(request: Request, identity: Identity) -> bytes:
    """Return the body of a request of this caller. Raises Unauthenticated or Forbidden if it may not send it any more.

    An upload takes as long as its sender likes, so that its rights may end meanwhile.
    """
    body = await request.body()
    if await _identify(request) != identity:
        raise Forbidden(f"The rights of {identity.username} changed during the upload; send it again.")
    return body


async def identify_websocket(websocket: WebSocket) -> Identity:
    """Authenticate a WebSocket before it is accepted. Its Origin must be this host, because it sends cookies."""
    try:
        if not websocket.app.state.is_ready:
            raise DATABASE_UNAVAILABLE
        identity = await _identify(websocket)
    except Unauthenticated as problem:
        raise WebSocketException(status.WS_1008_POLICY_VIOLATION, problem.detail) from None
    except Exception as error:
        if not is_database_unavailable(error) and error is not DATABASE_UNAVAILABLE:
            raise
        raise WebSocketException(status.WS_1013_TRY_AGAIN_LATER, DATABASE_UNAVAILABLE.detail) from error
    if identity.via == "session" and (is_cross_origin(websocket) or "origin" not in websocket.headers):
        raise WebSocketException(
            status.WS_1008_POLICY_VIOLATION,
            "The WebSocket was opened by a page of another origin; open the backend's own address.",
        )
    return identity


def _at_least(least: Role) -> Callable[[Identity], Awaitable[Identity]]:
    async def check(identity: Annotated[Identity, Depends(identify_request)]) -> Identity:
        if _RANK[identity.role] < _RANK[least]:
            raise Forbidden(f"This needs the role {least}; {identity.username} has the role {identity.role}.")
        return identity

    return check


_some_operator = _at_least(Role.OPERATOR)


async def _operator_of_path(request: Request, identity: Annotated[Identity, Depends(_some_operator)]) -> Identity:
    """Let a limited operator do only what is about their nodes, by the parameters of the path."""
    if identity.limits:
        async with request.app.state.database.session() as session:
            about = await scope.scope_of_path(session, request.path_params)
        if about is None:
            raise _not_for_limited(identity)
        identity.check_scope(about)
    return identity


async def _operator_of_all(identity: Annotated[Identity, Depends(_some_operator)]) -> Identity:
    if identity.limits:
        raise _not_for_limited(identity)
    return identity


def _not_for_limited(identity: Identity) -> Forbidden:
    return Forbidden(
        f"This needs an operator of all nodes; {identity.username} is operator of "
        f"{role_labels.to_text(identity.limits)} only."
    )


Viewer = Annotated[Identity, Depends(_at_least(Role.VIEWER))]
Operator = Annotated[Identity, Depends(_operator_of_path)]
"""An operator of all nodes that the path's parameters name; of every node, if they name none."""
OperatorOfAll = Annotated[Identity, Depends(_operator_of_all)]
OperatorByBody = Annotated[Identity, Depends(_some_operator)]
"""An operator of some nodes: the endpoint checks those that the body names, with check_nodes or check_scope."""
Admin = Annotated[Identity, Depends(_at_least(Role.ADMIN))]
