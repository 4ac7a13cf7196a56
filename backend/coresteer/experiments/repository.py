"""SQL of experiments and their runs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from sqlalchemy import func, or_, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.changes.repository import OPEN_STATES as OPEN_CHANGES
from coresteer.changes.tables import ChangeRow
from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.spec import Attempt, RecordedRun
from coresteer.experiments.tables import ExperimentRow, ExperimentRunRow

OPEN_STATES = (ExperimentState.QUEUED, ExperimentState.RUNNING)


class RunCounts(NamedTuple):
    """Numbers of an experiment's counted and discarded runs."""

    counted: int
    discarded: int


class UnfinishedExperiment(NamedTuple):
    """A queued or running experiment with the nodes that it needs, the node under test first."""

    experiment_id: int
    state: str
    node_ids: tuple[int, ...]


async def find_experiment(session: AsyncSession, experiment_id: int, *, lock: bool = False) -> ExperimentRow | None:
    """Return the row of one experiment, None if there is none. lock: until the end of the transaction."""
    query = select(ExperimentRow).where(ExperimentRow.id == experiment_id)
    query = query.with_for_update(of=ExperimentRow) if lock else query
    return (await session.scalars(query.execution_options(populate_existing=True))).one_or_none()


async def newest_experiments(
    session: AsyncSession, *, node_id: int | None, state: str | None, older_than: int | None, limit: int
) -> Sequence[ExperimentRow]:
    """Return at most limit experiments, newest first. node_id: as the node under test or as its peer."""
    query = select(ExperimentRow).order_by(ExperimentRow.id.desc()).limit(limit)
    if node_id is not None:
        query = query.where(or_(ExperimentRow.node_id == node_id, ExperimentRow.peer_node_id == node_id))
    if state is not None:
        query = query.where(ExperimentRow.state == state)
    if older_than is not None:
        query = query.where(ExperimentRow.id < older_than)
    return (await session.scalars(query)).all()


async def list_runs(session: AsyncSession, experiment_id: int) -> Sequence[ExperimentRunRow]:
    """Return all runs of an experiment in chronological order."""
    query = select(ExperimentRunRow).where(ExperimentRunRow.experiment_id == experiment_id)
    return (await session.scalars(query.order_by(ExperimentRunRow.number, ExperimentRunRow.attempt))).all()


async def list_attempts(session: AsyncSession, experiment_id: int) -> list[Attempt]:
    """Return all attempts at runs of an experiment in chronological order, without their results."""
    violated = ExperimentRunRow.run["violated"].as_boolean()
    query = select(ExperimentRunRow.number, ExperimentRunRow.attempt, ExperimentRunRow.discarded, violated)
    query = query.where(ExperimentRunRow.experiment_id == experiment_id)
    rows = await session.execute(query.order_by(ExperimentRunRow.number, ExperimentRunRow.attempt))
    return [Attempt(row[0], row[1], row[2], bool(row[3])) for row in rows]


async def count_runs(session: AsyncSession, experiment_ids: Sequence[int]) -> dict[int, RunCounts]:
    """Return the run counts by experiment id; an experiment without runs has no entry."""
    counted = func.count().filter(ExperimentRunRow.discarded.is_(None))
    query = select(ExperimentRunRow.experiment_id, counted, func.count() - counted)
    query = query.where(ExperimentRunRow.experiment_id.in_(experiment_ids)).group_by(ExperimentRunRow.experiment_id)
    return {row[0]: RunCounts(row[1], row[2]) for row in await session.execute(query)}


async def unfinished_experiments(session: AsyncSession) -> list[UnfinishedExperiment]:
    """Return every queued and running experiment, oldest first."""
    query = select(ExperimentRow.id, ExperimentRow.state, ExperimentRow.node_id, ExperimentRow.peer_node_id)
    rows = await session.execute(query.where(ExperimentRow.state.in_(OPEN_STATES)).order_by(ExperimentRow.id))
    return [UnfinishedExperiment(row[0], row[1], (row[2],) if row[3] is None else (row[2], row[3])) for row in rows]


async def running_experiment_by_node(session: AsyncSession, node_ids: Sequence[int]) -> dict[int, int]:
    """Return the id of the running experiment by node id, for the nodes (and peers) that have one."""
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
    """Return the experiment's changes that are applying or unconfirmed, latest first."""
    query = select(ChangeRow).where(ChangeRow.experiment_id == experiment_id, ChangeRow.state.in_(OPEN_CHANGES))
    return (await session.scalars(query.order_by(ChangeRow.created_at.desc()))).all()


async def record_run(session: AsyncSession, experiment_id: int, run: RecordedRun) -> None:
    """Store a run of an experiment; does nothing if it is stored already, e.g. after a commit whose answer was lost."""
    row = {
        "experiment_id": experiment_id,
        "number": run.planned.number,
        "attempt": run.attempt,
        "recorded_at": datetime.now(UTC),
        "run": msgspec.to_builtins(run),
        "discarded": run.discarded,
    }
    await session.execute(insert(ExperimentRunRow).values(row).on_conflict_do_nothing())


async def lock_queue(session: AsyncSession) -> None:
    """Take the advisory lock of the experiment queue until the end of the transaction.

    Only its holder starts experiments.
    """
    await session.execute(text("SELECT pg_advisory_xact_lock(hashtext('coresteer.experiment'))"))
