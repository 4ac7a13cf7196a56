"""Nodes: creation with a key, look-up by key or id, and their agents' latest reports."""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.db import Database
from coresteer.errors import Conflict, Invalid, NotFound
from coresteer.nodes import repository
from coresteer.nodes.schemas import EnrolledNode
from coresteer.nodes.tables import NodeRow
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import NicKnowledge
from coresteer_core.node.topology import Topology

DEFAULT_INTERVAL_S = 1.0
"""Between the samples of a node whose agent has not said it yet."""


def hash_key(key: str) -> bytes:
    """Return the stored hash of an agent's key. Keys are random, so one round of SHA-256 is enough."""
    return hashlib.sha256(key.encode()).digest()


def new_key() -> str:
    """Return a new key for an agent: 256 random bits."""
    return f"csn_{secrets.token_urlsafe(32)}"


async def identify_agents(
    database: Database, expiry: timedelta, key_hashes: Sequence[bytes]
) -> dict[bytes, repository.AgentIdentity]:
    """Return the nodes whose agents hold these keys, by the hash of the key. expiry: of a key that is not used."""
    async with database.pool.connection() as connection:
        return await repository.find_by_keys(connection, key_hashes, expiry)


async def create_nodes(
    session: AsyncSession,
    names: list[str],
    *,
    simulated: bool,
    existing: repository.Existing = "refuse",
    labels: dict[str, str] | None = None,
) -> list[EnrolledNode]:
    """Create nodes of these names, each with a new key and these labels; return them in the order of the names.

    A node that exists keeps its history. Only a simulated node, or one that existing admits, gets a new key; its old
    ones become invalid. Raises Conflict when a node exists and is not admitted, or when a real node would become a
    simulated one or the reverse; Invalid when a name is given twice.
    """
    if len(set(names)) != len(names):
        raise Invalid("A name is given twice; node names must be unique.", field="names")
    keys = {name: new_key() for name in names}
    hashes = {name: hash_key(key) for name, key in keys.items()}
    nodes = await repository.upsert_nodes(
        session, hashes, simulated=simulated, existing="readmit" if simulated else existing, labels=labels or {}
    )
    if missing := [name for name in names if name not in nodes]:
        node = await repository.find_by_name(session, missing[0])
        if node is not None and node.simulated == simulated:
            if node.key_hash is None:
                raise Conflict(
                    f"The key of “{missing[0]}” was revoked. An administrator lets it in again with `coresteer readmit "
                    f"{missing[0]}`; otherwise give this agent another name."
                )
            raise Conflict(
                f"“{missing[0]}” is already enrolled. If this machine was installed anew, run `coresteer readmit "
                f"{missing[0]}` and enrol with the command that it prints; otherwise give this agent another name."
            )
        kind, other = ("simulated", "real") if simulated else ("real", "simulated")
        raise Conflict(f"“{missing[0]}” is already a {other} node; choose another name for the {kind} one.")
    return [
        EnrolledNode(node_id=nodes[name].id, name=name, key=key, existed=nodes[name].existed)
        for name, key in keys.items()
    ]


async def find_node(session: AsyncSession, node_id: int) -> NodeRow:
    """Return the node with all columns. Raises NotFound."""
    row = await repository.find_node(session, node_id)
    if row is None:
        raise _no_node(node_id)
    return row


def _no_node(node_id: int) -> NotFound:
    return NotFound(f"There is no node {node_id}; it may have been deleted.")


async def find_interval_s(database: Database, node_id: int) -> float:
    """Return the seconds between a node's samples, without reading what else its agent reported. Raises NotFound."""
    async with database.reading() as connection:
        row = await repository.find_interval_s(connection, node_id)
    if row is None:
        raise _no_node(node_id)
    return DEFAULT_INTERVAL_S if row[0] is None else float(row[0])


async def find_node_by_name(session: AsyncSession, name: str) -> NodeRow:
    """Return the node of that name without topology and inventory. Raises NotFound."""
    row = await repository.find_by_name(session, name)
    if row is None:
        raise NotFound(f"There is no node “{name}”; an agent with a new name needs an enrolment token.")
    return row


class ReportedState(NamedTuple):
    """Latest reports of an agent about its node, None before its first one."""

    topology: Topology | None
    inventory: Inventory | None
    learned: NicKnowledge


def reported_state(row: NodeRow) -> ReportedState:
    """Decode an agent's latest reports from a node's row that was loaded with all columns."""
    return ReportedState(
        None if row.topology is None else msgspec.convert(row.topology, Topology),
        None if row.inventory is None else msgspec.convert(row.inventory, Inventory),
        NicKnowledge() if row.learned is None else msgspec.convert(row.learned, NicKnowledge),
    )
