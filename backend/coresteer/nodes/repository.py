"""SQL of nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow
from sqlalchemy import ARRAY, Interval, LargeBinary, Text, bindparam, delete, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer

from coresteer.nodes.tables import NodeRow

OVERLAP = timedelta(hours=24)
"""How long an agent's key stays valid after the agent has stored the next one: a restored backup may need it."""

Existing: TypeAlias = Literal["refuse", "rejoin", "readmit"]
"""What an enrolment does with a node that exists: rejoin replaces its key unless that was revoked, readmit any."""

_UPSERT = text("""
    INSERT INTO node (name, key_hash, simulated, token_labels)
    SELECT name, key_hash, :simulated, :labels FROM unnest(:names, :hashes) AS new (name, key_hash)
    ON CONFLICT (name) DO UPDATE SET key_hash = excluded.key_hash, key_created_at = now(), key_used_at = NULL,
        previous_key_hash = NULL, previous_key_until = NULL,
        token_labels = CASE WHEN excluded.token_labels = '{}' THEN node.token_labels ELSE excluded.token_labels END
    WHERE node.simulated = excluded.simulated
        AND (:existing = 'readmit' OR :existing = 'rejoin' AND node.key_hash IS NOT NULL)
    RETURNING id, name, created_at < now() AS existed
""").bindparams(
    bindparam("names", type_=ARRAY(Text)),
    bindparam("hashes", type_=ARRAY(LargeBinary)),
    bindparam("labels", type_=JSONB),
    bindparam("existing", type_=Text),
)


class UpsertedNode(NamedTuple):
    """A node with a new key. existed: before."""

    id: int
    name: str
    existed: bool


async def upsert_nodes(
    session: AsyncSession, key_hashes: dict[str, bytes], *, simulated: bool, existing: Existing, labels: dict[str, str]
) -> dict[str, UpsertedNode]:
    """Create nodes with these keys, or replace the keys of existing ones; return them by name.

    Left out are nodes of the other kind (simulated or not), and those that existing excludes. labels: of the enrolment
    token; without any, a node that exists keeps those that it has.
    """
    rows = await session.execute(
        _UPSERT,
        {
            "names": list(key_hashes),
            "hashes": list(key_hashes.values()),
            "simulated": simulated,
            "existing": existing,
            "labels": labels,
        },
    )
    return {row.name: UpsertedNode(*row) for row in rows}


async def list_nodes(
    session: AsyncSession, node_ids: Sequence[int] | None = None, name: str | None = None
) -> Sequence[NodeRow]:
    """Return all nodes, those of the ids or that of the name, ordered by name; without topology and inventory."""
    query = select(NodeRow).order_by(NodeRow.name)
    if node_ids is not None:
        query = query.where(NodeRow.id.in_(node_ids))
    if name is not None:
        query = query.where(NodeRow.name == name)
    return (await session.scalars(query)).all()


async def select_attributes(
    connection: AsyncConnection[TupleRow], node_ids: Sequence[int] | None
) -> AsyncCursor[TupleRow]:
    """Select id, name, simulated, mode, kernel, drivers, labels, cpus, whether it has ever connected; by node.

    node_ids: of some nodes; None for all. Labels are those of effective_labels.
    """
    return await connection.execute(
        """
        SELECT id, name, simulated, hello->>'mode', hello->>'kernel', drivers,
            coalesce(hello->'labels', '{}') || token_labels || labels, cpus, last_seen_at IS NOT NULL
        FROM node WHERE %(ids)s::int[] IS NULL OR id = ANY(%(ids)s)
        """,
        {"ids": node_ids},
    )


async def find_node(session: AsyncSession, node_id: int) -> NodeRow | None:
    """Return the node with all columns, None if there is none."""
    deferred = (NodeRow.topology, NodeRow.inventory, NodeRow.learned)
    return await session.get(NodeRow, node_id, options=[undefer(column) for column in deferred])


async def find_by_name(session: AsyncSession, name: str) -> NodeRow | None:
    """Return the node of that name without topology and inventory, None if there is none."""
    return await session.scalar(select(NodeRow).where(NodeRow.name == name))


async def simulated_ids(session: AsyncSession) -> Sequence[int]:
    """Return the ids of all simulated nodes."""
    return (await session.scalars(select(NodeRow.id).where(NodeRow.simulated))).all()


async def delete_nodes(session: AsyncSession, node_ids: Sequence[int]) -> None:
    """Delete nodes with their flows, which name users and addresses; samples are dropped with their partitions.

    The nodes first: their rows are locked while flows are stored, so that none is stored afterwards.
    """
    await session.execute(delete(NodeRow).where(NodeRow.id.in_(node_ids)))
    await session.execute(text("DELETE FROM telemetry_flows WHERE node_id = ANY(:ids)"), {"ids": list(node_ids)})


@dataclass(frozen=True)
class AgentIdentity:
    """The node that an agent's key belongs to. expired: the key was not used for too long.

    acked_seq: everything up to that sample of the stream is stored, except rejected samples.
    """

    node_id: int
    name: str
    simulated: bool
    stream: str | None
    acked_seq: int
    rejected: int
    expired: bool


async def find_by_keys(
    connection: AsyncConnection[TupleRow], key_hashes: Sequence[bytes], expiry: timedelta
) -> dict[bytes, AgentIdentity]:
    """Return the nodes whose agents hold these keys, by the hash of the key. expiry: of a key that is not used."""
    cursor = await connection.execute(
        """
        SELECT hash, id, name, simulated, stream, acked_seq, rejected_samples,
            coalesce(key_used_at, key_created_at) < now() - %s
        FROM unnest(%s::bytea[]) AS hash JOIN node
        ON key_hash = hash OR previous_key_hash = hash AND coalesce(previous_key_until > now(), true)
        """,
        (expiry, list(key_hashes)),
    )
    return {key_hash: AgentIdentity(*rest) for key_hash, *rest in await cursor.fetchall()}


async def find_interval_s(connection: AsyncConnection[TupleRow], node_id: int) -> TupleRow | None:
    """Return a row with the seconds between the node's samples, NULL before its agent said it; None without a node."""
    cursor = await connection.execute("SELECT (hello->>'interval_s')::float8 FROM node WHERE id = %s", (node_id,))
    return await cursor.fetchone()


class UsedKey(NamedTuple):
    """A key in use. is_due: a new one should replace it. is_new: the agent uses it for the first time."""

    hash: bytes
    node_id: int
    name: str
    is_due: bool
    is_new: bool


_NOTE_KEY_USE = text("""
    WITH used AS (
        SELECT node.id, hash FROM unnest(:hashes) AS hash JOIN node ON key_hash = hash OR previous_key_hash = hash
        ORDER BY node.id FOR NO KEY UPDATE OF node
    )
    UPDATE node SET key_used_at = now(), previous_key_until = CASE
        WHEN key_hash = hash AND previous_key_hash IS NOT NULL AND previous_key_until IS NULL THEN now() + :overlap
        ELSE previous_key_until END
    FROM used WHERE node.id = used.id
    RETURNING hash, node.id, name,
        key_hash = hash AND key_created_at < now() - :rotation
            OR previous_key_hash = hash AND previous_key_until IS NULL,
        key_hash = hash AND coalesce(previous_key_until = now() + :overlap, false)
""").bindparams(
    bindparam("hashes", type_=ARRAY(LargeBinary)),
    bindparam("overlap", type_=Interval),
    bindparam("rotation", type_=Interval),
)
"""An agent that uses a new key has stored it, so the validity of the previous one begins to end.

Nodes are locked in the order of their ids, as wherever several are, so that no two transactions wait for each other.
"""


async def note_key_use(session: AsyncSession, hashes: Sequence[bytes], rotation: timedelta) -> list[UsedKey]:
    """Note that the keys with these hashes are in use; rotation: age at which a key is due for another one."""
    values = {"hashes": list(hashes), "overlap": OVERLAP, "rotation": rotation}
    return [UsedKey(*row) for row in await session.execute(_NOTE_KEY_USE, values)]


async def replace_key(session: AsyncSession, presented: bytes, replacement: bytes) -> bool:
    """Make a key valid beside the one that the agent uses; return False if that one may not be replaced any more.

    A replacement that the agent has not used yet is replaced itself.
    """
    replaced = await session.execute(
        text("""
            UPDATE node SET key_hash = :replacement, key_created_at = now(), previous_key_hash = :presented,
                previous_key_until = NULL
            WHERE key_hash = :presented OR previous_key_hash = :presented AND previous_key_until IS NULL
            RETURNING id
        """),
        {"presented": presented, "replacement": replacement},
    )
    return replaced.first() is not None


@dataclass
class NodeReport:
    """Columns of a node to update from its agent's reports; None leaves a column unchanged. JSON as bytes.

    epoch: of the latest connection that reported.
    """

    epoch: int
    hello: bytes | None = None
    topology: bytes | None = None
    inventory: bytes | None = None
    learned: bytes | None = None
    cpus: int | None = None
    packages: int | None = None
    numa_nodes: int | None = None
    drivers: list[str] | None = None
    netdevs: bytes | None = None
    changed_settings: int | None = None

    def merged_with(self, newer: "NodeReport") -> "NodeReport":
        """Return the newer value of each column, where the newer report has one."""
        values = {f.name: getattr(self, f.name) if (v := getattr(newer, f.name)) is None else v for f in fields(self)}
        return NodeReport(**values)


async def store_reports(connection: AsyncConnection[TupleRow], reports: Mapping[int, NodeReport]) -> None:
    """Update nodes with their agents' latest reports, except nodes that have connected again since, to any replica."""
    async with connection.cursor() as cursor:
        await cursor.executemany(
            """
            UPDATE node SET
                hello = coalesce(%s::jsonb, hello), topology = coalesce(%s::jsonb, topology),
                inventory = coalesce(%s::jsonb, inventory), learned = coalesce(%s::jsonb, learned),
                cpus = coalesce(%s::int, cpus),
                packages = coalesce(%s::int, packages), numa_nodes = coalesce(%s::int, numa_nodes),
                drivers = coalesce(%s::text[], drivers), netdevs = coalesce(%s::jsonb, netdevs),
                changed_settings = coalesce(%s::int, changed_settings), last_seen_at = now()
            WHERE id = %s AND NOT EXISTS (SELECT FROM node_presence WHERE node_id = node.id AND epoch > %s)
            """,
            [
                (
                    *(None if raw is None else raw.decode() for raw in (t.hello, t.topology, t.inventory, t.learned)),
                    *(t.cpus, t.packages, t.numa_nodes, t.drivers),
                    *(None if t.netdevs is None else t.netdevs.decode(), t.changed_settings, node_id, t.epoch),
                )
                for node_id, t in sorted(reports.items())
            ],
        )
