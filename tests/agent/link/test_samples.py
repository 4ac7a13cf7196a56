"""Samples over a link: each once and in order, in blocks, and bounded while nothing is acknowledged."""

import logging
from itertools import pairwise
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.fake_backend import Backend
from tests.agent.link.node import Node, watched
from tests.support.polling import PATIENCE_S
from tests.support.rates import make_rates

from coresteer_agent.transport.samples import OutgoingSamples
from coresteer_agent.transport.unacknowledged import UnacknowledgedBuffer
from coresteer_core.changes.events import BackendLost, BackendReconnected
from coresteer_core.node.rates import Rates
from coresteer_core.node.rates_block import decompress_block, unpack_block
from coresteer_core.node.summary import summarize
from coresteer_core.protocol import (
    COLUMNS,
    SUMMARY_S,
    Ack,
    Clock,
    ColumnsMessage,
    Detail,
    Ping,
    RatesMessage,
    Rejected,
    SummaryMessage,
    TasksMessage,
    Watch,
    decode_to_backend,
    encode,
)


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
