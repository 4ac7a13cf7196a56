"""Nodes: enrolment, what is shown of them, labels, keys and deletion."""

import hashlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.db import Database
from coresteer.errors import Conflict, Invalid, NotFound
from coresteer.nodes import repository
from coresteer.nodes.schemas import EnrolledNode
from coresteer.nodes.tables import NodeRow
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import Learned
from coresteer_core.node.topology import Topology


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


class ReportedState(NamedTuple):
    """What an agent reported last about its node, None before its first report."""

    topology: Topology | None
    inventory: Inventory | None
    learned: Learned


def reported(row: NodeRow) -> ReportedState:
    """Topology, inventory and what was learned of NICs, of a row that was found with everything."""
    return ReportedState(
        None if row.topology is None else msgspec.convert(row.topology, Topology),
        None if row.inventory is None else msgspec.convert(row.inventory, Inventory),
        Learned() if row.learned is None else msgspec.convert(row.learned, Learned),
    )


async def seen_before(session: AsyncSession) -> dict[int, bool]:
    """Every node's id, and whether its agent was ever heard of."""
    return await repository.seen_before(session)
