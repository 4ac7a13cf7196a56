"""A test's own database with what commit 602788d stored in one, brought to the newest schema."""

import gzip
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import psycopg
from psycopg import sql
from tests.backend.conftest import MIGRATIONS
from tests.upgrade.names import STORED

from coresteer.db import Database
from coresteer.postgres import EmbeddedPostgres


@asynccontextmanager
async def loaded(server: EmbeddedPostgres) -> AsyncIterator[str]:
    """Yield the address of a database as commit 602788d left it; it is dropped at the end."""
    name = f"upgrade_{uuid.uuid4().hex}"
    admin_url, url = (server.url.replace("/coresteer?", f"/{which}?") for which in ("postgres", name))
    async with await psycopg.AsyncConnection.connect(admin_url, autocommit=True) as admin:
        await admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        try:
            async with await psycopg.AsyncConnection.connect(url) as connection:
                await connection.execute(gzip.decompress((STORED / "database.sql.gz").read_bytes()))
            yield url
        finally:
            await admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@asynccontextmanager
async def upgraded(server: EmbeddedPostgres) -> AsyncIterator[str]:
    """Yield the backend's address of a database that was loaded and migrated."""
    async with loaded(server) as url:
        backend_url = server.backend_url.replace("/coresteer?", f"/{urlsplit(url).path.removeprefix('/')}?")
        await Database(url, MIGRATIONS).migrate(backend_url)
        yield backend_url
