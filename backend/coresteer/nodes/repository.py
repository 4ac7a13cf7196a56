"""SQL of nodes."""

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
    WHERE node.simulated = excluded.simulated AND (:replace_keys OR node.key_hash IS NULL)
    RETURNING id, name
""").bindparams(bindparam("names", type_=ARRAY(Text)), bindparam("hashes", type_=ARRAY(LargeBinary)))


async def upsert_nodes(
    session: AsyncSession, key_hashes: dict[str, bytes], *, simulated: bool, replace_keys: bool
) -> dict[str, int]:
    """Create nodes with these keys, or replace the keys of existing ones; return node ids by name.

    Left out are nodes of the other kind (simulated or not) and, unless replace_keys, nodes that have a key.
    """
    rows = await session.execute(
        _UPSERT,
        {
            "names": list(key_hashes),
            "hashes": list(key_hashes.values()),
            "simulated": simulated,
            "replace_keys": replace_keys,
        },
    )
    return {row.name: row.id for row in rows}


async def list_nodes(session: AsyncSession, node_ids: Sequence[int] | None = None) -> Sequence[NodeRow]:
    """Return all nodes, or those of the ids, ordered by name; without topology and inventory."""
    query = select(NodeRow).order_by(NodeRow.name)
    if node_ids is not None:
        query = query.where(NodeRow.id.in_(node_ids))
    return (await session.scalars(query)).all()


async def ever_connected(session: AsyncSession) -> dict[int, bool]:
    """Return by node id whether its agent has ever connected."""
    rows = await session.execute(select(NodeRow.id, NodeRow.last_seen_at.is_not(None)))
    return {row[0]: row[1] for row in rows}


async def find_node(session: AsyncSession, node_id: int) -> NodeRow | None:
    """Return the node with all columns, None if there is none."""
    deferred = (NodeRow.topology, NodeRow.inventory, NodeRow.learned)
    return await session.get(NodeRow, node_id, options=[undefer(column) for column in deferred])


async def find_by_name(session: AsyncSession, name: str) -> NodeRow | None:
    """Return the node of that name without topology and inventory, None if there is none."""
    return await session.scalar(select(NodeRow).where(NodeRow.name == name))


async def delete_node(session: AsyncSession, node_id: int) -> None:
    """Delete the node; its samples are dropped with their partitions."""
    await session.execute(delete(NodeRow).where(NodeRow.id == node_id))


@dataclass(frozen=True)
class AgentIdentity:
    """The node that an agent's key belongs to. acked_seq: everything up to that sample of the stream is stored."""

    node_id: int
    name: str
    simulated: bool
    stream: str | None
    acked_seq: int


async def find_by_keys(
    connection: AsyncConnection[TupleRow], key_hashes: Sequence[bytes]
) -> dict[bytes, AgentIdentity]:
    """Return the nodes whose agents hold these keys, by the hash of the key."""
    cursor = await connection.execute(
        "SELECT key_hash, id, name, simulated, stream, acked_seq FROM node WHERE key_hash = ANY(%s)",
        (list(key_hashes),),
    )
    return {key_hash: AgentIdentity(*rest) for key_hash, *rest in await cursor.fetchall()}


@dataclass
class NodeReport:
    """Columns of a node to update from its agent's reports; None leaves a column unchanged. JSON as bytes."""

    hello: bytes | None = None
    topology: bytes | None = None
    inventory: bytes | None = None
    learned: bytes | None = None
    cpus: int | None = None
    packages: int | None = None
    numa_nodes: int | None = None
    drivers: list[str] | None = None
    netdevs: bytes | None = None

    def merged_with(self, newer: "NodeReport") -> "NodeReport":
        """Return the newer value of each column, where the newer report has one."""
        values = {f.name: getattr(self, f.name) if (v := getattr(newer, f.name)) is None else v for f in fields(self)}
        return NodeReport(**values)


async def store_reports(connection: AsyncConnection[TupleRow], reports: Mapping[int, NodeReport]) -> None:
    """Update nodes with their agents' latest reports."""
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
                for node_id, t in sorted(reports.items())
            ],
        )
