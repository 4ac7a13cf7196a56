"""Connections to the database: what is borrowed works, also after the server ended those that were idle."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio
from sqlalchemy import text
from tests.support.polling import poll_async

from coresteer.config import REPOSITORY
from coresteer.db import Database


@pytest_asyncio.fixture(loop_scope="session")
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, REPOSITORY / "migrations")
    await database.open()
    yield database
    await database.close()


async def _pids(database: Database) -> list[int]:
    """Use a connection in each way that there is; return the server's process of each."""
    statement = "SELECT pg_backend_pid()"
    async with database.session() as one, database.autocommitting() as other:
        found = [(await session.execute(text(statement))).scalar_one() for session in (one, other)]
    async with database.connection() as one_of_pool, database.reading() as other_of_pool:
        for connection in (one_of_pool, other_of_pool):
            found += await (await connection.execute(statement)).fetchone() or ()
    return found


async def test_connections_that_the_server_ended_while_they_were_idle_are_replaced(
    database: Database, owner_url: str
) -> None:
    ended = await _pids(database)
    async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as owner:
        await owner.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", (ended,))

        async def are_gone() -> bool:
            cursor = await owner.execute("SELECT 1 FROM pg_stat_activity WHERE pid = ANY(%s)", (ended,))
            return await cursor.fetchone() is None

        await poll_async(are_gone)
    assert set(await _pids(database)).isdisjoint(ended)


async def test_a_connection_begins_transactions_again_after_it_was_lent_for_reading(database: Database) -> None:
    lent = []
    async with database.reading() as connection:
        lent.append(connection)
        assert connection.autocommit
    with pytest.raises(psycopg.errors.UndefinedTable):
        async with database.reading() as connection:
            lent.append(connection)
            await (await connection.execute("SELECT * FROM no_such_table")).fetchone()
    assert [each.autocommit for each in lent] == [False, False]


async def test_a_statement_of_a_connection_that_is_lent_for_reading_is_a_transaction_of_its_own(
    database: Database,
) -> None:
    async with database.reading() as connection:
        cursors = [await connection.execute("SELECT pg_current_xact_id()::text") for _ in range(2)]
        first, second = [await cursor.fetchone() for cursor in cursors]
    assert first != second


async def test_a_connection_begins_transactions_again_after_a_statement_was_cancelled(database: Database) -> None:
    lent = []

    async def read() -> None:
        async with database.reading() as connection:
            lent.append(connection)
            await connection.execute("SELECT pg_sleep(60)")

    async def is_asleep() -> bool:
        async with database.connection() as other:
            pids = [each.info.backend_pid for each in lent]
            query = "SELECT 1 FROM pg_stat_activity WHERE pid = ANY(%s) AND wait_event = 'PgSleep'"
            return await (await other.execute(query, (pids,))).fetchone() is not None

    reading = asyncio.create_task(read())
    await poll_async(is_asleep)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    (connection,) = lent
    assert connection.closed or not connection.autocommit
