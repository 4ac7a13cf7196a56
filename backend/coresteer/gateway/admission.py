"""Admission of agents' connections: a limited number begins each second, and the others get a time to try again."""

import math
import time
from collections import Counter
from collections.abc import Callable

from coresteer.gateway.presented_key import Refused
from coresteer_core.protocol import CloseCode, reason_with_delay

ADMITTED_PER_S = 1_000
"""Twice the rate at which agents of a lost backend return, so that only a storm reaches it."""
_MOST_OF_NODE = 16
"""In a second: an agent that reconnects without a pause must not take the place of others."""


class Admission:
    """Admits the connections of agents with a valid key, of each node at most 16 in a second.

    Those beyond per_s in a second get consecutive times to try again, so that all return at this rate.
    """

    def __init__(self, per_s: int = ADMITTED_PER_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._clock = clock
        self._second = -1
        self._admitted: Counter[int] = Counter()
        self._left = per_s
        self._next_at = 0.0

    def admit(self, node_id: int) -> None:
        """Count a connection that begins. Raises Refused if it must begin later."""
        now = self._clock()
        if int(now) != self._second:
            self._second, self._left = int(now), self._per_s
            self._admitted.clear()
        if self._admitted[node_id] >= _MOST_OF_NODE:
            reason = f"This agent connected {_MOST_OF_NODE} times within a second."
            raise Refused(CloseCode.TRY_AGAIN_LATER, reason_with_delay(1, reason))
        self._admitted[node_id] += 1
        if self._left == 0:
            self._next_at = max(self._next_at, now) + 1 / self._per_s
            delay_s = math.ceil(self._next_at - now)
            raise Refused(CloseCode.TRY_AGAIN_LATER, reason_with_delay(delay_s, "Many agents connect at present."))
        self._left -= 1
