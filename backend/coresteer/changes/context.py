"""The parts of the application that changes use; stored in app.state.changes."""

from dataclasses import dataclass

from coresteer.bus import Bus
from coresteer.db import Database
from coresteer.presence.connections import Connections


@dataclass(frozen=True)
class ChangeContext:
    """The parts of the application that previews and changes use."""

    database: Database
    connections: Connections
    bus: Bus
