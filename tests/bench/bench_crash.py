"""Kills backend, database or agent at random instants while changes are open, and counts what was lost.

    python -m tests.bench.bench_crash [--kills 1000] [--seed 1601]

PostgreSQL keeps what it acknowledges (fsync on), backend and agent are processes of their own; the agent works on a
small captured tree. Meanwhile a second agent streams numbered samples and records which were acknowledged, and an
operator moves interrupts, confirms, undoes or leaves the change open. After every ROUND kills the agent is killed once
more and `coresteer-agent restore` must put every setting back. Exits with 1 if a sample or a setting was lost.
"""

import argparse
import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import requests
from fastapi import FastAPI
from tests.agent.test_loop import plant
from tests.backend.conftest import MIGRATIONS, Backend, Client
from tests.backend.fake_agent import enrolled, stored_seqs
from tests.backend.test_ingest_drills import Stream, World
from tests.backend.test_postgres import execute
from tests.support.polling import poll_async

from coresteer.db import Database
from coresteer.gateway.enrolment import new_enrolment_token
from coresteer.gateway.enrolment_schemas import EnrolmentTokenCreate
from coresteer.postgres import EmbeddedPostgres

ROUND = 50
MEAN_PAUSE_S = 0.8
"""Between kills: about as long as the backend takes to start, so that some fall into a start."""
PATIENCE_S = 300.0
IRQS = (41, 42)
FOUND = "0-1"


@dataclass
class Node:
    """The agent on its tree."""

    folder: Path
    url: str
    process: asyncio.subprocess.Process | None = None

    def plant(self, token: str) -> None:
        plant(self.folder / "root")
        (self.folder / "token").write_text(token)

    def command(self, *arguments: str) -> list[str]:
        folders = ["--root", str(self.folder / "root"), "--state-dir", str(self.folder / "state")]
        return [sys.executable, "-m", "coresteer_agent", *arguments, *folders]

    async def start(self) -> None:
        command = self.command("run", "--backend", self.url, "--interval", "0.2")
        with (self.folder / "log").open("a") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, "--token-file", str(self.folder / "token"), stderr=log, stdout=log
            )

    async def kill(self) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    def restored(self) -> bool:
        """Restore every setting with the agent's command, and return whether all are as they were found."""
        done = subprocess.run(self.command("restore"), check=False, capture_output=True, text=True)
        values = {irq: (self.folder / f"root/proc/irq/{irq}/smp_affinity_list").read_text().strip() for irq in IRQS}
        if done.returncode == 0 and set(values.values()) == {FOUND}:
            return True
        print(f"NOT RESTORED: {values}\n{done.stdout}{done.stderr}")
        return False


@dataclass
class Operator:
    """Moves interrupts for as long as it runs. outcomes: of its requests."""

    client: Client
    node_id: int
    random: Random
    outcomes: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        while True:
            try:
                await self.change()
            except (requests.RequestException, KeyError, ValueError):  # the backend is not there
                self.outcomes["not answered"] += 1
            await asyncio.sleep(0.05)

    async def change(self) -> None:
        listed = (await self.client.get(f"/api/v1/changes?node_id={self.node_id}&open=true")).json()
        for change in listed["changes"]:
            await self.end(change["id"])
        desired = [{"key": f"irq/{irq}/affinity", "value": self.random.choice("01")} for irq in IRQS]
        previewed = await self.client.post(f"/api/v1/nodes/{self.node_id}/previews", {"desired": desired})
        plan = previewed.json()["plan"]
        if plan["actions"]:
            answer = await self.client.post(f"/api/v1/nodes/{self.node_id}/changes", {"plan": plan})
            self.outcomes["applied" if answer.status_code == 201 else "refused"] += 1
            await self.end(answer.json()["id"])

    async def end(self, change_id: str) -> None:
        verb = self.random.choice(("confirm", "rollback", None))
        if verb is None:
            self.outcomes["left open"] += 1
            return
        answer = await self.client.post(f"/api/v1/changes/{change_id}/{verb}")
        self.outcomes[f"{verb}: {answer.status_code}"] += 1


@dataclass
class Counts:
    kills: Counter[str] = field(default_factory=Counter)
    restores: int = 0
    not_restored: int = 0


async def crashes(kills: int, random: Random, world: World, node: Node, stream: Stream) -> Counts:
    """Kill one of the three again and again; after each round check that the agent's settings can be restored."""
    counts = Counts()
    for number in range(1, kills + 1):
        await asyncio.sleep(random.expovariate(1 / MEAN_PAUSE_S))
        victim = random.choice(("backend", "database", "agent"))
        counts.kills[victim] += 1
        match victim:
            case "backend":
                await world.kill_backend()
                await world.start_backend()
            case "database":
                world.postgres.process.kill()
                await world.postgres.process.wait()
                await world.postgres.start()
            case "agent":
                await node.kill()
                await node.start()
        if number % ROUND and number != kills:
            continue
        async with asyncio.timeout(PATIENCE_S):
            await stream.until_acked(stream.produced)
        await asyncio.sleep(random.uniform(0.5, 3))  # some operations further
        await node.kill()
        counts.restores += 1
        counts.not_restored += not await asyncio.to_thread(node.restored)
        await node.start()
        print(f"{number} kills, {stream.acked} samples acknowledged", flush=True)
    return counts


async def main(kills: int, seed: int, folder: Path) -> int:
    """Run it in an empty folder and print the figures; return the exit code."""
    postgres = EmbeddedPostgres(folder / "postgres-state")
    await postgres.start()
    await Database(postgres.url, MIGRATIONS).migrate(postgres.backend_url)
    database = Database(postgres.backend_url, MIGRATIONS)
    await database.open()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    world = World(postgres, database, port)
    await world.start_backend()
    node = Node(folder, world.url)
    tasks: list[asyncio.Task[None]] = []
    try:
        async with database.session() as session:
            token = await new_enrolment_token(session, "bench", EnrolmentTokenCreate())
        node.plant(token.token)
        await node.start()
        stream = Stream(await enrolled(database, world.url, "streaming"))
        tasks.append(asyncio.create_task(stream.run()))
        async with asyncio.timeout(PATIENCE_S):
            await stream.until_acked(1)
            node_id = await until_enrolled(postgres.url, stream.agent.node_id)
        client = await Backend(world.url, FastAPI(), database).client("operator")
        await database.close()
        operator = Operator(client, node_id, Random(seed + 1))  # noqa: S311 - repeatable
        tasks.append(asyncio.create_task(operator.run()))
        counts = await crashes(kills, Random(seed), world, node, stream)  # noqa: S311 - repeatable
        for task in tasks:
            task.cancel()
        stored = await stored_seqs(postgres.url, stream.agent.node_id)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await node.kill()
        await world.kill_backend()
        await database.close()
        await postgres.stop()
    lost = len(set(range(1, stream.acked + 1)) - set(stored))
    doubled = len(stored) - len(set(stored))
    print(f"kills: {sum(counts.kills.values())} ({', '.join(f'{k} {n}' for k, n in sorted(counts.kills.items()))})")
    print(f"samples: {stream.acked} acknowledged, {lost} of them lost, {doubled} stored twice")
    print(f"changes: {', '.join(f'{name} {n}' for name, n in sorted(operator.outcomes.items()))}")
    print(f"restores after a kill: {counts.restores}, with a setting that was not restored: {counts.not_restored}")
    return int(bool(lost or doubled or counts.not_restored))


async def until_enrolled(url: str, other: int) -> int:
    """Wait until the agent has enrolled, and return its node's id. other: the id of the streaming node."""
    found: list[tuple[object, ...]] = []

    async def is_enrolled() -> bool:
        found[:] = await execute(url, f"SELECT id FROM node WHERE id <> {other}")  # noqa: S608 - an int
        return bool(found)

    await poll_async(is_enrolled)
    return int(str(found[0][0]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1601)
    arguments = parser.parse_args()
    os.environ.pop("DATABASE_URL", None)
    temporary = Path(tempfile.mkdtemp(prefix="coresteer-crash-"))
    temporary.chmod(0o711)  # the server's account passes through
    try:
        sys.exit(asyncio.run(main(arguments.kills, arguments.seed, temporary)))
    finally:
        shutil.rmtree(temporary)
