"""The first administrator, users, sessions and API tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg.errors
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import SYSTEM_ACTORS, anonymize_user, record
from coresteer.auth import repository
from coresteer.auth.dependencies import Identity, limits_of
from coresteer.auth.rate_limit import LoginRateLimit
from coresteer.auth.schemas import (
    ONLY_OPERATORS,
    ApiTokenCreate,
    BrowserSession,
    LoginRequest,
    PasswordChange,
    Role,
    SetupRequest,
    UserCreate,
    UserUpdate,
)
from coresteer.auth.secrets import (
    API_TOKEN_PREFIX,
    PasswordHash,
    hash_password,
    new_token,
    password_matches,
    token_hash,
)
from coresteer.auth.tables import ApiTokenRow, OneTimeTokenRow, SessionRow, UserRow
from coresteer.db import Database
from coresteer.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated

_SET_UP_LINK_LIFE = timedelta(hours=24)
_LINK_INVALID = "This set-up link is not valid any more; `coresteer set-up-link` prints a new one."
_MAX_SESSIONS = 50
"""Of one user; signing in once more ends the oldest."""
_ID_DIGITS = 16
"""Hexadecimal digits of a session's hash that tell it from the user's other ones."""


@dataclass(frozen=True)
class Client:
    """Where a user signs in: the address, and the User-Agent as the browser states it."""

    address: str
    browser: str


@dataclass(frozen=True)
class IssuerSession:
    """What a session with an issuer begins with, as SessionRow's columns; tokens: sealed with the cookie by seal."""

    session: str | None
    ends_at: datetime
    renew_at: datetime | None
    seal_tokens: Callable[[str], bytes]


@dataclass(frozen=True)
class SignedIn:
    """A new browser session: the cookie's text and the user."""

    cookie: str
    identity: Identity


async def new_set_up_token(session: AsyncSession, *, replaces: bool = True) -> str | None:
    """Create a token for the set-up link, None when a user exists already. replaces: former ones become invalid."""
    if await repository.has_users(session):
        return None
    if replaces:
        await repository.delete_set_up_tokens(session)
    token = new_token()
    session.add(
        OneTimeTokenRow(
            token_hash=token_hash(token),
            purpose="setup",
            created_by="coresteer",
            expires_at=datetime.now(UTC) + _SET_UP_LINK_LIFE,
        )
    )
    return token


async def check_set_up_link(session: AsyncSession, token: str) -> None:
    """Check the token of a set-up link. Raises Conflict when a user exists, Forbidden for a wrong token."""
    if await repository.has_users(session):
        raise Conflict("Coresteer is set up already; sign in instead.")
    if not await repository.is_one_time_token_valid(session, token_hash(token), "setup"):
        raise Forbidden(_LINK_INVALID)


async def set_up(session: AsyncSession, request: SetupRequest, client: Client) -> SignedIn:
    """Create the first administrator and sign in.

    Raises Conflict when there is one, Forbidden for a wrong token, and Invalid for a password that is easy to guess.
    """
    if await repository.has_users(session):
        raise Conflict("Coresteer is set up already; sign in instead.")
    if await repository.consume_one_time_token(session, token_hash(request.token), "setup") is None:
        raise Forbidden(_LINK_INVALID)
    await repository.delete_set_up_tokens(session)
    user = _new_user(request.username, Role.ADMIN, await hash_password(request.password))
    session.add(user)
    await session.flush()
    record(session, actor=user.username, action="setup", target=f"user {user.username}")
    return await sign_in(session, user, client)


async def log_in(database: Database, limit: LoginRateLimit, request: LoginRequest, client: Client) -> SignedIn:
    """Check name and password and sign in. Raises Unauthenticated, equally for unknown name and wrong password.

    The three transactions are separate: none is open while scrypt computes, and a failure is recorded too.
    """
    address = client.address
    with limit.turn(address):
        limit.record_attempt(request.username, address)
        async with database.session() as session:
            user = await repository.find_user_by_name(session, request.username)
        # a user of the issuer has no password: as for an unknown name, scrypt takes its full time
        stored = _stored_hash(user) if user and user.issuer is None else None
        right = await password_matches(request.password, stored)
    async with database.session() as session:
        await repository.delete_expired_sessions_and_tokens(session)
        if user is not None and right:
            user = await session.get(UserRow, user.id, with_for_update=True)
        if user is None or not right or user.disabled or _stored_hash(user) != stored:
            # an unknown name is not recorded: people type passwords into the wrong field
            target = f"user {user.username}" if user else "unknown user"
            if limit.is_first(target, address):
                detail = {"from": address}
                record(session, actor="anonymous", action="login", target=target, result="refused", detail=detail)
        else:
            limit.record_success(request.username, address)
            record(
                session, actor=user.username, action="login", target=f"user {user.username}", detail={"from": address}
            )
            return await sign_in(session, user, client)
    raise Unauthenticated("The name or the password is wrong.")


async def log_out(session: AsyncSession, identity: Identity, cookie: str | None) -> None:
    """End the browser session of the cookie."""
    if cookie is not None and identity.via == "session":
        await repository.delete_session(session, token_hash(cookie))
        record(session, actor=identity.username, action="logout", target=f"user {identity.username}")


async def change_password(
    database: Database,
    limit: LoginRateLimit,
    identity: Identity,
    request: PasswordChange,
    *,
    cookie: str,
    client: Client,
) -> None:
    """Change the user's own password and end their other sessions.

    Raises Forbidden for a wrong present password, and Invalid for a new one that is easy to guess.
    """
    limit.record_attempt(identity.username, client.address)
    async with database.session() as session:
        user = await _user_of(session, identity)
    if user.issuer is not None:
        raise Conflict(f"You sign in with {user.issuer}; change the password there.")
    stored = _stored_hash(user)
    if not await password_matches(request.present, stored):
        raise Forbidden("The present password is wrong.", field="present")
    limit.record_success(identity.username, client.address)
    password = await hash_password(request.password)
    async with database.session() as session:
        locked = await session.get(UserRow, user.id, with_for_update=True)
        if locked is None or _stored_hash(locked) != stored:
            raise Conflict("The password was changed by an administrator meanwhile; sign in again.")
        _set_password(locked, password)
        await repository.delete_sessions_of_user(session, user.id, keep=token_hash(cookie))
        record(session, actor=user.username, action="user.change_password", target=f"user {user.username}")


async def own_sessions(session: AsyncSession, identity: Identity, cookie: str | None) -> list[BrowserSession]:
    """Return the user's own browser sessions, newest first. cookie: of the session that asks."""
    user = await _user_of(session, identity)
    current = token_hash(cookie) if cookie is not None and identity.via == "session" else None
    return [
        BrowserSession(
            id=row.token_hash.hex()[:_ID_DIGITS],
            current=row.token_hash == current,
            address=row.address,
            browser=row.browser,
            created_at=row.created_at,
            expires_at=row.expires_at,
        )
        for row in await repository.sessions_of_user(session, user.id)
    ]


async def end_own_session(session: AsyncSession, identity: Identity, session_id: str) -> None:
    """End one of the user's own browser sessions. Raises NotFound."""
    user = await _user_of(session, identity)
    rows = await repository.sessions_of_user(session, user.id)
    row = next((row for row in rows if row.token_hash.hex()[:_ID_DIGITS] == session_id), None)
    if row is None:
        raise NotFound("You have no such session; it may have ended already.")
    await repository.delete_session(session, row.token_hash)
    record(session, actor=identity.username, action="session.end", target=f"user {identity.username}")


async def _user_of(session: AsyncSession, identity: Identity) -> UserRow:
    user = await repository.find_user_by_name(session, identity.username)
    if user is None:
        raise NotFound(f"There is no user {identity.username} any more.")
    return user


async def create_user(session: AsyncSession, by: Identity, request: UserCreate) -> UserRow:
    """Create a user. Raises Conflict when the name is taken, and Invalid for a password that is easy to guess."""
    user = _new_user(request.username, request.role, await hash_password(request.password))
    user.role_labels = dict(request.role_labels)
    session.add(user)
    try:
        await session.flush()
    except IntegrityError as error:
        if not isinstance(error.orig, psycopg.errors.UniqueViolation):
            raise
        raise Conflict(f"There is a user {request.username} already.", field="username") from None
    record(
        session,
        actor=by.username,
        action="user.create",
        target=f"user {user.username}",
        detail={"role": request.role} | _labels_detail(user.role_labels),
    )
    return user


async def update_user(session: AsyncSession, by: str, user_id: int, request: UserUpdate) -> UserRow:
    """Change a user's role, its labels or password, or disable or enable the user.

    Raises NotFound, Conflict for the last administrator, and Invalid for labels of another role than operator and for a
    password that is easy to guess. Another role without labels is not limited.

    A new password and disabling end the user's sessions and delete their API tokens. These and another role delete
    their enrolment tokens.
    """
    password = await hash_password(request.password) if request.password is not None else None
    admins = await repository.lock_enabled_admins(session)
    user = await session.get(UserRow, user_id)
    if user is None:
        raise NotFound(f"There is no user {user_id}.")
    if user.issuer is not None and (request.role, request.role_labels, request.password) != (None, None, None):
        raise Conflict(
            f"{user.username} signs in with {user.issuer}: the password is there, and the role follows from the groups "
            "there. Here, the user can be disabled."
        )
    stays_admin = request.role in (None, Role.ADMIN) and request.disabled is not True
    if not stays_admin and list(admins) == [user_id]:
        raise Conflict(
            f"{user.username} is the last administrator who can sign in. Give another user the role admin first."
        )
    detail: dict[str, object] = {}
    before = user.role, user.role_labels
    if request.role is not None:
        user.role, user.role_labels = request.role, {}
        detail["role"] = request.role
    if request.role_labels is not None:
        user.role_labels = dict(request.role_labels)
        detail["role_labels"] = user.role_labels
        if user.role != Role.OPERATOR and user.role_labels:
            raise Invalid(ONLY_OPERATORS, field="role_labels")
    has_other_role = before != (user.role, user.role_labels)
    if request.disabled is not None:
        user.disabled = request.disabled
        detail["disabled"] = request.disabled
    if password is not None:
        _set_password(user, password)
        detail["password"] = "changed"  # noqa: S105 - a marker, not the password
    if password is not None or request.disabled:
        detail |= await end_credentials(session, user)
    elif has_other_role:
        detail |= await end_enrolment_tokens(session, user)
    await session.flush()
    record(session, actor=by, action="user.update", target=f"user {user.username}", detail=detail)
    return user


async def end_credentials(session: AsyncSession, user: UserRow) -> dict[str, object]:
    """End a user's sessions and delete their API and enrolment tokens; return the numbers for the audit log."""
    await repository.delete_sessions_of_user(session, user.id)
    deleted = await repository.delete_api_tokens_of_user(session, user.id)
    return ({"api_tokens_deleted": deleted} if deleted else {}) | await end_enrolment_tokens(session, user)


async def end_enrolment_tokens(session: AsyncSession, user: UserRow) -> dict[str, object]:
    """Delete a user's enrolment tokens; return their number for the audit log."""
    deleted = await repository.delete_enrolment_tokens_of_user(session, user.username)
    return {"enrolment_tokens_deleted": deleted} if deleted else {}


async def delete_user(session: AsyncSession, by: Identity, user_id: int) -> None:
    """Delete a user; a pseudonym takes the name's place in history and audit log.

    Raises NotFound, and Conflict for the last administrator.
    """
    admins = await repository.lock_enabled_admins(session)
    user = await session.get(UserRow, user_id, with_for_update=True)
    if user is None:
        raise NotFound(f"There is no user {user_id}.")
    if list(admins) == [user_id]:
        raise Conflict(
            f"{user.username} is the last administrator who can sign in. Give another user the role admin first."
        )
    record(session, actor=by.username, action="user.delete", target=f"user {user.username}")
    await session.flush()
    await repository.delete_user(session, user)
    if user.username not in SYSTEM_ACTORS:  # else the system's own entries would be anonymized as well
        await anonymize_user(session, user_id=user_id, username=user.username, actor=by.username)


async def reset_password(session: AsyncSession, username: str, password: str) -> None:
    """Set a user's password from the command line; end the user's sessions and API tokens.

    Raises NotFound, Conflict, and Invalid for a password that is easy to guess.

    A disabled user is enabled only when there is no enabled administrator who could do that.
    """
    user = await repository.find_user_by_name(session, username)
    if user is None:
        raise NotFound(f"There is no user {username}.")
    if user.disabled and await repository.lock_enabled_admins(session):
        raise Conflict(f"{user.username} is disabled. An administrator can enable them on the page Settings first.")
    await update_user(session, "command line", user.id, UserUpdate(password=password, disabled=False))


async def create_api_token(session: AsyncSession, by: Identity, request: ApiTokenCreate) -> tuple[ApiTokenRow, str]:
    """Create an API token; return its row and its secret text, which is not stored. Raises Conflict."""
    maker = await _user_of(session, by)
    secret = new_token(API_TOKEN_PREFIX)
    now = datetime.now(UTC)
    row = ApiTokenRow(
        token_hash=token_hash(secret),
        name=request.name,
        role=request.role,
        role_labels=dict(request.role_labels),
        user=maker,
        created_at=now,
        expires_at=now + timedelta(days=request.expires_in_days) if request.expires_in_days else None,
    )
    session.add(row)
    await session.flush()
    record(
        session,
        actor=by.username,
        action="token.create",
        target=f"token {row.id}",
        detail={"name": request.name, "role": request.role, "expires_in_days": request.expires_in_days}
        | _labels_detail(row.role_labels),
    )
    return row, secret


async def delete_api_token(session: AsyncSession, by: Identity, token_id: int) -> None:
    """Revoke an API token. Raises NotFound."""
    row = await session.get(ApiTokenRow, token_id)
    if row is None:
        raise NotFound(f"There is no API token {token_id}.")
    await session.delete(row)
    record(session, actor=by.username, action="token.delete", target=f"token {token_id}", detail={"name": row.name})


def _labels_detail(labels: dict[str, str]) -> dict[str, object]:
    return {"role_labels": labels} if labels else {}


def _new_user(username: str, role: Role, password: PasswordHash) -> UserRow:
    user = UserRow(username=username, role=role, disabled=False, created_at=datetime.now(UTC))
    _set_password(user, password)
    return user


def _set_password(user: UserRow, password: PasswordHash) -> None:
    user.password_hash, user.password_salt = password.hash, password.salt
    user.scrypt_n, user.scrypt_r, user.scrypt_p = password.n, password.r, password.p


def _stored_hash(user: UserRow) -> PasswordHash:
    return PasswordHash(user.password_hash, user.password_salt, user.scrypt_n, user.scrypt_r, user.scrypt_p)


async def sign_in(
    session: AsyncSession, user: UserRow, client: Client, issuer: IssuerSession | None = None
) -> SignedIn:
    """Begin a browser session. issuer: with which it begins and ends, None of a local user."""
    await repository.delete_oldest_sessions_of_user(session, user.id, keep=_MAX_SESSIONS - 1)
    cookie, csrf_token = new_token(), new_token()
    user.last_login_at = datetime.now(UTC)
    session.add(
        SessionRow(
            token_hash=token_hash(cookie),
            user_id=user.id,
            csrf_token=csrf_token,
            expires_at=user.last_login_at + repository.SESSION_LIFETIME,
            address=client.address,
            browser=client.browser,
            issuer_session=issuer and issuer.session,
            issuer_ends_at=issuer and issuer.ends_at,
            renew_at=issuer and issuer.renew_at,
            issuer_tokens=issuer and issuer.seal_tokens(cookie),
        )
    )
    limits = limits_of(role := Role(user.role), user.role_labels)
    return SignedIn(cookie, Identity(user.username, role, "session", csrf_token, limits, user.issuer))
