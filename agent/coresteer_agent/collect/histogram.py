"""Reads histograms from Prometheus metrics pages (text format, prometheus.io/docs/instrumenting/exposition_formats)."""

import math
import re
import socket
from contextlib import suppress
from functools import lru_cache
from threading import Event, Timer
from urllib.parse import urlsplit

MAX_BYTES = 4 * 1024 * 1024
TIMEOUT_S = 1.0
_LE = re.compile(rb'(?:^|,)\s*le="([^"]*)"', re.ASCII)
_CHUNK = 64 * 1024


class HistogramError(Exception):
    """Raised if a histogram is unavailable; the message is a sentence."""


def fetch_metrics_page(url: str) -> bytes:
    """Fetch a metrics page at an http URL within TIMEOUT_S and MAX_BYTES. Raises HistogramError.

    No redirect is followed, so nothing leaves the machine.
    """
    from http.client import HTTPConnection, HTTPException  # noqa: PLC0415 - costs 2 MiB, which few agents need

    late = Event()
    parts = urlsplit(url)
    try:
        connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=TIMEOUT_S)
        connection.connect()
    except (OSError, ValueError) as error:
        raise HistogramError(f"{url} cannot be read: {error}.") from None
    # the socket's timeout is per read: a server that sends single bytes would block the reader forever
    limit = Timer(TIMEOUT_S, _cut, (connection.sock, late))
    limit.daemon = True
    limit.start()
    try:
        connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""))
        response = connection.getresponse()
        if response.status != 200:
            raise HistogramError(f"The metrics page {url} answers with HTTP status {response.status}.")
        page = bytearray()
        while chunk := response.read(_CHUNK):
            page += chunk
            if len(page) > MAX_BYTES:
                raise HistogramError(f"The metrics page {url} has more than {MAX_BYTES >> 20} MiB.")
    except (OSError, HTTPException, ValueError) as error:
        if not late.is_set():
            raise HistogramError(f"{url} cannot be read: {error}.") from None
    finally:
        limit.cancel()
        connection.close()
    if late.is_set():
        raise HistogramError(f"The metrics page {url} takes longer than {TIMEOUT_S:g} s.")
    return bytes(page)


def _cut(connection: socket.socket, late: Event) -> None:
    late.set()
    with suppress(OSError):  # it is done with
        connection.shutdown(socket.SHUT_RDWR)


def parse_histogram(page: bytes, name: str) -> dict[float, float]:
    """Parse a histogram's cumulative count by upper bound, over all label sets; math.inf is the total.

    Empty if the page does not contain the histogram.
    """
    counts: dict[float, float] = {}
    for labels, value in _sample(name).findall(page):
        bound = _LE.search(labels)
        try:
            le, count = float(bound[1]) if bound is not None else math.nan, float(value)
        except ValueError:
            continue
        if not math.isnan(le) and 0 <= count < 1 << 63:
            counts[le] = counts.get(le, 0.0) + count
    return dict(sorted(counts.items()))


@lru_cache(maxsize=32)
def _sample(name: str) -> re.Pattern[bytes]:
    # within a line: where none closes its bracket, the rest of the page must not be searched for each
    return re.compile(
        rb"^%s_bucket\{((?:[^\"}\n]|\"(?:[^\"\\\n]|\\.)*\")*)\}[ \t]+(\S+)" % re.escape(name.encode()), re.MULTILINE
    )


def bucket_increments(before: dict[float, float], after: dict[float, float]) -> list[tuple[float, int]] | None:
    """Return each bucket's increment by its upper bound; None after a reset or if the buckets differ."""
    if before.keys() != after.keys():
        return None
    increments = []
    below = 0.0
    for bound, count in after.items():
        since = count - before[bound]
        if since < below:
            return None
        increments.append((bound, round(since - below)))
        below = since
    return increments
