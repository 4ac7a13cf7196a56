"""Serves the built front end; every path that is no file is one of its pages."""

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send


class FrontEnd(StaticFiles):
    """The app's answer to whatever no route takes. folder: the build, with index.html and assets/."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, check_dir=False)
        self._index = folder / "index.html"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse what belongs to the API and WebSockets; serve the rest."""
        if scope["type"] == "websocket":
            await receive()  # the handshake
            return await send({"type": "websocket.close", "code": 1008, "reason": "There is nothing at this path."})
        if scope["path"].startswith("/api/") or scope["path"] == "/api":
            raise HTTPException(404)
        if not self._index.exists():
            answer = Response("The page is not built yet: run `make up`, or `npm run build` in frontend/.\n", 404)
            return await answer(scope, receive, send)
        return await super().__call__(scope, receive, send)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file, or the page. Built assets carry their hash in the name and never change."""
        is_asset = path.startswith("assets/")
        try:
            response = await super().get_response("index.html" if path == "." else path, scope)
        except HTTPException as error:
            if error.status_code != 404 or is_asset:
                raise
            response = await super().get_response("index.html", scope)
        response.headers["cache-control"] = "public, max-age=31536000, immutable" if is_asset else "no-cache"
        return response
