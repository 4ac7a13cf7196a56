"""Tells open connections that what they signed in with has changed: within a second, whichever process changed it."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from coresteer.background import cancel, repeat
from coresteer.db import Database

log = logging.getLogger("coresteer")

_CHANNEL = "coresteer_trust"
"""Of the triggers of migration 0016; a payload is the hash of a changed credential in hexadecimal."""
_RECONNECT_S = 0.5
SWEEP_S = 60.0
"""In this time every connection checks its credential anyway: for what expires, and for a proxy that drops news."""
_AT_ONCE = 250

Doubt: TypeAlias = Callable[[], None]


class TrustWatch:
    """Calls connections whose session, API token or agent key has changed, so that they check it again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watching: dict[str, set[Doubt]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start listening for changes."""
        listen = repeat(self._listen, _RECONNECT_S, log, "Listening for changes of credentials failed; trying again.")
        self._tasks = [asyncio.create_task(listen), asyncio.create_task(self._sweep())]

    async def stop(self) -> None:
        """Stop listening."""
        await cancel(self._tasks)

    @contextmanager
    def watch(self, credential: bytes, doubt: Doubt) -> Iterator[None]:
        """Call doubt whenever the credential with this hash may no longer be valid, while the block runs.

        Enter the block before the credential is looked up: then no change falls between.
        """
        key = credential.hex()
        self._watching.setdefault(key, set()).add(doubt)
        try:
            yield
        finally:
            self._watching[key].discard(doubt)
            if not self._watching[key]:
                del self._watching[key]

    def watchers(self, credential: bytes) -> int:
        """Return how many connections of this process have signed in with the credential with this hash."""
        return len(self._watching.get(credential.hex(), ()))

    def _doubt(self, key: str) -> None:
        for doubt in tuple(self._watching.get(key, ())):
            doubt()

    async def _listen(self) -> None:
        """Listen until the connection to the database is lost."""
        async with await self._database.connect() as connection:
            await connection.execute(f"LISTEN {_CHANNEL}")
            for key in list(self._watching):  # what changed since the last connection was lost
                self._doubt(key)
            async for news in connection.notifies():
                self._doubt(news.payload)

    async def _sweep(self) -> None:
        while True:
            keys = list(self._watching)
            slices = [keys[start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE)] or [[]]
            for some in slices:
                await asyncio.sleep(SWEEP_S / len(slices))
                for key in some:
                    self._doubt(key)
