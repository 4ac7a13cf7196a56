"""SQL of the sums over episodes, of which confidence sequences consist."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ARRAY, BigInteger, Float, Integer, Text, bindparam, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.proof.tables import ProofSumRow


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


async def courses(
    session: AsyncSession, policy_id: int, versions: Collection[int]
) -> dict[tuple[int, str], list[tuple[datetime, Sum]]]:
    """Return the sums over all nodes of some versions by time, oldest first, by version and metric."""
    query = select(ProofSumRow).where(
        ProofSumRow.policy_id == policy_id, ProofSumRow.version.in_(versions), ProofSumRow.label == ""
    )
    found: dict[tuple[int, str], list[tuple[datetime, Sum]]] = {}
    for row in await session.scalars(query.order_by(ProofSumRow.at)):
        found.setdefault((row.version, row.metric), []).append((row.at, Sum(row.episodes, row.total, row.squares)))
    return found


async def group_sums(
    session: AsyncSession, policy_id: int, label: str, versions: Collection[int]
) -> dict[tuple[int, str], dict[str, Sum]]:
    """Return the sums of the groups of a label, by version and metric, and then by the label's value."""
    query = select(ProofSumRow).where(
        ProofSumRow.policy_id == policy_id, ProofSumRow.version.in_(versions), ProofSumRow.label == label
    )
    found: dict[tuple[int, str], dict[str, Sum]] = {}
    for row in await session.scalars(query.order_by(ProofSumRow.value)):
        sums = found.setdefault((row.version, row.metric), {})
        sums[row.value] = sums.get(row.value, Sum(0, 0.0, 0.0)) + Sum(row.episodes, row.total, row.squares)
    return found


async def group_names(session: AsyncSession, policy_id: int, version: int) -> dict[str, set[str]]:
    """Return the values of labels of which a version has sums, by label."""
    query = select(ProofSumRow.label, ProofSumRow.value).where(
        ProofSumRow.policy_id == policy_id, ProofSumRow.version == version, ProofSumRow.label != ""
    )
    found: dict[str, set[str]] = {}
    for label, value in await session.execute(query.distinct()):
        found.setdefault(label, set()).add(value)
    return found


_THIN = text("""
    WITH version AS (
        SELECT * FROM unnest(:policies, :versions, :steps) AS version (policy_id, version, step_s)
    ), gone AS (
        DELETE FROM proof_sum USING version
        WHERE proof_sum.policy_id = version.policy_id AND proof_sum.version = version.version AND proof_sum.label = ''
          AND extract(epoch FROM proof_sum.at) % step_s <> 0
        RETURNING proof_sum.*, to_timestamp(ceil(extract(epoch FROM proof_sum.at) / step_s) * step_s) AS becomes
    )
    INSERT INTO proof_sum (policy_id, version, metric, label, value, at, episodes, total, squares)
    SELECT policy_id, version, metric, '', '', becomes, sum(episodes), sum(total), sum(squares)
    FROM gone GROUP BY policy_id, version, metric, becomes
    ON CONFLICT (policy_id, version, metric, label, value, at) DO UPDATE SET
        episodes = proof_sum.episodes + excluded.episodes, total = proof_sum.total + excluded.total,
        squares = proof_sum.squares + excluded.squares
""").bindparams(*(bindparam(name, type_=ARRAY(Integer)) for name in ("policies", "versions", "steps")))


async def thin_sums(session: AsyncSession, steps_s: Mapping[tuple[int, int], int]) -> None:
    """Leave sums over all nodes only for times that are multiples of a step, by policy and version; no sum is lost."""
    columns = [*zip(*((*key, step_s) for key, step_s in steps_s.items()), strict=True)]
    if columns:
        named = zip(("policies", "versions", "steps"), map(list, columns), strict=True)
        await session.execute(_THIN, dict(named))


async def labels(session: AsyncSession, policy_id: int) -> list[str]:
    """Return the labels by which a policy's episodes are grouped."""
    query = select(ProofSumRow.label).where(ProofSumRow.policy_id == policy_id, ProofSumRow.label != "")
    return list(await session.scalars(query.distinct().order_by(ProofSumRow.label)))
