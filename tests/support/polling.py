"""Wait for a condition that sends no event."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
"""For an event that comes within a second on an idle machine: a test fails when it never comes, not when it is late."""


def poll(
    read: Callable[[], T | None],
    accept: Callable[[T], object] = bool,
    *,
    timeout_s: float = PATIENCE_S,
    interval_s: float = 0.005,
    check: Callable[[], None] = lambda: None,
) -> T:
    """Return the first value that accept accepts. Raises TimeoutError with the last one; check may raise earlier."""
    deadline = time.monotonic() + timeout_s
    while (value := read()) is None or not accept(value):
        check()
        if time.monotonic() >= deadline:
            raise TimeoutError(f"After {timeout_s:g} s it is still {value!r}.")
        time.sleep(interval_s)
    return value


async def poll_async(read: Callable[[], object], *, timeout_s: float = PATIENCE_S, interval_s: float = 0.02) -> None:
    """Wait until read, which may be a coroutine function, returns something true. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not (await value if isinstance(value := read(), Awaitable) else value):  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(interval_s)
