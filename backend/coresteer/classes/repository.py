"""SQL of the figures of service classes, stored in chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.classes.chunks import MAX_CHUNK_MS
from coresteer.policies.tables import PolicyRow
from coresteer.telemetry.repository import Connection, from_unix_ms


@dataclass(frozen=True)
class ClassChunkRow:
    """A chunk of one policy's service-class figures with its node and start time."""

    node_id: int
    policy_id: int
    time_ms: int
    data: bytes


async def insert_chunks(connection: Connection, rows: Sequence[ClassChunkRow]) -> None:
    """Insert chunks of service-class figures; existing ones are unchanged."""
    async with connection.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO telemetry_classes (node_id, policy_id, t0, data) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT DO NOTHING",
            [(row.node_id, row.policy_id, from_unix_ms(row.time_ms), row.data) for row in rows],
        )


async def read_chunks(connection: Connection, node_id: int, start_ms: float, end_ms: float) -> list[tuple[int, bytes]]:
    """Return policy ids and encoded chunks of a node that overlap a time range (Unix ms), in order of time."""
    cursor = await connection.execute(
        "SELECT policy_id, data FROM telemetry_classes WHERE node_id = %s AND t0 > %s AND t0 <= %s ORDER BY t0",
        (node_id, from_unix_ms(start_ms) - timedelta(milliseconds=MAX_CHUNK_MS), from_unix_ms(end_ms)),
    )
    return [(policy_id, data) for policy_id, data in await cursor.fetchall()]


async def policy_names(session: AsyncSession, policy_ids: Sequence[int]) -> dict[int, str]:
    """Return policy names by id, including those of deleted policies."""
    found = await session.execute(select(PolicyRow.id, PolicyRow.name).where(PolicyRow.id.in_(policy_ids)))
    return {row.id: row.name for row in found}
