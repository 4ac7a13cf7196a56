"""Registry of the open connections to agents."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from coresteer.errors import NodeDisconnected, NodeElsewhere
from coresteer.presence.locations import Locations
from coresteer_core.protocol import CloseCode, ToAgent


class AgentConnection(Protocol):
    """Interface of an open connection to one agent."""

    @property
    def stream(self) -> str:
        """Return the id of the sample stream that the agent's Hello named."""

    @property
    def host(self) -> str:
        """Return the address from which the agent is connected; empty where it is not known."""

    @property
    def epoch(self) -> int:
        """Return the epoch of the connection, greater than that of any earlier one of the node."""

    @property
    def obeys_stops(self) -> bool:
        """Return whether the agent understands stops of enforcement."""

    @property
    def sends_columns(self) -> bool:
        """Return whether the agent sends blocks and summaries, and every sample only while it is asked to."""

    def post(self, message: ToAgent) -> None:
        """Queue a message to the agent without blocking; an agent that does not read is disconnected."""

    def close(self, code: int, reason: str) -> None:
        """Close the connection with a code and a reason, which the agent logs."""


_RETURNING_PER_S = 500
"""Agents that connect again in a second, of those of a lost backend."""
_LONGEST_SPREAD_S = 20.0
"""So that all are back within 30 s, which is when a rollout gives up a node."""


class Connections:
    """Open connections to agents by node id, one per node. backend_name: of another replica by its id."""

    def __init__(
        self, locations: Locations | None = None, backend_name: Callable[[int], str] = "number {}".format
    ) -> None:
        self._connections: dict[int, AgentConnection] = {}
        self._locations = locations or Locations()
        self._backend_name = backend_name

    def register(self, node_id: int, connection: AgentConnection) -> None:
        """Add a node's connection and close an earlier one of the node, which may be half-open."""
        before = self._connections.get(node_id)
        self._connections[node_id] = connection
        if before is not None:
            before.close(CloseCode.REPLACED, "Another connection with this node's key replaced this one.")

    def unregister(self, node_id: int, connection: AgentConnection) -> bool:
        """Remove a node's closed connection; return False when another one has replaced it."""
        if self._connections.get(node_id) is not connection:
            return False
        del self._connections[node_id]
        return True

    @property
    def reconnect_spread_s(self) -> float:
        """Return the time in seconds over which these agents are to return if all connections are lost at once."""
        return min(_LONGEST_SPREAD_S, len(self._connections) / _RETURNING_PER_S)

    def is_connected(self, node_id: int) -> bool:
        """Return whether the node's agent is connected, to this backend or to another one."""
        return node_id in self._connections or self._locations.elsewhere(node_id) is not None

    def elsewhere(self, node_id: int) -> str | None:
        """Return why a node cannot be reached from here although its agent is connected; None if it can, or is not."""
        location = None if node_id in self._connections else self._locations.elsewhere(node_id)
        if location is None or location.replica_id is None:
            return None
        return (
            f"The node's agent is connected to the backend {self._backend_name(location.replica_id)}, which this one "
            "cannot pass commands to. Repeat the request there."
        )

    def node_ids(self) -> list[int]:
        """Return the nodes whose agents are connected to this backend."""
        return list(self._connections)

    def get(self, node_id: int) -> AgentConnection | None:
        """Return the node's open connection to this backend, None if its agent is not connected to it."""
        return self._connections.get(node_id)

    async def send(self, node_id: int, message: ToAgent) -> None:
        """Queue a message to a node's agent.

        Raises NodeDisconnected when it is not connected, NodeElsewhere when it is connected to another backend.
        """
        connection = self._connections.get(node_id)
        if (elsewhere := self.elsewhere(node_id)) is not None:
            raise NodeElsewhere(elsewhere)
        if connection is None:
            raise NodeDisconnected("The node's agent is not connected; try again when the node is live.")
        connection.post(message)
        await asyncio.sleep(0)

    def close(self, node_id: int, code: int, reason: str) -> None:
        """Close the connection of a node's agent, if there is one."""
        if connection := self._connections.get(node_id):
            connection.close(code, reason)
