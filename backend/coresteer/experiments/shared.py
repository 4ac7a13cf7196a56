"""What the experiments' functions need of the application; on app.state.experiments."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from coresteer.bus import Bus
from coresteer.db import Database
from coresteer.nodes.connections import Connections
from coresteer.nodes.registry import Registry
from coresteer.policies.teller import Teller


@dataclass
class Shared:
    """Shared parts. look: what is queued or to be ended may have changed."""

    database: Database
    bus: Bus
    connections: Connections
    registry: Registry
    teller: Teller
    look: Callable[[], Awaitable[None]]
