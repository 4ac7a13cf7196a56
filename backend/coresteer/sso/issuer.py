"""The issuer: OpenID Connect's authorization code flow with PKCE, refresh, back-channel logout, sign-out.

OpenID Connect Core 1.0, Discovery 1.0, Back-Channel Logout 1.0, RP-Initiated Logout 1.0; RFC 7636 (PKCE).
"""

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
from authlib.common.urls import add_params_to_uri
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry
from joserfc.jwt import JWTClaimsRegistry

# Any: metadata, tokens and claims are JSON of the issuer

LEEWAY_S = 60
"""By which the issuer's clock may differ."""
_ASYMMETRIC = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)]
_REGISTRY = JWSRegistry(algorithms=_ASYMMETRIC, strict_check_header=False)
"""A token that is signed with a shared secret, or not at all, is none. Headers of the issuer's own are no reason."""
_METADATA_S = 3600.0
_DEFAULT_LIFE_S = 3600.0
_UNKNOWN_KEY_S = 10.0
"""Between two readings of the issuer's keys for tokens that strangers may have made."""
_TIMEOUT_S = 10.0
_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


class IssuerRefusedError(Exception):
    """The issuer refused, or what it sent is not valid; its text is a sentence for people."""


class IssuerUnavailableError(Exception):
    """The issuer did not answer, or with a failure of its own."""


@dataclass(frozen=True)
class Grant:
    """What the issuer says about a user who signs in or whose session it renews.

    subject: who it is, forever. groups: None if the issuer did not say. session: the issuer's id of its session.
    expires_at: until when it holds. refresh_token: to renew it, None without. id_token: for signing out, None without a
    new one.
    """

    subject: str
    username: str
    groups: Sequence[str] | None
    session: str | None
    expires_at: datetime
    refresh_token: str | None
    id_token: str | None


@dataclass(frozen=True)
class Logout:
    """A valid logout token: its id, until when it is valid, and of whom or which session of the issuer it is."""

    token_id: str
    expires_at: datetime
    subject: str | None
    session: str | None


class Issuer:
    """One issuer, as its discovery document describes it."""

    def __init__(self, url: str, client_id: str, client_secret: str, *, scopes: str, groups_claim: str) -> None:
        self.url = url
        self._client_id, self._secret = client_id, client_secret
        self._scopes, self._groups_claim = scopes, groups_claim
        self._metadata: dict[str, Any] = {}
        self._metadata_at = self._keys_at = float("-inf")
        self._keys, self._keys_failed = KeySet([]), False

    async def authorization_url(self, redirect_uri: str, *, state: str, nonce: str, verifier: str) -> str:
        """Return the address where a user signs in. Raises IssuerUnavailableError."""
        metadata = await self._discovered()
        async with self._client(redirect_uri) as client:
            url, _ = client.create_authorization_url(
                metadata["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
            )
        return str(url)

    async def exchange(self, code: str, redirect_uri: str, *, nonce: str, verifier: str) -> Grant:
        """Exchange the code of an authorization. Raises IssuerRefusedError and IssuerUnavailableError."""
        metadata = await self._discovered()
        async with self._client(redirect_uri) as client:
            token = await client.fetch_token(metadata["token_endpoint"], code=code, code_verifier=verifier)
            _check_tokens(token)
        if "id_token" not in token:
            raise IssuerRefusedError("The issuer sent no ID token; its client must have the scope openid.")
        claims = await self._id_claims(token, nonce)
        return await self._grant(token, claims)

    async def renew(self, refresh_token: str, subject: str) -> Grant:
        """Renew what the issuer says about a user. Raises IssuerRefusedError and IssuerUnavailableError."""
        metadata = await self._discovered()
        async with self._client() as client:
            token = await client.refresh_token(metadata["token_endpoint"], refresh_token=refresh_token)
            _check_tokens(token)
        claims = await self._id_claims(token, None) if "id_token" in token else {"sub": subject}
        if claims["sub"] != subject:
            raise IssuerRefusedError("The issuer renewed the session of another user.")
        return await self._grant(token, claims)

    async def logout(self, token: str) -> Logout:
        """Validate a logout token. Raises IssuerRefusedError and IssuerUnavailableError."""
        claims = (await self._verified(token, is_from_issuer=False)).claims
        registry = JWTClaimsRegistry(
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self.url},
            aud={"essential": True, "value": self._client_id},
            iat={"essential": True},
            exp={"essential": True},
            jti={"essential": True},
        )
        with _refusals("logout token"):
            registry.validate(claims)
        events = claims.get("events")
        if not isinstance(events, Mapping) or _LOGOUT_EVENT not in events or "nonce" in claims:
            raise IssuerRefusedError("This is not a logout token.")
        subject, session = claims.get("sub"), claims.get("sid")
        named = [each for each in (subject, session) if each is not None]
        if not named or not all(isinstance(each, str) for each in named):
            raise IssuerRefusedError("The logout token names neither a user nor a session.")
        expires_at = datetime.fromtimestamp(claims["exp"], UTC) + timedelta(seconds=LEEWAY_S)
        return Logout(str(claims["jti"]), expires_at, subject, session)

    async def sign_out_url(self, id_token: str | None, return_to: str) -> str | None:
        """Return the issuer's page to sign out, None if it has none. Raises IssuerUnavailableError."""
        endpoint = (await self._discovered()).get("end_session_endpoint")
        if endpoint is None:
            return None
        given = {"client_id": self._client_id, "post_logout_redirect_uri": return_to}
        return str(add_params_to_uri(endpoint, given | ({"id_token_hint": id_token} if id_token else {})))

    @asynccontextmanager
    async def _client(self, redirect_uri: str | None = None) -> AsyncIterator[AsyncOAuth2Client]:
        async with AsyncOAuth2Client(
            self._client_id,
            self._secret,
            scope=self._scopes,
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            token_endpoint_auth_method=self._auth_method(),
            timeout=_TIMEOUT_S,
        ) as client:
            try:
                yield client
            except OAuthError as error:
                raise IssuerRefusedError(f"The issuer refused: {error.description or error.error}.") from error
            except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
                raise IssuerUnavailableError(f"The issuer {self.url} did not answer as it should.") from error

    def _auth_method(self) -> str:
        offered = self._metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return "client_secret_basic" if "client_secret_basic" in offered else "client_secret_post"

    async def _discovered(self) -> dict[str, Any]:
        if time.monotonic() - self._metadata_at > _METADATA_S:
            found = await self._get(f"{self.url.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != self.url:
                raise IssuerUnavailableError(f"{self.url} says that its issuer is {found.get('issuer')!r}.")
            self._metadata, self._metadata_at = found, time.monotonic()
        return self._metadata

    async def _get(self, url: str, access_token: str | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {access_token}"} if access_token else {}
        async with self._client() as client:
            answer = await client.request("GET", url, withhold_token=True, headers=headers)
            answer.raise_for_status()
            found = answer.json()
            if not isinstance(found, dict):
                raise ValueError("not an object")
            return found

    async def _read_keys(self) -> KeySet:
        self._keys_at, self._keys_failed = time.monotonic(), True
        metadata = await self._discovered()
        document = await self._get(metadata["jwks_uri"])
        try:
            # keys for other purposes may be of kinds that joserfc does not know
            keys = [
                key for key in document["keys"] if key.get("use", "sig") == "sig" and key.get("kty") in ("RSA", "EC")
            ]
            self._keys = KeySet.import_key_set({"keys": keys})
        except (JoseError, KeyError, TypeError, ValueError) as error:
            raise IssuerUnavailableError(f"The keys of {self.url} cannot be read.") from error
        self._keys_failed = False
        return self._keys

    async def _verified(self, token: str, *, is_from_issuer: bool) -> jwt.Token:
        """Check the signature of a token; the issuer's keys are read again when it has a new one."""
        with _refusals("token"):
            try:
                return jwt.decode(token, self._keys, registry=_REGISTRY)
            except InvalidKeyIdError:
                if not is_from_issuer and time.monotonic() - self._keys_at < _UNKNOWN_KEY_S:
                    if self._keys_failed:
                        raise IssuerUnavailableError(f"The keys of {self.url} cannot be read.") from None
                    raise
        keys = await self._read_keys()
        with _refusals("token"):
            return jwt.decode(token, keys, registry=_REGISTRY)

    async def _id_claims(self, token: Mapping[str, Any], nonce: str | None) -> dict[str, Any]:
        given = await self._verified(token["id_token"], is_from_issuer=True)
        options = {
            "iss": {"essential": True, "value": self.url},
            "aud": {"essential": True, "value": self._client_id},
            "sub": {"essential": True},
        }
        params = {"nonce": nonce, "client_id": self._client_id, "access_token": token.get("access_token")}
        claims = CodeIDToken(given.claims, given.header, options, params)
        with _refusals("ID token"):
            claims.validate(leeway=LEEWAY_S)
        return dict(claims)

    async def _grant(self, token: Mapping[str, Any], claims: dict[str, Any]) -> Grant:
        """Return what a token says; for groups that its ID token does not name, the issuer is asked."""
        is_told = "iss" in claims
        userinfo = self._metadata.get("userinfo_endpoint")
        if self._groups_claim not in claims and userinfo and "access_token" in token:
            told = await self._get(userinfo, token["access_token"])
            if told.get("sub") != claims["sub"]:
                raise IssuerRefusedError("The issuer told about another user.")
            claims, is_told = told | claims, True
        expires = claims.get("exp") or time.time() + float(token.get("expires_in") or _DEFAULT_LIFE_S)
        groups = claims.get(self._groups_claim) or []
        if not isinstance(groups, str | list | dict):  # of an object, the names are the groups
            raise IssuerRefusedError(f"The issuer's claim {self._groups_claim} is not a list.")
        named = [groups] if isinstance(groups, str) else [str(each) for each in groups]
        return Grant(
            subject=str(claims["sub"]),
            username=str(claims.get("preferred_username") or claims.get("email") or claims["sub"]),
            groups=named if is_told else None,
            session=claims.get("sid"),
            expires_at=datetime.fromtimestamp(float(expires), UTC),
            refresh_token=token.get("refresh_token"),
            id_token=token.get("id_token"),
        )


def _check_tokens(answer: Mapping[str, Any]) -> None:
    """Raise ValueError for an answer that holds no tokens: a failure that is not described as OAuth 2 requires."""
    if "access_token" not in answer:
        raise ValueError("no access token")


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    try:
        yield
    except (JoseError, TypeError, ValueError) as error:  # TypeError: a header of a wrong type, such as "crit": 5
        raise IssuerRefusedError(f"The {what} of the issuer is not valid: {error}.") from error
