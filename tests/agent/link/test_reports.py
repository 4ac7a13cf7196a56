"""What a link sends besides samples: state, answers, decisions and flows."""

import os
import socket

import msgspec
import pytest
from msgspec.structs import replace
from tests.agent.fake_backend import Backend, Connection
from tests.agent.link.node import Node, watched
from tests.support.polling import PATIENCE_S
from tests.support.rates import UNREAD, make_rates

from coresteer_agent.transport.link import MAX_DECISIONS
from coresteer_core.changes.events import BackendLost, BackendReconnected
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.topology import Topology
from coresteer_core.policies.base import Evaluation, Mode
from coresteer_core.protocol import (
    RSS_CONTEXTS,
    Apply,
    ChangeAck,
    Clock,
    CloseCode,
    DecisionMessage,
    Detail,
    FlowsMessage,
    InventoryMessage,
    Ping,
    TopologyMessage,
    Watch,
    encode,
)


def test_messages_that_only_a_newer_backend_knows_are_ignored(backend: Backend, node: Node) -> None:
    connection = watched(backend, node)
    for _ in range(2):
        connection.websocket.send(msgspec.msgpack.encode({"type": "of-tomorrow", "field": 1}))
    connection.websocket.send(encode(Ping(5)))
    assert isinstance(connection.hear(), Clock)


def test_the_latest_topology_and_inventory_are_sent_after_each_welcome(backend: Backend, node: Node) -> None:
    node.link.send_state(Topology([], [], [], isolated="1"))
    node.link.send_state(Topology([], [], [], isolated="2"))
    node.link.send_state(Inventory([], [], ["irqbalance"]))
    for _ in range(2):
        connection = backend.next_connection()
        connection.hello()
        connection.welcome()
        assert connection.hear() == TopologyMessage(Topology([], [], [], isolated="2"))
        assert connection.hear() == InventoryMessage(Inventory([], [], ["irqbalance"]))
        connection.close()


def test_a_ping_is_answered_and_a_request_is_delivered(backend: Backend, node: Node) -> None:
    connection = backend.next_connection()
    connection.hello()
    connection.welcome()
    connection.websocket.send(encode(Ping(1234)))
    answer = connection.hear()
    assert isinstance(answer, Clock)
    assert answer.ping_ms == 1234
    asked = Apply("c", Plan([]), 60)
    connection.websocket.send(encode(asked))
    assert [node.next(), node.next()] == [BackendReconnected(), asked]


def test_a_change_message_overtakes_waiting_samples(backend: Backend, node: Node) -> None:
    connection = backend.next_connection()
    connection.hello()
    connection.welcome()
    assert node.next() == BackendReconnected()
    node.link.send_now(ChangeMessage("c", ChangeState.APPLYING, "x", []))
    assert isinstance(connection.hear(), ChangeMessage)


def test_decisions_are_buffered_oldest_first_and_precede_their_changes(backend: Backend, node: Node) -> None:
    for time_ms in range(MAX_DECISIONS + 1):
        node.link.send_decision(DecisionMessage(time_ms, Evaluation("1", 1, Mode.ENFORCE, "")))
    connection = backend.next_connection()
    connection.hello()
    connection.welcome()
    assert [connection.hear() for _ in range(MAX_DECISIONS)] == [
        DecisionMessage(time_ms, Evaluation("1", 1, Mode.ENFORCE, "")) for time_ms in range(1, MAX_DECISIONS + 1)
    ]
    assert node.next() == BackendReconnected()


def decided(time_ms: int, change_id: str | None = None) -> DecisionMessage:
    return DecisionMessage(time_ms, Evaluation("1", 1, Mode.ENFORCE, ""), change_id)


def reconnected(backend: Backend, node: Node) -> Connection:
    connection = backend.next_connection()
    connection.hello()
    connection.welcome(features=[RSS_CONTEXTS])
    while node.next() != BackendReconnected():
        pass
    return connection


def test_a_decision_that_began_a_change_is_sent_again_until_the_change_is_acknowledged(
    backend: Backend, node: Node
) -> None:
    connection = reconnected(backend, node)
    for decision in (decided(1, "a"), decided(2), decided(3, "b")):
        node.link.send_decision(decision)
        assert connection.hear() == decision
    connection.close()
    assert node.next() == BackendLost()
    node.link.send_decision(decided(4, "c"))
    connection = reconnected(backend, node)
    ended = ChangeMessage("a", ChangeState.CONFIRMED, "x", [])
    node.link.send_now(ended)
    assert [connection.hear() for _ in range(4)] == [decided(1, "a"), decided(3, "b"), decided(4, "c"), ended]
    connection.websocket.send(encode(ChangeAck("a", ChangeState.CONFIRMED)))
    assert node.next() == ChangeAck("a", ChangeState.CONFIRMED)
    connection.close()
    connection = reconnected(backend, node)
    node.link.send_decision(decided(1, "a"), again=True)
    assert [connection.hear() for _ in range(3)] == [decided(3, "b"), decided(4, "c"), decided(1, "a")]
    connection.close()
    connection = reconnected(backend, node)
    node.link.send_decision(decided(5))
    assert [connection.hear() for _ in range(3)] == [decided(3, "b"), decided(4, "c"), decided(5)]


@pytest.mark.parametrize(("code", "times"), [(CloseCode.BAD_FRAME, 1), (CloseCode.TOO_LARGE, 1), (1011, 3)])
def test_a_backend_that_refuses_a_decision_does_not_get_it_at_each_reconnect(
    backend: Backend, node: Node, code: int, times: int
) -> None:
    connection = reconnected(backend, node)
    node.link.send_decision(decided(1, "a"))
    for _ in range(times):
        assert connection.hear() == decided(1, "a")
        connection.close(code, "It is of days to come.")
        connection = reconnected(backend, node)
    node.link.send_decision(decided(2, "b"))
    assert connection.hear() == decided(2, "b")


MOVE = Action("irq/41/affinity", "0", "1", "")
CONTEXT = Action("netdev/eth0/rss-context/1", "none", "0-3", "")
CONTEXT_RULE = Action("netdev/eth0/flow-rule/7", "flow-type tcp4 dst-port 80 context 1", "none", "")
QUEUE_RULE = Action("netdev/eth0/flow-rule/8", "none", "flow-type tcp4 dst-port 80 action 3", "")


@pytest.mark.parametrize(
    ("features", "known"),
    [([], [MOVE, QUEUE_RULE]), ([RSS_CONTEXTS], [MOVE, CONTEXT, CONTEXT_RULE, QUEUE_RULE])],
    ids=["of 0.3", "of today"],
)
def test_a_backend_gets_no_actions_on_rss_contexts_that_it_would_refuse(
    backend: Backend, node: Node, features: list[str], known: list[Action]
) -> None:
    evaluation = Evaluation("1", 1, Mode.ENFORCE, "", [MOVE, CONTEXT, CONTEXT_RULE, QUEUE_RULE])
    node.link.send_decision(DecisionMessage(1, evaluation))
    connection = backend.next_connection()
    connection.hello()
    connection.welcome(features=features)
    assert connection.hear() == DecisionMessage(1, replace(evaluation, actions=known))


def test_buffered_decisions_are_bounded_in_bytes(backend: Backend, node: Node) -> None:
    decision = DecisionMessage(0, Evaluation("1", 1, Mode.ENFORCE, os.urandom(2**15).hex()))
    for time_ms in range(120):
        node.link.send_decision(replace(decision, time_ms=time_ms))
    connection = backend.next_connection()
    connection.hello()
    connection.welcome()
    told: list[int] = []
    while not told or told[-1] < 119:
        message = connection.hear()
        assert isinstance(message, DecisionMessage)
        told.append(message.time_ms)
    assert told == list(range(told[0], 120))
    assert 40 < len(told) < 70


def test_flows_are_not_buffered_while_disconnected(backend: Backend, node: Node) -> None:
    connection = backend.next_connection()
    node.link.send_flows(FlowsMessage(1, []))
    connection.hello()
    connection.welcome()
    assert node.next() == BackendReconnected()
    node.link.send_flows(FlowsMessage(2, []))
    assert connection.hear() == FlowsMessage(2, [])


def flows_told(connection: Connection) -> list[int]:
    """The times of all flows that were sent before the answer to a Ping."""
    connection.websocket.send(encode(Ping(1)))
    told = []
    while not isinstance(message := connection.hear(), Clock):
        if isinstance(message, FlowsMessage):
            told.append(message.time_ms)
    return told


def with_held_flows(backend: Backend, node: Node) -> Connection:
    """Return a connection over which the flows of 1 ms were sent and those of 2 ms are held."""
    connection = watched(backend, node)
    for time_ms in (1, 2):
        node.link.send_flows(FlowsMessage(time_ms, []))
    assert connection.hear() == FlowsMessage(1, [])
    return connection


def test_every_other_report_of_flows_is_held_while_nobody_needs_the_node(backend: Backend, node: Node) -> None:
    connection = watched(backend, node)
    for time_ms in range(1, 6):
        node.link.send_flows(FlowsMessage(time_ms, []))
        if time_ms % 2:
            assert connection.hear() == FlowsMessage(time_ms, [])
        else:
            assert flows_told(connection) == []


@pytest.mark.parametrize("detail", [Detail.SUMMARIES, Detail.SAMPLES])
def test_who_needs_the_node_gets_held_flows_at_once_and_then_each(backend: Backend, node: Node, detail: Detail) -> None:
    connection = with_held_flows(backend, node)
    connection.websocket.send(encode(Watch(detail)))
    assert connection.hear() == FlowsMessage(2, [])
    for time_ms in (3, 4):
        node.link.send_flows(FlowsMessage(time_ms, []))
        assert connection.hear() == FlowsMessage(time_ms, [])


def test_a_decision_follows_the_flows_that_it_is_based_on(backend: Backend, node: Node) -> None:
    connection = with_held_flows(backend, node)
    decision = DecisionMessage(2, Evaluation("1", 1, Mode.ENFORCE, ""))
    node.link.send_decision(decision)
    assert [connection.hear(), connection.hear()] == [FlowsMessage(2, []), decision]


def test_a_backend_that_knows_no_blocks_gets_all_flows(backend: Backend, node: Node) -> None:
    connection = backend.next_connection()
    connection.hello()
    connection.welcome()
    assert node.next() == BackendReconnected()
    for time_ms in (1, 2, 3):
        node.link.send_flows(FlowsMessage(time_ms, []))
        assert connection.hear() == FlowsMessage(time_ms, [])


def test_flows_that_were_held_are_dropped_with_the_connection(backend: Backend, node: Node) -> None:
    connection = with_held_flows(backend, node)
    connection.close()
    assert node.next() == BackendLost()
    again = watched(backend, node)
    node.link.send_flows(FlowsMessage(3, []))
    assert again.hear() == FlowsMessage(3, [])


def test_a_silent_backend_does_not_block_the_sampling_thread() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        node = Node(f"http://127.0.0.1:{deaf.getsockname()[1]}")
        taken, _ = deaf.accept()
        for seq in range(1, 5001):
            node.link.send_rates(make_rates(seq=seq))
        node.link.send_now(ChangeMessage("c", ChangeState.APPLYING, "x", []))
        assert node.heard.get(0) is None
        taken.close()
    node.link.stop()


def test_stopping_sends_buffered_messages_and_closes(backend: Backend, node: Node) -> None:
    connection = backend.next_connection()
    connection.hello()
    connection.welcome()
    assert node.next() == BackendReconnected()
    node.link.send_rates(UNREAD)
    node.link.stop()
    assert connection.closed.wait(PATIENCE_S)
    assert connection.seqs(1) == [1]
    assert connection.websocket.close_code == 1000
