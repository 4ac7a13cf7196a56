"""Chunks of service-class figures: columns of numbers for the classes of one policy over up to a minute. Pure.

Columns of f64 with NaN where unknown; a class's values of a figure are adjacent, which zstd compresses well. Pure.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from coresteer.classes.schemas import ClassFigure
from coresteer.telemetry.byte_columns import F64, I64, compress, decompress
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.protocol import ClassesMessage

MAX_CHUNK_MS = 60_000
_REACH_MS = 2500
"""A report covers the time since the one before if that is at most this; otherwise only its own step."""
_LOWEST = (ClassFigure.F, ClassFigure.SATISFIED)


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Figures of one policy's classes over up to a minute. names: of the classes. times_ms: i64."""

    names: list[str]
    times_ms: bytes
    figures: bytes


def encode(messages: Sequence[ClassesMessage]) -> bytes:
    """Encode reports of one policy, in order of time and all with the same classes, as a chunk."""
    figures = np.array([[_numbers(one) for one in message.classes] for message in messages], np.float64)
    times = np.array([message.time_ms for message in messages], np.int64)
    names = [one.name for one in messages[0].classes]
    chunk = Chunk(names, times.tobytes(), np.ascontiguousarray(figures.transpose(2, 1, 0)).tobytes())
    return compress(msgspec.msgpack.encode(chunk))


def _numbers(one: ClassFigures) -> list[float | None]:
    """Return a class's figures in the order of ClassFigure; numpy converts None to NaN."""
    is_reported = one.source is not None
    f = one.f if is_reported and one.requests else None
    counts = (one.requests, one.satisfied, one.waiting, one.active) if is_reported else (None,) * 4
    return [f, *counts, one.p50_us, one.p95_us, one.p99_us, one.longest_wait_us]


def worst_per_step(chunks: Iterable[bytes], *, first_ms: int, step_ms: int, steps: int) -> dict[str, F64]:
    """Return by class an array figure × step with the worst value in each step, NaN without any.

    chunks: as encode made them, in order of time.
    """
    parts_by_class: dict[str, list[tuple[I64, F64]]] = {}
    for data in chunks:
        chunk = msgspec.msgpack.decode(decompress(data), type=Chunk)
        times = np.frombuffer(chunk.times_ms, np.int64)
        figures = np.frombuffer(chunk.figures, np.float64).reshape(len(ClassFigure), len(chunk.names), len(times))
        for place, name in enumerate(chunk.names):
            parts_by_class.setdefault(name, []).append((times, figures[:, place]))
    pooled = {}
    for name, parts in parts_by_class.items():
        times = np.concatenate([times for times, _ in parts])
        figures = np.concatenate([figures for _, figures in parts], axis=1)
        pooled[name] = _pooled(times, figures, first_ms=first_ms, step_ms=step_ms, steps=steps)
    return {name: figures for name, figures in pooled.items() if not np.isnan(figures).all()}


def _pooled(times: I64, figures: F64, *, first_ms: int, step_ms: int, steps: int) -> F64:
    last = (times - first_ms) // step_ms
    before = np.concatenate([[times[0] - MAX_CHUNK_MS], times[:-1]])
    first = np.where((times - before <= _REACH_MS) & (times > before), (before - first_ms) // step_ms + 1, last)
    found = np.full((len(ClassFigure), steps), np.nan)
    for back in range(_REACH_MS // step_ms + 2):
        at = last - back
        counts = (at >= np.minimum(first, last)) & (at >= 0) & (at < steps)
        for row, figure in enumerate(ClassFigure):
            worst = np.fmin if figure in _LOWEST else np.fmax
            worst.at(found[row], at[counts], figures[row, counts])
    return found
