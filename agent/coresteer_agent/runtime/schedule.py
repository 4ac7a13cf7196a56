"""Schedule: when the periodic work of the agent's loop is due."""


class Schedule:
    """Periodic times on the monotonic clock without drift; missed times are skipped."""

    def __init__(self, interval_s: float, start: float) -> None:
        self._interval_s = interval_s
        self._start = start
        self._period = 1

    @property
    def due(self) -> float:
        """Return the next time, in monotonic seconds."""
        return self._start + self._period * self._interval_s

    def is_due(self, now: float) -> bool:
        """Return whether the next time has come, and if so schedule the one after now."""
        if now < self.due:
            return False
        self._period = max(self._period, int((now - self._start) / self._interval_s))
        while self.due <= now:
            self._period += 1
        return True
