"""Live samples of nodes that are connected to another backend: sent while somebody needs them, and not otherwise."""

import asyncio
import json
import logging
import time
from dataclasses import replace

import msgspec
import pytest
from tests.backend.conftest import Backend, Pair
from tests.backend.experiment_node import QUICK, experiment_node, never_completes
from tests.backend.fake_agent import FakeAgent, enrolled, now_ms, rates, tell
from tests.backend.policy_node import CPUS, asked, policy_node
from tests.backend.test_live import browser, subscribe, until
from tests.support.polling import PATIENCE_S, poll_async

from coresteer.experiments import run_loop
from coresteer.presence.forwarding import Forwarded, Forwarding, Need
from coresteer.replicas.broker import UnansweredError
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.experiments.model import RunState
from coresteer_core.node.summary import summarize
from coresteer_core.protocol import (
    COLUMNS,
    Apply,
    Detail,
    EndExperiment,
    ExperimentMessage,
    NewKey,
    SummaryMessage,
    Watch,
    decode_to_agent,
)


class Published:
    """What a backend sends the others."""

    def __init__(self, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages: list[msgspec.Struct] = []
        broker = backend.app.state.broker
        publish = broker.publish

        def spy(replica_id: int, message: msgspec.Struct) -> bool:
            self.messages.append(message)
            return bool(publish(replica_id, message))

        monkeypatch.setattr(broker, "publish", spy)

    def of(self, node_id: int) -> list[msgspec.Struct]:
        return [each for each in self.messages if getattr(each, "node_id", None) == node_id]


async def _until_known(backend: Backend, agent: FakeAgent) -> None:
    await poll_async(lambda: backend.app.state.registry.is_connected(agent.node_id))


async def test_a_page_shows_the_samples_of_a_node_of_another_backend_while_it_is_open(
    nats_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = nats_pair.first, nats_pair.second
    sent = Published(second, monkeypatch)
    forwarding: Forwarding = second.app.state.forwarding
    agent = await enrolled(second.database, second.url, "seen-elsewhere")
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        await agent.greet(features=[COLUMNS])
        await agent.say(SummaryMessage(summarize(rates(1), None)))
        await tell(second.app.state.bus, agent)
        assert sent.of(agent.node_id) == [], "nobody looks at it"
        await _until_known(first, agent)
        async with browser(first) as page:
            await subscribe(page, first, agent.node_id)
            while decode_to_agent(await agent.receive()) != Watch(Detail.SAMPLES):
                pass
            await poll_async(lambda: first.app.state.registry.get(agent.node_id).epoch)
            await agent.send_rates([sample := rates(2)])
            header, columns = await until(page, lambda frame: frame[0]["type"] == "rates")
            assert (header["node_id"], header["seq"]) == (agent.node_id, 2)
            assert columns["busy"].tobytes() == sample.shares["busy"]
            assert forwarding.is_followed(agent.node_id)
        first.app.state.interest._until[Detail.SAMPLES].clear()  # 15 s later
        await poll_async(lambda: not forwarding.is_followed(agent.node_id))
        await poll_async(lambda: first.app.state.registry.get(agent.node_id).rates is None)
        before = len(sent.of(agent.node_id))
        await agent.send_rates([rates(3)])
        await tell(second.app.state.bus, agent)
        assert len(sent.of(agent.node_id)) == before
        await agent.websocket.close()


async def test_the_fleet_has_figures_of_all_backends_while_it_is_shown(
    nats_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Published(nats_pair.second, monkeypatch)
    agent = await enrolled(nats_pair.second.database, nats_pair.second.url, "in-the-fleet-elsewhere")
    async with asyncio.timeout(PATIENCE_S), agent:
        await _until_known(nats_pair.first, agent)
        await agent.send_rates([rates(1)])
        await tell(nats_pair.second.app.state.bus, agent)
        assert sent.messages == []
        async with browser(nats_pair.first) as page:
            await page.send(json.dumps({"fleet": {}}))
            seq = 1

            async def has_figures() -> bool:
                nonlocal seq
                seq += 1
                await agent.send_rates([rates(seq)])
                return nats_pair.first.app.state.registry.get(agent.node_id).latest_figures() is not None

            await poll_async(has_figures, interval_s=0.2)
        assert sent.of(agent.node_id) == [], "summaries only"


async def test_who_looks_at_the_fleet_gets_summaries_each_second_of_agents_of_all_backends(nats_pair: Pair) -> None:
    agent = await enrolled(nats_pair.second.database, nats_pair.second.url, "asked-for-summaries")
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        await agent.greet(features=[COLUMNS])
        await agent.say(SummaryMessage(summarize(rates(1), None)))
        await tell(nats_pair.second.app.state.bus, agent)
        await _until_known(nats_pair.first, agent)
        nats_pair.first.app.state.interest.need_fleet()
        # the summary that was sent before somebody looked is shown at once
        registry = nats_pair.first.app.state.registry
        await poll_async(lambda: registry.get(agent.node_id).latest_figures() is not None)
        while decode_to_agent(await agent.receive()) != Watch(Detail.SUMMARIES):
            pass
        await agent.websocket.close()


async def test_a_policy_is_previewed_on_a_node_of_another_backend(nats_pair: Pair) -> None:
    async with asyncio.timeout(PATIENCE_S), policy_node(nats_pair.second) as node:
        start = time.time_ns() // 1_000_000 - 3000
        await node.show([node.hot(seq, start + 1000 * seq) for seq in (1, 2)])
        await _until_known(nats_pair.first, node.agent)
        operator = await nats_pair.first.client("operator")
        preview = {"body": node.body(), "node_ids": [node.agent.node_id]}
        (found,) = await asked(operator, "/api/v1/policies/preview", preview)
        assert found["error"] is None and found["evaluation"]["actions"], "its load is known"


async def test_what_needs_the_processes_of_a_node_of_another_backend_is_sent_them(nats_pair: Pair) -> None:
    first = nats_pair.first
    interest, registry, operator = first.app.state.interest, first.app.state.registry, await first.client("operator")
    async with asyncio.timeout(PATIENCE_S), policy_node(nats_pair.second, features=[COLUMNS]) as node:
        node_id, path = node.agent.node_id, node.path
        await node.show([node.hot(1, now_ms())])
        await _until_known(first, node.agent)
        classes = {"type": "service-class", "classes": [{"name": "gold", "target_percent": 90}]}
        levels = [{"name": "free"}, {"name": "CPU 1", "settings": [{"key": node.action().key, "value": "1"}]}]
        spec = {
            "name": "two places",
            "kind": "ab",
            "node_id": node_id,
            "workload": {"type": "tcp-request"},
            "primary": "requests_per_s",
            "factors": [{"name": "interrupt", "levels": levels}],
        }

        async def forget() -> None:
            interest._until[Detail.SAMPLES].clear()  # 15 s later
            await poll_async(lambda: registry.get(node_id).flows is None)

        for ask, body in (
            (f"{path}/flows", None),
            (f"{path}/numa", None),
            (f"{path}/numa/812/options", None),
            (f"{path}/classes/match", {"spec": classes}),
            (f"{path}/suggestions", None),
            (f"/api/v1/suggestions?node_id={node_id}", None),
            ("/api/v1/experiments/preview", {"spec": spec}),
        ):
            await forget()
            answer = await (operator.get(ask) if body is None else operator.post(ask, body))
            assert answer.status_code == 200, answer.text
            assert registry.get(node_id).flows is not None, ask
        await forget()
        action = Action("task/812/affinity", f"0-{CPUS - 1}", "0", "It is near.")
        change = {"plan": msgspec.to_builtins(Plan([action])), "confirm_timeout_s": 60}
        applied = asyncio.create_task(asked(operator, f"{path}/changes", change, status=201))
        while not isinstance(apply := decode_to_agent(await node.agent.receive()), Apply):
            pass
        await node.agent.say(ChangeMessage(apply.change_id, ChangeState.UNCONFIRMED, "Applied.", []))
        await applied


@pytest.mark.slow("two backends and an experiment of several runs")
async def test_the_leader_runs_an_experiment_on_a_node_of_another_backend(nats_pair: Pair) -> None:
    leader, other = nats_pair.first, nats_pair.second
    assert leader.app.state.membership.token is not None
    leader.app.state.runner.timeouts = QUICK
    async with experiment_node(other) as node:
        await _until_known(leader, node.agent)
        done = await node.ended((await node.start(node.aa_spec()))["id"])
        assert done["state"] == "done", done["sentence"]
        assert len(node.runs()) == done["runs_done"] > 0
        compared = await node.ended((await node.start(node.spec()))["id"])
        assert compared["state"] == "done", compared["sentence"]
        assert node.affinity != "7", "each change is rolled back"


async def test_the_lease_of_a_backend_that_was_killed_ends(nats_pair: Pair) -> None:
    forwarding: Forwarding = nats_pair.second.app.state.forwarding
    async with asyncio.timeout(PATIENCE_S), policy_node(nats_pair.second) as node:
        await forwarding._lease(999, Need({node.agent.node_id: (0, Detail.SUMMARIES)}, fleet=False))
        assert forwarding.is_followed(node.agent.node_id)
        forwarding._end_lapsed(time.monotonic() + 14)
        assert forwarding.is_followed(node.agent.node_id)
        forwarding._end_lapsed(time.monotonic() + 15)
        assert not forwarding.is_followed(node.agent.node_id)


async def test_forwarded_messages_that_an_agent_may_not_send_are_refused_and_logged(
    nats_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = nats_pair.first, nats_pair.second
    async with asyncio.timeout(PATIENCE_S), policy_node(second) as node:
        node_id = node.agent.node_id
        await _until_known(first, node.agent)
        first.app.state.interest.need(node_id)
        await poll_async(lambda: node_id in first.app.state.forwarding._following)
        epoch = first.app.state.registry.get(node_id).epoch
        frames = [b"\xc1", msgspec.msgpack.encode(NewKey("k" * 40)), msgspec.msgpack.encode({"type": "topology"})]
        with caplog.at_level(logging.WARNING, "coresteer.presence"):
            for frame in frames:
                second.app.state.broker.publish(first.app.state.membership.id, Forwarded(node_id, epoch, frame))
            await poll_async(lambda: caplog.text.count("was refused") == len(frames))


async def test_a_nats_server_that_does_not_read_stops_no_agent(
    nats_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = nats_pair.first, nats_pair.second
    async with asyncio.timeout(PATIENCE_S), policy_node(second) as node:
        await _until_known(first, node.agent)
        first.app.state.interest.need(node.agent.node_id)
        await poll_async(lambda: second.app.state.forwarding.is_followed(node.agent.node_id))
        nats_pair.nats.pause()
        try:
            with caplog.at_level(logging.WARNING, "coresteer.replicas"):
                frame = bytes(500_000)
                while "reads too slowly" not in caplog.text:
                    second.app.state.forwarding.forward(node.agent.node_id, 0, frame)
                    await asyncio.sleep(0)
                await node.tell()  # the agent is still heard
        finally:
            nats_pair.nats.resume()
        await nats_pair.until_connected()


async def test_samples_cross_again_after_nats_was_killed_and_ingest_does_not_wait_for_it(nats_pair: Pair) -> None:
    first, second = nats_pair.first, nats_pair.second
    agent = await enrolled(second.database, second.url, "outlives-nats")
    async with asyncio.timeout(PATIENCE_S), agent:
        await _until_known(first, agent)
        first.app.state.interest.need(agent.node_id)
        await poll_async(lambda: first.app.state.registry.get(agent.node_id).epoch)
        nats_pair.nats.kill()
        await poll_async(lambda: not first.app.state.registry.get(agent.node_id).epoch)  # nothing of the past is shown
        await agent.send_rates([rates(1)])
        await tell(second.app.state.bus, agent)
        assert second.app.state.ingest.unstored(agent.node_id)
        nats_pair.nats.start()
        await nats_pair.until_connected()
        seq = 1

        async def has_crossed() -> bool:
            nonlocal seq
            seq += 1
            first.app.state.interest.need(agent.node_id)
            await agent.send_rates([rates(seq)])
            newest = first.app.state.registry.get(agent.node_id).rates
            return newest is not None and newest.seq > 1

        await poll_async(has_crossed, interval_s=0.2)


async def test_what_a_backend_that_lost_nats_has_sent_is_forgotten(
    nats_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = nats_pair.first, nats_pair.second
    agent = await enrolled(second.database, second.url, "owner-lost-nats")
    async with asyncio.timeout(PATIENCE_S), agent:
        await _until_known(first, agent)
        first.app.state.interest.need(agent.node_id)
        await agent.send_rates([rates(1)])
        await poll_async(lambda: first.app.state.registry.get(agent.node_id).rates)
        monkeypatch.setattr(second.app.state.broker, "publish", lambda *_: False)
        seq = 1

        async def is_forgotten() -> bool:
            nonlocal seq
            seq += 1
            await agent.send_rates([rates(seq)])
            first.app.state.interest.need(agent.node_id)
            return first.app.state.registry.get(agent.node_id).rates is None

        await poll_async(is_forgotten, interval_s=0.2)
        assert first.app.state.registry.is_connected(agent.node_id)


async def test_a_script_that_asks_for_the_fleet_gets_figures_of_all_backends(nats_pair: Pair) -> None:
    agent = await enrolled(nats_pair.second.database, nats_pair.second.url, "asked-for-by-a-script")
    viewer = await nats_pair.first.client("viewer")
    nats_pair.first.app.state.interest._fleet_until = 0.0
    async with asyncio.timeout(PATIENCE_S), agent:
        await _until_known(nats_pair.first, agent)
        seq = 0

        async def has_figures() -> bool:
            nonlocal seq
            seq += 1
            await agent.send_rates([rates(seq)])
            assert (await viewer.get("/api/v1/fleet?limit=0")).status_code == 200
            return nats_pair.first.app.state.registry.get(agent.node_id).latest_figures() is not None

        await poll_async(has_figures, interval_s=0.2)


@pytest.mark.slow("two backends and an experiment of several runs")
async def test_an_experiment_outlasts_a_backend_that_does_not_answer(
    nats_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, other = nats_pair.first, nats_pair.second
    leader.app.state.runner.timeouts = QUICK
    publisher, times = leader.app.state.agents.publisher, 0
    publish_now = publisher.publish_now
    monkeypatch.setattr(run_loop, "_RETRY_S", 0.05)
    monkeypatch.setattr(run_loop, "_FOLLOW_S", 0.05)

    async def unanswered(node_id: int) -> None:
        nonlocal times
        times += 1
        if times <= 6:
            raise UnansweredError
        await publish_now(node_id)

    monkeypatch.setattr(publisher, "publish_now", unanswered)
    async with experiment_node(other) as node:
        await _until_known(leader, node.agent)
        done = await node.ended((await node.start(node.aa_spec()))["id"])
    assert done["state"] == "done", done["sentence"]
    assert times > 6, "it went on after six requests without an answer"


async def test_an_experiment_fails_when_the_backend_of_its_node_never_answers(
    nats_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, other = nats_pair.first, nats_pair.second
    leader.app.state.runner.timeouts = replace(QUICK, away_s=0.2)
    monkeypatch.setattr(run_loop, "_RETRY_S", 0.05)
    monkeypatch.setattr(run_loop, "_FOLLOW_S", 0.05)

    async def unanswered(_: int) -> None:
        raise UnansweredError

    monkeypatch.setattr(leader.app.state.agents.publisher, "publish_now", unanswered)
    async with experiment_node(other) as node:
        await _until_known(leader, node.agent)
        failed = await node.ended((await node.start(node.aa_spec()))["id"])
    assert failed["state"] == "failed"
    assert "did not answer this one for" in failed["sentence"]


async def test_a_load_is_ended_if_no_experiment_runs_it_even_while_another_backend_views_its_node(
    nats_pair: Pair,
) -> None:
    leader, other = nats_pair.first, nats_pair.second
    async with asyncio.timeout(PATIENCE_S), experiment_node(other) as node:
        await _until_known(leader, node.agent)
        leader.app.state.interest.need(node.id)
        await poll_async(lambda: other.app.state.forwarding.is_followed(node.id))
        await node.say(ExperimentMessage(2**31 - 1, RunState.READY))
        await node.until(lambda: node.requests)
        assert node.requests == [EndExperiment(2**31 - 1)]


async def test_the_load_of_the_leaders_experiment_goes_on(nats_pair: Pair) -> None:
    leader, other = nats_pair.first, nats_pair.second
    leader.app.state.runner.timeouts = QUICK
    async with asyncio.timeout(PATIENCE_S), experiment_node(other) as node:
        await _until_known(leader, node.agent)
        node.answer = never_completes
        started = await node.start(node.aa_spec())
        await node.until(node.runs)
        node.requests.clear()
        for experiment_id in (started["id"], 2**31 - 1):
            message = ExperimentMessage(experiment_id, RunState.READY)
            await other.app.state.runner.handle_message(node.id, message)
        await node.until(lambda: node.requests)
        assert node.requests == [EndExperiment(2**31 - 1)]
        await node.operator.post(f"/api/v1/experiments/{started['id']}/cancel")
        await node.ended(started["id"])
