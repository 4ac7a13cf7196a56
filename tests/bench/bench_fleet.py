"""Several backends with NATS on this machine: python -m tests.bench.bench_fleet [--replicas 1 2 4] [--nodes 1000].

Starts a PostgreSQL, a NATS server and backends, spreads simulated nodes of about 64 CPUs and 150 interrupts over them,
and adds a node of its own to the first one. A page of the last backend shows that node: live latency is from the send
of a sample by its agent to its receipt by the page. Command latency is from the request for a change to the last
backend until the agent on the first one has it, and until the page shows that it is applied.

Exits with 1 when a budget is exceeded. Simulation, database and pages share the machine with the backends. Budgets are
scaled by a loop that runs meanwhile.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from tests.backend.fake_agent import FakeAgent, enrolled, rates
from tests.bench.bench_ingest import cpu_s, simulate
from tests.bench.own_backend import API_TOKEN, is_healthy, prepare
from tests.support.nats import NatsServer
from tests.support.polling import poll_async
from tests.support.slowdown import Calibration
from websockets.asyncio.client import ClientConnection, connect

from coresteer.config import REPOSITORY
from coresteer.db import Database
from coresteer.postgres import EmbeddedPostgres
from coresteer_agent.simulate.machine import Fault, Machine, make_machine
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy
from coresteer_core.protocol import Apply, InventoryMessage, TopologyMessage, decode_to_agent

COMMAND_BUDGET_MS = 150.0
"""p99 from the request to the agent, as the machine is without other work (tests.support.slowdown)."""
_SETTLE_S = 10.0
_SAMPLES_PER_S = 5.0


@dataclass
class Figures:
    """Latencies in ms."""

    live: list[float] = field(default_factory=list)
    to_agent: list[float] = field(default_factory=list)
    to_page: list[float] = field(default_factory=list)


@dataclass
class Probe:
    """A node of the bench on the first backend, and a page of the last one that shows it."""

    agent: FakeAgent
    machine: Machine
    page: ClientConnection
    url: str
    figures: Figures = field(default_factory=Figures)
    _sent: dict[int, float] = field(default_factory=dict)
    _changes: "asyncio.Queue[tuple[str, str, float]]" = field(default_factory=asyncio.Queue)
    _applies: "asyncio.Queue[tuple[Apply, float]]" = field(default_factory=asyncio.Queue)

    async def send_samples(self) -> None:
        """Send a sample five times a second."""
        for seq in range(1, 1_000_000):
            self._sent[seq] = time.perf_counter()
            await self.agent.send_rates([rates(seq)])
            await asyncio.sleep(1 / _SAMPLES_PER_S)

    async def watch(self) -> None:
        """Take the times at which samples and changes reach the page."""
        async for frame in self.page:
            at = time.perf_counter()
            if isinstance(frame, str):
                event = json.loads(frame)
                if event["type"] == "change" and event["change"]["node_id"] == self.agent.node_id:
                    await self._changes.put((event["change"]["id"], event["change"]["state"], at))
                continue
            (length,) = struct.unpack_from("<I", frame)
            header = json.loads(frame[4 : 4 + length])
            if header["type"] == "rates" and header["seq"] in self._sent:
                self.figures.live.append((at - self._sent.pop(header["seq"])) * 1000)

    async def listen(self) -> None:
        """Take the times at which commands reach the agent, which reports each change as applied."""
        while True:
            message = decode_to_agent(await self.agent.receive())
            if isinstance(message, Apply):
                at = time.perf_counter()
                await self.agent.say(ChangeMessage(message.change_id, ChangeState.UNCONFIRMED, "Applied.", []))
                await self._applies.put((message, at))

    async def is_known(self) -> bool:
        """Return whether the page's backend knows the node's interrupts."""
        url, headers = f"{self.url}/api/v1/nodes/{self.agent.node_id}", {"Authorization": f"Bearer {API_TOKEN}"}
        answer = await asyncio.to_thread(requests.get, url, headers=headers, timeout=60)
        return answer.json()["inventory"] is not None

    async def command(self) -> None:
        """Apply a change by a request to the page's backend, and roll it back."""
        irq = next(irq for irq in self.machine.inventory.irqs if irq.movable and irq.queues)
        action = {"key": f"irq/{irq.irq}/affinity", "was": irq.requested, "becomes": "1", "reason": "A bench."}
        began = time.perf_counter()
        await _post(f"{self.url}/api/v1/nodes/{self.agent.node_id}/changes", {"plan": {"actions": [action]}})
        message, at = await self._applies.get()
        self.figures.to_agent.append((at - began) * 1000)
        self.figures.to_page.append((await self._shown(message.change_id, "unconfirmed") - began) * 1000)
        ended = ChangeMessage(message.change_id, ChangeState.ROLLED_BACK, "Rolled back.", [], EndedBy.USER)
        await self.agent.say(ended)
        await self._shown(message.change_id, "rolled_back")

    async def _shown(self, change_id: str, state: str) -> float:
        while True:
            *found, at = await self._changes.get()
            if found == [change_id, state]:  # a change before may be shown once more
                return at


async def _post(url: str, body: dict[str, Any]) -> None:  # Any: JSON
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    answer = await asyncio.to_thread(requests.post, url, json=body, headers=headers, timeout=60)
    if not answer.ok:
        raise RuntimeError(answer.text)


@contextlib.asynccontextmanager
async def _probe(database: Database, urls: list[str]) -> AsyncIterator[Probe]:
    machine = make_machine(cpus=8, irqs=30, kind=1, seed=0, fault=Fault.HOT_QUEUE)
    agent = await enrolled(database, urls[0], "bench-probe")
    await agent.connect()
    await agent.greet(mode="control", observe_reason=None)
    await agent.say(TopologyMessage(machine.topology))
    await agent.say(InventoryMessage(machine.inventory))
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    live = urls[-1].replace("http", "ws", 1) + "/api/v1/live"
    async with connect(live, additional_headers=headers, proxy=None, max_queue=None) as page:
        await page.send(json.dumps({"node": agent.node_id}))
        probe = Probe(agent, machine, page, urls[-1])
        tasks = [asyncio.create_task(work()) for work in (probe.send_samples, probe.watch, probe.listen)]
        try:
            await poll_async(lambda: _ended(tasks) or probe.figures.live)
            await poll_async(probe.is_known)  # what it reported is stored a moment later
            yield probe
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    await agent.websocket.close()


def _ended(tasks: list["asyncio.Task[None]"]) -> bool:
    """Raise what ended one of the tasks."""
    for task in tasks:
        if task.done():
            task.result()
    return False


@contextlib.asynccontextmanager
async def _backends(count: int, folder: Path, environment: dict[str, str]) -> AsyncIterator[dict[str, int]]:
    """Run backends; yield their PIDs by URL."""
    found: dict[str, asyncio.subprocess.Process] = {}
    try:
        for number in range(count):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port = listener.getsockname()[1]
            with (folder / f"backend-{number}.log").open("wb") as log:
                found[f"http://127.0.0.1:{port}"] = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "coresteer", "serve", "--port", str(port)),
                    env=os.environ | environment,
                    stdout=log,
                    stderr=log,
                )
        for url in found:
            await poll_async(_healthy(url), timeout_s=120, interval_s=0.2)
        yield {url: process.pid for url, process in found.items()}
    finally:
        for process in found.values():
            process.terminate()
            await process.wait()


def _healthy(url: str) -> Callable[[], Awaitable[bool]]:
    return lambda: asyncio.to_thread(is_healthy, url)


def _percentiles(took: list[float]) -> str:
    found = statistics.quantiles(took, n=100, method="inclusive")
    return f"{found[49]:.1f} ms / {found[98]:.1f} ms ({len(took)})"


async def run(replicas: int, nodes: int, seconds: int, commands: int) -> list[str]:
    """Measure one number of replicas; return the budgets that it exceeds."""
    folder = Path(tempfile.mkdtemp(prefix="coresteer-bench-"))
    nats = NatsServer(folder)
    nats.start()
    postgres = EmbeddedPostgres(folder, settings={"max_connections": "200"})
    await postgres.start()
    await Database(postgres.url, REPOSITORY / "migrations").migrate(postgres.backend_url)
    database = Database(postgres.backend_url, REPOSITORY / "migrations")
    environment = {"DATABASE_URL": postgres.backend_url, "CORESTEER_NATS_URL": nats.url}
    try:
        async with _backends(replicas, folder, environment) as backends:
            await database.open()
            await prepare(database, role="operator")
            urls, each = list(backends), nodes // replicas
            simulations = [
                # of different numbers of CPUs, because these are in the nodes' names
                asyncio.create_task(
                    simulate(url, each, 2 * seconds + 2 * int(_SETTLE_S), folder / f"nodes-{at}", cpus=64 - 4 * at)
                )
                for at, url in enumerate(urls)
            ]
            with Calibration() as calibration:
                await asyncio.sleep(_SETTLE_S)
                used_s, began = sum(map(cpu_s, backends.values())), time.monotonic()
                await asyncio.sleep(seconds)
                used_s = sum(map(cpu_s, backends.values())) - used_s
                samples = each * replicas * (time.monotonic() - began)
                async with _probe(database, urls) as probe:
                    until = time.monotonic() + seconds
                    while time.monotonic() < until and len(probe.figures.to_page) < commands:
                        async with asyncio.timeout(60):
                            await probe.command()
            sent = sum(int(statistic["sent"]) for statistic in await asyncio.gather(*simulations))
        slower = calibration.factor
        figures, budget = probe.figures, COMMAND_BUDGET_MS * slower
        p99 = statistics.quantiles(figures.to_agent, n=100, method="inclusive")[98]
        print(f"{replicas} replicas, {each * replicas} nodes × 1 Hz × {seconds} s", flush=True)
        for what, value in {
            "samples sent": str(sent),
            "slowdown of the machine": f"{slower:.2f}",
            "backends' CPU a sample": f"{used_s / samples * 1e6:.0f} µs",
            "live, agent to page of the last backend, p50 / p99": _percentiles(figures.live),
            "command, request to agent, p50 / p99": _percentiles(figures.to_agent),
            "command, request to applied on the page, p50 / p99": _percentiles(figures.to_page),
        }.items():
            print(f"  {what:<52}{value}", flush=True)
        return [f"{replicas} replicas: command p99 {p99:.0f} ms exceeds {budget:.0f}."] if p99 > budget else []
    finally:
        await database.close()
        await postgres.stop()
        nats.kill()
        shutil.rmtree(folder)


def main() -> int:
    """Measure each number of replicas in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--nodes", type=int, default=1000, help="of all replicas together")
    parser.add_argument("--seconds", type=int, default=60, help="without commands, then at most as many with commands")
    parser.add_argument("--commands", type=int, default=200)
    args = parser.parse_args()
    exceeded = []
    for replicas in args.replicas:
        exceeded += asyncio.run(run(replicas, args.nodes, args.seconds, args.commands))
    for sentence in exceeded:
        print(sentence, file=sys.stderr)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
