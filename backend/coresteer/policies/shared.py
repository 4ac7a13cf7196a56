"""What the policies' functions need of the application; on app.state.policies."""

from dataclasses import dataclass

from coresteer.bus import Bus
from coresteer.db import Database
from coresteer.nodes.registry import Registry
from coresteer.telemetry.service import Ingest


@dataclass(frozen=True)
class Shared:
    """Shared parts."""

    database: Database
    bus: Bus
    registry: Registry
    ingest: Ingest
