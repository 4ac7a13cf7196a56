"""How long a heat map takes: python -m tests.bench.bench_history [--nodes 500] [--requests 100].

Starts a PostgreSQL and a backend of its own, stores a node with an hour of samples of 64 CPUs and one with a day of
roll-ups of 256 CPUs, and asks for their heat maps as the page does: while nothing else happens, then while simulated
nodes of 64 CPUs and 150 interrupts send samples of each second.

Exits with 1 when a budget is exceeded, in either arm. Budgets are scaled by a loop that runs meanwhile; the simulation
and the database share the machine with the backend.
"""

import argparse
import asyncio
import statistics
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import requests
from tests.backend.telemetry_data import machine
from tests.bench.bench_ingest import cpu_s, simulate, store_hour
from tests.bench.own_backend import API_TOKEN, OwnBackend, own_backend
from tests.support.slowdown import Calibration

from coresteer.db import Database
from coresteer.nodes.service import create_nodes
from coresteer.telemetry import partitions, repository
from coresteer.telemetry.rollup import MINUTE_MS, minute_rollups

_COLUMNS = 900
_DAY_S = 86_400
_SETTLE_S = 20.0
"""Until all nodes have connected and their reports are stored."""


@dataclass(frozen=True)
class Budget:
    """Milliseconds from request to answer, as the machine is without other work (tests.support.slowdown)."""

    median_ms: float
    p95_ms: float


BUDGETS = {"1 hour × 64 CPUs": Budget(8.0, 15.0), "24 hours × 256 CPUs": Budget(150.0, 150.0)}


async def _store_day(database: Database) -> int:
    """Store a node with a day of roll-ups of minutes of 256 CPUs; return its id."""
    async with database.session() as session:
        (node,) = await create_nodes(session, ["day-bench"], simulated=False)
    first_ms = time.time_ns() // 1_000_000 // MINUTE_MS * MINUTE_MS - _DAY_S * 1000
    (minute, *_) = minute_rollups(machine(59, cpus=256, start_ms=first_ms + 1000))
    rng = np.random.default_rng(1)
    rollups = [
        replace(
            minute,
            start_ms=first_ms + position * MINUTE_MS,
            end_ms=first_ms + (position + 1) * MINUTE_MS,
            peaks=(minute.peaks + rng.integers(0, 20, minute.peaks.shape, np.uint8)).clip(0, 200),
            means=(minute.means + rng.integers(0, 8, minute.means.shape, np.uint8)).clip(0, 200),
        )
        for position in range(_DAY_S // 60)
    ]
    async with database.pool.connection() as connection:
        days = {partitions.partition_of("telemetry_minute", rollup.start_ms) for rollup in rollups}
        await partitions.create_partitions(connection, days)
        await repository.copy_minutes(connection, [(node.node_id, rollup) for rollup in rollups])
    return node.node_id


async def _measure(backend: OwnBackend, node_id: int, span_s: float, requests_: int) -> tuple[list[float], float]:
    """Return the times in ms from request to answer, and the backend's CPU time of all of them in seconds."""
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {API_TOKEN}"
    now = time.time()
    query = {"share": "busy", "columns": str(_COLUMNS)}
    for name, at in (("from_time", now - span_s), ("to_time", now)):
        query[name] = datetime.fromtimestamp(at, UTC).isoformat()
    took = []
    path = f"{backend.url}/api/v1/nodes/{node_id}/heatmap"
    session.get(path, params=query, timeout=60).raise_for_status()
    before_s = cpu_s(backend.pid)
    for _ in range(requests_):
        began = time.perf_counter()
        answer = await asyncio.to_thread(session.get, path, params=query, timeout=60)
        took.append((time.perf_counter() - began) * 1000)
        answer.raise_for_status()
        await asyncio.sleep(0.05)
    return took, cpu_s(backend.pid) - before_s


async def _arm(backend: OwnBackend, nodes: dict[str, int], load: str, requests_: int) -> list[str]:
    exceeded = []
    for (what, budget), span_s in zip(BUDGETS.items(), (3600, _DAY_S), strict=True):
        with Calibration() as calibration:
            took, used_s = await _measure(backend, nodes[what], span_s, requests_)
        slower = calibration.factor
        parts = statistics.quantiles(took, n=100)
        median, p95 = parts[49], parts[94]
        print(
            f"{what}, {load}: median {median:.1f} ms, p95 {p95:.1f} ms; as calibrated {median / slower:.1f}, "
            f"{p95 / slower:.1f}; the backend's CPU time {used_s / requests_ * 1000:.1f} ms a request; "
            f"slowdown {slower:.2f}",
            flush=True,
        )
        if median / slower > budget.median_ms or p95 / slower > budget.p95_ms:
            exceeded.append(
                f"{what}, {load}: {median / slower:.1f} ms, p95 {p95 / slower:.1f} ms exceed "
                f"{budget.median_ms:g} and {budget.p95_ms:g}."
            )
    return exceeded


async def run(nodes: int, requests_: int) -> list[str]:
    """Measure both heat maps while idle and beside ingest; return the budgets that are exceeded."""
    async with own_backend() as backend:
        ids = dict(zip(BUDGETS, (await store_hour(backend.database), await _store_day(backend.database)), strict=True))
        exceeded = await _arm(backend, ids, "idle", requests_)
        if not nodes:
            return exceeded
        seconds = 600
        simulation = asyncio.create_task(simulate(backend.url, nodes, seconds, backend.state_dir / "simulation"))
        try:
            await asyncio.sleep(_SETTLE_S + nodes / 50)
            return exceeded + await _arm(backend, ids, f"beside {nodes} nodes that send", requests_)
        finally:
            simulation.cancel()
            await asyncio.gather(simulation, return_exceptions=True)


def main() -> int:
    """Measure, and say which budgets are exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500, help="0: only while idle")
    parser.add_argument("--requests", type=int, default=100)
    args = parser.parse_args()
    if args.requests < 2:
        parser.error("--requests must be at least 2: quantiles take two values")
    exceeded = asyncio.run(run(args.nodes, args.requests))
    for sentence in exceeded:
        print(sentence, file=sys.stderr)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
