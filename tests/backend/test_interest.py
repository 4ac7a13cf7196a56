"""Interest: what agents are asked for while somebody needs it, and that no node seems stale meanwhile."""

import asyncio
from collections import deque
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.backend.fake_agent import TEMPLATE, hello
from tests.support.polling import PATIENCE_S, poll_async

from coresteer.presence import interest as interest_module
from coresteer.presence import registry as registry_module
from coresteer.presence.connections import Connections
from coresteer.presence.interest import Interest
from coresteer.presence.registry import NodeRegistry, NodeState
from coresteer.presence.schemas import Health
from coresteer_agent.transport.samples import OutgoingSamples
from coresteer_core.protocol import (
    BLOCK_S,
    COLUMNS,
    SUMMARY_S,
    Detail,
    SummaryMessage,
    ToAgent,
    Watch,
    decode_to_backend,
)

STEP_S = 0.25


class Clock:
    """Time of a test, in place of the module time."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Peer:
    """A connection that keeps what is sent to the agent."""

    stream, host, epoch, obeys_stops = "s1", "", 1, True

    def __init__(self, *, sends_columns: bool = True) -> None:
        self.sends_columns = sends_columns
        self.asked: list[Detail] = []

    def post(self, message: ToAgent) -> None:
        assert isinstance(message, Watch)
        self.asked.append(message.detail)

    def close(self, code: int, reason: str) -> None:
        raise AssertionError(f"{code} {reason}")


class Fleet:
    """Connected agents, and the interest in them."""

    def __init__(self) -> None:
        self.connections, self.registry = Connections(), NodeRegistry()
        self.interest = Interest(self.connections, self.registry)
        self.peers: dict[int, Peer] = {}

    def connect(self, node_id: int, *, sends_columns: bool = True) -> Peer:
        peer = self.peers[node_id] = Peer(sends_columns=sends_columns)
        self.connections.register(node_id, peer)
        features = [COLUMNS] if sends_columns else []
        self.registry.get_or_create(node_id).begin(hello(features=features), 1)
        self.interest.tell(node_id)
        return peer

    def newest(self) -> set[Detail | None]:
        """What the agents that send blocks were asked for last, None for nothing."""
        return {peer.asked[-1] if peer.asked else None for peer in self.peers.values() if peer.sends_columns}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (interest_module, registry_module):
        monkeypatch.setattr(module, "time", made)
    return made


async def test_agents_are_asked_for_summaries_while_somebody_looks_at_the_fleet(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interest_module, "_PART_S", 0.0)
    monkeypatch.setattr(interest_module, "_TICK_S", 0.01)
    fleet = Fleet()
    for node_id in range(25):
        fleet.connect(node_id)
    old = fleet.connect(25, sends_columns=False)
    fleet.interest.start()
    async with asyncio.timeout(PATIENCE_S):
        for late, need in ((30, fleet.interest.need_fleet), (31, fleet.interest.need_fleet_elsewhere)):
            need()
            await poll_async(lambda: fleet.newest() == {Detail.SUMMARIES})
            assert fleet.connect(late).asked == [Detail.SUMMARIES]
            clock.now_s += interest_module.INTEREST_S + 1
            await poll_async(lambda: fleet.newest() == {Detail.BLOCKS})
            assert not fleet.interest.is_fleet_needed
    assert old.asked == []
    await fleet.interest.stop()


async def test_the_most_that_somebody_needs_of_a_node_is_asked_for(clock: Clock) -> None:
    fleet = Fleet()
    peer, interest = fleet.connect(1), fleet.interest
    interest.need_summaries(1)
    interest.need(1)
    interest.need_summaries(1)
    assert peer.asked == [Detail.SUMMARIES, Detail.SAMPLES]
    clock.now_s += 10
    interest.need_summaries(1)
    clock.now_s += 6
    await interest._end_expired()
    clock.now_s += 10
    await interest._end_expired()
    assert peer.asked == [Detail.SUMMARIES, Detail.SAMPLES, Detail.SUMMARIES, Detail.BLOCKS]


def test_a_node_is_stale_once_what_it_was_asked_for_is_overdue(clock: Clock) -> None:
    for detail, interval_s, overdue_s in (
        (Detail.BLOCKS, 1.0, SUMMARY_S + 3),
        (Detail.BLOCKS, 5.0, SUMMARY_S + 15),
        (Detail.SUMMARIES, 1.0, 3.0),
        (Detail.SAMPLES, 5.0, 15.0),
    ):
        state = NodeState(connected=True, detail=detail, interval_s=interval_s)
        assert state.health(seen_before=True) is Health.STALE, "nothing has arrived yet"
        state.add_rates(TEMPLATE)
        clock.now_s += overdue_s
        assert state.health(seen_before=True) is Health.LIVE
        clock.now_s += 0.1
        assert state.health(seen_before=True) is Health.STALE
        state.ask(Detail.BLOCKS)
        state.ask(Detail.SUMMARIES)
        assert state.health(seen_before=True) is Health.STALE, "asking is no sign of life"


def test_an_agent_that_was_asked_for_more_and_does_not_answer_is_stale_after_three_intervals(clock: Clock) -> None:
    state = NodeState(connected=True, detail=Detail.BLOCKS)
    state.add_rates(TEMPLATE)
    state.ask(Detail.SUMMARIES)
    clock.now_s += 3.1
    assert state.health(seen_before=True) is Health.STALE


@given(
    interval_s=st.sampled_from([0.25, 1.0, 2.0, 5.0]),
    delays_s=st.tuples(st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0.0, 0.25, 1.0])),
    asked=st.lists(st.tuples(st.integers(0, 60), st.sampled_from(Detail)), max_size=12),
    block_s=st.sampled_from([SUMMARY_S, BLOCK_S]),
)
def test_a_node_that_sends_what_it_is_asked_for_is_never_stale(
    interval_s: float, delays_s: tuple[float, float], asked: list[tuple[int, Detail]], block_s: float
) -> None:
    """Both ends of the protocol, with a delay in each direction."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry_module, "time", SimpleNamespace(monotonic=clock.monotonic))
        state, outgoing = NodeState(), OutgoingSamples(10_000, 2**22)
        state.begin(hello(features=[COLUMNS], interval_s=interval_s), 1)
        outgoing.begin(0, columns=True, block_s=block_s)
        to_agent: deque[tuple[float, Detail]] = deque()
        to_backend: deque[tuple[float, bytes]] = deque()
        began_s, seq = clock.now_s, 0
        steps = {}
        for at_s, detail in asked:
            steps[at_s / STEP_S] = detail
        for step in range(int(90 / STEP_S)):
            clock.now_s = began_s + step * STEP_S
            if (wanted := steps.get(step)) is not None:
                state.ask(wanted)
                to_agent.append((clock.now_s + delays_s[0], wanted))
            while to_agent and to_agent[0][0] <= clock.now_s:
                outgoing.watch(to_agent.popleft()[1])
            if step % (interval_s / STEP_S) == 0:
                seq += 1
                outgoing.add(replace(TEMPLATE, seq=seq, time_ms=int(clock.now_s * 1000), duration_s=interval_s), None)
            while (frame := outgoing.next_frame()) is not None:
                to_backend.append((clock.now_s + delays_s[1], frame))
            while to_backend and to_backend[0][0] <= clock.now_s:
                message = decode_to_backend(to_backend.popleft()[1])
                if isinstance(message, SummaryMessage):
                    state.add_summary(message.summary)
            if clock.now_s > began_s + delays_s[1]:
                assert state.health(seen_before=True) is Health.LIVE, (clock.now_s - began_s, state.detail)
