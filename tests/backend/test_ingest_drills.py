"""Kills the backend and PostgreSQL again and again while an agent streams and replays."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from tests.backend.conftest import MIGRATIONS, running_backend
from tests.backend.fake_agent import FakeAgent, enrolled, rates, stored_seqs
from tests.support.polling import PATIENCE_S
from websockets.exceptions import WebSocketException

from coresteer.db import Database
from coresteer.live.hub import Browser, LiveHub, Subscription
from coresteer.postgres import EmbeddedPostgres
from coresteer_core.protocol import Ack, RatesMessage, decode_to_agent

KILLS = 10


@dataclass
class Stream:
    """A streaming agent that reconnects for ever. produced: the last sample made; acked: the last acknowledged."""

    agent: FakeAgent
    produced: int = 0
    acked: int = 0
    heard: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self) -> None:
        while True:
            with contextlib.suppress(WebSocketException, OSError, EOFError):
                async with asyncio.timeout(5):
                    await self.agent.connect()
                    await self.agent.greet(first_seq=self.acked + 1)
                # what was acknowledged must never be asked for again
                assert self.agent.acked >= self.acked
                await self.hear(self.agent.acked)
                await self._stream(self.agent.acked)
            await asyncio.sleep(0.05)

    async def _stream(self, sent: int) -> None:
        while True:
            self.produced = max(self.produced, sent + 1)
            while sent < self.produced:
                sent += 1
                await self.agent.say(RatesMessage(rates(sent)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    message = decode_to_agent(await self.agent.receive())
                    if isinstance(message, Ack):
                        await self.hear(message.seq)

    async def hear(self, acked: int) -> None:
        async with self.heard:
            self.acked = max(self.acked, acked)
            self.heard.notify_all()

    async def until_acked(self, seq: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            async with self.heard:
                await self.heard.wait_for(lambda: self.acked >= seq)


@dataclass
class World:
    """A PostgreSQL that keeps what it acknowledges, and a backend in a process of its own."""

    postgres: EmbeddedPostgres
    database: Database
    port: int
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start_backend(self) -> None:
        environment = os.environ | {
            "DATABASE_URL": self.postgres.backend_url,
            "CORESTEER_PORT": str(self.port),
            "CORESTEER_CHUNK_SECONDS": "1",
            "CORESTEER_SUPERVISED": "1",
        }
        self.process = await asyncio.create_subprocess_exec(sys.executable, "-m", "coresteer", "serve", env=environment)

    async def kill_backend(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()


class Page(Browser):
    """A browser's place in the backend, from which the test reads the sequence numbers it is shown."""

    def __init__(self, shown: asyncio.Queue[int]) -> None:
        super().__init__()
        self.shown = shown

    def send(self, frame: bytes | str) -> None:
        if isinstance(frame, bytes):
            (length,) = struct.unpack_from("<I", frame)
            self.shown.put_nowait(json.loads(frame[4 : 4 + length])["seq"])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world() -> AsyncIterator[World]:
    state_dir = Path(tempfile.mkdtemp(prefix="coresteer-drill-"))
    postgres = EmbeddedPostgres(state_dir)
    await postgres.start()
    await Database(postgres.url, MIGRATIONS).migrate(postgres.backend_url)
    database = Database(postgres.backend_url, MIGRATIONS)
    await database.open()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    world = World(postgres, database, port)
    await world.start_backend()
    try:
        yield world
    finally:
        await world.kill_backend()
        await database.close()
        await postgres.stop()
        shutil.rmtree(state_dir)


@contextlib.asynccontextmanager
async def streaming(world: World, name: str) -> AsyncIterator[Stream]:
    """A stream; at the end everything acknowledged must be stored, and nothing twice."""
    stream = Stream(await enrolled(world.database, world.url, name))
    running = asyncio.create_task(stream.run())
    try:
        await stream.until_acked(1)
        yield stream
        await stream.until_acked(stream.produced)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    stored = await stored_seqs(world.postgres.url, stream.agent.node_id)
    assert stored[: stream.acked] == list(range(1, stream.acked + 1))
    assert len(set(stored)) == len(stored)


@pytest.mark.slow("starts a server again for each kill")
async def test_killing_the_backend_loses_and_doubles_nothing(world: World) -> None:
    async with streaming(world, "backend-killed") as stream:
        for round_ in range(KILLS):
            await stream.until_acked(stream.produced + round_ % 3)
            await asyncio.sleep(0.13 * (round_ % 5))  # so that the kill falls into another moment of its work
            await world.kill_backend()
            await world.start_backend()


@pytest.mark.slow("starts a server again for each kill")
async def test_killing_postgresql_loses_and_doubles_nothing_and_the_backend_recovers(world: World) -> None:
    async with streaming(world, "postgres-killed") as stream:
        for round_ in range(KILLS):
            await stream.until_acked(stream.produced + round_ % 3)
            await asyncio.sleep(0.13 * (round_ % 5))  # as above
            world.postgres.process.send_signal(signal.SIGKILL)
            await world.postgres.process.wait()
            await world.postgres.start()
    assert world.process is not None and world.process.returncode is None


async def test_what_is_live_goes_on_without_a_database_and_is_stored_when_it_is_back(world: World) -> None:
    async with running_backend(world.postgres.url, chunk_seconds=1) as backend:
        agent = await enrolled(backend.database, backend.url, "live-without-database")
        live: LiveHub = backend.app.state.live
        shown: asyncio.Queue[int] = asyncio.Queue()
        page = Page(shown)
        live.subscribe(page, Subscription(node=agent.node_id))
        async with asyncio.timeout(PATIENCE_S), agent:
            world.postgres.process.send_signal(signal.SIGKILL)
            await world.postgres.process.wait()
            for seq in range(1, 31):
                await agent.send_rates([rates(seq)])
                assert await shown.get() == seq
                await asyncio.sleep(0.1)  # three seconds in all: several attempts to store
            assert agent.acked == 0
            await world.postgres.start()
            await agent.until_acked(30)
        live.subscribe(page, Subscription())
    assert await stored_seqs(world.postgres.url, agent.node_id) == list(range(1, 31))
