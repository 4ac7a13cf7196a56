"""How much slower this machine is now than the one on which the budgets of benches were set."""

import statistics
import threading
import time
from types import TracebackType

_CALIBRATION_MS = 5.0
"""CPU time of the fixed computation on the machine on which the budgets were set, without other work."""
_PERIOD_S = 0.5


def slowdown(rounds: int = 15) -> float:
    """Return by how much longer a fixed computation takes now than on the machine of the budgets, at least 1."""
    return _factor([_fixed_ms() for _ in range(rounds)])


class Calibration:
    """Measures the slowdown alongside what runs in its context, as other work on the machine comes and goes."""

    def __init__(self) -> None:
        self._taken: list[float] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def factor(self) -> float:
        """The slowdown while the context was open, at least 1."""
        return _factor(self._taken)

    def __enter__(self) -> "Calibration":
        self._taken.append(_fixed_ms())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_PERIOD_S):
            self._taken.append(_fixed_ms())


def _factor(taken: list[float]) -> float:
    return max(1.0, statistics.median(taken) / _CALIBRATION_MS)


def _fixed_ms() -> float:
    begin = time.thread_time()
    sum([n * n % 7 for n in range(100_000)])
    return (time.thread_time() - begin) * 1000
