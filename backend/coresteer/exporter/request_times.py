"""How long requests take, by route."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coresteer.instruments import REQUEST_SECONDS


class RequestTimes:
    """ASGI middleware that observes the duration of each request to a route of the API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; what is no route, such as a file of the page, is not counted."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status, began = 500, time.perf_counter()

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            if (route := scope.get("route")) is not None:  # by the router, which changes this scope
                seconds = REQUEST_SECONDS.labels(scope["method"], route.path, str(status))
                seconds.observe(time.perf_counter() - began)
