"""What the policies' functions need of the application; on app.state.policies."""

import asyncio
from dataclasses import dataclass, field

from coresteer.bus import Bus
from coresteer.db import Database
from coresteer.presence.registry import Registry
from coresteer.telemetry.service import Ingest


@dataclass(frozen=True)
class Shared:
    """Shared parts. one_replay: held by the replay that goes on, for each has an hour of samples in memory."""

    database: Database
    bus: Bus
    registry: Registry
    ingest: Ingest
    one_replay: asyncio.Lock = field(default_factory=asyncio.Lock)
