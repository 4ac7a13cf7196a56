"""Registry of the open connections to agents."""

import asyncio
from typing import Protocol, TypeAlias

from coresteer.errors import NodeDisconnected
from coresteer.presence.locations import Location, Locations
from coresteer_core.protocol import (
    Apply,
    BeginExperiment,
    ChangeAck,
    CloseCode,
    Confirm,
    EndExperiment,
    Extend,
    Rollback,
    RunExperiment,
    ToAgent,
)

Command: TypeAlias = Apply | Confirm | Rollback | Extend | ChangeAck | BeginExperiment | RunExperiment | EndExperiment
"""What any backend may send to an agent; all else is between an agent and the backend to which it is connected."""


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


class RemoteConnections(Protocol):
    """Interface of the connections of agents to other backends."""

    def unreachable(self, location: Location) -> str | None:
        """Return why a connection cannot be reached from here, None if it can."""

    def get(self, location: Location) -> AgentConnection:
        """Return a connection to another backend."""

    async def send(self, location: Location, message: Command) -> bool:
        """Queue a message there; return False if the agent has another connection since.

        Raises NodeElsewhere if nothing was sent, AgentTimeout if that is not known.
        """

    async def locate(self) -> None:
        """Learn where all agents are connected now. Raises database errors."""


class Connections:
    """Open connections to agents by node id, one per node. remote: those to other backends."""

    def __init__(self, locations: Locations | None = None, remote: RemoteConnections | None = None) -> None:
        self._connections: dict[int, AgentConnection] = {}
        self._locations = locations or Locations()
        self._remote = remote

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

    def unreachable(self, node_id: int) -> str | None:
        """Return why a node cannot be reached from here although its agent is connected; None if it can, or is not."""
        location = self.location_elsewhere(node_id)
        return None if location is None or self._remote is None else self._remote.unreachable(location)

    def location_elsewhere(self, node_id: int) -> Location | None:
        """Return where a node is connected if it is to another backend, not to this one."""
        return None if node_id in self._connections else self._locations.elsewhere(node_id)

    def node_ids(self) -> list[int]:
        """Return the nodes whose agents are connected to this backend."""
        return list(self._connections)

    def get(self, node_id: int) -> AgentConnection | None:
        """Return the node's open connection to this backend, None if its agent is not connected to it."""
        return self._connections.get(node_id)

    def reach(self, node_id: int) -> AgentConnection | None:
        """Return the node's open connection to this backend or to another one, None if it cannot be reached."""
        if (connection := self._connections.get(node_id)) is not None:
            return connection
        location = self._locations.elsewhere(node_id)
        if location is None or self._remote is None or self._remote.unreachable(location) is not None:
            return None
        return self._remote.get(location)

    async def send(self, node_id: int, message: Command) -> None:
        """Queue a message to a node's agent, at most once.

        Raises NodeDisconnected when it is not connected, NodeElsewhere when the backend to which it is connected cannot
        be reached, AgentTimeout when that one did not answer: then it is not known whether the message was queued.
        """
        for is_first in (True, False):
            if (connection := self._connections.get(node_id)) is not None:
                connection.post(message)
                return await asyncio.sleep(0)
            location = self._locations.elsewhere(node_id)
            if location is None or self._remote is None:
                break
            if await self._remote.send(location, message):
                return None
            if is_first:
                await self._remote.locate()
        raise NodeDisconnected("The node's agent is not connected; try again when the node is live.")

    def close(self, node_id: int, code: int, reason: str) -> None:
        """Close the connection of a node's agent, if there is one."""
        if connection := self._connections.get(node_id):
            connection.close(code, reason)
