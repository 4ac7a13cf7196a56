"""Starts and resumes experiments: at most one at a time on a node, each in a task of its own."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.background import cancel
from coresteer.bus import InventoryEvent, NodeEvent
from coresteer.changes.events import ChangeEvent
from coresteer.errors import DeposedError, is_database_unavailable
from coresteer.experiments import repository, service
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.events import QueueEvent
from coresteer.experiments.next_step import startable_experiments
from coresteer.experiments.run_loop import RunLoop
from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.step_actions import SYSTEM_ACTOR
from coresteer.experiments.steps import Timeouts
from coresteer.experiments.tables import ExperimentRow
from coresteer.nodes import service as nodes
from coresteer_core.experiments.model import RunState
from coresteer_core.node.summary import Summary
from coresteer_core.protocol import EndExperiment, ExperimentMessage

log = logging.getLogger("coresteer.experiments")

_RETRY_S = 1.0


class ExperimentRunner:
    """Starts queued experiments, and passes the agents' messages to the experiment of their node."""

    def __init__(self, context: ExperimentContext, timeouts: Timeouts | None = None) -> None:
        self.timeouts = timeouts or Timeouts()
        self._context = context
        self._by_node: dict[int, RunLoop] = {}
        self._loops: dict[int, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Resume the running experiments, and start queued ones."""
        self._by_node.clear()
        self._loops.clear()
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._run())]
        self._wake.set()

    async def stop(self) -> None:
        """Cancel all tasks. Agents roll back by themselves; the next start resumes from the rows."""
        tasks, self._tasks = self._tasks, []
        await cancel([*tasks, *self._loops.values()])

    async def handle_message(self, node_id: int, message: ExperimentMessage) -> None:
        """Pass the message of an agent that is connected here to its experiment.

        A load is ended if no experiment runs it, here or, as the database says, on the leader.
        """
        if self.pass_on(node_id, message) or message.state not in (RunState.READY, RunState.LOADED):
            return
        if not self._tasks and await self._runs_elsewhere(node_id, message.experiment_id):
            return
        peer = self._context.connections.get(node_id)
        if peer is not None:
            peer.post(EndExperiment(message.experiment_id))

    async def _runs_elsewhere(self, node_id: int, experiment_id: int) -> bool:
        try:
            async with self._context.database.session() as session:
                running = await repository.running_experiment_by_node(session, [node_id])
        except Exception as error:
            if not is_database_unavailable(error):
                raise
            return True  # it is not known, and the agent ends a load by itself
        return running.get(node_id) == experiment_id

    def pass_on(self, node_id: int, message: ExperimentMessage) -> bool:
        """Pass an agent's message to its experiment; return whether one of this backend runs on its node."""
        loop = self._by_node.get(node_id)
        if loop is None or loop.state.experiment_id != message.experiment_id:
            return False
        loop.state.handle_message(node_id, message)
        return True

    def set_connected(self, node_id: int, *, connected: bool) -> None:
        """Tell the node's experiment that its agent connected or disconnected."""
        if (loop := self._by_node.get(node_id)) is not None:
            loop.state.set_connected(node_id, connected=connected)

    def handle_summary(self, node_id: int, summary: Summary) -> None:
        """Check a node's newest interval against the guardrails of its experiment."""
        if (loop := self._by_node.get(node_id)) is not None and loop.state.node_id == node_id:
            loop.state.handle_summary(summary)

    async def _listen(self) -> None:
        with self._context.bus.subscribe() as events:
            async for event in events:
                match event:
                    case QueueEvent():
                        self._wake.set()
                    case ChangeEvent(change) if (loop := self._by_node.get(change.node_id)) is not None:
                        loop.state.handle_change(change)
                    case InventoryEvent(node_id) if (loop := self._by_node.get(node_id)) is not None:
                        loop.state.handle_inventory()
                    case NodeEvent(node_id) if (loop := self._by_node.get(node_id)) is not None:
                        loop.state.changed.set()  # its labels may have changed, and so the stops that apply to it

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._start_queued()
            except DeposedError as deposed:
                return log.warning("%s", deposed)
            except Exception as error:
                if not is_database_unavailable(error):
                    log.exception("The queue of experiments could not be read; retrying.")
                await asyncio.sleep(_RETRY_S)
                self._wake.set()

    async def _start_queued(self) -> None:
        """Start the experiments that can start, and let running ones read their rows again, e.g. after a cancel."""
        async with self._context.database.session() as session:
            await repository.lock_queue(session)
            unfinished = await repository.unfinished_experiments(session)
            started = startable_experiments(unfinished)
            running = [each.experiment_id for each in unfinished if each.state == ExperimentState.RUNNING]
            missing = [each for each in [*running, *started] if each not in self._loops]
            loops, unreadable = await self._make_loops(session, missing)
        for experiment_id, loop in loops.items():
            self._by_node |= dict.fromkeys(loop.state.participants, loop)
            self._loops[experiment_id] = asyncio.create_task(self._run_loop(experiment_id, loop))
        for loop in self._by_node.values():
            loop.state.changed.set()
        if unreadable:
            self._wake.set()  # experiments that were queued behind these may start
        for experiment_id in [*started, *unreadable]:
            await service.publish(self._context, experiment_id)

    async def _make_loops(
        self, session: AsyncSession, experiment_ids: Sequence[int]
    ) -> tuple[dict[int, RunLoop], list[int]]:
        """Return the loops by experiment, and the experiments that another version stored in an unreadable form."""
        loops: dict[int, RunLoop] = {}
        unreadable = []
        for experiment_id in experiment_ids:
            row = await repository.find_experiment(session, experiment_id, lock=True)
            if row is None:
                continue
            if row.state == ExperimentState.QUEUED:
                row.state, row.activity, row.started_at = ExperimentState.RUNNING, "Starting.", datetime.now(UTC)
            names = await _node_names(session, row)
            try:
                loops[experiment_id] = RunLoop(self._context, row, names, self.timeouts)
            except msgspec.ValidationError as error:
                service.end(row, ExperimentState.FAILED, service.unreadable_sentence(row.id, error))
                service.audit(session, SYSTEM_ACTOR, "experiment.end", row)
                unreadable.append(experiment_id)
        return loops, unreadable

    async def _run_loop(self, experiment_id: int, loop: RunLoop) -> None:
        try:
            await loop.run()
        finally:
            del self._loops[experiment_id]
            for node_id in loop.state.participants:
                if self._by_node.get(node_id) is loop:  # else the next experiment of the node has started already
                    del self._by_node[node_id]
                    self._context.publisher.lease(node_id, [])
        self._wake.set()


async def _node_names(session: AsyncSession, row: ExperimentRow) -> dict[int, str]:
    """Return the names of the experiment's nodes by id, the node under test first."""
    names = {row.node_id: row.node.name}
    if row.peer_node_id is not None:
        names[row.peer_node_id] = (await nodes.find_node(session, row.peer_node_id)).name
    return names
