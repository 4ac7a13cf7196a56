"""Ask agents about changes that they have not answered: the backend that sent one, or the report, may be lost."""

import asyncio
import logging
from collections import Counter
from uuid import UUID

from coresteer.background import cancel, repeat
from coresteer.changes import repository
from coresteer.db import Database
from coresteer.presence.connections import Connections
from coresteer_core.protocol import Extend

log = logging.getLogger("coresteer.changes")

_TICK_S = 5.0
_REPEAT = 6
"""A change that is applied for long, such as a move of pages, is asked about each half a minute."""
_MOST_ASKED = 32
"""Changes about which one agent is asked at a time: a connection has room for 256 messages."""


class UnansweredChanges:
    """Asks this backend's own agents about their changes that two checks, 5 s apart, have found applying.

    An agent that is asked about a change before it has received it reports it as failed, and does not get it any more.
    """

    def __init__(self, database: Database, connections: Connections) -> None:
        self._database, self._connections = database, connections
        self._applying: dict[UUID, int] = {}
        """How many checks in a row have found a change applying."""
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
        checks, asked = dict[UUID, int](), Counter[int]()
        for change_id, node_id in applying.items():
            count = self._applying.get(change_id, 0)
            checks[change_id] = count + 1
            if count % _REPEAT != 1 or (agent := self._connections.get(node_id)) is None:
                continue
            if asked[node_id] == _MOST_ASKED:
                checks[change_id] = count  # due again at the next check
            else:
                asked[node_id] += 1
                agent.post(Extend(str(change_id), 0.0))
        self._applying = checks
