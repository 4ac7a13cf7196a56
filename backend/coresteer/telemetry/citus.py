"""Distributes history by node over the workers of a Citus cluster: `coresteer migrate --citus`."""

from collections.abc import Callable

import psycopg

from coresteer.db import MIGRATION_LOCK, Database
from coresteer.telemetry.partitions import PARTITION_WIDTH_MS
from coresteer.telemetry.repository import Connection

_KEY = "node_id"
_SHARDS = """
    SELECT count(*), count(DISTINCT groupid) FROM pg_dist_shard JOIN pg_dist_placement USING (shardid)
    WHERE logicalrelid = %s::regclass
"""
_LANGUAGES = "SELECT nodename, result FROM run_command_on_workers('SHOW lc_messages')"
_ENGLISH = ("C", "POSIX", "en")
"""How locales begin whose messages are in English: repository.py knows some of a worker's by their text."""


class CitusError(Exception):
    """History cannot be distributed; the message says why and what to do."""


async def distribute(database: Database, say: Callable[[str], None]) -> None:
    """Distribute the telemetry tables that are not yet, with their rows; say where each of them is.

    Each table in a transaction of its own: what an interrupted call has left, the next one distributes. Later
    partitions and changes of the schema follow their tables by themselves. database: of the owner of the tables.
    Raises CitusError; psycopg.Error.
    """
    async with await database.connect() as connection:
        await _require_workers(connection)
        for table in PARTITION_WIDTH_MS:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
                is_new = not await _is_distributed(connection, table)
                if is_new:
                    await _distribute(connection, table)
                shards, workers = await (await connection.execute(_SHARDS, (table,))).fetchone() or (0, 0)
            since = "now" if is_new else "already"
            say(f"{table} is {since} distributed by {_KEY}: {shards} shards on {workers} workers.")


async def _require_workers(connection: Connection) -> None:
    """Raise CitusError unless this is the database of a coordinator with workers."""
    installed = await connection.execute("SELECT FROM pg_extension WHERE extname = 'citus'")
    if await installed.fetchone() is None:
        raise CitusError(
            f"The database {connection.info.dbname} has no extension citus. Install Citus on this server and on each "
            "worker, set shared_preload_libraries to citus, restart them, and run CREATE EXTENSION citus in the "
            "database of that name on each; see docs/SCALE.md. The built-in PostgreSQL has no Citus."
        )
    workers = await connection.execute("SELECT FROM citus_get_active_worker_nodes()")
    if await workers.fetchone() is None:
        raise CitusError(
            f"The Citus coordinator at {connection.info.host} has no workers. Add each with SELECT "
            "citus_add_node('HOST', PORT) in this database; see docs/SCALE.md."
        )
    for host, language in await (await connection.execute(_LANGUAGES)).fetchall():
        if not language.startswith(_ENGLISH):
            raise CitusError(
                f"The Citus worker {host} answers in the language {language}, in which the backend does not recognize "
                "that a row exists already. Run ALTER DATABASE … SET lc_messages TO 'C' for this database on it."
            )


async def _is_distributed(connection: Connection, table: str) -> bool:
    found = await connection.execute("SELECT FROM pg_dist_partition WHERE logicalrelid = %s::regclass", (table,))
    return await found.fetchone() is not None


async def _distribute(connection: Connection, table: str) -> None:
    """Move a table's partitions and rows to the workers; who writes to it waits until the transaction ends."""
    try:
        await connection.execute("SELECT create_distributed_table(%s, %s)", (table, _KEY))
    except psycopg.errors.OutOfMemory as error:
        raise CitusError(
            f"A server has no room for the locks of all shards of {table}: {error.diag.message_primary}. Increase "
            "max_locks_per_transaction on the coordinator and the workers, restart them, and run this again."
        ) from error
    # the rows were copied, and what is left of them here is no longer visible
    await connection.execute("SELECT truncate_local_data_after_distributing_table(%s)", (table,))
