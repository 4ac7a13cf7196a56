"""SQL of coscheduling studies, their runs and traces."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer

from coresteer.simulation.schemas import SimulationState
from coresteer.simulation.tables import SimulationRow, SimulationRunRow, TraceRow


async def find_simulation(session: AsyncSession, simulation_id: int) -> SimulationRow | None:
    """Return the row of one study, None if there is none."""
    return await session.get(SimulationRow, simulation_id)


async def newest_simulations(session: AsyncSession, *, older_than: int | None, limit: int) -> Sequence[SimulationRow]:
    """Return at most limit studies, newest first."""
    query = select(SimulationRow).order_by(SimulationRow.id.desc()).limit(limit)
    if older_than is not None:
        query = query.where(SimulationRow.id < older_than)
    return (await session.scalars(query)).all()


async def running_simulation(session: AsyncSession) -> SimulationRow | None:
    """Return the study that runs, None if none does."""
    query = select(SimulationRow).where(SimulationRow.state == SimulationState.RUNNING)
    return (await session.scalars(query)).one_or_none()


async def count_runs(session: AsyncSession, simulation_ids: Sequence[int]) -> dict[int, int]:
    """Return the number of finished runs by study."""
    query = select(SimulationRunRow.simulation_id, func.count()).where(
        SimulationRunRow.simulation_id.in_(simulation_ids)
    )
    return {row[0]: row[1] for row in await session.execute(query.group_by(SimulationRunRow.simulation_id))}


async def runs_of(session: AsyncSession, simulation_id: int) -> Sequence[dict[str, object]]:
    """Return the finished runs of a study in the order of their end."""
    query = select(SimulationRunRow.run).where(SimulationRunRow.simulation_id == simulation_id)
    return (await session.scalars(query.order_by(SimulationRunRow.number))).all()


async def end(session: AsyncSession, simulation_id: int, state: SimulationState, sentence: str, now: datetime) -> bool:
    """Set the final state of a study; return whether it was running."""
    query = update(SimulationRow).where(SimulationRow.id == simulation_id)
    query = query.where(SimulationRow.state == SimulationState.RUNNING)
    ended = query.values(state=state, sentence=sentence, ended_at=now).returning(SimulationRow.id)
    return (await session.scalars(ended)).one_or_none() is not None


async def traces(session: AsyncSession) -> Sequence[TraceRow]:
    """Return all traces without their content."""
    return (await session.scalars(select(TraceRow).order_by(TraceRow.name))).all()


async def find_trace(session: AsyncSession, name: str) -> TraceRow | None:
    """Return a trace with its content, None if there is none."""
    return (
        await session.scalars(select(TraceRow).where(TraceRow.name == name).options(undefer(TraceRow.content)))
    ).one_or_none()


async def delete_trace(session: AsyncSession, name: str) -> bool:
    """Delete a trace; return whether it was there."""
    ended = delete(TraceRow).where(TraceRow.name == name).returning(TraceRow.name)
    return (await session.scalars(ended)).one_or_none() is not None
