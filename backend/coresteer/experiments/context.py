"""The parts of the application that experiments use; stored in app.state.experiments."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from coresteer.application_metrics.reading import DeclaredMetric, Reading
from coresteer.bus import Bus
from coresteer.changes.context import ChangeContext
from coresteer.db import Database
from coresteer.policies.publisher import PolicyPublisher
from coresteer.presence.connections import Connections
from coresteer.presence.registry import NodeRegistry

ReadApplicationMetric: TypeAlias = Callable[[DeclaredMetric, str, datetime, datetime], Awaitable[Reading]]
"""Returns the value of an application metric for a node (by name) between two moments, or why it is missing."""


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
    read_application_metric: ReadApplicationMetric
    wake: asyncio.Event = field(default_factory=asyncio.Event)
