"""An OpenID Connect issuer that consents to everything, and sends what a test tells it to, wrong tokens included.

``python -m tests.support.mock_issuer PORT`` serves one for a browser.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import ECKey, KeyParameters, KeySet, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT_ID, CLIENT_SECRET = "coresteer", "a secret of the client"
_EVENT = "http://schemas.openid.net/event/backchannel-logout"
Claims = dict[str, Any]
Key = RSAKey | ECKey


@dataclass
class Authorization:
    """What a code stands for."""

    nonce: str
    challenge: str
    redirect_uri: str


@dataclass
class MockIssuer:
    """url: its address. groups, username: of the user who signs in. life_s: of ID tokens.

    alter: changes the claims of the next ID tokens. sign: signs them instead. gives_refresh: whether it gives refresh
    tokens. refuses, fails: to renew sessions, or to answer; fails_with: with what. signed_out: parameters of the
    requests to end a session. gives_keys: whether its keys can be read. answers: while it is clear, renewals wait.
    """

    url: str
    subject: str = "1001"
    username: str = "kim"
    groups: list[str] = field(default_factory=lambda: ["sre"])
    life_s: float = 300
    gives_refresh: bool = True
    gives_keys: bool = True
    groups_in: str = "id_token"
    renews_id_token: bool = True
    refuses: bool = False
    fails: bool = False
    fails_with: tuple[int, str] = (500, "out of order")
    session: str = "s1"
    alter: Callable[[Claims], Claims] = field(default=lambda claims: claims)
    sign: Callable[[Claims], str] | None = None
    keys: list[Key] = field(default_factory=list)
    signed_out: list[dict[str, list[str]]] = field(default_factory=list)
    renewals: int = 0
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    codes: dict[str, Authorization] = field(default_factory=dict)
    refresh_tokens: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rotate()
        self.answers.set()

    def rotate(self, *, elliptic: bool = True) -> None:
        """Sign with a new key from now on, and know the one before no more."""
        options: KeyParameters = {"kid": secrets.token_hex(4), "use": "sig"}
        new: Key = ECKey.generate_key("P-256", options) if elliptic else RSAKey.generate_key(2048, options)
        self.keys = [new]

    def signed(self, claims: Claims, key: Key | None = None, **header: str) -> str:
        """A token of these claims."""
        key = key or self.keys[0]
        algorithm = "ES256" if isinstance(key, ECKey) else "RS256"
        return jwt.encode({"alg": algorithm, "kid": key.kid} | header, claims, key)

    def signed_by_secret(self, claims: Claims) -> str:
        """A token that is signed with the public key as if that were a shared secret (HS256)."""
        _, payload, _ = self.signed(claims).split(".")
        header = _base64(json.dumps({"alg": "HS256", "kid": self.keys[0].kid}).encode())
        signature = hmac.digest(self.keys[0].as_pem(private=False), f"{header}.{payload}".encode(), "sha256")
        return f"{header}.{payload}.{_base64(signature)}"

    def unsigned(self, claims: Claims) -> str:
        """A token without a signature (alg none)."""
        _, payload, _ = self.signed(claims).split(".")
        return _base64(b'{"alg":"none","typ":"JWT"}') + f".{payload}."

    def logout_token(self, **changes: object) -> str:
        """A logout token of the user's session; a change to None leaves the claim out."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 120,
            "jti": secrets.token_hex(8),
            "sub": self.subject,
            "sid": self.session,
            "events": {_EVENT: {}},
        } | changes
        return self.signed({name: value for name, value in claims.items() if value is not None})

    def app(self) -> Starlette:
        """The issuer as an ASGI application."""
        get, post = ["GET"], ["POST"]
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._metadata, methods=get),
                Route("/authorize", self._authorize, methods=get),
                Route("/token", self._token, methods=post),
                Route("/jwks", self._jwks, methods=get),
                Route("/userinfo", self._userinfo, methods=get),
                Route("/end-session", self._end_session, methods=get),
            ]
        )

    async def _metadata(self, _: Request) -> Response:
        names = ("authorize", "token", "jwks", "userinfo", "end-session")
        authorize, token, jwks, userinfo, end_session = (f"{self.url}/{name}" for name in names)
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": authorize,
                "token_endpoint": token,
                "jwks_uri": jwks,
                "userinfo_endpoint": userinfo,
                "end_session_endpoint": end_session,
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            }
        )

    async def _authorize(self, request: Request) -> Response:
        given = request.query_params
        assert given["client_id"] == CLIENT_ID
        assert given["response_type"] == "code"
        assert given["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self.codes[code] = Authorization(given["nonce"], given["code_challenge"], given["redirect_uri"])
        return RedirectResponse(f"{given['redirect_uri']}?{urlencode({'code': code, 'state': given['state']})}", 302)

    async def _token(self, request: Request) -> Response:
        if self.fails:
            status, body = self.fails_with
            return Response(body, status)
        basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        if request.headers.get("authorization") != f"Basic {basic}":
            return _refusal("invalid_client")
        if form["grant_type"] == "refresh_token":
            if self.refuses or form["refresh_token"] not in self.refresh_tokens:
                return _refusal("invalid_grant", "The session has ended")
            self.refresh_tokens.remove(form["refresh_token"])
            self.renewals += 1
            await self.answers.wait()
            return JSONResponse(self._tokens(None))
        found = self.codes.pop(form["code"], None)
        challenge = _base64(hashlib.sha256(form["code_verifier"].encode()).digest())
        if found is None or (found.challenge, found.redirect_uri) != (challenge, form["redirect_uri"]):
            return _refusal("invalid_grant", "The code is not valid")
        return JSONResponse(self._tokens(found.nonce))

    def _tokens(self, nonce: str | None) -> dict[str, object]:
        now = time.time()
        claims = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "sub": self.subject,
            "iat": int(now),
            "exp": int(now + self.life_s),
            "sid": self.session,
            "preferred_username": self.username,
        }
        if self.groups_in == "id_token":
            claims["groups"] = self.groups
        if nonce is not None:
            claims["nonce"] = nonce
        answer: dict[str, object] = {"access_token": "access", "token_type": "Bearer", "expires_in": self.life_s}
        if nonce is not None or self.renews_id_token:
            answer["id_token"] = (self.sign or self.signed)(self.alter(claims))
        if self.gives_refresh:
            answer["refresh_token"] = token = secrets.token_urlsafe(16)
            self.refresh_tokens.add(token)
        return answer

    async def _userinfo(self, request: Request) -> Response:
        assert request.headers["authorization"] == "Bearer access"
        return JSONResponse({"sub": self.subject, "groups": self.groups})

    async def _jwks(self, _: Request) -> Response:
        return JSONResponse(KeySet([*self.keys]).as_dict(private=False) if self.gives_keys else {})

    async def _end_session(self, request: Request) -> Response:
        given = parse_qs(request.url.query)
        self.signed_out.append(given)
        return RedirectResponse(given["post_logout_redirect_uri"][0], 302)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _refusal(error: str, description: str = "") -> Response:
    return JSONResponse({"error": error, "error_description": description}, 400)


@asynccontextmanager
async def mock_issuer() -> AsyncIterator[MockIssuer]:
    """Serve an issuer on a free port of this machine until the end of the block."""
    config = uvicorn.Config(lambda: None, port=0, log_level="warning", lifespan="off")
    with config.bind_socket() as listener:
        issuer = MockIssuer(f"http://127.0.0.1:{listener.getsockname()[1]}")
        server = uvicorn.Server(uvicorn.Config(issuer.app(), log_level="warning", lifespan="off"))
        running = asyncio.create_task(server._serve([listener]))  # serve() takes over the signals
        try:
            yield issuer
        finally:
            server.should_exit = True
            await running


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
        print("ready", flush=True)  # noqa: T201 - for who started it; connections wait from here on
        app = MockIssuer(f"http://127.0.0.1:{sys.argv[1]}").app()
        uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off")).run([listener])
