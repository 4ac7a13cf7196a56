"""Which processes are enrolled for coscheduling, what is measured of them, and which of them is boosted."""

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.views import make_view

from coresteer_core.node.tasks import NetTask, ThreadActivity
from coresteer_core.node.view import View
from coresteer_core.policies.base import Damping, Mode, Scope
from coresteer_core.policies.coscheduling.boost import (
    BY_AGE,
    ArrivalLoads,
    PendingMessage,
    Received,
    Reordering,
    choose,
    message_run_time,
    order,
)
from coresteer_core.policies.coscheduling.load import LoadMeter, PeerLoad
from coresteer_core.policies.coscheduling.policy import CoschedulingMemory, decide
from coresteer_core.policies.coscheduling.reorder import (
    AS_PRINTED,
    MINUS,
    SAME_S,
    expected_run_time,
    first_to_run,
    rebase,
)
from coresteer_core.policies.coscheduling.spec import Coscheduling
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_steering, record_write
from coresteer_core.policies.service_class.matching import Match

SPEC = Coscheduling(match=Match(commands=["bsp"]))
POLICY = PolicyInForce("3", 1, "job", 10, Mode.ENFORCE, SPEC, damping=Damping(moves_per_step=8))


def process(pid: int, nice: str = "0", **fields: object) -> NetTask:
    task = NetTask(pid, pid * 10, "bsp", None, 1, "0", "0-3", 0, 0.1, 0.0, [], command="bsp", params={"nice": nice})
    return msgspec.structs.replace(task, **fields)


def view(*tasks: NetTask, time_s: float = 100.0) -> View:
    return make_view(tasks=list(tasks), time_s=time_s)


# Enrolment


@pytest.mark.parametrize(
    ("task", "value", "why"),
    [
        (process(7), "-1", None),
        (process(7, "5"), "4", None),
        (process(7, "-10"), None, None),
        (process(7, "-12"), None, "Its own nice value is below that of a boost, -10."),
        (process(7, realtime=True), None, "A real-time task runs before all boosted processes."),
        (process(7, kernel=True), None, "A kernel thread is never boosted."),
        (process(7, params={}), None, "Its nice value is unknown."),
        (process(7, command="nginx"), None, None),
    ],
)
def test_a_process_of_the_job_is_enrolled_one_step_from_its_own_nice_value(
    task: NetTask, value: str | None, why: str | None
) -> None:
    decision = decide(view(task), SPEC, Scope(), CoschedulingMemory())
    assert [each.value for each in decision.proposals] == ([] if value is None else [value])
    assert [each.why for each in decision.skipped] == ([] if why is None else [why])


def test_without_patterns_nothing_is_enrolled() -> None:
    decision = decide(view(process(7)), Coscheduling(), Scope(), CoschedulingMemory())
    assert (decision.proposals, decision.sentence) == ([], "No process matches.")


def test_a_process_that_leaves_the_job_gets_its_own_nice_value_back() -> None:
    [evaluation], memory = evaluate_round(view(process(7), process(8)), [POLICY], EngineMemory())
    for action in evaluation.actions:
        memory = record_write(memory, "3", action, 100.0)
    memory = record_steering(memory, "task/7/nice", "-10", 101.0)
    memory = record_steering(memory, "task/8/nice", "0", 101.0)
    boosted = view(process(7, "-10"), process(8), time_s=105.0)
    [steady], memory = evaluate_round(boosted, [POLICY], memory)
    assert (steady.actions, steady.deferred, steady.drifts) == ([], [], [])
    left = view(process(7, "-10", command="other"), process(8), time_s=110.0)
    [evaluation], _ = evaluate_round(left, [POLICY], memory)
    assert [(each.key, each.was, each.becomes) for each in evaluation.actions] == [("task/7/nice", "-10", "0")]


@pytest.mark.parametrize(
    "fields", [{"period_ms": 19}, {"period_ms": 1001}, {"nice_boost": 0}, {"nice_boost": -21}, {"stale_ms": 99}]
)
def test_fields_out_of_bounds_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, Coscheduling)


@pytest.mark.parametrize(("period_ms", "stale_ms", "max_age_s"), [(50, 500, 0.5), (250, 500, 0.5), (1000, 500, 2.0)])
def test_a_load_stays_known_until_the_next_one_arrives(period_ms: int, stale_ms: int, max_age_s: float) -> None:
    assert Coscheduling(period_ms=period_ms, stale_ms=stale_ms).max_age_s == max_age_s


# Load of a set of CPUs


def activity(run_ms: int, slices: int, sleeps: int = 0, *, runnable: bool = True) -> ThreadActivity:
    return ThreadActivity(runnable, run_ms * 1_000_000, slices, sleeps)


def test_ts_is_the_time_per_slice_and_enp_the_union_of_pending_and_ready_processes_plus_the_woken() -> None:
    meter = LoadMeter()
    first = {1: activity(0, 0), 2: activity(0, 0), 3: activity(0, 0, runnable=False)}
    assert meter.measure(first, set(), 1) is None
    second = {1: activity(30, 3), 2: activity(10, 1), 3: activity(0, 0, runnable=False)}
    load = meter.measure(second, {2, 3}, 1)
    assert load is not None
    assert load.ts_s == pytest.approx(0.010)
    assert load.enp == pytest.approx(2.0), "2 is both ready and pending and counts once; 1 ran most, so it runs now"
    third = {1: activity(30, 3, 1, runnable=False), 2: activity(110, 2), 3: activity(0, 0, runnable=False)}
    load = meter.measure(third, set(), 1)
    assert load is not None
    assert load.ts_s == pytest.approx(0.010 + (0.100 - 0.010) / 8)
    assert load.enp == pytest.approx(1 / 8), "one process slept in one of the periods; 2 runs"


@pytest.mark.parametrize(("enp", "expected"), [("union", 2.0), ("sum", 3.0)])
def test_a_process_that_is_both_ready_and_pending_counts_as_the_policy_says(enp: str, expected: float) -> None:
    meter, spec = LoadMeter(), msgspec.convert({"enp": enp}, Coscheduling)
    meter.measure({pid: activity(0, 0, runnable=pid < 3) for pid in (1, 2, 3)}, set(), 1)
    now = {1: activity(30, 3), 2: activity(10, 1), 3: activity(0, 0, runnable=False)}
    load = meter.measure(now, {2, 3}, 1, is_sum=spec.is_sum)
    assert load is not None
    assert load.enp == pytest.approx(expected)


def test_several_cpus_take_the_processes_at_the_same_time() -> None:
    meter = LoadMeter()
    pids = range(1, 7)
    meter.measure({pid: activity(0, 0) for pid in pids}, set(), 2)
    load = meter.measure({pid: activity(10 * pid, 1) for pid in pids}, set(), 2)
    assert load is not None
    assert load.enp == pytest.approx(4 / 2)


def test_a_slice_longer_than_a_period_counts_as_a_whole() -> None:
    meter = LoadMeter()
    for run_ms in (0, 50, 100):
        assert meter.measure({1: activity(run_ms, 0)}, set(), 1) is None
    load = meter.measure({1: activity(120, 1)}, set(), 1)
    assert load is not None
    assert load.ts_s == pytest.approx(0.120)


# Order


def message(pid: int, heard_s: float, load: PeerLoad | None, peer: str = "10.0.0.2") -> PendingMessage:
    return PendingMessage(pid, peer, 100, heard_s, heard_s, load)


def reordering(messages: Sequence[PendingMessage], sign: float = MINUS, **fields: int) -> Reordering:
    known = Reordering(0.100, "0", sign, 1, 1, 1, list(messages))
    return msgspec.structs.replace(known, **fields)


FIGURE_2 = [
    message(1, 0.060, PeerLoad(0.020, 3.0), "h"),
    message(2, 0.090, PeerLoad(0.010, 4.0), "l"),
]
"""As in test_reorder.py, with the message of node h 10 ms earlier."""


@pytest.mark.parametrize(("sign", "first", "ert_s"), [(MINUS, 1, 0.020), (AS_PRINTED, 2, 0.050)])
def test_the_example_of_figure_2_boosts_the_process_whose_peer_runs_soonest(
    sign: float, first: int, ert_s: float
) -> None:
    chosen = choose(reordering(FIGURE_2, sign))
    assert chosen.boosted == [first]
    assert order(chosen)[0].ert_s == pytest.approx(ert_s)


@pytest.mark.parametrize("sign", [MINUS, AS_PRINTED])
def test_without_loads_the_oldest_message_is_first_with_either_sign(sign: float) -> None:
    messages = [message(1, 0.090, None), message(2, 0.010, None), message(3, 0.050, None)]
    assert choose(reordering(messages, sign, slots=3)).boosted == [2, 3, 1]


@pytest.mark.parametrize(("peers", "boosted"), [(0, []), (1, []), (2, [1])])
def test_with_fewer_known_peers_than_required_nothing_is_boosted(peers: int, boosted: list[int]) -> None:
    assert choose(reordering(FIGURE_2, peers=peers, min_peers=2)).boosted == boosted


def test_a_process_with_several_peers_has_the_least_expected_run_time_of_them() -> None:
    messages = [*FIGURE_2, message(2, 0.020, PeerLoad(0.010, 1.0), "m")]
    first, second = order(reordering(messages))
    assert (first.pid, first.message.peer, first.pending_bytes) == (2, "m", 200)
    assert first.ert_s == pytest.approx(0.010 - 0.080)
    assert second.pid == 1


LOADS = st.none() | st.builds(PeerLoad, st.floats(1e-3, 0.2), st.floats(0, 20))
MESSAGES = st.lists(
    st.builds(
        PendingMessage, st.integers(1, 6), st.sampled_from("hlm"), st.integers(1, 9), st.floats(0, 5),
        st.floats(5, 10), LOADS,
    ),
    max_size=12,
)  # fmt: skip


@given(MESSAGES, st.integers(1, 8), st.sampled_from([MINUS, AS_PRINTED]))
def test_the_boosts_can_be_computed_again_from_the_record_with_the_functions_of_reorder(
    messages: list[PendingMessage], slots: int, sign: float
) -> None:
    chosen = choose(Reordering(10.0, "0", sign, slots, 1, 1, messages))
    record = msgspec.json.decode(msgspec.json.encode(chosen), type=Reordering)
    assert recomputed(record) == record.boosted
    assert set(chosen.boosted) <= {each.pid for each in messages}
    assert len(chosen.boosted) == min(slots, len({each.pid for each in messages}))


def recomputed(record: Reordering) -> list[int]:
    """The order of boosts from the recorded inputs, by reorder.py alone."""
    pids = sorted({each.pid for each in record.messages})
    ert = [math.inf] * len(pids)
    oldest = [math.inf] * len(pids)
    for each in record.messages:
        k = pids.index(each.pid)
        oldest[k] = min(oldest[k], each.heard_s)
        if each.load is None:
            ert[k] = min(ert[k], each.heard_s - record.time_s)
        else:
            enp, since_s = rebase(each.load.enp, each.heard_s, each.peer_heard_s, each.load.ts_s)
            ert[k] = min(ert[k], expected_run_time(enp, since_s, each.load.ts_s, record.time_s, record.sign))
    found: list[int] = []
    while len(found) < record.slots:
        k = first_to_run(ert, [0] * len(pids), oldest, range(len(pids)), len(pids))
        if k < 0:
            break
        found.append(pids[k])
        ert[k] = math.inf
    return found


@given(MESSAGES)
def test_the_order_is_by_expected_run_time(messages: list[PendingMessage]) -> None:
    erts = [each.ert_s for each in order(reordering(messages))]
    assert all(later >= earlier - SAME_S for earlier, later in pairwise(erts))


# Loads with which messages arrived


def test_a_message_keeps_the_enp_with_which_it_arrived_and_has_the_latest_ts() -> None:
    arrivals = ArrivalLoads()
    waits = Received(1, "h", 10, 5.0)
    [at_first] = arrivals.messages([waits], {"h": PeerLoad(0.010, 3.0)})
    [later] = arrivals.messages([waits], {"h": PeerLoad(0.020, 9.0)})
    assert (at_first.load, later.load) == (PeerLoad(0.010, 3.0), PeerLoad(0.020, 3.0))
    [again] = arrivals.messages([replace(waits, heard_s=5.1)], {"h": PeerLoad(0.020, 9.0)})
    assert again.load == PeerLoad(0.020, 9.0)
    [stale] = arrivals.messages([replace(waits, heard_s=5.1)], {})
    assert stale.load is None


def test_a_later_message_of_the_peer_to_another_process_does_not_change_the_expected_run_time() -> None:
    arrivals = ArrivalLoads()
    loads = {"h": PeerLoad(0.010, 3.0)}
    [alone] = arrivals.messages([Received(1, "h", 10, 5.0)], loads)
    [both, _] = arrivals.messages([Received(1, "h", 10, 5.0), Received(2, "h", 10, 5.2)], loads)
    assert both.peer_heard_s == 5.2
    assert message_run_time(both, 5.3, MINUS) == pytest.approx(message_run_time(alone, 5.3, MINUS))


def test_several_sockets_between_a_process_and_a_peer_are_one_message() -> None:
    received = [Received(1, "h", 10, 5.0), Received(1, "h", 7, 5.5), Received(2, "h", 0, 5.7)]
    [one] = ArrivalLoads().messages(received, {})
    assert one == PendingMessage(1, "h", 17, 5.5, 5.7, None)


def test_without_reordering_the_oldest_message_comes_first_whatever_is_known_of_its_peer() -> None:
    assert Coscheduling(reorder=False).sign == BY_AGE
    soon = message(1, 0.090, PeerLoad(0.001, 0.1), "h")
    old = message(2, 0.080, PeerLoad(0.050, 9.0), "l")
    assert choose(reordering([soon, old], slots=1)).boosted == [1]
    assert choose(reordering([soon, old], BY_AGE, slots=1, min_peers=9)).boosted == [2]
