"""Coscheduling studies: starts, reads and cancels them; stores traces."""

import asyncio
import gzip
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import sqlalchemy.exc
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.db import Database
from coresteer.errors import Conflict, Invalid, NotFound
from coresteer.simulation import repository
from coresteer.simulation.estimate import estimate, remaining_s
from coresteer.simulation.jobs import TraceJob
from coresteer.simulation.parameters import describe
from coresteer.simulation.runner import SimulationRunner, worker_count
from coresteer.simulation.schemas import (
    ParameterValue,
    Simulation,
    SimulationEstimate,
    SimulationPage,
    SimulationState,
    SimulationSummary,
    StoredTrace,
)
from coresteer.simulation.schemes import SCHEMES, Wait
from coresteer.simulation.statements import judge
from coresteer.simulation.study import (
    GENERATED,
    Run,
    StudySpec,
    expected_messages,
    tasks_of,
    unavailable_because,
    usable_jobs,
)
from coresteer.simulation.summary import sensitivities, summarize
from coresteer.simulation.swf import TraceError, TraceFacts, parse_trace, trace_sentences, unpacked
from coresteer.simulation.tables import SimulationRow, TraceRow

MAX_RUNS = 50_000
MAX_TRACES = 20
MIN_SPIN_S = 1e-6
"""With SY, where a process that yields while no other one is ready spins again: in no time, time would stand still."""


async def start(database: Database, runner: SimulationRunner, spec: StudySpec, *, actor: str) -> Simulation:
    """Start a study. Raises Invalid, and Conflict while another one runs."""
    _check(spec)
    if (sentence := unavailable_because()) is not None:
        raise Conflict(sentence)
    facts, jobs = await _trace_of(database, spec)
    row = SimulationRow(
        spec=msgspec.to_builtins(spec),
        trace=None if facts is None else msgspec.to_builtins(facts),
        runs_planned=len(tasks_of(spec)),
        state=SimulationState.RUNNING,
        sentence="",
        created_at=datetime.now(UTC),
        created_by=actor,
        replica_id=runner.replica_id,
    )
    try:
        async with database.session() as session:
            if (other := await repository.running_simulation(session)) is not None:
                raise Conflict(f"Study {other.id} is running. Wait until it is done, or cancel it.")
            session.add(row)
            await session.flush()
            detail = {"simulation": row.id, "runs": row.runs_planned}
            record(session, actor=actor, action="simulation.start", target=f"simulation {row.id}", detail=detail)
    except sqlalchemy.exc.IntegrityError:  # two requests at the same time
        raise Conflict("Another study has just been started. Wait until it is done, or cancel it.") from None
    runner.run(row.id, spec, jobs)
    return _to_simulation(row, [])


async def estimate_duration(database: Database, spec: StudySpec) -> SimulationEstimate:
    """Return what a study would take. Raises Invalid."""
    _check(spec)
    _, jobs = await _trace_of(database, spec)
    found = await asyncio.to_thread(estimate, spec, worker_count(), jobs)
    return SimulationEstimate(**msgspec.structs.asdict(found))


def _check(spec: StudySpec) -> None:
    for at, name in enumerate(spec.schemes):
        if name not in SCHEMES:
            sentence = f"There is no scheme {name}; choose from {', '.join(SCHEMES)}."
            raise Invalid(sentence, field=f"spec.schemes[{at}]")
    for field in ("schemes", "patterns", "job_types", "imbalances"):
        if len(set(getattr(spec, field))) < len(getattr(spec, field)):
            raise Invalid("A value is given twice.", field=f"spec.{field}")
    yields = any(SCHEMES[name].wait is Wait.SPIN_YIELD for name in spec.schemes)
    if yields and (spin_s := spec.parameters.spin_s) < MIN_SPIN_S:
        sentence = f"Schemes with SY need a spin time of at least 1 µs; {spin_s * 1e6:g} µs are given."
        raise Invalid(sentence, field="spec.parameters.spin_factor")
    if (runs := len(tasks_of(spec))) > MAX_RUNS:
        raise Invalid(f"The study has {runs} runs; at most {MAX_RUNS} are allowed.", field="spec.seeds")


async def _trace_of(database: Database, spec: StudySpec) -> tuple[TraceFacts | None, list[TraceJob] | None]:
    if spec.trace == GENERATED:
        return None, None
    async with database.session() as session:
        row = await repository.find_trace(session, spec.trace)
    if row is None:
        raise Invalid(f"There is no trace {spec.trace}; upload it first.", field="spec.trace")
    content = row.content

    def read() -> tuple[TraceFacts, list[TraceJob]]:
        trace = parse_trace(gzip.decompress(content), spec.trace)
        return replace(trace.facts, usable=usable_jobs(spec, trace.jobs)), trace.jobs

    try:
        return await asyncio.to_thread(read)
    except TraceError as error:
        raise Invalid(str(error), field="spec.trace") from None


async def list_simulations(session: AsyncSession, *, older_than: int | None, limit: int) -> SimulationPage:
    """Return a page of studies, newest first."""
    rows = await repository.newest_simulations(session, older_than=older_than, limit=limit + 1)
    done = await repository.count_runs(session, [row.id for row in rows])
    found = []
    for row in rows[:limit]:
        runs = _runs(await repository.runs_of(session, row.id)) if row.state == SimulationState.RUNNING else []
        found.append(_to_summary(row, done.get(row.id, 0), runs))
    older = found[-1].id if len(rows) > limit else None
    return SimulationPage(simulations=found, older=older, unavailable_because=unavailable_because())


async def get_simulation(session: AsyncSession, simulation_id: int) -> Simulation:
    """Return one study with its results so far. Raises NotFound."""
    row = await _find_row(session, simulation_id)
    stored = await repository.runs_of(session, simulation_id)
    return await asyncio.to_thread(lambda: _to_simulation(row, _runs(stored)))


async def get_runs(session: AsyncSession, simulation_id: int) -> list[Run]:
    """Return the finished runs of a study. Raises NotFound."""
    await _find_row(session, simulation_id)
    return _runs(await repository.runs_of(session, simulation_id))


async def cancel(session: AsyncSession, runner: SimulationRunner, simulation_id: int, *, actor: str) -> Simulation:
    """Cancel a study; its finished runs stay. Raises NotFound and Conflict."""
    row = await _find_row(session, simulation_id)
    now = datetime.now(UTC)
    if not await repository.end(session, simulation_id, SimulationState.CANCELLED, "Cancelled.", now):
        raise Conflict(f"This study has ended: it is {row.state}.")
    record(session, actor=actor, action="simulation.cancel", target=f"simulation {simulation_id}")
    runner.cancel()
    await session.refresh(row)
    return _to_simulation(row, _runs(await repository.runs_of(session, simulation_id)))


async def store_trace(session: AsyncSession, name: str, data: bytes, *, actor: str) -> StoredTrace:
    """Store a trace in Standard Workload Format, plain or gzipped, under a name. Raises Invalid and Conflict."""
    if name == GENERATED:
        raise Invalid(f"{GENERATED} is the name of the built-in workload; choose another one.", field="name")

    def read() -> tuple[TraceFacts, bytes]:
        text = unpacked(data, name)
        return parse_trace(text, name).facts, gzip.compress(text, mtime=0)

    try:
        facts, content = await asyncio.to_thread(read)
    except TraceError as error:
        raise Invalid(str(error)) from None
    stored = await repository.traces(session)
    if len(stored) >= MAX_TRACES and name not in {row.name for row in stored}:
        raise Conflict(f"{MAX_TRACES} traces are stored; delete one first.")
    await repository.delete_trace(session, name)
    row = TraceRow(
        name=name, facts=msgspec.to_builtins(facts), content=content, created_at=datetime.now(UTC), created_by=actor
    )
    session.add(row)
    detail = {"jobs": facts.jobs, "bytes": len(data)}
    record(session, actor=actor, action="simulation-trace.store", target=f"trace {name}", detail=detail)
    return _to_trace(row)


async def list_traces(session: AsyncSession) -> list[StoredTrace]:
    """Return the stored traces by name."""
    return [_to_trace(row) for row in await repository.traces(session)]


async def delete_trace(session: AsyncSession, name: str, *, actor: str) -> None:
    """Delete a trace; studies that had it keep their results. Raises NotFound, and Conflict while one uses it."""
    running = await repository.running_simulation(session)
    if running is not None and running.spec["trace"] == name:
        raise Conflict(f"Study {running.id} is running with {name}. Wait until it is done, or cancel it.")
    if not await repository.delete_trace(session, name):
        raise NotFound(f"There is no trace {name}.")
    record(session, actor=actor, action="simulation-trace.delete", target=f"trace {name}")


async def _find_row(session: AsyncSession, simulation_id: int) -> SimulationRow:
    row = await repository.find_simulation(session, simulation_id)
    if row is None:
        raise NotFound(f"There is no study {simulation_id}.")
    return row


def _runs(stored: Sequence[dict[str, object]]) -> list[Run]:
    return msgspec.convert(stored, list[Run])


def _to_trace(row: TraceRow) -> StoredTrace:
    facts = msgspec.convert(row.facts, TraceFacts)
    return StoredTrace(facts=facts, created_at=row.created_at, created_by=row.created_by)


def _to_summary(row: SimulationRow, runs_done: int, runs: Sequence[Run]) -> SimulationSummary:
    """Return a study's list entry. runs: while it runs, all finished ones.

    A study of a trace is estimated as if its jobs were generated: reading the trace each time would take longer.
    """
    spec, left_s = msgspec.convert(row.spec, StudySpec), None
    if row.state == SimulationState.RUNNING:
        messages, expected = expected_messages(spec), estimate(spec, worker_count())
        done = sum(messages[each.cell, each.variant] for each in runs)
        elapsed_s = (datetime.now(UTC) - row.created_at).total_seconds()
        left_s = remaining_s(elapsed_s, done, expected.messages, expected.duration_s)
    return SimulationSummary(
        id=row.id,
        spec=spec,
        state=SimulationState(row.state),
        sentence=row.sentence,
        created_at=row.created_at,
        created_by=row.created_by,
        ended_at=row.ended_at,
        runs_done=runs_done,
        runs_planned=row.runs_planned,
        remaining_s=left_s,
    )


def _to_simulation(row: SimulationRow, runs: Sequence[Run]) -> Simulation:
    entry = _to_summary(row, len(runs), runs)
    facts = None if row.trace is None else msgspec.convert(row.trace, TraceFacts)
    has_ended = entry.state is not SimulationState.RUNNING
    return Simulation(
        **dict(entry),
        trace=facts,
        jobs=trace_sentences(facts, entry.spec.parameters),
        parameters=[ParameterValue(**each._asdict()) for each in describe(entry.spec.parameters)],
        cells=summarize(entry.spec, runs),
        verdicts=judge(entry.spec, runs) if has_ended else [],
        sensitivities=sensitivities(entry.spec, runs) if has_ended else [],
    )
