"""Nodes: enrolment, what is shown of them, labels, keys and deletion."""

import hashlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.auth.schemas import EnrolledNode
from coresteer.changes.repository import count_open
from coresteer.db import Database
from coresteer.errors import Conflict, Invalid, NotFound
from coresteer.nodes import repository
from coresteer.nodes.schemas import Node, NodeSummary
from coresteer.nodes.tables import NodeRow
from coresteer.presence.connections import Connections
from coresteer.presence.registry import Registry
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import Learned
from coresteer_core.node.topology import Topology
from coresteer_core.protocol import Close


def hash_key(key: str) -> bytes:
    """What is kept of an agent's key. Keys are random, so that one round of SHA-256 is enough."""
    return hashlib.sha256(key.encode()).digest()


async def known(database: Database, key_hashes: Sequence[bytes]) -> dict[bytes, repository.Known]:
    """The nodes whose agents hold these keys."""
    async with database.pool.connection() as connection:
        return await repository.find_by_keys(connection, key_hashes)


async def enrol(
    session: AsyncSession, names: list[str], *, simulated: bool, reassert: bool = False
) -> list[EnrolledNode]:
    """Nodes of these names with a new key each, in the order asked for.

    A name that exists already keeps its history. Only a simulated node, or any with reassert, gets a new key while it
    has one; the old one stops working. Raises Conflict when a node has a key, or when a real node would become a
    simulated one or the other way round; Invalid when a name is given twice.
    """
    if len(set(names)) != len(names):
        raise Invalid("A name is given twice; every node needs a name of its own.", field="names")
    keys = {name: f"csn_{secrets.token_urlsafe(32)}" for name in names}
    hashes = {name: hash_key(key) for name, key in keys.items()}
    ids = await repository.upsert(session, hashes, simulated=simulated, reassert=simulated or reassert)
    if missing := [name for name in names if name not in ids]:
        there = await repository.find_by_name(session, missing[0])
        if there is not None and there.simulated == simulated:
            raise Conflict(
                f"“{missing[0]}” is enrolled already. If its agent lost its key, an administrator revokes the old one "
                "first, in the settings under Nodes; otherwise give this agent another name."
            )
        kind, other = ("simulated", "real") if simulated else ("real", "simulated")
        raise Conflict(f"“{missing[0]}” is a {other} node already; choose another name for the {kind} one.")
    return [EnrolledNode(node_id=ids[name], name=name, key=key) for name, key in keys.items()]


async def find(session: AsyncSession, node_id: int) -> NodeRow:
    """The node with everything, or NotFound."""
    row = await repository.find(session, node_id)
    if row is None:
        raise NotFound(f"There is no node {node_id}; it may have been deleted.")
    return row


class Told(NamedTuple):
    """What an agent told of its node last, None while it has not."""

    topology: Topology | None
    inventory: Inventory | None
    learned: Learned


def told(row: NodeRow) -> Told:
    """Topology, inventory and what was learned of NICs, of a row that was found with everything."""
    return Told(
        None if row.topology is None else msgspec.convert(row.topology, Topology),
        None if row.inventory is None else msgspec.convert(row.inventory, Inventory),
        Learned() if row.learned is None else msgspec.convert(row.learned, Learned),
    )


async def seen_before(session: AsyncSession) -> dict[int, bool]:
    """Every node's id, and whether its agent was ever heard of."""
    return await repository.seen_before(session)


async def summaries(
    session: AsyncSession, registry: Registry, node_ids: Sequence[int] | None = None
) -> list[NodeSummary]:
    """Lines of the fleet table, by name."""
    rows = await repository.every(session, node_ids)
    counts = await count_open(session)
    return [_summary(row, registry, counts.get(row.id, 0)) for row in rows]


def _summary(row: NodeRow, registry: Registry, open_changes: int) -> NodeSummary:
    state = registry.get(row.id)
    hello = row.hello or {}
    return NodeSummary(
        id=row.id,
        name=row.name,
        simulated=row.simulated,
        health=state.health(seen_before=row.last_seen_at is not None),
        mode=hello.get("mode"),
        observe_reason=hello.get("observe_reason"),
        agent_version=hello.get("agent_version"),
        kernel=hello.get("kernel"),
        labels=hello.get("labels", {}) | row.labels,
        cpus=row.cpus,
        packages=row.packages,
        numa_nodes=row.numa_nodes,
        drivers=row.drivers,
        last_seen_at=row.last_seen_at,
        clock_skew_ms=row.clock_skew_ms if state.clock_skew_ms is None else state.clock_skew_ms,
        figures=state.last_figures(),
        open_changes=open_changes,
    )


async def details(session: AsyncSession, registry: Registry, node_id: int) -> Node:
    """Everything about one node but its history. Raises NotFound."""
    row = await find(session, node_id)
    counts = await count_open(session)
    summary = _summary(row, registry, counts.get(row.id, 0))
    topology, inventory, _ = told(row)
    return Node(
        **summary.model_dump(),
        topology=topology,
        inventory=inventory,
        tasks=registry.get(node_id).tasks,
        interval_s=(row.hello or {}).get("interval_s"),
    )


async def set_labels(
    session: AsyncSession, registry: Registry, node_id: int, labels: dict[str, str], *, actor: str
) -> NodeSummary:
    """Replace the labels that people gave. Raises NotFound."""
    row = await find(session, node_id)
    detail = {"was": row.labels, "becomes": labels}
    row.labels = labels
    record(session, actor=actor, action="node.labels", target=row.name, node_id=node_id, detail=detail)
    await session.flush()
    counts = await count_open(session)
    return _summary(row, registry, counts.get(node_id, 0))


async def revoke_key(session: AsyncSession, node_id: int, *, actor: str) -> None:
    """The node's key stops working; close its connection once this is committed. Raises NotFound."""
    row = await find(session, node_id)
    row.key_hash = None
    record(session, actor=actor, action="node.revoke_key", target=row.name, node_id=node_id)


async def delete(session: AsyncSession, node_id: int, *, actor: str) -> None:
    """Forget the node. Raises NotFound."""
    row = await find(session, node_id)
    record(session, actor=actor, action="node.delete", target=row.name, node_id=node_id)
    await repository.remove(session, node_id)


def disconnect(connections: Connections, node_id: int) -> None:
    """End the connection of a node whose key no longer counts."""
    connections.close(node_id, Close.BAD_KEY, "This node's key has been revoked; enrol this agent again.")
