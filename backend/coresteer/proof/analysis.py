"""Analysis of finished episodes: reads their samples once all are stored, and adds them to the sequences."""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.application_metrics.service import find_declared
from coresteer.policies.application_figures import with_applications
from coresteer.policies.schemas import PolicyBody
from coresteer.proof import findings, repository
from coresteer.proof.candidates import Candidates
from coresteer.proof.context import ProofContext
from coresteer.proof.exclusion import Exclusion
from coresteer.proof.repository import NodeFacts, Sum, SumKey
from coresteer.proof.schedule import BLOCKS_PER_EPISODE, BUCKETS
from coresteer.proof.switching import TOLERANCE, end_of, excepted_settings, has_switched
from coresteer.proof.tables import ProofBlockRow, ProofEpisodeRow, ProofVersionRow
from coresteer.proof.washout import Switch, washout
from coresteer.telemetry import repository as telemetry
from coresteer.telemetry.block_figures import BlockFigures, between, block_figures, difference
from coresteer.telemetry.repository import from_unix_ms, to_unix_ms
from coresteer_core.policies.base import HoldoutReport

LATE = timedelta(hours=1)
"""How long samples may be late: agents send what is not acknowledged again after a reconnect."""
_MIN_COVERED = 0.85
_MAX_AT_ONCE = 500
_MAX_GROUPS = 64
_SWITCHES_FROM = 500
_WASHOUT_EVERY = timedelta(hours=1)


class _Block(NamedTuple):
    """One block: holdout or enforced, its beginning, figures after the wash-out, and those of its parts."""

    holdout: bool
    started_at: datetime
    figures: BlockFigures
    parts: list[float]


class Analysis:
    """Includes or excludes the episodes that wait for their samples."""

    def __init__(self, context: ProofContext) -> None:
        self._context = context
        self._try_at: dict[int, datetime] = {}

    async def run(self, now: datetime, candidates: Candidates) -> None:
        """Analyse the waiting episodes that are due, in one transaction."""
        async with self._context.policies.database.session() as session:
            waiting = await repository.episodes_in(session, "waiting")
            due = [row for row in waiting if self._is_due(row, now)][:_MAX_AT_ONCE]
            self._try_at = {row.id: self._try_at[row.id] for row in waiting if row.id in self._try_at}
            if not due:
                return
            keys = {(row.policy_id, row.version) for row in due}
            bodies = {
                key: PolicyBody.model_validate(body) for key, body in (await repository.bodies(session, keys)).items()
            }
            included: dict[tuple[int, int], list[ProofEpisodeRow]] = defaultdict(list)
            for row in due:
                key = row.policy_id, row.version
                if await self._analyse(session, row, bodies[key], now, candidates):
                    included[key].append(row)
            await session.flush()
            reversed_any = False
            for key, rows in included.items():
                version = await repository.find_version(session, *key, lock=True)
                if version is not None:
                    await repository.add_sums(session, _sums(version, rows))
                    reversed_any |= await findings.update(session, version, bodies[key], now)
                    await _choose_washout(session, version, bodies[key].proof.block_s, now)
        if reversed_any:
            findings.publish(self._context)

    def _is_due(self, row: ProofEpisodeRow, now: datetime) -> bool:
        samples, switch = timedelta(seconds=self._context.chunk_s + 2), timedelta(seconds=row.washout_s) + 2 * TOLERANCE
        wait = max(samples, switch)
        return now >= self._try_at.get(row.id, end_of(row) + wait)

    async def _analyse(
        self, session: AsyncSession, row: ProofEpisodeRow, body: PolicyBody, now: datetime, candidates: Candidates
    ) -> bool:
        """Include or exclude an episode; return whether it is included. It keeps waiting for samples that are late."""
        facts = None if row.node_id is None else await repository.node_facts(session, row.node_id)
        if row.node_id is None or facts is None:
            _exclude(row, Exclusion.MISSING_DATA, now)
            return False
        reports = await repository.holdout_reports(session, row.node_id, row.policy_id, row.started_at, now)
        found = await repository.disturbances(session, row.node_id, row.policy_id, row.started_at, end_of(row))
        if found.change:
            _exclude(row, Exclusion.CHANGE, now)
        elif not has_switched(row, reports, facts.skew):
            _exclude(row, Exclusion.NOT_SWITCHED, now)
        else:
            blocks = await self._blocks(row, row.node_id, body, facts)
            if self._is_complete(row, blocks, now):
                blocks = await self._with_applications(session, row, blocks, body, facts.name)
                factors = _factors(row, facts, candidates) | _excepted(reports)
                # no reason to exclude: nothing drifts while it is held out, so it would depend on the coin
                factors |= {"drift": "yes"} if found.drift else {}
                return _include(session, row, body, blocks, factors=factors, now=now)
        return False

    async def _with_applications(
        self, session: AsyncSession, row: ProofEpisodeRow, blocks: list[_Block], body: PolicyBody, node: str
    ) -> list[_Block]:
        """Return the blocks with the application metrics of the policy. node: its name."""
        if not (declared := await find_declared(session, body.proof.application_metrics)):
            return blocks
        read = self._context.policies.read_application_metric
        found = []
        for block in blocks:
            start = block.started_at + timedelta(seconds=row.washout_s)
            end = block.started_at + timedelta(seconds=row.block_s)
            figures = await with_applications(block.figures, declared, read, node=node, start=start, end=end)
            found.append(block._replace(figures=figures))
        return found

    def _is_complete(self, row: ProofEpisodeRow, blocks: list[_Block], now: datetime) -> bool:
        """Return whether the samples of both blocks are stored; if not, exclude the episode once they are too late."""
        covered = min(block.figures.duration_s for block in blocks) / (row.block_s - row.washout_s)
        if covered >= _MIN_COVERED:
            return True
        if now >= end_of(row) + LATE:
            _exclude(row, Exclusion.MISSING_DATA, now)
        else:
            self._try_at[row.id] = now + timedelta(seconds=max(2.0, self._context.chunk_s / 2))
        return False

    async def _blocks(self, row: ProofEpisodeRow, node_id: int, body: PolicyBody, facts: NodeFacts) -> list[_Block]:
        """Return both blocks of an episode from the roll-ups stored so far."""
        skew, margin = facts.skew, timedelta(minutes=1)
        async with self._context.policies.database.pool.connection() as connection:
            rollups = await telemetry.read_rollups(
                connection, "telemetry_minute", node_id, row.started_at + skew - margin, end_of(row) + skew + margin
            )
        physical = self._context.policies.registry.get(node_id).physical

        def counted(name: str) -> bool:
            return name != "lo" if physical is None else name in physical

        metrics = (body.proof.metric, *body.proof.guardrails)

        def figures(start_ms: float, end_ms: float) -> BlockFigures:
            return block_figures(between(rollups, start_ms, end_ms), metrics, counted)

        blocks = []
        for holdout, start in _starts(row):
            start_ms, block_ms = to_unix_ms(start + skew), row.block_s * 1000
            edges = [start_ms + block_ms * part / BUCKETS for part in range(BUCKETS + 1)]
            parts = [_log(figures(edges[part], edges[part + 1]), body.proof.metric) for part in range(BUCKETS)]
            whole = figures(start_ms + row.washout_s * 1000, start_ms + block_ms)
            blocks.append(_Block(holdout, start, whole, parts))
        return blocks


def _include(
    session: AsyncSession,
    row: ProofEpisodeRow,
    body: PolicyBody,
    blocks: list[_Block],
    *,
    factors: dict[str, object],
    now: datetime,
) -> bool:
    """Add an episode's differences and blocks; return False for one that is excluded for what its blocks show."""
    if any((block.figures.bit_per_s or 0.0) < body.proof.min_bit_per_s for block in blocks):
        _exclude(row, Exclusion.LITTLE_TRAFFIC, now)
        return False
    figures = {block.holdout: block.figures for block in blocks}
    metrics = dict.fromkeys((body.proof.metric, *body.proof.others))
    found = {metric: difference(figures[False], figures[True], metric) for metric in metrics}
    if found[body.proof.metric] is None:
        _exclude(row, Exclusion.MISSING_DATA, now)
        return False
    row.state, row.ended_at = "included", end_of(row)
    row.differences = {metric: one for metric, one in found.items() if one is not None}
    session.add_all(
        ProofBlockRow(
            episode_id=row.id,
            holdout=block.holdout,
            started_at=block.started_at,
            figures={name: sums.value for name, sums in block.figures.sums.items()},
            parts=block.parts,
            factors=factors,
        )
        for block in blocks
    )
    return True


def _log(figures: BlockFigures, metric: str) -> float:
    value = figures.sums[metric].log if metric in figures.sums else None
    return float("nan") if value is None else value


def _starts(row: ProofEpisodeRow) -> list[tuple[bool, datetime]]:
    """Return for both blocks whether it is the holdout, and when it begins."""
    second = row.started_at + timedelta(seconds=row.block_s)
    return [(row.holdout_first, row.started_at), (not row.holdout_first, second)]


def _exclude(row: ProofEpisodeRow, reason: Exclusion, now: datetime) -> None:
    row.state, row.reason, row.ended_at = "excluded", reason, now


def _factors(row: ProofEpisodeRow, facts: NodeFacts, candidates: Candidates) -> dict[str, object]:
    """Return what else could explain a difference between blocks or nodes."""
    others = sorted(
        f"{candidates.bodies[policy_id, version].name} v{version}"
        for policy_id, version, node_id in candidates.subjects
        if node_id == row.node_id and policy_id != row.policy_id
    )
    return {**facts.conditions, "kernel": facts.kernel, "other policies": ", ".join(others)}


def _excepted(reports: list[HoldoutReport]) -> dict[str, object]:
    found = excepted_settings(reports)
    return {"never held out": ", ".join(found)} if found else {}


def _sums(version: ProofVersionRow, rows: list[ProofEpisodeRow]) -> dict[SumKey, Sum]:
    """Return what new episodes add to the sums: of all nodes by time, and of the groups of each label."""
    sums: dict[SumKey, Sum] = defaultdict(lambda: Sum(0, 0.0, 0.0))
    for row in rows:
        episode_ms = 1000 * BLOCKS_PER_EPISODE * row.block_s
        at = from_unix_ms(to_unix_ms(end_of(row)) // episode_ms * episode_ms)
        for metric, value in row.differences.items():
            one = Sum(1, value, value**2)
            key = SumKey(version.policy_id, version.version, metric, "", "", at)
            sums[key] += one
            for label, group in sorted(row.labels.items())[:_MAX_GROUPS]:
                sums[key._replace(label=label, value=group, at=version.started_at)] += one
    return dict(sums)


async def _choose_washout(session: AsyncSession, version: ProofVersionRow, block_s: float, now: datetime) -> None:
    """Choose the wash-out of the episodes to come, from the past; at most once an hour, more often at the beginning."""
    if now < version.washout_at + min(_WASHOUT_EVERY, (version.washout_at - version.started_at) / 4):
        return
    rows = await repository.latest_blocks(session, version.policy_id, version.version, _SWITCHES_FROM)
    switches = [Switch(not holdout, parts) for first, holdout, parts in rows if holdout or first]
    version.washout_s, version.washout_at = washout(switches, block_s / BUCKETS, BUCKETS), now
