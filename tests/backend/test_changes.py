"""Changes with a real database and an agent that lives by the core's own state machine."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest
import pytest_asyncio
from sqlalchemy import select, update
from tests.support.polling import poll_async

from coresteer.audit.tables import AuditRow
from coresteer.auth.dependencies import Identity
from coresteer.auth.schemas import Role
from coresteer.bus import Bus
from coresteer.changes import preview, reports, repository, requests, service
from coresteer.changes.context import ChangeContext
from coresteer.changes.events import ChangeEvent
from coresteer.changes.observation import Observation
from coresteer.changes.records import new_change_row
from coresteer.changes.schemas import (
    Change,
    ChangeFilter,
    ChangePage,
    ChangeRequest,
    DesiredValueIn,
    GuardrailIn,
    Origin,
    PlanIn,
    PreviewRequest,
    PreviewResponse,
)
from coresteer.changes.tables import ChangeRow
from coresteer.changes.unanswered import UnansweredChanges
from coresteer.db import Database
from coresteer.errors import AgentTimeout, Conflict, Invalid, NodeDisconnected, NotFound
from coresteer.nodes.tables import NodeRow
from coresteer.presence.connections import Connections
from coresteer_agent.simulate.cache import SimulationCache
from coresteer_agent.simulate.changes import SimulatedChanges
from coresteer_agent.simulate.machine import make_machine
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy
from coresteer_core.protocol import Apply, ChangeAck, Confirm, Extend, Rollback, ToAgent

OPERATOR = Identity("olga", Role.OPERATOR, "session", "t")
VIEWER = Identity("vera", Role.VIEWER, "session", "t")


@dataclass
class World:
    """A node, its agent and the backend's half. now: the agent's monotonic clock."""

    database: Database
    node_id: int
    node: SimulatedNode
    changes: SimulatedChanges
    connections: Connections = field(default_factory=Connections)
    bus: Bus = field(default_factory=Bus)
    now: float = 0.0
    deaf: bool = False
    got: list[ToAgent] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    stream: str = "s"
    epoch: int = 1
    host: str = "127.0.0.1"
    obeys_stops: bool = True
    sends_columns: bool = False

    @property
    def context(self) -> ChangeContext:
        return ChangeContext(self.database, self.connections, self.bus)

    def post(self, message: ToAgent) -> None:
        self.got.append(message)
        if self.deaf:
            return
        assert isinstance(message, Apply | Confirm | Rollback | Extend | ChangeAck)
        self.changes.handle(message)
        self.tasks.add(asyncio.create_task(self.tell(self.changes.drain_messages())))

    def close(self, code: int, reason: str) -> None:
        self.connections.unregister(self.node_id, self)

    async def tell(self, said: list[ChangeMessage]) -> None:
        for message in said:
            await reports.record_report(self.context, self.node_id, message)

    async def settle(self) -> None:
        while waiting := [task for task in self.tasks if not task.done()]:
            await asyncio.gather(*waiting)

    async def wait(self, seconds: float) -> None:
        """The agent's time goes on."""
        self.now += seconds
        self.changes.advance(self.node.sample(self.now))
        await self.tell(self.changes.drain_messages())
        await self.settle()

    @property
    def movable(self) -> int:
        return next(irq.irq for irq in self.node.inventory.irqs if irq.movable and irq.queues)

    def requested(self, irq: int) -> str | None:
        found = self.node.inventory.irq(irq)
        return found.requested if found else None

    async def preview(self, *desired: tuple[str, str], identity: Identity = OPERATOR) -> PreviewResponse:
        request = PreviewRequest(desired=[DesiredValueIn(key=key, value=value) for key, value in desired])
        async with self.database.session() as session:
            return await preview.preview(
                session,
                self.node_id,
                request,
                identity=identity,
                connected=self.connections.is_connected(self.node_id),
                rates=[self.node.sample(float(second)) for second in range(20)],
            )

    async def plan(self, value: str = "5") -> Plan:
        return (await self.preview((f"irq/{self.movable}/affinity", value))).plan

    async def apply(self, plan: Plan, *, guardrails: list[GuardrailIn] | None = None) -> Change:
        sent = PlanIn.model_validate(msgspec.to_builtins(plan))
        request = ChangeRequest(plan=sent, confirm_timeout_s=60, guardrails=guardrails or [], reason="a try")
        change = await requests.apply(self.context, node_id=self.node_id, request=request, identity=OPERATOR)
        await self.settle()
        return change

    async def applied(self) -> Change:
        """Return an applied, unconfirmed change."""
        change = await self.get((await self.apply(await self.plan())).id)
        assert change.state is ChangeState.UNCONFIRMED
        return change

    async def get(self, change_id: str) -> Change:
        return await service.get_change(self.database, UUID(change_id))

    async def confirm(self, change: Change) -> Change:
        return await requests.confirm(self.context, change_id=UUID(change.id), identity=OPERATOR)

    async def roll_back(self, change: Change) -> Change:
        return await requests.roll_back(self.context, change_id=UUID(change.id), identity=OPERATOR)

    async def page(self, **filters: object) -> ChangePage:
        chosen = ChangeFilter(**{"node_id": self.node_id, **filters})  # type: ignore[arg-type] # a test's shorthand
        async with self.database.session() as session:
            return await service.list_changes(session, chosen)


@pytest_asyncio.fixture
async def world(database: Database) -> AsyncIterator[World]:
    name = f"node-{uuid4().hex[:8]}"
    machine = make_machine(cpus=8, irqs=30, kind=1, seed=0)
    node = SimulatedNode(name=name, key="", index=1, seed=0, machine=machine, cache=SimulationCache(1.0), stream="s")
    row = NodeRow(
        name=name,
        simulated=True,
        hello=msgspec.to_builtins(node.hello()),
        topology=msgspec.to_builtins(machine.topology),
        inventory=msgspec.to_builtins(machine.inventory),
    )
    async with database.session() as session:
        session.add(row)
    moments: list[World] = []  # the world, once it exists
    changes = SimulatedChanges(node, lambda: moments[0].now)
    world = World(database, row.id, node, changes)
    moments.append(world)
    world.connections.register(row.id, world)
    yield world
    await world.settle()


async def test_a_preview_says_what_becomes_of_the_cpus_and_that_it_can_be_applied(world: World) -> None:
    irq = world.movable
    answer = await world.preview((f"irq/{irq}/affinity", "7"))
    assert answer.plan.actions[0].reason == "An operator requested it."  # names of users are not stored in sentences
    assert [(action.key, action.becomes) for action in answer.plan.actions] == [(f"irq/{irq}/affinity", "7")]
    assert answer.commands == [f"echo 7 > /proc/irq/{irq}/smp_affinity_list"]
    assert any(sentence.startswith("CPU 7 ") for sentence in answer.expected)
    assert answer.can_apply
    assert answer.blocked_because is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("3-1", "runs backwards"),
        ("0-9999", "beyond the largest"),
        ("", "at least one CPU"),
        ("a", "not a CPU"),
        ("99", "not online"),
    ],
)
async def test_a_bad_cpu_list_is_refused_in_the_preview_with_its_key(world: World, value: str, says: str) -> None:
    key = f"irq/{world.movable}/affinity"
    answer = await world.preview((key, value))
    assert [refusal.key for refusal in answer.refused] == [key]
    assert says in answer.refused[0].sentence
    assert not answer.can_apply
    assert says in (answer.blocked_because or "")


async def test_a_preview_says_why_it_cannot_be_applied(world: World) -> None:
    key = f"irq/{world.movable}/affinity"
    assert "role operator" in ((await world.preview((key, "7"), identity=VIEWER)).blocked_because or "")
    same = world.requested(world.movable) or ""
    assert "nothing to do" in ((await world.preview((key, same))).blocked_because or "")
    await world.applied()
    assert "open change" in ((await world.preview((key, "7"))).blocked_because or "")
    world.close(1000, "")
    assert "disconnected" in ((await world.preview((key, "7"))).blocked_because or "")


async def test_an_observing_agents_own_reason_is_given(world: World) -> None:
    hello = msgspec.structs.replace(world.node.hello(), mode="observe", observe_reason="It does not run as root.")
    async with world.database.session() as session:
        values = {"hello": msgspec.to_builtins(hello)}
        await session.execute(update(NodeRow).where(NodeRow.id == world.node_id).values(values))
    answer = await world.preview((f"irq/{world.movable}/affinity", "7"))
    assert "It does not run as root." in (answer.blocked_because or "")


async def test_an_applied_change_has_a_deadline_and_can_be_confirmed(world: World) -> None:
    plan = await world.plan("5")
    before = datetime.now(UTC)
    first = await world.apply(plan)
    assert first.state is ChangeState.APPLYING
    change = await world.get(first.id)
    assert change.state is ChangeState.UNCONFIRMED
    assert change.deadline_at is not None
    assert before + timedelta(seconds=60) <= change.deadline_at <= datetime.now(UTC) + timedelta(seconds=60)
    assert [result.outcome for result in change.results] == ["applied"]
    assert world.requested(world.movable) == "5"

    confirmed = await world.confirm(change)
    assert confirmed.state is ChangeState.CONFIRMED
    assert confirmed.remaining_s is None
    assert confirmed.ended_at is not None
    await world.settle()
    assert world.got[-1] == ChangeAck(change.id, ChangeState.CONFIRMED)
    await world.wait(1000)
    assert world.requested(world.movable) == "5"


async def test_an_unconfirmed_change_is_shown_as_rolled_back_by_timeout(world: World) -> None:
    change = await world.applied()
    was = change.plan.actions[0].was
    await world.wait(61)
    ended = await world.get(change.id)
    assert (ended.state, ended.ended_by) == (ChangeState.ROLLED_BACK, EndedBy.TIMEOUT)
    assert world.requested(world.movable) == was
    with pytest.raises(Conflict, match="already rolled back"):
        await world.confirm(change)


async def test_a_tripped_guardrail_is_shown_as_the_cause(world: World) -> None:
    change = await world.apply(await world.plan(), guardrails=[GuardrailIn(metric="busiest_cpu_percent", max=0)])
    await world.wait(1)
    await world.wait(1)
    ended = await world.get(change.id)
    assert (ended.state, ended.ended_by) == (ChangeState.ROLLED_BACK, EndedBy.GUARDRAIL)


async def test_extend_moves_the_deadline(world: World) -> None:
    change = await world.applied()
    extended = await requests.extend(world.context, change_id=UUID(change.id), seconds=200, identity=OPERATOR)
    assert change.deadline_at is not None
    assert extended.deadline_at is not None
    assert extended.deadline_at > change.deadline_at + timedelta(seconds=190)


async def test_a_change_that_was_not_confirmed_in_its_extended_time_keeps_that_deadline(world: World) -> None:
    change = await world.applied()
    extended = await requests.extend(world.context, change_id=UUID(change.id), seconds=200, identity=OPERATOR)
    await world.wait(600)
    ended = await world.get(change.id)
    assert (ended.ended_by, ended.remaining_s) == (EndedBy.TIMEOUT, None)
    assert ended.deadline_at == extended.deadline_at


async def test_an_observed_change_is_extended_to_the_maximum_again(world: World) -> None:
    change = await world.applied()
    observation = msgspec.to_builtins(Observation(120.0, 60.0, False, 0, "", []))
    async with world.database.session() as session:
        await session.execute(update(ChangeRow).where(ChangeRow.id == UUID(change.id)).values(observation=observation))
    for _ in range(2):
        extended = await requests.extend(world.context, change_id=UUID(change.id), seconds=600, identity=OPERATOR)
        assert extended.observation is not None
        assert extended.state is ChangeState.UNCONFIRMED


async def test_a_confirmed_change_can_be_rolled_back_but_not_twice(world: World) -> None:
    change = await world.applied()
    await world.confirm(change)
    back = await world.roll_back(change)
    assert (back.state, back.ended_by) == (ChangeState.ROLLED_BACK, EndedBy.USER)
    assert world.requested(world.movable) == change.plan.actions[0].was
    with pytest.raises(Conflict, match="already rolled back"):
        await world.roll_back(change)


async def test_a_confirmed_change_under_a_later_one_stays_with_the_reason(world: World) -> None:
    first = await world.applied()
    await world.confirm(first)
    await tell_inventory(world)
    second = await world.apply(await world.plan("6"))
    with pytest.raises(Conflict, match=second.id):
        await world.roll_back(first)
    assert (await world.get(first.id)).state is ChangeState.CONFIRMED


async def tell_inventory(world: World) -> None:
    """As the agent does after each change."""
    async with world.database.session() as session:
        values = {"inventory": msgspec.to_builtins(world.node.inventory)}
        await session.execute(update(NodeRow).where(NodeRow.id == world.node_id).values(values))


async def test_confirm_is_not_optimistic(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_REPORT_TIMEOUT_S", 0.05)
    change = await world.applied()
    world.deaf = True
    with pytest.raises(AgentTimeout, match="not known yet"):
        await world.confirm(change)
    assert (await world.get(change.id)).state is ChangeState.UNCONFIRMED


async def test_a_node_that_goes_away_before_it_got_the_change_fails_it(world: World) -> None:
    plan = await world.plan()

    class Leaving(Connections):
        def is_connected(self, node_id: int) -> bool:
            return True

    world.connections = Leaving()
    with pytest.raises(Conflict, match="nothing was written"):
        await world.apply(plan)
    (change,) = (await world.page()).changes
    assert (change.state, change.ended_by) == (ChangeState.FAILED, EndedBy.ERROR)
    assert world.got == []


async def test_a_setting_that_changed_since_the_preview_refuses_the_whole_plan(world: World) -> None:
    plan = await world.plan("5")
    world.node.set_irq_affinity(world.movable, "3")
    await tell_inventory(world)
    with pytest.raises(Conflict, match=r"is 3 now.*preview it again"):
        await world.apply(plan)
    assert (await world.page()).changes == []


async def test_two_changes_of_one_setting_do_not_overlap(world: World) -> None:
    plan = await world.plan()
    both = await asyncio.gather(world.apply(plan), world.apply(plan), return_exceptions=True)
    assert {type(one) for one in both} == {Change, Conflict}


def action(key: str = "irq/30/affinity", was: str = "0", becomes: str = "1", reason: str = "") -> Action:
    return Action(key, was, becomes, reason)


@pytest.mark.parametrize(
    ("actions", "named", "says"),
    [
        ([action(key="irq/../../etc/passwd")], "plan.actions[0].key", "not a setting"),
        ([action(), action()], "plan.actions[1].key", "twice"),
        ([action(becomes="3-1")], "plan.actions[0].becomes", "runs backwards"),
        ([action(becomes="0-9999")], "plan.actions[0].becomes", "beyond the largest"),
        ([action(becomes="")], "plan.actions[0].becomes", "at least one CPU"),
        ([action(was="a")], "plan.actions[0].was", "irq/30/affinity"),
        ([action(becomes="1,0")], "plan.actions[0].becomes", "0-1"),
    ],
)
async def test_a_forged_plan_is_refused_with_its_field(
    world: World, actions: list[Action], named: str, says: str
) -> None:
    with pytest.raises(Invalid, match=says) as refused:
        await world.apply(Plan(actions))
    assert refused.value.field == named
    assert world.got == []


async def test_a_plan_against_the_guard_is_refused_before_it_is_sent(world: World) -> None:
    key = f"irq/{world.movable}/affinity"
    with pytest.raises(Conflict, match=f"{key}: CPU 99 is not online"):
        await world.apply(Plan([action(key, world.requested(world.movable) or "", "99")]))
    assert world.got == []


async def test_a_report_that_comes_twice_or_late_changes_nothing(world: World) -> None:
    change = await world.applied()
    await world.confirm(change)
    kept = await world.get(change.id)
    for state in (ChangeState.APPLYING, ChangeState.UNCONFIRMED, ChangeState.CONFIRMED):
        await world.tell([ChangeMessage(change.id, state, kept.steps[-1].sentence, [], remaining_s=30.0)])
    assert await world.get(change.id) == kept


@pytest.mark.parametrize("change_id", ["", "x", "00000000-0000-4000-8000-000000000000"])
async def test_a_report_about_an_unknown_change_is_answered_and_left_aside(world: World, change_id: str) -> None:
    await world.tell([ChangeMessage(change_id, ChangeState.CONFIRMED, "Kept.", [])])
    assert (await world.page()).changes == []


async def test_another_nodes_agent_cannot_report_a_change(world: World) -> None:
    change = await world.applied()
    message = ChangeMessage(change.id, ChangeState.CONFIRMED, "Kept.", [])
    await reports.record_report(world.context, world.node_id + 1000, message)
    assert (await world.get(change.id)).state is ChangeState.UNCONFIRMED


async def test_a_change_whose_agent_did_not_answer_is_doubtful_until_it_reconnects(world: World) -> None:
    world.deaf = True
    change = await world.apply(await world.plan())
    async with world.database.session() as session:
        long_ago = datetime.now(UTC) - timedelta(minutes=1)
        await session.execute(update(ChangeRow).where(ChangeRow.id == UUID(change.id)).values(created_at=long_ago))
    doubtful = await world.get(change.id)
    assert doubtful.state is ChangeState.APPLYING
    assert "not known" in doubtful.steps[-1].sentence

    world.deaf = False
    for question in (await reports.state_queries(world.database, [world.node_id]))[world.node_id]:
        await world.connections.send(world.node_id, question)
    await world.settle()
    settled = await world.get(change.id)
    assert settled.state is ChangeState.FAILED
    assert "never arrived" in settled.steps[-1].sentence


async def test_an_agent_is_asked_about_a_change_that_two_checks_have_found_applying(world: World) -> None:
    unanswered = UnansweredChanges(world.database, world.connections)
    world.deaf = True
    change = await world.apply(await world.plan())
    world.got.clear()
    await unanswered.ask()
    assert world.got == []
    world.deaf = False
    await unanswered.ask()
    await world.settle()
    assert (await world.get(change.id)).state is ChangeState.FAILED
    world.got.clear()
    await unanswered.ask()
    await unanswered.ask()
    assert world.got == []


async def test_an_agent_with_many_open_changes_is_asked_about_some_at_a_time(world: World) -> None:
    world.deaf = True
    async with world.database.session() as session:
        node = await session.get_one(NodeRow, world.node_id)
        for _ in range(100):
            row = new_change_row(
                node, uuid4(), Plan([]), "", created_by="policy", reason="", confirm_timeout_s=10, guardrails=[]
            )
            session.add(row)
    assert len((await reports.state_queries(world.database, [world.node_id]))[world.node_id]) == 64
    unanswered = UnansweredChanges(world.database, world.connections)
    asked = []
    for _ in range(5):
        world.got.clear()
        await unanswered.ask()
        asked.append(len(world.got))
    assert asked == [0, 32, 32, 32, 4]


async def test_what_is_observed_of_a_change_meanwhile_is_not_the_answer_to_its_rollback(world: World) -> None:
    change = await world.applied()
    await world.confirm(change)
    confirmed = await world.get(change.id)
    world.deaf = True
    rolling_back = asyncio.create_task(world.roll_back(confirmed))
    await poll_async(lambda: Rollback(change.id) in world.got)
    world.bus.publish(ChangeEvent(confirmed.model_copy(update={"observation": object()})))
    world.changes.handle(Rollback(change.id))
    await world.tell(world.changes.drain_messages())
    assert (await rolling_back).state is ChangeState.ROLLED_BACK


async def test_asking_how_an_open_change_stands_does_not_move_its_deadline(world: World) -> None:
    change = await world.applied()
    world.now += 20
    for question in (await reports.state_queries(world.database, [world.node_id]))[world.node_id]:
        await world.connections.send(world.node_id, question)
    await world.settle()
    asked = await world.get(change.id)
    assert asked.state is ChangeState.UNCONFIRMED
    assert asked.remaining_s is not None
    assert asked.remaining_s <= 40


async def test_every_step_is_in_the_audit_log_with_who_made_it(world: World) -> None:
    change = await world.applied()
    await world.confirm(change)
    await world.roll_back(change)
    async with world.database.session() as session:
        query = select(AuditRow).where(AuditRow.node_id == world.node_id).order_by(AuditRow.id)
        found = [(row.actor, row.action, row.result) for row in await session.scalars(query)]
    assert found == [
        ("olga", "change.apply", "requested"),
        ("agent", "change.applying", "ok"),
        ("agent", "change.unconfirmed", "ok"),
        ("olga", "change.confirm", "requested"),
        ("agent", "change.confirmed", "ok"),
        ("olga", "change.roll_back", "requested"),
        ("agent", "change.rolled_back", "ok"),
    ]


async def test_reports_without_end_add_a_bounded_number_of_short_steps_and_one_audit_entry(world: World) -> None:
    change = await world.applied()
    for number in range(40):
        sentence = f"{number} {'x' * 10_000}"
        await world.tell([ChangeMessage(change.id, ChangeState.UNCONFIRMED, sentence, [], remaining_s=30.0)])
    told = await world.get(change.id)
    assert len(told.steps) == 32
    assert told.steps[-1].sentence.startswith("39 x")
    assert max(len(step.sentence) for step in told.steps) == 2000
    assert (await world.confirm(change)).state is ChangeState.CONFIRMED
    async with world.database.session() as session:
        query = select(AuditRow).where(AuditRow.node_id == world.node_id).order_by(AuditRow.id)
        found = [row.action for row in await session.scalars(query)]
    agents = ["change.applying", "change.unconfirmed", "change.confirm", "change.confirmed"]
    assert found == ["change.apply", *agents]


@pytest.mark.parametrize("state", [ChangeState.CONFIRMED, ChangeState.FAILED])
async def test_a_long_sentence_of_an_agent_is_cut_in_the_audit_log(world: World, state: ChangeState) -> None:
    change = await world.applied()
    await world.tell([ChangeMessage(change.id, state, "x" * 1000, [])])
    assert (await last_audited(world))[2] == "x" * 499 + "…"
    assert (await world.get(change.id)).steps[-1].sentence == "x" * 1000


async def last_audited(world: World) -> tuple[str, str, str]:
    async with world.database.session() as session:
        query = select(AuditRow).where(AuditRow.node_id == world.node_id).order_by(AuditRow.id.desc()).limit(1)
        row = (await session.scalars(query)).one()
        return row.action, row.result, row.detail["sentence"]


async def test_refusals_and_missing_answers_are_recorded_with_their_sentence(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_REPORT_TIMEOUT_S", 0.05)
    plan = await world.plan()
    change = await world.apply(plan)
    with pytest.raises(Conflict) as again:
        await world.apply(plan)
    assert await last_audited(world) == ("change.apply", "refused", again.value.detail)
    world.deaf = True
    with pytest.raises(AgentTimeout) as silent:
        await world.confirm(change)
    assert await last_audited(world) == ("change.confirm", "failed", silent.value.detail)
    world.close(1000, "")
    with pytest.raises(NodeDisconnected) as away:
        await world.roll_back(change)
    assert await last_audited(world) == ("change.roll_back", "failed", away.value.detail)


async def test_changes_are_listed_newest_first_in_pages_and_by_time(world: World) -> None:
    made: list[str] = []
    for value in ("5", "6", "7"):
        await tell_inventory(world)
        change = await world.apply(await world.plan(value))
        await world.confirm(await world.get(change.id))
        made.insert(0, change.id)
    first = await world.page(limit=2)
    assert [change.id for change in first.changes] == made[:2]
    assert first.older == made[1]
    rest = await world.page(limit=2, older_than=UUID(first.older))
    assert [change.id for change in rest.changes] == made[2:]
    assert rest.older is None
    assert (await world.page(is_open=True)).changes == []
    for origin, ids in ((Origin.PEOPLE, made), (Origin.POLICIES, []), (Origin.EXPERIMENTS, [])):
        assert [change.id for change in (await world.page(origin=origin)).changes] == ids
    ended = (await world.get(made[0])).ended_at
    assert ended is not None
    assert (await world.page(from_time=ended + timedelta(seconds=1))).changes == []
    assert len((await world.page(from_time=ended, to_time=ended)).changes) == 1


async def test_open_changes_are_counted_by_node(world: World) -> None:
    await world.applied()
    async with world.database.session() as session:
        assert (await repository.count_open(session))[world.node_id] == 1


async def test_a_node_or_change_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        await service.get_change(world.database, uuid4())
    world.node_id += 1_000_000
    with pytest.raises(NotFound):
        await world.preview(("irq/1/affinity", "0"))
