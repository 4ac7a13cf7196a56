import asyncio
import heapq
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.backend.conftest import Backend
from tests.backend.fake_agent import enrolled
from tests.support.polling import PATIENCE_S

from coresteer.gateway.admission import ADMITTED_PER_S, Admission
from coresteer.gateway.presented_key import Refused
from coresteer_agent.transport.retry import Backoff
from coresteer_agent.transport.websocket import ConnectionTiming
from coresteer_core.protocol import CloseCode, requested_delay_s


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def refusal_of(admission: Admission, node_id: int) -> Refused | None:
    try:
        admission.admit(node_id)
    except Refused as refused:
        return refused
    return None


def admitted_at(arrivals: dict[int, float], seed: int) -> dict[int, float]:
    """Return when each agent is admitted. arrivals: its first attempt; if refused, it retries as requested."""
    clock = Clock()
    admission = Admission(clock=clock)
    backoff = Backoff(ConnectionTiming(), random.Random(seed))  # noqa: S311 - repeatable, no secret
    admitted: dict[int, float] = {}
    waiting = [(at_s, node_id) for node_id, at_s in arrivals.items()]
    heapq.heapify(waiting)
    while waiting:
        clock.now, node_id = heapq.heappop(waiting)
        refused = refusal_of(admission, node_id)
        if refused is None:
            admitted[node_id] = clock.now
            continue
        delay_s = requested_delay_s(refused.reason)
        assert refused.code == CloseCode.TRY_AGAIN_LATER and delay_s is not None
        heapq.heappush(waiting, (clock.now + backoff.requested(delay_s), node_id))
    return admitted


@given(st.integers(0, 2**31), st.floats(0, 0.999), st.floats(0, 30))
def test_a_storm_of_ten_thousand_agents_is_admitted_within_its_length_and_15_s(
    seed: int, start_s: float, length_s: float
) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable, no secret
    arrivals = {node_id: start_s + chance.uniform(0, length_s) for node_id in range(10_000)}
    admitted = admitted_at(arrivals, seed)
    assert admitted.keys() == arrivals.keys()
    assert max(Counter(int(at_s) for at_s in admitted.values()).values()) <= ADMITTED_PER_S
    assert max(admitted.values()) <= start_s + length_s + 15.5


def test_a_node_that_reconnects_without_a_pause_takes_no_place_of_others() -> None:
    clock = Clock()
    admission = Admission(per_s=20, clock=clock)
    results = [refusal_of(admission, 1) is None for _ in range(1000)]
    assert results == [True] * 16 + [False] * 984
    assert [refusal_of(admission, node_id) for node_id in range(2, 6)] == [None] * 4
    clock.now = 1.0
    assert refusal_of(admission, 1) is None


@pytest.mark.parametrize(("number", "delay_s"), [(1, 1), (10, 1), (11, 2), (100, 10)])
def test_each_refused_agent_gets_the_next_free_place(number: int, delay_s: int) -> None:
    admission = Admission(per_s=10, clock=Clock())
    refusals = [refusal_of(admission, node_id) for node_id in range(10 + number)]
    assert refusals[9] is None
    assert refusals[-1] is not None and requested_delay_s(refusals[-1].reason) == delay_s


async def test_an_agent_that_is_not_admitted_gets_a_time_to_try_again(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await enrolled(backend.database, backend.url, "not-admitted")
    exhausted = Admission(per_s=1, clock=Clock())
    exhausted.admit(0)
    with monkeypatch.context() as patch:
        patch.setattr(backend.app.state.agents.admission, "admit", exhausted.admit)
        async with asyncio.timeout(PATIENCE_S):
            await agent.connect()
            assert await agent.closed() == (1013, "Retry in 1 s. Many agents connect at present.")
    async with asyncio.timeout(PATIENCE_S), agent:
        pass
