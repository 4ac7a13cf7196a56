"""What only one backend may do: it runs on the replica that holds the lease, and all its writes are fenced."""

import asyncio
import logging
from collections.abc import Sequence
from contextvars import copy_context
from functools import partial
from typing import Protocol

from coresteer.background import cancel
from coresteer.db import FENCE
from coresteer.replicas.membership import Membership
from coresteer.replicas.repository import fence

log = logging.getLogger("coresteer.replicas")

_CHECK_S = 0.5


class LeaderFeature(Protocol):
    """Interface of a feature that runs on the leader only; it starts with what the database says, and full periods."""

    def start(self) -> None:
        """Start its tasks, with nothing remembered from before."""

    async def stop(self) -> None:
        """Stop its tasks."""


class Leadership:
    """Starts features when this replica becomes the leader, and stops them when it is not any more.

    Every transaction of their tasks ends with the check that the lease is still held under the same token. When it was
    not, tasks have ended: all features stop, and start anew if the next renewal finds the lease held, whatever its
    token is.
    """

    def __init__(self, membership: Membership, features: Sequence[LeaderFeature]) -> None:
        self._membership = membership
        self._features = features
        self._running: int | None = None
        self._is_broken = False
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        membership.on_change.append(self._changed.set)

    async def start(self) -> None:
        """Lead now if this replica holds the lease, and follow its changes from now on."""
        await self._follow()
        self._tasks = [asyncio.create_task(self._run())]

    async def stop(self) -> None:
        """Stop leading."""
        await cancel(self._tasks)
        await self._stop_features()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_CHECK_S):  # the lease also lapses while the database does not answer
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            await self._follow()

    async def _follow(self) -> None:
        token = self._membership.token
        if token == self._running and not self._is_broken:
            return
        self._is_broken = False
        await self._stop_features()
        if token is not None:
            log.info("This backend leads now (token %d).", token)
            context = copy_context()
            context.run(FENCE.set, fence(self._membership.id, token, partial(self._break, token)))
            self._running = token
            for feature in self._features:
                context.run(feature.start)

    def _break(self, token: int) -> None:
        if token == self._running:
            self._is_broken = True
            self._membership.distrust_lease()
            self._changed.set()

    async def _stop_features(self) -> None:
        if self._running is not None:
            log.info("This backend does not lead any more (token %d).", self._running)
            for feature in reversed(self._features):
                await feature.stop()
            self._running = None  # not before, so that stop() goes on where it interrupts this
