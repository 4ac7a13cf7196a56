import math
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.coalescing_sweep import POINTS, Point

from coresteer.papers.nic_model import GAP_US, HOST, sweep
from coresteer.papers.verdicts import TOLERANCE
from coresteer_core.node.nic import Timer, interrupt_timer, max_added_wait_us, product_bound_us
from coresteer_core.node.nic_model import (
    TYPICAL_HOST_COSTS,
    HostCosts,
    Prediction,
    QueueTraffic,
    TimerParams,
    frame_wire_time_us,
    predict,
)

SWIFT = HostCosts(ring=10_000, entry_us=0.0, packet_us=1e-6)
"""Takes no time, so that the timer alone decides."""
NOISE = 0.05
"""Of a rate from random arrivals."""

timers = st.sampled_from(list(Timer))
usecs = st.sampled_from([1, 3, 10, 18, 50, 72, 100, 250, 1000])
frames = st.sampled_from([None, 0, 1, 2, 6, 16, 64, 300])
hosts = st.builds(HostCosts, ring=st.integers(1, 512), entry_us=st.floats(0, 50), packet_us=st.floats(0.01, 10))
arrivals = st.builds(
    QueueTraffic,
    packets_per_s=st.floats(10, 2e6),
    frame_bytes=st.floats(64, 9000),
    link_bits_per_s=st.sampled_from([None, 10**9, 10**10]),
)
steady = st.builds(
    lambda frame_bytes, link: QueueTraffic(1e12, frame_bytes, link),
    st.floats(512, 9000),
    st.sampled_from([10**9, 10**10]),
)
"""Back to back."""


# --- the authors' sweep -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.stated)
def test_the_model_reproduces_the_papers_figures(point: Point) -> None:
    figure = point.figure()
    assert point.holds(figure), f"{point.stated}: theirs {point.theirs}, ours {figure:,.1f}{point.unit}"


@pytest.mark.parametrize(("entry_us", "packet_us"), [(12.0, 6.0), (2.0, 18.0), (20.0, 5.0), (30.0, 5.5)])
def test_the_onset_of_coalescing_does_not_depend_on_an_exact_host(entry_us: float, packet_us: float) -> None:
    host = replace(HOST, entry_us=entry_us, packet_us=packet_us)
    rates = {rx_usecs: sweep(rx_usecs, 6, host).interrupts_per_s for rx_usecs in (18, 36, 54, 72, 90)}
    assert rates[18] == rates[36] == pytest.approx(20_833, abs=1)
    assert rates[54] == rates[72] == pytest.approx(13_889, abs=1)
    assert rates[90] == pytest.approx(4_000, rel=TOLERANCE)


@pytest.mark.parametrize("entry_us", [11.9, 30.0])
def test_a_faster_or_slower_host_would_move_the_onset(entry_us: float) -> None:
    host = replace(HOST, entry_us=entry_us)
    first = next(
        u for u in (36, 54, 72) if sweep(u, 6, host).interrupts_per_s < 0.95 * sweep(18, 6, host).interrupts_per_s
    )
    assert first != 54


@pytest.mark.parametrize("ring", [42, 45, 47])
def test_a_buffer_of_42_to_47_frames_loses_packets_from_48_on(ring: int) -> None:
    host = replace(HOST, ring=ring)
    assert sweep(90, 42, host).received_per_s == pytest.approx(1e6 / GAP_US)
    assert sweep(90, 48, host).received_per_s < 0.99 * 1e6 / GAP_US
    assert sweep(90, 48, replace(host, ring=48)).received_per_s == pytest.approx(1e6 / GAP_US)


def test_the_gap_is_the_time_on_the_wire() -> None:
    assert frame_wire_time_us(9000, 10**9) == 72.0
    assert frame_wire_time_us(1500, 10**9) == 12.0


# --- closed forms, where the host takes no time --------------------------------------------------------------------


CYCLES_US: dict[Timer, Callable[[float, float], float]] = {
    Timer.ABSOLUTE: lambda rate, wait: wait + 1 / rate,
    Timer.THROTTLE: lambda rate, wait: wait + math.exp(-rate * wait) / rate,
    Timer.RESTARTING: lambda rate, wait: math.exp(rate * wait) / rate,
}
"""Mean time from one interrupt to the next, of packets that come at random (Poisson)."""


@pytest.mark.parametrize("per_wait", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("timer", list(Timer))
def test_random_arrivals_match_the_closed_form(timer: Timer, per_wait: float) -> None:
    rx_usecs = 100.0
    rate = per_wait / rx_usecs
    found = predict(QueueTraffic(rate * 1e6, 64, None), TimerParams(timer, rx_usecs), SWIFT, packets=16_384)
    assert found.interrupts_per_s == pytest.approx(1e6 / CYCLES_US[timer](rate, rx_usecs), rel=NOISE)


@pytest.mark.parametrize("timer", list(Timer))
def test_a_few_packets_predict_the_same_as_many(timer: Timer) -> None:
    bulk = QueueTraffic(50_000, 1500, 10**9)
    few, many = (predict(bulk, TimerParams(timer, 50, 16), packets=packets) for packets in (1000, 16_384))
    assert few.interrupts_per_s == pytest.approx(many.interrupts_per_s, rel=NOISE)
    assert few.added_mean_us == pytest.approx(many.added_mean_us, rel=NOISE)


# --- what each timer does --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("timer", "waits_us"), [(Timer.RESTARTING, 50), (Timer.ABSOLUTE, 50), (Timer.THROTTLE, 0)])
@pytest.mark.parametrize("packets_per_s", [0.0, 1.0])
def test_a_lone_packet_waits_for_a_timer_but_not_for_a_throttle(
    timer: Timer, waits_us: float, packets_per_s: float
) -> None:
    found = predict(QueueTraffic(packets_per_s, 64, 10**9), TimerParams(timer, 50, 8))
    assert found.added_mean_us == pytest.approx(waits_us)
    assert found.added_worst_us == pytest.approx(waits_us)
    assert found.interrupts_per_s == pytest.approx(packets_per_s, abs=0.01)
    assert found.packets_per_interrupt == 1


def test_a_throttle_interrupts_once_in_its_time_under_bulk() -> None:
    found = predict(QueueTraffic(81_000, 1500, 10**9), TimerParams(Timer.THROTTLE, 100))
    assert found.interrupts_per_s == pytest.approx(10_000, rel=0.01)
    assert found.packets_per_interrupt == pytest.approx(8.1, rel=NOISE)


@pytest.mark.parametrize("timer", list(Timer))
def test_without_a_time_only_the_count_interrupts(timer: Timer) -> None:
    found = predict(QueueTraffic(100_000, 64, None), TimerParams(timer, 0, 8), SWIFT)
    assert found.packets_per_interrupt == 8
    assert found.interrupts_per_s == pytest.approx(12_500, rel=NOISE)


@pytest.mark.parametrize("timer", list(Timer))
def test_a_count_above_the_ring_never_interrupts_and_drops_packets(timer: Timer) -> None:
    found = predict(QueueTraffic(100_000, 64, None), TimerParams(timer, 0, 8), HostCosts(ring=4))
    assert found.interrupts_per_s == 0
    assert found.dropped_share == pytest.approx(0.996)


def test_an_overloaded_host_polls_without_interrupts_and_drops_packets() -> None:
    found = predict(
        QueueTraffic(2e6, 64, 10**10),
        TimerParams(Timer.ABSOLUTE, 10),
        HostCosts(ring=64, packet_us=1.0),
        packets=16_384,
    )
    assert found.interrupts_per_s < 1000
    assert found.dropped_share == pytest.approx(0.5, abs=0.02)


# --- for any traffic, any values, any host -----------------------------------------------------------------------


@given(arrivals, timers, usecs, frames, hosts)
def test_there_are_no_more_interrupts_than_packets(
    arrivals: QueueTraffic, timer: Timer, rx_usecs: int, rx_frames: int | None, host: HostCosts
) -> None:
    found = predict(arrivals, TimerParams(timer, rx_usecs, rx_frames), host)
    assert found.packets_per_interrupt >= 1
    assert found.interrupts_per_s <= arrivals.packets_per_s * (1 + NOISE)
    assert 0 <= found.dropped_share <= 1
    assert 0 <= found.added_mean_us <= found.added_worst_us
    assert found.added_p99_us <= found.added_worst_us


@given(arrivals, timers, usecs, frames, hosts)
def test_no_packet_waits_longer_than_the_bound(
    arrivals: QueueTraffic, timer: Timer, rx_usecs: int, rx_frames: int | None, host: HostCosts
) -> None:
    found = predict(arrivals, TimerParams(timer, rx_usecs, rx_frames), host)
    assert found.added_worst_us <= max_added_wait_us(timer, rx_usecs, rx_frames) * (1 + 1e-9) + 1e-3
    assert max_added_wait_us(timer, rx_usecs, rx_frames) <= max_added_wait_us(None, rx_usecs, rx_frames)


@given(arrivals, st.sampled_from([Timer.ABSOLUTE, Timer.THROTTLE]), usecs, hosts)
def test_a_timer_that_nothing_restarts_or_overtakes_bounds_the_rate(
    arrivals: QueueTraffic, timer: Timer, rx_usecs: int, host: HostCosts
) -> None:
    assert predict(arrivals, TimerParams(timer, rx_usecs), host).interrupts_per_s <= 1e6 / rx_usecs * (1 + 1e-6)


@given(steady, st.sampled_from([Timer.RESTARTING, Timer.ABSOLUTE]), st.tuples(usecs, usecs), frames, hosts)
def test_more_usecs_never_mean_more_interrupts_of_steady_packets_unless_the_ring_overflows(
    arrivals: QueueTraffic, timer: Timer, both: tuple[int, int], rx_frames: int | None, host: HostCosts
) -> None:
    shorter, longer = (predict(arrivals, TimerParams(timer, each, rx_frames), host) for each in sorted(both))
    assume(not shorter.dropped_share and not longer.dropped_share)  # a dropped packet does not restart the timer
    assert longer.interrupts_per_s <= shorter.interrupts_per_s * (1 + 1e-6)


@given(arrivals, timers, st.tuples(usecs, usecs), frames, hosts)
def test_more_usecs_mean_no_more_interrupts_than_noise_makes_unless_the_ring_overflows(
    arrivals: QueueTraffic, timer: Timer, both: tuple[int, int], rx_frames: int | None, host: HostCosts
) -> None:
    shorter, longer = (predict(arrivals, TimerParams(timer, each, rx_frames), host) for each in sorted(both))
    assume(not shorter.dropped_share and not longer.dropped_share)
    assert longer.interrupts_per_s <= shorter.interrupts_per_s * (1 + 2 * NOISE) + 1


@given(arrivals, timers, st.sampled_from([0, *[1, 50, 1000]]), hosts)
def test_a_count_of_one_waits_for_nothing(arrivals: QueueTraffic, timer: Timer, rx_usecs: int, host: HostCosts) -> None:
    assert predict(arrivals, TimerParams(timer, rx_usecs, 1), host).added_worst_us == 0


@given(arrivals, timers, hosts)
def test_no_time_and_no_count_wait_for_nothing(arrivals: QueueTraffic, timer: Timer, host: HostCosts) -> None:
    assert predict(arrivals, TimerParams(timer, 0), host).added_worst_us == 0


@given(arrivals, timers, usecs, st.integers(1, 300), hosts)
def test_a_ring_that_holds_all_of_them_drops_none(
    arrivals: QueueTraffic, timer: Timer, rx_usecs: int, rx_frames: int, host: HostCosts
) -> None:
    assert predict(arrivals, TimerParams(timer, rx_usecs, rx_frames), replace(host, ring=10**6)).dropped_share == 0


@given(arrivals, timers, usecs, frames)
def test_predictions_do_not_depend_on_earlier_calls(
    arrivals: QueueTraffic, timer: Timer, rx_usecs: int, rx_frames: int | None
) -> None:
    def ask() -> Prediction:
        return predict(arrivals, TimerParams(timer, rx_usecs, rx_frames), TYPICAL_HOST_COSTS, packets=100)

    first = ask()
    for packets_per_s in range(1, 20):
        predict(QueueTraffic(packets_per_s, 64, None), TimerParams(timer, rx_usecs), packets=10)
    assert ask() == first


# --- bounds and drivers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timer", "rx_usecs", "rx_frames", "bound_us"),
    [
        (Timer.RESTARTING, 90, 42, 3690),
        (Timer.RESTARTING, 90, 2, 90),
        (Timer.RESTARTING, 90, 1, 0),
        (Timer.RESTARTING, 90, None, math.inf),
        (Timer.RESTARTING, 90, 0, math.inf),
        (Timer.ABSOLUTE, 90, 42, 90),
        (Timer.ABSOLUTE, 90, 1, 0),
        (Timer.ABSOLUTE, 0, 42, math.inf),
        (Timer.THROTTLE, 90, None, 90),
        (Timer.THROTTLE, 0, None, 0),
        (None, 90, 42, 3690),
        (None, 90, None, math.inf),
    ],
)
def test_the_bound_is_what_the_timer_allows(
    timer: Timer | None, rx_usecs: int, rx_frames: int | None, bound_us: float
) -> None:
    assert max_added_wait_us(timer, rx_usecs, rx_frames) == bound_us


def test_the_authors_bound_is_the_product_of_both() -> None:
    assert product_bound_us(90, 42) == 3780
    assert product_bound_us(90, None) is None


@pytest.mark.parametrize(
    ("driver", "params", "timer", "reason"),
    [
        ("igb", {}, Timer.THROTTLE, "EITR"),
        ("e1000e", {}, Timer.THROTTLE, "ITR"),
        ("ice", {}, Timer.THROTTLE, "GLINT_ITR"),
        ("ena", {}, Timer.THROTTLE, "unmasked"),
        ("tg3", {}, Timer.THROTTLE, "status block"),
        ("virtio_net", {}, Timer.ABSOLUTE, "first packet"),
        ("mlx5_core", {"coalesce/cqe-mode-rx": "on"}, Timer.RESTARTING, "completion"),
        ("mlx5_core", {"coalesce/cqe-mode-rx": "off"}, Timer.THROTTLE, "interrupt"),
        ("mlx5_core", {}, None, "is unknown"),
        ("bnxt_en", {"coalesce/cqe-mode-rx": "off"}, Timer.ABSOLUTE, "first completion"),
        ("hns3", {"coalesce/cqe-mode-rx": "on"}, Timer.ABSOLUTE, "first new completion"),
        ("later", {"coalesce/cqe-mode-rx": "on"}, Timer.RESTARTING, "cqe-mode-rx on"),
        ("later", {}, None, "later"),
        (None, {}, None, "this driver"),
    ],
)
def test_the_timer_of_a_driver_has_a_reason(
    driver: str | None, params: dict[str, str], timer: Timer | None, reason: str
) -> None:
    found, why = interrupt_timer(driver, params)
    assert found is timer
    assert reason in why
    assert why.endswith(".")
