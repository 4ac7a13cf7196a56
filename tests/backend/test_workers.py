"""`coresteer serve --workers`: several backends on one port."""

import asyncio
import os
import signal
import socket
import sys

import psutil
import pytest
from fastapi import FastAPI
from tests.backend.conftest import Backend
from tests.support.polling import PATIENCE_S, poll_async

from coresteer.db import Database


@pytest.mark.slow("starts four backends, each of which imports the whole program")
async def test_workers_are_backends_on_one_port_and_one_that_ends_is_started_again(database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    without = {name: value for name, value in os.environ.items() if not name.startswith("CORESTEER_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "coresteer", "serve", "--workers", "2", "--port", str(port)),
        env=without | {"DATABASE_URL": database.url},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None

    async def until(what: str) -> None:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while what not in (line := (await process.stdout.readline()).decode()):
                assert line, f"it ended before it printed {what!r}"

    async def names() -> list[str]:
        async with database.pool.connection() as connection:
            cursor = await connection.execute("SELECT name FROM replica ORDER BY id")
            return [name.partition(":")[2] for (name,) in await cursor.fetchall()]

    def listening() -> list[int]:
        found = psutil.Process(process.pid).children(recursive=True)
        return [
            child.pid
            for child in found
            if any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in child.net_connections())
        ]

    try:
        await until("Without CORESTEER_NATS_URL")
        await until("Create the first administrator")
        await poll_async(lambda: len(listening()) == 2)
        assert sorted(await names()) == [f"{port} worker 1", f"{port} worker 2"]
        viewer = await Backend(f"http://127.0.0.1:{port}", FastAPI(), database).client("viewer")

        async def is_led_by_one() -> bool:
            return "\ncoresteer_leader 1.0\n" in (await viewer.get("/metrics")).text

        await poll_async(is_led_by_one)
        os.kill(first := listening()[0], signal.SIGKILL)
        await until("it is started again")
        await poll_async(lambda: len(listening()) == 2 and first not in listening())
        process.terminate()
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
        assert len(await names()) == 1, "only the killed one has left its row"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_port_that_is_in_use_is_named_although_workers_share_theirs(database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "coresteer", "serve", "--workers", "2", "--port", str(listener.getsockname()[1])),
            env={**os.environ, "DATABASE_URL": database.url},
            stderr=asyncio.subprocess.PIPE,
        )
        _, complaint = await process.communicate()
    assert process.returncode == 1 and b"is in use already" in complaint
