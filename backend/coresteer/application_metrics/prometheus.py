"""HTTP client of Prometheus servers: one GET, bounded in bytes and time, without redirects and proxies."""

import asyncio
import http.client
import ssl
import time
from datetime import datetime
from urllib.parse import urlencode, urlsplit

from coresteer.application_metrics.reading import DeclaredMetric, Missing, Reading, Request, make_request, parse_answer

TIMEOUT_S = 5.0
"""How long a query may take in total."""
MAX_BYTES = 256 * 1024
"""Maximum size of an answer; one of 60 points has 2 KiB."""
_CHUNK_BYTES = 16 * 1024
_MAX_CONCURRENT = 8
_SILENT_S = 30.0


class PrometheusReader:
    """Reads application metrics, a few at a time. timeout_s: shorter in tests."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._silent: dict[str, tuple[float, Reading]] = {}
        """Servers that did not answer: until when they are not asked again, and why."""
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)

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
            reading = await self._ask(metric.url, request)
            if reading.missing in (Missing.UNREACHABLE, Missing.TIMEOUT):
                self._silent[metric.url] = time.monotonic() + _SILENT_S, reading
            return reading

    async def _ask(self, url: str, request: Request) -> Reading:
        try:
            async with asyncio.timeout(2 * self._timeout_s):  # also limits the resolution of the host's name
                return await asyncio.to_thread(_fetch, url, request, self._timeout_s)
        except TimeoutError:
            return _timed_out(url, 2 * self._timeout_s)


def _fetch(url: str, request: Request, timeout_s: float) -> Reading:
    server = urlsplit(url)
    deadline = time.monotonic() + timeout_s
    https = server.scheme == "https"
    kind = http.client.HTTPSConnection if https else http.client.HTTPConnection
    connection = kind(server.hostname or "", server.port, timeout=timeout_s)
    try:
        path = f"{server.path.rstrip('/')}{request.path}?{urlencode(request.params)}"
        connection.request("GET", path, headers={"Accept": "application/json", "Connection": "close"})
        response = connection.getresponse()
        body = b""
        while chunk := response.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > MAX_BYTES:
                sentence = f"The answer of {server.hostname} is larger than {MAX_BYTES // 1024} KiB."
                return Reading(missing=Missing.TOO_LARGE, reason=sentence)
            if time.monotonic() >= deadline:
                return _timed_out(url, timeout_s)
    except TimeoutError:
        return _timed_out(url, timeout_s)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        return Reading(missing=Missing.UNREACHABLE, reason=f"{server.netloc} cannot be reached: {_why(error)}.")
    finally:
        connection.close()
    if 300 <= response.status < 400:
        sentence = f"{server.netloc} redirects to another address; declare that address instead."
        return Reading(missing=Missing.NOT_PROMETHEUS, reason=sentence)
    return parse_answer(body, response.status, request.points)


def _timed_out(url: str, timeout_s: float) -> Reading:
    sentence = f"{urlsplit(url).netloc} did not answer within {timeout_s:g} s."
    return Reading(missing=Missing.TIMEOUT, reason=sentence)


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
