"""SQL of users, their sessions and tokens."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, delete, exists, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.auth.schemas import Role
from coresteer.auth.tables import ApiTokenRow, EnrolmentTokenRow, OneTimeTokenRow, SessionRow, UserRow

SESSION_HOURS = 12
SESSION_LIFETIME = timedelta(hours=SESSION_HOURS)
"""Of a session without use."""
MAX_SESSION_DAYS = 30
MAX_SESSION_LIFETIME = timedelta(days=MAX_SESSION_DAYS)
"""Of a session however it is used: a stolen cookie must not be valid forever."""
MAX_UNCONFIRMED = timedelta(days=30)
"""After a user's issuer confirmed them, by a sign-in or by renewing a session: then their API tokens wait."""
NAMES_OF_USERS = (
    ("alert_receiver", "created_by"),
    ("alert_rule", "updated_by"),
    ("alert_silence", "created_by"),
    ("application_metric", "created_by"),
    ("approval", "decided_by"),
    ("approval", "requested_by"),
    ("change", "created_by"),
    ("change_window", "created_by"),
    ("enforcement_stop", "created_by"),
    ("enforcement_stop", "lifted_by"),
    ("enrolment_token", "created_by"),
    ("experiment", "created_by"),
    ("fleet_view", "created_by"),
    ("one_time_token", "created_by"),
    ("policy", "created_by"),
    ("policy_version", "created_by"),
    ("proof_fleet", "paused_by"),
    ("report_share", "created_by"),
    ("rollout", "started_by"),
    ("simulation", "created_by"),
    ("simulation_trace", "created_by"),
)
"""Tables and columns with names of users; those of the audit log are replaced by its own function."""
_ENROLMENT = "enrolment"
"""Purpose of the one-time tokens with which the previous version's backend lets agents enrol."""
_USE_IS_NOTED_EVERY = timedelta(minutes=1)  # so that not every request writes


async def use_session(session: AsyncSession, token_hash: bytes) -> SessionRow | None:
    """Return the browser session of an enabled user with its expiry extended, None if there is none."""
    now = datetime.now(UTC)
    row = await session.get(SessionRow, token_hash)
    if row is None or row.expires_at <= now or row.user.disabled:
        return None
    if row.renew_at is None and row.issuer_ends_at is not None and row.issuer_ends_at <= now:
        return None
    expires_at = min(now + SESSION_LIFETIME, row.created_at + MAX_SESSION_LIFETIME)
    if row.expires_at < expires_at - _USE_IS_NOTED_EVERY:
        # a statement, not the row's attribute: a session deleted concurrently is no error
        await session.execute(
            update(SessionRow).where(SessionRow.token_hash == token_hash).values(expires_at=expires_at)
        )
    return row


async def use_api_token(session: AsyncSession, token_hash: bytes) -> ApiTokenRow | None:
    """Return the API token of an enabled user with its last use updated, None if there is none."""
    now = datetime.now(UTC)
    row = await session.scalar(select(ApiTokenRow).where(ApiTokenRow.token_hash == token_hash))
    if row is None or row.user.disabled or (row.expires_at is not None and row.expires_at <= now):
        return None
    if row.user.confirmed_at is not None and row.user.confirmed_at <= now - MAX_UNCONFIRMED:
        return None
    if row.last_used_at is None or row.last_used_at < now - _USE_IS_NOTED_EVERY:
        await session.execute(update(ApiTokenRow).where(ApiTokenRow.id == row.id).values(last_used_at=now))
    return row


async def use_enrolment_token(session: AsyncSession, token_hash: bytes) -> EnrolmentTokenRow | None:
    """Return a valid enrolment token with one use less, None if there is none.

    Its row stays locked until the end of the transaction, so that concurrent enrolments never exceed its uses, and one
    that is rolled back uses nothing.
    """
    now = datetime.now(UTC)
    row = EnrolmentTokenRow
    found = await session.scalar(
        update(row)
        .where(row.token_hash == token_hash, row.uses < row.max_uses, row.expires_at > now)
        .values(uses=row.uses + 1, last_used_at=now)
        .returning(row)
    )
    return found or await _use_token_of_previous_version(session, token_hash)


async def _use_token_of_previous_version(session: AsyncSession, token_hash: bytes) -> EnrolmentTokenRow | None:
    """Use a token that the previous version made before this one took over, and move it to enrolment_token."""
    used = await consume_one_time_token(session, token_hash, _ENROLMENT)
    if used is None:
        return None
    row = EnrolmentTokenRow(
        token_hash=token_hash,
        created_by=used.created_by,
        created_at=used.created_at,
        expires_at=used.expires_at,
        simulated=used.simulated,
        node_id=used.node_id,
        uses=1,
        last_used_at=datetime.now(UTC),
    )
    session.add(row)
    await session.flush()
    return row


async def list_enrolment_tokens(session: AsyncSession) -> Sequence[EnrolmentTokenRow]:
    """Return every enrolment token that has not expired, newest first."""
    query = select(EnrolmentTokenRow).where(EnrolmentTokenRow.expires_at > datetime.now(UTC))
    return (await session.scalars(query.order_by(EnrolmentTokenRow.id.desc()))).all()


async def delete_enrolment_tokens_of_user(session: AsyncSession, username: str) -> int:
    """Delete every enrolment token that a user created; return their number."""
    created = EnrolmentTokenRow.created_by == username
    tokens = await session.scalars(delete(EnrolmentTokenRow).where(created).returning(EnrolmentTokenRow.id))
    row = OneTimeTokenRow
    previous = delete(row).where(row.created_by == username, row.purpose == _ENROLMENT).returning(row.token_hash)
    return len(tokens.all()) + len((await session.scalars(previous)).all())


async def delete_readmissions(session: AsyncSession, node_id: int) -> None:
    """Delete the tokens that readmit a node."""
    await session.execute(delete(EnrolmentTokenRow).where(EnrolmentTokenRow.node_id == node_id))
    await session.execute(delete(OneTimeTokenRow).where(OneTimeTokenRow.node_id == node_id))


async def consume_one_time_token(session: AsyncSession, token_hash: bytes, purpose: str) -> OneTimeTokenRow | None:
    """Delete and return a valid one-time token, None if there is none; of two concurrent calls, one gets it."""
    return await session.scalar(
        delete(OneTimeTokenRow).where(*_is_valid(token_hash, purpose)).returning(OneTimeTokenRow)
    )


async def is_one_time_token_valid(session: AsyncSession, token_hash: bytes, purpose: str) -> bool:
    """Return whether a one-time token is neither used nor expired."""
    query = select(OneTimeTokenRow.token_hash).where(*_is_valid(token_hash, purpose))
    return await session.scalar(query) is not None


def _is_valid(token_hash: bytes, purpose: str) -> tuple[ColumnElement[bool], ...]:
    return (
        OneTimeTokenRow.token_hash == token_hash,
        OneTimeTokenRow.purpose == purpose,
        OneTimeTokenRow.expires_at > datetime.now(UTC),
    )


async def delete_set_up_tokens(session: AsyncSession) -> None:
    """Delete the tokens of all set-up links."""
    await session.execute(delete(OneTimeTokenRow).where(OneTimeTokenRow.purpose == "setup"))


async def delete_expired_sessions_and_tokens(session: AsyncSession) -> None:
    """Delete expired sessions, one-time tokens and enrolment tokens."""
    now = datetime.now(UTC)
    await session.execute(delete(SessionRow).where(SessionRow.expires_at <= now))
    await session.execute(delete(OneTimeTokenRow).where(OneTimeTokenRow.expires_at <= now))
    await session.execute(delete(EnrolmentTokenRow).where(EnrolmentTokenRow.expires_at <= now))


async def has_users(session: AsyncSession) -> bool:
    """Return whether there is any user."""
    return await session.scalar(select(UserRow.id).limit(1)) is not None


async def find_user_by_name(session: AsyncSession, username: str) -> UserRow | None:
    """Return the user of that name, regardless of case, None if there is none."""
    if "\0" in username:  # PostgreSQL's text cannot hold it, so no user has such a name
        return None
    return await session.scalar(select(UserRow).where(func.lower(UserRow.username) == username.lower()))


async def lock_user(session: AsyncSession, username: str) -> UserRow | None:
    """Return the user of exactly this name, locked, None if there is none."""
    query = select(UserRow).where(UserRow.username == username)
    return await session.scalar(query.with_for_update().execution_options(populate_existing=True))


async def has_credential(session: AsyncSession, user: UserRow, token_hash: bytes) -> bool:
    """Return whether a user has a session or an API token with this hash."""
    either = (exists().where(row.user_id == user.id, row.token_hash == token_hash) for row in (SessionRow, ApiTokenRow))
    return bool(await session.scalar(select(or_(*either))))


async def delete_user(session: AsyncSession, user: UserRow) -> None:
    """Delete a user with sessions and tokens; history and audit log keep the pseudonym ``(deleted user ID)``."""
    await delete_enrolment_tokens_of_user(session, user.username)
    await session.execute(delete(UserRow).where(UserRow.id == user.id))
    await session.execute(
        text("DELETE FROM fleet_view WHERE created_by = :name AND NOT shared"), {"name": user.username}
    )
    pseudonym = f"(deleted user {user.id})"
    for table, column in NAMES_OF_USERS:
        await session.execute(
            text(f"UPDATE {table} SET {column} = :pseudonym WHERE {column} = :name"),  # noqa: S608 - constants
            {"pseudonym": pseudonym, "name": user.username},
        )


async def list_users(session: AsyncSession) -> Sequence[UserRow]:
    """Return all users, ordered by name."""
    return (await session.scalars(select(UserRow).order_by(func.lower(UserRow.username)))).all()


async def lock_enabled_admins(session: AsyncSession) -> Sequence[int]:
    """Lock the enabled local administrators and return their ids, so that two requests cannot remove the last one.

    Those of an issuer do not count: one who can sign in without it must remain.
    """
    is_admin = (UserRow.role == Role.ADMIN, UserRow.disabled.is_(False), UserRow.issuer.is_(None))
    query = select(UserRow.id).where(*is_admin).order_by(UserRow.id)
    return (await session.scalars(query.with_for_update())).all()


async def sessions_of_user(session: AsyncSession, user_id: int) -> Sequence[SessionRow]:
    """Return the unexpired browser sessions of a user, newest first."""
    now = datetime.now(UTC)
    query = select(SessionRow).where(SessionRow.user_id == user_id, SessionRow.expires_at > now)
    return (await session.scalars(query.order_by(SessionRow.created_at.desc()))).all()


async def delete_oldest_sessions_of_user(session: AsyncSession, user_id: int, keep: int) -> None:
    """Delete a user's browser sessions except the newest."""
    newest = select(SessionRow.token_hash).where(SessionRow.user_id == user_id)
    oldest = newest.order_by(SessionRow.created_at.desc()).offset(keep)
    await session.execute(delete(SessionRow).where(SessionRow.token_hash.in_(oldest)))


async def delete_session(session: AsyncSession, token_hash: bytes) -> None:
    """Delete one browser session."""
    await session.execute(delete(SessionRow).where(SessionRow.token_hash == token_hash))


async def delete_sessions_of_user(session: AsyncSession, user_id: int, keep: bytes = b"") -> None:
    """Delete all browser sessions of a user, except one with the token hash keep."""
    await session.execute(delete(SessionRow).where(SessionRow.user_id == user_id, SessionRow.token_hash != keep))


async def delete_api_tokens_of_user(session: AsyncSession, user_id: int) -> int:
    """Delete every API token of a user; return their number."""
    tokens = await session.scalars(delete(ApiTokenRow).where(ApiTokenRow.user_id == user_id).returning(ApiTokenRow.id))
    return len(tokens.all())


async def list_api_tokens(session: AsyncSession) -> Sequence[ApiTokenRow]:
    """Return every API token, newest first."""
    return (await session.scalars(select(ApiTokenRow).order_by(ApiTokenRow.id.desc()))).all()
