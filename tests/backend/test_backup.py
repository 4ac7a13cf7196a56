"""Drills: the built-in database is lost, or must return to a moment, and is restored from its backup."""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.backend.conftest import MIGRATIONS, running_backend
from tests.backend.fake_agent import enrolled, rates, stored_seqs
from tests.backend.test_postgres import execute
from tests.support.polling import PATIENCE_S

from coresteer.accounts import unprivileged_accounts
from coresteer.cli.main import main
from coresteer.db import Database
from coresteer.postgres import EmbeddedPostgres, PostgresError
from coresteer.postgres.backup import (
    KEPT_BACKUPS,
    Backup,
    BackupError,
    Restored,
    _prune,
    archive_settings,
    back_up,
    backups,
    restore_backup,
)
from coresteer.postgres.binaries import find_binaries


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's account can reach, with the server's state and the backups in it."""
    folder = Path(tempfile.mkdtemp(prefix="coresteer-backup-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def server(folder: Path) -> EmbeddedPostgres:
    return EmbeddedPostgres(folder / "state", settings=archive_settings(folder / "backups"))


async def restore(folder: Path, to: datetime | None = None) -> Restored:
    return await restore_backup(folder / "state", folder / "backups", None, to)


async def now(url: str) -> datetime:
    ((moment,),) = await execute(url, "SELECT clock_timestamp()")
    assert isinstance(moment, datetime)
    return moment


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the database as another account")
def test_a_folder_for_backups_is_opened_for_the_databases_account_or_refused(folder: Path) -> None:
    closed = folder / "backups"
    closed.mkdir(mode=0o700)
    archive_settings(closed)
    assert closed.stat().st_mode & 0o777 == 0o711
    within = folder / "home"
    within.mkdir(mode=0o700)
    with pytest.raises(BackupError, match=re.escape(f"cannot pass through {within}")):
        archive_settings(within / "backups")


async def test_a_damaged_database_is_restored_with_every_acknowledged_sample(folder: Path) -> None:
    postgres = server(folder)
    await postgres.start()
    database = Database(postgres.url, MIGRATIONS)
    await database.migrate()
    async with running_backend(postgres.url, chunk_seconds=1) as backend:
        agent = await enrolled(backend.database, backend.url, "backed-up")
        async with asyncio.timeout(PATIENCE_S), agent:
            await agent.send_rates([rates(seq) for seq in range(1, 6)])
            await agent.until_acked(5)
            await back_up(folder / "state", folder / "backups", None)
            await agent.send_rates([rates(seq) for seq in range(6, 11)])
            await agent.until_acked(10)
            postgres.process.kill()
            await postgres.process.wait()
    await database.close()
    shutil.rmtree(folder / "state/postgres/data/base")

    restored = await restore(folder)

    assert restored.former is not None and restored.former.exists()
    await postgres.start()
    try:
        assert await stored_seqs(postgres.url, agent.node_id) == list(range(1, 11))
    finally:
        await postgres.stop()


async def test_the_state_of_a_moment_is_restored_and_a_later_backup_continues_from_there(folder: Path) -> None:
    postgres = server(folder)
    await postgres.start()
    await execute(postgres.url, "CREATE TABLE written AS SELECT 'before the backup' AS moment")
    await back_up(folder / "state", folder / "backups", None)
    await execute(postgres.url, "INSERT INTO written VALUES ('before the mistake')")
    moment = await now(postgres.url)
    await execute(postgres.url, "INSERT INTO written VALUES ('the mistake')")
    await postgres.stop()

    await restore(folder, moment)

    await postgres.start()
    try:
        assert await execute(postgres.url, "SELECT moment FROM written") == [
            ("before the backup",),
            ("before the mistake",),
        ]
        await back_up(folder / "state", folder / "backups", None)
        await execute(postgres.url, "INSERT INTO written VALUES ('afterwards')")
    finally:
        await postgres.stop()
    await restore(folder)
    await postgres.start()
    try:
        assert await execute(postgres.url, "SELECT count(*) FROM written WHERE moment <> 'the mistake'") == [(3,)]
    finally:
        await postgres.stop()


async def test_after_a_recovery_to_a_moment_later_ones_follow_what_was_in_force_then(folder: Path) -> None:
    postgres = server(folder)
    await postgres.start()
    await execute(postgres.url, "CREATE TABLE written AS SELECT 1 AS number")
    await back_up(folder / "state", folder / "backups", None)
    moments = []
    for _ in range(3):
        moments.append(await now(postgres.url))
        await execute(postgres.url, "INSERT INTO written SELECT max(number) + 1 FROM written")
    abandoned = await back_up(folder / "state", folder / "backups", None)
    after_it = abandoned.ended + timedelta(seconds=1)
    abandoned.folder.rename(abandoned.folder.with_name(after_it.strftime("%Y-%m-%dT%H-%M-%SZ")))
    await postgres.stop()

    async def numbers(*statements: str) -> list[tuple[object, ...]]:
        await postgres.start()
        try:
            for statement in statements:
                await execute(postgres.url, statement)
            return await execute(postgres.url, "SELECT number FROM written ORDER BY number")
        finally:
            await postgres.stop()

    await restore(folder, moments[0])
    assert await numbers("INSERT INTO written VALUES (5)") == [(1,), (5,)]
    await restore(folder)
    assert await numbers() == [(1,), (5,)]
    await restore(folder, moments[2])
    assert await numbers() == [(1,), (2,), (3,)]


def at(minute: int) -> datetime:
    return datetime(2026, 11, 22, 16, minute, tzinfo=UTC)


def stored_backup(folder: Path, minute: int, *, timeline: int, first: str) -> Backup:
    """What a backup says of itself: when it ended, and its timeline and first segment."""
    stored = folder / "backups/base" / at(minute).strftime("%Y-%m-%dT%H-%M-%SZ")
    stored.mkdir(parents=True)
    (stored / "backup_label").write_text(f"START WAL LOCATION: 0/{first}000028 (file {timeline:08X}{first:0>16})\n")
    return Backup(stored, at(minute))


async def test_a_moment_that_cannot_be_restored_leaves_the_data_as_they_are(folder: Path) -> None:
    postgres = server(folder)
    await postgres.start()
    await execute(postgres.url, "CREATE TABLE kept AS SELECT 1 AS one")
    with pytest.raises(BackupError, match="There is no backup"):
        await postgres.stop()
        await restore(folder)
    await postgres.start()
    backup = await back_up(folder / "state", folder / "backups", None)
    with pytest.raises(BackupError, match="Stop Coresteer first"):
        await restore(folder)
    await postgres.stop()
    with pytest.raises(BackupError, match="Name a later moment"):
        await restore(folder, backup.ended - timedelta(hours=1))
    with pytest.raises(BackupError, match="Leave out --to"):
        await restore(folder, datetime.now(UTC) + timedelta(hours=1))
    await postgres.start()
    try:
        assert await execute(postgres.url, "SELECT one FROM kept") == [(1,)]
    finally:
        await postgres.stop()
    assert [path.name for path in (folder / "state/postgres").iterdir() if "data" in path.name] == ["data"]


async def test_old_backups_and_what_only_they_need_are_deleted(folder: Path) -> None:
    postgres = server(folder)
    await postgres.start()
    try:
        first = await back_up(folder / "state", folder / "backups", None)
        for day in range(1, KEPT_BACKUPS):  # copies of it stand for the backups of earlier days
            earlier = first.ended - timedelta(days=day)
            shutil.copytree(first.folder, first.folder.with_name(earlier.strftime("%Y-%m-%dT%H-%M-%SZ")))
        segments = set((folder / "backups/wal").iterdir())
        last = await back_up(folder / "state", folder / "backups", None)
    finally:
        await postgres.stop()
    kept = backups(folder / "backups")
    assert len(kept) == KEPT_BACKUPS
    assert kept[-1] == last
    assert segments - set((folder / "backups/wal").iterdir())


async def test_backups_of_an_abandoned_timeline_do_not_delete_what_later_ones_need(folder: Path) -> None:
    archive_settings(folder / "backups")
    archive = folder / "backups/wal"
    stored_backup(folder, 0, timeline=1, first="2")
    for minute in range(1, KEPT_BACKUPS):
        stored_backup(folder, minute, timeline=1, first="9")
    stored_backup(folder, KEPT_BACKUPS, timeline=2, first="5")  # after a recovery to a moment before those at 9
    for name in ("000000010000000000000002", "000000020000000000000005", "000000010000000000000009"):
        (archive / name).touch()
    account, _ = unprivileged_accounts()
    await _prune(folder / "backups", await find_binaries(folder / "state", None, account))
    assert len(backups(folder / "backups")) == KEPT_BACKUPS
    assert {path.name for path in archive.iterdir()} == {"000000020000000000000005", "000000010000000000000009"}


async def test_a_backup_of_a_server_that_does_not_archive_says_how_to_start_it(folder: Path) -> None:
    postgres = EmbeddedPostgres(folder / "state", durable=False)
    await postgres.start()
    try:
        with pytest.raises(BackupError, match="CORESTEER_BACKUP_DIR="):
            await back_up(folder / "state", folder / "backups", None)
    finally:
        await postgres.stop()


async def test_a_recovery_that_was_interrupted_is_repeated_without_loss(folder: Path) -> None:
    postgres = server(folder)
    await postgres.start()
    await back_up(folder / "state", folder / "backups", None)
    await execute(postgres.url, "CREATE TABLE kept AS SELECT 1 AS one")
    await postgres.stop()
    data = folder / "state/postgres/data"
    data.rename(data.with_name("data.before-2026-11-22T16-20-00Z"))
    with pytest.raises(PostgresError, match="A recovery was interrupted"):
        await postgres.start()

    await restore(folder)

    await postgres.start()
    try:
        assert await execute(postgres.url, "SELECT one FROM kept") == [(1,)]
    finally:
        await postgres.stop()


async def test_a_second_backup_at_the_same_time_is_refused(folder: Path) -> None:
    postgres = server(folder)
    await postgres.start()
    try:
        first, second = await asyncio.gather(
            *(back_up(folder / "state", folder / "backups", None) for _ in range(2)), return_exceptions=True
        )
    finally:
        await postgres.stop()
    assert isinstance(second, BackupError) and "in progress" in str(second), second
    assert backups(folder / "backups") == [first]


@pytest.mark.parametrize(
    ("environment", "arguments", "message"),
    [
        ({"DATABASE_URL": "postgresql://db/coresteer"}, ["backup"], "docs/BACKUP.md"),
        ({}, ["backup"], "CORESTEER_BACKUP_DIR"),
        ({}, ["restore-backup"], "CORESTEER_BACKUP_DIR"),
    ],
)
def test_a_backup_that_is_not_possible_says_why(
    environment: dict[str, str],
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("DATABASE_URL", "CORESTEER_DATABASE_URL", "CORESTEER_BACKUP_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_a_moment_without_a_time_zone_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["restore-backup", "--to", "2026-11-22T16:20:00"])
    assert "no time zone" in capsys.readouterr().err
