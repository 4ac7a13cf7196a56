"""Carries out what next_step.next_step says, for one experiment, until it is over: a task of runner.py's."""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as with_changes
from importlib import metadata
from uuid import UUID, uuid4

import msgspec

from coresteer.auth.dependencies import Identity
from coresteer.auth.schemas import Role
from coresteer.bus import NodeEvent
from coresteer.changes import repository as changes
from coresteer.changes import requests as change_requests
from coresteer.changes.schemas import ChangeRequest, GuardrailIn, PlanIn
from coresteer.changes.tables import ChangeRow
from coresteer.changes.validation import view_of
from coresteer.errors import Problem, is_database_away
from coresteer.experiments import arms, next_step, repository, schedule, service
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.machine import machine_of
from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.session_state import AtHand, Heard
from coresteer.experiments.spec import Arm, PlannedRun, RecordedRun, Spec
from coresteer.experiments.steps import (
    Begin,
    Conclude,
    EndLease,
    Facts,
    Finish,
    Keep,
    Look,
    Lose,
    Open,
    Patience,
    Pause,
    RollBack,
    Standing,
    Start,
    Step,
    TakeBefore,
    TellEnd,
    Wait,
)
from coresteer.experiments.tables import ExperimentRow
from coresteer.nodes import service as nodes
from coresteer.nodes.tables import NodeRow
from coresteer.policies import repository as policies
from coresteer.policies.in_force import for_agent
from coresteer.policies.schemas import PolicyBody
from coresteer_core.changes.plan import preview
from coresteer_core.experiments.model import Role as Part
from coresteer_core.experiments.model import Run
from coresteer_core.node.view import View
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.protocol import (
    BeginExperiment,
    ChangeState,
    EndedBy,
    EndExperiment,
    RunExperiment,
    ToAgent,
)

log = logging.getLogger("coresteer.experiments")

_RETRY_S = 1.0
_MOST_ERRORS = 5
_LONGEST_CHANGE_S, _SHORTEST_CHANGE_S = 600.0, 30.0
SYSTEM = "coresteer"


@dataclass(frozen=True)
class Asked:
    """What was asked for, which never changes."""

    experiment_id: int
    spec: Spec
    seed: int
    created_by: str
    plan: list[PlannedRun]


class Drive:
    """One running experiment. heard: what its agents tell; patience may be shortened by tests."""

    def __init__(
        self, shared: ExperimentContext, row: ExperimentRow, names: dict[int, str], patience: Patience
    ) -> None:
        spec = msgspec.convert(row.spec, Spec)
        self.heard = Heard(row.id, names, spec.guardrails)
        self._asked = Asked(row.id, spec, row.seed, row.created_by, schedule.plan_runs(spec, row.seed))
        self._shared = shared
        self._patience = patience
        self._now = row.now
        for node_id in names:
            self.heard.connection(node_id, connected=shared.connections.is_connected(node_id))

    async def run(self) -> None:
        """Until it is over or its node was deleted."""
        errors = 0
        while True:
            self.heard.changed.clear()
            try:
                facts = await self._facts()
                if facts is None:
                    return
                if facts.ending is None and (why := self._why_not(errors)) is not None:
                    await self._conclude(ExperimentState.FAILED, why)
                elif errors >= 2 * _MOST_ERRORS:
                    await self._finish(None, "Whether all settings are as before could not be looked at.")
                else:
                    await self._do(next_step.next_step(facts), facts)
                    errors = 0
            except Exception as error:
                if not is_database_away(error):
                    errors += 1
                    log.exception("Experiment %d could not go on; trying again.", self._asked.experiment_id)
                await asyncio.sleep(_RETRY_S)

    def _why_not(self, errors: int) -> str | None:
        if errors >= _MOST_ERRORS:
            return "The backend met an error it did not expect; its log has the details."
        if self._asked.spec.peer_node_id is not None and len(self.heard.sides) == 1:
            return "The node that made the load was deleted."
        return None

    async def _facts(self) -> Facts | None:
        heard, asked = self.heard, self._asked
        run = heard.at_hand
        async with self._shared.database.session() as session:
            row = await repository.find(session, asked.experiment_id)
            if row is None or row.state != ExperimentState.RUNNING:
                return None
            attempts = await repository.attempts(session, asked.experiment_id)
            standing = [_standing(change) for change in await repository.open_changes(session, asked.experiment_id)]
            change_id = None if run is None else run.change_id
            change = None if change_id is None else await changes.get(session, change_id)
        return Facts(
            spec=asked.spec,
            plan=asked.plan,
            attempts=attempts,
            ending=row.ending,
            before=row.before,
            open_changes=standing,
            sides=list(heard.sides.values()),
            now_s=time.monotonic(),
            patience=self._patience,
            since_s=heard.since_s,
            at_hand=run is not None,
            change=None if change is None else _standing(change),
            leased=heard.leased,
            broken=None if run is None else run.broken,
            tripped=None if run is None else run.tripped,
            paused_at_s=heard.paused_at_s,
            pauses=heard.pauses,
            told_to_end=heard.told_to_end,
            settings=heard.settings,
            netdev_before=heard.netdev_before,
        )

    async def _do(self, step: Step, facts: Facts) -> None:  # noqa: PLR0912 - one case a step
        match step:
            case Wait():
                await self._wait(step)
            case Pause():
                await self._pause()
            case TakeBefore():
                await self._take_before()
            case Look():
                await self._look(facts)
            case Begin(side):
                self._begin(side, facts)
            case Open(planned):
                await self._open(planned, len([a for a in facts.attempts if a.number == planned.number]), facts)
            case Start(planned, side):
                self._start(planned, side, facts)
            case Keep(planned, attempt, measured, discarded):
                run = RecordedRun(
                    planned=planned,
                    attempt=attempt,
                    started_ms=measured.started_ms,
                    duration_s=measured.duration_s,
                    figures=measured.figures,
                    cpus={kind: _rounded(column) for kind, column in measured.cpus.items()},
                    load_before=measured.load_before,
                    steal_percent=measured.steal_percent,
                    discarded=discarded,
                )
                await self._keep(run)
            case Lose(planned, attempt, why):
                await self._lose(planned, attempt, why)
            case EndLease():
                self._shared.publisher.lease(self.heard.node_id, [])
                await self._shared.publisher.publish_now(self.heard.node_id)
                self.heard.leased, self.heard.settings = False, None
            case RollBack(change_id):
                await self._roll_back(change_id)
            case TellEnd():
                for node_id in self.heard.sides:
                    self._post(node_id, EndExperiment(self._asked.experiment_id))
                self.heard.told_to_end, self.heard.settings = True, None
                self.heard.since_s = time.monotonic()
            case Conclude(state, sentence):
                await self._conclude(state, sentence)
            case Finish(after, note):
                await self._finish(after, note)

    async def _wait(self, step: Wait) -> None:
        await self._say(step.now)
        try:
            async with asyncio.timeout(max(0.0, step.until_s - time.monotonic())):
                await self.heard.changed.wait()
        except TimeoutError:
            pass  # the next look at the facts sees that it is late

    async def _say(self, now: str) -> None:
        if now == self._now:
            return
        async with self._shared.database.session() as session:
            row = await repository.find(session, self._asked.experiment_id, lock=True)
            if row is not None:
                row.now = now
        self._now = now
        await service.tell(self._shared, self._asked.experiment_id)

    async def _pause(self) -> None:
        for node_id in self.heard.sides:
            await self._shared.publisher.publish_now(node_id)
        async with self._shared.database.session() as session:
            self.heard.pauses = any((await service.enforced_on(session, list(self.heard.sides))).values())
        self.heard.paused_at_s = time.monotonic()

    async def _take_before(self) -> None:
        async with self._shared.database.session() as session:
            node, *peers = [await nodes.find(session, node_id) for node_id in self.heard.sides]
            machine = machine_of(node) | {"backend_version": metadata.version("coresteer")}
            if peers:
                machine["peer"] = machine_of(peers[0])
            before = arms.watched(self._asked.spec, self._view(node))
            # its node comes with it, without what the agent told
            row = await repository.find(session, self._asked.experiment_id, lock=True)
            if row is not None:
                row.machine, row.before = machine, before

    async def _look(self, facts: Facts) -> None:
        keys = [*(facts.before or {}), *arms.netdev_keys(self._asked.spec, facts.netdev)]
        self.heard.settings = {}  # what is told meanwhile makes it None again
        found = arms.values(await self._seen(), keys)
        if self.heard.settings is not None:
            self.heard.settings = found
        if facts.netdev and not self.heard.netdev_before and not facts.told_to_end:
            wanted = arms.netdev_keys(self._asked.spec, facts.netdev)
            if all(key in found for key in wanted):
                self.heard.netdev_before = {key: found[key] for key in wanted}
                if wanted and len(self.heard.sides) > 1:  # by a card of the node, which is there afterwards too
                    await self._note_before(self.heard.netdev_before)

    async def _note_before(self, found: Mapping[str, str]) -> None:
        async with self._shared.database.session() as session:
            row = await repository.find(session, self._asked.experiment_id, lock=True)
            if row is not None:
                row.before = {**found, **(row.before or {})}

    async def _seen(self) -> View:
        """The node as it told last."""
        async with self._shared.database.session() as session:
            return self._view(await nodes.find(session, self.heard.node_id))

    def _view(self, node: NodeRow) -> View:
        return view_of(node, self._shared.registry.get(node.id).flows)

    def _begin(self, place: int, facts: Facts) -> None:
        node_id = list(self.heard.sides)[place]
        part = self._part(place)
        self._post(node_id, EndExperiment(self._asked.experiment_id))
        self._post(node_id, BeginExperiment(self._asked.experiment_id, self._asked.spec.workload, part))
        self.heard.sides[node_id] = with_changes(facts.sides[place], begun_at_s=time.monotonic(), word=None)

    def _part(self, place: int) -> Part:
        if len(self.heard.sides) == 1:
            return "alone"
        return "client" if place else "server"

    async def _open(self, planned: PlannedRun, attempt: int, facts: Facts) -> None:
        asked, spec = self._asked, self._asked.spec
        view = await self._seen()
        found = preview(view, arms.desired_of(spec, planned.arm, facts.netdev), reason=f"Experiment {spec.name}.")
        if found.refused:
            await self._lose(planned, attempt, found.sentence)
            return
        leased = await self._policies(planned.arm)
        run = AtHand(uuid4().hex, leased=frozenset(int(policy.policy_id) for policy in leased))
        if found.plan.actions:
            whole_s = arms.warmup_s(spec, planned.arm) + spec.measure_s + 2 * self._patience.run_s
            request = ChangeRequest(
                plan=PlanIn.model_validate(msgspec.to_builtins(found.plan)),
                confirm_timeout_s=min(_LONGEST_CHANGE_S, max(_SHORTEST_CHANGE_S, whole_s)),
                guardrails=[GuardrailIn.model_validate(msgspec.to_builtins(each)) for each in spec.guardrails],
                reason=f"Run {planned.number + 1} of experiment {asked.experiment_id}.",
            )
            try:
                change = await change_requests.apply(
                    self._shared.changes,
                    node_id=self.heard.node_id,
                    request=request,
                    identity=self._identity,
                    flows=self._shared.registry.get(self.heard.node_id).flows,
                    experiment_id=asked.experiment_id,
                )
            except Problem as problem:
                await self._lose(planned, attempt, problem.detail)
                return
            run.change_id = UUID(change.id)
        self.heard.enter(run)
        if leased:
            self._shared.publisher.lease(self.heard.node_id, leased)
            self.heard.leased = True
            await self._shared.publisher.publish_now(self.heard.node_id)

    @property
    def _identity(self) -> Identity:
        return Identity(self._asked.created_by, Role.OPERATOR, "token")

    async def _policies(self, arm: Arm) -> list[PolicyInForce]:
        found = []
        async with self._shared.database.session() as session:
            for level in arms.policies_of(self._asked.spec, arm):
                version = await policies.version(session, level.policy_id, level.version)
                if version is None:
                    raise Problem(f"Policy {level.policy_id} has no version {level.version}.")
                body = PolicyBody.model_validate(version.body)
                policy = for_agent(level.policy_id, level.version, body)
                guardrails = [*policy.guardrails, *self._asked.spec.guardrails]
                found.append(msgspec.structs.replace(policy, mode=level.mode, leased=True, guardrails=guardrails))
        return found

    def _start(self, planned: PlannedRun, place: int, facts: Facts) -> None:
        if (at_hand := self.heard.at_hand) is None:
            return
        spec, node_id, word = self._asked.spec, list(self.heard.sides)[place], facts.sides[0].word
        part = self._part(place)
        run = Run(
            run_id=at_hand.run_id,
            workload=arms.workload_of(spec, planned.arm),
            role=part,
            warmup_s=arms.warmup_s(spec, planned.arm),
            measure_s=spec.measure_s,
            irqbalance=part != "client" and arms.has_irqbalance(spec, planned.arm),
            address="" if word is None or part != "client" else word.address,
            netdevs=[facts.netdev] if facts.netdev and part != "client" else [],
        )
        self.heard.sides[node_id] = with_changes(self.heard.sides[node_id], run_at_s=time.monotonic())
        self._post(node_id, RunExperiment(self._asked.experiment_id, run))

    async def _lose(self, planned: PlannedRun, attempt: int, why: str) -> None:
        run = RecordedRun(
            planned=planned,
            attempt=attempt,
            started_ms=time.time_ns() // 1_000_000,
            duration_s=0.0,
            figures={},
            cpus={},
            load_before=None,
            steal_percent=None,
            discarded=why,
        )
        await self._keep(run)
        self.heard.begin_anew()

    async def _keep(self, run: RecordedRun) -> None:
        async with self._shared.database.session() as session:
            await repository.keep_run(session, self._asked.experiment_id, run)
        self.heard.enter(None)
        await service.tell(self._shared, self._asked.experiment_id)

    async def _roll_back(self, change_id: UUID) -> None:
        try:
            await change_requests.roll_back(self._shared.changes, change_id=change_id, identity=self._identity)
        except Problem as problem:  # it ended by itself meanwhile, or its agent is away: the facts tell
            log.info("Change %s of experiment %d: %s", change_id, self._asked.experiment_id, problem.detail)
        self.heard.settings = None

    async def _conclude(self, state: ExperimentState, sentence: str) -> None:
        async with self._shared.database.session() as session:
            row = await repository.find(session, self._asked.experiment_id, lock=True)
            if row is not None and row.ending is None:
                row.ending, row.sentence = state, sentence
        self.heard.enter(None)
        await service.tell(self._shared, self._asked.experiment_id)

    async def _finish(self, after: Mapping[str, str] | None, note: str) -> None:
        self._shared.publisher.lease(self.heard.node_id, [])
        async with self._shared.database.session() as session:
            row = await repository.find(session, self._asked.experiment_id, lock=True)
            if row is None or row.ending is None:
                return
            row.after = None if after is None else dict(after)
            service.end(row, ExperimentState(row.ending), f"{row.sentence} {note}".rstrip())
            service.audit(session, SYSTEM, "experiment.end", row)
        for node_id in self.heard.sides:
            self._shared.bus.publish(NodeEvent(node_id))  # its policies are told again
        if row.state == ExperimentState.DONE:
            await self._say_found(note)
        await service.tell(self._shared, self._asked.experiment_id)

    async def _say_found(self, note: str) -> None:
        """What was found, in the list; apart, because it is over already and its node is free."""
        async with self._shared.database.session() as session:
            found = await service.get(session, self._asked.experiment_id)
            row = await service.find(session, self._asked.experiment_id, lock=True)
            row.sentence = f"{found.findings[0]} {note}".rstrip()

    def _post(self, node_id: int, message: ToAgent) -> None:
        """To the agent; one that is away is told when it is back, as what it was asked for begins anew then."""
        if (peer := self._shared.connections.get(node_id)) is not None:
            peer.post(message)


def _rounded(percents: list[float | None]) -> list[float | None]:
    """Whoever looks at an experiment gets them all, and a tick of 10 ms is 0.1 % of 10 s."""
    return [None if percent is None else round(percent, 2) for percent in percents]


def _standing(row: ChangeRow) -> Standing:
    sentence = row.steps[-1].sentence if row.steps else row.sentence
    ended_by = None if row.ended_by is None else EndedBy(row.ended_by)
    return Standing(row.id, ChangeState(row.state), ended_by, sentence)
