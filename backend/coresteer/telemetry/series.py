"""Metrics of the history API (coresteer_core.metrics.HISTORY_METRICS) over time, averaged or pooled by steps."""

from collections.abc import Sequence

import numpy as np

from coresteer.telemetry import chunks
from coresteer.telemetry.byte_columns import F64
from coresteer.telemetry.history import TelemetrySource, TimeRange, by_minutes, read_chunks, read_rollups
from coresteer.telemetry.schemas import Resolution, Series
from coresteer.telemetry.steps import Positions, filled_steps
from coresteer_core.metrics import HISTORY_METRICS
from coresteer_core.metrics import Source as MetricSource
from coresteer_core.node.metric_values import SCALAR_READERS, Counted, netdevs_counted
from coresteer_core.node.rates import Rates
from coresteer_core.node.rates_block import NETDEV_FIELDS


async def read_series(
    source: TelemetrySource,
    metrics: Sequence[str],
    span: TimeRange,
    points: int,
    *,
    physical: frozenset[str] | None,
    netdev: str | None,
) -> Series:
    """Return values over time for each of the metrics of HISTORY, at most `points` steps.

    Traffic is netdev's, or the sum of the physical ones (all but lo where those are unknown). Rates are averages over
    the step, levels such as round-trip times its maximum; of the samples or roll-ups that fill it (filled_steps()).
    """
    counted = netdevs_counted(physical if netdev is None else frozenset({netdev}))
    sources = {name: read_from for name in metrics if (read_from := HISTORY_METRICS[name].source) is not None}
    read = _lines_of_samples if span.resolution is Resolution.SAMPLE else _lines_of_rollups
    starts, ends, table = await read(source, sources, span, counted)
    if (minutes := await by_minutes(source, span, starts.tolist())) is not None:
        span = minutes
        starts, ends, table = await _lines_of_rollups(source, sources, span, counted)
    count = span.steps(points, source.interval_s)
    width = (span.end - span.start) / count
    step, interval = filled_steps((starts - span.start) / width, (ends - span.start) / width, count)
    return Series(
        resolution=span.resolution,
        step_ms=width,
        times_ms=[span.start + position * width for position in range(count)],
        values={
            name: _pooled(name, step, seconds[interval], amounts[interval], count)
            for name, (seconds, amounts) in table.items()
        },
    )


def _pooled(name: str, step: Positions, seconds: F64, amounts: F64, count: int) -> list[float | None]:
    """Return a metric's value in each step, None where no amount is known."""
    metric = HISTORY_METRICS[name]
    known = ~np.isnan(amounts)
    step, seconds, amounts = step[known], seconds[known], amounts[known] * metric.factor
    filled = np.bincount(step, minlength=count) > 0
    if metric.source is not None and metric.source.level:
        line = np.zeros(count)
        np.maximum.at(line, step, amounts)
    else:
        duration = np.bincount(step, seconds, minlength=count)
        line = np.bincount(step, amounts, minlength=count) / np.where(duration > 0, duration, 1)
    return [value if there else None for value, there in zip(line.tolist(), filled.tolist(), strict=True)]


async def _lines_of_rollups(
    source: TelemetrySource, metrics: dict[str, MetricSource], span: TimeRange, counted: Counted
) -> tuple[F64, F64, dict[str, tuple[F64, F64]]]:
    """Return starts, ends and, for each metric, its duration and amount in every roll-up; NaN for an unknown amount."""
    found = await read_rollups(source, span)
    starts, ends = _floats([r.start_ms for r in found]), _floats([r.end_ms for r in found])
    return (
        starts,
        ends,
        {
            name: (_floats([r.known_s(one.field) for r in found]), _floats([r.amount(one, counted) for r in found]))
            for name, one in metrics.items()
        },
    )


async def _lines_of_samples(
    source: TelemetrySource, metrics: dict[str, MetricSource], span: TimeRange, counted: Counted
) -> tuple[F64, F64, dict[str, tuple[F64, F64]]]:
    """Return starts, ends and, for each metric, the duration and amount of every sample; NaN for an unknown amount."""
    rows, unstored = await read_chunks(source, span, ["netdevs"])
    ends, seconds = [np.empty(0)], [np.empty(0)]
    lines: dict[str, list[F64]] = {name: [np.empty(0)] for name in metrics}
    for samples, _, packed, netdevs in rows:
        scalars = chunks.read_scalars(packed)
        ends.append(chunks.cumulative(scalars.times_ms).astype(np.float64))
        seconds.append(np.frombuffer(scalars.durations_s, "<f8"))
        traffic = _traffic(netdevs, samples, scalars.absent.get("netdevs", []), counted)
        for name, metric in metrics.items():
            is_traffic = metric.kind == "netdev"
            lines[name].append(
                traffic[NETDEV_FIELDS.index(metric.field)] if is_traffic else chunks.amounts(scalars, metric.field)
            )
    ends.append(np.array([rates.time_ms for rates in unstored], np.float64))
    seconds.append(np.array([rates.duration_s for rates in unstored], np.float64))
    for name, metric in metrics.items():
        lines[name].append(_floats([_amount_of_rates(metric, rates, counted) for rates in unstored]))
    durations, all_ends = np.concatenate(seconds), np.concatenate(ends)
    joined = {name: (durations, np.concatenate(parts)) for name, parts in lines.items()}
    return all_ends - durations * 1000, all_ends, joined


def _traffic(netdevs: bytes | None, samples: int, absent: list[int], counted: Counted) -> F64:
    """Return the eight sums of NetdevCounts × samples over the netdevs that count, NaN where unknown."""
    unknown = np.full((8, samples), np.nan)
    if netdevs is None:
        return unknown
    names, present, counts = chunks.read_netdevs(netdevs, samples)
    chosen = [position for position, name in enumerate(names) if counted(name)]
    sums: F64 = counts[chosen].sum(axis=0).astype(np.float64)
    sums[:, absent] = np.nan
    if chosen:
        sums[:, ~present[chosen].any(axis=0)] = np.nan
        return sums
    return unknown


def _amount_of_rates(metric: MetricSource, rates: Rates, counted: Counted) -> float | None:
    if metric.kind != "netdev":
        return SCALAR_READERS[metric.field](rates)
    chosen = [getattr(netdev, metric.field) for netdev in rates.netdevs or () if counted(netdev.name)]
    return sum(chosen) if chosen else None


def _floats(values: Sequence[float | None]) -> F64:
    return np.array([np.nan if value is None else value for value in values], np.float64)
