"""Experiments from their start to their end, with a real database and an agent that does what it is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import psycopg
import pytest
import pytest_asyncio
from msgspec.structs import replace as with_fields
from sqlalchemy import select
from tests.backend.conftest import Backend, running_backend
from tests.backend.experiment_node import QUICK, ExperimentNode, experiment_node, loads_only, measured, until_told
from tests.backend.fake_agent import rates

from coresteer.audit.tables import AuditRow
from coresteer.experiments import service
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.events import ExperimentEvent
from coresteer.experiments.tables import ExperimentRow
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy
from coresteer_core.experiments.model import RunState
from coresteer_core.policies.base import Mode
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
    answer = await node.operator.get(f"/api/changes?node_id={node.id}&open=true")
    return [change["id"] for change in answer.json()["changes"]]


async def test_a_comparison_is_measured_to_its_end_and_leaves_everything_as_before(node: ExperimentNode) -> None:
    before = node.affinity
    begun = await node.start(node.spec())
    assert (begun["runs_planned"], begun["arms"]) == (24, ["as it is", "CPU 7"])
    done = await node.ended(begun["id"])
    assert (done["state"], done["runs_done"], done["runs_discarded"]) == ("done", 24, 0), done["sentence"]
    assert node.affinity == before
    assert done["settings"] == {"before": {node.key: before}, "after": {node.key: before}}
    assert (done["remaining_s"], done["queue_position"], done["machine"]["cpus"]) == (None, None, 8)
    await node.until(lambda: isinstance(node.got[-1], EndExperiment))
    (found,) = [one for one in done["analysis"]["comparisons"] if one["metric"] == "requests_per_s"]
    assert (found["baseline"]["value"], found["level"]["value"]) == (1000.0, 1100.0)
    assert await open_experiment_changes(node) == []
    await until_told(node.backend, begun["id"], lambda told: told.sentence == done["findings"][0])


async def test_a_changed_arm_is_an_unconfirmed_change_that_nobody_can_keep(node: ExperimentNode) -> None:
    node.answer = lambda n, asked: n.does(asked) if n.affinity != "7" else loads_only(n, asked)
    begun = await node.start(node.spec(guardrails=[{"metric": "dropped_per_s", "max": 5}]))
    await node.until(lambda: node.affinity == "7" and isinstance(node.got[-1], RunExperiment))
    (change_id,) = await open_experiment_changes(node)
    change = (await node.operator.get(f"/api/changes/{change_id}")).json()
    assert (change["experiment_id"], change["state"]) == (begun["id"], "unconfirmed")
    assert change["guardrails"] == [{"metric": "dropped_per_s", "max": 5}]
    refused = await node.operator.post(f"/api/changes/{change_id}/confirm")
    assert refused.status_code == 409
    await node.operator.post(f"/api/experiments/{begun['id']}/cancel")
    assert (await node.ended(begun["id"]))["state"] == "cancelled"


async def test_a_run_that_was_disturbed_is_kept_as_discarded_and_done_again(node: ExperimentNode) -> None:
    def disturbed_once(n: ExperimentNode, asked: RunExperiment) -> list[ExperimentMessage]:
        return n.does(asked, disturbed=["CPU 3 went offline."]) if len(n.runs()) == 1 else n.does(asked)

    node.answer = disturbed_once
    done = await node.ended((await node.start(node.itself()))["id"])
    assert (done["state"], done["runs_done"], done["runs_discarded"]) == ("done", 12, 1)
    second = [run for run in done["runs"] if run["planned"]["number"] == 1]
    assert [(run["attempt"], run["discarded"]) for run in second] == [(0, "CPU 3 went offline."), (1, None)]
    assert done["analysis"]["discarded"] == 1


async def test_a_run_that_fails_three_times_fails_the_experiment_with_the_reason(node: ExperimentNode) -> None:
    node.answer = lambda _, asked: [
        ExperimentMessage(asked.experiment_id, RunState.FAILED, asked.run.run_id, "No iperf3 here.")
    ]
    failed = await node.ended((await node.start(node.itself()))["id"])
    assert (failed["state"], failed["runs_discarded"]) == ("failed", 3)
    assert "No iperf3 here." in failed["sentence"]
    assert failed["runs"][0]["load_before"] is None
    begins = [word for word in node.got if isinstance(word, BeginExperiment)]
    assert len(begins) == 3


async def test_what_never_gets_ready_fails_the_experiment_with_the_agents_reason(node: ExperimentNode) -> None:
    node.prepare = lambda _, begin: [
        ExperimentMessage(begin.experiment_id, RunState.FAILED, sentence="No namespaces without CAP_SYS_ADMIN.")
    ]
    failed = await node.ended((await node.start(node.itself()))["id"])
    assert failed["state"] == "failed"
    assert "CAP_SYS_ADMIN" in failed["sentence"]
    assert node.runs() == []


async def test_a_guardrail_that_undoes_a_runs_change_stops_the_experiment(node: ExperimentNode) -> None:
    before = node.affinity
    sentence = "The dropped packets per second was 90."

    def trips(n: ExperimentNode, asked: RunExperiment) -> list[ExperimentMessage]:
        if n.affinity != "7":
            return n.does(asked)
        asyncio.get_running_loop().create_task(undo(n))
        return loads_only(n, asked)

    async def undo(n: ExperimentNode) -> None:
        (change,) = [word for word in n.got if isinstance(word, Apply)][-1:]
        n.changes.handle(Rollback(change.change_id))
        n.changes.messages()
        await n.say(ChangeMessage(change.change_id, ChangeState.ROLLED_BACK, sentence, [], EndedBy.GUARDRAIL))
        await n.say(InventoryMessage(n.node.inventory))

    node.answer = trips
    stopped = await node.ended((await node.start(node.spec()))["id"])
    assert (stopped["state"], stopped["sentence"]) == ("stopped", sentence)
    assert stopped["settings"]["after"] == {node.key: before}


async def test_a_guardrail_holds_for_a_run_that_changes_nothing(node: ExperimentNode) -> None:
    node.answer = loads_only
    begun = await node.start(node.itself(guardrails=[{"metric": "dropped_per_s", "max": 5}]))
    await node.until(node.runs)
    for seq in (1, 2, 3):
        sample = rates(seq)
        (netdev,) = sample.netdevs or []
        await node.say(RatesMessage(with_fields(sample, duration_s=1.0, netdevs=[with_fields(netdev, rx_dropped=90)])))
    stopped = await node.ended(begun["id"])
    assert stopped["state"] == "stopped"
    assert "dropped packets per second was 90" in stopped["sentence"]


async def test_a_cancelled_run_ends_at_once_and_its_settings_go_back(node: ExperimentNode) -> None:
    before = node.affinity
    node.answer = lambda n, asked: n.does(asked) if n.affinity != "7" else loads_only(n, asked)
    begun = await node.start(node.spec())
    await node.until(lambda: node.affinity == "7" and isinstance(node.got[-1], RunExperiment))
    answer = await node.operator.post(f"/api/experiments/{begun['id']}/cancel")
    assert answer.status_code == 200
    assert answer.json()["sentence"] == "Cancelled by operator."
    cancelled = await node.ended(begun["id"])
    assert (cancelled["state"], cancelled["settings"]["after"]) == ("cancelled", {node.key: before})
    assert node.affinity == before
    assert (await node.operator.post(f"/api/experiments/{begun['id']}/cancel")).status_code == 409
    async with node.backend.database.session() as session:
        query = select(AuditRow).where(AuditRow.action.startswith("experiment.")).order_by(AuditRow.id.desc()).limit(3)
        entries = [(row.actor, row.action) for row in await session.scalars(query)]
    assert entries[::-1] == [
        ("operator", "experiment.start"),
        ("operator", "experiment.cancel"),
        ("coresteer", "experiment.end"),
    ]


async def test_an_agent_that_goes_and_comes_back_costs_one_run(node: ExperimentNode) -> None:
    before = node.affinity
    node.answer = lambda n, asked: n.does(asked) if n.affinity != "7" else loads_only(n, asked)
    begun = await node.start(node.spec())
    await node.until(lambda: node.affinity == "7" and isinstance(node.got[-1], RunExperiment))
    await node.disconnect()
    node.answer = ExperimentNode.does
    await node.connect()
    done = await node.ended(begun["id"])
    assert (done["state"], done["runs_done"], done["runs_discarded"]) == ("done", 24, 1)
    assert "connection" in next(run["discarded"] for run in done["runs"] if run["discarded"])
    assert node.affinity == before


async def test_an_agent_that_stays_away_fails_the_experiment(backend: Backend) -> None:
    backend.app.state.runner.timeouts = replace(QUICK, away_s=0.2)
    async with experiment_node(backend) as node:
        node.answer = loads_only
        begun = await node.start(node.itself())
        await node.until(node.runs)
        await node.disconnect()
        failed = await node.ended(begun["id"])
        await node.connect()
    assert (failed["state"], failed["settings"]["after"]) == ("failed", None)
    assert f"{failed['node_name']} was disconnected" in failed["sentence"]
    assert "not verified" in failed["sentence"]


async def test_while_the_agent_is_away_the_experiment_says_so(node: ExperimentNode) -> None:
    node.answer = loads_only
    begun = await node.start(node.itself())
    await node.until(node.runs)
    await node.disconnect()
    async with asyncio.timeout(10):
        with node.backend.app.state.bus.subscribe() as events:
            while (await node.get(begun["id"]))["activity"] != f"Waiting for {begun['node_name']} to reconnect.":
                async for event in events:  # it is told whenever that changes
                    if isinstance(event, ExperimentEvent):
                        break
    await node.operator.post(f"/api/experiments/{begun['id']}/cancel")
    await node.connect()
    assert (await node.ended(begun["id"]))["state"] == "cancelled"


async def test_a_backend_that_restarts_goes_on_with_the_first_run_that_does_not_count_yet(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        async with running_backend(database_url) as first:
            first.app.state.runner.timeouts = QUICK
            node = await stack.enter_async_context(experiment_node(first))
            before = node.affinity
            node.answer = lambda n, asked: n.does(asked) if n.affinity != "7" else loads_only(n, asked)
            begun = await node.start(node.spec())
            await node.until(lambda: node.affinity == "7" and isinstance(node.got[-1], RunExperiment))
            so_far = (await node.get(begun["id"]))["runs_done"]
        await node.disconnect()
        async with running_backend(database_url) as second:
            second.app.state.runner.timeouts = QUICK
            node.backend, node.agent.url, node.answer = second, second.url, ExperimentNode.does
            node.operator = await second.client("operator")
            node.got.clear()
            await node.connect()
            done = await node.ended(begun["id"])
            await node.disconnect()
    first_words = [type(word) for word in node.got[:3]]
    assert first_words == [Rollback, EndExperiment, BeginExperiment]
    assert (done["state"], done["runs_done"], done["runs_discarded"]) == ("done", 24, 0)
    assert len(node.runs()) == 24 - so_far
    assert node.affinity == before


async def test_a_database_that_is_away_for_a_moment_costs_nothing_that_was_measured(
    backend: Backend, node: ExperimentNode, database_url: str
) -> None:
    node.answer = lambda n, asked: n.does(asked) if len(n.runs()) < 2 else loads_only(n, asked)
    begun = await node.start(node.itself())
    await node.until(lambda: len(node.runs()) == 3)
    name = database_url.rsplit("/", 1)[1].partition("?")[0]
    admin_url = database_url.replace(f"/{name}?", "/postgres?")
    async with await psycopg.AsyncConnection.connect(admin_url, autocommit=True) as admin:
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        asked = [word for word in node.got if isinstance(word, RunExperiment)][-1]
        found = measured(asked.run, 777.0)
        await node.say(ExperimentMessage(asked.experiment_id, RunState.MEASURED, asked.run.run_id, measured=found))
        node.answer = ExperimentNode.does
        assert (await node.operator.get("/api/health")).json()["database"] == "away"
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    done = await node.ended(begun["id"])
    assert (done["state"], done["runs_done"], done["runs_discarded"]) == ("done", 12, 0)
    assert done["runs"][2]["figures"]["requests_per_s"] == 777.0


async def test_one_experiment_a_node_runs_at_a_time_and_the_others_wait_in_order(node: ExperimentNode) -> None:
    node.answer = loads_only
    first, second, third = [await node.start(node.itself(name=name)) for name in ("first", "second", "third")]
    await node.until(node.runs)
    page = (await node.operator.get(f"/api/experiments?node_id={node.id}")).json()
    assert [(one["name"], one["queue_position"], one["state"]) for one in page["experiments"]] == [
        ("third", 2, "queued"),
        ("second", 1, "queued"),
        ("first", 0, "running"),
    ]
    cancelled = (await node.operator.post(f"/api/experiments/{second['id']}/cancel")).json()
    assert (cancelled["state"], cancelled["queue_position"]) == ("cancelled", None)
    node.answer = ExperimentNode.does
    await node.operator.post(f"/api/experiments/{first['id']}/cancel")
    assert (await node.ended(third["id"]))["state"] == "done"
    assert {word.experiment_id for word in node.got if isinstance(word, BeginExperiment)} == {first["id"], third["id"]}


async def test_the_next_experiment_of_a_node_hears_its_agent_also_when_it_begins_while_the_last_one_is_still_told(
    node: ExperimentNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.answer = loads_only
    first, second = [await node.start(node.itself(name=name)) for name in ("first", "second")]
    await node.until(node.runs)
    publish, loop = service.publish, node.backend.app.state.runner._loops[first["id"]]

    def second_begins() -> bool:
        return any(isinstance(word, BeginExperiment) and word.experiment_id == second["id"] for word in node.got)

    async def late(context: ExperimentContext, experiment_id: int) -> None:
        await publish(context, experiment_id)
        if asyncio.current_task() is loop and (await node.get(first["id"]))["ended_at"] is not None:
            context.wake.set()
            await node.until(second_begins)

    monkeypatch.setattr(service, "publish", late)
    node.prepare = lambda *_: []
    await node.operator.post(f"/api/experiments/{first['id']}/cancel")
    await loop
    node.answer = ExperimentNode.does
    await node.say(ExperimentMessage(second["id"], RunState.READY, address="198.18.0.1:5201", netdev="eno1"))
    done = await node.ended(second["id"])
    assert (done["state"], done["runs_discarded"]) == ("done", 0), done["sentence"]


async def test_a_setting_that_somebody_else_changed_fails_the_experiment_and_is_named(backend: Backend) -> None:
    backend.app.state.runner.timeouts = replace(QUICK, restored_s=0.2)
    async with experiment_node(backend) as node:

        def moves(n: ExperimentNode, asked: RunExperiment) -> list[ExperimentMessage]:
            if len(n.runs()) == 2:
                n.node.deliver(n.irq, "5")
                asyncio.get_running_loop().create_task(n.say(InventoryMessage(n.node.inventory)))
            return n.does(asked)

        node.answer = moves
        before = node.affinity
        failed = await node.ended((await node.start(node.spec()))["id"])
        assert failed["state"] == "failed"
        assert f"{node.key} is 5 instead of {before}" in failed["sentence"]
        assert failed["settings"]["after"] == {node.key: "5"}


async def test_the_placeholder_of_the_loads_netdev_is_replaced_by_what_the_agent_says(node: ExperimentNode) -> None:
    levels = [{"name": f"{us} µs", "value": us, "settings": [desired_value]} for us in (3, 96)
              for desired_value in [{"key": "netdev/{netdev}/coalesce/rx-usecs", "value": str(us)}]]  # fmt: skip
    done = await node.ended((await node.start(node.spec(factors=[{"name": "rx-usecs", "levels": levels}])))["id"])
    assert done["state"] == "done", done["sentence"]
    plans = [word.plan for word in node.got if isinstance(word, Apply)]
    assert {action.key for plan in plans for action in plan.actions} == {"netdev/eno1/coalesce/rx-usecs"}
    assert done["settings"] == {"before": {}, "after": {}}
    assert all(run.netdevs == ["eno1"] for run in node.runs())


async def test_enforced_policies_pause_and_a_policy_level_is_leased_for_its_runs(node: ExperimentNode) -> None:
    made = []
    for name in ("mine", "delegated"):
        body = {"name": f"{name} {node.id}", "spec": {"type": "irq-spread"}, "mode": "enforce"}
        body["selector"] = {"hostnames": [(await node.operator.get(f"/api/nodes/{node.id}")).json()["name"]]}
        made.append((await node.operator.post("/api/policies", body)).json())
    await node.operator.post(f"/api/policies/{made[0]['id']}/enable")
    await node.until(lambda: [policy.mode for policy in node.policies] == [Mode.ENFORCE])
    told_at: list[list[tuple[str, Mode, bool]]] = []

    def notes(n: ExperimentNode, asked: RunExperiment) -> list[ExperimentMessage]:
        told_at.append([(policy.policy_id, policy.mode, policy.leased) for policy in n.policies])
        return n.does(asked)

    node.answer = notes
    level = {"name": "policy", "policy": {"policy_id": made[1]["id"], "version": 1, "mode": "enforce"}}
    spec = node.spec(factors=[{"name": "policy", "levels": [{"name": "none"}, level]}], settle_s=5)
    warnings = (await node.operator.post("/api/experiments/preview", {"spec": spec})).json()["warnings"]
    assert any(f"mine {node.id}" in sentence for sentence in warnings)
    done = await node.ended((await node.start(spec))["id"])
    assert done["state"] == "done", done["sentence"]
    mine, delegated = str(made[0]["id"]), str(made[1]["id"])
    paused = [(mine, Mode.RECOMMEND, True)]
    runs = dict.fromkeys([run["planned"]["arm"][0] for run in done["runs"]])
    assert set(runs) == {0, 1}
    for run, told in zip(done["runs"], told_at, strict=True):
        assert told == ([*paused, (delegated, Mode.ENFORCE, True)] if run["planned"]["arm"] == [1] else paused)
    warmups = {run["planned"]["arm"][0]: asked.warmup_s for run, asked in zip(done["runs"], node.runs(), strict=True)}
    assert warmups == {0: 0.5, 1: 5.5}
    await node.until(lambda: [(p.policy_id, p.mode) for p in node.policies] == [(mine, Mode.ENFORCE)])


async def test_a_peer_makes_the_load_and_its_figures_of_it_count(backend: Backend, node: ExperimentNode) -> None:
    async with experiment_node(backend) as peer:

        def as_client(n: ExperimentNode, asked: RunExperiment) -> list[ExperimentMessage]:
            figures = {"requests_per_s": 5.0, "rtt_p99_us": 80.0, "cpu_busy_percent": 99.0}
            return n.does(asked, figures=figures)

        peer.answer = as_client
        begun = await node.start(node.itself(peer_node_id=peer.id))
        done = await node.ended(begun["id"])
        assert done["state"] == "done", done["sentence"]
        assert done["runs"][0]["figures"] == {"requests_per_s": 5.0, "rtt_p99_us": 80.0, "cpu_busy_percent": 40.0}
        assert {(run.role, run.address) for run in node.runs()} == {("server", "")}
        assert {(run.role, run.address) for run in peer.runs()} == {("client", "198.18.0.1:5201")}
        assert done["machine"]["peer"]["name"] != done["machine"]["name"]


async def test_settings_of_the_card_by_which_a_peers_load_comes_are_noted_and_looked_at(
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


async def test_what_an_agent_says_of_an_experiment_that_is_over_is_ended(node: ExperimentNode) -> None:
    await node.say(ExperimentMessage(2**31 - 1, RunState.READY))
    await node.until(lambda: node.got)
    assert node.got == [EndExperiment(2**31 - 1)]


async def test_an_experiment_whose_peer_was_deleted_meanwhile_fails(backend: Backend, node: ExperimentNode) -> None:
    node.answer = loads_only
    first = await node.start(node.itself())
    await node.until(node.runs)
    async with experiment_node(backend) as peer:
        second = await node.start(node.itself(peer_node_id=peer.id))
        assert (await (await backend.client("admin")).delete(f"/api/nodes/{peer.id}")).status_code == 204
    await node.operator.post(f"/api/experiments/{first['id']}/cancel")
    failed = await node.ended(second["id"])
    assert (failed["state"], failed["sentence"]) == ("failed", "The node that generated the load was deleted.")


async def test_what_another_version_kept_fails_with_a_sentence_and_keeps_nobody_waiting(
    backend: Backend, node: ExperimentNode
) -> None:
    node.answer = loads_only
    first, second, third = [await node.start(node.itself(name=name)) for name in ("first", "second", "third")]
    await node.until(node.runs)
    async with backend.database.session() as session:
        row = await session.get_one(ExperimentRow, second["id"])
        row.spec = row.spec | {"workload": {"type": "carrier-pigeons"}}
    node.answer = ExperimentNode.does
    await node.operator.post(f"/api/experiments/{first['id']}/cancel")
    assert (await node.ended(third["id"]))["state"] == "done"
    refused = await node.operator.get(f"/api/experiments/{second['id']}")
    assert refused.status_code == 409
    assert "another version" in refused.json()["detail"]
    page = (await node.operator.get(f"/api/experiments?node_id={node.id}&state=failed")).json()
    assert [(one["id"], "carrier-pigeons" in one["sentence"]) for one in page["experiments"]] == [(second["id"], True)]


async def test_a_deleted_node_takes_its_experiment_along(backend: Backend) -> None:
    async with experiment_node(backend) as node:
        node.answer = loads_only
        begun = await node.start(node.itself())
        await node.until(node.runs)
        assert (await (await backend.client("admin")).delete(f"/api/nodes/{node.id}")).status_code == 204
        assert (await node.operator.get(f"/api/experiments/{begun['id']}")).status_code == 404
