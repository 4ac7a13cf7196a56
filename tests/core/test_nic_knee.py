from math import inf, isclose

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.core.test_nic_model import SWIFT, arrivals, hosts, timers

from coresteer.papers.nic_model import FRAME_BYTES, GAP_US, HOST, LINK_BITS_PER_S
from coresteer_core.node.nic import Timer, max_wait_us
from coresteer_core.node.nic_knee import KNEE_FRAMES, KNEE_USECS, find_knee
from coresteer_core.node.nic_model import HostCosts, QueueTraffic, TimerParams, frame_wire_time_us, predict

PAPER = QueueTraffic(1e6 / GAP_US, FRAME_BYTES, LINK_BITS_PER_S)
AUTHORS_USECS, AUTHORS_FRAMES = (18, 36, 54, 72, 90, 108), (6, 12, 18, 24, 30, 36, 42, 48)

bounds = st.sampled_from([20.0, 100.0, 500.0, 3780.0, inf])
counts = st.sampled_from([(), (4,), (6, 12, 18, 42), KNEE_FRAMES])


def test_the_knee_of_the_papers_traffic_is_the_pair_that_the_authors_chose() -> None:
    found = find_knee(PAPER, Timer.RESTARTING, HOST, usecs=AUTHORS_USECS, frames=AUTHORS_FRAMES)
    assert found is not None
    assert (found.rx_usecs, found.rx_frames) == (90, 42)
    assert found.predicted.dropped_share == 0


def test_between_the_authors_steps_the_knee_is_the_first_time_above_the_gap() -> None:
    found = find_knee(PAPER, Timer.RESTARTING, HOST, usecs=range(1, 120), frames=range(6, 60))
    assert found is not None
    assert (found.rx_usecs, found.rx_frames) == (73, 40)  # 41 frames and more bring only 5 % fewer interrupts


def test_within_a_bound_that_collects_nothing_there_is_no_knee() -> None:
    assert find_knee(PAPER, Timer.RESTARTING, HOST, max_added_us=100.0) is None
    assert find_knee(QueueTraffic(100.0, 200.0, None), Timer.THROTTLE) is None


@given(arrivals, timers, hosts, counts, bounds)
@settings(max_examples=60, deadline=None)
def test_a_knee_is_within_the_bound_takes_effect_and_drops_nothing(
    traffic: QueueTraffic, timer: Timer, host: HostCosts, frames: tuple[int, ...], bound_us: float
) -> None:
    found = find_knee(traffic, timer, host, frames=frames, max_added_us=bound_us)
    assert found == find_knee(traffic, timer, host, frames=frames, max_added_us=bound_us)
    if found is None:
        return
    assert found.rx_usecs in KNEE_USECS
    assert found.rx_frames in (frames or (None,))
    assert max_wait_us(timer, found.rx_usecs, found.rx_frames) <= bound_us
    without = predict(traffic, TimerParams(timer, 0), host, packets=600)
    assert found.predicted.dropped_share <= without.dropped_share + 0.001
    assert found.predicted.packets_per_interrupt * 1.05 >= (frames[0] if frames else 4) * 0.95
    for time in KNEE_USECS[: KNEE_USECS.index(found.rx_usecs)]:
        shorter = predict(traffic, TimerParams(timer, time, frames[0] if frames else None), host, packets=600)
        too_few = shorter.packets_per_interrupt * 1.05 < (frames[0] if frames else 4)
        assert too_few or shorter.dropped_share > without.dropped_share + 0.001
    for count in frames[: frames.index(found.rx_frames)] if found.rx_frames else ():
        fewer = predict(traffic, TimerParams(timer, found.rx_usecs, count), host, packets=600)
        more_often = fewer.interrupts_per_s > found.predicted.interrupts_per_s
        assert more_often or fewer.dropped_share > without.dropped_share + 0.001


@given(arrivals, timers, hosts, counts, st.sets(st.integers(1, 2000), max_size=10))
@settings(max_examples=40, deadline=None)
def test_more_times_to_choose_from_never_give_a_longer_one(
    traffic: QueueTraffic, timer: Timer, host: HostCosts, frames: tuple[int, ...], more: set[int]
) -> None:
    few = find_knee(traffic, timer, host, frames=frames)
    many = find_knee(traffic, timer, host, usecs=sorted({*KNEE_USECS, *more}), frames=frames)
    assert few is None or (many is not None and many.rx_usecs <= few.rx_usecs)


@given(st.floats(300, 9000), st.sampled_from([10**8, 10**9, 10**10]))
@settings(max_examples=40, deadline=None)
def test_back_to_back_a_timer_that_restarts_takes_effect_just_above_the_gap(frame_bytes: float, link: int) -> None:
    gap_us = frame_wire_time_us(frame_bytes, link)
    assume(not any(isclose(time, gap_us, rel_tol=0.002) for time in KNEE_USECS))  # a tie, which rounding decides
    found = find_knee(QueueTraffic(1e12, frame_bytes, link), Timer.RESTARTING, SWIFT, frames=(6, 12))
    above = [time for time in KNEE_USECS if time > gap_us]
    assert (found.rx_usecs if found else None) == (above[0] if above else None)
