"""The link against a backend of the test's own, on a real socket."""

import hashlib
import logging
import os
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.agent.fake_backend import Backend, Connection
from tests.support.polling import PATIENCE_S, poll
from tests.support.rates import UNREAD, make_rates
from websockets.frames import Close as CloseFrame
from websockets.frames import Frame, Opcode
from websockets.utils import accept_key

from coresteer_agent.config import Config, ConfigError, check_backend, check_backends, parse_labels
from coresteer_agent.runtime.identity import make_hello
from coresteer_agent.transport.enrol import EnrolError, NodeKey, enrol, load_key, load_or_request_key, store_key
from coresteer_agent.transport.inbox import MAX_WAITING_BYTES, Inbox
from coresteer_agent.transport.link import (
    MAX_ANSWERS_BYTES,
    MAX_DECISIONS,
    REQUESTS_AT_ONCE,
    REQUESTS_PER_S,
    Link,
)
from coresteer_agent.transport.link_error import why_closed
from coresteer_agent.transport.link_events import LinkEvent
from coresteer_agent.transport.samples import OutgoingSamples
from coresteer_agent.transport.unacknowledged import UnacknowledgedBuffer
from coresteer_agent.transport.websocket import ConnectionTiming
from coresteer_agent.transport.websocket_protocol import Close
from coresteer_core.changes.events import BackendLost, BackendReconnected
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.rates import Rates
from coresteer_core.node.rates_block import decompress_block, unpack_block
from coresteer_core.node.summary import summarize
from coresteer_core.node.topology import Cache, Topology
from coresteer_core.policies.base import Evaluation, Mode
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.irq_spread.policy import IrqSpread
from coresteer_core.protocol import (
    COLUMNS,
    MAX_FRAME_BYTES,
    MAX_POLICIES_IN_FORCE,
    PROTOCOL_VERSION,
    RSS_CONTEXTS,
    SUMMARY_S,
    Ack,
    Apply,
    ChangeAck,
    Clock,
    CloseCode,
    ColumnsMessage,
    Confirm,
    DecisionMessage,
    Detail,
    Extend,
    FlowsMessage,
    InventoryMessage,
    KeyStored,
    NewKey,
    Ping,
    Policies,
    ProtocolError,
    RatesMessage,
    Rejected,
    SummaryMessage,
    TasksMessage,
    TopologyMessage,
    Watch,
    Welcome,
    decode_to_agent,
    decode_to_backend,
    encode,
    reason_with_delay,
)

NEW_KEY = f"csn_{'k' * 43}"
QUICK = ConnectionTiming(
    first_retry_s=0.01,
    longest_retry_s=0.02,
    slow_retry_s=0.05,
    stable_s=60,
    welcome_s=PATIENCE_S,
    keepalive_s=PATIENCE_S,
)


@pytest.fixture
def backend() -> Iterator[Backend]:
    backend = Backend()
    yield backend
    backend.close()


class Node:
    def __init__(
        self, address: str, timing: ConnectionTiming = QUICK, *, previous: str | None = None, **options: object
    ) -> None:
        self.heard: Inbox[LinkEvent] = Inbox()
        hello = make_hello(Path("/nonexistent"), 1.0, None)
        key = NodeKey(address, 7, "n", "secret", previous=previous)
        self.link = Link(key, hello, self.heard, timing=timing, **options)  # type: ignore[arg-type]  # by name
        self.link.start()

    def next(self) -> LinkEvent:
        event = self.heard.get(PATIENCE_S)
        assert event is not None
        return event


@pytest.fixture
def node(backend: Backend) -> Iterator[Node]:
    node = Node(backend.address)
    yield node
    node.link.stop()


def test_the_agent_sends_hello_with_its_key(backend: Backend, node: Node) -> None:
    connection = backend.next_connection()
    request = connection.websocket.request
    assert request is not None
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.path == "/api/agent"
    assert connection.hello().first_seq == 1
    assert node.heard.get(0) is None
    connection.welcome()
    assert node.next() == BackendReconnected()


def test_a_disconnect_loses_nothing_and_repeats_nothing_acknowledged(backend: Backend, node: Node) -> None:
    first = backend.next_connection()
    first.hello()
    first.welcome()
    for seq in range(1, 11):
        node.link.send_rates(make_rates(seq=seq))
    assert first.seqs(10) == list(range(1, 11))
    first.websocket.send(encode(Ack(4)))
    first.close()
    assert node.next() == BackendReconnected()
    assert node.next() == BackendLost()
    for seq in range(11, 16):
        node.link.send_rates(make_rates(seq=seq))
    second = backend.next_connection()
    assert second.hello().first_seq == 5
    second.welcome(acked_seq=7)
    node.link.send_rates(make_rates(seq=16))
    assert second.seqs(9) == list(range(8, 17))


def test_disconnects_at_any_moment_store_each_sample_exactly_once(backend: Backend, node: Node) -> None:
    stored: list[int] = []
    sent = 0
    for turn in range(12):
        connection = backend.next_connection()
        connection.hello()
        connection.welcome(acked_seq=len(stored))
        for _ in range(5):
            sent += 1
            node.link.send_rates(make_rates(seq=sent))
        taken = connection.seqs(min(1 + turn % 5, sent - len(stored)))
        stored += taken
        if turn % 2:
            connection.websocket.send(encode(Ack(len(stored))))
        if turn % 3:
            connection.close()
        else:
            connection.websocket.socket.shutdown(2)
    connection = backend.next_connection()
    connection.hello()
    connection.welcome(acked_seq=len(stored))
    stored += connection.seqs(sent - len(stored))
    assert stored == list(range(1, sent + 1))


def test_a_rejected_sample_is_dropped_and_counted_and_not_sent_again(
    backend: Backend, node: Node, said: SimpleQueue[logging.LogRecord]
) -> None:
    first = backend.next_connection()
    first.hello()
    first.welcome()
    for seq in range(1, 6):
        node.link.send_rates(make_rates(seq=seq))
    assert first.seqs(5) == [1, 2, 3, 4, 5]
    first.websocket.send(encode(Rejected(2, 3, "busy has 1 bytes for 4 CPUs.")))
    first.websocket.send(encode(Ack(1)))
    first.websocket.send(encode(Ping(1)))
    assert isinstance(first.hear(), Clock)
    assert node.link.rejected == 2
    first.close()
    second = backend.next_connection()
    assert second.hello().first_seq == 2
    second.welcome(acked_seq=1, rejected=2)
    assert second.seqs(2) == [4, 5]
    second.close()
    third = backend.next_connection()
    third.hello()
    third.welcome(acked_seq=5, rejected=3)  # a rejection was lost with the connection
    node.link.send_rates(make_rates(seq=6))
    assert third.seqs(1) == [6]
    assert node.link.rejected == 3
    sentences = []
    while not said.empty():
        sentences.append(said.get().getMessage())
    assert any("rejected samples 2 to 3" in each and "busy has 1 bytes" in each for each in sentences)
    assert not any("were lost" in each for each in sentences)


def watched(backend: Backend, node: Node) -> Connection:
    """A connection to a backend that knows blocks."""
    connection = backend.next_connection()
    connection.hello()
    connection.welcome(features=[COLUMNS, "of a newer version"])
    assert node.next() == BackendReconnected()
    return connection


def samples_of(message: object) -> list[Rates]:
    assert isinstance(message, ColumnsMessage)
    return unpack_block(decompress_block(message.packed)[0])


def test_a_backend_that_knows_blocks_gets_each_sample_once_in_blocks_as_long_as_it_says(
    backend: Backend, node: Node
) -> None:
    connection = watched(backend, node)
    sent = [make_rates(seq=seq, time_ms=1000 * seq, busy=[seq]) for seq in range(1, 36)]
    for rates in sent:
        node.link.send_rates(rates)
    node.link.stop()
    assert connection.closed.wait(PATIENCE_S)
    blocks: list[list[Rates]] = []
    summarized: set[int] = set()
    while sum(map(len, blocks)) < len(sent):
        message = connection.hear()
        if isinstance(message, ColumnsMessage):
            blocks.append(samples_of(message))
        else:  # only the newest of several that wait is sent
            assert isinstance(message, SummaryMessage)
            assert message.summary == summarize(sent[message.summary.seq - 1], None)
            summarized.add(message.summary.seq)
    assert [rates for block in blocks for rates in block] == sent
    assert summarized
    assert [len(block) for block in blocks[1:-1]] == [10] * (len(blocks) - 2)


@pytest.mark.parametrize(("interval_s", "block_s"), [(1, 10.0), (1, 30.0), (4, 30.0), (15, 30.0)])
def test_a_summary_is_sent_of_the_first_sample_with_each_block_and_every_10_s(interval_s: int, block_s: float) -> None:
    outgoing = OutgoingSamples(1000, 1 << 30)
    outgoing.begin(0, columns=True, block_s=block_s)
    summarized, ended, sent = [], [], 300 // interval_s
    for seq in range(1, sent + 1):
        outgoing.add(make_rates(seq=seq, time_ms=1000 * interval_s * seq, duration_s=interval_s), None)
        while frame := outgoing.next_frame():
            message = decode_to_backend(frame)
            if isinstance(message, SummaryMessage):
                summarized.append(message.summary.seq)
            else:
                ended.append(samples_of(message)[-1].seq)
    assert {1, *ended} <= {*summarized}
    for before, after in pairwise(summarized):
        assert (after - before) * interval_s <= max(SUMMARY_S + interval_s / 2, interval_s)
        assert after in ended or (after - before) * interval_s >= SUMMARY_S - interval_s / 2
    assert {(after - before) * interval_s for before, after in pairwise(ended)} <= {block_s, 28.0, 32.0}


def test_a_block_that_is_full_before_its_time_brings_a_summary_too() -> None:
    outgoing = OutgoingSamples(1000, 1 << 30)
    outgoing.begin(0, columns=True)
    cells = [(irq, 0, 1) for irq in range(20_000)]
    seqs: list[int] = []
    for seq in range(1, 41):
        outgoing.add(make_rates(seq=seq, time_ms=100 * seq, duration_s=0.1, cells=cells), None)
        while frame := outgoing.next_frame():
            message = decode_to_backend(frame)
            if isinstance(message, SummaryMessage):
                seqs.append(message.summary.seq)
    assert len(seqs) >= 5, "in 4 s"


def test_who_watches_gets_what_is_collected_the_newest_sample_and_then_every_one(backend: Backend, node: Node) -> None:
    connection = watched(backend, node)
    node.link.send_now(TasksMessage(1, []))
    node.link.send_rates(make_rates(seq=1, duration_s=0.01))
    assert isinstance(connection.hear(), SummaryMessage), "of the first sample"
    connection.websocket.send(encode(Watch(Detail.SAMPLES)))
    heard = [connection.hear() for _ in range(4)]
    assert sorted(type(message).__name__ for message in heard) == [
        "ColumnsMessage", "RatesMessage", "SummaryMessage", "TasksMessage",
    ]  # fmt: skip
    assert heard[-1] == RatesMessage(make_rates(seq=1, duration_s=0.01))
    node.link.send_rates(make_rates(seq=2, duration_s=0.01))
    while (message := connection.hear()) != RatesMessage(make_rates(seq=2, duration_s=0.01)):
        assert isinstance(message, SummaryMessage)
    connection.websocket.send(encode(Watch(Detail.BLOCKS)))
    connection.websocket.send(encode(Ping(1)))
    assert isinstance(connection.hear(), Clock | SummaryMessage)
    node.link.send_rates(make_rates(seq=3, duration_s=0.01))
    node.link.stop()
    assert connection.closed.wait(PATIENCE_S)
    rest = [connection.hear() for _ in range(connection.heard.qsize())]
    assert not [message for message in rest if isinstance(message, RatesMessage)]


def test_who_asks_for_summaries_gets_the_newest_at_once_and_then_one_of_each_sample(
    backend: Backend, node: Node
) -> None:
    connection = watched(backend, node)
    node.link.send_rates(make_rates(seq=1, duration_s=0.01))
    assert connection.hear() == SummaryMessage(summarize(make_rates(seq=1, duration_s=0.01), None))
    node.link.send_rates(make_rates(seq=2, duration_s=0.01))
    connection.websocket.send(encode(Watch(Detail.SUMMARIES)))
    for seq in (2, 3, 4):
        assert connection.hear() == SummaryMessage(summarize(make_rates(seq=seq, duration_s=0.01), None))
        node.link.send_rates(make_rates(seq=seq + 1, duration_s=0.01))


def test_another_number_of_cpus_and_a_gap_begin_another_block(backend: Backend, node: Node) -> None:
    connection = watched(backend, node)
    sent = [
        make_rates(seq=1, time_ms=1000, duration_s=0.01),
        make_rates(seq=2, time_ms=2000, duration_s=0.01, cpus=5),
        make_rates(seq=3, time_ms=90_000, duration_s=0.01, cpus=5),
    ]
    for rates in sent:
        node.link.send_rates(rates)
    node.link.stop()
    assert connection.closed.wait(PATIENCE_S)
    heard = [connection.hear() for _ in range(connection.heard.qsize())]
    assert [samples_of(each) for each in heard if isinstance(each, ColumnsMessage)] == [[rates] for rates in sent]


def test_blocks_collected_for_a_new_backend_reach_one_of_the_previous_version_sample_by_sample(
    backend: Backend, node: Node
) -> None:
    first = watched(backend, node)
    for seq in range(1, 26):
        node.link.send_rates(make_rates(seq=seq))
    assert first.seqs(1)
    first.close()
    second = backend.next_connection()
    assert second.hello().first_seq == 1
    second.welcome(acked_seq=0)
    heard = [second.hear() for _ in range(25)]
    assert [message.rates.seq for message in heard if isinstance(message, RatesMessage)] == list(range(1, 26))


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
    connection = watched(backend, node)
    for time_ms in (1, 2):
        node.link.send_flows(FlowsMessage(time_ms, []))
    assert connection.hear() == FlowsMessage(1, [])
    connection.websocket.send(encode(Watch(detail)))
    assert connection.hear() == FlowsMessage(2, [])
    for time_ms in (3, 4):
        node.link.send_flows(FlowsMessage(time_ms, []))
        assert connection.hear() == FlowsMessage(time_ms, [])


def test_a_decision_follows_the_flows_that_it_is_based_on(backend: Backend, node: Node) -> None:
    connection = watched(backend, node)
    for time_ms in (1, 2):
        node.link.send_flows(FlowsMessage(time_ms, []))
    assert connection.hear() == FlowsMessage(1, [])
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
    connection = watched(backend, node)
    for time_ms in (1, 2):
        node.link.send_flows(FlowsMessage(time_ms, []))
    assert connection.hear() == FlowsMessage(1, [])
    connection.close()
    assert node.next() == BackendLost()
    again = watched(backend, node)
    node.link.send_flows(FlowsMessage(3, []))
    assert again.hear() == FlowsMessage(3, [])


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 40, encode(Welcome(1, 1, 0))[:-3], "text", b"\x81\xa4type\x01"])
def test_an_invalid_message_closes_the_connection_with_a_reason_and_the_agent_reconnects(
    backend: Backend, node: Node, garbage: bytes | str
) -> None:
    for welcomed in (False, True):
        connection = backend.next_connection()
        connection.hello()
        if welcomed:
            connection.welcome()
        connection.websocket.send(garbage)
        assert connection.closed.wait(PATIENCE_S)
        assert connection.websocket.close_code == CloseCode.BAD_FRAME
        assert connection.websocket.close_reason
    assert backend.next_connection().hello()


def test_another_protocol_version_is_logged_and_tried_again(
    backend: Backend, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    connection = backend.next_connection()
    connection.hello()
    connection.welcome(protocol=PROTOCOL_VERSION + 2)
    assert connection.closed.wait(PATIENCE_S)
    assert connection.websocket.close_code == CloseCode.VERSION
    backend.next_connection().hello()
    assert "Bring agent and backend to the same version." in caplog.text
    assert node.heard.get(0) is None


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (CloseCode.BAD_KEY, "Enrol this node again"),
        (CloseCode.VERSION, "same version"),
        (CloseCode.REPLACED, "Two agents with one key"),
        (4499, "code 4499"),
    ],
)
def test_each_close_code_is_logged_once_with_the_backends_reason(
    backend: Backend, node: Node, caplog: pytest.LogCaptureFixture, code: int, says: str
) -> None:
    for _ in range(3):
        connection = backend.next_connection()
        connection.hello()
        connection.close(code, "because I say so")
    backend.next_connection()
    complaints = [record.message for record in caplog.records if says in record.message]
    assert len(complaints) == 1
    assert "because I say so" in complaints[0]


def test_a_refused_key_is_replaced_if_possible(backend: Backend) -> None:
    renewed = NodeKey(backend.address, 8, "n", "new")
    node = Node(backend.address, renew_key=lambda: renewed)
    backend.next_connection().close(CloseCode.BAD_KEY)
    request = backend.next_connection().websocket.request
    assert request is not None
    assert request.headers["Authorization"] == "Bearer new"
    node.link.stop()


def test_the_present_backend_is_kept_while_it_works_and_the_next_one_is_used_after_it_fails(backend: Backend) -> None:
    other = Backend()
    heard: Inbox[LinkEvent] = Inbox()
    key = NodeKey(backend.address, 7, "n", "secret", replicas=(backend.address, other.address))
    link = Link(key, make_hello(Path("/nonexistent"), 1.0, None), heard, timing=QUICK)
    both: SimpleQueue[Connection] = SimpleQueue()
    backend.connections = other.connections = both
    link.start()
    peers = []
    for _ in range(3):
        connection = both.get(timeout=PATIENCE_S)
        peers.append(connection.websocket.local_address)
        connection.hello()
        connection.welcome()
        assert isinstance(heard.get(PATIENCE_S), BackendReconnected)
        connection.close()
        assert isinstance(heard.get(PATIENCE_S), BackendLost)
    link.stop()
    other.close()
    assert peers[0] == peers[2] != peers[1]


def test_an_agent_reaches_the_backend_that_works(backend: Backend) -> None:
    key = NodeKey("http://127.0.0.1:1", 7, "n", "secret", replicas=("http://127.0.0.1:1", backend.address))
    link = Link(key, make_hello(Path("/nonexistent"), 1.0, None), Inbox(), timing=QUICK)
    link.start()
    assert backend.next_connection().hello()
    link.stop()


@pytest.mark.parametrize(
    ("close", "shortest_s", "longest_s"),
    [
        (Close(CloseCode.TRY_AGAIN_LATER, reason_with_delay(40, "Too many connect.")), 40, 60),
        (Close(CloseCode.TRY_AGAIN_LATER, reason_with_delay(999_999, "")), 300, 450),
        (Close(CloseCode.TRY_AGAIN_LATER, "The database does not answer."), 0, 0.01),
        (Close(4499, reason_with_delay(40, "")), 0, 0.01),
    ],
)
def test_a_backend_that_asks_for_a_delay_is_obeyed(close: Close, shortest_s: float, longest_s: float) -> None:
    link = Link(
        NodeKey("http://127.0.0.1:1", 7, "n", "k"), make_hello(Path("/nonexistent"), 1.0, None), Inbox(), timing=QUICK
    )
    assert shortest_s <= link._delay_s(why_closed("http://127.0.0.1:1", close)) <= longest_s


def test_the_agents_of_a_large_fleet_return_over_the_time_that_the_backend_named(backend: Backend, node: Node) -> None:
    connection = backend.next_connection()
    connection.hello()
    connection.welcome()
    connection.websocket.send(encode(Ping(0, 20)))
    assert isinstance(connection.hear(), Clock)
    assert node.link._backoff.spread_s == 20


def test_a_full_buffer_drops_the_oldest_samples_and_counts_them(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node("http://127.0.0.1:1", max_count=10)
    for seq in range(1, 91):
        node.link.send_rates(make_rates(seq=seq))
    node.link.stop()
    assert [r.message for r in caplog.records if "oldest samples are dropped" in r.message] != []
    assert caplog.text.count("oldest samples are dropped") == 1

    node = Node(backend.address, max_count=10)
    for seq in range(1, 91):
        node.link.send_rates(make_rates(seq=seq))
    connection = backend.next_connection()
    connection.hello()
    connection.welcome(features=[COLUMNS])
    assert node.next() == BackendReconnected()
    node.link.stop()
    assert connection.closed.wait(PATIENCE_S)
    (last,) = connection.seqs(1)[-1:]
    while last < 90:
        (following, *_) = seqs = connection.seqs(1)
        assert following == last + 1
        last = seqs[-1]
    assert "samples were lost" in caplog.text


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


class RawPeer:
    """A backend that says exactly these bytes."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def close(self) -> None:
        self._server.close()

    def accept(self, *frames: Frame) -> socket.socket:
        """Agrees to a WebSocket and says the frames in the same segment."""
        taken, _ = self._server.accept()
        request = b""
        while b"\r\n\r\n" not in request:
            request += taken.recv(4096)
        key = re.search(rb"(?i)sec-websocket-key: (\S+)", request)
        assert key is not None
        answer = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept_key(key[1].decode())}\r\n\r\n"
        ).encode()
        taken.sendall(answer + b"".join(frame.serialize(mask=False) for frame in frames))
        return taken


@pytest.fixture
def raw_peer() -> Iterator[RawPeer]:
    peer = RawPeer()
    yield peer
    peer.close()


WELCOME = encode(Welcome(PROTOCOL_VERSION, 7, 0))


@pytest.fixture
def said() -> Iterator[SimpleQueue[logging.LogRecord]]:
    """What the link says, as it says it."""
    records: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = QueueHandler(records)
    logging.getLogger("coresteer.link").addHandler(handler)
    yield records
    logging.getLogger("coresteer.link").removeHandler(handler)


def test_a_fragmented_message_with_a_ping_in_between_is_received(raw_peer: RawPeer) -> None:
    node = Node(raw_peer.address)
    pieces = Frame(Opcode.BINARY, WELCOME[:3], fin=False), Frame(Opcode.PING, b"x"), Frame(Opcode.CONT, WELCOME[3:])
    taken = raw_peer.accept(*pieces)
    assert node.next() == BackendReconnected()
    taken.close()
    assert node.next() == BackendLost()
    node.link.stop()


def test_a_close_reason_right_after_the_handshake_is_logged(
    raw_peer: RawPeer, said: SimpleQueue[logging.LogRecord]
) -> None:
    node = Node(raw_peer.address)
    closing = Frame(Opcode.CLOSE, CloseFrame(CloseCode.REPLACED, "because I say so").serialize())
    raw_peer.accept(closing).close()
    assert "because I say so" in said.get(timeout=PATIENCE_S).getMessage()
    node.link.stop()


def test_messages_right_before_the_close_are_received(raw_peer: RawPeer) -> None:
    node = Node(raw_peer.address)
    asked = Apply("c", Plan([]), 60)
    raw_peer.accept(Frame(Opcode.BINARY, WELCOME), Frame(Opcode.BINARY, encode(asked))).close()
    assert [node.next(), node.next(), node.next()] == [BackendReconnected(), asked, BackendLost()]
    node.link.stop()


def test_a_connection_without_pongs_is_replaced(raw_peer: RawPeer, said: SimpleQueue[logging.LogRecord]) -> None:
    node = Node(
        raw_peer.address,
        ConnectionTiming(first_retry_s=0.01, longest_retry_s=0.02, welcome_s=PATIENCE_S, keepalive_s=0.05),
    )
    with raw_peer.accept(Frame(Opcode.BINARY, WELCOME)):
        assert [node.next(), node.next()] == [BackendReconnected(), BackendLost()]
        with raw_peer.accept(Frame(Opcode.BINARY, WELCOME)):
            assert node.next() == BackendReconnected()
    sentences = [said.get(timeout=PATIENCE_S).getMessage() for _ in range(2)]
    assert "was lost" in sentences[1]
    node.link.stop()


@pytest.mark.parametrize(
    ("status", "says"),
    [(401, "Enrol this node again"), (403, "Enrol this node again"), (503, "HTTP status 503 instead of a WebSocket")],
)
def test_a_refused_handshake_says_why(
    answer: Callable[[int, bytes], str], said: SimpleQueue[logging.LogRecord], status: int, says: str
) -> None:
    node = Node(answer(status, b"no"))
    assert says in said.get(timeout=PATIENCE_S).getMessage()
    node.link.stop()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, signed by itself, with its key in one file."""
    path = tmp_path_factory.mktemp("tls") / "backend.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(path), "-out", str(path.with_suffix(".crt")), "-days", "2", "-subj", "/CN=backend"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


@pytest.fixture
def tls_backend(certificate: Path) -> Iterator[Backend]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    backend = Backend(context)
    yield backend
    backend.close()


def test_messages_of_any_size_pass_through_tls_both_ways(
    tls_backend: Backend, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_suffix(".crt")))
    node = Node(tls_backend.address)
    topology = Topology([], [], [Cache(3, "Unified", 1, "1" * 60_000)] * 15)
    node.link.send_state(topology)
    connection = tls_backend.next_connection()
    connection.hello()
    connection.welcome()
    assert connection.hear() == TopologyMessage(topology)
    asked = Apply("c", Plan([Action("irq/41/affinity", "0", "1", "why " * 10_000)] * 5), 60)
    connection.websocket.send(encode(asked))
    assert [node.next(), node.next()] == [BackendReconnected(), asked]
    node.link.send_rates(UNREAD)
    node.link.stop()
    assert connection.seqs(1) == [1]
    assert connection.closed.wait(PATIENCE_S)
    assert connection.websocket.close_code == 1000


def test_a_certificate_that_this_machine_does_not_trust_is_refused(
    tls_backend: Backend, said: SimpleQueue[logging.LogRecord]
) -> None:
    node = Node(tls_backend.address)
    assert "CERTIFICATE_VERIFY_FAILED" in said.get(timeout=PATIENCE_S).getMessage()
    assert tls_backend.connections.empty()
    node.link.stop()


@given(
    st.integers(1, 8),
    st.integers(1, 60),
    st.lists(st.one_of(st.just("append"), st.just("send"), st.just("rewind"), st.integers(0, 40)), max_size=60),
)
def test_the_buffer_is_bounded_and_ordered(max_count: int, max_bytes: int, steps: list[str | int]) -> None:
    buffer = UnacknowledgedBuffer(max_count, max_bytes)
    seq = 0
    last_sent = 0
    for step in steps:
        if step == "append":
            seq += 1
            buffer.append(seq, seq, seq.to_bytes(1 + seq % 20, "little"))
        elif step == "rewind":
            buffer.rewind()
            last_sent = 0
        elif step == "send":
            if (frame := buffer.next_frame()) is not None:
                sent = int.from_bytes(frame, "little")
                assert sent > last_sent
                assert sent >= buffer.first_seq
                last_sent = sent
        else:
            buffer.acknowledge(min(int(step), seq))
        assert len(buffer) <= max_count
        assert buffer.next_seq == seq + 1
        assert buffer.first_seq == seq + 1 - len(buffer)


@pytest.mark.parametrize(
    "url", ["", "example.org", "ftp://x", "http://", "http://u:p@localhost", "http://localhost:x", "http://localhost?a"]
)
def test_an_invalid_backend_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        check_backend(url, insecure=True)


def test_encryption_is_required_except_on_this_machine() -> None:
    for url in ("http://localhost:8420", "http://127.9.0.1:1", "http://[::1]:1", "https://example.org"):
        assert check_backend(url + "/", insecure=False) == url
    for url in ("http://example.org", "http://10.0.0.1:8420", "http://localhost.example.org"):
        with pytest.raises(ConfigError, match="not encrypted"):
            check_backend(url, insecure=False)
        assert check_backend(url, insecure=True) == url


def config(tmp_path: Path, backend: str, token_file: Path | None = None) -> Config:
    return Config((backend,), tmp_path, Path("/"), 1.0, "n", token_file)


@pytest.fixture
def answer() -> Iterator[Callable[[int, bytes], str]]:
    """A backend that gives one HTTP answer to everything."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    servers: list[HTTPServer] = []

    def start(status: int, body: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_enrolment_stores_a_key_that_only_its_owner_can_read(
    tmp_path: Path, answer: Callable[[int, bytes], str]
) -> None:
    url = answer(200, b'{"nodes":[{"node_id":3,"name":"n","key":"k3"}]}')
    path = tmp_path / "agent/key.json"
    assert enrol([url], "token", "n", path) == NodeKey(url, 3, "n", "k3")
    assert load_key(path) == NodeKey(url, 3, "n", "k3")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("status", "body", "transient", "says"),
    [
        (403, b'{"title":"Forbidden","detail":"The token is used."}', False, "The token is used."),
        (503, b"<html>", True, "503"),
        (200, b"<html>", True, "cannot be reached"),
        (200, b'{"nodes":[]}', False, "is it a Coresteer backend"),
    ],
)
def test_a_refused_enrolment_has_a_reason_and_says_whether_to_retry(
    tmp_path: Path, answer: Callable[[int, bytes], str], *, status: int, body: bytes, transient: bool, says: str
) -> None:
    with pytest.raises(EnrolError, match=says) as caught:
        enrol([answer(status, body)], "token", "n", tmp_path / "key.json")
    assert caught.value.transient is transient
    assert not (tmp_path / "key.json").exists()


def test_a_key_is_not_sent_to_another_backend(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/key.json").write_text('{"backend":"https://a.example","node_id":1,"name":"n","key":"k"}')
    assert load_or_request_key(config(tmp_path, "https://a.example")).key == "k"
    with pytest.raises(EnrolError, match=r"is for https://a\.example"):
        load_or_request_key(config(tmp_path, "https://b.example"))


def test_a_key_is_used_at_every_backend_of_a_list_with_one_that_is_known(tmp_path: Path) -> None:
    a, b, c = (f"https://{name}.example" for name in "abc")
    store_key(tmp_path / "agent/key.json", NodeKey(a, 1, "n", "k"))

    def addresses(*backends: str) -> tuple[str, ...]:
        return load_or_request_key(Config(backends, tmp_path, Path("/"), 1.0, "n")).addresses

    assert addresses(a, b) == (a, b)
    assert addresses(b, c) == (b, c)  # b was in the list before
    with pytest.raises(EnrolError, match=r"is for https://b\.example, not https://a\.example"):
        addresses(a)
    assert addresses(c) == (c,)


def test_enrolment_uses_a_backend_that_answers(tmp_path: Path, answer: Callable[[int, bytes], str]) -> None:
    url = answer(200, b'{"nodes":[{"node_id":3,"name":"n","key":"k3"}]}')
    backends = ["http://127.0.0.1:1", url, "http://127.0.0.1:2"]
    key = enrol(backends, "token", "n", tmp_path / "key.json")
    assert (key.backend, key.addresses) == (url, tuple(backends))


def test_a_refused_token_is_not_sent_to_every_backend(tmp_path: Path, answer: Callable[[int, bytes], str]) -> None:
    refusing = [answer(403, f'{{"detail":"Refused {number}."}}'.encode()) for number in range(2)]
    with pytest.raises(EnrolError, match=r"Refused \d\.$") as caught:
        enrol(refusing, "token", "n", tmp_path / "key.json")
    assert not caught.value.transient


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["https://a.example/"], ("https://a.example",)),
        (["https://a.example,https://b.example", "https://a.example"], ("https://a.example", "https://b.example")),
        ([" https://a.example , "], ("https://a.example",)),
    ],
)
def test_backends_are_listed_with_commas_or_by_repetition(texts: list[str], found: tuple[str, ...]) -> None:
    assert check_backends(texts, insecure=False) == found


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        ([""], {}),
        (["rack=r01 role=db"], {"rack": "r01", "role": "db"}),
        (["rack=r01,role=", "url=a=b"], {"rack": "r01", "role": "", "url": "a=b"}),
    ],
)
def test_labels_are_given_with_spaces_commas_or_by_repetition(texts: list[str], labels: dict[str, str]) -> None:
    assert parse_labels(texts) == labels


@pytest.mark.parametrize(
    "text", ["rack", "Rack=r01", "=r01", f"rack={'r' * 64}", "rack=\x7f", " ".join(f"l{n}=x" for n in range(33))]
)
def test_an_invalid_label_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="label"):
        parse_labels([text])


def test_a_list_of_backends_has_at_least_one() -> None:
    with pytest.raises(ConfigError, match="No backend is given"):
        check_backends([","], insecure=False)


def test_a_token_that_names_an_authority_is_not_sent_unencrypted(
    tmp_path: Path, answer: Callable[[int, bytes], str]
) -> None:
    url = answer(200, b"{}")
    with pytest.raises(EnrolError, match="is not encrypted; the token was not sent"):
        enrol([url], f"secret.{'0' * 64}", "n", tmp_path / "key.json")


def test_a_missing_token_file_is_transient_and_a_missing_token_is_explained(tmp_path: Path) -> None:
    with pytest.raises(EnrolError) as caught:
        load_or_request_key(config(tmp_path, "http://localhost", tmp_path / "token"))
    assert caught.value.transient
    with pytest.raises(EnrolError, match="Create an enrolment token") as caught:
        load_or_request_key(config(tmp_path, "http://localhost"))
    assert not caught.value.transient


def test_a_damaged_key_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text('{"backend":')
    with pytest.raises(EnrolError, match="Enrol again"):
        load_key(tmp_path / "key.json")


def flood(connection: Connection, frame: Frame) -> None:
    """Repeat a frame, at most 20,000 times, until the agent ends the connection."""
    pieces = frame.serialize(mask=False) * 100
    with suppress(OSError):
        for _ in range(200):
            if connection.closed.is_set():
                return
            connection.websocket.socket.sendall(pieces)


@pytest.mark.parametrize(
    "frame",
    [
        Frame(Opcode.BINARY, encode(Apply("c", Plan([]), 60))),
        Frame(Opcode.BINARY, encode(ChangeAck("c", ChangeState.CONFIRMED))),
        Frame(Opcode.BINARY, encode(Ack(0))),
        Frame(Opcode.BINARY, encode(Ping(0))),
        Frame(Opcode.CONT, b"", fin=False),
        Frame(Opcode.PING, b""),
    ],
    ids=["plans", "acknowledged changes", "acknowledged samples", "requests for the time", "fragments", "pings"],
)
def test_a_backend_that_floods_the_agent_is_disconnected_with_a_reason(
    backend: Backend, said: SimpleQueue[logging.LogRecord], frame: Frame
) -> None:
    node = Node(backend.address, ConnectionTiming(slow_retry_s=60, keepalive_s=60))
    connection = backend.next_connection()
    connection.hello()
    connection.welcome()
    assert node.next() == BackendReconnected()
    if frame.opcode is Opcode.CONT:
        connection.websocket.socket.sendall(Frame(Opcode.BINARY, b"", fin=False).serialize(mask=False))
    flood(connection, frame)
    assert connection.closed.wait(PATIENCE_S)
    assert connection.websocket.close_code == CloseCode.FLOOD
    assert "more" in (connection.websocket.close_reason or "")
    received = 0
    while isinstance(node.next(), Apply | ChangeAck):
        received += 1
    assert received <= REQUESTS_AT_ONCE + PATIENCE_S * REQUESTS_PER_S
    while "accepts; the connection was closed" not in said.get(timeout=PATIENCE_S).getMessage():
        pass
    node.link.stop()


def test_a_backend_waits_while_the_loop_is_busy_so_few_bytes_wait_for_it(raw_peer: RawPeer) -> None:
    node = Node(raw_peer.address)
    taken = raw_peer.accept(Frame(Opcode.BINARY, WELCOME))
    taken.settimeout(PATIENCE_S)
    assert node.next() == BackendReconnected()
    large = Apply("c", Plan([Action("k", "", "x" * 100_000, "")]), 60)
    frames = [Frame(Opcode.BINARY, frame) for frame in [*[encode(large)] * 60, encode(Confirm("last"))]]
    data = b"".join(frame.serialize(mask=False) for frame in frames)
    sending = threading.Thread(target=taken.sendall, args=(data,))
    sending.start()
    poll(lambda: node.heard.full)
    for _ in range(100):  # each answer is one more round of the link, which could have read 64 KiB
        node.link.send_now(ChangeMessage("c", ChangeState.APPLYING, "x", []))
        assert taken.recv(4096)
    assert node.heard.waiting_bytes <= MAX_WAITING_BYTES + 200_000
    assert [node.next() for _ in range(61)] == [*[large] * 60, Confirm("last")]
    sending.join(PATIENCE_S)
    taken.close()
    node.link.stop()


def test_answers_that_the_backend_does_not_read_are_bounded_and_end_the_connection(raw_peer: RawPeer) -> None:
    node = Node(raw_peer.address)
    with raw_peer.accept(Frame(Opcode.BINARY, WELCOME)):
        assert node.next() == BackendReconnected()
        for _ in range(40):
            node.link.send_now(ChangeMessage("c", ChangeState.FAILED, "x" * 1_000_000, []))
        assert sum(map(len, node.link._urgent)) <= MAX_ANSWERS_BYTES + 1_000_100
        assert node.next() == BackendLost()
    node.link.stop()


def test_a_long_id_many_policies_and_a_large_frame_are_refused_with_a_reason(backend: Backend, node: Node) -> None:
    policies = [PolicyInForce("1", 1, "p", 1, Mode.ENFORCE, IrqSpread())] * (MAX_POLICIES_IN_FORCE + 1)
    for frame, code in (
        (encode(Policies(policies)), CloseCode.BAD_FRAME),
        (encode(Extend("x" * 65, 1.0)), CloseCode.BAD_FRAME),
        (bytes(MAX_FRAME_BYTES + 1), CloseCode.TOO_LARGE),
    ):
        connection = backend.next_connection()
        connection.hello()
        connection.welcome()
        connection.websocket.send(frame)
        assert connection.closed.wait(PATIENCE_S)
        assert connection.websocket.close_code == code


def test_a_new_key_is_stored_before_the_backend_is_told_and_used_from_then_on(backend: Backend, tmp_path: Path) -> None:
    path = tmp_path / "agent/key.json"
    node = Node(backend.address, store_key=partial(store_key, path))
    try:
        connection = backend.next_connection()
        assert connection.hello().rotates_keys
        connection.welcome()
        connection.websocket.send(encode(NewKey(NEW_KEY)))
        assert connection.hear() == KeyStored(hashlib.sha256(NEW_KEY.encode()).hexdigest())
        assert load_key(path) == NodeKey(backend.address, 7, "n", NEW_KEY, previous="secret")
        connection.close()
        request = backend.next_connection().websocket.request
        assert request is not None and request.headers["Authorization"] == f"Bearer {NEW_KEY}"
    finally:
        node.link.stop()


def test_a_backend_restored_from_a_backup_is_offered_the_previous_key_once_the_present_one_is_refused(
    backend: Backend,
) -> None:
    node = Node(backend.address, previous="previous")
    presented = []
    try:
        for code in (CloseCode.BAD_KEY, CloseCode.BAD_KEY, CloseCode.BAD_KEY, 1001, 1001):
            connection = backend.next_connection()
            connection.hello()
            if code == 1001:
                connection.welcome()
            request = connection.websocket.request
            assert request is not None
            presented.append(request.headers["Authorization"].removeprefix("Bearer "))
            connection.close(code)
    finally:
        node.link.stop()
    assert presented == ["secret", "previous", "secret", "previous", "previous"]


def test_a_new_key_that_cannot_be_stored_is_not_used(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "agent").touch()
    node = Node(backend.address, store_key=partial(store_key, tmp_path / "agent/key.json"))
    try:
        connection = backend.next_connection()
        connection.hello()
        connection.welcome()
        connection.websocket.send(encode(NewKey(NEW_KEY)))
        connection.websocket.send(encode(Ping(1)))
        assert isinstance(connection.hear(), Clock)
        connection.close()
        request = backend.next_connection().websocket.request
        assert request is not None and request.headers["Authorization"] == "Bearer secret"
    finally:
        node.link.stop()
    assert "new key cannot be stored" in caplog.text


@pytest.mark.parametrize("key", ["short", "k" * 201, "line\r\nbreak" * 5, "ä" * 50])
def test_a_key_that_does_not_fit_into_a_header_is_refused(key: str) -> None:
    with pytest.raises(ProtocolError):
        decode_to_agent(encode(NewKey(key)))
