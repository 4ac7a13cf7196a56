"""SQL about nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from sqlalchemy import ARRAY, LargeBinary, Text, bindparam, delete, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer

from coresteer.nodes.tables import NodeRow

_UPSERT = text("""
    INSERT INTO node (name, key_hash, simulated)
    SELECT name, key_hash, :simulated FROM unnest(:names, :hashes) AS new (name, key_hash)
    ON CONFLICT (name) DO UPDATE SET key_hash = excluded.key_hash
    WHERE node.simulated = excluded.simulated AND (:reassert OR node.key_hash IS NULL)
    RETURNING id, name
""").bindparams(bindparam("names", type_=ARRAY(Text)), bindparam("hashes", type_=ARRAY(LargeBinary)))


async def upsert(
    session: AsyncSession, key_hashes: dict[str, bytes], *, simulated: bool, reassert: bool
) -> dict[str, int]:
    """Ids by name; left out is a node of the other kind and, unless reassert, one that has a key."""
    rows = await session.execute(
        _UPSERT,
        {
            "names": list(key_hashes),
            "hashes": list(key_hashes.values()),
            "simulated": simulated,
            "reassert": reassert,
        },
    )
    return {row.name: row.id for row in rows}


async def every(session: AsyncSession, node_ids: Sequence[int] | None = None) -> Sequence[NodeRow]:
    """All nodes, or those of the ids, by name; without topology and inventory."""
    query = select(NodeRow).order_by(NodeRow.name)
    if node_ids is not None:
        query = query.where(NodeRow.id.in_(node_ids))
    return (await session.scalars(query)).all()


async def seen_before(session: AsyncSession) -> dict[int, bool]:
    """Every node's id, and whether its agent was ever heard of."""
    rows = await session.execute(select(NodeRow.id, NodeRow.last_seen_at.is_not(None)))
    return {row[0]: row[1] for row in rows}


async def find(session: AsyncSession, node_id: int) -> NodeRow | None:
    """One node with everything."""
    told = (NodeRow.topology, NodeRow.inventory, NodeRow.learned)
    return await session.get(NodeRow, node_id, options=[undefer(column) for column in told])


async def find_by_name(session: AsyncSession, name: str) -> NodeRow | None:
    """The node of that name, without topology and inventory."""
    return await session.scalar(select(NodeRow).where(NodeRow.name == name))


async def remove(session: AsyncSession, node_id: int) -> None:
    """Delete the node; its samples go with their partitions."""
    await session.execute(delete(NodeRow).where(NodeRow.id == node_id))


@dataclass(frozen=True)
class Known:
    """A node that a key belongs to, and how far its stream is stored."""

    node_id: int
    name: str
    simulated: bool
    stream: str | None
    acked_seq: int


async def find_by_keys(connection: AsyncConnection[TupleRow], key_hashes: Sequence[bytes]) -> dict[bytes, Known]:
    """The nodes whose agents hold these keys."""
    cursor = await connection.execute(
        "SELECT key_hash, id, name, simulated, stream, acked_seq FROM node WHERE key_hash = ANY(%s)",
        (list(key_hashes),),
    )
    return {key_hash: Known(*rest) for key_hash, *rest in await cursor.fetchall()}


@dataclass
class Told:
    """What an agent told and is to be kept; None leaves what is there. JSON as bytes, the rest for lists."""

    hello: bytes | None = None
    topology: bytes | None = None
    inventory: bytes | None = None
    learned: bytes | None = None
    cpus: int | None = None
    packages: int | None = None
    numa_nodes: int | None = None
    drivers: list[str] | None = None
    netdevs: bytes | None = None

    def overlaid_by(self, newer: "Told") -> "Told":
        """The newer value of each field."""
        values = {f.name: getattr(self, f.name) if (v := getattr(newer, f.name)) is None else v for f in fields(self)}
        return Told(**values)


async def keep(connection: AsyncConnection[TupleRow], told: Mapping[int, Told]) -> None:
    """Write what these nodes told."""
    async with connection.cursor() as cursor:
        await cursor.executemany(
            """
            UPDATE node SET
                hello = coalesce(%s::jsonb, hello), topology = coalesce(%s::jsonb, topology),
                inventory = coalesce(%s::jsonb, inventory), learned = coalesce(%s::jsonb, learned),
                cpus = coalesce(%s::int, cpus),
                packages = coalesce(%s::int, packages), numa_nodes = coalesce(%s::int, numa_nodes),
                drivers = coalesce(%s::text[], drivers), netdevs = coalesce(%s::jsonb, netdevs),
                last_seen_at = now()
            WHERE id = %s
            """,
            [
                (
                    *(None if raw is None else raw.decode() for raw in (t.hello, t.topology, t.inventory, t.learned)),
                    *(t.cpus, t.packages, t.numa_nodes, t.drivers),
                    *(None if t.netdevs is None else t.netdevs.decode(), node_id),
                )
                for node_id, t in sorted(told.items())
            ],
        )
