"""SQL of the proof of policies."""

import secrets
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ARRAY, Float, Integer, and_, bindparam, delete, func, or_, select, text, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.changes.tables import ChangeRow
from coresteer.nodes.tables import NodeRow
from coresteer.policies.tables import DecisionRow, DriftRow, PolicyRow, PolicyVersionRow
from coresteer.proof.schedule import BLOCKS_PER_EPISODE
from coresteer.proof.tables import (
    ProofBlockRow,
    ProofEpisodeRow,
    ProofExcludedRow,
    ProofFleetRow,
    ProofNodeRow,
    ProofVersionRow,
)
from coresteer_core.policies.base import HoldoutReport

_BUSY_SPAN = timedelta(days=2)


async def fleet(session: AsyncSession, *, lock: bool = False) -> ProofFleetRow:
    """Return the fleet's row, made on first use. lock: until the transaction ends."""
    query = select(ProofFleetRow)
    found = (await session.scalars(query.with_for_update() if lock else query)).one_or_none()
    if found is None:
        row = insert(ProofFleetRow).values(id=1, seed=secrets.randbits(62)).on_conflict_do_nothing()
        await session.execute(row)
        found = (await session.scalars(query.with_for_update() if lock else query)).one()
    return found


async def running_episodes(session: AsyncSession) -> Sequence[ProofEpisodeRow]:
    """Return the episodes that run, oldest first; locked."""
    query = select(ProofEpisodeRow).where(ProofEpisodeRow.state == "running").order_by(ProofEpisodeRow.id)
    return (await session.scalars(query.with_for_update())).all()


class Waiting(NamedTuple):
    """An episode that waits for its samples."""

    id: int
    policy_id: int
    version: int
    started_at: datetime
    block_s: float
    washout_s: float

    @property
    def ended_at(self) -> datetime:
        """Return when its second block ended."""
        return self.started_at + timedelta(seconds=BLOCKS_PER_EPISODE * self.block_s)


async def waiting_episodes(session: AsyncSession) -> list[Waiting]:
    """Return the episodes that wait for their samples, oldest first."""
    columns = (getattr(ProofEpisodeRow, name) for name in Waiting._fields)
    query = select(*columns).where(ProofEpisodeRow.state == "waiting").order_by(ProofEpisodeRow.id)
    return [Waiting(*row) for row in await session.execute(query)]


async def find_waiting(
    session: AsyncSession, episodes: Collection[int], *, lock: bool = False
) -> Sequence[ProofEpisodeRow]:
    """Return those of these episodes that still wait, oldest first."""
    query = select(ProofEpisodeRow).where(ProofEpisodeRow.id.in_(episodes), ProofEpisodeRow.state == "waiting")
    query = query.order_by(ProofEpisodeRow.id)
    return (await session.scalars(query.with_for_update() if lock else query)).all()


async def running_on(session: AsyncSession, node_ids: Sequence[int]) -> Sequence[ProofEpisodeRow]:
    """Return the running episodes of nodes."""
    query = select(ProofEpisodeRow).where(ProofEpisodeRow.state == "running", ProofEpisodeRow.node_id.in_(node_ids))
    return (await session.scalars(query)).all()


async def begun_since(
    session: AsyncSession, keys: Collection[tuple[int, int]], since: datetime
) -> set[tuple[int, int, int | None, int]]:
    """Return policy, version, node and period of the episodes of versions (policy, version) that began since a time."""
    query = select(
        ProofEpisodeRow.policy_id, ProofEpisodeRow.version, ProofEpisodeRow.node_id, ProofEpisodeRow.period
    ).where(tuple_(ProofEpisodeRow.policy_id, ProofEpisodeRow.version).in_(keys), ProofEpisodeRow.started_at >= since)
    return {(row[0], row[1], row[2], row[3]) for row in await session.execute(query)}


async def controllable_nodes(session: AsyncSession) -> set[int]:
    """Return the ids of the nodes whose agents may write settings."""
    query = select(NodeRow.id).where(NodeRow.hello["mode"].astext == "control")
    return set(await session.scalars(query))


class NodeFacts(NamedTuple):
    """What is recorded with blocks of a node, its id and name, and how far its clock is ahead."""

    node_id: int
    name: str
    skew: timedelta
    kernel: str | None
    conditions: dict[str, Any]  # Any: JSON of facts


async def node_facts(session: AsyncSession, node_id: int) -> NodeFacts | None:
    """Return facts about a node, None if it is deleted."""
    query = select(NodeRow.name, NodeRow.clock_skew_ms, NodeRow.hello["kernel"].astext, NodeRow.inventory["conditions"])
    row = (await session.execute(query.where(NodeRow.id == node_id))).one_or_none()
    if row is None:
        return None
    return NodeFacts(node_id, row[0], timedelta(milliseconds=row[1] or 0.0), row[2], row[3] or {})


async def versions(
    session: AsyncSession, policy_id: int | None = None, *, latest: int | None = None, also: int | None = None
) -> Sequence[ProofVersionRow]:
    """Return the versions under proof of a policy or of all, newest first.

    latest: at most that many of a policy, and the version also.
    """
    query = select(ProofVersionRow).order_by(ProofVersionRow.policy_id, ProofVersionRow.version.desc())
    if policy_id is not None:
        query = query.where(ProofVersionRow.policy_id == policy_id)
    if latest is not None:
        newest = select(ProofVersionRow.version).where(ProofVersionRow.policy_id == policy_id)
        newest = newest.order_by(ProofVersionRow.version.desc()).limit(latest)
        query = query.where(or_(ProofVersionRow.version.in_(newest), ProofVersionRow.version == also))
    return (await session.scalars(query)).all()


async def find_version(
    session: AsyncSession, policy_id: int, version: int, *, lock: bool = False
) -> ProofVersionRow | None:
    """Return a version under proof, None if it is not. lock: until the transaction ends; its episodes still begin."""
    lock_of = {"key_share": True} if lock else None
    return await session.get(ProofVersionRow, (policy_id, version), with_for_update=lock_of)


async def bodies(session: AsyncSession, keys: Collection[tuple[int, int]]) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the stored bodies of versions, by policy and version."""
    query = select(PolicyVersionRow.policy_id, PolicyVersionRow.version, PolicyVersionRow.body)
    query = query.where(PolicyVersionRow.policy_id.in_({policy_id for policy_id, _ in keys}))
    return {(row[0], row[1]): row[2] for row in await session.execute(query) if (row[0], row[1]) in keys}


class Disturbances(NamedTuple):
    """What happened on a node in a range of time: the first change by a person, and a drift of the policy's."""

    changed_at: datetime | None
    drift: bool


async def disturbances(
    session: AsyncSession, node_id: int, policy_id: int, start: datetime, end: datetime
) -> Disturbances:
    """Return what happened on a node in a range of time."""
    change = select(ChangeRow.applied_at, ChangeRow.ended_at).where(
        ChangeRow.node_id == node_id,
        ChangeRow.policy_id.is_(None),
        or_(
            and_(ChangeRow.applied_at >= start, ChangeRow.applied_at < end),
            and_(ChangeRow.applied_at.is_not(None), ChangeRow.ended_at >= start, ChangeRow.ended_at < end),
        ),
    )
    times = [at for row in await session.execute(change) for at in row if at is not None and start <= at < end]
    drift = select(DriftRow.id).where(
        DriftRow.node_id == node_id, DriftRow.policy_id == policy_id, DriftRow.at >= start, DriftRow.at < end
    )
    return Disturbances(min(times, default=None), await session.scalar(drift.limit(1)) is not None)


async def holdout_reports(
    session: AsyncSession, node_id: int, policy_id: int, start: datetime, end: datetime
) -> list[HoldoutReport]:
    """Return what a node's agent reported in a range of time about a policy's holdout, oldest first."""
    query = select(DecisionRow.holdout).where(
        DecisionRow.node_id == node_id,
        DecisionRow.policy_id == policy_id,
        DecisionRow.at >= start,
        DecisionRow.at < end,
        DecisionRow.holdout.is_not(None),
    )
    found = await session.scalars(query.order_by(DecisionRow.at, DecisionRow.id))
    return [msgspec.convert(one, HoldoutReport) for one in found]


class Counts(NamedTuple):
    """Numbers of a version: of running and waiting episodes, of nodes with included ones, of excluded ones.

    excluded: by reason, and the block for which they were excluded; empty for both or neither.
    """

    by_state: dict[str, int]
    nodes: int
    excluded: dict[tuple[str, str], int]


async def counts(session: AsyncSession, policy_id: int) -> dict[int, Counts]:
    """Return the numbers of a policy's episodes, by version."""
    found: dict[int, Counts] = defaultdict(lambda: Counts({}, 0, {}))
    running = select(ProofEpisodeRow.version, ProofEpisodeRow.state, func.count()).where(
        ProofEpisodeRow.policy_id == policy_id, ProofEpisodeRow.state.in_(("running", "waiting"))
    )
    for version, state, number in await session.execute(
        running.group_by(ProofEpisodeRow.version, ProofEpisodeRow.state)
    ):
        found[version].by_state[state] = number
    for (_, version), nodes in (await included_nodes(session, policy_id)).items():
        found[version] = found[version]._replace(nodes=nodes)
    excluded = select(ProofExcludedRow).where(ProofExcludedRow.policy_id == policy_id)
    for row in await session.scalars(excluded):
        found[row.version].excluded[row.reason, row.block] = row.episodes
    return dict(found)


async def included_nodes(session: AsyncSession, policy_id: int | None = None) -> dict[tuple[int, int], int]:
    """Return the number of nodes that have included episodes, by policy and version."""
    query = select(ProofNodeRow.policy_id, ProofNodeRow.version, func.count())
    if policy_id is not None:
        query = query.where(ProofNodeRow.policy_id == policy_id)
    rows = await session.execute(query.group_by(ProofNodeRow.policy_id, ProofNodeRow.version))
    return {(row[0], row[1]): row[2] for row in rows}


async def count_decided(session: AsyncSession) -> None:
    """Count the episodes that were included or excluded since the last call, so that they may be deleted."""
    await session.execute(
        text("""
            WITH decided AS (
                UPDATE proof_episode SET counted = true WHERE NOT counted AND state IN ('included', 'excluded')
                RETURNING policy_id, version, node_id, state, reason, block
            ), included AS (
                INSERT INTO proof_node (policy_id, version, node_id, episodes)
                SELECT policy_id, version, node_id, count(*) FROM decided
                WHERE state = 'included' AND node_id IS NOT NULL GROUP BY 1, 2, 3
                ON CONFLICT (policy_id, version, node_id)
                DO UPDATE SET episodes = proof_node.episodes + excluded.episodes
            )
            INSERT INTO proof_excluded (policy_id, version, reason, block, episodes)
            SELECT policy_id, version, reason, coalesce(block, ''), count(*) FROM decided
            WHERE state = 'excluded' GROUP BY 1, 2, 3, 4
            ON CONFLICT (policy_id, version, reason, block)
            DO UPDATE SET episodes = proof_excluded.episodes + excluded.episodes
        """)
    )


async def busy_cpus(
    session: AsyncSession, since: datetime, policy_id: int | None = None
) -> dict[tuple[int, int], float]:
    """Return the CPUs in use while enforced, summed over nodes, by policy and version; of episodes since a time.

    Of each node they are the mean over its last included episode and those of the two days before it.
    """
    columns = (ProofEpisodeRow.policy_id, ProofEpisodeRow.version, ProofEpisodeRow.node_id)
    included = ProofEpisodeRow.state == "included", ProofEpisodeRow.started_at >= since
    last = select(*columns, func.max(ProofEpisodeRow.started_at).label("at")).where(*included).group_by(*columns)
    if policy_id is not None:
        last = last.where(ProofEpisodeRow.policy_id == policy_id)
    of_node = last.subquery()
    of_episodes = (
        select(*columns, (func.avg(ProofBlockRow.figures["cpu_busy_percent"].astext.cast(Float)) / 100).label("cpus"))
        .join(ProofBlockRow, ProofBlockRow.episode_id == ProofEpisodeRow.id)
        .join(of_node, and_(*(of_node.c[column.key] == column for column in columns)))  # no node that was deleted
        .where(~ProofBlockRow.holdout, *included, ProofEpisodeRow.started_at > of_node.c.at - _BUSY_SPAN)
    )
    by_node = of_episodes.group_by(*columns).subquery()
    query = select(by_node.c.policy_id, by_node.c.version, func.sum(by_node.c.cpus))
    rows = await session.execute(query.group_by(by_node.c.policy_id, by_node.c.version))
    return {(row[0], row[1]): row[2] for row in rows if row[2] is not None}


async def latest_blocks(
    session: AsyncSession, policy_id: int, version: int, limit: int
) -> Sequence[tuple[bool, bool, Sequence[float]]]:
    """Return holdout_first, holdout and parts of the blocks of a version's latest included episodes."""
    latest = (
        select(ProofEpisodeRow.id, ProofEpisodeRow.holdout_first)
        .where(
            ProofEpisodeRow.policy_id == policy_id,
            ProofEpisodeRow.version == version,
            ProofEpisodeRow.state == "included",
        )
        .order_by(ProofEpisodeRow.started_at.desc())
        .limit(limit)
        .subquery()
    )
    query = select(latest.c.holdout_first, ProofBlockRow.holdout, ProofBlockRow.parts)
    rows = await session.execute(query.join(ProofBlockRow, ProofBlockRow.episode_id == latest.c.id))
    return [(row[0], row[1], row[2]) for row in rows]


async def prune(session: AsyncSession, *, blocks_before: datetime, before: datetime) -> None:
    """Delete the blocks of episodes that began before a time, and episodes that began before an earlier one.

    Their sums and counts stay; an episode that is not counted yet stays, too.
    """
    old = select(ProofEpisodeRow.id).where(ProofEpisodeRow.started_at < blocks_before)
    await session.execute(delete(ProofBlockRow).where(ProofBlockRow.episode_id.in_(old)))
    await session.execute(delete(ProofEpisodeRow).where(ProofEpisodeRow.started_at < before, ProofEpisodeRow.counted))


async def factor_counts(
    session: AsyncSession, policy_id: int, versions: Collection[int], *, blocks: int
) -> dict[int, dict[str, dict[str, int]]]:
    """Return by version how many of its latest holdout blocks had which value of each factor."""
    rows = await session.execute(
        text("""
            SELECT chosen.version, factor.key, factor.value, count(*)
            FROM unnest(:versions) AS chosen (version), LATERAL (
                SELECT b.factors FROM proof_episode e JOIN proof_block b ON b.episode_id = e.id
                WHERE e.policy_id = :policy_id AND e.version = chosen.version AND e.state = 'included' AND b.holdout
                ORDER BY e.started_at DESC LIMIT :blocks
            ) AS latest, jsonb_each_text(latest.factors) AS factor
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 4 DESC
        """).bindparams(bindparam("versions", type_=ARRAY(Integer))),
        {"policy_id": policy_id, "versions": list(versions), "blocks": blocks},
    )
    found: dict[int, dict[str, dict[str, int]]] = {}
    for version, factor, value, number in rows:
        found.setdefault(version, {}).setdefault(factor, {})[value] = number
    return found


async def policy_names(session: AsyncSession) -> dict[int, str]:
    """Return the names of the policies that are not deleted, by id."""
    rows = await session.execute(select(PolicyRow.id, PolicyRow.name).where(PolicyRow.deleted_at.is_(None)))
    return {row[0]: row[1] for row in rows}
