"""The parts of the application that changes use; stored in app.state.changes."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field

from coresteer.background import cancel
from coresteer.bus import Bus
from coresteer.db import Database
from coresteer.presence.connections import Connections


@dataclass(frozen=True)
class ChangeContext:
    """The parts of the application that previews and changes use."""

    database: Database
    connections: Connections
    bus: Bus
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def in_background(self, work: Coroutine[None, None, None]) -> None:
        """Start work that no request waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel the work in the background."""
        await cancel(self._tasks)
