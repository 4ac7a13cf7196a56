"""What agents may say, and what becomes of those that say something else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import uuid4

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.backend.conftest import Backend, running_backend
from tests.backend.fake_agent import FakeAgent, enrolled, hello, now_ms, rates, stored_seqs
from tests.support.polling import PATIENCE_S
from websockets.exceptions import ConnectionClosed

from coresteer.telemetry.repository import to_unix_ms
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.node.nic import (
    MAX_MESSAGE,
    MAX_POINTS,
    MAX_RESPONSES,
    CoalescingPoint,
    DriverRecord,
    DriverResponse,
    NicKnowledge,
    Verdict,
)
from coresteer_core.node.rates import NetdevCounts
from coresteer_core.node.tasks import NetTask
from coresteer_core.policies.base import Evaluation, Mode, Skipped
from coresteer_core.protocol import (
    COMPATIBLE_PROTOCOLS,
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Ack,
    Apply,
    Clock,
    Confirm,
    DecisionMessage,
    Extend,
    FlowsMessage,
    LearnedMessage,
    Ping,
    RatesMessage,
    Rejected,
    ToAgent,
    ToBackend,
    decode_to_agent,
    encode,
)

DAY_MS = 24 * 3600 * 1000
CLOCK_ERROR_MS = 1000 * PATIENCE_S
"""No message takes longer."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def quick(database_url: str) -> AsyncIterator[Backend]:
    async with running_backend(database_url, chunk_seconds=1) as backend:
        yield backend


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bystander(quick: Backend) -> AsyncIterator[FakeAgent]:
    """An agent that goes on sending while others misbehave."""
    agent = await enrolled(quick.database, quick.url, "bystander")
    async with agent:
        yield agent


def _rates(**changes: object) -> bytes:
    return encode(RatesMessage(replace(rates(1), **changes)))


NET_TASK = NetTask(812, 5, "nginx", "/web", 4, "0-3", "0-3", 1, 0.4, 0.0, [])


def _decision(*, change_id: str | None = None, **changes: object) -> bytes:
    evaluation = replace(Evaluation("1", 1, Mode.OBSERVE, "Nothing to do."), **changes)
    return encode(DecisionMessage(now_ms(), evaluation, change_id))


RESPONSE = DriverResponse("coalesce/rx-usecs", "500", Verdict.ROUNDED, "504", "", now_ms())
POINT = CoalescingPoint("eth0", 54, None, False, 5.0, 5000, 500_000, 4000, 0)


def _learned(
    *, responses: list[DriverResponse] | None = None, points: list[CoalescingPoint] | None = None, drivers: int = 1
) -> bytes:
    record = DriverRecord("igb", "6.1", responses or [])
    return encode(LearnedMessage(NicKnowledge([record] * drivers, points or [])))


BAD_FRAMES: dict[str, tuple[str | bytes, int, str]] = {
    "garbage": (b"\xc1\x00\xff garbage", 4400, "Invalid message"),
    "nothing": (b"", 4400, "Invalid message"),
    "a process on no CPU": (
        encode(FlowsMessage(now_ms(), [replace(NET_TASK, cpu=8192)])),
        4400,
        "$.tasks[0].cpu",
    ),
    "a share that is no number": (
        encode(FlowsMessage(now_ms(), [replace(NET_TASK, cpu_share=float("nan"))])),
        4400,
        "$.tasks[0].cpu_share",
    ),
    "a cpuset that is none": (encode(FlowsMessage(now_ms(), [replace(NET_TASK, allowed="3-")])), 4400, "Flows:"),
    "flows of 1970": (encode(FlowsMessage(0, [])), 4400, "set the node's clock"),
    "too many drivers": (_learned(drivers=17), 4400, "$.learned.drivers"),
    "too many values of a driver": (
        _learned(responses=[RESPONSE] * (MAX_RESPONSES + 1)),
        4400,
        "$.learned.drivers[0].responses",
    ),
    "too many points of a netdev": (
        _learned(points=[POINT] * (MAX_POINTS + 1)),
        4400,
        "33 points of one",
    ),
    "points of too many netdevs": (
        _learned(points=[replace(POINT, netdev=f"eth{n}") for n in range(17)]),
        4400,
        "17 netdevs with points exceed",
    ),
    "a driver that says too much": (
        _learned(responses=[replace(RESPONSE, message="x" * (MAX_MESSAGE + 1))]),
        4400,
        "$.learned.drivers[0].responses[0].message",
    ),
    "a value with a line break": (_learned(responses=[replace(RESPONSE, read_back="1\n2")]), 4400, "Learned: "),
    "a value asked long after the end of time": (
        _learned(responses=[replace(RESPONSE, time_ms=2**62)]),
        4400,
        "time_ms",
    ),
    "a point of no number of seconds": (
        _learned(points=[replace(POINT, seconds=float("nan"))]),
        4400,
        ".seconds",
    ),
    "a point of fewer than no packets": (
        _learned(points=[replace(POINT, rx_packets=-1)]),
        4400,
        ".rx_packets",
    ),
    "a point of endless round trips": (
        _learned(points=[replace(POINT, rtt_us_s=float("inf"))]),
        4400,
        ".rtt_us_s",
    ),
    "a point that waits for ever": (_learned(points=[replace(POINT, rx_usecs=2**40)]), 4400, ".rx_usecs"),
    "a policy without a number": (_decision(policy_id="x"), 4400, "$.evaluation.policy_id"),
    "an action that is no setting": (
        _decision(actions=[Action("cmd/reboot", "0", "1", "")]),
        4400,
        "'cmd/reboot' is not a setting",
    ),
    "an action without CPUs": (_decision(actions=[Action("irq/1/affinity", "", "1", "")]), 4400, "Decision:"),
    "a change that is no UUID": (_decision(change_id="1"), 4400, "'1' is not a UUID"),
    "a sentence of two lines": (_decision(sentence="a\nb"), 4400, "control characters"),
    "too many reasons": (_decision(skipped=[Skipped("a", "b")] * 4097), 4400, "$.evaluation.skipped"),
    "truncated": (_rates()[:-7], 4400, "Invalid message"),
    "no type": (msgspec.msgpack.encode({"run": "id"}), 4400, "Invalid message"),
    "a message of the backend's": (encode(Confirm("1")), 4400, "Invalid message"),
    "huge": (b"\x00" * (MAX_FRAME_BYTES + 1), 1009, ""),
    "text": ("hello", 4400, "Text frames"),
    "a second hello": (encode(hello()), 4400, "sent Hello twice"),
    "a sequence number that does not grow": (_rates(seq=0), 4400, "does not exceed"),
    "an answer to no ping": (encode(Clock(5, 5)), 4400, "no Ping"),
}


INVALID_SAMPLES: dict[str, tuple[bytes, str]] = {
    "too few shares": (_rates(shares={"busy": b"\x00"}), "busy has 1 bytes for 4 CPUs"),
    "a share over 100 %": (_rates(shares={"busy": b"\x00\xc9\x00\x00"}), "busy contains 201"),
    "half a count": (_rates(counts={"dropped": b"\x00" * 15}), "dropped has 15 bytes"),
    "no CPUs": (_rates(cpus=0), "$.rates.cpus"),
    "too many CPUs": (_rates(cpus=8193), "$.rates.cpus"),
    "cells that differ": (_rates(irq_ids=b"\x00" * 8), "cells differ"),
    "a cell twice": (_rates(irq_ids=bytes(8), irq_cpus=bytes(4), irq_counts=bytes(8)), "cell is listed twice"),
    "half the cells": (_rates(irq_cpus=None), "are present"),
    "a netdev twice": (_rates(netdevs=[NetdevCounts("a", *[1] * 8)] * 2), "netdev a is listed twice"),
    "a netdev with a control character": (_rates(netdevs=[NetdevCounts("a\x00", *[1] * 8)]), "control"),
    "a negative count": (_rates(netdevs=[NetdevCounts("a", -1, *[1] * 7)]), "$.rates.netdevs[0]"),
    "a duration of nothing": (_rates(duration_s=0.0), "duration_s"),
    "a duration that is no number": (_rates(duration_s=float("nan")), "duration_s"),
    "a time long ago": (_rates(time_ms=now_ms() - 2 * DAY_MS), "24 hours"),
    "a time to come": (_rates(time_ms=now_ms() + 2 * DAY_MS), "24 hours"),
}


@pytest.mark.parametrize("case", BAD_FRAMES)
async def test_a_bad_frame_closes_its_connection_with_the_reason_and_no_other(
    quick: Backend, bystander: FakeAgent, case: str
) -> None:
    frame, code, reason = BAD_FRAMES[case]
    agent = await enrolled(quick.database, quick.url, f"bad-{list(BAD_FRAMES).index(case)}")
    async with asyncio.timeout(PATIENCE_S), agent:
        with suppress(ConnectionClosed):  # the backend need not have read all of it
            await agent.websocket.send(frame)
        got_code, got_reason = await agent.closed()
        assert (got_code, reason in got_reason) == (code, True), got_reason
        await bystander.send_rates([rates(bystander.acked + 1)])
        await bystander.until_acked(bystander.acked + 1)


BAD_GREETINGS: dict[str, tuple[ToBackend, int, str]] = {
    "an older protocol": (
        hello(protocol=COMPATIBLE_PROTOCOLS[0] - 1),
        4406,
        f"protocol {COMPATIBLE_PROTOCOLS[0] - 1}, the backend {COMPATIBLE_PROTOCOLS[0]}",
    ),
    "a newer protocol": (
        hello(protocol=PROTOCOL_VERSION + 2),
        4406,
        f"protocol {PROTOCOL_VERSION + 2}, the backend {COMPATIBLE_PROTOCOLS[0]}",
    ),
    "no hello": (RatesMessage(rates(1)), 4400, "must be hello"),
    "a mode nobody knows": (hello(mode="root"), 4400, "$.mode"),
    "no stream": (hello(stream=""), 4400, "stream"),
    "a long host name": (hello(hostname="h" * 257), 4400, "$.hostname"),
    "an interval of nothing": (hello(interval_s=0.0), 4400, "interval_s"),
}


@pytest.mark.parametrize("case", BAD_GREETINGS)
async def test_a_bad_greeting_is_refused_with_the_reason(quick: Backend, case: str) -> None:
    message, code, reason = BAD_GREETINGS[case]
    agent = await enrolled(quick.database, quick.url, f"greeting-{list(BAD_GREETINGS).index(case)}")
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        await agent.say(message)
        got_code, got_reason = await agent.closed()
    assert (got_code, reason in got_reason) == (code, True), got_reason


async def test_an_unknown_key_closes_the_connection_with_the_reason(quick: Backend) -> None:
    agent = FakeAgent(quick.url, "csn_unknown", 0)
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        code, reason = await agent.closed()
    assert code == 4401 and "enrol" in reason


async def test_a_revoked_key_ends_its_connection_and_opens_no_other(quick: Backend) -> None:
    agent = await enrolled(quick.database, quick.url, "revoked")
    admin = await quick.client("admin")
    async with asyncio.timeout(PATIENCE_S), agent:
        answer = await admin.post(f"/api/v1/nodes/{agent.node_id}/revoke-key")
        assert answer.status_code == 204
        assert (await agent.closed())[0] == 4401
        await agent.connect()
        assert (await agent.closed())[0] == 4401


async def test_a_change_that_comes_after_a_question_about_it_is_not_applied(
    quick: Backend, bystander: FakeAgent
) -> None:
    connection = quick.app.state.connections.get(bystander.node_id)
    late, other = (Apply(name, Plan([]), 60.0, []) for name in ("late", "other"))
    for message in (Extend("late", 0.0), late, other):
        connection.post(message)
    heard: list[ToAgent] = []
    while other not in heard:
        heard.append(decode_to_agent(await bystander.receive()))
    assert Extend("late", 0.0) in heard and late not in heard


async def test_a_second_connection_of_a_node_replaces_the_first(quick: Backend) -> None:
    first = await enrolled(quick.database, quick.url, "twice")
    second = FakeAgent(quick.url, first.key, first.node_id)
    async with asyncio.timeout(PATIENCE_S), first, second:
        assert (await first.closed())[0] == 4409
        await second.send_rates([rates(1)])
        await second.until_acked(1)


async def test_an_acknowledged_sample_is_stored_once_however_often_it_is_replayed(
    quick: Backend, database_url: str
) -> None:
    agent = await enrolled(quick.database, quick.url, "replays")
    stream = [rates(seq) for seq in range(1, 8)]
    async with asyncio.timeout(PATIENCE_S):
        async with agent:
            await agent.send_rates(stream[:4])
            await agent.until_acked(4)
        async with agent:
            assert agent.acked == 4
            await agent.send_rates(stream)
            await agent.until_acked(7)
        agent.stream = "another process"
        async with agent:
            assert agent.acked == 0
            await agent.send_rates([rates(1)])
            await agent.until_acked(1)
    assert await stored_seqs(database_url, agent.node_id) == [1, 1, 2, 3, 4, 5, 6, 7]


async def test_samples_of_before_an_outage_go_where_their_time_belongs(quick: Backend, database_url: str) -> None:
    agent = await enrolled(quick.database, quick.url, "late")
    async with asyncio.timeout(PATIENCE_S), agent:
        hours_ago = [rates(1 + h, time_ms=now_ms() - (20 - h) * 3_600_000) for h in range(20)]
        await agent.send_rates(hours_ago)
        await agent.until_acked(20)
    async with quick.database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT count(DISTINCT tableoid), count(*) FROM telemetry_chunk WHERE node_id = %s", (agent.node_id,)
        )
        assert await cursor.fetchone() == (20, 20)


async def test_the_clock_skew_is_measured_with_half_the_round_trip(quick: Backend) -> None:
    agent = await enrolled(quick.database, quick.url, "skewed")
    async with asyncio.timeout(PATIENCE_S), agent:
        while not isinstance(ping := decode_to_agent(await agent.receive()), Ping):
            pass
        await agent.say(Clock(ping.ping_ms, now_ms() + 3_600_000))
        await agent.send_rates([rates(1)])
        await agent.until_acked(1)
    viewer = await quick.client("viewer")
    node = (await viewer.get(f"/api/v1/nodes/{agent.node_id}")).json()
    assert abs(node["clock_skew_ms"] - 3_600_000) < CLOCK_ERROR_MS


async def test_a_time_after_the_year_6429_is_refused(quick: Backend) -> None:
    agent = await enrolled(quick.database, quick.url, "another age")
    async with asyncio.timeout(PATIENCE_S), agent:
        while not isinstance(ping := decode_to_agent(await agent.receive()), Ping):
            pass
        await agent.say(Clock(ping.ping_ms, 2**52))
        code, reason = await agent.closed()
    assert (code, "$.node_ms" in reason) == (4400, True), reason


async def test_a_wrong_clock_is_shown_and_its_samples_are_stored_at_the_corrected_time(quick: Backend) -> None:
    off_ms = 40 * DAY_MS
    agent = await enrolled(quick.database, quick.url, "wrong-clock")
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        now = now_ms()
        await agent.greet(time_ms=now + off_ms, interval_s=60.0)  # it is live for three of them
        while not isinstance(ping := decode_to_agent(await agent.receive()), Ping):
            pass
        backlog = [now - 600_000, now - 540_000, now - 1000]
        await agent.send_rates([rates(seq, time_ms=time + off_ms) for seq, time in enumerate(backlog, 1)])
        await agent.say(FlowsMessage(now + off_ms, [NET_TASK]))
        await agent.until_acked(3)
        await agent.say(ChangeMessage(str(uuid4()), ChangeState.APPLYING, "Control continues.", []))
        await agent.say(Clock(ping.ping_ms, now_ms() + off_ms))
        await agent.send_rates([rates(4, time_ms=now_ms() + off_ms)])
        await agent.until_acked(4)
        viewer = await quick.client("viewer")
        node = (await viewer.get(f"/api/v1/nodes/{agent.node_id}")).json()
        await agent.websocket.close()
    assert abs(node["clock_skew_ms"] - node["clock_correction_ms"] - off_ms) < CLOCK_ERROR_MS
    assert node["health"] == "live"
    async with quick.database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT t1 FROM telemetry_chunk WHERE node_id = %s ORDER BY first_seq", (agent.node_id,)
        )
        stored = [to_unix_ms(t1) for (t1,) in await cursor.fetchall()]
    assert stored == sorted(stored)
    assert all(abs(found - at) < CLOCK_ERROR_MS for found, at in zip(stored, [*backlog, now], strict=False))


async def test_a_clock_that_is_set_by_days_while_connected_is_measured_anew(quick: Backend) -> None:
    agent = await enrolled(quick.database, quick.url, "clock-set")
    async with asyncio.timeout(PATIENCE_S), agent:
        while not isinstance(ping := decode_to_agent(await agent.receive()), Ping):
            pass
        await agent.say(Clock(ping.ping_ms, now_ms() + 2 * DAY_MS))
        code, reason = await agent.closed()
    assert (code, "measure its offset" in reason) == (1013, True), reason


async def test_an_invalid_sample_is_rejected_and_counted_and_the_others_are_stored(
    quick: Backend, database_url: str
) -> None:
    agent = await enrolled(quick.database, quick.url, "invalid-samples")
    said: dict[int, str] = {}
    async with asyncio.timeout(PATIENCE_S), agent:
        for seq, (frame, _) in enumerate(INVALID_SAMPLES.values(), 1):
            sample = msgspec.msgpack.decode(frame)
            sample["rates"]["seq"] = seq
            await agent.websocket.send(msgspec.msgpack.encode(sample))
        last = len(INVALID_SAMPLES) + 1
        await agent.send_rates([rates(last)])
        while agent.acked < last:
            message = decode_to_agent(await agent.receive())
            if isinstance(message, Rejected):
                assert message.first_seq == message.last_seq
                said[message.first_seq] = message.reason
            elif isinstance(message, Ack):
                agent.acked = message.seq
    assert len(said) == len(INVALID_SAMPLES)
    for seq, (case, (_, reason)) in enumerate(INVALID_SAMPLES.items(), 1):
        assert reason in said[seq], case
    assert await stored_seqs(database_url, agent.node_id) == [last]
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        welcome = await agent.greet()
        await agent.websocket.close()
        assert (welcome.acked_seq, welcome.rejected) == (last, len(INVALID_SAMPLES))
    viewer = await quick.client("viewer")
    assert (await viewer.get(f"/api/v1/nodes/{agent.node_id}")).json()["rejected_samples"] == len(INVALID_SAMPLES)


async def test_an_agent_that_floods_is_throttled_without_effect_on_others(quick: Backend, bystander: FakeAgent) -> None:
    agent = await enrolled(quick.database, quick.url, "floods")
    async with asyncio.timeout(PATIENCE_S), agent:
        flood = asyncio.create_task(agent.send_rates([rates(seq) for seq in range(1, 1201)]))
        await bystander.send_rates([rates(bystander.acked + 1)])
        await bystander.until_acked(bystander.acked + 1)
        await flood
        assert agent.acked < 1200
        await agent.until_acked(1200)
