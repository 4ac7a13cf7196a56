"""Kills, freezes and partitions replicas, NATS and the database while a fleet sends; counts what was lost.

    python -m tests.bench.bench_faults [--kills 100] [--freezes 10] [--partitions 10] [--nodes 100] [--replicas 3]

Every program is a process of its own: PostgreSQL, which keeps what it acknowledges (fsync on), nats-server, replicas of
the backend, and simulated agents behind a load balancer that takes turns. A rollout of a policy is in progress, and an
operator applies and confirms changes through any replica. A fault begins when the fleet has recovered from the one
before: all nodes are connected, and samples of all that were made after it are stored. A killed program starts again
after up to 3 s; a frozen one (SIGSTOP) continues after 60 s; a partition separates a replica from the database, NATS or
its agents for 40 s, without closing a connection. Exits with 1 if an acknowledged sample was lost or one was stored
twice, the rollout or a confirmed change was rolled back, or the fleet did not recover.
"""

import argparse
import asyncio
import itertools
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from urllib.parse import quote

import psycopg
import requests
from psycopg.conninfo import conninfo_to_dict
from tests.backend.conftest import Client
from tests.bench.bench_upgrade import PATIENCE_S, Group, begin_rollout, connected, stored
from tests.bench.drill import run_drill
from tests.support.nats import NatsServer
from tests.support.polling import poll_async
from tests.support.wire import Streams, Wire
from tests.upgrade.installation import BackendProcess, Installation, Operator
from tests.upgrade.releases import TODAY

from coresteer.postgres import EmbeddedPostgres

LONGEST_PAUSE_S = 3.0
"""Before a killed program starts again."""
IRQ = 33
"""An interrupt of half of the simulated nodes that no policy of the bench moves."""
CPUS = 8
_REQUEST_S = 15.0
_RECOVERY_S = 13.0
"""Time for each recovery in the duration of the agents; the mean is less, as agents return within 20 s of a kill."""


@dataclass
class Replica:
    """A replica of the backend, and its connections: to the database, to NATS and from agents."""

    process: BackendProcess
    wires: dict[str, Wire]
    front_port: int


@dataclass(frozen=True)
class Fault:
    """A fault. begin, end: called once each. lasts_s: the time between."""

    kind: str
    victim: str
    begin: Callable[[], Awaitable[None]]
    end: Callable[[], Awaitable[None]]
    lasts_s: float


@dataclass
class Load:
    """An operator's changes while faults happen. outcomes: of the attempts; confirmed: ids of confirmed changes."""

    client: Client
    nodes: list[int]
    outcomes: Counter[str] = field(default_factory=Counter)
    confirmed: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Move an interrupt and confirm it, again and again."""
        for node_id in itertools.cycle(self.nodes):
            await asyncio.sleep(0.2)
            try:
                async with asyncio.timeout(_REQUEST_S):
                    self.outcomes[await self._change(node_id)] += 1
            except (requests.RequestException, TimeoutError):
                self.outcomes["not answered"] += 1

    async def _change(self, node_id: int) -> str:
        path = f"/nodes/{node_id}"
        desired = [{"key": f"irq/{IRQ}/affinity", "value": str(len(self.confirmed) % 2)}]
        previewed = await self.client.post(f"{path}/previews", {"desired": desired})
        if not previewed.ok:
            return f"preview refused with {previewed.status_code}"
        plan = previewed.json()["plan"]
        if not plan["actions"]:
            return "nothing to change"
        applied = await self.client.post(f"{path}/changes", {"plan": plan})
        if not applied.ok:
            return f"change refused with {applied.status_code}"
        change_id = applied.json()["id"]

        async def is_applied() -> bool:
            found = await self.client.get(f"/changes/{change_id}")
            return bool(found.ok and found.json()["state"] != "applying")

        await poll_async(is_applied, interval_s=0.1)
        answer = await self.client.post(f"/changes/{change_id}/confirm")
        if not answer.ok:
            return f"confirmation refused with {answer.status_code}"
        self.confirmed.append(change_id)
        return "confirmed"


async def start_replica(made: Installation, nats: NatsServer) -> Replica:
    """Start a replica that reaches everything through wires of its own."""
    server = conninfo_to_dict(made.url)
    folder = Path(tempfile.mkdtemp(dir=made.folder))
    database = Wire(lambda: asyncio.open_unix_connection(f"{server['host']}/.s.PGSQL.5432"))
    await database.serve_at(folder / ".s.PGSQL.5432")
    broker = Wire(lambda: asyncio.open_connection("127.0.0.1", nats.port))
    nats_url = nats.url.replace(f":{nats.port}", f":{await broker.serve()}")
    url = made.url.replace(quote(str(server["host"]), safe=""), quote(str(folder), safe=""))
    process = await made.backend(TODAY, database_url=url, CORESTEER_NATS_URL=nats_url)
    agents = Wire(lambda: asyncio.open_connection("127.0.0.1", process.port))
    return Replica(process, {"database": database, "NATS": broker, "agents": agents}, await agents.serve())


def balancer(replicas: Sequence[Replica]) -> Wire:
    """Return a load balancer: connections to the replicas in turn, and to the next one where nothing listens."""
    turns = itertools.count()

    async def connect() -> Streams:
        for turn in itertools.islice(turns, len(replicas)):
            replica = replicas[turn % len(replicas)]
            if replica.process.is_running:  # its wire accepts even if it is not
                return await asyncio.open_connection("127.0.0.1", replica.front_port)
        raise ConnectionRefusedError

    return Wire(connect)


def schedule(
    arguments: argparse.Namespace, replicas: Sequence[Replica], nats: NatsServer, postgres: EmbeddedPostgres
) -> list[Fault]:
    """Return all faults in a random order, each kind in turn over its victims."""
    random = Random(arguments.seed)  # noqa: S311 - repeatable

    async def call(function: Callable[[], object]) -> None:
        function()

    async def kill_postgres() -> None:
        postgres.process.kill()
        await postgres.process.wait()

    def frozen(victim: str, send: Callable[[int], object]) -> Fault:
        begin, end = (partial(call, partial(send, number)) for number in (signal.SIGSTOP, signal.SIGCONT))
        return Fault("freeze", victim, begin, end, arguments.freeze_s)

    def killed(victim: str, begin: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]) -> Fault:
        return Fault("kill", victim, begin, end, random.uniform(0, LONGEST_PAUSE_S))

    def partitioned(victim: str, wire: Wire) -> Fault:
        return Fault("partition", victim, partial(call, wire.cut), partial(call, wire.mend), arguments.partition_s)

    kills = [
        *(partial(killed, "replica", partial(one.process.end, kill=True), one.process.start) for one in replicas),
        partial(killed, "NATS", partial(call, nats.kill), partial(call, nats.start)),
        partial(killed, "database", kill_postgres, postgres.start),
    ]
    freezes = [
        *(partial(frozen, "replica", one.process.signal) for one in replicas),
        partial(frozen, "NATS", nats.signal),
        partial(frozen, "database", lambda number: os.killpg(postgres.process.pid, number)),
    ]
    partitions = [
        partial(partitioned, f"replica and {name}", wire) for one in replicas for name, wire in one.wires.items()
    ]
    counted = ((arguments.kills, kills), (arguments.freezes, freezes), (arguments.partitions, partitions))
    faults = [make[n % len(make)]() for count, make in counted for n in range(count)]
    random.shuffle(faults)
    return faults


async def recovered(owner_url: str, nodes: int, since: float) -> bool:
    """Return whether samples of all nodes that were made after a moment are stored, and all nodes are connected."""
    query = """
        SELECT (SELECT count(DISTINCT node_id) FROM telemetry_chunk WHERE t0 > to_timestamp(%(since)s)),
               (SELECT count(*) FROM node_presence WHERE replica_id IS NOT NULL AND NOT stale)
    """
    try:
        async with await psycopg.AsyncConnection.connect(owner_url, connect_timeout=5) as connection:
            cursor = await connection.execute(query, {"since": since})
            row: object = await cursor.fetchone()
            return row == (nodes, nodes)
    except psycopg.Error:
        return False


async def suffer(faults: list[Fault], owner_url: str, nodes: int) -> dict[str, list[float]]:
    """Let the faults happen one after another; return the recovery times in seconds by kind and victim."""
    times: dict[str, list[float]] = {}
    for number, fault in enumerate(faults, 1):
        await fault.begin()
        await asyncio.sleep(fault.lasts_s)
        ended = time.time()
        await fault.end()
        try:
            await poll_async(partial(recovered, owner_url, nodes, ended), timeout_s=PATIENCE_S, interval_s=0.25)
            took_s = time.time() - ended
        except TimeoutError:
            took_s = float("inf")
        times.setdefault(f"{fault.kind} of {fault.victim}", []).append(took_s)
        print(f"{number} of {len(faults)}: {fault.kind} of {fault.victim}, recovered in {took_s:.1f} s", flush=True)
    return times


async def states(owner_url: str, change_ids: list[str]) -> Counter[str]:
    """Return how many of these changes are in each state."""
    async with await psycopg.AsyncConnection.connect(owner_url) as connection:
        cursor = await connection.execute("SELECT state FROM change WHERE id::text = ANY(%s)", (change_ids,))
        return Counter([state async for (state,) in cursor])


async def drill(made: Installation, postgres: EmbeddedPostgres, arguments: argparse.Namespace) -> list[str]:
    """Run it; print the figures and return what went wrong."""
    nats = NatsServer(made.folder)
    nats.start()
    replicas: list[Replica] = []
    front = balancer(replicas)
    tasks: list[asyncio.Task[None]] = []
    try:
        await made.migrate(TODAY)
        replicas += [await start_replica(made, nats) for _ in range(arguments.replicas)]
        entry = BackendProcess(TODAY, made.folder / "unused", port=await front.serve())
        client = await made.administrator(replicas[0].process)
        client = Client(entry.api, client.session)
        client.session.headers["Connection"] = "close"  # the balancer chooses for each request
        operator = Operator(client, 0)
        faults = schedule(arguments, replicas, nats, postgres)
        token = (await made.command(TODAY, "enrolment-token", "--simulated")).strip()
        group = Group(arguments.nodes, CPUS, made.folder / "agents")
        seconds = sum(fault.lasts_s + _RECOVERY_S for fault in faults) + 60
        fleet = asyncio.create_task(group.run(TODAY, entry, seconds, "--token", token))

        async def all_connected() -> bool:
            return bool(await connected(operator) == arguments.nodes)

        await poll_async(all_connected, timeout_s=PATIENCE_S, interval_s=0.5)
        rollout_id = await begin_rollout(operator, arguments.nodes)
        load = Load(client, sorted(node["id"] for node in await operator.get("/nodes")))
        tasks.append(asyncio.create_task(load.run()))
        times = await suffer(faults, made.owner_url, arguments.nodes)
        if fleet.done():
            return ["The agents ended before the last fault: the recoveries took longer than expected."]
        for task in tasks:
            task.cancel()
        sent = await fleet
        rollout = await operator.get(f"/rollouts/{rollout_id}")
        samples = await stored(made.owner_url)
        after = await states(made.owner_url, load.confirmed)
        errors = [error for one in replicas for error in one.process.errors()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for wire in (front, *(wire for one in replicas for wire in one.wires.values())):
            wire.mend()
            await wire.close()
        nats.kill()
    lost, twice = sent["sent"] - sent["overflowed"] - len(samples), samples.total() - len(samples)
    print(f"\n{'fault':<34}{'n':>5}{'median s':>10}{'longest s':>11}")
    for name, found in sorted(times.items()):
        print(f"{name:<34}{len(found):>5}{statistics.median(found):>10.1f}{max(found):>11.1f}")
    lines = {
        "nodes, replicas": f"{arguments.nodes}, {arguments.replicas}",
        "samples sent / stored": f"{sent['sent']} / {len(samples)}",
        "lost / stored twice": f"{lost} / {twice}",
        "unacknowledged, overflowed, refused": f"{sent['unacknowledged']}, {sent['overflowed']}, {sent['refused']}",
        "reconnects": str(sent["reconnects"]),
        "changes": ", ".join(f"{name} {count}" for name, count in sorted(load.outcomes.items())),
        "confirmed changes, state at the end": ", ".join(f"{name} {count}" for name, count in sorted(after.items())),
        "rollout": f"{rollout['state']}: {rollout['sentence']}",
        "errors in the logs of replicas": str(len(errors)),
    }
    for what, value in lines.items():
        print(f"  {what:<40}{value}", flush=True)
    wrong = {
        f"{lost} samples were lost.": lost,
        f"{twice} samples were stored twice.": twice,
        f"{sent['unacknowledged']} samples were not acknowledged.": sent["unacknowledged"],
        f"The rollout is {rollout['state']}: {rollout['sentence']}": rollout["state"] not in ("canary", "batches"),
        f"Confirmed changes are {dict(after)}.": after.keys() - {"confirmed"} or after.total() != len(load.confirmed),
        "The fleet did not recover from a fault.": float("inf") in itertools.chain(*times.values()),
        "\n".join(errors): errors,
    }
    return [sentence for sentence, holds in wrong.items() if holds]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--freezes", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--freeze-s", type=float, default=60, metavar="S")
    parser.add_argument("--partition-s", type=float, default=40, metavar="S")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1901)
    arguments = parser.parse_args()
    sys.exit(run_drill("faults", lambda made, postgres: drill(made, postgres, arguments)))
