"""The backend's public address, requests that a browser sends for a page of another origin, and clients' networks."""

import ipaddress
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
    if origin is None:
        return False
    try:
        netloc = urlsplit(origin).netloc
    except ValueError:  # such as "http://["
        return True
    return netloc.lower() != connection.headers.get("host", "").lower()


def network_of(address: str, bits: int = 64) -> str:
    """Return the address, or the network of an IPv6 address. bits: 64 is the smallest network that a customer gets."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, bits), strict=False))
