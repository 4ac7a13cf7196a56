"""Base backups of the built-in PostgreSQL with an archive of its write-ahead log, and recovery to any moment since.

A backup folder has ``base/TIME`` (a copy made by pg_basebackup, checked by pg_verifybackup; TIME is when it ended) and
``wal`` (each segment of the write-ahead log, copied by the server itself with its module basic_archive).
"""

import asyncio
import fcntl
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from coresteer.accounts import unprivileged_accounts
from coresteer.postgres.binaries import Binaries, PostgresError, find_binaries
from coresteer.postgres.server import (
    FORMER_DATA,
    OWNER,
    EmbeddedPostgres,
    forget_passwords,
    former_data,
    running_url,
    store_passwords,
)
from coresteer.process import SystemAccount, spawn

KEPT_BACKUPS = 7  # a week of nightly backups
_SEGMENT = re.compile(r"[0-9A-F]{24}")
_FIRST_SEGMENT = re.compile(r"^START WAL LOCATION: .*\(file ([0-9A-F]{24})\)", re.MULTILINE)
_NAME = "%Y-%m-%dT%H-%M-%SZ"
_ARCHIVE_TIMEOUT_S = 60  # at most so much is lost with the disk that holds the data
_WAIT_FOR_ARCHIVE_S = 60
_POLL_S = 0.1
_RECOVERY_TIMEOUT_S = 24 * 3600.0


class BackupError(PostgresError):
    """A backup cannot be made or restored; the message says why and what to do."""


@dataclass(frozen=True)
class Backup:
    """A base backup. ended: from this moment on every state can be restored from it."""

    folder: Path
    ended: datetime


@dataclass(frozen=True)
class Restored:
    """What a recovery yielded.

    last: the time of the last transaction, None if the base backup had no later one; former: the data that were in
    place before, None if there were none.
    """

    backup: Backup
    last: datetime | None
    former: Path | None


@dataclass(frozen=True)
class _Timeline:
    """What the database became: each recovery begins one, and what came after its moment before is not in it.

    forks: where the write-ahead logs of its ancestors end for it, by their numbers.
    """

    number: int
    forks: Mapping[int, tuple[int, ...]]

    @classmethod
    def of(cls, logs: Sequence[Path], to: datetime | None) -> "_Timeline":
        """Return the timeline of a moment by the histories in folders of write-ahead logs, or that of the present data.

        logs: the present data's last. Another timeline may be newer than theirs: of a recovery that was given up.
        """
        histories = {
            int(each.stem, 16): each
            for folder in logs
            for each in folder.glob("*.history")
            if to is None or each.stat().st_mtime <= to.timestamp()
        }
        present = [each.name for each in logs[-1].glob("*") if _SEGMENT.fullmatch(each.name)] if to is None else []
        number = int(max(present)[:8], 16) if present else max(histories, default=1)
        if number not in histories:
            return cls(number, {})
        lines = [line.split("\t") for line in histories[number].read_text().splitlines()]
        return cls(number, {int(words[0]): _position(words[1]) for words in lines if len(words) > 1})

    def contains(self, backup: Backup) -> bool:
        """Return whether a backup ended in this timeline, or in an ancestor before its fork."""
        last = json.loads((backup.folder / "backup_manifest").read_bytes())["WAL-Ranges"][-1]
        timeline = last["Timeline"]
        return timeline == self.number or _position(last["End-LSN"]) <= self.forks.get(timeline, ())


def _position(lsn: str) -> tuple[int, ...]:
    """Return a position in the write-ahead log, such as 0/2000100, as numbers that can be compared."""
    return tuple(int(part, 16) for part in lsn.split("/"))


def archive_settings(folder: Path) -> dict[str, str]:
    """Create the archive in folder; return the settings with which the server copies its write-ahead log there."""
    archive = _subfolder(folder, "wal")
    return {
        "wal_level": "replica",
        "max_wal_senders": "4",
        "archive_mode": "on",
        "archive_library": "basic_archive",
        "basic_archive.archive_directory": str(archive),
        "archive_timeout": f"{_ARCHIVE_TIMEOUT_S}s",
    }


def backups(folder: Path) -> list[Backup]:
    """Return the complete backups in folder, the newest last."""
    found = []
    for each in (folder / "base").glob("*Z"):
        try:
            found.append(Backup(each, datetime.strptime(each.name, _NAME).replace(tzinfo=UTC)))
        except ValueError:
            continue
    return sorted(found, key=lambda backup: backup.ended)


async def back_up(state_dir: Path, folder: Path, pg_bin: Path | None) -> Backup:
    """Copy the running database to folder, check the copy, and delete all but the newest KEPT_BACKUPS.

    Everything committed before the call is in the backup; everything later follows in the archive. Raises BackupError.
    """
    url = running_url(state_dir, OWNER)
    if url is None:
        raise BackupError(f"No built-in PostgreSQL runs on {state_dir}. Start `coresteer up` first.")
    account, _ = unprivileged_accounts()
    base = _subfolder(folder, "base")
    with _only_one(base):
        binaries = await find_binaries(state_dir, pg_bin, account)
        return await _back_up(url, folder, base, binaries)


@contextmanager
def _only_one(base: Path) -> Iterator[None]:
    """Hold the lock of the backup folder: a second backup would delete the first one's unfinished copy."""
    descriptor = os.open(base, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"Another backup to {base.parent} is in progress. Wait until it has ended.") from None
        yield
    finally:
        os.close(descriptor)


async def _back_up(url: str, folder: Path, base: Path, binaries: Binaries) -> Backup:
    partial = base / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await _require_archive(connection, folder)
            shown = conninfo_to_dict(url)
            password = str(shown.pop("password"))  # not in the command line, which every local user can read
            target = make_conninfo(**{name: str(value) for name, value in shown.items()})
            options = ("--dbname", target, "-D", partial, "--wal-method=stream", "--checkpoint=fast")
            await _program(binaries, "pg_basebackup", *options, environment={**os.environ, "PGPASSWORD": password})
            await _program(binaries, "pg_verifybackup", "--quiet", partial)
            ended = datetime.now(UTC).replace(microsecond=0)
            await _until_archived(connection, folder)
    except psycopg.Error as error:
        raise BackupError(f"The database ended the backup: {str(error).strip()}.") from error
    while (complete := base / ended.strftime(_NAME)).exists():  # by another backup in this second
        ended += timedelta(seconds=1)
    backup = Backup(complete, ended)
    partial.rename(complete)
    await _prune(folder, binaries)
    return backup


async def restore_backup(state_dir: Path, folder: Path, pg_bin: Path | None, to: datetime | None) -> Restored:
    """Replace the database by its state at a moment, or by the newest state there is; the server must not run.

    Without `to`, the part of the write-ahead log that the present data hold and the archive does not yet hold is
    replayed too, so that nothing acknowledged is lost. The present data are kept beside the restored ones.
    Raises BackupError; then everything is as before.
    """
    if running_url(state_dir) is not None:
        raise BackupError(f"PostgreSQL runs on {state_dir}. Stop Coresteer first.")
    account, _ = unprivileged_accounts()
    data = state_dir / "postgres" / "data"
    restored = data.with_name("data.restored")
    # after an interrupted recovery the last data are where that one has put them
    *_, present = [*former_data(data.parent), *([data] if data.exists() else [])] or [data]
    timeline = _Timeline.of((_archive(folder), present / "pg_wal"), to)
    usable = [each for each in backups(folder) if (to is None or each.ended <= to) and timeline.contains(each)]
    if not usable:
        raise BackupError(_no_backup(folder, to))
    await asyncio.to_thread(_copy_backup, usable[-1].folder, present / "pg_wal", restored, account)
    former = None
    if data.exists():
        former = data.with_name(f"{FORMER_DATA}{datetime.now(UTC):%Y-%m-%dT%H-%M-%S.%fZ}")
        data.rename(former)
    restored.rename(data)
    passwords = forget_passwords(state_dir)  # the backup has those of its time, perhaps of another machine
    lines: list[str] = []
    server = EmbeddedPostgres(
        state_dir,
        pg_bin=pg_bin,
        on_line=lines.append,
        settings=archive_settings(folder) | _recovery_settings(folder, timeline, to),
        start_timeout_s=_RECOVERY_TIMEOUT_S,
    )
    try:
        await server.start()
        last = await _last_transaction(server.url)
    except BaseException as error:
        await server.stop()
        shutil.rmtree(data)
        if former is not None:
            former.rename(data)
        if passwords is not None:
            store_passwords(state_dir, passwords)
        if isinstance(error, PostgresError) and any("recovery target" in line for line in lines):
            raise BackupError(
                f"No transaction was committed after {to}, so the database cannot be restored to that moment. "
                "Leave out --to to restore the newest state, or name an earlier moment."
            ) from error
        if isinstance(error, PostgresError):
            raise BackupError(f"PostgreSQL could not recover the backup: {' / '.join(lines[-3:])}.") from error
        raise
    await server.stop()
    return Restored(usable[-1], last, former)


def _archive(folder: Path) -> Path:
    return folder.absolute() / "wal"


def _subfolder(folder: Path, name: str) -> Path:
    """Return the folder in the backup folder that the server's account writes, created if necessary."""
    account, _ = unprivileged_accounts()
    subfolder = folder.absolute() / name
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        subfolder.mkdir(mode=0o700, exist_ok=True)
        closed = None
        if account is not None:
            if _is_closed(folder):  # the account passes through
                folder.chmod(folder.stat().st_mode | 0o011)
            os.chown(subfolder, account.uid, account.gid)
            closed = next(filter(_is_closed, subfolder.resolve().parents), None)
    except OSError as error:
        raise BackupError(
            f"The folder for backups {folder} cannot be used: {error.strerror}. Name another in CORESTEER_BACKUP_DIR."
        ) from error
    if closed is not None:
        raise BackupError(
            f"The account of the database cannot pass through {closed} to the folder for backups {folder}. Name one in "
            "CORESTEER_BACKUP_DIR that every account may pass through."
        )
    return subfolder


def _is_closed(folder: Path) -> bool:
    """Return whether accounts that neither own a folder nor belong to its group cannot pass through it."""
    return not folder.stat().st_mode & 0o001


async def _require_archive(connection: psycopg.AsyncConnection, folder: Path) -> None:
    found = await connection.execute("SELECT current_setting('basic_archive.archive_directory', true)")
    row = await found.fetchone()
    if row is None or row[0] != str(_archive(folder)):
        raise BackupError(
            f"The running database does not archive its write-ahead log in {folder}. Start `coresteer up` with "
            f"CORESTEER_BACKUP_DIR={folder}, then try again."
        )


async def _program(
    binaries: Binaries, name: str, *arguments: str | Path, environment: Mapping[str, str] | None = None
) -> None:
    """Run one of PostgreSQL's programs as the server's account. Raises BackupError with its last lines."""
    lines: list[str] = []
    process, output = await spawn(
        [binaries.folder / name, *arguments],
        on_line=lines.append,
        environment=environment,
        account=binaries.account,
    )
    await output
    if await process.wait():
        raise BackupError(f"{name} failed: {' / '.join(lines[-3:])}.")


async def _until_archived(connection: psycopg.AsyncConnection, folder: Path) -> None:
    """Wait until everything written so far is in the archive. Raises BackupError."""
    found = await connection.execute("SELECT pg_walfile_name(pg_create_restore_point('backup'))")
    row = await found.fetchone()
    await connection.execute("SELECT pg_switch_wal()")  # the segment with the record above is complete
    deadline = asyncio.get_running_loop().time() + _WAIT_FOR_ARCHIVE_S
    while asyncio.get_running_loop().time() < deadline:
        # the names of one timeline's segments are in the order of time
        archived = await connection.execute("SELECT last_archived_wal >= %s FROM pg_stat_archiver", row)
        if await archived.fetchone() == (True,):
            return
        await asyncio.sleep(_POLL_S)
    raise BackupError(
        f"The server did not archive its write-ahead log within {_WAIT_FOR_ARCHIVE_S} s, so the log grows beside the "
        f"data. Check that {_archive(folder)} has room and that its owner, the server's account, may write there."
    )


async def _prune(folder: Path, binaries: Binaries) -> None:
    """Delete all but the newest backups, and the segments that only the deleted ones need."""
    old, kept = backups(folder)[:-KEPT_BACKUPS], backups(folder)[-KEPT_BACKUPS:]
    if not old:
        return
    for backup in old:
        await asyncio.to_thread(shutil.rmtree, backup.folder)
    labels = [(each.folder / "backup_label").read_text() for each in kept]
    first = [segment for label in labels for segment in _FIRST_SEGMENT.findall(label)]
    # the program disregards timelines, and after a recovery a later backup may begin at an earlier position
    await _program(binaries, "pg_archivecleanup", _archive(folder), min(first, key=lambda name: name[8:]))


def _no_backup(folder: Path, to: datetime | None) -> str:
    existing = backups(folder)
    if not existing:
        return f"There is no backup in {folder}. CORESTEER_BACKUP_DIR names the folder of `coresteer backup`."
    if to is not None and existing[0].ended > to:
        return f"The oldest backup in {folder} ended at {existing[0].ended}, after {to}. Name a later moment."
    at = "at present" if to is None else f"at {to}"
    return f"No backup in {folder} belongs to the state of the database {at}. Name another moment."


def _copy_backup(base: Path, former_wal: Path, target: Path, account: SystemAccount | None) -> None:
    """Copy a base backup and the write-ahead log that the present data still hold, owned by the server's account."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(base, target, symlinks=True)
    if former_wal.is_dir():
        for segment in former_wal.iterdir():
            # root would read what a link of the server's account leads to
            if segment.is_file() and not segment.is_symlink() and not (target / "pg_wal" / segment.name).exists():
                shutil.copy2(segment, target / "pg_wal" / segment.name)
    (target / "recovery.signal").touch()
    target.chmod(0o700)
    if account is not None:
        for folder, _, files in os.walk(target):
            for path in (folder, *(os.path.join(folder, name) for name in files)):  # noqa: PTH118 - as os.walk
                os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _recovery_settings(folder: Path, timeline: _Timeline, to: datetime | None) -> dict[str, str]:
    archive = shlex.quote(str(_archive(folder))).replace("%", "%%")
    settings = {"restore_command": f"cp {archive}/%f %p", "hot_standby": "off", "recovery_target_action": "promote"}
    settings["recovery_target_timeline"] = str(timeline.number)
    return settings if to is None else settings | {"recovery_target_time": to.isoformat()}


async def _last_transaction(url: str) -> datetime | None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        found = await connection.execute("SELECT pg_last_xact_replay_timestamp()")
        row = await found.fetchone()
    return row[0] if row else None
