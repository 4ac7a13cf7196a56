"""The parts of the application that changes use; on app.state.changes."""

from dataclasses import dataclass

from coresteer.bus import Bus
from coresteer.db import Database
from coresteer.presence.connections import Connections


@dataclass(frozen=True)
class ChangeContext:
    """Parts of the application."""

    database: Database
    connections: Connections
    bus: Bus
