"""A real PostgreSQL for the backend's tests: one server a session, a fresh migrated database a module."""

import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest_asyncio
from psycopg import sql

from coresteer.config import REPOSITORY
from coresteer.db import Database
from coresteer.postgres import EmbeddedPostgres

MIGRATIONS = REPOSITORY / "migrations"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_server() -> AsyncIterator[EmbeddedPostgres]:
    """The session's server. Its folder is not pytest's, which the server's account may not enter as root."""
    state_dir = Path(tempfile.mkdtemp(prefix="coresteer-test-"))
    server = EmbeddedPostgres(state_dir, durable=False)
    try:
        await server.start()
        await Database(server.url, MIGRATIONS).migrate()
        yield server
    finally:
        await server.stop()
        shutil.rmtree(state_dir)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def database_url(postgres_server: EmbeddedPostgres) -> AsyncIterator[str]:
    """The address of a fresh database with the newest schema, dropped after the module."""
    name = f"test_{uuid.uuid4().hex}"
    server = postgres_server.url.replace("/coresteer?", "/postgres?")
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as admin:
        await admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE coresteer").format(sql.Identifier(name)))
        yield postgres_server.url.replace("/coresteer?", f"/{name}?")
        await admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def database(database_url: str) -> AsyncIterator[Database]:
    """The module's database, open."""
    database = Database(database_url, MIGRATIONS)
    await database.open()
    yield database
    await database.close()
