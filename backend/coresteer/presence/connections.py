"""Which agents are connected, and the way to speak to them."""

import asyncio
from typing import Protocol

from coresteer.errors import NodeAway
from coresteer_core.protocol import Close, ToAgent


class Peer(Protocol):
    """An open connection to one agent."""

    @property
    def stream(self) -> str:
        """The stream its Hello named."""

    def post(self, message: ToAgent) -> None:
        """Queue a message; one that does not take them is disconnected."""

    def close(self, code: int, reason: str) -> None:
        """End the connection with a code and a reason the agent logs."""


class Connections:
    """The connected agents by node id, one a node."""

    def __init__(self) -> None:
        self._peers: dict[int, Peer] = {}

    def add(self, node_id: int, peer: Peer) -> None:
        """A second connection of a node replaces the first: a half-dead one must not lock its agent out."""
        before = self._peers.get(node_id)
        self._peers[node_id] = peer
        if before is not None:
            before.close(Close.REPLACED, "Another connection with this node's key has taken over.")

    def remove(self, node_id: int, peer: Peer) -> bool:
        """Forget a connection that ended; False when it had been replaced already."""
        if self._peers.get(node_id) is not peer:
            return False
        del self._peers[node_id]
        return True

    def is_connected(self, node_id: int) -> bool:
        """Whether the node's agent can be spoken to."""
        return node_id in self._peers

    def get(self, node_id: int) -> Peer | None:
        """The node's connection, if it has one."""
        return self._peers.get(node_id)

    async def send(self, node_id: int, message: ToAgent) -> None:
        """Tell a node's agent. Raises NodeAway when it is not connected."""
        peer = self._peers.get(node_id)
        if peer is None:
            raise NodeAway("The node's agent is not connected; try again when the node is live.")
        peer.post(message)
        await asyncio.sleep(0)

    def close(self, node_id: int, code: int, reason: str) -> None:
        """End a node's connection if it has one."""
        if peer := self._peers.get(node_id):
            peer.close(code, reason)

    def close_all(self, code: int, reason: str) -> None:
        """End every connection."""
        for peer in list(self._peers.values()):
            peer.close(code, reason)
