"""Response times from servers' own metrics pages, read each second in a thread of its own."""

import logging
import math
import threading
from collections.abc import Collection
from queue import Empty, SimpleQueue

from coresteer_agent.collect.histogram import HistogramError, fetch, parse_histogram, passed

log = logging.getLogger("coresteer.classes")

PERIOD_S = 1.0


class Histograms:
    """Follows histograms, each given as the URL of its page and, after #, its name."""

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = sorted(set(wanted))
        self._passed: SimpleQueue[tuple[str, list[tuple[float, int]]]] = SimpleQueue()
        self._before: dict[str, dict[float, float]] = {}
        self._failing: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="histograms", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread as soon as its page has come or is given up."""
        self._stopping.set()

    def take(self) -> list[tuple[str, list[tuple[float, int]]]]:
        """What came since it was asked last: of a histogram the requests by their bucket's upper bound in seconds."""
        taken = []
        try:
            while True:
                taken.append(self._passed.get_nowait())
        except Empty:
            return taken

    def _run(self) -> None:
        while not self._stopping.wait(PERIOD_S):
            pages: dict[str, bytes] = {}
            for wanted in self._wanted:
                url, _, name = wanted.partition("#")
                try:
                    if url not in pages:
                        pages[url] = fetch(url)
                    self._look(wanted, name, pages[url])
                except HistogramError as error:
                    self._complain(wanted, str(error))
                except Exception as error:  # a page is data of unknown origin; the other pages go on
                    self._complain(wanted, f"{url} cannot be understood: {error!r}")

    def _look(self, wanted: str, name: str, page: bytes) -> None:
        now = parse_histogram(page, name)
        if math.inf not in now:
            raise HistogramError(f"{wanted.partition('#')[0]} has no histogram {name}.")
        before = self._before.get(wanted)
        self._before[wanted] = now
        self._failing.discard(wanted)
        if before is not None and (came := passed(before, now)) is not None:
            self._passed.put((wanted, came))

    def _complain(self, wanted: str, sentence: str) -> None:
        self._before.pop(wanted, None)
        if wanted not in self._failing:
            self._failing.add(wanted)
            log.warning("%s The class is measured again when it can be had.", sentence)
