"""Samples on their way: columns of chunks, roll-ups, what history answers, and frames for browsers."""

import asyncio
import json
import struct
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np
from tests.golden import samples
from tests.golden.store import check, row
from tests.support.polling import PATIENCE_S

from coresteer.db import Database
from coresteer.live.frames import rates_frame
from coresteer.telemetry import chunks, history, partitions, repository, rollup
from coresteer.telemetry.byte_columns import decompress
from coresteer.telemetry.heatmap import read_heatmap
from coresteer.telemetry.history import TelemetrySource, TimeRange
from coresteer.telemetry.irq_matrix import read_irq_matrix
from coresteer.telemetry.repository import EncodedChunk
from coresteer.telemetry.schemas import Series
from coresteer.telemetry.series import read_series
from coresteer_core.metrics import HISTORY_METRICS
from coresteer_core.node.rates import CPU_SHARES

NODE = 3
END_MS = samples.START_MS + 50_000
_TYPES = {"u8": "u1", "u16": "<u2", "u32": "<u4", "f32": "<f4"}


class _Stored:
    """An ingest that has stored all that it was given."""

    hours_complete_until_ms = 0.0

    def commit_generation(self, _: int) -> int:
        return 0

    def unstored(self, _: int) -> list[object]:
        return []


def _shares(table: np.ndarray) -> dict[str, list[str]]:
    return {name: [row(table[k].tolist())] for k, name in enumerate(CPU_SHARES)}


def _rollup(made: rollup.Rollup) -> dict[str, object]:
    return asdict(made) | {"peaks": _shares(made.peaks), "means": _shares(made.means)} | {
        "netdevs": {name: row(sums) for name, sums in made.netdevs.items()}
    }  # fmt: skip


def test_a_chunk_has_the_same_columns_as_before() -> None:
    made = samples.made()
    chunk = chunks.encode(made)
    unpacked = {name: None if column is None else decompress(column).hex() for name, column in chunk.columns.items()}
    scalars = chunks.read_scalars(chunk.scalars)
    named = {
        field: value.hex() if isinstance(value, bytes) else {name: row(where) for name, where in value.items()}
        for field, value in msgspec.structs.asdict(scalars).items()
    }
    head = {name: value for name, value in asdict(chunk).items() if name not in ("columns", "scalars")}
    packed = decompress(chunk.scalars).hex()
    check("telemetry/chunk", {**head, "columns": unpacked, "scalars": named, "scalars packed": packed})


def test_minutes_and_hours_come_to_the_same_as_before() -> None:
    minutes = rollup.minute_rollups(samples.made())
    packed = [
        {
            "shares": decompress(rollup.pack_shares(each)).hex(),
            "netdevs": decompress(rollup.pack_netdevs(each)).hex(),
        }
        for each in minutes
    ]
    hour = _rollup(rollup.merge_rollups(minutes))
    check("telemetry/rollups", {"minutes": [_rollup(each) for each in minutes], "packed": packed, "hour": hour})


async def test_history_answers_the_same_as_before(database: Database) -> None:
    made = samples.made()
    minutes = rollup.minute_rollups(made)
    tables = ("telemetry_chunk", "telemetry_minute")
    async with database.pool.connection() as connection:
        await connection.execute(
            "INSERT INTO node (id, name, key_hash, simulated) VALUES (%s, 'golden', %s, false)", (NODE, b"0" * 32)
        )
        await partitions.create_partitions(
            connection, [partitions.partition_of(table, samples.START_MS) for table in tables]
        )
        await repository.copy_chunks(connection, [EncodedChunk(NODE, "s", chunks.encode(made), minutes)])
        await repository.copy_minutes(connection, [(NODE, minute) for minute in minutes])
    source = TelemetrySource(database, _Stored(), NODE, samples.STEP_MS / 1000)  # type: ignore[arg-type]  # all that history asks of it
    near, long = TimeRange(samples.START_MS, END_MS), TimeRange(END_MS - 36_000_000, END_MS)
    physical = frozenset({"eth0", "eth1"})
    async with asyncio.timeout(PATIENCE_S):
        answers = {
            "heatmap": _heatmap(await read_heatmap(source, "busy", near, 5)),
            "heatmap of minutes": _heatmap(await read_heatmap(source, "softirq", long, 3)),
            "series": _series(
                await read_series(source, list(HISTORY_METRICS), near, 5, physical=physical, netdev=None)
            ),
            "series of minutes": _series(
                await read_series(source, list(HISTORY_METRICS), long, 2, physical=None, netdev="eth1")
            ),
            "cells": asdict(await read_irq_matrix(source, near)),
            "minutes": [_rollup(each) for each in await history.read_minutes(source, near)],
            "samples": len(await history.read_samples(source, near)),
        }
    check("telemetry/history", answers)


def _heatmap(answer: bytes) -> dict[str, object]:
    magic, rows, columns, resolution, start, width = struct.unpack_from("<4sIIIdd", answer)
    cells = np.frombuffer(answer, np.uint8, offset=32).reshape(rows, columns)
    head = {"magic": magic.decode(), "resolution": resolution, "start_ms": start, "column_ms": width}
    return head | {"cells": [row(line) for line in cells.tolist()]}


def _series(answer: Series) -> dict[str, object]:
    said: dict[str, Any] = answer.model_dump(mode="json")
    rounded = {
        name: row(None if value is None else round(value, 6) for value in line) for name, line in said["values"].items()
    }
    return said | {"values": rounded, "times_ms": row(said["times_ms"])}


def test_a_frame_for_browsers_has_the_same_header_and_columns_as_before() -> None:
    frames = []
    for rates in samples.made()[4:7]:
        frame = rates_frame(NODE, rates, frozenset({"eth0", "eth1"}))
        (length,) = struct.unpack_from("<I", frame)
        header = json.loads(frame[4 : 4 + length])
        columns = {
            each["name"]: row(
                np.frombuffer(frame[each["offset"] : each["offset"] + each["length"]], _TYPES[each["type"]]).tolist()
            )
            for each in header["columns"]
        }
        header["columns"] = [row(each.values()) for each in header["columns"]]
        frames.append({"header": header, "columns": columns})
    check("telemetry/live", frames)
