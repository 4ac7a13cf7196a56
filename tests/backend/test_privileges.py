"""An external database: `coresteer migrate` gives the backend a role of its own, also where it owned everything."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.backend.conftest import MIGRATIONS, running_backend

from coresteer.cli.main import main
from coresteer.db import Database, SchemaVersionError
from coresteer.postgres import EmbeddedPostgres


@dataclass
class External:
    """An empty database that an administrator made for a role that owns it and may create roles."""

    owner_url: str
    backend_url: str

    async def as_backend(self, statement: str) -> None:
        async with await psycopg.AsyncConnection.connect(self.backend_url) as connection:
            await connection.execute(statement.encode())


@pytest_asyncio.fixture
async def external(postgres_server: EmbeddedPostgres) -> AsyncIterator[External]:
    name = f"external_{uuid.uuid4().hex}"
    owner, backend, database = (sql.Identifier(name + end) for end in ("_owner", "_backend", ""))
    server = make_conninfo(postgres_server.url, dbname="postgres")
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as admin:
        await admin.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEROLE PASSWORD 'o'").format(owner))
        await admin.execute(sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE template0").format(database, owner))
        host = postgres_server.url.partition("?")[2]
        yield External(*(f"postgresql://{name}_{end}:{end[0]}@/{name}?{host}" for end in ("owner", "backend")))
        await admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))
        await admin.execute(sql.SQL("DROP ROLE IF EXISTS {}, {}").format(backend, owner))


async def test_an_installation_whose_role_owned_the_tables_is_upgraded_in_place(
    external: External, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Database(external.owner_url, MIGRATIONS).migrate()  # as before there were two roles
    monkeypatch.setenv("CORESTEER_OWNER_URL", external.owner_url)
    monkeypatch.setenv("DATABASE_URL", external.backend_url)
    for _ in range(2):
        assert await asyncio.to_thread(main, ["migrate"]) == 0
    async with running_backend(external.backend_url) as backend:
        admin = await backend.client("admin")
        assert (await admin.post("/api/v1/tokens", {"name": "ci", "role": "viewer"})).status_code == 201
        assert {entry["action"] for entry in (await admin.get("/api/v1/audit")).json()["entries"]} >= {"token.create"}
        assert await asyncio.to_thread(main, ["audit", "verify"]) == 0
    for statement in ("DELETE FROM audit", "DROP TABLE audit", "CREATE TABLE public.mine ()"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await external.as_backend(statement)


async def test_a_role_that_may_not_change_an_older_schema_says_who_must(
    external: External, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await Database(external.owner_url, MIGRATIONS).migrate(external.backend_url)
    async with await psycopg.AsyncConnection.connect(external.owner_url) as connection:
        await connection.execute("UPDATE alembic_version SET version_num = '0001_people_and_audit'")
    with pytest.raises(SchemaVersionError, match="CORESTEER_OWNER_URL"):
        await Database(external.backend_url, MIGRATIONS).migrate()
    monkeypatch.setenv("DATABASE_URL", external.backend_url)
    assert await asyncio.to_thread(main, ["migrate"]) == 1
    assert "schema is at version 0001_people_and_audit" in capsys.readouterr().err


async def test_a_server_without_citus_is_told_what_to_install(
    external: External, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", external.owner_url)
    assert await asyncio.to_thread(main, ["migrate", "--citus"]) == 1
    assert "has no extension citus. Install Citus on this server and on each worker" in capsys.readouterr().err
