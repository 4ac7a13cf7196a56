"""Listens to PostgreSQL's notifications on a connection of its own."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from coresteer.background import cancel, repeat
from coresteer.db import Database

log = logging.getLogger("coresteer.replicas")

_RECONNECT_S = 0.5


class Listener:
    """Calls a function for each notification of a channel, with its payload.

    on_gap: called whenever the connection begins, because notifications before it may have been missed.
    """

    def __init__(
        self, database: Database, channels: Mapping[str, Callable[[str], None]], on_gap: Callable[[], None]
    ) -> None:
        self._database = database
        self._channels = channels
        self._on_gap = on_gap
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start listening."""
        listen = repeat(self._listen, _RECONNECT_S, log, "Listening to other backends failed; trying again.")
        self._tasks = [asyncio.create_task(listen)]

    async def stop(self) -> None:
        """Stop listening."""
        await cancel(self._tasks)

    async def _listen(self) -> None:
        async with await self._database.connect() as connection:
            for channel in self._channels:
                await connection.execute(f"LISTEN {channel}")
            self._on_gap()
            async for notification in connection.notifies():
                self._channels[notification.channel](notification.payload)
