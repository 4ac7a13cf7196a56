"""Bounds on what a backend can make an agent hold and do: a bounded queue for the loop, and allowances."""

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_WAITING_BYTES = 1024 * 1024
"""Bytes of messages that wait for the loop. Above it nothing is read from the socket, so the backend has to wait."""


class Inbox(Generic[T]):
    """Queue from the link's thread to the loop's, bounded in bytes: the link reads no more while it is full.

    A message that arrives while it is not full is always accepted, whatever its size.
    """

    def __init__(self) -> None:
        self.when_drained: Callable[[], None] = lambda: None
        """Called by get() when the queue is full no longer."""
        self._waiting: SimpleQueue[tuple[T | None, int]] = SimpleQueue()
        self._arrived = 0
        """Bytes put so far; only the link's thread writes it, and only the loop's writes _taken, so no lock is held."""
        self._taken = 0

    @property
    def waiting_bytes(self) -> int:
        """Return the size of the messages that wait."""
        return self._arrived - self._taken

    @property
    def full(self) -> bool:
        """Return whether nothing more should be put."""
        return self.waiting_bytes > MAX_WAITING_BYTES

    def put(self, message: T, size: int = 0) -> None:
        """Append a message. size: its bytes. Never blocks."""
        self._arrived += size
        self._waiting.put((message, size))

    def wake(self) -> None:
        """Let a waiting get() return None. Callable from a signal handler and from any thread."""
        self._waiting.put((None, 0))

    def get(self, timeout: float) -> T | None:
        """Return the next message; None after a wake-up and after the timeout, in seconds."""
        try:
            message, size = self._waiting.get(timeout=timeout)
        except Empty:
            return None
        was_full = self.full
        self._taken += size
        if was_full and not self.full:
            self.when_drained()
        return message


class Allowance:
    """How much a peer may send: an amount at once, and so much a second on average (a token bucket)."""

    def __init__(self, at_once: float, per_s: float) -> None:
        self._at_once = at_once
        self._per_s = per_s
        self._left = at_once
        self._since = time.monotonic()

    def spend(self, amount: float = 1.0) -> bool:
        """Use up an amount; return False if the peer has sent more than it may."""
        now = time.monotonic()
        self._left = min(self._at_once, self._left + (now - self._since) * self._per_s) - amount
        self._since = now
        return self._left >= 0
