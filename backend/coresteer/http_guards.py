"""Checks of every HTTP request before its route: host name, origin, size of the body, database."""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coresteer.errors import DATABASE_UNAVAILABLE, BadRequest, Forbidden, Problem, TooLarge, to_response
from coresteer.origin import is_cross_origin
from coresteer.paths import API, FORMER_HEALTH

MAX_BODY_BYTES = 1024 * 1024
DATABASE_CHECK_AFTER_S = 5.0
"""Seconds after which the database is checked while a request has no response."""
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

_SECURITY_HEADERS = {
    # Mantine sets style attributes; everything else comes from this backend
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}


class RequestGuards:
    """ASGI middleware that checks every request.

    host_names: those that requests may name, beside addresses.

    is_ready: whether routes can work; until then all but /api/v1/health get 503.

    larger_bodies: bytes that a request may have whose path begins so, instead of MAX_BODY_BYTES.

    is_database_reachable: whether the database answers, called when a request takes longer than DATABASE_CHECK_AFTER_S.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host_names: frozenset[str],
        larger_bodies: Mapping[str, int],
        is_ready: Callable[[], bool],
        is_database_reachable: Callable[[], Awaitable[bool]],
    ) -> None:
        self._app = app
        self._is_database_reachable = is_database_reachable
        self._names = host_names
        self._is_ready = is_ready
        self._larger_bodies = larger_bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on with its body limited and the response's security headers added."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        problem = self._refusal(scope)
        if scope["type"] == "websocket":
            # a response before the handshake refuses it, and its document gives the agent the reason
            return await (self._app if problem is None else to_response(problem))(scope, receive, send)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/api/"):
                    headers.setdefault("cache-control", "no-store")
            await send(message)

        if problem is not None:
            return await to_response(problem)(scope, receive, send_with_headers)
        if not _is_for_a_route(scope):
            return await self._app(scope, _counted(receive, self._max_bytes(scope)), send_with_headers)
        return await self._in_time(scope, _counted(receive, self._max_bytes(scope)), send_with_headers)

    async def _in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and answer 503 instead of waiting for a database that hangs."""
        has_begun = was_given_up = False

        async def send_unless_given_up(message: Message) -> None:
            nonlocal has_begun
            if not was_given_up:
                has_begun = True
                await send(message)

        # a task of its own, because a task that asyncio.timeout cancels goes on waiting for a server that hangs
        work = asyncio.ensure_future(self._app(scope, receive, send_unless_given_up))
        try:
            while not (await asyncio.wait([work], timeout=DATABASE_CHECK_AFTER_S))[0]:
                if not has_begun and not await self._is_database_reachable() and not (has_begun or work.done()):
                    was_given_up = True
                    work.add_done_callback(lambda work: work.cancelled() or work.exception())  # answered with 503
                    return await to_response(DATABASE_UNAVAILABLE)(scope, receive, send)
            work.result()
        finally:
            work.cancel()

    def _refusal(self, scope: Scope) -> Problem | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_ours(host):
            return BadRequest(
                f"This backend does not answer to the host name {host!r}. If it should, give the whole address "
                "in CORESTEER_PUBLIC_URL, such as https://coresteer.example, or add the name to CORESTEER_HOST_NAMES; "
                "then start it again."
            )
        if scope["type"] == "http" and scope["method"] not in _SAFE_METHODS:
            if is_cross_origin(HTTPConnection(scope)):
                return Forbidden("The request was sent by a page of another origin; open the backend's own address.")
            length = headers.get("content-length", "0")
            if length.isdecimal() and int(length) > (limit := self._max_bytes(scope)):
                return TooLarge(_too_large_sentence(limit))
        if _is_for_a_route(scope) and not self._is_ready():  # WebSockets are closed with a code instead
            return DATABASE_UNAVAILABLE
        return None

    def _max_bytes(self, scope: Scope) -> int:
        path: str = scope["path"]
        return next((size for start, size in self._larger_bodies.items() if path.startswith(start)), MAX_BODY_BYTES)

    def _is_ours(self, host: str) -> bool:
        """Return whether a host name is the backend's. DNS rebinding needs a foreign name, so addresses are allowed."""
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if name is None:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True


def _is_for_a_route(scope: Scope) -> bool:
    path: str = scope["path"]
    return (
        scope["type"] == "http"
        and path.startswith(("/api/", "/metrics"))
        and path not in (f"{API}/health", FORMER_HEALTH)
    )


def _too_large_sentence(limit: int) -> str:
    return f"The request's body may have at most {limit} bytes."


def _counted(receive: Receive, limit: int) -> Receive:
    received = 0

    async def receive_counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise HTTPException(TooLarge.status, _too_large_sentence(limit))
        return message

    return receive_counted
