"""Runs experiments: one at a time on a node, each by a task of its own that waits for word of its agents."""

import asyncio
import logging
from datetime import UTC, datetime

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.bus import InventoryEvent
from coresteer.changes.events import ChangeEvent
from coresteer.errors import is_database_away
from coresteer.experiments import repository, service
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.next_step import promotable
from coresteer.experiments.run_loop import SYSTEM, Drive
from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.steps import Patience
from coresteer.experiments.tables import ExperimentRow
from coresteer.nodes import service as nodes
from coresteer_core.experiments.model import RunState
from coresteer_core.node.rates import Rates
from coresteer_core.protocol import EndExperiment, ExperimentMessage

log = logging.getLogger("coresteer.experiments")

_RETRY_S = 1.0


class Runner:
    """Passes on what agents tell to the drive of their node's experiment, and begins those whose turn it is."""

    def __init__(self, shared: ExperimentContext, patience: Patience | None = None) -> None:
        self.patience = patience or Patience()
        self._shared = shared
        self._by_node: dict[int, Drive] = {}
        self._drives: dict[int, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Go on with what runs, and begin what waits."""
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._run())]
        self._shared.wake.set()

    async def stop(self) -> None:
        """Leave it all as it stands: agents undo by themselves, and the next start goes on from the rows."""
        tasks = [*self._tasks, *self._drives.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def message(self, node_id: int, message: ExperimentMessage) -> None:
        """An agent's word. What nobody waits for any more is ended."""
        drive = self._by_node.get(node_id)
        if drive is not None and drive.heard.experiment_id == message.experiment_id:
            drive.heard.message(node_id, message)
        elif message.state in (RunState.READY, RunState.LOADED):
            peer = self._shared.connections.get(node_id)
            if peer is not None:
                peer.post(EndExperiment(message.experiment_id))

    def connection(self, node_id: int, *, connected: bool) -> None:
        """An agent connected, or its connection ended."""
        if (drive := self._by_node.get(node_id)) is not None:
            drive.heard.connection(node_id, connected=connected)

    def rates(self, node_id: int, rates: Rates) -> None:
        """A node's newest interval."""
        if (drive := self._by_node.get(node_id)) is not None and drive.heard.node_id == node_id:
            drive.heard.rates(rates)

    async def _listen(self) -> None:
        with self._shared.bus.subscribe() as events:
            async for event in events:
                match event:
                    case ChangeEvent(change) if (drive := self._by_node.get(change.node_id)) is not None:
                        drive.heard.change(change)
                    case InventoryEvent(node_id) if (drive := self._by_node.get(node_id)) is not None:
                        drive.heard.told_of_itself()

    async def _run(self) -> None:
        while True:
            await self._shared.wake.wait()
            self._shared.wake.clear()
            try:
                await self._look()
            except Exception as error:
                if not is_database_away(error):
                    log.exception("The experiments that wait could not be looked at; trying again.")
                await asyncio.sleep(_RETRY_S)
                self._shared.wake.set()

    async def _look(self) -> None:
        """Begin what can begin, and make those that run look at what people asked for."""
        async with self._shared.database.session() as session:
            await repository.one_at_a_time(session)
            not_over = await repository.not_over(session)
            begun = promotable(not_over)
            running = [taken.experiment_id for taken in not_over if taken.state == ExperimentState.RUNNING]
            drives: dict[int, Drive] = {}
            unreadable = []
            for experiment_id in (one for one in [*running, *begun] if one not in self._drives):
                row = await repository.find(session, experiment_id, lock=True)
                if row is None:
                    continue
                if row.state == ExperimentState.QUEUED:
                    row.state, row.now, row.started_at = ExperimentState.RUNNING, "It begins.", datetime.now(UTC)
                names = await _names_of(session, row)
                try:
                    drives[experiment_id] = Drive(self._shared, row, names, self.patience)
                except msgspec.ValidationError as error:  # kept by another version
                    service.end(row, ExperimentState.FAILED, service.cannot_be_read(row.id, error))
                    service.audit(session, SYSTEM, "experiment.end", row)
                    unreadable.append(experiment_id)
        for experiment_id, drive in drives.items():
            self._by_node |= dict.fromkeys(drive.heard.sides, drive)
            self._drives[experiment_id] = asyncio.create_task(self._drive(experiment_id, drive))
        for drive in self._by_node.values():
            drive.heard.changed.set()
        if unreadable:
            self._shared.wake.set()  # for those that waited for these
        for experiment_id in [*begun, *unreadable]:
            await service.tell(self._shared, experiment_id)

    async def _drive(self, experiment_id: int, drive: Drive) -> None:
        try:
            await drive.run()
        finally:
            del self._drives[experiment_id]
            for node_id in drive.heard.sides:
                if self._by_node.get(node_id) is drive:  # else the next one on the node has begun already
                    del self._by_node[node_id]
                    self._shared.publisher.lease(node_id, [])
        self._shared.wake.set()


async def _names_of(session: AsyncSession, row: ExperimentRow) -> dict[int, str]:
    """The experiment's nodes, its own first, with their names."""
    names = {row.node_id: row.node.name}
    if row.peer_node_id is not None:
        names[row.peer_node_id] = (await nodes.find(session, row.peer_node_id)).name
    return names
