"""Serves the built front end; a path that is not a file returns index.html, whose router shows the page."""

import re
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

_NOT_OURS = re.compile(
    r"/(api|-|[a-z]+z|health|healthcheck|live|liveness|ready|readiness|startup|status|metrics|ping|actuator)(/|$)"
)
"""Paths of the API and of other programs' probes: the web page, with status 200, would say that all is well."""

_PAGES = {".": "index.html", "docs": "docs.html"}
"""Files of paths that have another name."""


class FrontEnd(StaticFiles):
    """Default handler of paths without a route. folder: the build, with index.html and assets/."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, check_dir=False)
        self._index = folder / "index.html"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse paths of the API and of probes, and WebSockets; serve all others."""
        if scope["type"] == "websocket":
            await receive()  # the handshake
            return await send(
                {"type": "websocket.close", "code": 1008, "reason": "There is no page or endpoint at this path."}
            )
        if _NOT_OURS.match(scope["path"]):
            raise HTTPException(404)
        if not self._index.exists():
            answer = Response("The front end is not built yet: run `make up`, or `npm run build` in frontend/.\n", 404)
            return await answer(scope, receive, send)
        return await super().__call__(scope, receive, send)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a built file, else index.html. Assets have a hash in their names and are cached for ever."""
        is_asset = path.startswith("assets/")
        try:
            response = await super().get_response(_PAGES.get(path, path), scope)
        except HTTPException as error:
            if error.status_code != 404 or is_asset:
                raise
            response = await super().get_response("index.html", scope)
        response.headers["cache-control"] = "public, max-age=31536000, immutable" if is_asset else "no-cache"
        return response
