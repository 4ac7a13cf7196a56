"""SQL of replicas and of the leader's lease. All times are the database's."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg.rows import class_row

from coresteer.db import Fence

GONE_AFTER_S = 15
"""A replica that has not renewed its heartbeat for so long counts as gone."""
LEASE_S = 10
"""The lease lapses when its holder has not renewed its heartbeat for so long."""


@dataclass(frozen=True)
class Replica:
    """A backend process. alive: its heartbeat is at most GONE_AFTER_S old, silent_s. leads: it holds the lease."""

    id: int
    name: str
    version: str
    started_at: datetime
    silent_s: float
    alive: bool
    leads: bool


async def installation(connection: psycopg.AsyncConnection) -> str:
    """Return what identifies this database among all servers and databases."""
    cursor = await connection.execute(
        "SELECT format('%s-%s', system_identifier, oid) FROM pg_control_system(), pg_database "
        "WHERE datname = current_database()"
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101 - the database to which this is connected
    return str(row[0])


async def add(connection: psycopg.AsyncConnection, name: str, version: str) -> int:
    """Add a replica; return its id."""
    cursor = await connection.execute(
        "INSERT INTO replica (name, version) VALUES (%s, %s) RETURNING id", (name, version)
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101 - RETURNING
    return int(row[0])


async def renew(connection: psycopg.AsyncConnection, replica_id: int, name: str, version: str) -> int | None:
    """Renew a replica's heartbeat, take the lease if nobody holds it, and return its token, None without the lease.

    A holder whose lease had lapsed gets another token, as any new holder: its tasks may have missed something.
    No statement waits for a lock: a holder that hangs must not make this replica look gone.
    """
    found = {"id": replica_id, "name": name, "version": version, "lease_s": LEASE_S}
    await connection.execute(
        """
        UPDATE lease SET replica_id = NULL WHERE name IN (
            SELECT name FROM lease WHERE replica_id = %(id)s AND NOT EXISTS (
                SELECT FROM replica
                WHERE id = %(id)s AND heartbeat_at > clock_timestamp() - make_interval(secs => %(lease_s)s)
            ) FOR UPDATE SKIP LOCKED
        )
        """,
        found,
    )
    # it may have been removed as gone
    await connection.execute(
        """
        INSERT INTO replica (id, name, version) VALUES (%(id)s, %(name)s, %(version)s)
        ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at
        """,
        found,
    )
    await connection.execute(
        """
        UPDATE lease SET replica_id = %(id)s, token = token + 1 WHERE name IN (
            SELECT name FROM lease WHERE replica_id IS NULL OR NOT EXISTS (
                SELECT FROM replica
                WHERE id = replica_id AND heartbeat_at > clock_timestamp() - make_interval(secs => %(lease_s)s)
            ) FOR UPDATE SKIP LOCKED
        )
        """,
        found,
    )
    cursor = await connection.execute("SELECT token FROM lease WHERE replica_id = %(id)s", found)
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


async def remove(connection: psycopg.AsyncConnection, replica_id: int) -> None:
    """Remove a replica that stops, with its lease: another one takes over at once."""
    await connection.execute("UPDATE lease SET replica_id = NULL WHERE replica_id = %s", (replica_id,))
    await connection.execute("DELETE FROM replica WHERE id = %s", (replica_id,))


async def list_replicas(connection: psycopg.AsyncConnection) -> list[Replica]:
    """Return all replicas, also those that are gone, by id."""
    async with connection.cursor(row_factory=class_row(Replica)) as cursor:
        await cursor.execute(
            """
            SELECT r.id, r.name, r.version, r.started_at, l.replica_id IS NOT NULL AS leads,
                extract(epoch FROM clock_timestamp() - heartbeat_at)::float8 AS silent_s,
                heartbeat_at > clock_timestamp() - make_interval(secs => %s) AS alive
            FROM replica r LEFT JOIN lease l ON l.replica_id = r.id ORDER BY r.id
            """,
            (GONE_AFTER_S,),
        )
        return await cursor.fetchall()


async def remove_gone(connection: psycopg.AsyncConnection) -> None:
    """Remove replicas that have been gone for an hour; one that still runs adds itself again."""
    await connection.execute("DELETE FROM replica WHERE heartbeat_at < clock_timestamp() - interval '1 hour'")


def fence(replica_id: int, token: int, on_break: Callable[[], None]) -> Fence:
    """Return the check of a leader's transaction: nobody else may take the lease between it and the commit.

    A connection that hangs in between is ended by the server, so that another replica can take over.
    """
    return Fence(
        """
        SELECT CASE WHEN pg_current_xact_id_if_assigned() IS NULL THEN true ELSE
            set_config('idle_in_transaction_session_timeout', %(lease_s)s || 's', true) IS NOT NULL AND EXISTS (
                SELECT FROM lease WHERE replica_id = %(id)s AND token = %(token)s AND EXISTS (
                    SELECT FROM replica
                    WHERE id = %(id)s AND heartbeat_at > clock_timestamp() - make_interval(secs => %(lease_s)s)
                ) FOR SHARE
            ) END
        """,
        {"id": replica_id, "token": token, "lease_s": LEASE_S},
        on_break,
    )
