"""Commands to agents that are connected to other replicas: each replica queues what others send to its agents."""

import logging
from collections.abc import Awaitable, Callable
from typing import get_args

from msgspec import Struct

from coresteer.errors import AgentTimeout, NodeElsewhere
from coresteer.presence.connections import AgentConnection, Command, Connections
from coresteer.presence.locations import Location
from coresteer.replicas.broker import ANSWER_S, Broker, UnansweredError, UndeliveredError
from coresteer.replicas.membership import Membership
from coresteer_core.protocol import ToAgent

log = logging.getLogger("coresteer.presence")


class Send(Struct, frozen=True, tag="send"):
    """Request to queue a message to a node's agent if its connection still has this epoch."""

    node_id: int
    epoch: int
    message: Command


class Sent(Struct, frozen=True):
    """Answer: whether the message was queued; if not, the agent has no such connection."""

    queued: bool


class _RemoteConnection:
    """Implements AgentConnection for one to another replica; what it posts is lost if that replica is."""

    sends_columns = True  # it is not known, and asking for every sample harms no other agent

    def __init__(self, broker: Broker, location: Location) -> None:
        self._broker, self._location = broker, location
        self.stream, self.host, self.epoch = location.stream, location.host, location.epoch
        self.obeys_stops = location.obeys_stops

    def post(self, message: ToAgent) -> None:
        """Send a command; the other replica queues it if the connection is still the same."""
        if not isinstance(message, get_args(Command)):
            raise TypeError(f"{type(message).__name__} is sent only by the backend that has the connection.")
        location = self._location
        self._broker.publish(location.replica_id or 0, Send(location.node_id, location.epoch, message))

    def close(self, code: int, reason: str) -> None:
        """Leave it to the other replica, which learns of a revocation by itself."""
        log.debug("Node %d: its own backend closes its connection (%d: %s).", self._location.node_id, code, reason)


class RemoteAgents:
    """Implements RemoteConnections over the broker."""

    def __init__(self, broker: Broker, membership: Membership) -> None:
        self._broker, self._membership = broker, membership
        self._locate: Callable[[], Awaitable[None]]

    def serve(self, connections: Connections, locate: Callable[[], Awaitable[None]]) -> None:
        """Queue what other replicas send to the agents of this one. locate: reads where all agents are connected."""
        self._locate = locate

        async def queue(_: int, request: Send) -> Sent:
            connection = connections.get(request.node_id)
            if connection is None or connection.epoch != request.epoch:
                return Sent(queued=False)
            connection.post(request.message)
            return Sent(queued=True)

        self._broker.on(Send, queue)

    def unreachable(self, location: Location) -> str | None:
        """Return why a connection cannot be reached from here, None if it can."""
        if self._broker.is_connected:
            return None
        because = f" {self._broker.trouble}" if self._broker.is_configured else ""
        name = self._membership.name_of(location.replica_id or 0)
        return f"The node's agent is connected to the backend {name}. Repeat the request there.{because}"

    def get(self, location: Location) -> AgentConnection:
        """Return a connection to another replica."""
        return _RemoteConnection(self._broker, location)

    async def send(self, location: Location, message: Command) -> bool:
        """Queue a message there; return False if the agent has another connection since."""
        if (reason := self.unreachable(location)) is not None:
            raise NodeElsewhere(reason)
        name, replica_id = self._membership.name_of(location.replica_id or 0), location.replica_id or 0
        try:
            request = Send(location.node_id, location.epoch, message)
            return (await self._broker.request(replica_id, request, Sent)).queued
        except UndeliveredError as error:
            raise NodeElsewhere(
                f"The node's agent is connected to the backend {name}, which does not receive commands of this one now "
                f"({error}). Try again in a few seconds."
            ) from None
        except UnansweredError:
            raise AgentTimeout(
                f"The backend {name}, to which the node's agent is connected, did not answer within {ANSWER_S:g} s. "
                "It is not known whether the agent has received this command; look at its changes before you repeat it."
            ) from None

    async def locate(self) -> None:
        """Learn where all agents are connected now."""
        await self._locate()
