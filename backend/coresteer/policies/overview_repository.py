"""SQL of a policy's overview: what it has written on each node, what it deferred, what drifted."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.changes.tables import ChangeRow
from coresteer.policies.tables import DriftRow
from coresteer_core.changes.report import ChangeState, EndedBy
from coresteer_core.policies.ownership import RESTORE_REASON


class LatestDecision(NamedTuple):
    """The latest decision on a node. codes: of its deferred moves; drifted: keys of settings that have drifted.

    sentence: the whole in one line with its numbers. actions: each with the fields key, was, becomes and reason.
    """

    at: datetime
    version: int
    sentence: str
    actions: list[dict[str, str]]
    codes: list[str]
    drifted: list[str]
    holdout: str | None


class Held(NamedTuple):
    """A setting that a policy has set on a node and not restored. value: the last that it wrote."""

    node_id: int
    key: str
    value: str


_DECISIONS = text("""
    SELECT
        node.id, latest.at, latest.version, latest.sentence, latest.actions,
        latest.codes, latest.drifted, latest.holdout
    FROM node CROSS JOIN LATERAL (
        SELECT
            at, version, evaluation->>'sentence' AS sentence, evaluation->'actions' AS actions,
            ARRAY(SELECT each->>'code' FROM jsonb_array_elements(evaluation->'deferred') AS each) AS codes,
            ARRAY(SELECT each->>'key' FROM jsonb_array_elements(evaluation->'drifts') AS each) AS drifted,
            holdout->>'state' AS holdout
        FROM decision WHERE decision.node_id = node.id AND policy_id = :policy_id ORDER BY decision.id DESC LIMIT 1
    ) AS latest
""")
# A setting is restored if its last action says so, or if it has the value again that it had before the first one. A
# confirmed write is held no longer once the agent, which says what each policy holds, does not name it: its process or
# boot has ended, or the policy gave it up.
_HELD = text("""
    SELECT node_id, last.key, becomes FROM (
        SELECT DISTINCT ON (node_id, key)
            node_id, state, key, becomes, reason,
            first_value(was) OVER (PARTITION BY node_id, key ORDER BY created_at, place) AS original
        FROM (
            SELECT
                change.node_id, change.state, change.created_at, place,
                action->>'key' AS key, action->>'was' AS was, action->>'becomes' AS becomes, action->>'reason' AS reason
            FROM change
            CROSS JOIN LATERAL jsonb_array_elements(change.plan->'actions') WITH ORDINALITY AS one(action, place)
            WHERE change.policy_id = :policy_id AND change.node_id = coalesce(:node_id, change.node_id) AND (
                change.state IN ('unconfirmed', 'confirmed')
                OR change.state = 'applying' AND action->>'reason' <> :restored
            ) AND NOT EXISTS (
                SELECT FROM jsonb_array_elements(change.results) AS result
                WHERE result->>'key' = action->>'key' AND result->>'outcome' NOT IN ('applied', 'unchanged')
            )
        ) AS written
        ORDER BY node_id, key, created_at DESC, place DESC
    ) AS last JOIN node ON node.id = last.node_id
    WHERE reason <> :restored AND becomes <> original AND (
        last.state <> 'confirmed' OR coalesce(jsonb_typeof(node.inventory->'held'), 'null') = 'null'
        OR node.inventory->'held'->>last.key = CAST(:policy_id AS text)
    )
""")
_MOVES = text("""
    SELECT node_id, count(*) FROM change CROSS JOIN LATERAL jsonb_array_elements(plan->'actions') AS action
    WHERE policy_id = :policy_id AND created_at >= :since AND state IN ('unconfirmed', 'confirmed')
        AND action->>'reason' <> :restored
    GROUP BY node_id
""")


async def latest_decisions(session: AsyncSession, policy_id: int) -> dict[int, LatestDecision]:
    """Return the latest decision of a policy on each node that has one."""
    rows = await session.execute(_DECISIONS, {"policy_id": policy_id})
    return {row[0]: LatestDecision(*row[1:]) for row in rows}


async def held_settings(session: AsyncSession, policy_id: int, node_id: int | None = None) -> list[Held]:
    """Return the settings that a policy has set, on one node or all, and that have not been restored since."""
    rows = await session.execute(_HELD, {"policy_id": policy_id, "node_id": node_id, "restored": RESTORE_REASON})
    return [Held(*row) for row in rows]


async def count_moves(session: AsyncSession, policy_id: int, since: datetime) -> dict[int, int]:
    """Return how many values a policy has written on each node since a time, without restored ones."""
    rows = await session.execute(_MOVES, {"policy_id": policy_id, "since": since, "restored": RESTORE_REASON})
    return {row[0]: row[1] for row in rows}


async def count_drifts(
    session: AsyncSession, policy_id: int, since: datetime
) -> list[tuple[int, str | None, str, int]]:
    """Return the number of drifts of a policy since a time, by node, cause and response."""
    groups = (DriftRow.node_id, DriftRow.cause, DriftRow.response)
    query = select(*groups, func.count()).where(DriftRow.policy_id == policy_id, DriftRow.at >= since).group_by(*groups)
    return [(row[0], row[1], row[2], row[3]) for row in await session.execute(query)]


async def guardrail_undos(session: AsyncSession, policy_id: int, since: datetime) -> Sequence[Any]:  # Any: SQL rows
    """Return node, time and sentence of the policy's changes that a guardrail has rolled back, newest first."""
    query = select(ChangeRow.node_id, ChangeRow.ended_at, ChangeRow.sentence).where(
        ChangeRow.policy_id == policy_id,
        ChangeRow.ended_at >= since,
        ChangeRow.state == ChangeState.ROLLED_BACK,
        ChangeRow.ended_by == EndedBy.GUARDRAIL,
    )
    return (await session.execute(query.order_by(ChangeRow.ended_at.desc()))).all()
