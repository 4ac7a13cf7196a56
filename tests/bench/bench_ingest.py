"""Cost of the backend with many nodes: python -m tests.bench.bench_ingest [--nodes 1000 5000] [--seconds 60].

Starts a PostgreSQL and a backend of its own, lets simulated nodes of 64 CPUs and 150 interrupts send a sample each
second, and asks for a heatmap of an hour. Exits with 1 when a sample is lost or stored twice. The simulation and the
database share the machine with the backend: latencies are better where they do not.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import requests
from tests.backend.telemetry_data import machine
from tests.support.polling import poll_async

from coresteer.auth.secrets import API_TOKEN_PREFIX, ENROLMENT_TOKEN_PREFIX, token_hash
from coresteer.config import REPOSITORY
from coresteer.db import Database
from coresteer.nodes.service import create_nodes
from coresteer.postgres import EmbeddedPostgres
from coresteer.telemetry import partitions, repository
from coresteer.telemetry.chunks import cumulative, encode, read_scalars
from coresteer.telemetry.repository import EncodedChunk
from coresteer.telemetry.rollup import minute_rollups

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SERVE = """
import logging
from coresteer.config import Config
from coresteer.cli.asgi_server import serve
logging.getLogger("coresteer.telemetry").setLevel(logging.DEBUG)
serve(Config(), print)
"""
_STORED = re.compile(rb"stored chunks=(\d+) ms=([\d.]+)")
_ENROLMENT, _API = f"{ENROLMENT_TOKEN_PREFIX}bench", f"{API_TOKEN_PREFIX}bench"


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _peak_mib(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


async def _prepare(database: Database) -> None:
    """Create an enrolment token and a user for the bench."""
    async with database.pool.connection() as connection:
        await connection.execute(
            "INSERT INTO one_time_token (token_hash, purpose, simulated, created_by, expires_at) "
            "VALUES (%s, 'enrolment', true, 'bench', now() + interval '1 hour')",
            (token_hash(_ENROLMENT),),
        )
        await connection.execute(
            "INSERT INTO app_user (username, role, password_hash, password_salt, scrypt_n, scrypt_r, scrypt_p) "
            "VALUES ('bench', 'viewer', '', '', 2, 1, 1)"
        )
        await connection.execute(
            "INSERT INTO api_token (token_hash, name, role, user_id) SELECT %s, 'bench', 'viewer', id FROM app_user",
            (token_hash(_API),),
        )


def _is_healthy(url: str) -> bool:
    with contextlib.suppress(requests.RequestException):
        return bool(requests.get(f"{url}/api/health", timeout=5).json()["status"] == "ok")
    return False


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
            seqs += [(node_id, seq) for seq in cumulative(read_scalars(scalars).seqs).tolist()]
    return len(seqs), len(set(seqs))


def _connections(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def _steady_share(pid: int, nodes: int, seconds: int) -> float:
    """Return the backend's share of a core while all nodes are connected and send."""
    await poll_async(lambda: _connections(pid) >= nodes, timeout_s=300, interval_s=0.5)
    began_s, began = _cpu_s(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (_cpu_s(pid) - began_s) / (time.monotonic() - began)


async def _simulate(url: str, nodes: int, seconds: int, state_dir: Path) -> dict[str, float]:
    simulation = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "coresteer_agent", "simulate", "--backend", url, "--token", _ENROLMENT),
        *("--nodes", str(nodes), "--duration", str(seconds), "--state-dir", str(state_dir), "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await simulation.communicate()
    figures: dict[str, float] = json.loads(output)
    return figures


async def _hour(database: Database) -> int:
    """Store a node with an hour of samples, encoded by the codec; return its id."""
    async with database.session() as session:
        (node,) = await create_nodes(session, ["heatmap-bench"], simulated=False)
    now_ms = time.time_ns() // 1_000_000
    samples = machine(3600, start_ms=now_ms - 3_600_000)
    encoded = []
    for first in range(0, 3600, 60):
        part = samples[first : first + 60]
        encoded.append(EncodedChunk(node.node_id, "s", encode(part), minute_rollups(part)))
    async with database.pool.connection() as connection:
        await partitions.create_partitions(
            connection, {partitions.partition_of("telemetry_chunk", item.chunk.start_ms) for item in encoded}
        )
        await repository.copy_chunks(connection, encoded)
    return node.node_id


async def _heatmap_ms(url: str, database: Database) -> list[float]:
    node_id = await _hour(database)
    now = time.time()
    query = {"share": "busy", "columns": "900"}
    for name, at in (("from_time", now - 3600), ("to_time", now)):
        query[name] = datetime.fromtimestamp(at, UTC).isoformat()
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {_API}"
    took = []
    for _ in range(20):
        began = time.perf_counter()
        answer = await asyncio.to_thread(session.get, f"{url}/api/nodes/{node_id}/heatmap", params=query, timeout=60)
        took.append((time.perf_counter() - began) * 1000)
        answer.raise_for_status()
    return took


async def run(nodes: int, seconds: int) -> bool:
    """Measure one fleet size; return whether no sample was lost."""
    state_dir = Path(tempfile.mkdtemp(prefix="coresteer-bench-"))
    postgres = EmbeddedPostgres(state_dir)
    await postgres.start()
    await Database(postgres.url, REPOSITORY / "migrations").migrate(postgres.backend_url)
    database = Database(postgres.backend_url, REPOSITORY / "migrations")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (state_dir / "backend.log").open("wb") as log:
        backend = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _SERVE),
            env=os.environ | {"DATABASE_URL": postgres.backend_url, "CORESTEER_PORT": str(port)},
            stdout=log,
            stderr=log,
        )
    try:
        await poll_async(lambda: asyncio.to_thread(_is_healthy, url), timeout_s=60, interval_s=0.2)
        await database.open()
        await _prepare(database)
        began_s = _cpu_s(backend.pid)
        simulation = asyncio.create_task(_simulate(url, nodes, seconds, state_dir / "simulation"))
        steady = await _steady_share(backend.pid, nodes, seconds)
        figures = await simulation
        cpu_s = _cpu_s(backend.pid) - began_s
        stored, different = await _stored(database)
        sizes = await _sizes(database, postgres.url)
        heatmap = statistics.quantiles(await _heatmap_ms(url, database), n=100)
        chunks = _STORED.findall((state_dir / "backend.log").read_bytes())
        commits = statistics.quantiles([float(ms) for _, ms in chunks], n=100)
        sent = int(figures["sent"])
        twice = stored - different
        p50, p99 = figures["send_to_ack_p50_ms"] / 1000, figures["send_to_ack_p99_ms"] / 1000
        lines = {
            "samples sent / acknowledged / stored": f"{sent} / {figures['acked']:.0f} / {different}",
            "lost / stored twice": f"{sent - different} / {twice}",
            "reconnects": f"{figures['reconnects']:.0f}",
            "backend CPU while all send": f"{steady * 100:.0f} % of a core",
            "backend CPU a sample, connecting included": f"{cpu_s / stored * 1e6:.0f} µs",
            "backend memory at its peak": f"{_peak_mib(backend.pid):.0f} MiB",
            **{f"bytes a sample on disk, {table}": f"{size / stored:.0f}" for table, size in sizes.items()},
            "send to acknowledged, p50 / p99": f"{p50:.1f} s / {p99:.1f} s (a chunk takes up to 60 s to fill)",
            "begin of the write to its commit, p50 / p99": f"{commits[49]:.0f} ms / {commits[98]:.0f} ms",
            "heatmap of 1 hour × 64 CPUs, median / p95": f"{heatmap[49]:.0f} ms / {heatmap[94]:.0f} ms",
        }
        print(f"{nodes} nodes of 64 CPUs and 150 interrupts × 1 Hz × {seconds} s", flush=True)
        for what, value in lines.items():
            print(f"  {what:<46}{value}", flush=True)
        return sent == different == stored
    finally:
        backend.terminate()
        await backend.wait()
        await database.close()
        await postgres.stop()
        shutil.rmtree(state_dir)


def main() -> int:
    """Measure every fleet size in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--seconds", type=int, default=60)
    args = parser.parse_args()
    kept = [asyncio.run(run(nodes, args.seconds)) for nodes in args.nodes]
    if not all(kept):
        print("Samples were lost or stored twice.", file=sys.stderr)
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
