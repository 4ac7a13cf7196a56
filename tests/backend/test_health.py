"""Probes tell whether the backend lives and can do its work, and why not; a full disk is one of the reasons."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Never
from urllib.parse import urlsplit

import psycopg
import pytest
import pytest_asyncio
from alembic.util import CommandError as AlembicError
from tests.backend.conftest import MIGRATIONS, Backend, running_backend
from tests.backend.fake_agent import enrolled

from coresteer.db import OLDEST_BACKEND, VERSION, Database, SchemaVersionError, works_with
from coresteer.postgres import EmbeddedPostgres

FULL = """
CREATE FUNCTION fail_as_on_a_full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  RAISE EXCEPTION 'could not extend file "base/16384/16402": No space left on device' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER full_disk BEFORE UPDATE ON node FOR EACH ROW EXECUTE FUNCTION fail_as_on_a_full_disk();
"""
FREED = "DROP TRIGGER full_disk ON node; DROP FUNCTION fail_as_on_a_full_disk"


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The file system of the state folder: 100 GiB, half of it free. has_database: the built-in one is there."""
    disk = SimpleNamespace(
        f_frsize=4096, f_blocks=100 * 2**18, f_bavail=50 * 2**18, f_bfree=50 * 2**18, has_database=True
    )

    def statvfs(path: Path) -> SimpleNamespace:
        if path.name == "data" and not disk.has_database:
            raise FileNotFoundError
        return disk

    monkeypatch.setattr(os, "statvfs", statvfs)
    return disk


async def reasons(backend: Backend) -> dict[str, str]:
    """Why the backend is not ready, as both probes say."""
    client = backend.anonymous()
    answer, about = await client.get("/readyz"), (await client.get("/api/v1/health")).json()
    found = answer.json()["reasons"]
    assert answer.status_code == (503 if found else 200)
    assert answer.json()["status"] == ("not-ready" if found else "ready")
    assert about["status"] == ("degraded" if found else "ok")
    assert about["reasons"] == found
    return {reason["what"]: reason["detail"] for reason in found}


async def test_a_backend_that_can_work_is_live_and_ready(backend: Backend) -> None:
    assert (await backend.anonymous().get("/livez")).json() == {"status": "live"}
    assert await reasons(backend) == {}


@pytest.mark.parametrize(
    ("blocks", "free", "full"),
    [
        (100 * 2**18, 0, True),
        (100 * 2**18, 2**18, False),  # 1 GiB is enough on any disk
        (100 * 2**18, 2**18 - 1, True),
        (110 * 2**8, 48 * 2**8, False),
        (110 * 2**8, 48 * 2**8 - 1, True),
    ],
)
async def test_health_is_not_ok_with_a_nearly_full_disk(
    backend: Backend, disk: SimpleNamespace, *, blocks: int, free: int, full: bool
) -> None:
    disk.f_blocks, disk.f_bavail = blocks, free
    found = await reasons(backend)
    assert list(found) == (["disk"] if full else [])
    if full:
        assert "CORESTEER_RETENTION_BYTES" in found["disk"]


async def test_the_state_folders_disk_is_not_taken_for_that_of_a_database_elsewhere(
    backend: Backend, disk: SimpleNamespace
) -> None:
    disk.f_bavail, disk.has_database = 0, False
    assert await reasons(backend) == {}
    assert backend.app.state.readiness.disk_used_percent() is None


@pytest_asyncio.fixture(loop_scope="session")
async def full_database(backend: Backend, owner_url: str) -> AsyncIterator[str]:
    """The path of a node that the database cannot change, because its disk is full."""
    agent = await enrolled(backend.database, backend.url, "on-a-full-disk")
    async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as connection:
        await connection.execute(FULL)
        yield f"/api/v1/nodes/{agent.node_id}"
        await connection.execute(FREED)


async def test_a_change_that_the_full_disk_prevents_says_so_and_what_to_do(
    backend: Backend, full_database: str, disk: SimpleNamespace
) -> None:
    disk.has_database = False
    operator = await backend.client("operator")
    answer = await operator.patch(full_database, {"labels": {"rack": "7"}})
    assert answer.status_code == 507
    problem = answer.json()
    assert problem["type"] == "urn:coresteer:storage-full"
    assert "Free space" in problem["detail"]
    assert list(await reasons(backend)) == ["disk"]
    backend.database._disk_full_at = None
    assert await reasons(backend) == {}


async def test_a_schema_of_another_version_is_a_reason(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = await backend.database.newest_schema()
    monkeypatch.setattr(backend.database, "_newest_schema", "9999")
    found = await reasons(backend)
    assert list(found) == ["migrations"]
    assert f"version {newest}" in found["migrations"]


NEXT = "9999_of_the_next_release"


@pytest.mark.parametrize(
    ("schema", "oldest_backend", "works"),
    [
        ("0034_own", None, True),
        (NEXT, VERSION, True),
        (NEXT, "0.0.9", True),
        (NEXT, "999.0.0", False),
        (NEXT, None, False),
        ("0033_older", VERSION, False),
        (None, None, False),
    ],
)
def test_a_backend_works_with_its_schema_and_with_a_newer_one_that_says_so(
    schema: str | None, oldest_backend: str | None, *, works: bool
) -> None:
    assert works_with(schema, oldest_backend, "0034_own") is works


async def test_a_newer_schema_that_admits_this_release_is_left_alone_and_another_is_refused(
    own_database_url: str, postgres_server: EmbeddedPostgres
) -> None:
    owner_url = postgres_server.url.replace("/coresteer?", f"{urlsplit(own_database_url).path}?")
    databases = [Database(url, MIGRATIONS) for url in (own_database_url, owner_url)]
    status = await databases[0].status()
    assert status is not None
    assert status.oldest_backend == OLDEST_BACKEND
    async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as connection:
        await connection.execute("UPDATE alembic_version SET version_num = %s", (NEXT,))
        for database in databases:
            await database.migrate()
        await connection.execute("COMMENT ON TABLE alembic_version IS '999.0.0'")
    for database, error in zip(databases, (SchemaVersionError, AlembicError), strict=True):
        with pytest.raises(error):
            await database.migrate()
        await database.close()


async def test_a_database_that_does_not_answer_is_a_reason() -> None:
    async with running_backend("postgresql://coresteer@127.0.0.1:1/coresteer") as backend:
        assert list(await reasons(backend)) == ["database"]
        assert (await backend.anonymous().get("/livez")).status_code == 200


async def test_a_database_that_stopped_because_of_its_full_disk_is_told_from_one_that_is_away(
    disk: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    async with running_backend(database_url) as backend:
        admin = await backend.client("admin")

        def stopped() -> Never:
            raise psycopg.OperationalError("the server closed the connection")

        monkeypatch.setattr(backend.database, "session", stopped)
        assert (await admin.get("/api/v1/nodes")).json()["type"] == "urn:coresteer:database-away"
        disk.f_bavail = 0
        answer = await admin.get("/api/v1/nodes")
        assert answer.status_code == 507
        assert "Free space on it" in answer.json()["detail"]


async def test_a_clock_that_differs_from_those_of_most_nodes_is_a_reason(backend: Backend) -> None:
    states = [backend.app.state.registry.get_or_create(number) for number in range(10**6, 10**6 + 3)]
    try:
        for state, skew_ms in zip(states, (60_000.0, 61_000.0, 0.5), strict=True):
            state.connected, state.clock_skew_ms = True, skew_ms
        found = await reasons(backend)
        assert list(found) == ["clock"]
        assert "60 s" in found["clock"]
        states[0].clock_skew_ms = 10.0
        assert await reasons(backend) == {}
    finally:
        for number in range(10**6, 10**6 + 3):
            backend.app.state.registry.remove(number)


@pytest.mark.parametrize(
    "path",
    [
        *("/healthz", "/health", "/readyz/ping", "/livez/x", "/status", "/ping", "/-/healthy", "/startupz"),
        *("/actuator/health", "/api", "/api/v1/nothing", "/api/v1/nodes/1/nothing"),
    ],
)
async def test_unknown_probes_and_api_paths_are_not_answered_with_the_page(backend: Backend, path: str) -> None:
    answer = await backend.anonymous().get(path)
    assert answer.status_code == 404
    assert answer.json()["detail"] == f"There is no page or endpoint at {path}."
