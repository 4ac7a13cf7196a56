"""HTTP client for addresses that people enter: bounded in bytes and time, without redirects and proxies.

It refuses link-local addresses, which serve a cloud's credentials, and connects to the address that it has checked, not
to the name once more. Nothing waits in a thread except the resolution of a host's name, which has threads of its own: a
slow server or name server delays no other part of the backend.
"""

import asyncio
import http.client
import io
import ipaddress
import socket
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TypeVar, cast
from urllib.parse import SplitResult

MAX_BYTES = 256 * 1024
"""Maximum size of an answer."""
_CHUNK_BYTES = 16 * 1024
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200")))
"""Metadata services of clouds (AWS over IPv6, Alibaba) that are not link-local; all others are."""

T = TypeVar("T")


class ForbiddenAddressError(Exception):
    """The server has an address that the backend contacts for nobody."""


class TooLargeError(Exception):
    """The answer is larger than MAX_BYTES."""


def is_forbidden(host: str) -> bool:
    """Return whether no server may be asked at an IP address: link-local ones serve a cloud's credentials.

    A name is not an address; what it resolves to is checked.
    """
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_link_local or ip in _METADATA


class GuardedHttp:
    """Sends requests, each on a connection of its own. threads: resolutions of names at the same time."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def request(
        self,
        method: str,
        server: SplitResult,
        path: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        timeout_s: float,
    ) -> tuple[int, bytes]:
        """Return status and body of the answer to a request; path: with its query.

        Raises ForbiddenAddressError, TooLargeError, TimeoutError, OSError, HTTPException and UnicodeError.
        """
        async with asyncio.timeout(timeout_s):
            addresses = await self.resolve(server.hostname or "", _port(server))
            reader, writer = await self._connect(server, addresses)
            try:
                lines = {"Host": server.netloc, "Connection": "close", "Content-Length": str(len(body)), **headers}
                if not body:
                    del lines["Content-Length"]
                head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
                writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
                received = bytearray()
                while chunk := await reader.read(_CHUNK_BYTES):
                    received += chunk
                    if len(received) > MAX_BYTES:
                        raise TooLargeError
            finally:
                writer.transport.abort()
        response = http.client.HTTPResponse(cast("socket.socket", _Received(bytes(received))))
        response.begin()
        return response.status, response.read()

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host. Raises ForbiddenAddressError if one of them is refused, and OSError."""
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(found[4][0]) for found in await self.in_thread(look_up)))
        if any(map(is_forbidden, addresses)):
            raise ForbiddenAddressError
        return addresses

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Return what a function returns that waits, in one of the client's threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def _connect(
        self, server: SplitResult, addresses: list[str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = await self.in_thread(tls_context) if server.scheme == "https" else None
        name = None if tls is None else server.hostname
        failure: OSError = OSError("its name has no address")
        for address in addresses:
            try:
                return await asyncio.open_connection(address, _port(server), ssl=tls, server_hostname=name)
            except OSError as error:
                failure = error
        raise failure


class _Received:
    """Received bytes in the form that http.client reads a response from."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._received)


@cache
def tls_context() -> ssl.SSLContext:
    """Return the context that verifies servers by the machine's authorities."""
    return ssl.create_default_context()


def why(error: Exception) -> str:
    """Return why a server cannot be reached, without a full stop."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__


def _port(server: SplitResult) -> int:
    return server.port or (443 if server.scheme == "https" else 80)
