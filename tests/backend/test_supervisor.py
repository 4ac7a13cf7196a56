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
from tests.support.polling import poll_async

from coresteer.cli.supervisor import running_address
from coresteer.postgres import running_url

START_TIMEOUT_S = 60
END_TIMEOUT_S = 20


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
        async with asyncio.timeout(START_TIMEOUT_S):
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
        children = psutil.Process(self.process.pid).children()
        return next(child for child in children if word in " ".join(child.cmdline()))

    async def is_healthy(self) -> bool:
        """Return whether the backend answers that it is; False while nothing listens."""

        def get() -> bool:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            try:
                with opener.open(f"http://127.0.0.1:{self.port}/api/health", timeout=10) as answer:
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
    """Those that are still there after END_TIMEOUT_S."""
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, END_TIMEOUT_S)
    return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


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
        names = " ".join(" ".join(process.cmdline()) for process in processes)
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
        await poll_async(up.is_healthy, timeout_s=START_TIMEOUT_S)


async def test_it_stops_at_once_when_asked_while_it_starts(state_dir: Path) -> None:
    async with coresteer_up(state_dir) as up:
        await poll_async(up.processes, timeout_s=START_TIMEOUT_S, interval_s=0.01)
        processes = up.processes()
        up.process.send_signal(signal.SIGINT)
        await up.process.communicate()
        assert await gone(processes) == []


@pytest.mark.slow("starts database, backend and agent more than once")
async def test_an_agent_that_lost_its_state_gets_its_node_back(state_dir: Path) -> None:
    for _ in range(2):
        async with coresteer_up(state_dir) as up:
            await up.until("Ctrl-C stops it")
            await poll_async((state_dir / "agent/key.json").exists, timeout_s=START_TIMEOUT_S)
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
        async with asyncio.timeout(END_TIMEOUT_S):
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
