"""Wait for something that sends no event."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def poll(
    read: Callable[[], T],
    accept: Callable[[T], object] = bool,
    *,
    timeout_s: float = 30.0,
    interval_s: float = 0.005,
    check: Callable[[], None] = lambda: None,
) -> T:
    """Return the first value that accept accepts. Raises TimeoutError with the last one; check may raise earlier."""
    deadline = time.monotonic() + timeout_s
    while not accept(value := read()):
        check()
        if time.monotonic() >= deadline:
            raise TimeoutError(f"After {timeout_s:g} s it is still {value!r}.")
        time.sleep(interval_s)
    return value
