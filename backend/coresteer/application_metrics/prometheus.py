"""HTTP client of Prometheus servers: one GET, bounded in bytes and time, without redirects and proxies.

Nothing waits in a thread except the resolution of a host's name, which has threads of its own: a slow server or name
server delays no other part of the backend.
"""

import asyncio
import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache, partial
from typing import TypeVar, cast
from urllib.parse import SplitResult, urlencode, urlsplit

from coresteer.application_metrics.reading import (
    DeclaredMetric,
    Missing,
    Reading,
    Request,
    is_forbidden,
    make_request,
    parse_answer,
)

TIMEOUT_S = 5.0
"""How long a query may take in total, from the resolution of the name to the last byte."""
MAX_BYTES = 256 * 1024
"""Maximum size of an answer; one of 60 points has 2 KiB."""
_CHUNK_BYTES = 16 * 1024
_MAX_CONCURRENT = 8
_SILENT_S = 30.0

T = TypeVar("T")


class PrometheusReader:
    """Reads application metrics, a few at a time. timeout_s: shorter in tests."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._silent: dict[str, tuple[float, Reading]] = {}
        """Servers that did not answer: until when they are not asked again, and why."""
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._threads = ThreadPoolExecutor(_MAX_CONCURRENT, thread_name_prefix="prometheus")

    async def read(self, metric: DeclaredMetric, node: str, start: datetime, end: datetime) -> Reading:
        """Return a metric's value for a node between two moments, or why it is missing. Never raises.

        A server that did not answer is not asked again for 30 s, so that it does not delay the other metrics.
        """
        request = make_request(metric, node, start, end)
        if isinstance(request, Reading):
            return request
        async with self._slots:
            until_s, reading = self._silent.get(metric.url, (0.0, Reading()))
            if time.monotonic() < until_s:
                return reading
            self._silent.pop(metric.url, None)
            reading = await self._ask(urlsplit(metric.url), request)
            if reading.missing in (Missing.UNREACHABLE, Missing.TIMEOUT):
                self._silent[metric.url] = time.monotonic() + _SILENT_S, reading
            return reading

    async def _ask(self, server: SplitResult, request: Request) -> Reading:
        try:
            async with asyncio.timeout(self._timeout_s):
                addresses = await self._resolve(server)
                if any(map(is_forbidden, addresses)):
                    sentence = f"{server.netloc} has a link-local address or that of a cloud's metadata service."
                    return Reading(missing=Missing.FORBIDDEN, reason=f"{sentence} Coresteer asks no such server.")
                received = await self._exchange(server, addresses, request)
            if received is None:
                sentence = f"The answer of {server.hostname} is larger than {MAX_BYTES // 1024} KiB."
                return Reading(missing=Missing.TOO_LARGE, reason=sentence)
            status, body = _parse_response(received)
        except TimeoutError:
            sentence = f"{server.netloc} did not answer within {self._timeout_s:g} s."
            return Reading(missing=Missing.TIMEOUT, reason=sentence)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            return Reading(missing=Missing.UNREACHABLE, reason=f"{server.netloc} cannot be reached: {_why(error)}.")
        if 300 <= status < 400:
            sentence = f"{server.netloc} redirects to another address; declare that address instead."
            return Reading(missing=Missing.NOT_PROMETHEUS, reason=sentence)
        return parse_answer(body, status, request.points)

    async def _resolve(self, server: SplitResult) -> list[str]:
        """Return the addresses of a server. The connection is made to one of these, not to its name once more."""
        look_up = partial(socket.getaddrinfo, server.hostname, _port(server), type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(found[4][0]) for found in await self._in_thread(look_up)))

    async def _exchange(self, server: SplitResult, addresses: list[str], request: Request) -> bytes | None:
        """Return everything that a server sends for a request until it closes; None above MAX_BYTES."""
        reader, writer = await self._connect(server, addresses)
        try:
            path = f"{server.path.rstrip('/')}{request.path}?{urlencode(request.params)}"
            headers = f"Host: {server.netloc}\r\nAccept: application/json\r\nConnection: close\r\n"
            writer.write(f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode())
            received = bytearray()
            while len(received) <= MAX_BYTES:
                if not (chunk := await reader.read(_CHUNK_BYTES)):
                    return bytes(received)
                received += chunk
            return None
        finally:
            writer.transport.abort()

    async def _connect(
        self, server: SplitResult, addresses: list[str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = await self._in_thread(_tls) if server.scheme == "https" else None
        name = None if tls is None else server.hostname
        failure: OSError = OSError("its name has no address")
        for address in addresses:
            try:
                return await asyncio.open_connection(address, _port(server), ssl=tls, server_hostname=name)
            except OSError as error:
                failure = error
        raise failure

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)


class _Received:
    """Received bytes in the form that http.client reads a response from."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._received)


def _parse_response(received: bytes) -> tuple[int, bytes]:
    """Return status and body of a complete response. Raises HTTPException."""
    response = http.client.HTTPResponse(cast("socket.socket", _Received(received)))
    response.begin()
    return response.status, response.read()


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _port(server: SplitResult) -> int:
    return server.port or (443 if server.scheme == "https" else 80)


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
