"""`coresteer up`: PostgreSQL, backend and local agent as supervised child processes."""

import asyncio
import fcntl
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from coresteer.accounts import unprivileged_accounts
from coresteer.cli.program import program_for
from coresteer.config import Config, is_loopback
from coresteer.extras import LOCAL
from coresteer.http_server.tls import note_authority
from coresteer.listen import listening_socket
from coresteer.paths import API
from coresteer.postgres import EmbeddedPostgres, PostgresError
from coresteer.postgres.backup import archive_settings
from coresteer.process import spawn, terminate

if TYPE_CHECKING:
    from coresteer.db import Database

_FIRST_RESTART_S = 0.5
_SLOWEST_RESTART_S = 30.0
_SETTLED_S = 60.0  # a child that ran longer than this is restarted without delay
_HEALTH_POLL_S = 0.05
# time to end after SIGTERM; with PostgreSQL's below the 10 s in which everything must stop
_AGENT_GRACE_S = 2.0
_BACKEND_GRACE_S = 4.5


_no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy for loopback


class StartError(Exception):
    """A child process did not start; the message says which and why."""


PrintLine: TypeAlias = Callable[[str], None]


def _prefixed(say: PrintLine, name: str) -> PrintLine:
    return lambda line: say(f"{name:8} | {line}")


class Child:
    """A child process that is restarted whenever it ends unexpectedly, after a pause that doubles."""

    def __init__(
        self,
        name: str,
        start: Callable[[], Awaitable[asyncio.subprocess.Process]],
        stop: Callable[[asyncio.subprocess.Process], Awaitable[None]],
        say: PrintLine,
    ) -> None:
        self.name = name
        self._say = say
        self._start = start
        self._stop = stop
        self.process: asyncio.subprocess.Process | None = None
        self._restarter: asyncio.Task[None] | None = None

    async def start(self) -> asyncio.subprocess.Process:
        """Start the child once; errors are raised to the caller."""
        self.process = await self._start()
        return self.process

    def keep_alive(self) -> None:
        """From now on, restart the child whenever it ends."""
        self._restarter = asyncio.create_task(self._keep_alive())

    async def stop(self) -> None:
        """Stop the child for good."""
        if self._restarter is not None:
            from coresteer.background import cancel  # noqa: PLC0415 - imports FastAPI, which other commands need not

            await cancel([self._restarter])
        if self.process is not None:
            await self._stop(self.process)

    async def _keep_alive(self) -> None:
        pause_s = _FIRST_RESTART_S
        clock = asyncio.get_running_loop().time
        while True:
            started = clock()
            if self.process is not None:
                status = await self.process.wait()
                how = f"by signal {-status}" if status < 0 else f"with status {status}"
                pause_s = _FIRST_RESTART_S if clock() - started > _SETTLED_S else pause_s
                self._say(f"The {self.name} ended {how}; restarting it in {pause_s:g} s.")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _SLOWEST_RESTART_S)
            try:
                self.process = await self._start()
                self._say(f"The {self.name} is running again.")
            except (PostgresError, OSError) as error:
                self.process = None
                self._say(f"The {self.name} did not start: {error} Retrying in {pause_s:g} s.")


def running_address(state_dir: Path) -> str | None:
    """Return the address of the backend of a running `coresteer up` with this state folder, None without one."""
    try:
        with (state_dir / "lock").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read() or None
    except OSError:
        pass  # there is no lock file, or it is another user's
    return None


@contextmanager
def only_one(state_dir: Path, address: str) -> Iterator[None]:
    """Hold the lock of the state folder, so that only one `coresteer up` uses it; the address is stored in it."""
    try:
        state_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        file = (state_dir / "lock").open("a")
    except OSError as error:
        raise StartError(
            f"The state folder {state_dir} cannot be used: {error.strerror}. Name another in CORESTEER_STATE_DIR."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(
                f"Coresteer is already running on {state_dir}. Stop it, or name another folder in "
                "CORESTEER_STATE_DIR and another port with --port."
            ) from None
        file.truncate(0)
        file.write(address)
        file.flush()
        yield


async def up(config: Config, say: PrintLine) -> int:
    """Run PostgreSQL, backend and agent until SIGINT, SIGTERM or SIGHUP.

    Raises StartError, PostgresError, ListenError and MissingExtraError.
    """
    LOCAL.require()
    if not is_loopback(urlsplit(config.address).hostname or ""):
        raise StartError(
            f"CORESTEER_HOST is {config.host}, but this machine's agent reaches the backend on loopback. Leave it at "
            "127.0.0.1 and let the proxy named in CORESTEER_PUBLIC_URL pass requests there."
        )
    if config.uses_tls:
        raise StartError(
            "`coresteer up` serves this machine only and uses no TLS. Unset CORESTEER_TLS and CORESTEER_TLS_CERT, and "
            "serve others with `coresteer serve --tls auto`, or through a proxy named in CORESTEER_PUBLIC_URL."
        )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    children: list[Child] = []
    with only_one(config.state_dir, config.public_address):
        listening_socket(config).close()
        note_authority(config)  # the backend's account may not write there
        work = asyncio.create_task(_start_all(config, children, say))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()  # raises the error that prevented the start
                await stopped
                say("Stopping.")
        finally:
            work.cancel()
            stopped.cancel()
            await asyncio.wait([work, stopped])  # once only: a start that is interrupted cleans up for seconds
            for child in reversed(children):
                await child.stop()
    return 0


async def _start_all(config: Config, children: list[Child], say: PrintLine) -> None:
    """Start the child processes in order: each needs those before it."""
    if os.geteuid() != 0:
        say("Running as an ordinary user: Coresteer only observes. Start it as root to change settings.")
    from coresteer.audit.export import give_file_to  # noqa: PLC0415 - takes half a second
    from coresteer.db import Database  # noqa: PLC0415

    url = config.database_url
    _, account = unprivileged_accounts()
    if url is None:
        postgres = EmbeddedPostgres(
            config.state_dir,
            pg_bin=config.pg_bin,
            on_line=_prefixed(say, "postgres"),
            settings=archive_settings(config.backup_dir) if config.backup_dir else None,
        )

        async def start_postgres() -> asyncio.subprocess.Process:
            await postgres.start()
            return postgres.process

        children.append(Child("database", start_postgres, lambda _: postgres.stop(), say))
        await children[-1].start()
        children[-1].keep_alive()
        url = postgres.backend_url
        owner = Database(postgres.url, config.migrations_dir)
        await owner.migrate(url)
        await owner.close()

    environment = {
        **{name: value for name, value in os.environ.items() if name != "CORESTEER_OWNER_URL"},
        "DATABASE_URL": url,
        "CORESTEER_PORT": str(config.port),
        "CORESTEER_STATE_DIR": str(config.state_dir.absolute()),
        "CORESTEER_SUPERVISED": "true",
        "PYTHONUNBUFFERED": "1",
    }
    program = await asyncio.to_thread(program_for, account, config)
    give_file_to(account, config.audit_export)

    async def start_backend() -> asyncio.subprocess.Process:
        argv: list[str | Path] = [program.python, "-m", "coresteer", "serve"]
        # its account cannot read the configuration's file, unless everybody can
        own = {**config.as_environment(), **environment, **program.environment}
        return (await spawn(argv, on_line=_prefixed(say, "backend"), environment=own, account=account))[0]

    backend = Child("backend", start_backend, lambda process: terminate(process, signal.SIGTERM, _BACKEND_GRACE_S), say)
    children.append(backend)
    process = await backend.start()
    from coresteer.cli.announce import announce  # noqa: PLC0415 - while the backend imports the same modules

    await _until_healthy(config, process, say)
    backend.keep_alive()

    database = Database(url, config.migrations_dir)
    argv = [sys.executable, "-m", "coresteer_agent", "run", "--backend", config.address]
    argv += ["--state-dir", str(config.state_dir.absolute())]
    if config.agent_root is not None:
        argv += ["--root", str(config.agent_root.absolute())]
    if token_file := await _enrolment_token_file(database, config.state_dir.absolute() / "agent"):
        argv += ["--token-file", str(token_file)]

    without_database = {name: value for name, value in environment.items() if "DATABASE_URL" not in name}

    async def start_agent() -> asyncio.subprocess.Process:
        return (await spawn(argv, on_line=_prefixed(say, "agent"), environment=without_database))[0]

    agent = Child("agent", start_agent, lambda process: terminate(process, signal.SIGTERM, _AGENT_GRACE_S), say)
    children.append(agent)
    await agent.start()
    agent.keep_alive()
    await announce(config, database, say)
    await database.close()
    say("Ctrl-C stops it.")


async def _until_healthy(config: Config, backend: asyncio.subprocess.Process, say: PrintLine) -> None:
    reported = False
    while backend.returncode is None:
        status = await asyncio.to_thread(_health, f"{config.address}{API}/health")
        if status == "ok":
            return
        if status == "degraded" and not reported:
            say("The backend is waiting for the database in DATABASE_URL, which does not answer yet.")
            reported = True
        await asyncio.sleep(_HEALTH_POLL_S)
    raise StartError("The backend did not start; see its output above.")


def _health(url: str) -> str | None:
    """Return whether the backend has its database (“ok”) or not (“degraded”), None when it does not answer."""
    try:
        with _no_proxy.open(url, timeout=5) as answer:
            return "ok" if b'"database":"ok"' in answer.read() else "degraded"
    except (urllib.error.URLError, OSError):
        return None


async def _enrolment_token_file(database: "Database", agent_dir: Path) -> Path | None:
    """Write a one-time token for this machine's agent; None when it has a key that this database knows.

    A revoked key counts as known, so that a restart cannot override an administrator's decision.
    """
    from coresteer.gateway.enrolment import LOCAL_AGENT, new_enrolment_token  # noqa: PLC0415 - as above
    from coresteer.gateway.enrolment_schemas import EnrolmentTokenCreate  # noqa: PLC0415
    from coresteer.nodes.service import hash_key  # noqa: PLC0415
    from coresteer.nodes.tables import NodeRow  # noqa: PLC0415

    path = agent_dir / "enrolment-token"
    path.unlink(missing_ok=True)
    async with database.session() as session:
        stored = _stored_key(agent_dir / "key.json")
        node = await session.get(NodeRow, stored[0]) if stored else None
        if stored and node and node.key_hash in (None, hash_key(stored[1])):
            return None
        new = await new_enrolment_token(session, LOCAL_AGENT, EnrolmentTokenCreate())
    _write_private(path, new.token)
    return path


def _write_private(path: Path, text: str) -> None:
    """Write a new file that only this user can read."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _stored_key(path: Path) -> tuple[int, str] | None:
    """Return the agent's node id and key as stored at its enrolment, None without them."""
    try:
        stored = json.loads(path.read_bytes())
        return int(stored["node_id"]), str(stored["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
