"""Analysis of finished episodes: reads their samples once all are stored, and adds them to the sequences."""

import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.application_metrics.reading import PREFIX, DeclaredMetric
from coresteer.application_metrics.service import find_declared
from coresteer.errors import is_database_unavailable
from coresteer.policies.application_figures import with_applications
from coresteer.policies.schemas import PolicyBody
from coresteer.presence.stored import physical_netdevs
from coresteer.proof import findings, repository, sums_repository
from coresteer.proof.candidates import Candidates
from coresteer.proof.context import ProofContext
from coresteer.proof.course import course_step_s
from coresteer.proof.exclusion import Block, Exclusion, missing_in
from coresteer.proof.repository import NodeFacts, Waiting
from coresteer.proof.schedule import BUCKETS
from coresteer.proof.sums_repository import Sum, SumKey
from coresteer.proof.switching import TOLERANCE, block_at, end_of, excepted_settings, exclude, has_switched
from coresteer.proof.tables import ProofBlockRow, ProofEpisodeRow, ProofVersionRow
from coresteer.proof.washout import Switch, washout
from coresteer.telemetry import repository as telemetry
from coresteer.telemetry.block_figures import BlockFigures, between, block_figures, covered_s, difference, within
from coresteer.telemetry.repository import from_unix_ms, to_unix_ms
from coresteer.telemetry.rollup import Rollup
from coresteer_core.node.metric_values import netdevs_counted
from coresteer_core.policies.base import HoldoutReport

log = logging.getLogger("coresteer.proof")

LATE = timedelta(hours=1)
"""How long samples may be late: agents send what is not acknowledged again after a reconnect."""
MAX_GROUPS = 50
"""Groups of nodes by the values of one label; more could not be read."""
OTHER_VALUES = "other values"
"""The group of all further values of a label."""
_MAX_LABELS = 64
_MIN_COVERED = 0.85
_MAX_AT_ONCE = 500
_RETRY_AFTER = timedelta(minutes=1)
_SWITCHES_FROM = 500
_WASHOUT_EVERY = timedelta(hours=1)


class _Block(NamedTuple):
    """One block: which, its beginning, figures after the wash-out, the share that samples cover, and its parts."""

    kind: Block
    started_at: datetime
    figures: BlockFigures
    covered: float
    parts: list[float]


class _Measured(NamedTuple):
    """What was measured of an episode: both blocks; traffic in the time before them, and how much of it is covered."""

    blocks: list[_Block]
    bit_per_s_before: float
    covered_before: float


class _Excluded(NamedTuple):
    """An episode that is left out, why, and for which block."""

    reason: Exclusion
    block: Block | None = None


class _Included(NamedTuple):
    """An episode that counts: both blocks with the primary metric, and what else could explain a difference."""

    blocks: list[_Block]
    factors: dict[str, object]


class Analysis:
    """Includes or excludes the episodes that wait for their samples."""

    def __init__(self, context: ProofContext) -> None:
        self._context = context
        self._try_at: dict[int, datetime] = {}

    async def run(self, now: datetime, candidates: Candidates) -> bool:
        """Analyse the waiting episodes that are due; return whether some wait.

        Those of a version are measured first, because it takes a while, and then stored in one transaction. What fails
        for one version or episode, which the log tells, is tried again later, and does not hold up others.
        """
        database = self._context.policies.database
        async with database.session() as session:
            waiting = await repository.waiting_episodes(session)
        self._try_at = {one.id: self._try_at[one.id] for one in waiting if one.id in self._try_at}
        due: dict[tuple[int, int], list[int]] = defaultdict(list)
        for one in [one for one in waiting if self._is_due(one, now)][:_MAX_AT_ONCE]:
            due[one.policy_id, one.version].append(one.id)
        reversed_any = False
        for key, episodes in due.items():
            try:
                reversed_any |= await self._analyse_version(key, episodes, now, candidates)
            except Exception as error:
                if is_database_unavailable(error):
                    raise
                log.exception("The proof of policy %d, version %d, cannot be continued; retrying.", *key)
                self._try_at |= dict.fromkeys(episodes, now + _RETRY_AFTER)
        if reversed_any:
            findings.publish(self._context)
        return bool(waiting)

    async def _analyse_version(
        self, key: tuple[int, int], episodes: Sequence[int], now: datetime, candidates: Candidates
    ) -> bool:
        """Analyse episodes of a version; return whether it was rolled back."""
        database = self._context.policies.database
        async with database.session() as session:
            body = (await repository.bodies(session, {key})).get(key)
            rows = await repository.find_waiting(session, episodes)
        if body is None:
            return False
        settings = PolicyBody.model_validate(body)
        outcomes = {row.id: await self._try(row, settings, now, candidates) for row in rows}
        async with database.session() as session:
            return await self._store(session, key, settings, outcomes, now)

    async def _try(
        self, row: ProofEpisodeRow, body: PolicyBody, now: datetime, candidates: Candidates
    ) -> _Included | _Excluded | None:
        """Analyse an episode; None while it keeps waiting. One whose analysis fails for an hour is excluded."""
        try:
            return await self._analyse(row, body, now, candidates)
        except Exception as error:
            return self._failed(row, error, now)

    def _failed(self, row: ProofEpisodeRow, error: Exception, now: datetime) -> _Excluded | None:
        if is_database_unavailable(error):
            raise error
        log.error("Episode %d cannot be analysed; retrying.", row.id, exc_info=error)
        self._try_at[row.id] = now + _RETRY_AFTER
        return _Excluded(Exclusion.FAILED) if now >= end_of(row) + LATE else None

    async def _store(
        self,
        session: AsyncSession,
        key: tuple[int, int],
        body: PolicyBody,
        outcomes: Mapping[int, _Included | _Excluded | None],
        now: datetime,
    ) -> bool:
        """Store what became of those of these episodes that still wait; return whether their version is rolled back."""
        decided = {episode: outcome for episode, outcome in outcomes.items() if outcome is not None}
        if not decided or (version := await repository.find_version(session, *key, lock=True)) is None:
            return False
        included = []
        for row in await repository.find_waiting(session, list(decided), lock=True):
            outcome: _Included | _Excluded | None = decided[row.id]
            if isinstance(outcome, _Included):
                try:
                    async with session.begin_nested():
                        _include(session, row, body, outcome)
                    included.append(row)
                    continue
                except Exception as error:
                    await session.refresh(row)
                    outcome = self._failed(row, error, now)
            if outcome is not None:
                exclude(row, outcome.reason, now, outcome.block)
        if not included:
            return False
        groups = await sums_repository.group_names(session, *key)
        await sums_repository.add_sums(session, new_sums(version, body.proof.metric, included, groups, now))
        rolled_back = await findings.update(session, version, body, now)
        await _choose_washout(session, version, body.proof.block_s, now)
        return rolled_back

    def _is_due(self, one: Waiting, now: datetime) -> bool:
        samples, switch = timedelta(seconds=self._context.chunk_s + 2), timedelta(seconds=one.washout_s) + 2 * TOLERANCE
        return now >= self._try_at.get(one.id, one.ended_at + max(samples, switch))

    async def _analyse(
        self, row: ProofEpisodeRow, body: PolicyBody, now: datetime, candidates: Candidates
    ) -> _Included | _Excluded | None:
        """Return what becomes of an episode; None while it waits for samples that are late."""
        async with self._context.policies.database.session() as session:
            facts = None if row.node_id is None else await repository.node_facts(session, row.node_id)
            if row.node_id is None or facts is None:
                return _Excluded(Exclusion.MISSING_DATA)
            reports = await repository.holdout_reports(session, row.node_id, row.policy_id, row.started_at, now)
            found = await repository.disturbances(session, row.node_id, row.policy_id, row.started_at, end_of(row))
            applications = await find_declared(session, body.proof.applications)
        if found.changed_at is not None:
            return _Excluded(Exclusion.CHANGE, block_at(row, found.changed_at))
        if not has_switched(row, reports, facts.skew):
            return _Excluded(Exclusion.NOT_SWITCHED)
        blocks = await self._complete_blocks(row, body, facts, applications, now)
        if not isinstance(blocks, list):
            return blocks
        factors = _factors(row, facts, candidates) | _excepted(reports)
        # no reason to exclude: nothing drifts while it is held out, so it would depend on the coin
        factors |= {"drift": "yes"} if found.drift else {}
        return _Included(blocks, factors)

    async def _complete_blocks(
        self,
        row: ProofEpisodeRow,
        body: PolicyBody,
        facts: NodeFacts,
        applications: Mapping[str, DeclaredMetric],
        now: datetime,
    ) -> list[_Block] | _Excluded | None:
        """Return both blocks with the primary metric; None while an episode waits for what may still come."""
        measured, primary = await self._measure(row, body, facts), body.proof.metric
        missing = [block.kind for block in measured.blocks if block.covered < _MIN_COVERED]
        if missing or measured.covered_before < _MIN_COVERED:
            return None if self._may_wait(row, now) else _Excluded(Exclusion.MISSING_DATA, _only(missing))
        # nobody knew the coin then, and the policy was in force: what it changes does not decide what counts
        if measured.bit_per_s_before < body.proof.min_bit_per_s:
            return _Excluded(Exclusion.LITTLE_TRAFFIC)
        blocks = measured.blocks
        if primary in body.proof.own_metrics and (missing := _lacking(blocks, primary)):
            return _Excluded(Exclusion.MISSING_DATA, _only(missing))
        blocks = await self._with_applications(row, blocks, applications, facts.name)
        # what Prometheus has not answered yet may come
        asked = {f"{PREFIX}{name}" for name in applications}
        if any(asked - block.figures.sums.keys() for block in blocks) and self._may_wait(row, now):
            return None
        missing = _lacking(blocks, primary)
        return _Excluded(Exclusion.MISSING_DATA, _only(missing)) if missing else blocks

    def _may_wait(self, row: ProofEpisodeRow, now: datetime) -> bool:
        """Return whether an episode may wait for what is missing, at times that are ever further apart."""
        too_late = end_of(row) + LATE
        wait_s = max(2.0, self._context.chunk_s / 2, (now - end_of(row)).total_seconds() / 4)
        self._try_at[row.id] = min(now + timedelta(seconds=wait_s), too_late)
        return now < too_late

    async def _with_applications(
        self, row: ProofEpisodeRow, blocks: list[_Block], declared: Mapping[str, DeclaredMetric], node: str
    ) -> list[_Block]:
        """Return the blocks with the application metrics of the policy. node: its name."""
        read = self._context.policies.read_application_metric
        found = []
        for block in blocks:
            start = block.started_at + timedelta(seconds=row.washout_s)
            end = block.started_at + timedelta(seconds=row.block_s)
            figures = await with_applications(block.figures, declared, read, node=node, start=start, end=end)
            found.append(block._replace(figures=figures))
        return found

    async def _measure(self, row: ProofEpisodeRow, body: PolicyBody, facts: NodeFacts) -> _Measured:
        """Return both blocks of an episode, and the block's length before them, from the roll-ups stored so far."""
        skew, margin = facts.skew, timedelta(minutes=1)
        before = row.started_at - timedelta(seconds=row.block_s)
        policies = self._context.policies
        async with policies.database.pool.connection() as connection:
            rollups = await telemetry.read_rollups(
                connection, "telemetry_minute", facts.node_id, before + skew - margin, end_of(row) + skew + margin
            )
        physical = await physical_netdevs(policies.database, policies.registry, [facts.node_id])
        counted = netdevs_counted(physical.get(facts.node_id))

        def figures(chosen: Sequence[Rollup]) -> BlockFigures:
            return block_figures(chosen, body.proof.own_metrics, counted)

        blocks = []
        for kind, start in _starts(row):
            start_ms, block_ms = to_unix_ms(start + skew), row.block_s * 1000
            edges = [start_ms + block_ms * part / BUCKETS for part in range(BUCKETS + 1)]
            parts = [_log(figures(between(rollups, *part)), body.proof.metric) for part in pairwise(edges)]
            after, end = start_ms + row.washout_s * 1000, start_ms + block_ms
            covered = covered_s(rollups, after, end) / (row.block_s - row.washout_s)
            whole = figures(within(rollups, after, end))
            blocks.append(_Block(kind, start, whole, covered, [math.nan if one is None else one for one in parts]))
        span_ms = to_unix_ms(before + skew), to_unix_ms(row.started_at + skew)
        traffic = figures(between(rollups, *span_ms)).bit_per_s or 0.0
        return _Measured(blocks, traffic, covered_s(rollups, *span_ms) / row.block_s)


def _include(session: AsyncSession, row: ProofEpisodeRow, body: PolicyBody, included: _Included) -> None:
    """Add an episode's differences and blocks."""
    blocks = included.blocks
    figures = {block.kind: block.figures for block in blocks}
    metrics = dict.fromkeys((body.proof.metric, *body.proof.others))
    found = {metric: difference(figures[Block.ENFORCED], figures[Block.HOLDOUT], metric) for metric in metrics}
    missing = {metric: _only(_lacking(blocks, metric)) for metric in metrics}
    row.state, row.ended_at = "included", end_of(row)
    row.differences = {metric: one for metric, one in found.items() if one is not None}
    row.differences |= {missing_in(metric, block): 0.0 for metric, block in missing.items() if block is not None}
    session.add_all(
        ProofBlockRow(
            episode_id=row.id,
            holdout=block.kind is Block.HOLDOUT,
            started_at=block.started_at,
            figures={name: sums.value for name, sums in block.figures.sums.items()},
            parts=block.parts,
            factors=included.factors,
        )
        for block in blocks
    )


def _only(blocks: Sequence[Block]) -> Block | None:
    """Return the block if it is the only one."""
    return blocks[0] if len(blocks) == 1 else None


def _lacking(blocks: Sequence[_Block], metric: str) -> list[Block]:
    """Return the blocks without a metric."""
    return [block.kind for block in blocks if _log(block.figures, metric) is None]


def _log(figures: BlockFigures, metric: str) -> float | None:
    """Return the logarithm of a metric, None where it has none."""
    return figures.sums[metric].log if metric in figures.sums else None


def _starts(row: ProofEpisodeRow) -> list[tuple[Block, datetime]]:
    """Return both blocks with their beginnings."""
    kinds = [Block.HOLDOUT, Block.ENFORCED] if row.holdout_first else [Block.ENFORCED, Block.HOLDOUT]
    return [(kind, row.started_at + place * timedelta(seconds=row.block_s)) for place, kind in enumerate(kinds)]


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


def new_sums(
    version: ProofVersionRow,
    primary: str,
    rows: Sequence[ProofEpisodeRow],
    groups: Mapping[str, set[str]],
    now: datetime,
) -> dict[SumKey, Sum]:
    """Return what new episodes add to the sums: of all nodes by time, and of the groups of each label.

    primary: the metric of which groups have sums. groups: the values of each label that have sums already. Of a label
    with more values than MAX_GROUPS, the others are one group, as in a label that names each node.
    """
    step_s = course_step_s((now - version.started_at).total_seconds())
    known = {label: set(values) for label, values in groups.items()}
    sums: dict[SumKey, Sum] = defaultdict(lambda: Sum(0, 0.0, 0.0))
    for row in rows:
        at = from_unix_ms(1000 * step_s * math.ceil(end_of(row).timestamp() / step_s))
        for metric, value in row.differences.items():
            sums[SumKey(version.policy_id, version.version, metric, "", "", at)] += Sum(1, value, value**2)
        one = Sum(1, row.differences[primary], row.differences[primary] ** 2)
        for label, name in sorted(row.labels.items())[:_MAX_LABELS]:
            values = known.setdefault(label, set())
            group = name if name in values or len(values) < MAX_GROUPS else OTHER_VALUES
            values.add(group)
            sums[SumKey(version.policy_id, version.version, primary, label, group, version.started_at)] += one
    return dict(sums)


async def _choose_washout(session: AsyncSession, version: ProofVersionRow, block_s: float, now: datetime) -> None:
    """Choose the wash-out of the episodes to come, from the past; at most once an hour, more often at the beginning."""
    if now < version.washout_at + min(_WASHOUT_EVERY, (version.washout_at - version.started_at) / 4):
        return
    rows = await repository.latest_blocks(session, version.policy_id, version.version, _SWITCHES_FROM)
    switches = [Switch(not holdout, parts) for first, holdout, parts in rows if holdout or first]
    version.washout_s, version.washout_at = washout(switches, block_s / BUCKETS, BUCKETS), now
