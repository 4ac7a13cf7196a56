"""Starts, stops and recovers a private PostgreSQL server, reachable only through a Unix socket."""

import asyncio
import json
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import LiteralString
from urllib.parse import quote

import psycopg
from psycopg import sql

from coresteer.accounts import unprivileged_accounts
from coresteer.postgres.binaries import Binaries, PostgresError, find_binaries, named_account
from coresteer.process import SystemAccount, spawn, terminate

__all__ = ["EmbeddedPostgres", "PostgresError", "running_url"]

DATABASE = "coresteer"
OWNER = "coresteer"
"""Role that owns all tables and migrates them."""
BACKEND = "coresteer_backend"
"""Role of the backend, which owns nothing; see privileges.py."""

FORMER_DATA = "data.before-"
"""Prefix of the folders of data that a recovery has replaced; the time follows."""

_SCRAM = f"local all all scram-sha-256\nlocal replication {OWNER} scram-sha-256\n"
_TRUST = f"local all {OWNER} trust\n"  # until the roles have passwords; only the starter may enter the socket's folder
_LONGEST_SOCKET_PATH = 107  # sun_path without its final zero, sys/un.h
_START_TIMEOUT_S = 60  # recovery after a crash replays at most max_wal_size
_LEFTOVER_TIMEOUT_S = 10
_STOP_TIMEOUT_S = 3  # then it is killed, which loses nothing: the write-ahead log is replayed at the next start
_CONNECT_TIMEOUT_S = 10
_POLL_S = 0.02

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0777",  # who may enter the socket's folder decides
    "max_connections": "200",  # enough for 7 backends of up to 27
    "shared_buffers": "128MB",
    "max_wal_size": "512MB",
    # no replicas; less WAL is less disk traffic on a node that is being measured
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "synchronous_commit": "on",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "fatal",  # errors of statements go to the client
    "log_line_prefix": "",
}


def _socket_url(folder: Path, role: str, password: str | None, database: str = DATABASE) -> str:
    """Return libpq's URL of a database behind the Unix socket in folder."""
    user = role if password is None else f"{role}:{password}"
    return f"postgresql://{user}@/{database}?host={quote(str(folder), safe='')}"


def running_url(state_dir: Path, role: str = BACKEND) -> str | None:
    """Return a role's URL of the server that runs on this state folder, None without one or without access."""
    try:
        lines = _pid_file(state_dir).read_text().splitlines()
        passwords = _stored_passwords(state_dir)
    except (FileNotFoundError, PermissionError):
        return None
    if passwords is None or len(lines) < 5 or not _server_pid(state_dir):
        return None
    return _socket_url(Path(lines[4]), role, passwords[role])


def _passwords_file(state_dir: Path) -> Path:
    return state_dir / "database-passwords.json"


def _stored_passwords(state_dir: Path) -> dict[str, str] | None:
    """Return the passwords by role, None before there are any."""
    try:
        stored = json.loads(_passwords_file(state_dir).read_bytes())
        return {role: str(stored[role]) for role in (OWNER, BACKEND)}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def forget_passwords(state_dir: Path) -> dict[str, str] | None:
    """Delete the stored passwords and return them; the next start of the server sets new ones."""
    passwords = _stored_passwords(state_dir)
    _passwords_file(state_dir).unlink(missing_ok=True)
    return passwords


def store_passwords(state_dir: Path, passwords: dict[str, str]) -> None:
    """Write the passwords, completely or not at all, to a file that only the present user can read."""
    partial = _passwords_file(state_dir).with_suffix(".new")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(passwords, file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(_passwords_file(state_dir))


def _chown_tree(folder: Path, account: SystemAccount) -> None:
    """Give a folder to an account with all that is in it; the folder itself last, so that its owner says it is done.

    No link is followed: the present owner might replace a folder meanwhile.
    """
    for _, folders, files, descriptor in os.fwalk(folder, topdown=False):
        for name in (*folders, *files):
            os.chown(name, account.uid, account.gid, dir_fd=descriptor, follow_symlinks=False)
    os.chown(folder, account.uid, account.gid)


def former_data(folder: Path) -> list[Path]:
    """Return the data folders that recoveries have put aside, the newest last."""
    return sorted(folder.glob(f"{FORMER_DATA}*"))


def _pid_file(state_dir: Path) -> Path:
    return state_dir / "postgres" / "data" / "postmaster.pid"


def _server_pid(state_dir: Path) -> int | None:
    """Return the process id in the lock file if that process runs on this cluster.

    After kill -9 or a reboot the id may belong to another process; a server's working directory is its cluster.
    """
    try:
        pid = int(_pid_file(state_dir).read_text().split("\n", 1)[0])
        same = Path(f"/proc/{pid}/cwd").samefile(_pid_file(state_dir).parent)
    except (OSError, ValueError):
        return None
    return pid if same else None


class EmbeddedPostgres:
    """A PostgreSQL server and its cluster under ``state_dir/postgres``.

    durable=False skips fsync, for tests only. settings: additional settings of the server. start_timeout_s: how long
    it may replay its write-ahead log before it answers.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        pg_bin: Path | None = None,
        on_line: Callable[[str], None] = lambda _: None,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        start_timeout_s: float = _START_TIMEOUT_S,
    ) -> None:
        self.state_dir = state_dir
        self._pg_bin = pg_bin
        self._on_line = on_line
        self._durable = durable
        self._settings = settings or {}
        self._start_timeout_s = start_timeout_s
        self._folder = state_dir / "postgres"
        self._data = self._folder / "data"
        self._socket_folder = self._folder / "run"
        self._hba_file = self._folder / "pg_hba.conf"
        self._short_socket_folder: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._output: asyncio.Task[None] | None = None
        self._account, self._backend_account = unprivileged_accounts()
        self._passwords: dict[str, str] | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """Return the running server's process. Raises RuntimeError before start()."""
        if self._process is None:
            raise PostgresError("The built-in PostgreSQL has not been started.")
        return self._process

    @property
    def url(self) -> str:
        """Return libpq's URL of Coresteer's database for the role that owns the tables."""
        return self._url(OWNER)

    @property
    def backend_url(self) -> str:
        """Return libpq's URL of Coresteer's database for the backend's role."""
        return self._url(BACKEND)

    def _url(self, role: str, database: str = DATABASE) -> str:
        password = self._passwords[role] if self._passwords else None
        return _socket_url(self._short_socket_folder or self._socket_folder, role, password, database)

    async def start(self) -> None:
        """Create the cluster if there is none, start the server, wait until it answers. Raises PostgresError."""
        try:
            await self._start()
        except BaseException:  # cancellation too: nothing half-started stays behind
            await self._end_server()
            raise

    async def _start(self) -> None:
        self._make_folders()
        binaries = await find_binaries(self.state_dir, self._pg_bin, self._account)
        if not self._data.exists():
            if former := former_data(self._folder):
                raise PostgresError(
                    f"A recovery was interrupted: {self._data} is missing, and the data that were in place before are "
                    f"in {former[-1]}. Run `coresteer restore-backup` again, or rename that folder to "
                    f"{self._data.name}."
                )
            await self._make_cluster(binaries)
        made_by = int((self._data / "PG_VERSION").read_text())
        if made_by != binaries.major:
            raise PostgresError(
                f"The data in {self._data} was written by PostgreSQL {made_by}, but this is PostgreSQL "
                f"{binaries.major}. Give the folder of version {made_by}'s programs in PG_BIN, or move the data away "
                "to start afresh."
            )
        unclean = _pid_file(self.state_dir).exists()
        await self._wait_for_leftover()
        if self._account is not None and self._data.stat().st_uid != self._account.uid:
            await asyncio.to_thread(_chown_tree, self._data, self._account)
        self._passwords = _stored_passwords(self.state_dir)
        self._set_authentication(_SCRAM if self._passwords else _TRUST)
        deadline = asyncio.get_running_loop().time() + _LEFTOVER_TIMEOUT_S
        # the workers of a killed server hold its shared memory until they notice, and till then a new one refuses
        while not await self._launch(binaries):
            if not unclean or asyncio.get_running_loop().time() > deadline:
                raise PostgresError(
                    f"The built-in PostgreSQL ended with status {self.process.returncode} while starting; "
                    "its lines above say why."
                )
            await asyncio.sleep(0.2)
        if self._passwords is None:  # a new or restored cluster, or one of a version that trusted every local user
            await self._make_roles()
        self._let_the_backend_in()

    async def stop(self) -> None:
        """Shut the server down fast: open transactions are rolled back, everything committed is on disk."""
        await self._end_server()
        if self._short_socket_folder is not None:
            shutil.rmtree(self._short_socket_folder, ignore_errors=True)
            self._short_socket_folder = None

    async def _end_server(self) -> None:
        if self._process is not None:
            await terminate(self._process, signal.SIGINT, _STOP_TIMEOUT_S)
        if self._output is not None:
            await self._output

    def _make_folders(self) -> None:
        self.state_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        for folder in (self._folder, self._socket_folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        too_long = len(str(self._socket_folder / ".s.PGSQL.5432").encode()) > _LONGEST_SOCKET_PATH
        if too_long and self._short_socket_folder is None:
            self._short_socket_folder = Path(tempfile.mkdtemp(prefix="coresteer-"))
        if self._account is not None:
            for passed in (self.state_dir, self._folder):  # the accounts pass through, to the data and to the socket
                passed.chmod(passed.stat().st_mode | 0o011)
            os.chown(self._folder, 0, 0)  # root writes there, and follows no link of theirs

    def _set_authentication(self, lines: str) -> None:
        """Write the server's pg_hba.conf; only its own account and root may enter the socket's folder from now on."""
        self._hba_file.write_text(lines)
        self._hba_file.chmod(0o644)
        folder = self._short_socket_folder or self._socket_folder
        folder.chmod(0o700)
        if self._account is not None:
            os.chown(folder, self._account.uid, self._account.gid)

    def _let_the_backend_in(self) -> None:
        """Let the backend's account enter the socket's folder."""
        if self._backend_account is not None:
            folder = self._short_socket_folder or self._socket_folder
            os.chown(folder, -1, self._backend_account.gid)
            folder.chmod(0o710)

    async def _make_cluster(self, binaries: Binaries) -> None:
        """Run initdb beside the final place, so that an interrupted one is never taken for a cluster."""
        partial = self._folder / "data.new"
        shutil.rmtree(partial, ignore_errors=True)
        account = None
        if self._account is not None:
            account = named_account()
            partial.mkdir(mode=0o700)
            os.chown(partial, account.uid, account.gid)
        options: list[str | Path] = ["-D", partial, "-U", OWNER, "--auth=reject", "--encoding=UTF8"]
        options += ["--locale=C", "--no-instructions", *([] if self._durable else ["--no-sync"])]
        lines: list[str] = []
        process, output = await spawn([binaries.folder / "initdb", *options], on_line=lines.append, account=account)
        try:
            await output
            status = await process.wait()
        except asyncio.CancelledError:
            os.killpg(process.pid, signal.SIGKILL)  # with the server it works through; the next start begins anew
            await process.wait()
            raise
        if status:
            raise PostgresError(
                f"PostgreSQL's initdb could not create a cluster in {self._folder}: {' / '.join(lines[-3:])}. "
                "The account it runs as must be able to reach that folder; CORESTEER_STATE_DIR names another."
            )
        if self._account is not None:
            await asyncio.to_thread(_chown_tree, partial, self._account)
        partial.rename(self._data)

    async def _wait_for_leftover(self) -> None:
        """Wait until a server that was left behind has shut down; remove a lock file without its server."""
        deadline = asyncio.get_running_loop().time() + _LEFTOVER_TIMEOUT_S
        while pid := _server_pid(self.state_dir):
            if asyncio.get_running_loop().time() > deadline:
                raise PostgresError(
                    f"Another PostgreSQL (process {pid}) already works on {self._data}: is Coresteer running "
                    "already? Stop it, or name another folder in CORESTEER_STATE_DIR."
                )
            await asyncio.sleep(_POLL_S)
        _pid_file(self.state_dir).unlink(missing_ok=True)

    async def _launch(self, binaries: Binaries) -> bool:
        """Start the server and return whether it is ready, which the lock file's eighth line says (as for pg_ctl)."""
        folder = self._short_socket_folder or self._socket_folder
        settings = {**_SETTINGS, **self._settings, "unix_socket_directories": str(folder)}
        settings["hba_file"] = str(self._hba_file)
        if not self._durable:
            settings["fsync"] = "off"
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process, self._output = await spawn(
            [binaries.folder / "postgres", "-D", self._data, *options],
            on_line=self._on_line,
            death_signal=signal.SIGINT,
            account=binaries.account,
        )
        deadline = asyncio.get_running_loop().time() + self._start_timeout_s
        while self._process.returncode is None:
            try:
                lines = _pid_file(self.state_dir).read_text().splitlines()
            except FileNotFoundError:
                lines = []
            if len(lines) >= 8 and lines[7].strip() == "ready" and int(lines[0]) == self._process.pid:
                return True
            if asyncio.get_running_loop().time() > deadline:
                raise PostgresError(f"The built-in PostgreSQL was not ready within {self._start_timeout_s:g} seconds.")
            await asyncio.sleep(_POLL_S)
        await self._output
        return False

    async def _make_roles(self) -> None:
        """Give the owner a password, make the backend's role and the database, store the passwords and demand them."""
        passwords = {role: secrets.token_urlsafe(32) for role in (OWNER, BACKEND)}
        try:
            async with await psycopg.AsyncConnection.connect(
                self._url(OWNER, "postgres"), autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S
            ) as connection:
                if not await _exists(connection, "SELECT FROM pg_roles WHERE rolname = %s", BACKEND):
                    await connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(BACKEND)))
                for role, password in passwords.items():
                    await connection.execute(
                        sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(password))
                    )
                if not await _exists(connection, "SELECT FROM pg_database WHERE datname = %s", DATABASE):
                    await connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
                store_passwords(self.state_dir, passwords)
                self._set_authentication(_SCRAM)
                await connection.execute("SELECT pg_reload_conf()")
        except psycopg.Error as error:
            raise PostgresError(
                f"The built-in PostgreSQL started, but creating the database failed: {str(error).strip()}."
            ) from error
        while await _answers(self._url(OWNER, "postgres")):  # noqa: ASYNC110 - until the server has read the file
            await asyncio.sleep(_POLL_S)
        self._passwords = passwords


async def _answers(url: str) -> bool:
    try:
        await (await psycopg.AsyncConnection.connect(url, connect_timeout=_CONNECT_TIMEOUT_S)).close()
    except psycopg.OperationalError:
        return False
    return True


async def _exists(connection: psycopg.AsyncConnection, query: LiteralString, name: str) -> bool:
    cursor = await connection.execute(query, (name,))
    return await cursor.fetchone() is not None
