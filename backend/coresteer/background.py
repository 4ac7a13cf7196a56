"""Background tasks of the backend's process: repeat a step forever, less often while it has no work, cancel tasks."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from coresteer.errors import DeposedError, is_database_unavailable

_CANCEL_AGAIN_S = 1.0
_IDLE_S = 5.0


async def repeat(step: Callable[[], Awaitable[None]], every_s: float, log: logging.Logger, failure: str) -> None:
    """Await step() forever, with a pause of every_s seconds after each call.

    An exception is logged with the message failure, unless it says that the database is unavailable. A task of the
    leader ends when another replica leads.
    """
    while True:
        try:
            await step()
        except DeposedError as deposed:
            return log.warning("%s", deposed)
        except Exception as error:
            if not is_database_unavailable(error):
                log.exception(failure)
        await asyncio.sleep(every_s)


class Pace:
    """Lets a repeated step be taken each time while it has work, else every 5 s and at the first time after wake().

    A step that asks the database for work each second costs more CPU time than the samples of 50 nodes.
    """

    def __init__(self) -> None:
        self._due_at = 0.0

    def wake(self) -> None:
        """Take the step next time, because there may be work."""
        self._due_at = 0.0

    async def take(self, step: Callable[[], Awaitable[bool]]) -> None:
        """Await step() if it is due; it returns whether it has work."""
        if time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + _IDLE_S  # before the step, so that wake() meanwhile is not lost
        has_work = True
        try:
            has_work = await step()
        finally:
            if has_work:
                self._due_at = 0.0


async def cancel(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Cancel tasks and wait until all have ended.

    A task may lose a cancellation: asyncio.wait_for, which the pools of psycopg and SQLAlchemy use, does before Python
    3.12 when it arrives together with the result (https://github.com/python/cpython/issues/81839), and the error of a
    database that ends at the same time may replace it. A task that goes on is cancelled again.
    """
    cancelled = list(tasks)
    running = {task for task in cancelled if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=_CANCEL_AGAIN_S)
    await asyncio.gather(*cancelled, return_exceptions=True)  # else their exceptions are logged as never retrieved
