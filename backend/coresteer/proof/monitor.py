"""Begins episodes, switches nodes between their blocks, watches them, and hands the finished ones to the analysis."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.background import Pace, cancel, repeat
from coresteer.bus import PoliciesEvent
from coresteer.policies import repository as policies
from coresteer.policies.windows import held_nodes
from coresteer.proof import repository, sums_repository
from coresteer.proof.analysis import Analysis
from coresteer.proof.candidates import NOBODY, Candidates, design_of, find_candidates
from coresteer.proof.confidence_sequence import PLANNED_S, rho_for
from coresteer.proof.context import ProofContext
from coresteer.proof.course import course_step_s
from coresteer.proof.exclusion import Block, Exclusion
from coresteer.proof.schedule import BUCKETS, Episode, Subject, begin_now
from coresteer.proof.switching import block_at, end_of, exclude, was_late
from coresteer.proof.tables import ProofEpisodeRow, ProofVersionRow
from coresteer.proof.washout import washout

log = logging.getLogger("coresteer.proof")

_TICK_S = 1.0
_REFRESH_S = 30.0
_PRUNE_S = 3600.0
_KEEP_BLOCKS = timedelta(days=30)
"""How long the figures of single blocks are kept; the sums and counts of episodes stay as long as the policy."""
_BEGINS_PER_BUCKET = 12


class ProofMonitor:
    """Runs the episodes of all policies; a check every second while a policy may have any.

    Episodes are in the database; those that ran while no backend watched them are left out, and so are those with a
    switch that was sent too late. A check that is late in between leaves nothing out.
    """

    def __init__(self, context: ProofContext) -> None:
        self._context = context
        self._analysis = Analysis(context)
        self._forget()
        self._tasks: list[asyncio.Task[None]] = []

    def _forget(self) -> None:
        self._candidates: Candidates = NOBODY
        self._since: dict[Subject, datetime] = {}
        self._connections: dict[int, tuple[int, datetime]] = {}
        """By node, the epoch of its connection, and when that was noticed."""
        self._refresh_at: datetime | None = None
        self._begin_at: datetime | None = None
        self._prune_at: datetime | None = None
        self._last: datetime | None = None
        self._held: dict[int, int] = {}
        self._stopped: frozenset[int] = frozenset()
        self._checks, self._analyses = Pace(), Pace()

    def start(self) -> None:
        """Start running episodes; those in progress were not watched for a while, and will be left out."""
        self._forget()
        failure = "The check of the proofs of policies failed; retrying."
        self._tasks = [
            asyncio.create_task(self._context.policies.bus.call(PoliciesEvent(None), self._refresh_soon)),
            asyncio.create_task(
                repeat(lambda: self._checks.take(lambda: self.check(datetime.now(UTC))), _TICK_S, log, failure)
            ),
            # on its own: it may wait for Prometheus, and the switches of nodes must not
            asyncio.create_task(
                repeat(lambda: self._analyses.take(lambda: self.analyse(datetime.now(UTC))), _TICK_S, log, failure)
            ),
        ]

    async def stop(self) -> None:
        """Stop running episodes; those in progress will be left out."""
        await cancel(self._tasks)

    def _refresh_soon(self) -> None:
        self._refresh_at = None
        self._checks.wake()

    async def check(self, now: datetime) -> bool:
        """Bring the running episodes to a moment: end, begin and switch them. Return whether there may be any."""
        async with self._context.policies.database.session() as session:
            fleet = await repository.fleet(session)
            await self._refresh(session, now)
            self._watch_connections(now)
            running = list(await repository.running_episodes(session))
            self._stopped = await held_nodes(session)
            await self._watch(session, running, now, paused=fleet.paused_at is not None)
            if fleet.paused_at is None:
                running += await self._begin(session, fleet.seed, running, now)
            held = {
                row.node_id: row.id
                for row in running
                if row.node_id is not None and row.state == "running" and is_held_out(row, now)
            }
        for node_id in {node for node, _ in self._held.items() ^ held.items()}:
            self._context.publish(node_id)
        self._held, self._last = held, now
        return bool(running or self._candidates.subjects)

    async def analyse(self, now: datetime) -> bool:
        """Include or exclude the episodes that have ended, and delete the figures of old blocks.

        Return whether some waited.
        """
        has_work = await self._analysis.run(now, self._candidates)
        async with self._context.policies.database.session() as session:
            await repository.count_decided(session)
        await self._prune(now)
        return has_work

    async def _prune(self, now: datetime) -> None:
        if self._prune_at is not None and now < self._prune_at:
            return
        self._prune_at = now + timedelta(seconds=_PRUNE_S)
        async with self._context.policies.database.session() as session:
            await repository.prune(session, blocks_before=now - _KEEP_BLOCKS, before=now - self._context.keep)
            versions = await repository.versions(session)
            ages_s = {(one.policy_id, one.version): (now - one.started_at).total_seconds() for one in versions}
            await sums_repository.thin_sums(session, {key: course_step_s(age_s) for key, age_s in ages_s.items()})

    async def _refresh(self, session: AsyncSession, now: datetime) -> None:
        if self._refresh_at is not None and now < self._refresh_at:
            return
        self._refresh_at = now + timedelta(seconds=_REFRESH_S)
        self._candidates = find_candidates(
            await policies.enabled_policies(session),
            await policies.node_attributes(session),
            await repository.controllable_nodes(session),
        )
        self._since = {subject: self._since.get(subject, now) for subject in self._candidates.subjects}

    def _watch_connections(self, now: datetime) -> None:
        """Notice which agents have connected again, also between two checks: they put their policies in force again."""
        registry, before = self._context.policies.registry, self._connections
        found = {}
        for node_id in {subject.node_id for subject in self._candidates.subjects}:
            count = registry.epoch(node_id)
            known = before.get(node_id)
            found[node_id] = known if known is not None and known[0] == count else (count, now)
        self._connections = found

    def _in_force_since(self, subject: Subject) -> datetime:
        """Return since when a policy is in force on a node, without an interruption, as far as the backend knows."""
        return max(self._since[subject], self._connections[subject.node_id][1])

    async def _watch(
        self, session: AsyncSession, running: Sequence[ProofEpisodeRow], now: datetime, *, paused: bool
    ) -> None:
        """Exclude running episodes that something disturbs, and let those that have ended wait for their samples."""
        nodes = [row.node_id for row in running if row.node_id is not None]
        in_use = await self._context.nodes_in_use(session, nodes) if nodes else ()
        for row in running:
            if (reason := self._disturbance(row, now, paused, row.node_id in in_use)) is not None:
                exclude(row, reason, now, block_at(row, now))
            elif now >= end_of(row):
                row.state = "waiting"

    def _disturbance(self, row: ProofEpisodeRow, now: datetime, paused: bool, in_use: bool) -> Exclusion | None:
        if paused:
            return Exclusion.PAUSED
        if self._last is None or was_late(row, self._last, now):
            return Exclusion.INTERRUPTED if self._last is None else Exclusion.LATE
        return None if now >= end_of(row) else self._disturbance_of_node(row, in_use)

    def _disturbance_of_node(self, row: ProofEpisodeRow, in_use: bool) -> Exclusion | None:
        if row.node_id in self._candidates.in_rollout:
            return Exclusion.ROLLOUT
        if row.node_id is None or Subject(row.policy_id, row.version, row.node_id) not in self._candidates.subjects:
            return Exclusion.VERSION
        if row.node_id in self._stopped:
            return Exclusion.STOPPED
        if in_use:
            return Exclusion.EXPERIMENT
        stays = self._connections[row.node_id][1] <= row.started_at
        is_connected = stays and self._context.policies.registry.is_connected(row.node_id)
        return None if is_connected else Exclusion.DISCONNECTED

    async def _begin(
        self, session: AsyncSession, seed: int, running: Sequence[ProofEpisodeRow], now: datetime
    ) -> list[ProofEpisodeRow]:
        registry = self._context.policies.registry
        connected = [
            candidate
            for subject, candidate in self._candidates.subjects.items()
            if registry.is_connected(subject.node_id)
            and subject.node_id not in self._stopped
            # a policy that has just come into force still moves
            and (now - self._in_force_since(subject)).total_seconds() >= candidate.design.block_s
        ]
        if not connected or (self._begin_at is not None and now < self._begin_at):
            return []
        buckets_s = [candidate.design.bucket_s for candidate in connected]
        self._begin_at = now + timedelta(seconds=min(buckets_s) / _BEGINS_PER_BUCKET)
        keys = {(subject.policy_id, subject.version) for subject in self._candidates.subjects}
        begun = await repository.begun_since(session, keys, now - timedelta(seconds=2 * max(buckets_s)))
        episodes = begin_now(
            seed,
            connected,
            running=[row.node_id for row in running if row.node_id is not None and row.state == "running"],
            nodes_by_domain=self._candidates.nodes_by_domain,
            own_nodes=self._candidates.own_nodes,
            begun=frozenset(
                (Subject(policy_id, version, node_id), period)
                for policy_id, version, node_id, period in begun
                if node_id is not None
            ),
            now_s=now.timestamp(),
        )
        in_use = await self._context.nodes_in_use(session, [one.subject.node_id for one in episodes])
        rows = [await self._add(session, one, now) for one in episodes if one.subject.node_id not in in_use]
        await session.flush()
        return rows

    async def _add(self, session: AsyncSession, episode: Episode, now: datetime) -> ProofEpisodeRow:
        policy_id, number, node_id = episode.subject
        version = await repository.find_version(session, policy_id, number)
        if version is None:
            version = self._new_version(policy_id, number, now)
            session.add(version)
            await session.flush()
        row = ProofEpisodeRow(
            policy_id=policy_id,
            version=number,
            node_id=node_id,
            period=episode.period,
            started_at=datetime.fromtimestamp(episode.start_s, UTC),
            block_s=episode.block_s,
            washout_s=version.washout_s,
            holdout_first=episode.holdout_first,
            labels=self._candidates.labels[node_id],
            state="running",
            differences={},
        )
        session.add(row)
        return row

    def _new_version(self, policy_id: int, number: int, now: datetime) -> ProofVersionRow:
        """Return the row of a version whose proof begins, with what must be fixed in advance."""
        design = design_of(self._candidates.bodies[policy_id, number].proof)
        nodes = sum(subject[:2] == (policy_id, number) for subject in self._candidates.subjects)
        return ProofVersionRow(
            policy_id=policy_id,
            version=number,
            started_at=now,
            rho=rho_for(nodes * PLANNED_S / design.period_s),
            washout_s=washout((), design.bucket_s, BUCKETS),
            washout_at=now,
            findings={},
        )


def is_held_out(row: ProofEpisodeRow, now: datetime) -> bool:
    """Return whether a running episode's node holds the policy out at this moment."""
    return block_at(row, now) is Block.HOLDOUT


async def held_out(session: AsyncSession, node_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return policy and version that are held out on each node now, for nodes that hold one out."""
    now = datetime.now(UTC)
    rows: Iterable[ProofEpisodeRow] = await repository.running_on(session, node_ids)
    return {
        row.node_id: (row.policy_id, row.version) for row in rows if row.node_id is not None and is_held_out(row, now)
    }
