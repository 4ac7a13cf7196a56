"""Ask agents about changes that they have not answered: the backend that sent one, or the report, may be lost."""

import asyncio
import logging
from uuid import UUID

from coresteer.background import cancel, repeat
from coresteer.changes import repository
from coresteer.db import Database
from coresteer.presence.connections import Connections
from coresteer_core.protocol import Extend

log = logging.getLogger("coresteer.changes")

_TICK_S = 5.0


class UnansweredChanges:
    """Asks this backend's own agents every 5 s about their changes that two checks in a row have found applying.

    Two checks, so that a backend that was frozen first delivers the changes that others sent to its agents meanwhile:
    an agent that is asked about a change before it receives it reports it as failed.
    """

    def __init__(self, database: Database, connections: Connections) -> None:
        self._database, self._connections = database, connections
        self._applying: set[UUID] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start asking."""
        failure = "Agents could not be asked about unanswered changes; retrying."
        self._tasks = [asyncio.create_task(repeat(self.ask, _TICK_S, log, failure))]

    async def stop(self) -> None:
        """Stop asking; an agent that connects is asked anyway."""
        await cancel(self._tasks)

    async def ask(self) -> None:
        """Ask about changes that were applying at the last call, too; see changes.reports.state_queries."""
        async with self._database.session() as session:
            applying = await repository.applying_changes(session)
        for change_id, node_id in applying.items():
            if change_id in self._applying and (agent := self._connections.get(node_id)) is not None:
                agent.post(Extend(str(change_id), 0.0))
        self._applying = set(applying)
