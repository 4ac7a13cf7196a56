"""Experiments from start to end, with a real database and a scripted agent."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import psycopg
import pytest
import pytest_asyncio
from msgspec.structs import replace as with_fields
from sqlalchemy import select
from tests.backend.conftest import Backend, running_backend
from tests.backend.experiment_node import (
    QUICK,
    ExperimentNode,
    experiment_node,
    measured,
    never_completes,
    until_published,
)
from tests.backend.fake_agent import rates
from tests.support.polling import PATIENCE_S

from coresteer.audit.tables import AuditRow
from coresteer.experiments import service
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.events import ExperimentEvent, QueueEvent
from coresteer.experiments.run_loop import RunLoop
from coresteer.experiments.steps import Timeouts
from coresteer.experiments.tables import ExperimentRow
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy
from coresteer_core.experiments.model import RunState
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.protocol import (
    Apply,
    BeginExperiment,
    EndExperiment,
    ExperimentMessage,
    InventoryMessage,
    RatesMessage,
    Rollback,
    RunExperiment,
)


@pytest_asyncio.fixture
async def node(backend: Backend) -> AsyncIterator[ExperimentNode]:
    backend.app.state.runner.timeouts = QUICK
    async with experiment_node(backend) as node:
        yield node


async def open_experiment_changes(node: ExperimentNode) -> list[str]:
    answer = await node.operator.get(f"/api/v1/changes?node_id={node.id}&open=true")
    return [change["id"] for change in answer.json()["changes"]]


async def test_a_comparison_is_measured_to_its_end_and_restores_all_settings(node: ExperimentNode) -> None:
    before = node.affinity
    started = await node.start(node.spec())
    assert (started["runs_planned"], started["arms"]) == (24, ["as it is", "CPU 7"])
    done = await node.ended(started["id"])
    assert (done["state"], done["runs_done"], done["runs_discarded"]) == ("done", 24, 0), done["sentence"]
    assert node.affinity == before
    assert done["settings"] == {"before": {node.key: before}, "after": {node.key: before}}
    assert (done["remaining_s"], done["queue_position"], done["machine"]["cpus"]) == (None, None, 8)
    await node.until(lambda: isinstance(node.requests[-1], EndExperiment))
    (found,) = [one for one in done["analysis"]["comparisons"] if one["metric"] == "requests_per_s"]
    assert (found["baseline"]["value"], found["level"]["value"]) == (1000.0, 1100.0)
    assert await open_experiment_changes(node) == []
    await until_published(node.backend, started["id"], lambda published: published.sentence == done["findings"][0])


async def test_the_settings_of_an_arm_are_an_unconfirmed_change_that_cannot_be_confirmed(node: ExperimentNode) -> None:
    node.answer = lambda n, request: n.complete(request) if n.affinity != "7" else never_completes(n, request)
    started = await node.start(node.spec(guardrails=[{"metric": "dropped_per_s", "max": 5}]))
    await node.until(lambda: node.affinity == "7" and isinstance(node.requests[-1], RunExperiment))
    (change_id,) = await open_experiment_changes(node)
    change = (await node.operator.get(f"/api/v1/changes/{change_id}")).json()
    assert (change["experiment_id"], change["state"]) == (started["id"], "unconfirmed")
    assert change["created_by"] == f"experiment {started['id']}"
    assert change["guardrails"] == [{"metric": "dropped_per_s", "max": 5}]
    refused = await node.operator.post(f"/api/v1/changes/{change_id}/confirm")
    assert refused.status_code == 409
    await node.operator.post(f"/api/v1/experiments/{started['id']}/cancel")
    assert (await node.ended(started["id"]))["state"] == "cancelled"


async def test_a_disturbed_run_is_recorded_as_discarded_and_repeated(node: ExperimentNode) -> None:
    def disturbed_once(n: ExperimentNode, request: RunExperiment) -> list[ExperimentMessage]:
        return n.complete(request, disturbed=["CPU 3 went offline."]) if len(n.runs()) == 1 else n.complete(request)

    node.answer = disturbed_once
    done = await node.ended((await node.start(node.aa_spec()))["id"])
    assert (done["state"], done["runs_done"], done["runs_discarded"]) == ("done", 12, 1)
    second = [run for run in done["runs"] if run["planned"]["number"] == 1]
    assert [(run["attempt"], run["discarded"]) for run in second] == [(0, "CPU 3 went offline."), (1, None)]
    assert done["analysis"]["discarded"] == 1


async def test_a_run_that_fails_three_times_fails_the_experiment_with_the_reason(node: ExperimentNode) -> None:
    node.answer = lambda _, request: [
        ExperimentMessage(request.experiment_id, RunState.FAILED, request.run.run_id, "No iperf3 here.")
    ]
    failed = await node.ended((await node.start(node.aa_spec()))["id"])
    assert (failed["state"], failed["runs_discarded"]) == ("failed", 3)
    assert "No iperf3 here." in failed["sentence"]
    assert failed["runs"][0]["load_before"] is None
    begins = [each for each in node.requests if isinstance(each, BeginExperiment)]
    assert len(begins) == 3


async def test_a_failed_preparation_fails_the_experiment_with_the_agents_reason(node: ExperimentNode) -> None:
    node.prepare = lambda _, begin: [
        ExperimentMessage(begin.experiment_id, RunState.FAILED, sentence="No namespaces without CAP_SYS_ADMIN.")
    ]
    failed = await node.ended((await node.start(node.aa_spec()))["id"])
    assert failed["state"] == "failed"
    assert "CAP_SYS_ADMIN" in failed["sentence"]
    assert node.runs() == []


async def test_a_guardrail_that_rolls_back_a_runs_change_stops_the_experiment(node: ExperimentNode) -> None:
    before = node.affinity
    sentence = "The dropped packets per second was 90."

    def trips(n: ExperimentNode, request: RunExperiment) -> list[ExperimentMessage]:
        if n.affinity != "7":
            return n.complete(request)
        asyncio.get_running_loop().create_task(undo(n))
        return never_completes(n, request)

    async def undo(n: ExperimentNode) -> None:
        (change,) = [each for each in n.requests if isinstance(each, Apply)][-1:]
        n.changes.handle(Rollback(change.change_id))
        n.changes.drain_messages()
        await n.say(ChangeMessage(change.change_id, ChangeState.ROLLED_BACK, sentence, [], EndedBy.GUARDRAIL))
        await n.say(InventoryMessage(n.node.inventory))

    node.answer = trips
    stopped = await node.ended((await node.start(node.spec()))["id"])
    assert (stopped["state"], stopped["sentence"]) == ("stopped", sentence)
    assert stopped["settings"]["after"] == {node.key: before}


async def test_a_guardrail_holds_for_a_run_that_changes_nothing(node: ExperimentNode) -> None:
    node.answer = never_completes
    started = await node.start(node.aa_spec(guardrails=[{"metric": "dropped_per_s", "max": 5}]))
    await node.until(node.runs)
    for seq in (1, 2, 3):
        sample = rates(seq)
        (netdev,) = sample.netdevs or []
        await node.say(RatesMessage(with_fields(sample, duration_s=1.0, netdevs=[with_fields(netdev, rx_dropped=90)])))
    stopped = await node.ended(started["id"])
    assert stopped["state"] == "stopped"
    assert "dropped packets per second was 90" in stopped["sentence"]


async def test_a_cancelled_run_ends_at_once_and_its_settings_are_restored(node: ExperimentNode) -> None:
    before = node.affinity
    node.answer = lambda n, request: n.complete(request) if n.affinity != "7" else never_completes(n, request)
    started = await node.start(node.spec())
    await node.until(lambda: node.affinity == "7" and isinstance(node.requests[-1], RunExperiment))
    answer = await node.operator.post(f"/api/v1/experiments/{started['id']}/cancel")
    assert answer.status_code == 200
    assert answer.json()["sentence"] == "Cancelled."
    cancelled = await node.ended(started["id"])
    assert (cancelled["state"], cancelled["settings"]["after"]) == ("cancelled", {node.key: before})
    assert node.affinity == before
    assert (await node.operator.post(f"/api/v1/experiments/{started['id']}/cancel")).status_code == 409
    async with node.backend.database.session() as session:
        query = select(AuditRow).where(AuditRow.action.startswith("experiment.")).order_by(AuditRow.id.desc()).limit(3)
        entries = [(row.actor, row.action) for row in await session.scalars(query)]
    assert entries[::-1] == [
        ("operator", "experiment.start"),
        ("operator", "experiment.cancel"),
        ("coresteer", "experiment.end"),
    ]


async def test_a_reconnect_of_the_agent_costs_one_run(node: ExperimentNode) -> None:
    before = node.affinity
    node.answer = lambda n, request: n.complete(request) if n.affinity != "7" else never_completes(n, request)
    started = await node.start(node.spec())
    await node.until(lambda: node.affinity == "7" and isinstance(node.requests[-1], RunExperiment))
    await node.disconnect()
    node.answer = ExperimentNode.complete
    await node.connect()
    done = await node.ended(started["id"])
    assert (done["state"], done["runs_done"], done["runs_discarded"]) == ("done", 24, 1)
    assert "connection" in next(run["discarded"] for run in done["runs"] if run["discarded"])
    assert node.affinity == before


async def test_an_agent_that_stays_disconnected_fails_the_experiment(backend: Backend) -> None:
    backend.app.state.runner.timeouts = replace(QUICK, away_s=0.2)
    async with experiment_node(backend) as node:
        node.answer = never_completes
        started = await node.start(node.aa_spec())
        await node.until(node.runs)
        await node.disconnect()
        failed = await node.ended(started["id"])
        await node.connect()
    assert (failed["state"], failed["settings"]["after"]) == ("failed", None)
    assert f"{failed['node_name']} was disconnected" in failed["sentence"]
    assert "not verified" in failed["sentence"]


async def until_activity(node: ExperimentNode, experiment_id: int, pattern: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        with node.backend.app.state.bus.subscribe() as events:
            while not re.match(pattern, (await node.get(experiment_id))["activity"]):
                async for event in events:  # one event for each change of it
                    if isinstance(event, ExperimentEvent):
                        break


async def test_while_the_agent_is_disconnected_the_activity_says_so(node: ExperimentNode) -> None:
    node.answer = never_completes
    started = await node.start(node.aa_spec())
    await node.until(node.runs)
    await node.disconnect()
    await until_activity(node, started["id"], f"Waiting for {started['node_name']} to reconnect.")
    await node.operator.post(f"/api/v1/experiments/{started['id']}/cancel")
    await node.connect()
    assert (await node.ended(started["id"]))["state"] == "cancelled"


async def test_a_restarted_backend_resumes_with_the_first_run_that_is_not_counted(own_database_url: str) -> None:
    async with AsyncExitStack() as stack:
        async with running_backend(own_database_url) as first:
            first.app.state.runner.timeouts = QUICK
            node = await stack.enter_async_context(experiment_node(first))
            before = node.affinity
            node.answer = lambda n, request: n.complete(request) if n.affinity != "7" else never_completes(n, request)
            started = await node.start(node.spec())
            await node.until(lambda: node.affinity == "7" and isinstance(node.requests[-1], RunExperiment))
            so_far = (await node.get(started["id"]))["runs_done"]
        await node.disconnect()
        async with running_backend(own_database_url) as second:
            second.app.state.runner.timeouts = QUICK
            node.backend, node.agent.url, node.answer = second, second.url, ExperimentNode.complete
            node.operator = await second.client("operator")
            node.requests.clear()
            await node.connect()
            done = await node.ended(started["id"])
            await node.disconnect()
    first_requests = [type(each) for each in node.requests[:3]]
    assert first_requests == [Rollback, EndExperiment, BeginExperiment]
    assert (done["state"], done["runs_done"], done["runs_discarded"]) == ("done", 24, 0)
    assert len(node.runs()) == 24 - so_far
    assert node.affinity == before


async def test_a_short_outage_of_the_database_loses_no_result(
    backend: Backend, node: ExperimentNode, owner_url: str
) -> None:
    node.answer = lambda n, request: n.complete(request) if len(n.runs()) < 2 else never_completes(n, request)
    started = await node.start(node.aa_spec())
    await node.until(lambda: len(node.runs()) == 3)
    name = owner_url.rsplit("/", 1)[1].partition("?")[0]
    admin_url = owner_url.replace(f"/{name}?", "/postgres?")
    async with await psycopg.AsyncConnection.connect(admin_url, autocommit=True) as admin:
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        request = [each for each in node.requests if isinstance(each, RunExperiment)][-1]
        found = measured(request.run, 777.0)
        await node.say(ExperimentMessage(request.experiment_id, RunState.MEASURED, request.run.run_id, measured=found))
        node.answer = ExperimentNode.complete
        assert (await node.operator.get("/api/v1/health")).json()["database"] == "away"
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    done = await node.ended(started["id"])
    assert (done["state"], done["runs_done"], done["runs_discarded"]) == ("done", 12, 0)
    assert done["runs"][2]["figures"]["requests_per_s"] == 777.0


async def test_a_node_runs_one_experiment_at_a_time_and_queues_the_others(node: ExperimentNode) -> None:
    node.answer = never_completes
    first, second, third = [await node.start(node.aa_spec(name=name)) for name in ("first", "second", "third")]
    await node.until(node.runs)
    page = (await node.operator.get(f"/api/v1/experiments?node_id={node.id}")).json()
    assert [(one["name"], one["queue_position"], one["state"]) for one in page["experiments"]] == [
        ("third", 2, "queued"),
        ("second", 1, "queued"),
        ("first", 0, "running"),
    ]
    cancelled = (await node.operator.post(f"/api/v1/experiments/{second['id']}/cancel")).json()
    assert (cancelled["state"], cancelled["queue_position"]) == ("cancelled", None)
    node.answer = ExperimentNode.complete
    await node.operator.post(f"/api/v1/experiments/{first['id']}/cancel")
    assert (await node.ended(third["id"]))["state"] == "done"
    assert {each.experiment_id for each in node.requests if isinstance(each, BeginExperiment)} == {
        first["id"],
        third["id"],
    }


async def test_the_next_experiment_gets_its_agents_messages_even_while_the_last_one_is_still_published(
    node: ExperimentNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.answer = never_completes
    first, second = [await node.start(node.aa_spec(name=name)) for name in ("first", "second")]
    await node.until(node.runs)
    publish, loop = service.publish, node.backend.app.state.runner._loops[first["id"]]

    def second_begins() -> bool:
        return any(isinstance(each, BeginExperiment) and each.experiment_id == second["id"] for each in node.requests)

    async def late(context: ExperimentContext, experiment_id: int) -> None:
        await publish(context, experiment_id)
        if asyncio.current_task() is loop and (await node.get(first["id"]))["ended_at"] is not None:
            context.bus.publish(QueueEvent())
            await node.until(second_begins)

    monkeypatch.setattr(service, "publish", late)
    node.prepare = lambda *_: []
    await node.operator.post(f"/api/v1/experiments/{first['id']}/cancel")
    await loop
    node.answer = ExperimentNode.complete
    await node.say(ExperimentMessage(second["id"], RunState.READY, address="198.18.0.1:5201", netdev="eno1"))
    done = await node.ended(second["id"])
    assert (done["state"], done["runs_discarded"]) == ("done", 0), done["sentence"]


async def test_a_setting_changed_from_outside_fails_the_experiment_and_is_named(backend: Backend) -> None:
    backend.app.state.runner.timeouts = QUICK
    async with experiment_node(backend) as node:

        def moves(n: ExperimentNode, request: RunExperiment) -> list[ExperimentMessage]:
            if len(n.runs()) == 2:
                n.node.set_irq_affinity(n.irq, "5")
                asyncio.get_running_loop().create_task(n.say(InventoryMessage(n.node.inventory)))
            return n.complete(request)

        node.answer = moves
        before = node.affinity
        started = await node.start(node.spec())
        await until_activity(node, started["id"], r"Before run \d+: waiting until all settings are restored\.")
        loop: RunLoop = backend.app.state.runner._by_node[node.id]
        loop._timeouts = replace(QUICK, restored_s=0.0)  # as if that time had passed
        loop.state.changed.set()
        failed = await node.ended(started["id"])
        assert failed["state"] == "failed"
        assert f"{node.key} is 5 instead of {before}" in failed["sentence"]
        assert failed["settings"]["after"] == {node.key: "5"}


async def test_the_placeholder_of_the_loads_netdev_is_replaced_by_the_reported_one(node: ExperimentNode) -> None:
    levels = [{"name": f"{us} µs", "value": us, "settings": [desired_value]} for us in (3, 96)
              for desired_value in [{"key": "netdev/{netdev}/coalesce/rx-usecs", "value": str(us)}]]  # fmt: skip
    done = await node.ended((await node.start(node.spec(factors=[{"name": "rx-usecs", "levels": levels}])))["id"])
    assert done["state"] == "done", done["sentence"]
    plans = [each.plan for each in node.requests if isinstance(each, Apply)]
    assert {action.key for plan in plans for action in plan.actions} == {"netdev/eno1/coalesce/rx-usecs"}
    assert done["settings"] == {"before": {}, "after": {}}
    assert all(run.netdevs == ["eno1"] for run in node.runs())


async def test_enforced_policies_pause_and_a_policy_level_is_leased_for_its_runs(node: ExperimentNode) -> None:
    made = []
    for name in ("mine", "delegated"):
        body = {"name": f"{name} {node.id}", "spec": {"type": "irq-spread"}, "mode": "enforce"}
        body["selector"] = {"hostnames": [(await node.operator.get(f"/api/v1/nodes/{node.id}")).json()["name"]]}
        made.append((await node.operator.post("/api/v1/policies", body)).json())
    await node.operator.post(f"/api/v1/policies/{made[0]['id']}/enable")
    await node.until(lambda: [policy.mode for policy in node.policies] == [Mode.ENFORCE])
    policies_at_run: list[list[tuple[str, Mode, bool]]] = []

    def notes(n: ExperimentNode, request: RunExperiment) -> list[ExperimentMessage]:
        policies_at_run.append([(policy.policy_id, policy.mode, policy.leased) for policy in n.policies])
        return n.complete(request)

    node.answer = notes
    level = {"name": "policy", "policy": {"policy_id": made[1]["id"], "version": 1, "mode": "enforce"}}
    spec = node.spec(factors=[{"name": "policy", "levels": [{"name": "none"}, level]}], settle_s=5)
    warnings = (await node.operator.post("/api/v1/experiments/preview", {"spec": spec})).json()["warnings"]
    assert any(f"mine {node.id}" in sentence for sentence in warnings)
    done = await node.ended((await node.start(spec))["id"])
    assert done["state"] == "done", done["sentence"]
    mine, delegated = str(made[0]["id"]), str(made[1]["id"])
    paused = [(mine, Mode.RECOMMEND, True)]
    runs = dict.fromkeys([run["planned"]["arm"][0] for run in done["runs"]])
    assert set(runs) == {0, 1}
    for run, published in zip(done["runs"], policies_at_run, strict=True):
        assert published == ([*paused, (delegated, Mode.ENFORCE, True)] if run["planned"]["arm"] == [1] else paused)
    warmups = {
        run["planned"]["arm"][0]: request.warmup_s for run, request in zip(done["runs"], node.runs(), strict=True)
    }
    assert warmups == {0: 0.5, 1: 5.5}
    await node.until(lambda: [(p.policy_id, p.mode) for p in node.policies] == [(mine, Mode.ENFORCE)])


async def test_a_run_whose_policy_could_not_be_published_does_not_start(
    node: ExperimentNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"name": f"unpublished {node.id}", "spec": {"type": "irq-spread"}, "mode": "enforce"}
    made = (await node.operator.post("/api/v1/policies", body)).json()
    level = {"name": "policy", "policy": {"policy_id": made["id"], "version": 1, "mode": "enforce"}}
    publisher = node.backend.app.state.experiments.publisher
    lease, publish_now = publisher.lease, publisher.publish_now
    failing: list[bool] = []
    at_run: list[int] = []

    def leases(node_id: int, policies: list[PolicyInForce]) -> None:
        lease(node_id, policies)
        if policies and not failing:
            failing.append(True)

    async def fails_once(node_id: int) -> None:
        if failing == [True]:
            failing.append(False)
            raise psycopg.OperationalError("The connection was lost.")
        await publish_now(node_id)

    def notes(n: ExperimentNode, request: RunExperiment) -> list[ExperimentMessage]:
        at_run.append(len(n.policies))
        return n.complete(request)

    monkeypatch.setattr(publisher, "lease", leases)
    monkeypatch.setattr(publisher, "publish_now", fails_once)
    node.answer = notes
    spec = node.spec(factors=[{"name": "policy", "levels": [{"name": "none"}, level]}], settle_s=0)
    done = await node.ended((await node.start(spec))["id"])
    assert (done["state"], failing) == ("done", [True, False]), done["sentence"]
    assert at_run == [run["planned"]["arm"][0] for run in done["runs"]]


async def test_an_agent_that_connects_while_its_experiment_is_started_is_noticed(
    node: ExperimentNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Early(RunLoop):
        """Is made while no agent is connected."""

        def __init__(
            self, context: ExperimentContext, row: ExperimentRow, names: dict[int, str], timeouts: Timeouts
        ) -> None:
            with monkeypatch.context() as before:
                before.setattr(context.connections, "reach", lambda _: None)
                super().__init__(context, row, names, timeouts)

    monkeypatch.setattr("coresteer.experiments.runner.RunLoop", Early)
    node.backend.app.state.runner.timeouts = replace(QUICK, away_s=1.0)
    done = await node.ended((await node.start(node.aa_spec()))["id"])
    assert done["state"] == "done", done["sentence"]


async def test_a_lease_ends_with_the_connection_of_its_node(node: ExperimentNode) -> None:
    body = {"name": f"leased {node.id}", "spec": {"type": "irq-spread"}, "mode": "enforce"}
    made = (await node.operator.post("/api/v1/policies", body)).json()
    level = {"name": "policy", "policy": {"policy_id": made["id"], "version": 1, "mode": "enforce"}}

    def holds_where_leased(n: ExperimentNode, request: RunExperiment) -> list[ExperimentMessage]:
        return never_completes(n, request) if n.policies else n.complete(request)

    node.answer = holds_where_leased
    spec = node.spec(factors=[{"name": "policy", "levels": [{"name": "none"}, level]}], settle_s=0)
    started = await node.start(spec)
    await node.until(lambda: node.runs() and node.policies)
    await node.disconnect()
    seen = len(node.published)
    await node.connect()
    await node.until(lambda: len(node.published) > seen)
    assert node.published[seen] == []
    await node.operator.post(f"/api/v1/experiments/{started['id']}/cancel")
    await node.ended(started["id"])


async def test_a_peer_generates_the_load_and_measures_it(backend: Backend, node: ExperimentNode) -> None:
    async with experiment_node(backend) as peer:

        def as_client(n: ExperimentNode, request: RunExperiment) -> list[ExperimentMessage]:
            figures = {"requests_per_s": 5.0, "rtt_p99_us": 80.0, "cpu_busy_percent": 99.0}
            return n.complete(request, figures=figures)

        peer.answer = as_client
        started = await node.start(node.aa_spec(peer_node_id=peer.id))
        done = await node.ended(started["id"])
        assert done["state"] == "done", done["sentence"]
        assert done["runs"][0]["figures"] == {"requests_per_s": 5.0, "rtt_p99_us": 80.0, "cpu_busy_percent": 40.0}
        assert {(run.role, run.address) for run in node.runs()} == {("server", "198.18.0.1:5201")}
        assert {(run.role, run.address) for run in peer.runs()} == {("client", "198.18.0.1:5201")}
        assert [run.receipts for run in node.runs()] == [run.receipts for run in peer.runs()]
        assert len({run.receipts for run in node.runs()}) == len(done["runs"])
        assert done["machine"]["peer"]["name"] != done["machine"]["name"]


async def test_no_load_is_sent_to_an_address_that_is_not_the_servers_own(
    backend: Backend, node: ExperimentNode
) -> None:
    node.address = "203.0.113.9:5201"
    async with experiment_node(backend) as peer:
        started = await node.start(node.aa_spec(peer_node_id=peer.id))
        failed = await node.ended(started["id"])
        assert peer.runs() == []
    reasons = {run["discarded"] for run in failed["runs"]}
    assert [reason for reason in reasons if "states the address 203.0.113.9" in reason] == list(reasons), reasons


async def test_a_policy_of_parallel_jobs_on_two_nodes_is_leased_on_both(backend: Backend, node: ExperimentNode) -> None:
    body = {"name": f"jobs {node.id}", "spec": {"type": "coscheduling"}, "mode": "enforce"}
    made = (await node.operator.post("/api/v1/policies", body)).json()
    level = {"name": "PB+RO", "policy": {"policy_id": made["id"], "version": 1, "mode": "enforce"}}
    at_run: dict[int, list[list[Mode]]] = {}

    def notes(n: ExperimentNode, request: RunExperiment) -> list[ExperimentMessage]:
        at_run.setdefault(n.id, []).append([policy.mode for policy in n.policies if policy.leased])
        return n.complete(request)

    async with experiment_node(backend) as peer:
        node.answer = peer.answer = notes
        spec = node.spec(
            peer_node_id=peer.id,
            workload={"type": "bsp", "machines": 2},
            primary="cpu_busy_percent",
            factors=[{"name": "policy", "levels": [{"name": "none"}, level]}],
            settle_s=0,
        )
        previewed = (await node.operator.post("/api/v1/experiments/preview", {"spec": spec})).json()
        assert "in the mode enforce, on both nodes." in previewed["arms"][1]["sentence"]
        assert any("runs every other process of the jobs" in warning for warning in previewed["warnings"])
        assert re.search(r"\(bsp\) on \S+ and \S+, about", previewed["sentence"])
        done = await node.ended((await node.start(spec))["id"])
        assert done["state"] == "done", done["sentence"]
        arms = [[Mode.ENFORCE] if run["planned"]["arm"] == [1] else [] for run in done["runs"]]
        assert at_run == {node.id: arms, peer.id: arms}
        assert {run.role for run in peer.runs()} == {"client"}
        await peer.until(lambda: peer.policies == [])


async def test_settings_of_the_nic_by_which_a_peers_load_arrives_are_recorded_and_verified(
    backend: Backend, node: ExperimentNode
) -> None:
    key = "netdev/eno1/coalesce/rx-usecs"
    levels = [
        {"name": f"{us} µs", "settings": [{"key": key.replace("eno1", "{netdev}"), "value": str(us)}]} for us in (3, 96)
    ]
    async with experiment_node(backend) as peer:
        spec = node.spec(peer_node_id=peer.id, factors=[{"name": "rx-usecs", "levels": levels}])
        done = await node.ended((await node.start(spec))["id"])
    assert done["state"] == "done", done["sentence"]
    assert done["settings"]["before"].keys() == {key}
    assert done["settings"]["after"] == done["settings"]["before"]


async def test_the_load_of_an_unknown_experiment_is_ended(node: ExperimentNode) -> None:
    await node.say(ExperimentMessage(2**31 - 1, RunState.READY))
    await node.until(lambda: node.requests)
    assert node.requests == [EndExperiment(2**31 - 1)]


async def test_an_experiment_whose_peer_was_deleted_fails(backend: Backend, node: ExperimentNode) -> None:
    node.answer = never_completes
    first = await node.start(node.aa_spec())
    await node.until(node.runs)
    async with experiment_node(backend) as peer:
        second = await node.start(node.aa_spec(peer_node_id=peer.id))
        assert (await (await backend.client("admin")).delete(f"/api/v1/nodes/{peer.id}")).status_code == 204
    await node.operator.post(f"/api/v1/experiments/{first['id']}/cancel")
    failed = await node.ended(second["id"])
    assert (failed["state"], failed["sentence"]) == ("failed", "The node that generated the load was deleted.")


async def test_an_unreadable_experiment_of_another_version_fails_and_does_not_block_the_queue(
    backend: Backend, node: ExperimentNode
) -> None:
    node.answer = never_completes
    first, second, third = [await node.start(node.aa_spec(name=name)) for name in ("first", "second", "third")]
    await node.until(node.runs)
    async with backend.database.session() as session:
        row = await session.get_one(ExperimentRow, second["id"])
        row.spec = row.spec | {"workload": {"type": "carrier-pigeons"}}
    node.answer = ExperimentNode.complete
    await node.operator.post(f"/api/v1/experiments/{first['id']}/cancel")
    assert (await node.ended(third["id"]))["state"] == "done"
    refused = await node.operator.get(f"/api/v1/experiments/{second['id']}")
    assert refused.status_code == 409
    assert "another version" in refused.json()["detail"]
    page = (await node.operator.get(f"/api/v1/experiments?node_id={node.id}&state=failed")).json()
    assert [(one["id"], "carrier-pigeons" in one["sentence"]) for one in page["experiments"]] == [(second["id"], True)]


async def test_deleting_a_node_deletes_its_experiments(backend: Backend) -> None:
    async with experiment_node(backend) as node:
        node.answer = never_completes
        started = await node.start(node.aa_spec())
        await node.until(node.runs)
        assert (await (await backend.client("admin")).delete(f"/api/v1/nodes/{node.id}")).status_code == 204
        assert (await node.operator.get(f"/api/v1/experiments/{started['id']}")).status_code == 404
