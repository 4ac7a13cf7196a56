"""Two backends on one database that reach each other's agents over a real NATS server."""

import asyncio
import logging

import msgspec
import nats
import pytest
from tests.backend.conftest import Backend, Pair
from tests.backend.policy_node import policy_node
from tests.support.nats import PASSWORD
from tests.support.polling import PATIENCE_S, poll_async

from coresteer.errors import NodeDisconnected
from coresteer.presence.locations import Location, Locations
from coresteer.presence.remote import Send, Sent
from coresteer.replicas import broker
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.protocol import Apply, EndExperiment, NewKey, decode_to_agent


async def _until_known(backend: Backend, node_id: int) -> None:
    await poll_async(lambda: backend.app.state.registry.is_connected(node_id))


async def test_a_change_is_applied_by_an_agent_of_another_backend(nats_pair: Pair) -> None:
    async with asyncio.timeout(PATIENCE_S), policy_node(nats_pair.second) as node:
        await _until_known(nats_pair.first, node.agent.node_id)
        operator = await nats_pair.first.client("operator")
        plan = {
            "actions": [{"key": f"irq/{node.irqs[0]}/affinity", "was": str(node.hot_cpu), "becomes": "1", "reason": ""}]
        }
        answer = await operator.post(f"{node.path}/changes", {"plan": plan})
        assert answer.status_code == 201, answer.text
        while not isinstance(message := decode_to_agent(await node.agent.receive()), Apply):
            pass
        assert message.change_id == answer.json()["id"]
        await node.agent.say(ChangeMessage(message.change_id, ChangeState.UNCONFIRMED, "Applied.", []))

        async def is_unconfirmed() -> bool:
            found = await operator.get(f"/api/v1/changes/{message.change_id}")
            return bool(found.json()["state"] == "unconfirmed")

        await poll_async(is_unconfirmed)


async def test_a_command_to_a_connection_of_the_past_is_refused_and_sent_once_to_the_present_one(
    nats_pair: Pair,
) -> None:
    command = EndExperiment(7)
    async with asyncio.timeout(PATIENCE_S), policy_node(nats_pair.second) as node:
        node_id = node.agent.node_id
        await _until_known(nats_pair.first, node_id)
        locations: Locations = nats_pair.first.app.state.presence._locations
        present = locations.elsewhere(node_id)
        assert present is not None
        assert not await nats_pair.first.app.state.remote.send(replace_epoch(present, -1), command)
        locations._by_node[node_id] = replace_epoch(present, -1)
        nats_pair.first.app.state.presence._position = 0
        await nats_pair.first.app.state.connections.send(node_id, command)
        while decode_to_agent(await node.agent.receive()) != command:
            pass
        locations._by_node[node_id] = replace_epoch(present, 1)  # of an agent that is connecting, as the table says
        with pytest.raises(NodeDisconnected):
            await nats_pair.first.app.state.connections.send(node_id, command)


def replace_epoch(location: Location, by: int) -> Location:
    return Location(location.node_id, location.epoch + by, location.replica_id)


async def test_without_nats_commands_are_refused_with_the_reason_until_it_is_back(nats_pair: Pair) -> None:
    async with asyncio.timeout(PATIENCE_S), policy_node(nats_pair.second) as node:
        await _until_known(nats_pair.first, node.agent.node_id)
        nats_pair.nats.kill()
        await poll_async(lambda: not nats_pair.first.app.state.broker.is_connected)
        operator = await nats_pair.first.client("operator")
        plan = {
            "actions": [{"key": f"irq/{node.irqs[0]}/affinity", "was": str(node.hot_cpu), "becomes": "1", "reason": ""}]
        }
        answer = await operator.post(f"{node.path}/changes", {"plan": plan})
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:coresteer:node-elsewhere")
        assert "cannot be reached" in answer.json()["detail"] and PASSWORD not in answer.text
        ready, health = await operator.get("/readyz"), (await operator.get("/api/v1/health")).json()
        assert (ready.status_code, ready.json()["status"], health["status"]) == (200, "ready", "degraded")
        assert [reason["what"] for reason in health["reasons"]] == ["nats"] and PASSWORD not in str(health)
        nats_pair.nats.start()
        await nats_pair.until_connected()
        assert (await operator.get("/api/v1/health")).json()["status"] == "ok"
        assert (await operator.post(f"{node.path}/changes", {"plan": plan})).status_code == 201


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"\xc1", "cannot be read"),
        (msgspec.msgpack.encode((1, b"\x81\xa4type\xa3huh")), "cannot be read"),
        (msgspec.msgpack.encode((999, msgspec.msgpack.encode(Send(1, 1, EndExperiment(7))))), "refused"),
        (msgspec.msgpack.encode((None, b"")), "cannot be read"),
        # a key is no command: only the backend of a connection sends one
        (b"KEY", "cannot be read"),
    ],
)
async def test_messages_that_are_malformed_or_of_no_backend_are_refused_and_logged(
    nats_pair: Pair, body: bytes, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    membership = nats_pair.second.app.state.membership
    async with asyncio.timeout(PATIENCE_S), policy_node(nats_pair.second) as node:
        epoch = nats_pair.second.app.state.connections.get(node.agent.node_id).epoch
        if body == b"KEY":
            forged = msgspec.to_builtins(Send(node.agent.node_id, epoch, EndExperiment(7)))
            forged["message"] = msgspec.to_builtins(NewKey("k" * 40))
            body = msgspec.msgpack.encode((nats_pair.first.app.state.membership.id, msgspec.msgpack.encode(forged)))
        stranger = await nats.connect(nats_pair.nats.url)
        with caplog.at_level(logging.WARNING, "coresteer.replicas"):
            await stranger.publish(f"coresteer.{membership.installation}.{membership.id}", body)
            await poll_async(lambda: complaint in caplog.text)
        await stranger.close()
        assert PASSWORD not in caplog.text


async def test_a_backend_that_does_not_listen_is_named_at_once(nats_pair: Pair) -> None:
    sender: broker.Broker = nats_pair.first.app.state.broker
    with pytest.raises(broker.UndeliveredError):
        await sender.request(999, Send(1, 1, EndExperiment(7)), Send)
    assert sender.publish(999, Send(1, 1, EndExperiment(7)))


async def test_credentials_that_nats_refuses_are_reported_and_never_shown(
    nats_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    url = nats_pair.nats.url.replace(PASSWORD, "another-password")
    refused = broker.Broker(url, nats_pair.first.app.state.membership)
    with caplog.at_level(logging.DEBUG):
        refused.start()
        await poll_async(lambda: "Authorization" in (refused.trouble or ""))
        await refused.stop()
    assert "cannot be reached" in caplog.text and "another-password" not in caplog.text + (refused.trouble or "")


async def test_a_change_that_could_not_be_sent_to_another_backend_says_so(
    nats_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> None:
        raise broker.UndeliveredError("the connection was lost")

    async with asyncio.timeout(PATIENCE_S), policy_node(nats_pair.second) as node:
        await _until_known(nats_pair.first, node.agent.node_id)
        operator = await nats_pair.first.client("operator")
        plan = {
            "actions": [{"key": f"irq/{node.irqs[0]}/affinity", "was": str(node.hot_cpu), "becomes": "1", "reason": ""}]
        }
        monkeypatch.setattr(nats_pair.first.app.state.broker, "request", lost)
        answer = await operator.post(f"{node.path}/changes", {"plan": plan})
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:coresteer:node-elsewhere")
        (change,) = (await operator.get(f"/api/v1/changes?node_id={node.agent.node_id}")).json()["changes"]
        assert (change["state"], change["steps"][-1]["sentence"]) == ("failed", answer.json()["detail"])
        assert "could not be sent" in answer.json()["detail"] and "disconnected" not in answer.json()["detail"]


async def test_a_backend_that_does_not_know_the_sender_yet_says_so_and_looks_it_up(
    nats_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership = nats_pair.second.app.state.membership
    woken = asyncio.Event()
    monkeypatch.setattr(membership, "wake", woken.set)
    membership.replicas = {}
    with pytest.raises(broker.UndeliveredError, match="does not know"):
        await nats_pair.first.app.state.broker.request(membership.id, Send(1, 1, EndExperiment(7)), Sent)
    assert woken.is_set()
    await membership.renew()
    found = await nats_pair.first.app.state.broker.request(membership.id, Send(1, 1, EndExperiment(7)), Sent)
    assert found == Sent(queued=False)
