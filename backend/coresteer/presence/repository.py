"""SQL of node_presence. An epoch never becomes smaller, and only its own connection changes a row of it.

Rows are locked in the order of node_id, so that no two transactions wait for each other.
"""

from collections.abc import Collection, Mapping, Sequence

import psycopg
from psycopg.rows import class_row

from coresteer.presence.locations import Announcement, Location


async def announce(
    connection: psycopg.AsyncConnection, replica_id: int, hellos: Collection[Announcement]
) -> list[Location]:
    """Store connections to a replica, one a node, each under a new epoch; return them, but not of deleted nodes."""
    columns = [
        [getattr(each, name) for each in hellos] for name in ("node_id", "stream", "host", "interval_s", "obeys_stops")
    ]
    async with connection.cursor(row_factory=class_row(Location)) as cursor:
        await cursor.execute(
            """
            WITH present AS (
                SELECT new.* FROM unnest(%s::int[], %s::text[], %s::text[], %s::float8[], %s::bool[])
                    AS new (node_id, stream, host, interval_s, obeys_stops)
                JOIN node ON node.id = new.node_id ORDER BY new.node_id FOR KEY SHARE OF node
            )
            INSERT INTO node_presence AS p (node_id, epoch, replica_id, stream, host, interval_s, obeys_stops)
            SELECT node_id, nextval('node_presence_epoch'), %s, stream, host, interval_s, obeys_stops
            FROM present
            ON CONFLICT (node_id) DO UPDATE SET
                epoch = excluded.epoch, replica_id = excluded.replica_id, stream = excluded.stream,
                host = excluded.host, interval_s = excluded.interval_s, obeys_stops = excluded.obeys_stops,
                stale = false, connected_at = excluded.connected_at, changed_in = excluded.changed_in
            WHERE p.epoch < excluded.epoch
            RETURNING p.node_id, p.epoch, p.replica_id, p.stream, p.host, p.interval_s, p.obeys_stops, p.stale
            """,
            [*columns, replica_id],
        )
        return await cursor.fetchall()


async def end(connection: psycopg.AsyncConnection, epochs: Mapping[int, int]) -> None:
    """Store that the connections with these epochs, by node, have ended; a later connection of the node stays."""
    await connection.execute(
        """
        WITH old AS (
            SELECT old.* FROM unnest(%s::int[], %s::bigint[]) AS old (node_id, epoch)
            JOIN node_presence p USING (node_id) ORDER BY node_id FOR NO KEY UPDATE OF p
        )
        UPDATE node_presence p SET replica_id = NULL, changed_in = pg_current_xact_id() FROM old
        WHERE p.node_id = old.node_id AND p.epoch = old.epoch AND p.replica_id IS NOT NULL
        """,
        (list(epochs), list(epochs.values())),
    )


async def set_stale(connection: psycopg.AsyncConnection, connections: Mapping[tuple[int, int], bool]) -> None:
    """Store by node and epoch whether the connection sends no samples."""
    await connection.execute(
        """
        WITH new AS (
            SELECT new.* FROM unnest(%s::int[], %s::bigint[], %s::bool[]) AS new (node_id, epoch, stale)
            JOIN node_presence p USING (node_id) ORDER BY node_id FOR NO KEY UPDATE OF p
        )
        UPDATE node_presence p SET stale = new.stale, changed_in = pg_current_xact_id() FROM new
        WHERE p.node_id = new.node_id AND p.epoch = new.epoch
        """,
        ([key[0] for key in connections], [key[1] for key in connections], list(connections.values())),
    )


async def changed_since(connection: psycopg.AsyncConnection, position: int) -> tuple[Sequence[Location], int]:
    """Return the rows that may have changed since a position, 0 for all, and the position from which to go on.

    The position is that of the oldest transaction that has not ended: later ones may commit in any order.
    """
    cursor = await connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
    following = int((await cursor.fetchone() or ("0",))[0])
    async with connection.cursor(row_factory=class_row(Location)) as rows:
        await rows.execute(
            """
            SELECT node_id, epoch, replica_id, stream, host, interval_s, obeys_stops, stale
            FROM node_presence WHERE changed_in >= %s::text::xid8
            """,
            (str(position),),
        )
        return await rows.fetchall(), following
