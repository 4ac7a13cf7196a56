"""Registry of the open connections to agents."""

import asyncio
from typing import Protocol

from coresteer.errors import NodeAway
from coresteer_core.protocol import Close, ToAgent


class Peer(Protocol):
    """Interface of an open connection to one agent."""

    @property
    def stream(self) -> str:
        """Return the id of the sample stream that the agent's Hello named."""

    def post(self, message: ToAgent) -> None:
        """Queue a message to the agent without blocking; an agent that does not read is disconnected."""

    def close(self, code: int, reason: str) -> None:
        """Close the connection with a code and a reason, which the agent logs."""


class Connections:
    """Open connections to agents by node id, one per node."""

    def __init__(self) -> None:
        self._peers: dict[int, Peer] = {}

    def add(self, node_id: int, peer: Peer) -> None:
        """Add a node's connection and close an earlier one of the node, which may be half-open."""
        before = self._peers.get(node_id)
        self._peers[node_id] = peer
        if before is not None:
            before.close(Close.REPLACED, "Another connection with this node's key has taken over.")

    def remove(self, node_id: int, peer: Peer) -> bool:
        """Remove a node's closed connection; return False when another one has replaced it."""
        if self._peers.get(node_id) is not peer:
            return False
        del self._peers[node_id]
        return True

    def is_connected(self, node_id: int) -> bool:
        """Return whether the node's agent is connected."""
        return node_id in self._peers

    def get(self, node_id: int) -> Peer | None:
        """Return the node's open connection, None if its agent is not connected."""
        return self._peers.get(node_id)

    async def send(self, node_id: int, message: ToAgent) -> None:
        """Queue a message to a node's agent. Raises NodeAway when it is not connected."""
        peer = self._peers.get(node_id)
        if peer is None:
            raise NodeAway("The node's agent is not connected; try again when the node is live.")
        peer.post(message)
        await asyncio.sleep(0)

    def close(self, node_id: int, code: int, reason: str) -> None:
        """Close the connection of a node's agent, if there is one."""
        if peer := self._peers.get(node_id):
            peer.close(code, reason)
