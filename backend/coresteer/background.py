"""Background tasks of the backend's process: repeat a step forever, cancel tasks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from coresteer.errors import DeposedError, is_database_unavailable


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


async def cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until all have ended."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)
