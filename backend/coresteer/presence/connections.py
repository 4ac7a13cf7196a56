"""Registry of the open connections to agents."""

import asyncio
from typing import Protocol

from coresteer.errors import NodeDisconnected
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
    def obeys_stops(self) -> bool:
        """Return whether the agent understands stops of enforcement."""

    def post(self, message: ToAgent) -> None:
        """Queue a message to the agent without blocking; an agent that does not read is disconnected."""

    def close(self, code: int, reason: str) -> None:
        """Close the connection with a code and a reason, which the agent logs."""


class Connections:
    """Open connections to agents by node id, one per node."""

    def __init__(self) -> None:
        self._connections: dict[int, AgentConnection] = {}

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

    def is_connected(self, node_id: int) -> bool:
        """Return whether the node's agent is connected."""
        return node_id in self._connections

    def get(self, node_id: int) -> AgentConnection | None:
        """Return the node's open connection, None if its agent is not connected."""
        return self._connections.get(node_id)

    async def send(self, node_id: int, message: ToAgent) -> None:
        """Queue a message to a node's agent. Raises NodeDisconnected when it is not connected."""
        connection = self._connections.get(node_id)
        if connection is None:
            raise NodeDisconnected("The node's agent is not connected; try again when the node is live.")
        connection.post(message)
        await asyncio.sleep(0)

    def close(self, node_id: int, code: int, reason: str) -> None:
        """Close the connection of a node's agent, if there is one."""
        if connection := self._connections.get(node_id):
            connection.close(code, reason)
