"""Limits the rate of failed logins."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from coresteer.errors import TooManyRequests
from coresteer.origin import network_of

WINDOW_S = 300.0
MAX_FAILURES_PER_USER_AND_ADDRESS = 5
MAX_FAILURES_PER_ADDRESS = 30
_MAX_FAILURES_PER_NETWORK = ((56, 60), (48, 240))
"""By the bits of an IPv6 network: a customer commonly gets one of 56, and some one of 48."""
_MAX_WAITING = 16
"""Attempts at the same time: two are computed in 0.3 s."""
_RETRY_S = 3
_MAX_KNOWN = 1000
_MOST_KEYS = 10_000


class LoginRateLimit:
    """Limit of failed logins in the last five minutes, per address and per user and address; in memory.

    Failures count per user and address, so that nobody can lock a user out from another address. An IPv6 network of 64
    bits counts as one address, and its larger networks are limited as well. Of several backends, each permits its
    share, rounded up. backends: how many are alive.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, backends: Callable[[], int] = lambda: 1) -> None:
        self._clock = clock
        self._backends = backends
        self._failures: dict[tuple[str, ...], deque[float]] = {}
        self._known: dict[str, None] = {}
        self._waiting = 0

    @contextmanager
    def turn(self, address: str) -> Iterator[None]:
        """Let an attempt wait for its computation while the block runs, if not too many do.

        Addresses from which somebody has signed in before always may: others cannot take all turns from them. Raises
        TooManyRequests.
        """
        if self._waiting >= _MAX_WAITING and network_of(address) not in self._known:
            raise TooManyRequests(
                f"Too many people sign in at the moment. Try again in {_RETRY_S} seconds.", retry_after_s=_RETRY_S
            )
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def record_attempt(self, username: str, address: str) -> None:
        """Count a login attempt as failed until record_success() is called, so that parallel attempts count too.

        Raises TooManyRequests, without counting, after too many failures.
        """
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
        (of_user, _), *of_networks = self._keys(username, address)
        self._failures.pop(of_user, None)
        for key, _ in of_networks:
            if failures := self._recent(key):
                failures.pop()
        self._known.pop(network := network_of(address), None)
        self._known[network] = None
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def is_first(self, target: str, address: str) -> bool:
        """Return whether no failure about a target from this network was recorded in the last five minutes.

        The audit log, of which nothing is deleted, gets only these: strangers cause failures.
        """
        key = ("recorded", target, network_of(address, 48))
        if self._recent(key):
            return False
        self._failures[key] = deque([self._clock()])
        return True

    @staticmethod
    def _keys(username: str, address: str) -> list[tuple[tuple[str, ...], int]]:
        network = network_of(address)
        wider = {(network_of(address, bits),): most for bits, most in _MAX_FAILURES_PER_NETWORK if ":" in network}
        return [
            ((username.lower(), network), MAX_FAILURES_PER_USER_AND_ADDRESS),
            ((network,), MAX_FAILURES_PER_ADDRESS),
            *wider.items(),
        ]

    def _recent(self, key: tuple[str, ...]) -> deque[float]:
        failures = self._failures.get(key, deque())
        while failures and failures[0] <= self._clock() - WINDOW_S:
            failures.popleft()
        if not failures:
            self._failures.pop(key, None)
        return failures
