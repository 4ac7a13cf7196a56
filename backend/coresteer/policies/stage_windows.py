"""Reads the figures of a rollout's nodes before and after a stage began."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from coresteer.policies import repository
from coresteer.policies.context import PolicyContext
from coresteer.policies.schemas import PolicyBody, StageEvidence
from coresteer.policies.stage_evidence import NodeFigures, stage_evidence
from coresteer.policies.tables import RolloutRow
from coresteer.telemetry import history
from coresteer.telemetry.block_figures import BlockFigures, block_figures
from coresteer.telemetry.history import TelemetrySource, TimeRange
from coresteer.telemetry.repository import to_unix_ms
from coresteer.telemetry.rollup import Rollup, minute_rollups
from coresteer_core.node.rates import Rates
from coresteer_core.policies.base import Mode

_MAX_WINDOW_S = 600.0
_SETTLED = 0.25
"""Share of a stage at its begin that is left out: agents apply the version in it, one step after another."""
_MINUTES_FROM_S = 240.0
"""Windows as long as this are read as stored minutes, shorter ones as samples."""
_MAX_NODES = 32
"""Nodes of a stage, and of those that wait, that are read."""


async def measure_stage(context: PolicyContext, row: RolloutRow, now: datetime) -> StageEvidence:
    """Return the figures of a rollout's present stage, which ends now."""
    window = timedelta(seconds=min(_MAX_WINDOW_S, (1 - _SETTLED) * row.wait_s))
    async with context.database.session() as session:
        version = await repository.find_version(session, row.policy_id, row.to_version)
    body = None if version is None else PolicyBody.model_validate(version.body)
    if body is None or body.mode is not Mode.ENFORCE or window.total_seconds() < 1:
        why = "the version changes nothing" if window else "the stage does not wait"
        sentence = f"No figures: {why}."
        return StageEvidence(stage=row.stage, at=now, window_s=window.total_seconds(), figures=[], sentence=sentence)
    metrics = [*dict.fromkeys((body.proof.metric, *body.proof.guardrails))]
    waiting_ids = [node_id for stage in row.stages[row.stage + 1 :] for node_id in stage]
    windows = ((row.stage_at - window, row.stage_at), (now - window, now))
    nodes, waiting = [
        [
            found
            for node_id in _spread(node_ids)
            if (found := await _read(context, node_id, metrics, windows)).is_usable(
                window.total_seconds(), body.proof.min_bit_per_s
            )
        ]
        for node_ids in (row.stages[row.stage], waiting_ids)
    ]
    return stage_evidence(row.stage, now, window.total_seconds(), metrics, nodes, waiting, len(row.stages))


def _spread(node_ids: Sequence[int]) -> list[int]:
    """Return at most _MAX_NODES nodes, evenly chosen."""
    count = min(_MAX_NODES, len(node_ids))
    return [node_ids[place * len(node_ids) // count] for place in range(count)]


async def _read(
    context: PolicyContext,
    node_id: int,
    metrics: Sequence[str],
    windows: tuple[tuple[datetime, datetime], tuple[datetime, datetime]],
) -> NodeFigures:
    state = context.registry.get(node_id)
    source = TelemetrySource(context.database, context.ingest, node_id, interval_s=1.0)
    skew_ms = state.clock_skew_ms or 0.0
    physical = state.physical

    def counted(name: str) -> bool:
        return name != "lo" if physical is None else name in physical

    async def read(start: datetime, end: datetime) -> BlockFigures:
        span = TimeRange(to_unix_ms(start) + skew_ms, to_unix_ms(end) + skew_ms)
        if (end - start).total_seconds() >= _MINUTES_FROM_S:
            rollups = await history.read_minutes(source, span)
        else:
            rollups = await asyncio.to_thread(_rollups, await history.read_samples(source, span))
        return block_figures(rollups, metrics, counted)

    before, after = windows
    return NodeFigures(await read(*before), await read(*after))


def _rollups(samples: Sequence[Rates]) -> list[Rollup]:
    same_cpus: dict[int, list[Rates]] = defaultdict(list)
    for rates in samples:
        same_cpus[rates.cpus].append(rates)
    return [rollup for rates in same_cpus.values() for rollup in minute_rollups(rates)]
