"""Runs one experiment to its end: collect the facts, decide the next step, carry it out, repeat."""

import asyncio
import logging
import time
from datetime import UTC, datetime

import msgspec

from coresteer.background import cancel
from coresteer.changes import repository as changes
from coresteer.changes.tables import ChangeRow
from coresteer.errors import DeposedError, is_database_unavailable
from coresteer.experiments import arm_config, next_step, repository
from coresteer.experiments.applications import Applications
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.plan import Plan
from coresteer.experiments.run_settings import ExperimentDefinition
from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.session_state import SessionState
from coresteer.experiments.spec import Spec
from coresteer.experiments.step_actions import StepActions
from coresteer.experiments.steps import (
    AbandonRun,
    ApplySettings,
    AwaitMessage,
    ChangeStatus,
    EndLoad,
    EndPolicyLease,
    Facts,
    Finish,
    PausePolicies,
    Prepare,
    ReadSettings,
    RecordRun,
    RecordSettings,
    RollBackChange,
    StartRun,
    Step,
    StopMeasuring,
    Timeouts,
)
from coresteer.experiments.tables import ExperimentRow
from coresteer.policies.stops import stopped_nodes
from coresteer.replicas.broker import UnansweredError, UndeliveredError
from coresteer_core.changes.report import ChangeState, EndedBy

log = logging.getLogger("coresteer.experiments")

_RETRY_S = 1.0
_FOLLOW_S = 1.0
_MAX_ERRORS = 5


class RunLoop:
    """Loop of one running experiment. state: messages of its agents, which runner.py passes on.

    Raises msgspec.ValidationError when the stored spec cannot be read. timeouts: shorter in tests.
    """

    def __init__(
        self, context: ExperimentContext, row: ExperimentRow, names: dict[int, str], timeouts: Timeouts
    ) -> None:
        spec = msgspec.convert(row.spec, Spec)
        self.state = SessionState(row.id, names, arm_config.node_guardrails(spec))
        self._definition = ExperimentDefinition(row.id, spec)
        self._plan = Plan(row.id, spec, row.seed)
        self._context = context
        self._timeouts = timeouts
        self._applications = Applications(context, spec, self.state)
        self._actions = StepActions(
            context, self._definition, self.state, timeouts, activity=row.activity, applications=self._applications
        )
        self._elsewhere: dict[int, int | None] = {}

    async def run(self) -> None:
        """Run the experiment; return when it has ended or its node was deleted.

        From now on the gateway must tell it of connections, so that it misses none after those that it reads first.
        """
        for node_id in self.state.participants:
            self._elsewhere[node_id] = self._epoch_elsewhere(node_id)
            self.state.set_connected(node_id, connected=self._context.connections.reach(node_id) is not None)
        tasks = [asyncio.create_task(self._applications.watch()), asyncio.create_task(self._follow())]
        try:
            await self._run()
        finally:
            await cancel(tasks)

    async def _follow(self) -> None:
        """Follow nodes that are connected to other backends: receive their messages, and notice disconnections."""
        context = self._context
        while True:
            for node_id, before in self._elsewhere.items():
                context.forwarding.follow(node_id)
                self._elsewhere[node_id] = now = self._epoch_elsewhere(node_id)
                # the gateway tells of connections to this backend
                if now != before and context.connections.get(node_id) is None:
                    self.state.set_connected(node_id, connected=now is not None)
            await asyncio.sleep(_FOLLOW_S)

    def _epoch_elsewhere(self, node_id: int) -> int | None:
        """Return the epoch of a node's connection to another backend that can be reached."""
        peer = self._context.connections.reach(node_id)
        return None if peer is None or peer is self._context.connections.get(node_id) else peer.epoch

    def _lose_elsewhere(self) -> None:
        """Note that nodes of other backends are disconnected, until they can be reached again."""
        for node_id in self.state.participants:
            if self._context.connections.get(node_id) is None:
                self._elsewhere[node_id] = None
                self.state.set_connected(node_id, connected=False)

    async def _run(self) -> None:
        errors = 0
        lost_since: float | None = None
        while True:
            self.state.changed.clear()
            try:
                facts = await self._facts()
                if facts is None:
                    return
                if facts.ending_state is None and (reason := self._failure_reason(errors, lost_since)) is not None:
                    await self._actions.stop_measuring(ExperimentState.FAILED, reason)
                elif errors >= 2 * _MAX_ERRORS:
                    note = "The settings could not be read, so it is unknown whether all are restored."
                    await self._actions.finish(None, note)
                else:
                    step = next_step.next_step(facts)
                    await self._carry_out(step, facts)
                    if not isinstance(step, AwaitMessage):  # which says nothing about whether a node can be reached
                        errors, lost_since = 0, None
            except DeposedError:
                return  # the next leader resumes the experiment
            except (UndeliveredError, UnansweredError) as lost:
                log.warning(
                    "Experiment %d: the backend of a node did not answer (%r); retrying.",
                    self._definition.experiment_id,
                    lost,
                )
                self._lose_elsewhere()
                lost_since = time.monotonic() if lost_since is None else lost_since
                if time.monotonic() - lost_since >= self._timeouts.away_s:
                    errors += 1
                await asyncio.sleep(_RETRY_S)
            except Exception as error:
                lost_since = None
                if not is_database_unavailable(error):
                    errors += 1
                    log.exception("Experiment %d: a step failed; retrying.", self._definition.experiment_id)
                await asyncio.sleep(_RETRY_S)

    def _failure_reason(self, errors: int, lost_since: float | None) -> str | None:
        if errors >= _MAX_ERRORS:
            if lost_since is not None:
                return f"The backend of a node did not answer this one for {time.monotonic() - lost_since:.0f} s."
            return "The backend failed with an unexpected error; see its log."
        if self._definition.spec.peer_node_id is not None and len(self.state.participants) == 1:
            return "The node that generated the load was deleted."
        return None

    async def _facts(self) -> Facts | None:
        """Return the facts, None when the experiment does not run any more."""
        state, definition = self.state, self._definition
        run = state.active_run
        async with self._context.database.session() as session:
            row = await repository.find_experiment(session, definition.experiment_id)
            if row is None or row.state != ExperimentState.RUNNING:
                return None
            attempts = await repository.list_attempts(session, definition.experiment_id)
            open_rows = await repository.open_changes(session, definition.experiment_id)
            open_changes = [_status_of(each) for each in open_rows]
            change_id = None if run is None else run.change_id
            change = None if change_id is None else await changes.find_change(session, change_id)
            plan = await self._plan.after(session, attempts)
            stopped = await stopped_nodes(session, list(state.participants))
        return Facts(
            spec=definition.spec,
            plan=plan,
            attempts=attempts,
            ending_state=row.ending_state,
            stopped=bool(stopped),
            settings_before=row.settings_before,
            open_changes=open_changes,
            participants=list(state.participants.values()),
            now_s=time.monotonic(),
            timeouts=self._timeouts,
            phase_started_s=state.phase_started_s,
            run_active=run is not None,
            change=None if change is None else _status_of(change),
            leased=state.leased,
            failure=None if run is None else run.failure,
            violation=None if run is None else run.violation,
            paused_at_s=state.paused_at_s,
            policies_paused=state.policies_paused,
            end_sent=state.end_sent,
            settings=state.settings,
            netdev_settings_before=state.netdev_settings_before,
            elapsed_s=0.0 if row.started_at is None else (datetime.now(UTC) - row.started_at).total_seconds(),
        )

    async def _carry_out(self, step: Step, facts: Facts) -> None:  # noqa: PLR0912 - one case a step
        actions = self._actions
        match step:
            case AwaitMessage(activity, until_s):
                await actions.await_message(activity, until_s)
            case PausePolicies():
                await actions.pause_policies()
            case RecordSettings():
                await actions.record_settings()
            case ReadSettings():
                await actions.read_settings(facts)
            case Prepare(index):
                actions.prepare(index)
            case ApplySettings(planned):
                attempt = sum(each.number == planned.number for each in facts.attempts)
                await actions.apply_settings(planned, attempt, facts)
            case StartRun(planned, index):
                await actions.start_run(planned, index, facts)
            case RecordRun(planned, attempt, measured, discarded):
                await actions.record_run(planned, attempt, measured, discarded)
            case AbandonRun(planned, attempt, reason, violated):
                await actions.abandon_run(planned, attempt, reason, violated=violated)
            case EndPolicyLease():
                await actions.end_policy_lease()
            case RollBackChange(change_id):
                await actions.roll_back(change_id)
            case EndLoad():
                actions.end_load()
            case StopMeasuring(state, sentence):
                await actions.stop_measuring(state, sentence)
            case Finish(after, note):
                await actions.finish(after, note)


def _status_of(row: ChangeRow) -> ChangeStatus:
    sentence = row.steps[-1].sentence if row.steps else row.sentence
    ended_by = None if row.ended_by is None else EndedBy(row.ended_by)
    return ChangeStatus(row.id, ChangeState(row.state), ended_by, sentence)
