"""The parts of the application that experiments use; stored in app.state.experiments."""

import asyncio
from dataclasses import dataclass, field

from coresteer.application_metrics.reading import ReadMetric
from coresteer.bus import Bus
from coresteer.changes.context import ChangeContext
from coresteer.db import Database
from coresteer.policies.publisher import PolicyPublisher
from coresteer.presence.connections import Connections
from coresteer.presence.registry import NodeRegistry


@dataclass(frozen=True)
class ExperimentContext:
    """The parts of the application that experiments use.

    wake: set when the queued and running experiments may have changed.
    """

    database: Database
    bus: Bus
    connections: Connections
    registry: NodeRegistry
    publisher: PolicyPublisher
    changes: ChangeContext
    read_application_metric: ReadMetric
    wake: asyncio.Event = field(default_factory=asyncio.Event)
