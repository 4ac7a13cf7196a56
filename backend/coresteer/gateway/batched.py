"""Answers many who ask at about the same time with one query: a fleet that connects asks thousands of times."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_MOST_AT_ONCE = 500


class Batched(Generic[K, V]):
    """load takes different keys and returns the values of those it knows. What is asked for meanwhile comes next."""

    def __init__(self, load: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._load = load
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, key: K) -> V | None:
        """The key's value, None where it has none. Raises what load raises."""
        if (future := self._waiting.get(key)) is None:
            self._waiting[key] = future = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._answer())
        return await asyncio.shield(future)  # others may wait for the same

    async def _answer(self) -> None:
        while self._waiting:
            asked = {key: self._waiting.pop(key) for key in list(self._waiting)[:_MOST_AT_ONCE]}
            try:
                values = await self._load(list(asked))
            except Exception as error:
                for future in asked.values():
                    future.set_exception(error)
                    future.exception()  # whoever asked may have gone; then nobody takes it, which is no fault
            else:
                for key, future in asked.items():
                    future.set_result(values.get(key))
        self._task = None
