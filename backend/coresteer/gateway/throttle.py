"""How fast one agent's connection is read. Pure."""

MESSAGES_PER_S = 300.0
"""An agent that sends more, also while it resends unacknowledged samples, is read more slowly."""
BURST = 600.0
BYTES_PER_S = 2 * 1024.0**2
"""An agent that sends more bytes is read more slowly, too: 8,192 CPUs make 0.8 MB a second."""
BURST_BYTES = 16 * 1024.0**2
"""Topology, inventory and knowledge about NICs of the largest machine."""


class Throttle:
    """Budgets of messages and bytes of one connection, which time fills again. Times are monotonic seconds."""

    def __init__(self, now_s: float) -> None:
        self._at_s = now_s
        self._messages, self._bytes = BURST, BURST_BYTES

    def pause_s(self, now_s: float, size: int) -> float:
        """Return how long to wait before the next message is read after one of size bytes; at most 0 without need."""
        passed_s, self._at_s = now_s - self._at_s, now_s
        self._messages = min(BURST, self._messages + passed_s * MESSAGES_PER_S) - 1
        self._bytes = min(BURST_BYTES, self._bytes + passed_s * BYTES_PER_S) - size
        return max(-self._messages / MESSAGES_PER_S, -self._bytes / BYTES_PER_S)
