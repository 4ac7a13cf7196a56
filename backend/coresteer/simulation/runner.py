"""Runs one study at a time in processes of their own, and stores each run as it finishes."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from threading import Event

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.background import cancel, repeat
from coresteer.db import Database
from coresteer.errors import database_error_message, is_database_unavailable
from coresteer.replicas.membership import Membership
from coresteer.simulation import repository
from coresteer.simulation.jobs import TraceJob
from coresteer.simulation.schemas import SimulationState
from coresteer.simulation.study import Run, StudySpec, run_study
from coresteer.simulation.tables import SimulationRunRow

log = logging.getLogger("coresteer.simulation")

INTERRUPTED = "The backend stopped while the study ran. Its finished runs are below; start it again for the others."
WORKER_ENDED = "A worker process ended unexpectedly; the machine may have too little memory."
NICE = 10
"""Of the worker processes, which otherwise would starve the ingest of samples."""
_RETRY_S = 1.0
_WATCH_S = 2.0
_ABANDONED_S = 5.0
"""A backend counts as gone 15 s after its last heartbeat, so that more often would find little earlier."""


def worker_count() -> int:
    """Return in how many processes a study runs: one CPU stays with the backend."""
    return max(1, (os.cpu_count() or 1) - 1)


class AbandonedStudies:
    """Ends a study whose backend is gone; on the leader."""

    def __init__(self, database: Database, membership: Membership) -> None:
        self._database = database
        self._membership = membership
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start looking for abandoned studies."""
        self._tasks = [asyncio.create_task(repeat(self.end, _ABANDONED_S, log, "Reading studies failed; retrying."))]

    async def stop(self) -> None:
        """Stop looking for abandoned studies."""
        await cancel(self._tasks)

    async def end(self) -> None:
        """End the running study if its backend is gone."""
        async with self._database.session() as session:
            row = await repository.running_simulation(session)
            if row is not None and (row.replica_id is None or not self._membership.is_alive(row.replica_id)):
                await repository.end(session, row.id, SimulationState.FAILED, INTERRUPTED, datetime.now(UTC))


class SimulationRunner:
    """Runs the study in progress; service starts and cancels it."""

    def __init__(self, database: Database, membership: Membership) -> None:
        self._database = database
        self._membership = membership
        self._stop = Event()
        # workers end with the thread that starts them, so it is one that stays
        self._executor = ThreadPoolExecutor(1, "simulation")
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def replica_id(self) -> int:
        """Return the id of the backend that runs this runner's studies."""
        return self._membership.id

    async def stop(self) -> None:
        """Terminate the workers; the next start ends their study."""
        self._stop.set()
        await cancel(self._tasks)
        await asyncio.to_thread(self._executor.shutdown)

    def run(self, simulation_id: int, spec: StudySpec, trace: Sequence[TraceJob] | None) -> None:
        """Run a study in the background, until it is done or cancelled."""
        self._stop = Event()
        task = asyncio.create_task(self._run(simulation_id, spec, trace, self._stop))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Terminate the workers of the study in progress."""
        self._stop.set()

    async def _run(self, simulation_id: int, spec: StudySpec, trace: Sequence[TraceJob] | None, stop: Event) -> None:
        finished: asyncio.Queue[Run | str] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def work() -> None:
            sentence = ""
            try:
                for run in run_study(spec, trace, worker_count(), nice=NICE, stop=stop):
                    loop.call_soon_threadsafe(finished.put_nowait, run)
            except BrokenProcessPool:
                sentence = WORKER_ENDED
            except Exception as error:
                log.exception("Study %d failed.", simulation_id)
                sentence = f"A run failed: {error}"
            loop.call_soon_threadsafe(finished.put_nowait, sentence)

        working = loop.run_in_executor(self._executor, work)
        watch = asyncio.create_task(
            repeat(lambda: self._stop_if_ended(simulation_id, stop), _WATCH_S, log, "Reading a study failed; retrying.")
        )
        number = 0
        try:
            while not isinstance(item := await finished.get(), str):
                number += 1
                await self._store(simulation_id, number, item)
            await working
        except Exception as error:
            log.exception("Storing a run of study %d failed.", simulation_id)
            stop.set()
            sentence = f"A run could not be stored: {database_error_message(error)}."
            return await self._end(simulation_id, SimulationState.FAILED, sentence)
        finally:
            await cancel([watch])
        if stop.is_set():  # service has ended it, unless its transaction failed
            return await self._end(simulation_id, SimulationState.CANCELLED, "Cancelled.")
        await self._end(simulation_id, SimulationState.FAILED if item else SimulationState.DONE, item)

    async def _stop_if_ended(self, simulation_id: int, stop: Event) -> None:
        """Terminate the workers of a study that was cancelled through another backend."""
        async with self._database.session() as session:
            row = await repository.find_simulation(session, simulation_id)
        if row is None or row.state != SimulationState.RUNNING:
            stop.set()

    async def _store(self, simulation_id: int, number: int, run: Run) -> None:
        async def write(session: AsyncSession) -> None:
            session.add(SimulationRunRow(simulation_id=simulation_id, number=number, run=msgspec.to_builtins(run)))

        await self._write(write)

    async def _end(self, simulation_id: int, state: SimulationState, sentence: str) -> None:
        now = datetime.now(UTC)

        async def write(session: AsyncSession) -> None:
            await repository.end(session, simulation_id, state, sentence, now)

        while True:  # only this backend ends its study
            try:
                return await self._write(write)
            except Exception:
                log.exception("Ending study %d failed; retrying.", simulation_id)
            await asyncio.sleep(_RETRY_S)

    async def _write(self, write: Callable[[AsyncSession], Awaitable[None]]) -> None:
        """Write in a transaction; retry until the database answers."""
        while True:
            try:
                async with self._database.session() as session:
                    return await write(session)
            except Exception as error:
                if not is_database_unavailable(error):
                    raise
            await asyncio.sleep(_RETRY_S)
