"""The backend's public address, and detection of requests that a browser sends for a page of another origin."""

from urllib.parse import urlsplit

from fastapi import Request
from starlette.requests import HTTPConnection

from coresteer.config import Config


def public_url(request: Request) -> str:
    """Return the address by which clients reach the backend: the configured one, else that of the request."""
    config: Config = request.app.state.config
    return config.public_url or f"{request.url.scheme}://{request.url.netloc}"


def is_cross_origin(connection: HTTPConnection) -> bool:
    """Return whether a browser sent this request for a page of another origin (its Origin is not the Host)."""
    origin = connection.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != connection.headers.get("host", "").lower()
