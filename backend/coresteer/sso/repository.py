"""SQL of users of the issuer, their sessions, and logout tokens."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import delete, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.auth.tables import SessionRow, UserRow
from coresteer.sso.tables import LogoutTokenRow

_NEW_USERS = 0x53534F  # "SSO": the advisory lock under which users are created, so that none is created twice


async def find_user(session: AsyncSession, issuer: str, subject: str) -> UserRow | None:
    """Return the user whom the issuer calls so, locked; None until the first sign-in, for which others then wait."""
    query = select(UserRow).where(UserRow.issuer == issuer, UserRow.subject == subject).with_for_update()
    if (found := await session.scalar(query)) is not None:
        return found
    await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _NEW_USERS})
    return await session.scalar(query)


async def find_session(session: AsyncSession, token_hash: bytes) -> SessionRow | None:
    """Return a browser session, locked, None without one."""
    query = select(SessionRow).where(SessionRow.token_hash == token_hash)
    return await session.scalar(query.with_for_update(of=SessionRow))


async def end_sessions(
    session: AsyncSession, issuer: str, *, subject: str | None, issuer_session: str | None
) -> Sequence[UserRow]:
    """Delete the browser sessions of a user or of a session of the issuer; return their users."""
    users = select(UserRow).where(UserRow.issuer == issuer)
    if subject is not None:
        users = users.where(UserRow.subject == subject)
    if issuer_session is not None:
        of_session = select(SessionRow.user_id).where(SessionRow.issuer_session == issuer_session)
        users = users.where(UserRow.id.in_(of_session))
    found = (await session.scalars(users)).all()
    ended = delete(SessionRow).where(SessionRow.user_id.in_([user.id for user in found]))
    if issuer_session is not None:
        ended = ended.where(SessionRow.issuer_session == issuer_session)
    await session.execute(ended)
    return found


async def use_logout_token(session: AsyncSession, id_hash: bytes, expires_at: datetime) -> bool:
    """Note that a logout token was used; return False if it was before. Those that have expired are forgotten."""
    await session.execute(delete(LogoutTokenRow).where(LogoutTokenRow.expires_at <= datetime.now(UTC)))
    new = insert(LogoutTokenRow).values(id_hash=id_hash, expires_at=expires_at).on_conflict_do_nothing()
    return await session.scalar(new.returning(LogoutTokenRow.id_hash)) is not None
