"""Limits the rate of failed logins."""

import time
from collections import deque
from collections.abc import Callable

from coresteer.errors import TooManyRequests
from coresteer.origin import network_of

WINDOW_S = 300.0
MAX_FAILURES_PER_USER_AND_ADDRESS = 5
MAX_FAILURES_PER_ADDRESS = 30
_MOST_KEYS = 10_000


class LoginRateLimit:
    """Limit of failed logins in the last five minutes, per address and per user and address; in memory.

    Failures count per user and address, so that nobody can lock a user out from another address. An IPv6 network of 64
    bits counts as one address. Of several backends, each permits its share, rounded up. backends: how many are alive.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, backends: Callable[[], int] = lambda: 1) -> None:
        self._clock = clock
        self._backends = backends
        self._failures: dict[tuple[str, ...], deque[float]] = {}

    def record_attempt(self, username: str, address: str) -> None:
        """Count a login attempt as failed until record_success() is called, so that parallel attempts count too.

        Raises TooManyRequests, without counting, after too many failures.
        """
        address = network_of(address)
        for key, most in self._keys(username, address):
            failures = self._recent(key)
            if len(failures) >= -(-most // self._backends()):
                wait_s = int(failures[0] + WINDOW_S - self._clock()) + 1
                raise TooManyRequests(
                    f"Too many failed attempts to sign in. Try again in {wait_s} seconds.", retry_after_s=wait_s
                )

        if len(self._failures) > _MOST_KEYS:
            for key in list(self._failures):
                self._recent(key)
        for key, most in self._keys(username, address):
            self._failures.setdefault(key, deque(maxlen=most)).append(self._clock())

    def record_success(self, username: str, address: str) -> None:
        """Reset the user's failed logins from this address, and do not count this attempt for the address."""
        address = network_of(address)
        self._failures.pop((username.lower(), address), None)
        if of_address := self._recent((address,)):
            of_address.pop()

    @staticmethod
    def _keys(username: str, address: str) -> list[tuple[tuple[str, ...], int]]:
        return [
            ((username.lower(), address), MAX_FAILURES_PER_USER_AND_ADDRESS),
            ((address,), MAX_FAILURES_PER_ADDRESS),
        ]

    def _recent(self, key: tuple[str, ...]) -> deque[float]:
        failures = self._failures.get(key, deque())
        while failures and failures[0] <= self._clock() - WINDOW_S:
            failures.popleft()
        if not failures:
            self._failures.pop(key, None)
        return failures
