"""Blocks of samples: they are stored as single samples would be, or refused with a reason."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace as with_changes
from itertools import pairwise

import msgspec
import numpy as np
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.backend.conftest import Backend, running_backend
from tests.backend.fake_agent import TEMPLATE, block_message, enrolled, now_ms, rates, stored_seqs, tell
from tests.backend.telemetry_data import machine
from tests.support.mutated_frames import FrameMutator
from tests.support.polling import PATIENCE_S, poll_async

from coresteer.config import Config
from coresteer.presence.connections import Connections
from coresteer.presence.registry import NodeState
from coresteer.telemetry import sample_columns
from coresteer.telemetry.chunk_decoding import decode
from coresteer.telemetry.repository import StreamPosition
from coresteer.telemetry.rollup import Rollup, merge_rollups, minute_rollups, pack_shares
from coresteer.telemetry.sample_buffer import Batch, SampleBlock, SampleBuffer, encode_batch, read_block
from coresteer.telemetry.sample_columns import BlockError
from coresteer.telemetry.service import NODE_LIMIT_BYTES, Ingest
from coresteer_core.metrics import FLEET_METRICS
from coresteer_core.node.rates import ABSENT_SHARE, CPU_COUNTS, CPU_SHARES, Rates
from coresteer_core.node.rates_block import RatesBlock, compress_block, pack_block, unpack_block
from coresteer_core.node.summary import summarize
from coresteer_core.protocol import (
    BLOCK_S,
    COLUMNS,
    FEATURES,
    SUMMARY_S,
    Detail,
    Rejected,
    SummaryMessage,
    Watch,
    decode_to_agent,
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def quick(database_url: str) -> AsyncIterator[Backend]:
    async with running_backend(database_url, chunk_seconds=1) as backend:
        yield backend


STREAM = machine(30, cpus=5, irqs=9, start_ms=1_800_000_040_000)


def _without(sample: Rates, what: str) -> Rates:
    """A sample in which a source could not be read."""
    changed: dict[str, Callable[[], Rates]] = {
        "share": lambda: replace(sample, shares=sample.shares | {"busy": None}),
        "count": lambda: replace(sample, counts=sample.counts | {"net_rx": None, "dropped": None}),
        "cells": lambda: replace(sample, irq_ids=None, irq_cpus=None, irq_counts=None),
        "no interrupt": lambda: replace(sample, irq_ids=b"", irq_cpus=b"", irq_counts=b""),
        "netdevs": lambda: replace(sample, netdevs=None),
        "netdev": lambda: replace(sample, netdevs=[]),
        "tcp": lambda: replace(sample, tcp=None, agent_cpu_s=None, agent_rss_bytes=None),
        "counters": lambda: replace(sample, counters={}),
        "nothing": lambda: sample,
    }
    return changed[what]()


_LACKS = ("share", "count", "cells", "no interrupt", "netdevs", "netdev", "tcp", "counters", *["nothing"] * 8)


@st.composite
def _cut_streams(draw: st.DrawFn) -> tuple[list[Rates], list[int]]:
    stream = [_without(sample, draw(st.sampled_from(_LACKS))) for sample in STREAM[: draw(st.integers(1, 30))]]
    cuts = draw(st.sets(st.integers(1, len(stream)), max_size=len(stream)))
    return stream, sorted({0, len(stream)} | cuts)


def _received(samples: list[Rates]) -> SampleBlock:
    message = block_message(samples)
    return read_block(message.first_seq, message.last_seq, message.packed, 0)[0]


def _batch(parts: Sequence[Rates | SampleBlock]) -> Batch:
    batch = Batch("s")
    for part in parts:
        batch.add(part, 1)
    return batch


def _plain(rollup: Rollup) -> object:
    return msgspec.to_builtins(
        with_changes(rollup, peaks=rollup.peaks.tolist(), means=rollup.means.tolist(), amounts={}, duration_s=0.0)
    )


@given(_cut_streams())
@settings(deadline=None, max_examples=60)
def test_a_block_gives_back_exactly_the_samples_that_it_was_made_of(drawn: tuple[list[Rates], list[int]]) -> None:
    stream, _ = drawn
    assert unpack_block(pack_block(stream)) == stream


@given(_cut_streams())
@settings(deadline=None, max_examples=60)
def test_blocks_of_any_cut_store_what_single_samples_store(drawn: tuple[list[Rates], list[int]]) -> None:
    stream, cuts = drawn
    single = encode_batch(1, _batch(stream))
    blocks = _batch([_received(stream[a:b]) for a, b in pairwise(cuts)])
    joined = encode_batch(1, blocks)
    assert blocks.rates() == stream
    assert decode(joined.chunk) == decode(single.chunk)
    assert joined.chunk.scalars == single.chunk.scalars
    assert [_plain(one) for one in joined.minutes] == [_plain(one) for one in single.minutes]
    for one, other in zip(joined.minutes, single.minutes, strict=True):
        assert one.amounts == pytest.approx(other.amounts)


@given(_cut_streams())
@settings(deadline=None, max_examples=30)
def test_minutes_of_blocks_add_up_to_the_minutes_of_all(drawn: tuple[list[Rates], list[int]]) -> None:
    stream, cuts = drawn
    whole = merge_rollups(minute_rollups(stream))
    parts = merge_rollups([part for a, b in pairwise(cuts) for part in minute_rollups(stream[a:b])])
    assert (parts.peaks == whole.peaks).all()
    assert (parts.netdevs, parts.samples) == (whole.netdevs, whole.samples)
    assert {name: value for name, value in parts.amounts.items() if not name.startswith("cpu_")} == pytest.approx(
        {name: value for name, value in whole.amounts.items() if not name.startswith("cpu_")}
    )


def test_a_block_is_cut_after_what_is_stored() -> None:
    block = _received(STREAM[:9]).after(STREAM[5].seq)
    assert block.rates() == STREAM[6:9]
    assert (block.first_seq, block.samples) == (STREAM[6].seq, 3)


def test_the_times_of_a_block_are_corrected() -> None:
    message = block_message(STREAM[:3])
    block = read_block(message.first_seq, message.last_seq, message.packed, 5000)[0]
    assert [each.time_ms for each in block.rates()] == [each.time_ms + 5000 for each in STREAM[:3]]
    assert block.columns().times_ms.tolist() == [each.time_ms + 5000 for each in STREAM[:3]]


GOOD = pack_block(STREAM[:4])
_U32 = np.array([1, 2, 3], "<u4").tobytes()
BAD_BLOCKS: dict[str, tuple[dict[str, object], str]] = {
    "a short column": ({"times_ms": GOOD.times_ms[:-8]}, "times_ms has 24 bytes"),
    "no samples": ({"seqs": b""}, "0 samples"),
    "a share above 100 %": ({"shares": bytes([201]) + GOOD.shares[1:]}, "a share is not 0 to 200"),
    "too few shares": ({"shares": GOOD.shares[1:]}, "shares has"),
    "counts that are no planes": ({"counts": GOOD.counts + b"x"}, "counts has"),
    "a column twice": ({"share_names": ["busy", *GOOD.share_names[:-1]]}, "listed twice"),
    "an infinite duration": ({"durations_s": np.full(4, np.inf, "<f8").tobytes()}, "duration_s"),
    "a duration that is no number": ({"durations_s": np.full(4, np.nan, "<f8").tobytes()}, "duration_s"),
    "CPU time below 0": ({"agent_cpu_s": np.full(4, -1, "<f8").tobytes()}, "agent_cpu_s"),
    "a number beyond 2⁵³": ({"scalars": b"\xff" * 7 + b"\x7f" + GOOD.scalars[8:]}, "scalars"),
    "sequence numbers that stand still": ({"seqs": GOOD.seqs[:8] * 3 + GOOD.seqs[-8:]}, "do not grow"),
    "a cell twice": ({"cell_ids": bytes(len(GOOD.cell_ids or b"")), "cell_cpus": bytes(len(GOOD.cell_cpus))}, "twice"),
    "more cells than there are": ({"cell_lengths": np.full(4, 2**31, "<u4").tobytes()}, "are more than"),
    "a cell twice in a sample": ({"cell_places": bytes(len(GOOD.cell_places))}, "has an interrupt cell twice"),
    "a netdev with control characters": ({"netdevs": ["eth\n0"]}, "has control characters"),
    "an unknown cell": ({"cell_places": b"\xff" * len(GOOD.cell_places)}, "names cell"),
    "a netdev twice": ({"netdevs": ["a", "a"]}, "netdev is listed twice"),
    "absent from a sample beyond": ({"absent": {"busy": [4]}}, "absent from sample 4"),
    "too many CPUs for its samples": ({"cpus": 8192, "seqs": bytes(8 * 100)}, "too many"),
}


@pytest.mark.parametrize("case", BAD_BLOCKS)
def test_an_invalid_block_is_refused_with_the_reason(case: str) -> None:
    changes, reason = BAD_BLOCKS[case]
    bad: RatesBlock = replace(GOOD, **changes)
    with pytest.raises(BlockError, match=reason):
        read_block(STREAM[0].seq, STREAM[3].seq, compress_block(bad), 0)


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (b"", "incomplete"),
        (b"garbage", "cannot be decompressed"),
        (compress_block(GOOD)[:-3], "incomplete"),
        (compress_block(GOOD) + b"x", "incomplete"),
    ],
)
def test_what_is_no_block_is_refused_with_the_reason(packed: bytes, reason: str) -> None:
    with pytest.raises(BlockError, match=reason):
        read_block(1, 4, packed, 0)


def test_a_block_has_the_samples_that_its_message_names() -> None:
    with pytest.raises(BlockError, match="its samples are not 1 to 5"):
        read_block(1, 5, compress_block(GOOD), 0)
    far = [STREAM[0], replace(STREAM[1], time_ms=STREAM[1].time_ms + 60_000)]
    with pytest.raises(BlockError, match=r"its times span 6\d"):
        read_block(far[0].seq, far[1].seq, compress_block(pack_block(far)), 0)


def test_columns_that_only_a_newer_agent_knows_are_ignored() -> None:
    count, cpus = GOOD.samples, GOOD.cpus
    newer = replace(GOOD, share_names=[*GOOD.share_names, "guest"], shares=GOOD.shares + bytes(count * cpus))
    columns = sample_columns.read_block(newer)
    assert columns.shares.tobytes() == GOOD.shares
    older = replace(GOOD, share_names=GOOD.share_names[:-1], shares=GOOD.shares[: -count * cpus])
    columns = sample_columns.read_block(older)
    assert (columns.shares[-1] == ABSENT_SHARE).all() and columns.lacks("iowait").all()


async def test_blocks_are_stored_once_whatever_is_sent_again(quick: Backend, database_url: str) -> None:
    agent = await enrolled(quick.database, quick.url, "blocks")
    stream = [rates(seq, time_ms=now_ms() - 1000 * (20 - seq)) for seq in range(1, 21)]
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        assert (await agent.greet(features=[COLUMNS])).features == [*FEATURES]
        await agent.send_block(stream[:7])
        await agent.until_acked(7)
        await agent.websocket.close()
        await agent.connect()
        assert (await agent.greet(features=[COLUMNS])).acked_seq == 7
        await agent.send_block(stream[4:12])  # the first three are stored
        await agent.send_block(stream[12:])
        await agent.until_acked(20)
    assert await stored_seqs(database_url, agent.node_id) == list(range(1, 21))


async def test_an_invalid_block_is_rejected_and_the_next_one_stored(quick: Backend, database_url: str) -> None:
    agent = await enrolled(quick.database, quick.url, "rejected-block")
    stream = [rates(seq, time_ms=now_ms() - 1000 * (9 - seq)) for seq in range(1, 9)]
    bad = replace(block_message(stream[:3]), packed=b"garbage")
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        await agent.greet(features=[COLUMNS])
        await agent.say(bad)
        while not isinstance(message := decode_to_agent(await agent.receive()), Rejected):
            pass
        assert (message.first_seq, message.last_seq) == (1, 3) and "decompressed" in message.reason
        await agent.send_block(stream[3:])
        await agent.until_acked(8)
        await agent.websocket.close()
        await agent.connect()
        assert (await agent.greet(features=[COLUMNS])).rejected == 3
    assert await stored_seqs(database_url, agent.node_id) == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("wrong", [{"time_ms": 1}, {"time_ms": "noon"}], ids=["out of range", "not decodable"])
async def test_an_invalid_live_sample_costs_no_sample_of_the_blocks(
    quick: Backend, database_url: str, wrong: dict[str, object]
) -> None:
    agent = await enrolled(quick.database, quick.url, f"invalid-live-{wrong['time_ms']}")
    stream = [rates(seq, time_ms=now_ms() - 1000 * (9 - seq)) for seq in range(1, 9)]
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        await agent.greet(features=[COLUMNS])
        live = msgspec.to_builtins(stream[7], builtin_types=(bytes,)) | wrong
        await agent.websocket.send(msgspec.msgpack.encode({"type": "rates", "rates": live}))
        await agent.send_block(stream)
        await agent.until_acked(8)
        await agent.websocket.close()
    assert await stored_seqs(database_url, agent.node_id) == [*range(1, 9)]


async def test_a_node_says_what_its_older_agent_lacks(quick: Backend) -> None:
    viewer = await quick.client("viewer")
    for features, lacks in (([COLUMNS], ["summaries between blocks", "RSS contexts"]), ([*FEATURES], [])):
        agent = await enrolled(quick.database, quick.url, f"lacks-{len(lacks)}")
        async with asyncio.timeout(PATIENCE_S):
            await agent.connect()
            await agent.greet(features=features)

            async def is_known(path: str = f"/api/v1/nodes/{agent.node_id}") -> bool:
                return (await viewer.get(path)).json()["lacks"] is not None

            await poll_async(is_known)
            assert (await viewer.get(f"/api/v1/nodes/{agent.node_id}")).json()["lacks"] == lacks
            await agent.websocket.close()


async def test_an_agent_that_sends_summaries_only_with_blocks_is_asked_for_short_ones(database_url: str) -> None:
    async with running_backend(database_url) as backend, asyncio.timeout(PATIENCE_S):
        for features, block_s in (([COLUMNS], SUMMARY_S), ([*FEATURES], BLOCK_S)):
            agent = await enrolled(backend.database, backend.url, f"blocks-of-{block_s:.0f}")
            await agent.connect()
            assert (await agent.greet(features=features)).block_s == block_s
            await agent.websocket.close()


async def test_a_summary_makes_a_node_live_with_its_figures(quick: Backend) -> None:
    agent = await enrolled(quick.database, quick.url, "summarized")
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        await agent.greet(features=[COLUMNS])
        summary = summarize(rates(1), None)
        await tell(quick.app.state.bus, agent, SummaryMessage(summary))
    state = quick.app.state.registry.get(agent.node_id)
    assert state.health(seen_before=True) == "live"
    figures = state.latest_figures()
    assert figures.metrics == {name: summary.metrics.get(name) for name in FLEET_METRICS}
    await agent.websocket.close()


async def test_interest_in_a_node_brings_every_sample_and_ends_by_itself(
    quick: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await enrolled(quick.database, quick.url, "watched")
    interest, state = quick.app.state.interest, quick.app.state.registry.get_or_create(agent.node_id)
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        await agent.greet(features=[COLUMNS])
        await tell(quick.app.state.bus, agent)
        monkeypatch.setattr("coresteer.presence.interest._FRESH_WITHIN_S", PATIENCE_S)
        refreshed = asyncio.create_task(interest.refresh(agent.node_id))
        while not isinstance(message := decode_to_agent(await agent.receive()), Watch):
            pass
        assert message.detail is Detail.SAMPLES
        await agent.send_block([rates(1)])
        await agent.send_rates([rates(2)])
        await refreshed
        assert [each.seq for each in state.recent_rates()] == [2]
        assert [each.seq for each in quick.app.state.ingest.unstored(agent.node_id)][-1] == 2
        await agent.send_block([rates(2)])  # the block brings what was live before
        await agent.until_acked(2)
        monkeypatch.setitem(interest._until[Detail.SAMPLES], agent.node_id, 0.0)
        while not isinstance(message := decode_to_agent(await agent.receive()), Watch):
            pass
        assert message.detail is Detail.BLOCKS
    await agent.websocket.close()


async def test_a_node_that_is_needed_is_watched_again_after_it_reconnects(quick: Backend) -> None:
    agent = await enrolled(quick.database, quick.url, "watched-again")
    quick.app.state.interest.need(agent.node_id)
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        await agent.greet(features=[COLUMNS])
        while not isinstance(message := decode_to_agent(await agent.receive()), Watch):
            pass
        assert message.detail is Detail.SAMPLES
        await agent.websocket.close()
        await poll_async(lambda: not quick.app.state.connections.is_connected(agent.node_id), timeout_s=PATIENCE_S)


async def test_messages_that_only_a_newer_agent_knows_are_ignored(quick: Backend) -> None:
    agent = await enrolled(quick.database, quick.url, "newer")
    async with asyncio.timeout(PATIENCE_S), agent:
        await agent.websocket.send(msgspec.msgpack.encode({"type": "of-tomorrow", "field": 1}))
        await agent.send_rates([rates(1)])
        await agent.until_acked(1)


def test_the_recent_intervals_are_those_of_the_last_block_until_every_sample_arrives() -> None:
    state, stream = NodeState(), [replace(TEMPLATE, seq=seq, time_ms=1000 * seq) for seq in range(1, 40)]
    state.add_block(_received(stream[:10]))
    assert [each.seq for each in state.recent_rates()] == [6, 7, 8, 9, 10]
    state.add_rates(stream[12])
    assert [each.seq for each in state.recent_rates()] == [13]
    state.add_block(_received(stream[20:30]))
    assert [each.seq for each in state.recent_rates()] == [26, 27, 28, 29, 30]


def test_mutated_blocks_are_refused_or_can_be_stored_and_read() -> None:
    mutator = FrameMutator(5, now_ms())
    whole, refused, stored = msgspec.msgpack.encode(GOOD), 0, 0
    for turn in range(400):
        mutated = (mutator.with_other_field if turn % 3 else mutator.with_other_bytes)(whole)
        try:
            block, _ = read_block(STREAM[0].seq, STREAM[3].seq, zlib.compress(mutated, 1), 0)
        except BlockError:
            refused += 1
        else:
            stored += 1
            encoded = encode_batch(1, _batch([block, _received(STREAM[4:8])]))
            assert len(decode(encoded.chunk)) == 8
            assert len(block.rates()) == 4
            assert msgspec.msgpack.encode(block.rates())
    assert refused > 20
    assert stored > 20


def _node() -> tuple[Ingest, SampleBuffer]:
    config = Config.model_validate({})
    ingest = Ingest(None, Connections(), config, lambda _: None, None)  # type: ignore[arg-type]  # nothing is stored
    return ingest, ingest.open_buffer(7, "s", StreamPosition(None, 0))


@pytest.mark.parametrize("block_s", [10, 30])
@pytest.mark.parametrize("moved_ms", [0, 5000])
def test_blocks_become_one_chunk_a_minute_which_is_encoded_with_the_last_of_them(block_s: int, moved_ms: int) -> None:
    ingest, buffer = _node()
    stream = machine(200, cpus=2, irqs=3)
    for first in range(0, 200, block_s):
        message = block_message(stream[first : first + block_s])
        block, columns = read_block(message.first_seq, message.last_seq, message.packed, moved_ms)
        ingest.add(buffer, block, block.size, columns)
    assert [batch.samples for batch in buffer.waiting] == [60, 60, 60]
    assert [rates.seq for rates in ingest.unstored(7)] == list(range(1, 201))
    for batch in buffer.waiting:
        again = encode_batch(7, batch)
        assert batch.encoded is not None and batch.encoded.chunk == again.chunk
        assert list(map(pack_shares, batch.encoded.minutes)) == list(map(pack_shares, again.minutes))
    assert ingest.waiting_bytes == buffer.size


def test_a_block_that_repeats_buffered_samples_is_encoded_without_them() -> None:
    ingest, buffer = _node()
    stream = machine(90, cpus=2, irqs=3)
    for first, last in ((0, 30), (20, 50), (40, 70)):
        message = block_message(stream[first:last])
        block, columns = read_block(message.first_seq, message.last_seq, message.packed, 0)
        ingest.add(buffer, block, block.size, columns)
    (batch,) = buffer.waiting
    assert batch.encoded is None, "its last block was cut, so that it is encoded before it is stored"
    assert encode_batch(7, batch).chunk.samples == 50
    assert [rates.seq for rates in ingest.unstored(7)] == list(range(1, 71))


def test_blocks_that_wait_are_bounded_in_memory() -> None:
    ingest, buffer = _node()
    block = _received(STREAM[:4])
    for turn in range(20):
        ingest.add(buffer, with_changes(block, first_seq=4 * turn + 1, last_seq=4 * turn + 4), 2 * 1024**2)
    assert buffer.rejecting and buffer.size == NODE_LIMIT_BYTES


def test_blocks_are_bounded_by_the_arrays_that_they_become() -> None:
    empty: dict[str, object] = {
        "shares": b"",
        "counts": b"",
        "share_names": [],
        "count_names": [],
        "cell_ids": None,
        "cell_cpus": b"",
    }
    bare = replace(GOOD, cpus=8192, cell_lengths=b"", cell_places=b"", cell_counts=b"", absent={}, **empty)
    block, _ = read_block(STREAM[0].seq, STREAM[3].seq, compress_block(bare), 0)
    assert block.size < 2000
    assert block.unpacked >= 4 * 8192 * (len(CPU_SHARES) + 4 * len(CPU_COUNTS))
    assert not _batch([block] * 3).accepts(block, 60_000)


def test_a_restarted_agent_leaves_no_live_samples_of_the_stream_before() -> None:
    ingest, buffer = _node()
    ingest.add_live(buffer, STREAM[5], 100)
    ingest.open_buffer(7, "s2", StreamPosition(None, 0))
    assert ingest.unstored(7) == []


def test_an_agent_that_was_connected_elsewhere_continues_after_what_is_stored() -> None:
    ingest, buffer = _node()
    assert ingest.open_buffer(7, "s", StreamPosition("s", 9, 2)) is buffer
    assert (buffer.acked_seq, buffer.last_seq, buffer.rejected) == (9, 9, 2)
    ingest.add(buffer, STREAM[10], 100)
    ingest.open_buffer(7, "s", StreamPosition("s", 20, 2))  # the database decides when it stores what is buffered
    assert buffer.acked_seq == 9


def test_live_samples_complete_the_history_until_a_block_brings_them() -> None:
    ingest, buffer = _node()
    ingest.add(buffer, first := _received(STREAM[:4]), first.size)
    for rates_ in STREAM[3:6]:
        ingest.add_live(buffer, rates_, 100)
    assert ingest.unstored(7) == STREAM[:6]
    ingest.add(buffer, second := _received(STREAM[4:10]), second.size)
    assert ingest.unstored(7) == STREAM[:10]


def test_no_live_sample_stays_in_memory_once_a_block_has_brought_it_or_the_connection_has_ended() -> None:
    ingest, buffer = _node()
    for rates_ in STREAM[:6]:
        ingest.add_live(buffer, rates_, 100)
    ingest.add(buffer, first := _received(STREAM[:4]), first.size)
    assert list(buffer.live) == STREAM[4:6]
    ingest.close_buffer(buffer)  # the agent may send the next block to another backend
    assert ingest.unstored(7) == STREAM[:4]


def test_live_samples_complete_the_history_for_as_long_as_a_block_lasts_at_any_interval() -> None:
    ingest, buffer = _node()
    for seq in range(1, 301):  # every 0.1 s for 30 s
        ingest.add_live(buffer, replace(STREAM[0], seq=seq), 100)
    assert [rates_.seq for rates_ in ingest.unstored(7)] == list(range(1, 301))
