"""The parts of the application that policies use; stored in app.state.policies."""

import asyncio
from dataclasses import dataclass, field

from coresteer.application_metrics.reading import ReadMetric
from coresteer.bus import Bus
from coresteer.db import Database
from coresteer.presence.connections import Connections
from coresteer.presence.interest import Interest
from coresteer.presence.registry import NodeRegistry
from coresteer.telemetry.service import Ingest


@dataclass(frozen=True)
class PolicyContext:
    """The parts of the application that policies use.

    backtest_lock: held while a backtest has up to an hour of samples in memory.
    """

    database: Database
    bus: Bus
    connections: Connections
    registry: NodeRegistry
    interest: Interest
    ingest: Ingest
    read_application_metric: ReadMetric
    backtest_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
