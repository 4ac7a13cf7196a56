"""Clock skew and hardware of nodes: as known here, or as stored where the agent is connected to another backend."""

from collections.abc import Sequence

from coresteer.db import Database
from coresteer.presence.registry import NodeRegistry


async def clock_skew_ms(database: Database, registry: NodeRegistry, node_id: int) -> float:
    """Return how far the times of a node's samples are ahead of the backend's clock, 0 before it is measured."""
    if (known := registry.get(node_id).clock_skew_ms) is not None:
        return known
    async with database.pool.connection() as connection:
        cursor = await connection.execute("SELECT clock_skew_ms FROM node WHERE id = %s", (node_id,))
        (stored,) = await cursor.fetchone() or (None,)
    return stored or 0.0


async def physical_netdevs(
    database: Database, registry: NodeRegistry, node_ids: Sequence[int]
) -> dict[int, frozenset[str]]:
    """Return the nodes' network devices that are hardware; without nodes that have not reported them."""
    known = {node_id: registry.get(node_id).physical for node_id in node_ids}
    found = {node_id: names for node_id, names in known.items() if names is not None}
    if len(found) == len(known):
        return found
    async with database.pool.connection() as connection:
        cursor = await connection.execute(
            """
            SELECT id, coalesce(array_agg(nic->>'name') FILTER (WHERE nic->>'virtual' = 'false'), '{}')
            FROM node LEFT JOIN jsonb_array_elements(inventory->'netdevs') AS nic ON nic->>'name' <> 'lo'
            WHERE id = ANY(%s) AND jsonb_typeof(inventory->'netdevs') = 'array' GROUP BY id
            """,
            ([node_id for node_id, names in known.items() if names is None],),
        )
        return found | {node_id: frozenset(names) for node_id, names in await cursor.fetchall()}
