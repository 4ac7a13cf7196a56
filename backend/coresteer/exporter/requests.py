"""Each request to the API has an id, in its response and in what is logged meanwhile; its duration is counted."""

import re
import time
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from coresteer.instruments import REQUEST_SECONDS

_HEADER = "x-request-id"
_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)


class ObservedRequests:
    """ASGI middleware. An id that the client or a proxy gives in X-Request-ID is kept."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on. The duration of what is no route, such as a file of the page, is not counted."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given = Headers(scope=scope).get(_HEADER, "")
        request_id = given if _ID.fullmatch(given) else uuid4().hex
        bind_contextvars(request=request_id)
        status, began = 500, time.perf_counter()

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[_HEADER] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            if (route := scope.get("route")) is not None:  # by the router, which changes this scope
                seconds = REQUEST_SECONDS.labels(scope["method"], route.path, str(status))
                seconds.observe(time.perf_counter() - began)
