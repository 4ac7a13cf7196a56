"""Single sign-on: sign in with the issuer, renew and end sessions with it, roles by its groups."""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from secrets import compare_digest
from weakref import WeakValueDictionary

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.actions import Action
from coresteer.audit.service import SYSTEM_ACTORS, record
from coresteer.auth import repository as users
from coresteer.auth import service as auth
from coresteer.auth.rate_limit import LoginRateLimit
from coresteer.auth.schemas import Role
from coresteer.auth.secrets import token_hash
from coresteer.auth.tables import SessionRow, UserRow
from coresteer.config import Config
from coresteer.db import Database
from coresteer.errors import BadRequest, Forbidden, IssuerUnavailable, Unauthenticated
from coresteer.sso import repository
from coresteer.sso.issuer import Grant, Issuer, IssuerRefusedError, IssuerUnavailableError
from coresteer.sso.pending import LIFE_S, PendingSignIn, seal, unseal
from coresteer.sso.role_mapping import MappedRole, role_of
from coresteer.sso.schemas import SignInAnswer

_RENEW_AFTER = 0.75
"""Share of the time for which a grant holds, after which it is renewed."""
_RETRY = timedelta(seconds=30)
"""After the issuer did not answer; also how long it may take to."""
_POLL_S = 0.1
_NO_ROLE = "None of your groups at the issuer has a role here; ask an administrator of Coresteer."
_MAX_USERNAME = 64


class Tokens(msgspec.Struct, frozen=True):
    """Of a session, for renewing it and for signing out."""

    refresh_token: str | None
    id_token: str | None


def new_sso(database: Database, config: Config, limit: LoginRateLimit) -> "SingleSignOn | None":
    """Return single sign-on with the configured issuer, None without one."""
    return None if config.oidc_issuer is None else SingleSignOn(database, config.oidc_issuer, config, limit)


async def no_issuer(_: str) -> None:
    """End the sessions of an issuer that is no longer configured: there is nobody to renew them."""


class SingleSignOn:
    """Sign-in with one issuer."""

    def __init__(self, database: Database, issuer: str, config: Config, limit: LoginRateLimit) -> None:
        self._database, self._mapping, self._limit = database, config.oidc_roles, limit
        self._secret = config.oidc_client_secret.get_secret_value()  # it also protects the cookie of a sign-in
        self._issuer = Issuer(
            issuer,
            config.oidc_client_id,
            self._secret,
            scopes=config.oidc_scopes,
            groups_claim=config.oidc_groups_claim,
        )
        self._renewing: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    async def begin(self, redirect_uri: str, return_to: str) -> tuple[str, str]:
        """Begin a sign-in; return the issuer's address and the cookie's text. Raises IssuerUnavailable."""
        pending = PendingSignIn.begin(redirect_uri, return_to)
        try:
            url = await self._issuer.authorization_url(
                redirect_uri, state=pending.state, nonce=pending.nonce, verifier=pending.verifier
            )
        except IssuerUnavailableError as error:
            raise IssuerUnavailable(str(error)) from error
        return url, seal(self._secret, msgspec.json.encode(pending)).decode()

    async def finish(self, answer: SignInAnswer, cookie: str, client: auth.Client) -> tuple[auth.SignedIn, str]:
        """Sign in with the issuer's answer; return the session and the path to return to.

        cookie: of the sign-in that this browser began. Raises BadRequest, Unauthenticated, Forbidden for a user without
        a role, IssuerUnavailable and TooManyRequests.
        """
        opened = unseal(self._secret, cookie.encode(), LIFE_S)
        pending = None if opened is None else msgspec.json.decode(opened, type=PendingSignIn)
        if pending is None or not compare_digest(pending.state.encode(), answer.state.encode()):
            raise BadRequest(
                f"This browser did not begin this sign-in, or more than {LIFE_S // 60} minutes ago. Sign in again."
            )
        if answer.error is not None or answer.code is None:
            raise Unauthenticated(
                f"The issuer refused: {answer.error_description or answer.error or 'without a reason'}."
            )
        self._limit.record_attempt(pending.state, client.address)
        try:
            grant = await self._issuer.exchange(
                answer.code, pending.redirect_uri, nonce=pending.nonce, verifier=pending.verifier
            )
        except IssuerRefusedError as error:
            await self._record_refusal("unknown user", client, str(error))
            raise Unauthenticated(str(error)) from error
        except IssuerUnavailableError as error:
            raise IssuerUnavailable(str(error)) from error
        self._limit.record_success(pending.state, client.address)
        async with self._database.session() as session:
            signed_in = await self._sign_in(session, grant, client)
        if isinstance(signed_in, str):
            raise Forbidden(signed_in)
        return signed_in, pending.return_to

    async def renew(self, cookie: str) -> SessionRow | None:
        """Ask the issuer about the session of a cookie that is due; None if it has ended, or it did not answer in time.

        One request of a session asks at a time, in all processes: an issuer may take a refresh token only once. No
        transaction is open while the issuer answers.
        """
        key = token_hash(cookie)
        async with self._renewing.setdefault(key, asyncio.Lock()):
            row, tokens = await self._claim_renewal(cookie, key)
            if row is None or tokens is None:
                return row
            answer: Grant | str | None = None
            try:
                async with asyncio.timeout(_RETRY.total_seconds()):
                    answer = await self._issuer.renew(str(tokens.refresh_token), str(row.user.subject))
            except IssuerRefusedError as error:
                answer = str(error)
            except (IssuerUnavailableError, TimeoutError):
                pass
            async with self._database.session() as session:
                # the lock order of every transaction: user, then session
                user = await session.get(UserRow, row.user_id, with_for_update=True)
                row = await repository.find_session(session, key)
                if user is None or row is None:
                    return None
                return await self._renewed(session, row, answer, cookie, tokens)

    async def _claim_renewal(self, cookie: str, key: bytes) -> tuple[SessionRow | None, Tokens | None]:
        """Return a session, and the tokens if it is due: then only the caller may renew it, for _RETRY."""
        while True:
            async with self._database.session() as session:
                row = await repository.find_session(session, key)
                now = datetime.now(UTC)
                if row is None or row.renew_at is None:
                    return row, None
                if row.renew_at <= now:
                    tokens = _unsealed(cookie, row)
                    if row.user.issuer != self._issuer.url or tokens is None or tokens.refresh_token is None:
                        await self._end(session, row, "The session is not one of this issuer.")
                        return None, None
                    row.renew_at = now + 2 * _RETRY
                    return row, tokens
                if _holds(row, now):
                    return row, None
                if row.renew_at <= now + _RETRY:
                    return None, None
            await asyncio.sleep(_POLL_S)  # another process is asking

    async def _renewed(
        self, session: AsyncSession, row: SessionRow, answer: Grant | str | None, cookie: str, tokens: Tokens
    ) -> SessionRow | None:
        """Store the issuer's answer: a grant, why it refused, or None without one; return the session if it goes on."""
        now = datetime.now(UTC)
        if answer is None:
            row.renew_at = now + _RETRY
            return row if _holds(row, now) else None
        if isinstance(answer, str):
            await self._end(session, row, answer)
            return None
        if not await self._apply_role(session, row.user, answer):
            return None
        row.issuer_ends_at, row.renew_at = answer.expires_at, _renewal(answer, now)
        kept = Tokens(answer.refresh_token or tokens.refresh_token, answer.id_token or tokens.id_token)
        row.issuer_tokens = _sealed(cookie, kept)
        return row

    async def sign_out(self, cookie: str, return_to: str) -> str | None:
        """Return the issuer's page to sign out of the session of a cookie, None without one or without an answer."""
        async with self._database.session() as session:
            row = await repository.find_session(session, token_hash(cookie))
        if row is None or row.user.issuer != self._issuer.url:
            return None
        tokens = _unsealed(cookie, row)
        try:
            return await self._issuer.sign_out_url(None if tokens is None else tokens.id_token, return_to)
        except IssuerUnavailableError:
            return None  # the session here ends anyway

    async def end_by_issuer(self, logout_token: str) -> None:
        """End the sessions that a logout token of the issuer names. Raises BadRequest and IssuerUnavailable."""
        try:
            logout = await self._issuer.logout(logout_token)
        except IssuerRefusedError as error:
            raise BadRequest(str(error)) from error
        except IssuerUnavailableError as error:
            raise IssuerUnavailable(str(error)) from error
        async with self._database.session() as session:
            used = hashlib.sha256(f"{self._issuer.url}\0{logout.token_id}".encode()).digest()
            if not await repository.use_logout_token(session, used, logout.expires_at):
                raise BadRequest("This logout token was used already.")
            ended = await repository.end_sessions(
                session, self._issuer.url, subject=logout.subject, issuer_session=logout.session
            )
            for user in ended:
                detail = {"why": "The issuer signed the user out.", "session": logout.session}
                self._record(session, "session.end_by_issuer", user, detail)

    async def _sign_in(self, session: AsyncSession, grant: Grant, client: auth.Client) -> auth.SignedIn | str:
        """Return the session, or why there is none: a refusal is stored as well."""
        user = await repository.find_user(session, self._issuer.url, grant.subject)
        role = role_of(grant.groups or (), self._mapping)
        if user is not None and user.disabled:
            refused = f"{user.username} was disabled by an administrator of Coresteer."
        elif role is None:
            refused = _NO_ROLE
            if user is not None:
                await self._apply_role(session, user, grant)
        else:
            user = user or await self._new_user(session, grant, role)
            await self._apply_role(session, user, grant)
            now = datetime.now(UTC)
            tokens = Tokens(grant.refresh_token, grant.id_token)
            with_issuer = auth.IssuerSession(
                grant.session, grant.expires_at, _renewal(grant, now), lambda cookie: _sealed(cookie, tokens)
            )
            signed_in = await auth.sign_in(session, user, client, with_issuer)
            detail = {"from": client.address, "issuer": self._issuer.url}
            record(session, actor=user.username, action="login", target=f"user {user.username}", detail=detail)
            return signed_in
        target = "unknown user" if user is None else f"user {user.username}"
        self._record_refused(session, target, client, refused)
        return refused

    async def _new_user(self, session: AsyncSession, grant: Grant, role: MappedRole) -> UserRow:
        """Create the user of a first sign-in; the name is the issuer's, with a number if it is taken."""
        wanted = re.sub(r"[^A-Za-z0-9._@-]+", "-", grant.username).strip("-")[: _MAX_USERNAME - 5] or "user"
        name, number = wanted, 1
        while name.lower() in SYSTEM_ACTORS or await users.find_user_by_name(session, name) is not None:
            number += 1
            name = f"{wanted}-{number}"
        user = UserRow(
            username=name,
            role=role.role,
            role_labels=dict(role.labels),
            password_hash=b"",
            password_salt=b"",
            scrypt_n=2,
            scrypt_r=1,
            scrypt_p=1,
            disabled=False,
            created_at=datetime.now(UTC),
            issuer=self._issuer.url,
            subject=grant.subject,
        )
        session.add(user)
        await session.flush()
        detail: dict[str, object] = {"role": role.role, "subject": grant.subject}
        self._record(session, "user.create", user, detail | ({"role_labels": user.role_labels} if role.labels else {}))
        return user

    async def _apply_role(self, session: AsyncSession, user: UserRow, grant: Grant) -> bool:
        """Give a user the role of their groups; without any, end all that they could sign in with, and return False."""
        if grant.groups is None:
            return True  # the issuer did not say; the role stays until it does
        role = role_of(grant.groups, self._mapping)
        if role is None:
            ended = await auth.end_credentials(session, user)
            user.role, user.role_labels = Role.VIEWER, {}  # who decides on a request of theirs reads it
            self._record(session, "user.update_by_issuer", user, {"role": None} | ended)
            return False
        user.confirmed_at = datetime.now(UTC)
        if (user.role, user.role_labels) != (role.role, role.labels):
            user.role, user.role_labels = role.role, dict(role.labels)
            ended = await auth.end_enrolment_tokens(session, user)
            self._record(
                session, "user.update_by_issuer", user, {"role": role.role, "role_labels": user.role_labels} | ended
            )
        return True

    async def _end(self, session: AsyncSession, row: SessionRow, why: str) -> None:
        await users.delete_session(session, row.token_hash)
        self._record(session, "session.end_by_issuer", row.user, {"why": why})

    def _record(self, session: AsyncSession, action: Action, user: UserRow, detail: Mapping[str, object]) -> None:
        record(session, actor="issuer", action=action, target=f"user {user.username}", detail=dict(detail))

    async def _record_refusal(self, target: str, client: auth.Client, why: str) -> None:
        async with self._database.session() as session:
            self._record_refused(session, target, client, why)

    def _record_refused(self, session: AsyncSession, target: str, client: auth.Client, why: str) -> None:
        detail = {"from": client.address, "issuer": self._issuer.url, "why": why}
        record(session, actor="anonymous", action="login", target=target, result="refused", detail=detail)


def _renewal(grant: Grant, now: datetime) -> datetime | None:
    """Return when to ask the issuer again, None if it gave nothing to ask with."""
    return None if grant.refresh_token is None else now + (grant.expires_at - now) * _RENEW_AFTER


def _holds(row: SessionRow, now: datetime) -> bool:
    return row.issuer_ends_at is not None and row.issuer_ends_at > now


def _sealed(cookie: str, tokens: Tokens) -> bytes:
    return seal(cookie, msgspec.json.encode(tokens))


def _unsealed(cookie: str, row: SessionRow) -> Tokens | None:
    opened = None if row.issuer_tokens is None else unseal(cookie, row.issuer_tokens)
    return None if opened is None else msgspec.json.decode(opened, type=Tokens)
