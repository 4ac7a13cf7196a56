"""Which backend an agent tries next, and after how long, so that a lost backend's agents do not return all at once."""

import random
from collections import deque
from collections.abc import Sequence

from coresteer_agent.transport.websocket import ConnectionTiming


class Backends:
    """Addresses of equivalent backends, in a random order of this agent's own."""

    def __init__(self, addresses: Sequence[str], rng: random.Random) -> None:
        self._order = deque(rng.sample(addresses, len(addresses)))
        self._failed = 0

    @property
    def current(self) -> str:
        """Return the address to use: the same one until it fails."""
        return self._order[0]

    def keep(self) -> None:
        """Note that the present one works."""
        self._failed = 0

    def advance(self) -> bool:
        """Go on to the next one; return whether all have failed since one worked, or since this was last so."""
        self._order.rotate(-1)
        self._failed = (self._failed + 1) % len(self._order)
        return self._failed == 0


class Backoff:
    """Delays before attempts to connect: random between 0 and a bound that grows (full jitter).

    spread_s: over which the agents of a lost backend return, as it said while it worked.
    """

    def __init__(self, timing: ConnectionTiming, rng: random.Random) -> None:
        self.spread_s = 0.0
        self._timing = timing
        self._rng = rng
        self._failures = 0

    def reset(self) -> None:
        """Begin with short delays again: a connection has lasted."""
        self._failures = 0

    def after_failure(self) -> float:
        """Return the delay in seconds after a lost connection, or after all backends have failed."""
        growing = min(self._timing.longest_retry_s, self._timing.first_retry_s * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        return self._rng.uniform(0, max(growing, self.spread_s))

    def before_next_backend(self) -> float:
        """Return the delay in seconds before another backend is tried, which has not failed yet."""
        return self._rng.uniform(0, self._timing.first_retry_s)

    def slow(self) -> float:
        """Return the delay in seconds after a failure that needs a person."""
        return self._timing.slow_retry_s * self._rng.uniform(0.5, 1)

    def requested(self, delay_s: float) -> float:
        """Return the delay in seconds for a backend that asked for one: never shorter, and not the same for all."""
        return delay_s * self._rng.uniform(1, 1.5)
