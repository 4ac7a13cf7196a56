"""Carries out the steps of an experiment: messages to agents, changes, leases, and rows in the database."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace as with_changes
from importlib import metadata
from uuid import UUID

from coresteer.application_metrics.reading import Missing, Reading
from coresteer.bus import NodeEvent
from coresteer.changes.validation import view_of_node
from coresteer.errors import Problem
from coresteer.experiments import arm_config, repository, run_settings, service
from coresteer.experiments.applications import Applications
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.machine import describe_machine
from coresteer.experiments.run_settings import ExperimentDefinition
from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.server_address import address_refusal
from coresteer.experiments.session_state import SessionState
from coresteer.experiments.spec import PlannedRun, RecordedRun
from coresteer.experiments.steps import Facts, Timeouts
from coresteer.nodes import service as nodes
from coresteer.nodes.tables import NodeRow
from coresteer_core.experiments.model import Receipts, Run, RunResult, has_client
from coresteer_core.experiments.model import Role as RunRole
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.view import View
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.protocol import BeginExperiment, EndExperiment, ExperimentMessage, RunExperiment, ToAgent

SYSTEM_ACTOR = "coresteer"
ASK_AGAIN_S = 5.0
"""Seconds after which a server that did not answer with a run's primary metric is asked again."""


class StepActions:
    """Actions of an experiment, one method for each Step. activity: the sentence that is shown at present."""

    def __init__(
        self,
        context: ExperimentContext,
        definition: ExperimentDefinition,
        state: SessionState,
        timeouts: Timeouts,
        *,
        activity: str,
        applications: Applications,
    ) -> None:
        self._context = context
        self._definition = definition
        self._state = state
        self._timeouts = timeouts
        self._activity = activity
        self._applications = applications

    async def await_message(self, activity: str, until_s: float) -> None:
        """Wait until an agent's message arrives, at most until until_s (monotonic s), and show the activity."""
        await self._publish_activity(activity)
        try:
            async with asyncio.timeout(max(0.0, until_s - time.monotonic())):
                await self._state.changed.wait()
        except TimeoutError:
            pass  # next_step() compares the facts with the time again

    async def _publish_activity(self, activity: str) -> None:
        if activity == self._activity:
            return
        async with self._context.database.session() as session:
            row = await repository.find_experiment(session, self._definition.experiment_id, lock=True)
            if row is not None:
                row.activity = activity
        self._activity = activity
        await self._publish()

    async def _publish(self) -> None:
        await service.publish(self._context, self._definition.experiment_id)

    async def pause_policies(self) -> None:
        """Send the nodes their policies again: these pause because an experiment runs."""
        for node_id in self._state.participants:
            await self._context.publisher.publish_now(node_id)
        async with self._context.database.session() as session:
            enforced = await service.enforced_on(session, list(self._state.participants))
        self._state.policies_paused = any(enforced.values())
        self._state.paused_at_s = time.monotonic()

    async def record_settings(self) -> None:
        """Store the description of the machine, and the settings before the experiment."""
        async with self._context.database.session() as session:
            node, *peers = [await nodes.find_node(session, node_id) for node_id in self._state.participants]
            machine = describe_machine(node) | {"backend_version": metadata.version("coresteer")}
            flows = self._context.registry.get(node.id).flows
            if flows is not None and flows.numa is not None and flows.numa.bandwidth_unknown is not None:
                machine["bandwidth_unknown"] = flows.numa.bandwidth_unknown
            if peers:
                machine["peer"] = describe_machine(peers[0])
            settings = arm_config.compared_settings(self._definition.spec, self._view(node))
            # last: the row's node replaces this one, without the topology and inventory that were loaded
            row = await repository.find_experiment(session, self._definition.experiment_id, lock=True)
            if row is not None:
                row.machine, row.settings_before = machine, settings

    async def read_settings(self, facts: Facts) -> None:
        """Read the present settings, and those of a netdev of the experiment as soon as they are all known."""
        state = self._state
        netdev_keys = arm_config.netdev_keys(self._definition.spec, facts.netdev)
        state.settings = {}  # an inventory that arrives during the query makes it None again
        found = arm_config.current_values(await self._current_view(), [*(facts.settings_before or {}), *netdev_keys])
        if state.settings is not None:
            state.settings = found
        is_first = not state.netdev_settings_before and not facts.end_sent
        if facts.netdev and is_first and all(key in found for key in netdev_keys):
            state.netdev_settings_before = {key: found[key] for key in netdev_keys}
            if netdev_keys:
                await self._record_netdev(facts.netdev)

    async def _record_netdev(self, netdev: str) -> None:
        """Store the netdev by which the load arrives and, of a NIC, which also exists afterwards, its settings."""
        found = self._state.netdev_settings_before if len(self._state.participants) > 1 else {}
        async with self._context.database.session() as session:
            row = await repository.find_experiment(session, self._definition.experiment_id, lock=True)
            if row is not None and row.machine.get("netdev") != netdev:
                row.machine = row.machine | {"netdev": netdev}
                row.settings_before = {**found, **(row.settings_before or {})}

    async def _current_view(self) -> View:
        """Return the node as its agent last reported it."""
        async with self._context.database.session() as session:
            return self._view(await nodes.find_node(session, self._state.node_id))

    def _view(self, node: NodeRow) -> View:
        return view_of_node(node, self._context.registry.get(node.id).flows)

    def prepare(self, index: int) -> None:
        """Request that a participant (by its index) prepares what all runs share."""
        node_id = list(self._state.participants)[index]
        begin = BeginExperiment(self._definition.experiment_id, self._definition.spec.workload, self._role_of(index))
        self._post(node_id, EndExperiment(self._definition.experiment_id))
        self._post(node_id, begin)
        participant = self._state.participants[node_id]
        prepared = with_changes(participant, prepare_sent_at_s=time.monotonic(), session_message=None)
        self._state.participants[node_id] = prepared

    def _role_of(self, index: int) -> RunRole:
        if len(self._state.participants) == 1:
            return "alone"
        return "client" if index else "server"

    async def apply_settings(self, planned: PlannedRun, attempt: int, facts: Facts) -> None:
        """Apply a run's settings by a change and lease its policies; abandon the run where that is impossible."""
        leased = await run_settings.leased_policies(self._context.database, self._definition.spec, planned.arm)
        try:
            run = await run_settings.apply(
                self._context,
                self._definition,
                planned,
                await self._current_view(),
                netdev=facts.netdev,
                timeout_s=2 * self._timeouts.run_s + self._timeouts.answer_s,
                leased=leased,
            )
        except Problem as problem:
            await self.abandon_run(planned, attempt, problem.detail)
            return
        if leased:
            self._state.leased = True
            await self._lease(leased)
        self._state.set_active_run(run)  # last: a run whose policies could not be published does not start

    async def start_run(self, planned: PlannedRun, index: int, facts: Facts) -> None:
        """Request that a participant (by its index) carries out the active run."""
        if (active_run := self._state.active_run) is None:
            return
        spec, node_id = self._definition.spec, list(self._state.participants)[index]
        message, role = facts.participants[0].session_message, self._role_of(index)
        workload = arm_config.workload_of(spec, planned.arm)
        receipts = None
        if message is not None and role != "alone" and has_client(workload):
            if (refused := await self._server_refusal(message)) is not None:
                active_run.failure = refused
                return
            receipts = Receipts(message.receipts_port, active_run.receipts_key)
        run = Run(
            run_id=active_run.run_id,
            workload=workload,
            role=role,
            warmup_s=arm_config.warmup_s(spec, planned.arm),
            measure_s=arm_config.measure_s(spec, planned.arm),
            irqbalance=role != "client" and arm_config.runs_irqbalance(spec, planned.arm),
            irqbalance_cpus=arm_config.irqbalance_cpus(spec, planned.arm),
            address="" if message is None or receipts is None else message.address,
            receipts=receipts,
            netdevs=[facts.netdev] if facts.netdev and role != "client" else [],
        )
        participant = self._state.participants[node_id]
        self._state.participants[node_id] = with_changes(participant, run_sent_at_s=time.monotonic())
        self._post(node_id, RunExperiment(self._definition.experiment_id, run))

    async def _server_refusal(self, ready: ExperimentMessage) -> str | None:
        """Return why no load may be sent to the address that the node under test states; None if it may."""
        async with self._context.database.session() as session:
            node = await nodes.find_node(session, self._state.node_id)
            inventory = nodes.reported_state(node).inventory or Inventory([], [])
        peer = self._context.connections.reach(node.id)
        return address_refusal(node.name, ready, inventory, "" if peer is None else peer.host)

    async def record_run(self, planned: PlannedRun, attempt: int, measured: RunResult, discarded: str | None) -> None:
        """Store the result of a run, with its application metrics, unless they violate a guardrail.

        A server that does not answer with the primary metric is asked again: the facts do not change until then.
        """
        if (run := self._state.active_run) is None:
            return
        readings = await self._applications.measure(measured)
        primary, now_s = readings.get(self._definition.spec.primary, Reading()), time.monotonic()
        if primary.missing in (Missing.UNREACHABLE, Missing.TIMEOUT) and discarded is None:
            run.answer_due_s = run.answer_due_s or now_s + self._timeouts.answer_s
            if now_s < run.answer_due_s:
                activity = f"Run {planned.number + 1}: waiting for its primary metric. {primary.reason}"
                return await self.await_message(activity, min(now_s + ASK_AGAIN_S, run.answer_due_s))
        if not run.is_checked:  # else it is stored once more
            run.is_checked = True
            self._applications.check(run, readings, measured.duration_s)
        if run.violation is not None:
            return
        found = {metric: each.value for metric, each in readings.items() if each.value is not None}
        missing = {metric: each.reason for metric, each in readings.items() if each.value is None}
        if (reason := missing.get(self._definition.spec.primary)) is not None and discarded is None:
            discarded = f"The primary metric is missing. {reason}"
        recorded = RecordedRun(
            planned=planned,
            attempt=attempt,
            started_ms=measured.started_ms,
            duration_s=measured.duration_s,
            figures=measured.figures | found,
            cpus={kind: _rounded(column) for kind, column in measured.cpus.items()},
            load_before=measured.load_before,
            steal_percent=measured.steal_percent,
            discarded=discarded,
            missing=missing,
        )
        await self._store(recorded)

    async def abandon_run(self, planned: PlannedRun, attempt: int, reason: str, *, violated: bool = False) -> None:
        """Store a run without result as discarded, and require that the nodes are prepared again."""
        run = RecordedRun(
            planned=planned,
            attempt=attempt,
            started_ms=time.time_ns() // 1_000_000,
            duration_s=0.0,
            figures={},
            cpus={},
            load_before=None,
            steal_percent=None,
            discarded=reason,
            violated=violated,
        )
        await self._store(run)
        self._state.require_preparation()

    async def _store(self, run: RecordedRun) -> None:
        async with self._context.database.session() as session:
            await repository.record_run(session, self._definition.experiment_id, run)
        self._state.set_active_run(None)
        await self._publish()

    async def end_policy_lease(self) -> None:
        """End the lease of the run's policies."""
        await self._lease([])
        self._state.leased, self._state.settings = False, None

    async def _lease(self, policies: list[PolicyInForce]) -> None:
        both = arm_config.runs_on_both_nodes(self._definition.spec)
        for node_id in self._state.participants if both else [self._state.node_id]:
            self._context.publisher.lease(node_id, policies)
            await self._context.publisher.publish_now(node_id)

    async def roll_back(self, change_id: UUID) -> None:
        """Roll back a change of the experiment; the facts show whether it succeeded."""
        await run_settings.roll_back(self._context, self._definition, change_id)
        self._state.settings = None

    def end_load(self) -> None:
        """Request that all nodes stop the load."""
        for node_id in self._state.participants:
            self._post(node_id, EndExperiment(self._definition.experiment_id))
        self._state.end_sent, self._state.settings = True, None
        self._state.phase_started_s = time.monotonic()

    async def stop_measuring(self, state: ExperimentState, sentence: str) -> None:
        """Store the state in which the experiment ends once its settings are restored."""
        async with self._context.database.session() as session:
            row = await repository.find_experiment(session, self._definition.experiment_id, lock=True)
            if row is not None and row.ending_state is None:
                row.ending_state, row.sentence = state, sentence
        self._state.set_active_run(None)
        await self._publish()

    async def finish(self, after: Mapping[str, str] | None, note: str) -> None:
        """Store that the experiment has ended, with its settings now (None: not read) and a note about problems."""
        for node_id in self._state.participants:
            self._context.publisher.lease(node_id, [])
        async with self._context.database.session() as session:
            row = await repository.find_experiment(session, self._definition.experiment_id, lock=True)
            if row is None or row.ending_state is None:
                return
            row.settings_after = None if after is None else dict(after)
            service.end(row, ExperimentState(row.ending_state), f"{row.sentence} {note}".rstrip())
            service.audit(session, SYSTEM_ACTOR, "experiment.end", row)
        for node_id in self._state.participants:
            self._context.bus.publish(NodeEvent(node_id))  # its policies are sent again
        if row.state == ExperimentState.DONE:
            await self._record_findings(note)
        await self._publish()

    async def _record_findings(self, note: str) -> None:
        """Show the first finding in the list; in a second transaction, so that the node is free before the analysis."""
        async with self._context.database.session() as session:
            experiment = await service.get_experiment(session, self._definition.experiment_id)
            row = await service.find_row(session, self._definition.experiment_id, lock=True)
            row.sentence = f"{experiment.findings[0]} {note}".rstrip()

    def _post(self, node_id: int, message: ToAgent) -> None:
        """Send a message; a disconnected agent is skipped, because its reconnect requires preparation anyway."""
        if (peer := self._context.connections.reach(node_id)) is not None:
            peer.post(message)


def _rounded(percents: list[float | None]) -> list[float | None]:
    """Round to 0.01 %, a tenth of one 10 ms tick in 10 s, which shortens the API's answers."""
    return [None if percent is None else round(percent, 2) for percent in percents]
