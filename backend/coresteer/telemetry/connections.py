"""Interfaces of the connections to agents that the ingest uses; the feature presence implements them."""

from typing import Protocol

from coresteer_core.protocol import Ack, Rejected


class AgentConnection(Protocol):
    """Interface of the connection to one agent, to which its samples are acknowledged."""

    @property
    def stream(self) -> str:
        """Return the id of the sample stream that the agent's Hello named."""

    def post(self, message: Ack | Rejected) -> None:
        """Queue a message to the agent without waiting."""


class AgentConnections(Protocol):
    """Interface of the open connections to agents."""

    def get(self, node_id: int) -> AgentConnection | None:
        """Return the node's open connection, None while its agent is not connected."""

    def close(self, node_id: int, code: int, reason: str) -> None:
        """Close the node's connection if it has one; its agent reconnects and sends again what is not acknowledged."""
