import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.support.polling import PATIENCE_S, poll_async
from tests.support.processes import command_line

from coresteer.accounts import unprivileged_accounts
from coresteer.cli.program import program_for
from coresteer.cli.supervisor import running_address
from coresteer.config import Config
from coresteer.postgres import running_url
from coresteer_agent.linux.capabilities import NEEDED


@pytest.fixture
def state_dir() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="coresteer-up-"))
    yield folder
    shutil.rmtree(folder)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@dataclass
class Up:
    """A running ``coresteer up``."""

    process: asyncio.subprocess.Process
    port: int
    output: str = ""
    seen: list[psutil.Process] = field(default_factory=list)

    async def until(self, pattern: str) -> re.Match[str]:
        """Read its output until the pattern occurs in what has not been matched yet."""
        assert self.process.stdout is not None
        async with asyncio.timeout(3 * PATIENCE_S):  # to start takes a slow machine more than a minute
            while not (match := re.search(pattern, self.output)):
                line = await self.process.stdout.readline()
                if not line:
                    raise AssertionError(f"it ended before {pattern!r}:\n{self.output}")
                self.output += line.decode()
        self.output = self.output[match.end() :]
        return match

    def processes(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, word: str) -> psutil.Process:
        """The direct child whose command line holds the word."""
        return next(child for child in psutil.Process(self.process.pid).children() if word in command_line(child))

    async def is_healthy(self) -> bool:
        """Return whether the backend answers that it is; False while nothing listens."""

        def get() -> bool:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            try:
                with opener.open(f"http://127.0.0.1:{self.port}/api/v1/health", timeout=PATIENCE_S) as answer:
                    return bool(json.load(answer)["status"] == "ok")
            except urllib.error.URLError:
                return False

        return await asyncio.to_thread(get)


async def run(state_dir: Path, port: int) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if "DATABASE_URL" not in name}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "coresteer", "up", "--port", str(port)),
        env={**environment, "CORESTEER_STATE_DIR": str(state_dir), "PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


@asynccontextmanager
async def coresteer_up(state_dir: Path) -> AsyncIterator[Up]:
    port = free_port()
    up = Up(await run(state_dir, port), port)
    try:
        yield up
    finally:
        if up.process.returncode is None:
            up.process.send_signal(signal.SIGINT)
            await up.process.communicate()


async def gone(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that are still there after PATIENCE_S."""
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, PATIENCE_S)
    return [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_it_starts_everything_and_leaves_no_process_however_it_is_ended(
    state_dir: Path, how: signal.Signals
) -> None:
    async with coresteer_up(state_dir) as up:
        link = await up.until(r"http://127\.0\.0\.1:(\d+)/setup\?token=\S+")
        assert link[1] == str(up.port)
        await up.until("Ctrl-C stops it")
        assert await up.is_healthy()
        processes = up.processes()
        names = " ".join(map(command_line, processes))
        for word in ("postgres", "coresteer serve", "coresteer_agent run"):
            assert word in names
        up.process.send_signal(how)
        output, _ = await up.process.communicate()
        assert await gone(processes) == []
        if how != signal.SIGKILL:
            assert up.process.returncode == 0, output.decode()


@pytest.mark.slow("starts database, backend and agent more than once")
async def test_it_starts_again_on_the_state_that_a_kill_left_behind(state_dir: Path) -> None:
    async with coresteer_up(state_dir) as up:
        await up.until("Ctrl-C stops it")
        processes = up.processes()
        up.child("postgres").kill()
        up.process.kill()
        await up.process.communicate()
    async with coresteer_up(state_dir) as up:
        await up.until("Ctrl-C stops it")
        assert await up.is_healthy()
    assert await gone(processes) == []


@pytest.mark.slow("starts database, backend and agent more than once")
async def test_a_child_that_dies_is_restarted_with_a_message(state_dir: Path) -> None:
    async with coresteer_up(state_dir) as up:
        await up.until("Ctrl-C stops it")
        for name, word in (("agent", "coresteer_agent"), ("backend", "serve"), ("database", "bin/postgres")):
            up.child(word).kill()
            await up.until(f"The {name} ended by signal 9; restarting it")
            await up.until(f"The {name} is running again")
        await poll_async(up.is_healthy)


async def test_it_stops_at_once_when_asked_while_it_starts(state_dir: Path) -> None:
    async with coresteer_up(state_dir) as up:
        await poll_async(up.processes, interval_s=0.01)
        processes = up.processes()
        up.process.send_signal(signal.SIGINT)
        await up.process.communicate()
        assert await gone(processes) == []


@pytest.mark.slow("starts database, backend and agent more than once")
async def test_an_agent_that_lost_its_state_gets_its_node_back(state_dir: Path) -> None:
    for _ in range(2):
        async with coresteer_up(state_dir) as up:
            await up.until("Ctrl-C stops it")
            await poll_async((state_dir / "agent/key.json").exists)
            kept = json.loads((state_dir / "agent/key.json").read_bytes())
            assert "DATABASE_URL" not in up.child("coresteer_agent").environ()
            url = running_url(state_dir)
            assert url is not None
            async with await psycopg.AsyncConnection.connect(url) as connection:
                cursor = await connection.execute("SELECT action FROM audit WHERE action LIKE 'node.%' ORDER BY id")
                actions = [row[0] for row in await cursor.fetchall()]
        assert kept["node_id"] == 1
        shutil.rmtree(state_dir / "agent")
    assert actions == ["node.enrol", "node.re-enrol"]


async def test_it_ends_when_its_output_is_no_longer_read(state_dir: Path) -> None:
    async with coresteer_up(state_dir) as up:
        await up.until("Ctrl-C stops it")
        processes = up.processes()
        transport = up.process._transport  # type: ignore[attr-defined]  # asyncio has no other way
        transport.get_pipe_transport(1).close()
        up.child("coresteer_agent").kill()  # gives it something to say
        async with asyncio.timeout(PATIENCE_S):
            await up.process.wait()
        assert await gone(processes) == []


async def test_the_set_up_link_names_the_port_that_it_runs_on(state_dir: Path) -> None:
    async with coresteer_up(state_dir) as up:
        await up.until("Ctrl-C stops it")
        assert running_address(state_dir) == f"http://127.0.0.1:{up.port}"
        second = await run(state_dir, free_port())
        await second.communicate()
        assert running_address(state_dir) == f"http://127.0.0.1:{up.port}"
    assert running_address(state_dir) is None


async def test_a_second_start_on_the_same_state_is_refused_with_a_sentence(state_dir: Path) -> None:
    async with coresteer_up(state_dir) as up:
        await up.until("Ctrl-C stops it")
        second = await run(state_dir, free_port())
        output, _ = await second.communicate()
        assert second.returncode == 1
        assert f"Coresteer is already running on {state_dir}" in output.decode()
        assert "Traceback" not in output.decode()
        assert await up.is_healthy()


async def test_a_busy_port_is_an_error_that_names_the_option(state_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = await run(state_dir, listener.getsockname()[1])
        output, _ = await process.communicate()
    assert process.returncode == 1
    assert re.search(r"Port \d+ on 127\.0\.0\.1 is in use already.*--port", output.decode())
    assert "Traceback" not in output.decode()


def capabilities(process: psutil.Process) -> int:
    """The effective capabilities of a process as a mask."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("\nCapEff:")[2].split()[0], 16)


def may_gain_none(process: psutil.Process) -> bool:
    """Whether no program that the process starts can have more privileges."""
    return "\nNoNewPrivs:\t1\n" in Path(f"/proc/{process.pid}/status").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs them as other accounts")
async def test_as_root_backend_and_database_run_under_two_accounts_without_privileges(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = state_dir / "audit.jsonl"
    monkeypatch.setenv("CORESTEER_AUDIT_EXPORT", str(exported))
    async with coresteer_up(state_dir) as up:
        await up.until("Ctrl-C stops it")
        await poll_async(lambda: exported.exists() and b"enrolment-token.create" in exported.read_bytes())
        backend, database, agent = (up.child(word) for word in ("coresteer serve", "bin/postgres", "coresteer_agent"))
        assert 0 not in {backend.uids().effective, database.uids().effective}
        assert backend.uids().effective != database.uids().effective
        assert [capabilities(process) for process in (backend, database)] == [0, 0]
        assert [may_gain_none(process) for process in (backend, database, agent)] == [True] * 3
        needed = sum(1 << bit for bit in NEEDED.values())
        await poll_async(lambda: capabilities(agent) & ~needed == 0)
        url = running_url(state_dir)
        assert url is not None
        for role, password in (("coresteer", None), ("coresteer_backend", None), ("coresteer", "coresteer")):
            wanted = make_conninfo(url, user=role, password=password or "wrong")
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                await psycopg.AsyncConnection.connect(wanted)
        socket_folder = Path(str(conninfo_to_dict(url)["host"]))
        for path in (socket_folder, state_dir / "postgres/data", state_dir / "database-passwords.json"):
            argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ls", "-d", f"{path}/."]
            refused = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.DEVNULL)
            assert await refused.wait() != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the backend as another account")
async def test_a_program_that_the_backends_account_cannot_read_runs_from_a_copy_of_roots(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coresteer.cli.program._can_run", lambda _: False)
    _, account = unprivileged_accounts()
    assert account is not None
    state_dir.chmod(0o711)  # noqa: ASYNC240 - one call
    umask = os.umask(0o077)  # of root on hardened machines
    try:
        for _ in range(2):
            found = program_for(account, Config(state_dir=state_dir))
    finally:
        os.umask(umask)
    argv = [str(found.python), "-m", "coresteer", "--help"]
    ran = await asyncio.create_subprocess_exec(
        *argv, env={**found.environment}, cwd="/", user=account.uid, group=account.gid, extra_groups=[]
    )
    assert await ran.wait() == 0
    assert found.python.is_relative_to(state_dir)
    for path in (state_dir / "program").rglob("*"):
        kept = path.lstat()
        assert (kept.st_uid, kept.st_mode & 0o022) == (0, 0) or path.is_symlink(), path
