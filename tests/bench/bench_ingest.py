"""Cost of the backend with many nodes: python -m tests.bench.bench_ingest [--nodes 1000 5000] [--seconds 60].

Starts a PostgreSQL and a backend of its own, lets simulated nodes of 64 CPUs and 150 interrupts send samples of each
second, and asks for a heatmap of an hour; in four arms: blocks (as usual), fleet (somebody looks at it: summaries each
second), watched (every node is: every sample is sent by itself, too) and single (agents of version 0.1.0: every sample
by itself). The floor is what a server with the
same WebSockets takes that only receives and decodes the messages of the arm watched.

Exits with 1 when a sample is lost or stored twice, or a budget is exceeded. The simulation and the database share the
machine with the backend: latencies are better where they do not. CPU budgets are scaled by a loop that runs meanwhile.
"""

import argparse
import asyncio
import itertools
import json
import os
import re
import socket
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import requests
from tests.backend.telemetry_data import machine
from tests.bench.own_backend import API_TOKEN, ENROLMENT, own_backend
from tests.support.polling import poll_async
from tests.support.slowdown import Calibration
from websockets.asyncio.client import connect

from coresteer.db import Database
from coresteer.nodes.service import create_nodes
from coresteer.telemetry import chunks, partitions, repository
from coresteer.telemetry.repository import EncodedChunk
from coresteer.telemetry.rollup import minute_rollups
from coresteer_core.node.rates_block import compress_block, pack_block
from coresteer_core.node.summary import summarize
from coresteer_core.protocol import BLOCK_S, ColumnsMessage, RatesMessage, SummaryMessage, encode

_SETTLE_S = 10.0
"""After the last node has connected, until its topology and inventory are stored."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_DETAIL = """
from coresteer.presence.interest import Interest
from coresteer_core.protocol import Detail
Interest.detail = lambda self, node_id: Detail.{detail}
"""
_ARMS = {
    "blocks": "",
    "fleet": _DETAIL.format(detail="SUMMARIES"),
    "watched": _DETAIL.format(detail="SAMPLES"),
    "single": "from coresteer.gateway import agent_socket; agent_socket.FEATURES, agent_socket.COLUMNS = {}, ''",
}
CPU_BUDGET_US = 60.0
"""Of the arm blocks, per sample, without other work on the machine (tests.support.slowdown)."""
FLOORS_BUDGET = 2.0
"""Of the arm watched, in floors."""
MEMORY_BUDGET_KIB = 120.0
_STORED = re.compile(rb"stored chunks=(\d+) ms=([\d.]+)")


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _memory_mib(pid: int, field: str = "VmHWM") -> float:
    """Return the peak of a process's resident memory, or its present one (VmRSS)."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


async def _sizes(database: Database, owner_url: str) -> dict[str, int]:
    async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as owner:
        await owner.execute("CHECKPOINT")
    async with database.pool.connection() as connection:
        total = dict.fromkeys(partitions.PARTITION_WIDTH_MS, 0)
        for partition, size in (await partitions.partition_sizes(connection)).items():
            total[partition.table] += size
        return total


async def _stored(database: Database) -> tuple[int, int]:
    """Return the number of samples in the database, and of distinct ones."""
    seqs: list[tuple[int, int]] = []
    async with database.pool.connection() as connection, connection.cursor("stored") as cursor:
        await cursor.execute("SELECT node_id, scalars FROM telemetry_chunk")
        async for node_id, scalars in cursor:
            seqs += [(node_id, seq) for seq in chunks.cumulative(chunks.read_scalars(scalars).seqs).tolist()]
    return len(seqs), len(set(seqs))


def _connections(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def _steady_us(pid: int, nodes: int, seconds: float) -> float:
    """Return a server's CPU time per second and node in µs while all nodes are connected and send."""
    await poll_async(lambda: _connections(pid) >= nodes, timeout_s=300, interval_s=0.5)
    await asyncio.sleep(_SETTLE_S)
    began_s, began = cpu_s(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_s(pid) - began_s) / (time.monotonic() - began) / nodes * 1e6


async def simulate(url: str, nodes: int, seconds: int, state_dir: Path, *, cpus: int = 64) -> dict[str, float]:
    """Run simulated nodes for some seconds; return their statistics."""
    simulation = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "coresteer_agent", "simulate", "--backend", url, "--token", ENROLMENT),
        *(
            "--nodes",
            str(nodes),
            "--cpus",
            str(cpus),
            "--duration",
            str(seconds),
            "--state-dir",
            str(state_dir),
            "-o",
            "json",
        ),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        output, _ = await simulation.communicate()
    finally:
        if simulation.returncode is None:
            simulation.terminate()
            await simulation.wait()
    figures: dict[str, float] = json.loads(output)
    return figures


async def store_hour(database: Database) -> int:
    """Store a node with an hour of samples, encoded by the codec; return its id."""
    async with database.session() as session:
        (node,) = await create_nodes(session, ["heatmap-bench"], simulated=False)
    now_ms = time.time_ns() // 1_000_000
    samples = machine(3600, start_ms=now_ms - 3_600_000)
    encoded = []
    for first in range(0, 3600, 60):
        part = samples[first : first + 60]
        encoded.append(EncodedChunk(node.node_id, "s", chunks.encode(part), minute_rollups(part)))
    async with database.pool.connection() as connection:
        await partitions.create_partitions(
            connection, {partitions.partition_of("telemetry_chunk", item.chunk.start_ms) for item in encoded}
        )
        await repository.copy_chunks(connection, encoded)
    return node.node_id


async def _heatmap_ms(url: str, database: Database) -> list[float]:
    node_id = await store_hour(database)
    now = time.time()
    query = {"share": "busy", "columns": "900"}
    for name, at in (("from_time", now - 3600), ("to_time", now)):
        query[name] = datetime.fromtimestamp(at, UTC).isoformat()
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {API_TOKEN}"
    took = []
    for _ in range(20):
        began = time.perf_counter()
        answer = await asyncio.to_thread(session.get, f"{url}/api/v1/nodes/{node_id}/heatmap", params=query, timeout=60)
        took.append((time.perf_counter() - began) * 1000)
        answer.raise_for_status()
    return took


async def run(nodes: int, seconds: int, arm: str, floor_us: float) -> list[str]:
    """Measure one fleet size in one arm; return the budgets that it exceeds, samples lost included."""
    async with own_backend(_ARMS[arm]) as backend:
        database = backend.database
        idle_mib = _memory_mib(backend.pid, "VmRSS")
        simulation = asyncio.create_task(simulate(backend.url, nodes, seconds, backend.state_dir / "simulation"))
        with Calibration() as calibration:
            steady_us = await _steady_us(backend.pid, nodes, max(5.0, seconds - _SETTLE_S))
        figures = await simulation
        stored, different = await _stored(database)
        sizes = await _sizes(database, backend.owner_url)
        peak_mib = _memory_mib(backend.pid)
        heatmap = statistics.quantiles(await _heatmap_ms(backend.url, database), n=100)
        commits_told = _STORED.findall(backend.log.read_bytes())
        commits = statistics.quantiles([float(ms) for _, ms in commits_told], n=100)
        sent = int(figures["sent"])
        twice = stored - different
        slower = calibration.factor
        kib_per_node = (peak_mib - idle_mib) * 1024 / nodes
        p50, p99 = figures["send_to_ack_p50_ms"] / 1000, figures["send_to_ack_p99_ms"] / 1000
        lines = {
            "samples sent / acknowledged / stored": f"{sent} / {figures['acked']:.0f} / {different}",
            "lost / stored twice": f"{sent - different} / {twice}",
            "reconnects": f"{figures['reconnects']:.0f}",
            "backend CPU a sample while all send": f"{steady_us:.0f} µs; {steady_us / slower:.0f} µs as calibrated",
            "slowdown of the machine": f"{slower:.2f}",
            "backend memory at its peak": f"{peak_mib:.0f} MiB, {kib_per_node:.0f} KiB a node",
            **{f"bytes a sample on disk, {table}": f"{size / stored:.0f}" for table, size in sizes.items()},
            "send to acknowledged, p50 / p99": f"{p50:.1f} s / {p99:.1f} s (a chunk takes up to 60 s to fill)",
            "begin of the write to its commit, p50 / p99": f"{commits[49]:.0f} ms / {commits[98]:.0f} ms",
            "heatmap of 1 hour × 64 CPUs, median / p95": f"{heatmap[49]:.0f} ms / {heatmap[94]:.0f} ms",
        }
        print(f"{arm}: {nodes} nodes of 64 CPUs and 150 interrupts × 1 Hz × {seconds} s", flush=True)
        for what, value in lines.items():
            print(f"  {what:<46}{value}", flush=True)
        exceeded = {
            f"{sent - different} samples were lost": not sent == different == stored,
            f"{steady_us / slower:.0f} µs a sample exceed {CPU_BUDGET_US:.0f}": arm == "blocks"
            and steady_us / slower > CPU_BUDGET_US,
            f"{steady_us / slower:.0f} µs a sample exceed {FLOORS_BUDGET:g} floors of {floor_us:.0f}": arm == "watched"
            and steady_us / slower > FLOORS_BUDGET * floor_us,
            f"{kib_per_node:.0f} KiB a node exceed {MEMORY_BUDGET_KIB:.0f}": arm == "blocks"
            and kib_per_node > MEMORY_BUDGET_KIB,
        }
        return [f"{arm}, {nodes} nodes: {what}." for what, is_exceeded in exceeded.items() if is_exceeded]


_FLOOR = """
import asyncio, socket, sys, uvicorn
from coresteer_core.node.rates_block import decompress_block
from coresteer_core.protocol import ColumnsMessage, MAX_FRAME_BYTES, decode_to_backend

async def app(scope, receive, send):
    if scope["type"] != "websocket":
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        message = decode_to_backend(event["bytes"])
        if isinstance(message, ColumnsMessage):
            decompress_block(message.packed)

listener = socket.socket(fileno=int(sys.argv[1]))
config = uvicorn.Config(app, loop="uvloop", ws="websockets-sansio", ws_per_message_deflate=False, log_level="warning",
                        lifespan="off", ws_max_size=MAX_FRAME_BYTES)
asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))
"""


def _messages(number: int) -> list[list[bytes]]:
    """Return what one watched node sends in each second of a block."""
    samples = machine(round(BLOCK_S), seed=number)
    seconds = [[encode(SummaryMessage(summarize(one, None))), encode(RatesMessage(one))] for one in samples]
    packed = compress_block(pack_block(samples))
    seconds[number % len(seconds)].append(encode(ColumnsMessage(samples[0].seq, samples[-1].seq, packed)))
    return seconds


async def measure_floor(nodes: int, seconds: float) -> float:
    """Return the CPU time in µs, as calibrated, of receiving and decoding what a watched node sends in a second."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _FLOOR, str(listener.fileno())), pass_fds=[listener.fileno()]
    )
    variants = [_messages(number) for number in range(round(BLOCK_S))]
    url = f"ws://127.0.0.1:{listener.getsockname()[1]}/"

    async def send(number: int) -> None:
        async with connect(url, compression=None, proxy=None) as websocket:
            await asyncio.sleep(number / nodes)
            for second in itertools.count():
                for frame in variants[number % len(variants)][second % round(BLOCK_S)]:
                    await websocket.send(frame)
                await asyncio.sleep(1)

    tasks: list[asyncio.Task[None]] = []
    try:
        for first in range(0, nodes, 50):
            tasks += [asyncio.create_task(send(number)) for number in range(first, min(first + 50, nodes))]
            await asyncio.sleep(0.2)
        with Calibration() as calibration:
            floor_us = await _steady_us(server.pid, nodes, seconds)
        return floor_us / calibration.factor
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.terminate()
        await server.wait()
        listener.close()


def main() -> int:
    """Measure every fleet size in turn, in each arm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--arms", choices=_ARMS, nargs="+", default=[*_ARMS])
    args = parser.parse_args()
    exceeded = []
    for nodes in args.nodes:
        floor_us = asyncio.run(measure_floor(min(nodes, 1000), args.seconds / 3)) if "watched" in args.arms else 0.0
        if floor_us:
            print(f"floor of {nodes} watched nodes: {floor_us:.0f} µs a sample as calibrated", flush=True)
        for arm in args.arms:
            exceeded += asyncio.run(run(nodes, args.seconds, arm, floor_us))
    for sentence in exceeded:
        print(sentence, file=sys.stderr)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
