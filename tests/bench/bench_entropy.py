"""Bytes of stored samples beside their entropy: python -m tests.bench.bench_entropy [--seconds 300].

Encodes an hour of samples of 64 CPUs and 150 interrupts in chunks of a minute, and samples of this machine, recorded
for some seconds, and stores each in a PostgreSQL of its own. For each column it prints the bytes a sample of

- stored: what the chunks contain;
- entropy: of each counter of each CPU or interrupt by itself, over all samples, of its values or of their differences,
  whichever is less. No code takes less that takes each sample by itself; one that predicts would. Of a short recording
  it is too low;
- xz: all values of the column in one stream, `xz -9e`, with byte planes: a good general compressor without chunks.

and for the tables of chunks and minutes the bytes on disk. Nothing is a budget here: it says where bytes go.
"""

import argparse
import asyncio
import lzma
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace as with_changes
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psycopg
from msgspec.structs import replace
from tests.backend.telemetry_data import machine

from coresteer.config import REPOSITORY
from coresteer.db import Database
from coresteer.postgres import EmbeddedPostgres
from coresteer.telemetry import chunks, partitions, repository
from coresteer.telemetry.byte_columns import to_byte_planes
from coresteer.telemetry.repository import EncodedChunk
from coresteer.telemetry.rollup import minute_rollups
from coresteer.telemetry.sample_columns import COLUMNS, columns_of, join
from coresteer_agent.observe.sampler import Sampler
from coresteer_core.node.derive import derive_rates
from coresteer_core.node.rates import CPU_COUNTS, CPU_SHARES, Rates

_CHUNK = 60
_HOUR_S = 3600
_LEAST_ROWS = 500
"""So that empty pages do not count."""


def record(seconds: int) -> list[Rates]:
    """Return samples of each second of this machine."""
    sampler = Sampler(Path("/"))
    before, recorded = sampler.sample(), []
    for seq in range(1, seconds + 1):
        time.sleep(1)
        now = sampler.sample()
        recorded.append(derive_rates(before, now, seq))
        before = now
    return recorded


def entropy_bytes(counters: npt.NDArray[np.integer]) -> float:
    """Return the entropy in bytes of counters × samples: of each counter by itself, values or differences."""
    bits = 0.0
    for values in counters:
        bits += min(_entropy_bits(values), _entropy_bits(np.diff(values.astype(np.int64), prepend=0)))
    return bits / 8


def _entropy_bits(values: npt.NDArray[np.integer]) -> float:
    _, occurrences = np.unique(values, return_counts=True)
    return float(-(occurrences * np.log2(occurrences / len(values))).sum())


def counters_of(samples: Sequence[Rates]) -> dict[str, npt.NDArray[np.integer]]:
    """Return what the columns of chunks contain, counters × samples, by column."""
    columns = join([columns_of(samples[first : first + _CHUNK]) for first in range(0, len(samples), _CHUNK)])
    found: dict[str, npt.NDArray[np.integer]] = {
        name: columns.shares[row].T for row, name in enumerate(CPU_SHARES) if not columns.lacks(name).all()
    }
    found |= {name: columns.counts[row].T for row, name in enumerate(CPU_COUNTS) if not columns.lacks(name).all()}
    found["irqs"] = columns.cell_matrix
    found["netdevs"] = columns.netdev_counts.reshape(-1, len(samples))
    durations_us = np.rint(columns.durations_s * 1e6).astype(np.int64)
    agent_us = np.rint(np.nan_to_num(columns.agent_cpu_s, nan=-1e-6) * 1e6).astype(np.int64)
    steps = np.diff(columns.times_ms, prepend=columns.times_ms[0])
    # seqs follow each other; sums over CPUs follow from the columns
    found["scalars"] = np.vstack([columns.scalars, [durations_us, agent_us, steps]])
    return found


def _xz_bytes(counters: npt.NDArray[np.integer]) -> int:
    widened = counters.astype(np.uint64) if counters.itemsize == 8 else counters.astype(np.uint32)
    return len(lzma.compress(to_byte_planes(widened), preset=9 | lzma.PRESET_EXTREME))


async def _on_disk(encoded: Sequence[EncodedChunk]) -> dict[str, float]:
    """Return the bytes that chunks and their minutes take on disk, by table, as one of many nodes."""
    nodes = max(1, _LEAST_ROWS // len(encoded))
    encoded = [with_changes(item, node_id=node_id) for node_id in range(1, nodes + 1) for item in encoded]
    state_dir = Path(tempfile.mkdtemp(prefix="coresteer-bench-"))
    postgres = EmbeddedPostgres(state_dir)
    await postgres.start()
    database = Database(postgres.backend_url, REPOSITORY / "migrations")
    try:
        await Database(postgres.url, REPOSITORY / "migrations").migrate(postgres.backend_url)
        await database.open()
        minutes = [(item.node_id, minute) for item in encoded for minute in item.minutes]
        needed = {partitions.partition_of("telemetry_chunk", item.chunk.start_ms) for item in encoded}
        needed |= {partitions.partition_of("telemetry_minute", minute.start_ms) for _, minute in minutes}
        async with database.pool.connection() as connection:
            await partitions.create_partitions(connection, needed)
            await repository.copy_chunks(connection, encoded)
            await repository.copy_minutes(connection, minutes)
        async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as owner:
            await owner.execute("CHECKPOINT")
        async with database.pool.connection() as connection:
            sizes = await partitions.partition_sizes(connection)
        return {
            table: sum(size for partition, size in sizes.items() if partition.table == table) / nodes
            for table in ("telemetry_chunk", "telemetry_minute")
        }
    finally:
        await database.close()
        await postgres.stop()
        shutil.rmtree(state_dir)


def _stored(encoded: Sequence[EncodedChunk]) -> dict[str, int]:
    stored = {name: sum(len(item.chunk.columns[name] or b"") for item in encoded) for name in COLUMNS}
    return stored | {"scalars": sum(len(item.chunk.scalars) for item in encoded)}


def _print(
    what: str, count: int, stored: Mapping[str, int], samples: Sequence[Rates], disk: Mapping[str, float]
) -> None:
    counters = counters_of(samples)
    print(f"{what}, {count} samples: bytes a sample")
    print(f"  {'column':<16}{'stored':>9}{'entropy':>9}{'xz':>9}{'stored ÷ entropy':>18}")
    rows = {name: [stored[name], entropy_bytes(of), _xz_bytes(of)] for name, of in counters.items()}
    rows["all columns"] = [sum(figures) for figures in zip(*rows.values(), strict=True)]
    for name, figures in rows.items():
        ratio = f"{figures[0] / figures[1]:.2f}" if figures[1] else "–"
        print(f"  {name:<16}" + "".join(f"{figure / count:>9.1f}" for figure in figures) + f"{ratio:>18}")
    for table, size in disk.items():
        print(f"  on disk, {table}: {size / count:.0f}")
    least = rows["all columns"][1]
    print(f"  chunks on disk ÷ entropy: {disk['telemetry_chunk'] / least:.2f}", flush=True)


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300, help="for which this machine is recorded")
    args = parser.parse_args()
    first_ms = time.time_ns() // 1_000_000 - _HOUR_S * 1000
    recorded = record(args.seconds)
    arms = {
        f"This machine, {recorded[0].cpus} CPUs": recorded,
        "64 CPUs × 150 interrupts, simulated": machine(_HOUR_S, start_ms=first_ms),
    }
    for what, samples in arms.items():
        whole = [replace(one, cpus=samples[0].cpus) for one in samples[: len(samples) // _CHUNK * _CHUNK]]
        encoded = []
        for first in range(0, len(whole), _CHUNK):
            part = whole[first : first + _CHUNK]
            encoded.append(EncodedChunk(1, "s", chunks.encode(part), minute_rollups(part)))
        _print(what, len(whole), _stored(encoded), whole, asyncio.run(_on_disk(encoded)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
