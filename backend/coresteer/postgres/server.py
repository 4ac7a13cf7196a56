"""Starts, stops and recovers a private PostgreSQL server, reachable only through a Unix socket."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from coresteer.postgres.binaries import Binaries, PostgresError, find_binaries, server_account
from coresteer.process import SystemAccount, spawn, terminate

__all__ = ["EmbeddedPostgres", "PostgresError", "running_url"]

DATABASE = "coresteer"
ROLE = "coresteer"
_LONGEST_SOCKET_PATH = 107  # sun_path without its final zero, sys/un.h
_START_TIMEOUT_S = 60  # recovery after a crash replays at most max_wal_size
_LEFTOVER_TIMEOUT_S = 10
_STOP_TIMEOUT_S = 3  # then it is killed, which loses nothing: the write-ahead log is replayed at the next start
_CONNECT_TIMEOUT_S = 10
_POLL_S = 0.02

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "50",
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


def socket_url(folder: Path, database: str = DATABASE) -> str:
    """Return libpq's URL of a database behind the Unix socket in folder."""
    return f"postgresql://{ROLE}@/{database}?host={quote(str(folder), safe='')}"


def running_url(state_dir: Path) -> str | None:
    """Return libpq's URL of the server that runs on this state folder, None without one or without access."""
    try:
        lines = _pid_file(state_dir).read_text().splitlines()
    except (FileNotFoundError, PermissionError):
        return None
    return socket_url(Path(lines[4])) if _server_pid(state_dir) and len(lines) > 4 else None


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
    """A PostgreSQL server and its cluster under ``state_dir/postgres``. durable=False skips fsync, for tests only."""

    def __init__(
        self,
        state_dir: Path,
        *,
        pg_bin: Path | None = None,
        on_line: Callable[[str], None] = lambda _: None,
        durable: bool = True,
    ) -> None:
        self.state_dir = state_dir
        self._pg_bin = pg_bin
        self._on_line = on_line
        self._durable = durable
        self._folder = state_dir / "postgres"
        self._data = self._folder / "data"
        self._socket_folder = self._folder / "run"
        self._short_socket_folder: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._output: asyncio.Task[None] | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """Return the running server's process. Raises RuntimeError before start()."""
        if self._process is None:
            raise PostgresError("The built-in PostgreSQL has not been started.")
        return self._process

    @property
    def url(self) -> str:
        """Return libpq's URL of Coresteer's database."""
        return socket_url(self._short_socket_folder or self._socket_folder)

    async def start(self) -> None:
        """Create the cluster if there is none, start the server, wait until it answers. Raises PostgresError."""
        try:
            await self._start()
        except BaseException:  # cancellation too: nothing half-started stays behind
            await self._end_server()
            raise

    async def _start(self) -> None:
        account = server_account()
        self._make_folders(account)
        binaries = await find_binaries(self.state_dir, self._pg_bin, account)
        if not self._data.exists():
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
        deadline = asyncio.get_running_loop().time() + _LEFTOVER_TIMEOUT_S
        # the workers of a killed server hold its shared memory until they notice, and till then a new one refuses
        while not await self._launch(binaries):
            if not unclean or asyncio.get_running_loop().time() > deadline:
                raise PostgresError(
                    f"The built-in PostgreSQL ended with status {self.process.returncode} while starting; "
                    "its lines above say why."
                )
            await asyncio.sleep(0.2)
        await self._make_database()

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

    def _make_folders(self, account: SystemAccount | None) -> None:
        self.state_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        if account is not None:
            self.state_dir.chmod(self.state_dir.stat().st_mode | 0o011)  # the server's account passes through
        for folder in (self._folder, self._socket_folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            if account is not None:
                os.chown(folder, account.uid, account.gid)
        too_long = len(str(self._socket_folder / ".s.PGSQL.5432").encode()) > _LONGEST_SOCKET_PATH
        if too_long and self._short_socket_folder is None:
            self._short_socket_folder = Path(tempfile.mkdtemp(prefix="coresteer-"))
            if account is not None:
                os.chown(self._short_socket_folder, account.uid, account.gid)

    async def _make_cluster(self, binaries: Binaries) -> None:
        """Run initdb beside the final place, so that an interrupted one is never taken for a cluster."""
        partial = self._folder / "data.new"
        shutil.rmtree(partial, ignore_errors=True)
        options: list[str | Path] = [
            "-D",
            partial,
            "-U",
            ROLE,
            "--auth-local=trust",
            "--auth-host=reject",
            "--encoding=UTF8",
        ]
        options += ["--locale=C", "--no-instructions", *([] if self._durable else ["--no-sync"])]
        lines: list[str] = []
        process, output = await spawn(
            [binaries.folder / "initdb", *options], on_line=lines.append, account=binaries.account
        )
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
        settings = {**_SETTINGS, "unix_socket_directories": str(self._short_socket_folder or self._socket_folder)}
        if not self._durable:
            settings["fsync"] = "off"
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process, self._output = await spawn(
            [binaries.folder / "postgres", "-D", self._data, *options],
            on_line=self._on_line,
            death_signal=signal.SIGINT,
            account=binaries.account,
        )
        deadline = asyncio.get_running_loop().time() + _START_TIMEOUT_S
        while self._process.returncode is None:
            try:
                lines = _pid_file(self.state_dir).read_text().splitlines()
            except FileNotFoundError:
                lines = []
            if len(lines) >= 8 and lines[7].strip() == "ready" and int(lines[0]) == self._process.pid:
                return True
            if asyncio.get_running_loop().time() > deadline:
                raise PostgresError(f"The built-in PostgreSQL was not ready within {_START_TIMEOUT_S} seconds.")
            await asyncio.sleep(_POLL_S)
        await self._output
        return False

    async def _make_database(self) -> None:
        url = socket_url(self._short_socket_folder or self._socket_folder, "postgres")
        try:
            async with await psycopg.AsyncConnection.connect(
                url, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S
            ) as connection:
                found = await connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
                if await found.fetchone() is None:
                    await connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        except psycopg.Error as error:
            raise PostgresError(
                f"The built-in PostgreSQL started, but creating the database failed: {str(error).strip()}."
            ) from error
