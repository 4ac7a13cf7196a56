"""Reads the figures of a rollout's nodes before and after a stage began."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain

from coresteer.application_metrics.reading import PREFIX, DeclaredMetric
from coresteer.application_metrics.service import find_declared
from coresteer.policies import repository
from coresteer.policies.application_figures import with_applications
from coresteer.policies.context import PolicyContext
from coresteer.policies.proof_settings import ProofSettings
from coresteer.policies.rollout_schemas import StageEvidence
from coresteer.policies.schemas import PolicyBody
from coresteer.policies.stage_evidence import NodeFigures, StageOfRollout, stage_evidence
from coresteer.policies.tables import RolloutRow
from coresteer.presence.stored import clock_skew_ms, physical_netdevs
from coresteer.telemetry import history
from coresteer.telemetry.block_figures import BlockFigures, block_figures
from coresteer.telemetry.history import TelemetrySource, TimeRange
from coresteer.telemetry.repository import to_unix_ms
from coresteer.telemetry.rollup import Rollup, minute_rollups
from coresteer_core.node.metric_values import netdevs_counted
from coresteer_core.node.rates import Rates
from coresteer_core.policies.base import Mode

_MAX_WINDOW_S = 600.0
_SETTLED = 0.25
"""Share of a stage at its begin that is left out: agents apply the version in it, one step after another."""
_MINUTES_FROM_S = 240.0
"""Windows as long as this are read as stored minutes, shorter ones as samples."""
_MAX_NODES = 32
"""Nodes of a stage, and of those that wait, that are read."""
_WAIT_FOR_SAMPLES = timedelta(seconds=90)
"""Another backend stores samples a chunk and a part of a block after they were taken."""


async def measure_stage(context: PolicyContext, row: RolloutRow, now: datetime) -> StageEvidence | None:
    """Return the figures of a rollout's present stage, whose time is over now.

    None while another backend has not stored its nodes' samples yet, for up to 90 s.
    """
    window = timedelta(seconds=min(_MAX_WINDOW_S, (1 - _SETTLED) * row.wait_s))
    async with context.database.session() as session:
        version = await repository.find_version(session, row.policy_id, row.to_version)
        body = None if version is None else PolicyBody.model_validate(version.body)
        declared = {} if body is None else await find_declared(session, body.proof.applications)
        nodes = await repository.node_attributes(session, [node_id for stage in row.stages for node_id in stage])
    if body is None or body.mode is not Mode.ENFORCE or window.total_seconds() < 1:
        why = "the version changes nothing" if window else "the stage does not wait"
        sentence = f"No figures: {why}."
        return StageEvidence(stage=row.stage, at=now, window_s=window.total_seconds(), figures=[], sentence=sentence)
    names = {node.node_id: node.name for node in nodes}
    reader = _WindowReader(context, body.proof, declared, names)
    end = row.stage_at + timedelta(seconds=row.wait_s)
    later = [node_id for stage in row.stages[row.stage + 1 :] for node_id in stage]
    begun_at = row.begun_at or row.stage_at  # later, the nodes may have had the version before the stage began anew
    both = reader.chosen(row.stages[row.stage]), reader.chosen(later)
    if now < end + _WAIT_FOR_SAMPLES and not await reader.has_samples(chain(*both), end):
        return None
    changed, waiting = [
        await reader.read(node_ids, (begun_at - window, begun_at), (end - window, end)) for node_ids in both
    ]
    number_waiting = sum(node_id in names for node_id in later)
    return stage_evidence(
        StageOfRollout(
            row.stage, len(row.stages), end, window.total_seconds(), number_waiting, body.proof.min_bit_per_s
        ),
        [*dict.fromkeys((body.proof.metric, *body.proof.others))],
        changed,
        waiting,
        {f"{PREFIX}{name}": metric.shown_as for name, metric in declared.items()},
    )


class _WindowReader:
    """Reads the figures of nodes in windows of time. names: of the nodes, by id."""

    def __init__(
        self,
        context: PolicyContext,
        settings: ProofSettings,
        declared: Mapping[str, DeclaredMetric],
        names: Mapping[int, str],
    ) -> None:
        self._context, self._settings, self._declared, self._names = context, settings, declared, names

    def chosen(self, node_ids: Sequence[int]) -> list[int]:
        """Return at most _MAX_NODES of these nodes, evenly chosen, without deleted ones."""
        known = [node_id for node_id in node_ids if node_id in self._names]
        count = min(_MAX_NODES, len(known))
        return [known[place * len(known) // count] for place in range(count)]

    async def has_samples(self, node_ids: Iterable[int], end: datetime) -> bool:
        """Return whether the samples until then of those nodes that are connected to other backends are stored."""
        for node_id in node_ids:
            if self._context.connections.location_elsewhere(node_id) is None:
                continue
            stored = await history.read_span(self._source(node_id))
            if stored is None or stored.end < to_unix_ms(end) + await self._skew_ms(node_id):
                return False
        return True

    async def read(
        self, node_ids: Sequence[int], before: tuple[datetime, datetime], after: tuple[datetime, datetime]
    ) -> list[NodeFigures]:
        """Return the figures of nodes, without those that are not usable."""
        # whose agents then send what they have collected, which is half of a short window
        await asyncio.gather(*map(self._context.interest.refresh, node_ids))
        found = []
        for node_id in node_ids:
            figures = NodeFigures(await self._window(node_id, *before), await self._window(node_id, *after))
            if figures.is_usable((after[1] - after[0]).total_seconds(), self._settings.min_bit_per_s):
                found.append(figures)
        return found

    async def _window(self, node_id: int, start: datetime, end: datetime) -> BlockFigures:
        source, skew_ms = self._source(node_id), await self._skew_ms(node_id)
        physical = await physical_netdevs(self._context.database, self._context.registry, [node_id])
        span = TimeRange(to_unix_ms(start) + skew_ms, to_unix_ms(end) + skew_ms)
        if (end - start).total_seconds() >= _MINUTES_FROM_S:
            rollups = await history.read_minutes(source, span)
        else:
            rollups = await asyncio.to_thread(_rollups, await history.read_samples(source, span))
        figures = block_figures(rollups, self._settings.own_metrics, netdevs_counted(physical.get(node_id)))
        read = self._context.read_application_metric
        return await with_applications(figures, self._declared, read, node=self._names[node_id], start=start, end=end)

    def _source(self, node_id: int) -> TelemetrySource:
        return TelemetrySource(self._context.database, self._context.ingest, node_id, interval_s=1.0)

    async def _skew_ms(self, node_id: int) -> float:
        return await clock_skew_ms(self._context.database, self._context.registry, node_id)


def _rollups(samples: Sequence[Rates]) -> list[Rollup]:
    same_cpus: dict[int, list[Rates]] = defaultdict(list)
    for rates in samples:
        same_cpus[rates.cpus].append(rates)
    return [rollup for rates in same_cpus.values() for rollup in minute_rollups(rates)]
