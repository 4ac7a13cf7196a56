"""Decisions on their way to the backend, which learns from them of the changes that policies began."""

from collections import deque

_MOST_FAILURES = 3


class OutgoingDecisions:
    """Decisions to send, oldest first; one that began a change again in each connection until that is acknowledged.

    Limited in number and bytes; drops the oldest first. Not thread-safe.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._kept: deque[tuple[str | None, bytes]] = deque()
        """Change id and frame of each, oldest first."""
        self._bytes = 0
        self._sent = 0  # of them, from the oldest on
        self._failures = 0

    @property
    def unsent(self) -> int:
        """Return how many decisions next_frame() has not returned in this connection."""
        return len(self._kept) - self._sent

    def append(self, change_id: str | None, frame: bytes) -> None:
        """Append a decision. change_id: of the change that it began, None if it began none."""
        self._kept.append((change_id, frame))
        self._bytes += len(frame)
        while len(self._kept) > 1 and (len(self._kept) > self._max_count or self._bytes > self._max_bytes):
            self._drop(0)

    def begin(self) -> None:
        """Begin a connection: next_frame() starts again with the oldest decision."""
        self._sent = 0

    def next_frame(self) -> bytes | None:
        """Return the next frame to send, None if all are sent."""
        if not self.unsent:
            return None
        change_id, frame = self._kept[self._sent]
        self._sent += 1
        if change_id is None:
            self._drop(self._sent - 1)
        return frame

    def acknowledge(self, change_id: str) -> None:
        """Forget the decision that began a change whose end the backend has acknowledged."""
        self._failures = 0
        for at, (each, _) in enumerate(self._kept):
            if each == change_id:
                return self._drop(at)

    def forget_sent(self) -> None:
        """Forget what is sent: the backend may have refused it, and would again."""
        while self._sent:
            self._drop(0)

    def note_failure(self) -> None:
        """Note that the backend failed with what is sent; the third time in a row, forget that as the cause."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            self._failures = 0
            self.forget_sent()

    def _drop(self, at: int) -> None:
        self._bytes -= len(self._kept[at][1])
        del self._kept[at]
        if at < self._sent:
            self._sent -= 1
