"""Reads and keeps experiments and their runs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from sqlalchemy import func, or_, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.changes.repository import OPEN as OPEN_CHANGES
from coresteer.changes.tables import ChangeRow
from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.spec import RecordedRun
from coresteer.experiments.tables import ExperimentRow, ExperimentRunRow

OPEN = (ExperimentState.QUEUED, ExperimentState.RUNNING)


class Done(NamedTuple):
    """How many runs of an experiment count, and how many were discarded."""

    kept: int
    discarded: int


class Attempt(NamedTuple):
    """A run as far as the schedule goes. discarded: why it does not count."""

    number: int
    attempt: int
    discarded: str | None


class Taken(NamedTuple):
    """An experiment that is not over, with the nodes that it needs, its own first."""

    experiment_id: int
    state: str
    node_ids: tuple[int, ...]


async def find(session: AsyncSession, experiment_id: int, *, lock: bool = False) -> ExperimentRow | None:
    """One experiment; locked, it is not changed by others until the session's end."""
    query = select(ExperimentRow).where(ExperimentRow.id == experiment_id)
    query = query.with_for_update(of=ExperimentRow) if lock else query
    return (await session.scalars(query.execution_options(populate_existing=True))).one_or_none()


async def newest(
    session: AsyncSession, *, node_id: int | None, state: str | None, older_than: int | None, limit: int
) -> Sequence[ExperimentRow]:
    """At most limit experiments, newest first. node_id: also as the peer."""
    query = select(ExperimentRow).order_by(ExperimentRow.id.desc()).limit(limit)
    if node_id is not None:
        query = query.where(or_(ExperimentRow.node_id == node_id, ExperimentRow.peer_node_id == node_id))
    if state is not None:
        query = query.where(ExperimentRow.state == state)
    if older_than is not None:
        query = query.where(ExperimentRow.id < older_than)
    return (await session.scalars(query)).all()


async def runs(session: AsyncSession, experiment_id: int) -> Sequence[ExperimentRunRow]:
    """All runs, in the order in which they were made."""
    query = select(ExperimentRunRow).where(ExperimentRunRow.experiment_id == experiment_id)
    return (await session.scalars(query.order_by(ExperimentRunRow.number, ExperimentRunRow.attempt))).all()


async def attempts(session: AsyncSession, experiment_id: int) -> list[Attempt]:
    """All runs in the order in which they were made, without what they came to."""
    query = select(ExperimentRunRow.number, ExperimentRunRow.attempt, ExperimentRunRow.discarded)
    query = query.where(ExperimentRunRow.experiment_id == experiment_id)
    rows = await session.execute(query.order_by(ExperimentRunRow.number, ExperimentRunRow.attempt))
    return [Attempt(row[0], row[1], row[2]) for row in rows]


async def done(session: AsyncSession, experiment_ids: Sequence[int]) -> dict[int, Done]:
    """How far experiments are; one without any run is left out."""
    kept = func.count().filter(ExperimentRunRow.discarded.is_(None))
    query = select(ExperimentRunRow.experiment_id, kept, func.count() - kept)
    query = query.where(ExperimentRunRow.experiment_id.in_(experiment_ids)).group_by(ExperimentRunRow.experiment_id)
    return {row[0]: Done(row[1], row[2]) for row in await session.execute(query)}


async def not_over(session: AsyncSession) -> list[Taken]:
    """Every experiment that is queued or runs, oldest first."""
    query = select(ExperimentRow.id, ExperimentRow.state, ExperimentRow.node_id, ExperimentRow.peer_node_id)
    rows = await session.execute(query.where(ExperimentRow.state.in_(OPEN)).order_by(ExperimentRow.id))
    return [Taken(row[0], row[1], (row[2],) if row[3] is None else (row[2], row[3])) for row in rows]


async def nodes_in_use(session: AsyncSession, node_ids: Sequence[int]) -> dict[int, int]:
    """Those of the nodes on which an experiment runs, with its id; a peer is one, too."""
    query = select(ExperimentRow.id, ExperimentRow.node_id, ExperimentRow.peer_node_id)
    query = query.where(
        ExperimentRow.state == ExperimentState.RUNNING,
        or_(ExperimentRow.node_id.in_(node_ids), ExperimentRow.peer_node_id.in_(node_ids)),
    )
    found: dict[int, int] = {}
    for experiment_id, *both in await session.execute(query):
        found |= dict.fromkeys((node_id for node_id in both if node_id is not None), experiment_id)
    return found


async def open_changes(session: AsyncSession, experiment_id: int) -> Sequence[ChangeRow]:
    """The experiment's changes that still stand, latest first."""
    query = select(ChangeRow).where(ChangeRow.experiment_id == experiment_id, ChangeRow.state.in_(OPEN_CHANGES))
    return (await session.scalars(query.order_by(ChangeRow.created_at.desc()))).all()


async def keep_run(session: AsyncSession, experiment_id: int, run: RecordedRun) -> None:
    """Store a run; one that is there already, after a commit whose answer got lost, stays as it is."""
    row = {
        "experiment_id": experiment_id,
        "number": run.planned.number,
        "attempt": run.attempt,
        "kept_at": datetime.now(UTC),
        "run": msgspec.to_builtins(run),
        "discarded": run.discarded,
    }
    await session.execute(insert(ExperimentRunRow).values(row).on_conflict_do_nothing())


async def one_at_a_time(session: AsyncSession) -> None:
    """Until the session's end, nobody else gets past this: who runs next is decided by one."""
    await session.execute(text("SELECT pg_advisory_xact_lock(hashtext('coresteer.experiment'))"))
