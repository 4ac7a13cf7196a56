"""SQL of the proof of policies."""

import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec
from sqlalchemy import ARRAY, BigInteger, Float, Integer, Text, and_, bindparam, delete, func, or_, select, text, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.changes.tables import ChangeRow
from coresteer.nodes.tables import NodeRow
from coresteer.policies.tables import DecisionRow, DriftRow, PolicyRow, PolicyVersionRow
from coresteer.proof.tables import ProofBlockRow, ProofEpisodeRow, ProofFleetRow, ProofSumRow, ProofVersionRow
from coresteer_core.policies.base import HoldoutReport


async def fleet(session: AsyncSession, *, lock: bool = False) -> ProofFleetRow:
    """Return the fleet's row, made on first use. lock: until the transaction ends."""
    query = select(ProofFleetRow)
    found = (await session.scalars(query.with_for_update() if lock else query)).one_or_none()
    if found is None:
        row = insert(ProofFleetRow).values(id=1, seed=secrets.randbits(62)).on_conflict_do_nothing()
        await session.execute(row)
        found = (await session.scalars(query.with_for_update() if lock else query)).one()
    return found


async def episodes_in(session: AsyncSession, state: Literal["running", "waiting"]) -> Sequence[ProofEpisodeRow]:
    """Return the episodes that run, or those that wait for their samples, oldest first; locked."""
    query = select(ProofEpisodeRow).where(ProofEpisodeRow.state == state).order_by(ProofEpisodeRow.id)
    return (await session.scalars(query.with_for_update())).all()


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
    """What is recorded with blocks of a node, its name, and how far its clock is ahead."""

    name: str
    skew: timedelta
    kernel: str | None
    conditions: dict[str, Any]  # Any: JSON of facts


async def node_facts(session: AsyncSession, node_id: int) -> NodeFacts | None:
    """Return facts about a node, None if it is deleted."""
    query = select(NodeRow.name, NodeRow.clock_skew_ms, NodeRow.hello["kernel"].astext, NodeRow.inventory["conditions"])
    row = (await session.execute(query.where(NodeRow.id == node_id))).one_or_none()
    return None if row is None else NodeFacts(row[0], timedelta(milliseconds=row[1] or 0.0), row[2], row[3] or {})


async def versions(session: AsyncSession, policy_id: int | None = None) -> Sequence[ProofVersionRow]:
    """Return the versions under proof of a policy or of all, newest first."""
    query = select(ProofVersionRow).order_by(ProofVersionRow.policy_id, ProofVersionRow.version.desc())
    if policy_id is not None:
        query = query.where(ProofVersionRow.policy_id == policy_id)
    return (await session.scalars(query)).all()


async def find_version(
    session: AsyncSession, policy_id: int, version: int, *, lock: bool = False
) -> ProofVersionRow | None:
    """Return a version under proof, None if it is not."""
    return await session.get(ProofVersionRow, (policy_id, version), with_for_update=lock)


async def bodies(session: AsyncSession, keys: Collection[tuple[int, int]]) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the stored bodies of versions, by policy and version."""
    query = select(PolicyVersionRow.policy_id, PolicyVersionRow.version, PolicyVersionRow.body)
    query = query.where(PolicyVersionRow.policy_id.in_({policy_id for policy_id, _ in keys}))
    return {(row[0], row[1]): row[2] for row in await session.execute(query) if (row[0], row[1]) in keys}


class Disturbances(NamedTuple):
    """What happened on a node in a range of time: a change by a person or an experiment, a drift of the policy's."""

    change: bool
    drift: bool


async def disturbances(
    session: AsyncSession, node_id: int, policy_id: int, start: datetime, end: datetime
) -> Disturbances:
    """Return what happened on a node in a range of time."""
    change = select(ChangeRow.id).where(
        ChangeRow.node_id == node_id,
        ChangeRow.policy_id.is_(None),
        or_(
            and_(ChangeRow.applied_at >= start, ChangeRow.applied_at < end),
            and_(ChangeRow.applied_at.is_not(None), ChangeRow.ended_at >= start, ChangeRow.ended_at < end),
        ),
    )
    drift = select(DriftRow.id).where(
        DriftRow.node_id == node_id, DriftRow.policy_id == policy_id, DriftRow.at >= start, DriftRow.at < end
    )
    found = [await session.scalar(query.limit(1)) is not None for query in (change, drift)]
    return Disturbances(*found)


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


class SumKey(NamedTuple):
    """To what a sum belongs; label and value are empty for all nodes."""

    policy_id: int
    version: int
    metric: str
    label: str
    value: str
    at: datetime


class Sum(NamedTuple):
    """Number, sum and sum of squares of differences."""

    episodes: int
    total: float
    squares: float

    def __add__(self, other: object) -> "Sum":
        """Return both together."""
        if not isinstance(other, Sum):
            return NotImplemented
        return Sum(self.episodes + other.episodes, self.total + other.total, self.squares + other.squares)


_ADD = text("""
    INSERT INTO proof_sum (policy_id, version, metric, label, value, at, episodes, total, squares)
    SELECT * FROM unnest(:policies, :versions, :metrics, :labels, :values, :times, :episodes, :totals, :squares)
    ON CONFLICT (policy_id, version, metric, label, value, at) DO UPDATE SET
        episodes = proof_sum.episodes + excluded.episodes, total = proof_sum.total + excluded.total,
        squares = proof_sum.squares + excluded.squares
""").bindparams(
    *(bindparam(name, type_=ARRAY(Integer)) for name in ("policies", "versions")),
    *(bindparam(name, type_=ARRAY(Text)) for name in ("metrics", "labels", "values")),
    bindparam("times", type_=ARRAY(ProofSumRow.at.type)),
    bindparam("episodes", type_=ARRAY(BigInteger)),
    *(bindparam(name, type_=ARRAY(Float)) for name in ("totals", "squares")),
)


async def add_sums(session: AsyncSession, sums: Mapping[SumKey, Sum]) -> None:
    """Add the sums of new episodes to those stored."""
    if not sums:
        return
    keys, values = sorted(sums), [sums[key] for key in sorted(sums)]
    names = ("policies", "versions", "metrics", "labels", "values", "times", "episodes", "totals", "squares")
    columns = [*zip(*keys, strict=True), *zip(*values, strict=True)]
    await session.execute(_ADD, {name: list(column) for name, column in zip(names, columns, strict=True)})


async def totals(
    session: AsyncSession, policy_id: int | None = None, *, version: int | None = None
) -> dict[tuple[int, int], dict[str, Sum]]:
    """Return the sums over all nodes and times, by policy and version, and then by metric."""
    query = select(
        ProofSumRow.policy_id,
        ProofSumRow.version,
        ProofSumRow.metric,
        func.sum(ProofSumRow.episodes),
        func.sum(ProofSumRow.total),
        func.sum(ProofSumRow.squares),
    ).where(ProofSumRow.label == "")
    if policy_id is not None:
        query = query.where(ProofSumRow.policy_id == policy_id)
    if version is not None:
        query = query.where(ProofSumRow.version == version)
    found: dict[tuple[int, int], dict[str, Sum]] = {}
    grouped = query.group_by(ProofSumRow.policy_id, ProofSumRow.version, ProofSumRow.metric)
    for policy, number, metric, episodes, total, squares in await session.execute(grouped):
        found.setdefault((policy, number), {})[metric] = Sum(int(episodes), total, squares)
    return found


async def courses(session: AsyncSession, policy_id: int) -> dict[tuple[int, str], list[tuple[datetime, Sum]]]:
    """Return the sums over all nodes by time, oldest first, by version and metric."""
    query = select(ProofSumRow).where(ProofSumRow.policy_id == policy_id, ProofSumRow.label == "")
    found: dict[tuple[int, str], list[tuple[datetime, Sum]]] = {}
    for row in await session.scalars(query.order_by(ProofSumRow.at)):
        found.setdefault((row.version, row.metric), []).append((row.at, Sum(row.episodes, row.total, row.squares)))
    return found


async def group_sums(session: AsyncSession, policy_id: int, label: str) -> dict[tuple[int, str], dict[str, Sum]]:
    """Return the sums of the groups of a label, by version and metric, and then by the label's value."""
    query = select(ProofSumRow).where(ProofSumRow.policy_id == policy_id, ProofSumRow.label == label)
    found: dict[tuple[int, str], dict[str, Sum]] = {}
    for row in await session.scalars(query.order_by(ProofSumRow.value)):
        sums = found.setdefault((row.version, row.metric), {})
        sums[row.value] = sums.get(row.value, Sum(0, 0.0, 0.0)) + Sum(row.episodes, row.total, row.squares)
    return found


async def labels(session: AsyncSession, policy_id: int) -> list[str]:
    """Return the labels by which a policy's episodes are grouped."""
    query = select(ProofSumRow.label).where(ProofSumRow.policy_id == policy_id, ProofSumRow.label != "")
    return list(await session.scalars(query.distinct().order_by(ProofSumRow.label)))


class Counts(NamedTuple):
    """Episodes of a version by state and reason, and the number of nodes that have included ones."""

    by_state: dict[str, int]
    excluded: dict[str, int]
    nodes: int


async def counts(session: AsyncSession, policy_id: int) -> dict[int, Counts]:
    """Return the numbers of a policy's episodes, by version."""
    query = select(
        ProofEpisodeRow.version,
        ProofEpisodeRow.state,
        ProofEpisodeRow.reason,
        func.count(),
        func.count(ProofEpisodeRow.node_id.distinct()),
    ).where(ProofEpisodeRow.policy_id == policy_id)
    found: dict[int, Counts] = {}
    grouped = query.group_by(ProofEpisodeRow.version, ProofEpisodeRow.state, ProofEpisodeRow.reason)
    for version, state, reason, number, nodes in await session.execute(grouped):
        now = found.get(version, Counts({}, {}, 0))
        now.by_state[state] = now.by_state.get(state, 0) + number
        if reason is not None:
            now.excluded[reason] = number
        found[version] = now._replace(nodes=nodes) if state == "included" else now
    return found


async def included_nodes(session: AsyncSession) -> dict[tuple[int, int], int]:
    """Return the number of nodes that have included episodes, by policy and version."""
    query = select(
        ProofEpisodeRow.policy_id, ProofEpisodeRow.version, func.count(ProofEpisodeRow.node_id.distinct())
    ).where(ProofEpisodeRow.state == "included")
    rows = await session.execute(query.group_by(ProofEpisodeRow.policy_id, ProofEpisodeRow.version))
    return {(row[0], row[1]): row[2] for row in rows}


async def busy_cpus(session: AsyncSession, since: datetime) -> dict[tuple[int, int], float]:
    """Return the CPUs in use while enforced, summed over nodes, by policy and version; of episodes since a time."""
    by_node = (
        select(
            ProofEpisodeRow.policy_id,
            ProofEpisodeRow.version,
            (func.avg(ProofBlockRow.figures["cpu_busy_percent"].astext.cast(Float)) / 100).label("cpus"),
        )
        .join(ProofBlockRow, ProofBlockRow.episode_id == ProofEpisodeRow.id)
        .where(~ProofBlockRow.holdout, ProofEpisodeRow.state == "included", ProofEpisodeRow.started_at >= since)
        .group_by(ProofEpisodeRow.policy_id, ProofEpisodeRow.version, ProofEpisodeRow.node_id)
        .subquery()
    )
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
    """Delete the blocks of episodes that began before a time, and episodes that began before an earlier one."""
    old = select(ProofEpisodeRow.id).where(ProofEpisodeRow.started_at < blocks_before)
    await session.execute(delete(ProofBlockRow).where(ProofBlockRow.episode_id.in_(old)))
    await session.execute(delete(ProofEpisodeRow).where(ProofEpisodeRow.started_at < before))


async def factor_counts(session: AsyncSession, policy_id: int, *, blocks: int) -> dict[int, dict[str, dict[str, int]]]:
    """Return by version how many of the latest holdout blocks had which value of each factor."""
    rows = await session.execute(
        text("""
            SELECT version, factor.key, factor.value, count(*) FROM (
                SELECT e.version, b.factors FROM proof_episode e JOIN proof_block b ON b.episode_id = e.id
                WHERE e.policy_id = :policy_id AND e.state = 'included' AND b.holdout
                ORDER BY e.started_at DESC LIMIT :blocks
            ) AS latest, jsonb_each_text(latest.factors) AS factor
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 4 DESC
        """),
        {"policy_id": policy_id, "blocks": blocks},
    )
    found: dict[int, dict[str, dict[str, int]]] = {}
    for version, factor, value, number in rows:
        found.setdefault(version, {}).setdefault(factor, {})[value] = number
    return found


async def policy_names(session: AsyncSession) -> dict[int, str]:
    """Return the names of the policies that are not deleted, by id."""
    rows = await session.execute(select(PolicyRow.id, PolicyRow.name).where(PolicyRow.deleted_at.is_(None)))
    return {row[0]: row[1] for row in rows}
