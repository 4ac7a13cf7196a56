"""Combines concurrent look-ups by key into one query: a reconnecting fleet makes thousands at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_MAX_KEYS_PER_QUERY = 500


class BatchLoader(Generic[K, V]):
    """Loads values by key in batches.

    load receives distinct keys and returns the values found; keys requested meanwhile go into the next query.
    """

    def __init__(self, load: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._load = load
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, key: K) -> V | None:
        """Return the key's value, None if it has none. Raises what the load function raises."""
        if (future := self._waiting.get(key)) is None:
            self._waiting[key] = future = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._load_batches())
        return await asyncio.shield(future)  # others may wait for the same key

    async def _load_batches(self) -> None:
        while self._waiting:
            futures = {key: self._waiting.pop(key) for key in list(self._waiting)[:_MAX_KEYS_PER_QUERY]}
            try:
                values = await self._load(list(futures))
            except Exception as error:
                for future in futures.values():
                    future.set_exception(error)
                    future.exception()  # marks it as retrieved: the caller may have been cancelled
            else:
                for key, future in futures.items():
                    future.set_result(values.get(key))
        self._task = None
