"""Polls response-time histograms from the Prometheus pages of servers, once a second in a thread."""

import logging
import math
import threading
from collections.abc import Collection
from queue import Empty, SimpleQueue

from coresteer_agent.collect.histogram import HistogramError, bucket_increments, fetch_metrics_page, parse_histogram

log = logging.getLogger("coresteer.classes")

PERIOD_S = 1.0


class Histograms:
    """Polls the histograms given as ``URL#NAME`` in a thread."""

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = sorted(set(wanted))
        self._new: SimpleQueue[tuple[str, list[tuple[float, int]]]] = SimpleQueue()
        self._before: dict[str, dict[float, float]] = {}
        self._failing: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="histograms", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the polling thread after its current request."""
        self._stopping.set()

    def poll(self) -> list[tuple[str, list[tuple[float, int]]]]:
        """Return new requests by histogram since the last call: upper bound of a bucket in seconds, and count."""
        found = []
        try:
            while True:
                found.append(self._new.get_nowait())
        except Empty:
            return found

    def _run(self) -> None:
        while not self._stopping.wait(PERIOD_S):
            pages: dict[str, bytes] = {}
            for wanted in self._wanted:
                url, _, name = wanted.partition("#")
                try:
                    if url not in pages:
                        pages[url] = fetch_metrics_page(url)
                    self._update(wanted, name, pages[url])
                except HistogramError as error:
                    self._warn_once(wanted, str(error))
                except Exception as error:  # a page is data of unknown origin; the other pages go on
                    self._warn_once(wanted, f"The metrics page {url} cannot be parsed: {error!r}")

    def _update(self, wanted: str, name: str, page: bytes) -> None:
        now = parse_histogram(page, name)
        if math.inf not in now:
            raise HistogramError(f"{wanted.partition('#')[0]} contains no histogram {name}.")
        before = self._before.get(wanted)
        self._before[wanted] = now
        self._failing.discard(wanted)
        if before is not None and (requests := bucket_increments(before, now)) is not None:
            self._new.put((wanted, requests))

    def _warn_once(self, wanted: str, sentence: str) -> None:
        self._before.pop(wanted, None)
        if wanted not in self._failing:
            self._failing.add(wanted)
            log.warning("%s The class is measured again when the page is available.", sentence)
