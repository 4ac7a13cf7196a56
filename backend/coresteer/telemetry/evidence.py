"""History beside telemetry: how much of the retention budget it takes, and what is deleted when that is too much.

Decisions, changes, experiments, proofs and studies count toward CORESTEER_RETENTION_BYTES. They may take EVIDENCE_SHARE
of it; what they leave is for telemetry. Above that, the largest tables lose their oldest rows, so that a table that is
flooded does not displace the others. Rows of what is still in progress are not deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from psycopg import sql

from coresteer.audit.service import record
from coresteer.db import Database
from coresteer.telemetry.repository import Connection

EVIDENCE_SHARE = 1 / 4
_ROW_BYTES = 100
"""Of a row without its large columns."""


@dataclass(frozen=True)
class Part:
    """A table whose rows belong to a row of another one and are deleted with it. key: its column with that row's id."""

    table: str
    key: str
    large: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """A table of history. at: its column of time. large: its columns of any size. deletable: SQL of a row ``t``."""

    table: str
    at: str
    large: tuple[str, ...]
    deletable: LiteralString = "true"
    part: Part | None = None


EVIDENCE = (
    Evidence("decision", "at", ("evaluation", "holdout")),
    Evidence("drift", "at", ("expected", "found")),
    Evidence("early_report", "at", ("message",)),
    Evidence(
        "node_snapshot",
        "at",
        ("data",),
        "EXISTS (SELECT FROM node_snapshot n WHERE n.node_id = t.node_id AND n.kind = t.kind AND n.at > t.at)",
    ),
    Evidence(
        "change",
        "created_at",
        ("plan", "sentence", "reason", "guardrails", "results", "observation"),
        "t.ended_at IS NOT NULL",
        Part("change_step", "change_id", ("sentence",)),
    ),
    Evidence(
        "experiment",
        "created_at",
        ("spec", "machine", "settings_before", "settings_after"),
        "t.ended_at IS NOT NULL",
        Part("experiment_run", "experiment_id", ("run",)),
    ),
    Evidence(
        "proof_episode",
        "started_at",
        ("labels", "differences"),
        "t.counted",
        Part("proof_block", "episode_id", ("figures", "parts", "factors")),
    ),
    Evidence("alert", "fired_at", ("name", "labels"), "t.resolved_at IS NOT NULL"),
    Evidence("alert_delivery", "created_at", ("notification", "outcome"), "t.state <> 'waiting'"),
    Evidence(
        "simulation",
        "created_at",
        ("spec", "trace"),
        "t.ended_at IS NOT NULL",
        Part("simulation_run", "simulation_id", ("run",)),
    ),
)
KEPT = (
    *(
        "audit",
        "audit_chain",
        "policy_version",
        "rollout",
        "approval",
        "enforcement_stop",
        "enforcement_stop_node",
        "simulation_trace",
    ),
    *("proof_version", "proof_sum", "proof_node", "proof_excluded"),
)
"""Tables of history that count too and whose rows stay: quotas bound what peers add, and people delete traces."""


async def sizes(connection: Connection) -> dict[str, int]:
    """Return the bytes on disk of each table of history beside telemetry, with indexes and out-of-line values."""
    tables = [*KEPT, *(name for e in EVIDENCE for name in (e.table, *((e.part.table,) if e.part else ())))]
    cursor = await connection.execute(
        "SELECT name, coalesce(pg_total_relation_size(to_regclass(name)), 0) FROM unnest(%s::text[]) AS name", (tables,)
    )
    return dict(await cursor.fetchall())


def level(used: Mapping[str, int], most_bytes: float) -> float:
    """Return the bytes that each table may use so that all together use at most most_bytes."""
    left = most_bytes
    for position, size in enumerate(sorted(used.values())):
        if size * (len(used) - position) > left:
            return left / (len(used) - position)
        left -= size
    return max(used.values(), default=0)


async def delete_surplus(database: Database, most_bytes: float) -> dict[str, int]:
    """Delete the oldest rows of the largest tables until all take at most most_bytes; return rows deleted by table.

    Counted are the bytes of rows, not of files: the space of deleted rows is used again, but a file does not shrink.
    """
    async with database.pool.connection() as connection:
        used = {each.table: await _used(connection, each) for each in EVIDENCE}
    most = level(used, most_bytes)
    deleted = {}
    for each in EVIDENCE:
        if used[each.table] > most and (rows := await _delete_oldest(database, each, most)):
            deleted[each.table] = rows
    return deleted


def _sized(each: Evidence) -> sql.Composed:
    """Return a query of the time and bytes of each row."""
    part: sql.Composable = sql.SQL("")
    if each.part is not None:
        part = sql.SQL(" + coalesce((SELECT sum({row} + {size}) FROM {table} p WHERE p.{key} = t.id), 0)").format(
            row=sql.Literal(_ROW_BYTES),
            size=_bytes("p", each.part.large),
            table=sql.Identifier(each.part.table),
            key=sql.Identifier(each.part.key),
        )
    return sql.SQL("SELECT t.{at} AS at, {row} + {size}{part} AS bytes FROM {table} t").format(
        at=sql.Identifier(each.at),
        row=sql.Literal(_ROW_BYTES),
        size=_bytes("t", each.large),
        part=part,
        table=sql.Identifier(each.table),
    )


def _bytes(alias: str, columns: tuple[str, ...]) -> sql.Composed:
    return sql.SQL(" + ").join(
        sql.SQL("coalesce(pg_column_size({}), 0)").format(sql.Identifier(alias, column)) for column in columns
    )


async def _used(connection: Connection, each: Evidence) -> int:
    cursor = await connection.execute(
        sql.SQL("SELECT coalesce(sum(bytes), 0)::bigint FROM ({}) AS sized").format(_sized(each))
    )
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def _delete_oldest(database: Database, each: Evidence, most_bytes: float) -> int:
    last = sql.SQL(
        "SELECT max(at) FROM (SELECT at, sum(bytes) OVER (ORDER BY at DESC) AS held FROM ({}) AS sized) AS running "
        "WHERE held > {}"
    ).format(_sized(each), sql.Literal(int(most_bytes)))
    delete = sql.SQL("DELETE FROM {table} t WHERE t.{at} <= %s AND {deletable}").format(
        table=sql.Identifier(each.table), at=sql.Identifier(each.at), deletable=sql.SQL(each.deletable)
    )
    async with database.connection() as connection:
        row = await (await connection.execute(last)).fetchone()
        until: datetime | None = None if row is None else row[0]
        rows = 0 if until is None else (await connection.execute(delete, (until,))).rowcount
    if rows and until is not None:
        async with database.session() as session:
            record(
                session,
                actor="coresteer",
                action="retention.drop",
                target=each.table,
                detail={"why": "bytes", "rows": rows, "until": until.isoformat()},
            )
    return rows
