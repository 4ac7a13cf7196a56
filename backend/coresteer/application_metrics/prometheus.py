"""HTTP client of Prometheus servers: one GET within bounds; see guarded_http for which servers are asked."""

import asyncio
import http.client
import time
from datetime import datetime
from urllib.parse import SplitResult, urlencode, urlsplit

from coresteer.application_metrics.reading import (
    DeclaredMetric,
    Missing,
    Reading,
    Request,
    make_request,
    parse_answer,
)
from coresteer.guarded_http import MAX_BYTES, ForbiddenAddressError, GuardedHttp, TooLargeError, why

TIMEOUT_S = 5.0
"""How long a query may take in total, from the resolution of the name to the last byte."""
_MAX_CONCURRENT = 8
_SILENT_S = 30.0


class PrometheusReader:
    """Reads application metrics, a few at a time. timeout_s: shorter in tests."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._silent: dict[str, tuple[float, Reading]] = {}
        """Servers that did not answer: until when they are not asked again, and why."""
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._http = GuardedHttp(_MAX_CONCURRENT, "prometheus")

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
        path = f"{server.path.rstrip('/')}{request.path}?{urlencode(request.params)}"
        try:
            status, body = await self._http.request(
                "GET", server, path, headers={"Accept": "application/json"}, timeout_s=self._timeout_s
            )
        except ForbiddenAddressError:
            sentence = f"{server.netloc} has a link-local address or that of a cloud's metadata service."
            return Reading(missing=Missing.FORBIDDEN, reason=f"{sentence} Coresteer asks no such server.")
        except TooLargeError:
            sentence = f"The answer of {server.hostname} is larger than {MAX_BYTES // 1024} KiB."
            return Reading(missing=Missing.TOO_LARGE, reason=sentence)
        except TimeoutError:
            sentence = f"{server.netloc} did not answer within {self._timeout_s:g} s."
            return Reading(missing=Missing.TIMEOUT, reason=sentence)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            return Reading(missing=Missing.UNREACHABLE, reason=f"{server.netloc} cannot be reached: {why(error)}.")
        if 300 <= status < 400:
            sentence = f"{server.netloc} redirects to another address; declare that address instead."
            return Reading(missing=Missing.NOT_PROMETHEUS, reason=sentence)
        return parse_answer(body, status, request.points)
