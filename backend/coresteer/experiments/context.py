"""The parts of the application that experiments use; stored in app.state.experiments."""

from dataclasses import dataclass

from coresteer.application_metrics.reading import ReadMetric
from coresteer.bus import Bus
from coresteer.changes.context import ChangeContext
from coresteer.db import Database
from coresteer.policies.publisher import PolicyPublisher
from coresteer.presence.connections import Connections
from coresteer.presence.forwarding import Forwarding
from coresteer.presence.registry import NodeRegistry


@dataclass(frozen=True)
class ExperimentContext:
    """The parts of the application that experiments use."""

    database: Database
    bus: Bus
    connections: Connections
    registry: NodeRegistry
    forwarding: Forwarding
    publisher: PolicyPublisher
    changes: ChangeContext
    read_application_metric: ReadMetric
