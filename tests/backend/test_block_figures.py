"""Figures of a block: ratios of sums, absent where unknown, and differences that only depend on both blocks."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer.telemetry.block_figures import BlockFigures, Sums, between, block_figures, covered_s, difference, within
from coresteer.telemetry.rollup import Rollup
from coresteer_core.metrics import REPORT_METRICS
from coresteer_core.node.rates import ABSENT_SHARE, CPU_SHARES

CPUS = 2


def rollup(
    start_ms: int = 0,
    seconds: float = 60.0,
    *,
    busy: int = 40,
    megabytes: int = 100,
    packets: int = 1000,
    amounts: dict[str, float] | None = None,
) -> Rollup:
    """A roll-up with the busy share of each CPU in units of 0.5 %, all in user space."""
    means = np.zeros((len(CPU_SHARES), CPUS), np.uint8)
    means[[CPU_SHARES.index("busy"), CPU_SHARES.index("user")]] = busy
    netdevs = {"eth0": [megabytes * 10**6, 0, packets, 0, 0, 0, 0, 0], "lo": [10**12, 0, 0, 0, 0, 0, 0, 0]}
    end_ms = int(start_ms + 1000 * seconds)
    return Rollup(start_ms, end_ms, 1, 60, seconds, CPUS, means, means, netdevs, amounts or {})


def figures(*rollups: Rollup, metrics: tuple[str, ...] = tuple(REPORT_METRICS)) -> BlockFigures:
    return block_figures(rollups, metrics, lambda name: name != "lo")


def test_cpu_per_gigabit_is_a_ratio_of_sums_and_not_a_mean_of_ratios() -> None:
    found = figures(rollup(busy=40, megabytes=1000), rollup(busy=20, megabytes=10))
    # 2 CPUs × 20 % and × 10 % of 60 s, for 8 and 0.08 Gbit
    assert found.sums["cpu_s_per_gbit"].value == pytest.approx((24 + 12) / 8.08)
    assert found.bit_per_s == pytest.approx(8.08e9 / 120)
    assert found.duration_s == 120


def test_a_share_of_time_is_weighted_by_time_and_a_level_too() -> None:
    found = figures(
        rollup(seconds=60, busy=40, amounts={"rtt_p99_us": 900, "rtt_p99_us_integral": 6000.0}),
        rollup(seconds=20, busy=80, amounts={"rtt_p99_us": 900, "rtt_p99_us_integral": 10_000.0}),
    )
    assert found.sums["cpu_busy_percent"].value == pytest.approx((60 * 40 + 20 * 80) / 80)
    assert found.sums["rtt_p99_us"].value == pytest.approx(200)


@pytest.mark.parametrize(
    ("amounts", "metric", "value"),
    [
        ({"interrupts": 500.0}, "packets_per_interrupt", 2.0),
        ({"numa_local": 900.0, "numa_other": 100.0}, "remote_numa_share", 0.1),
        ({"dropped": 6.0}, "softnet_dropped_per_s", 0.1),
        ({"pages_moved": 120.0}, "pages_moved_per_s", 2.0),
        ({"dropped": 6.0, "dropped_known_s": 15.0}, "softnet_dropped_per_s", 0.4),
        ({"interrupts": 500.0, "interrupts_known_s": 30.0}, "packets_per_interrupt", 1.0),
        ({"cpu_user_s": 6.0, "cpu_user_s_known_s": 30.0}, "cpu_busy_percent", 20.0),
        ({"cpu_user_s": 6.0, "cpu_user_s_known_s": 30.0}, "cpu_s_per_gbit", 15.0),
        ({"cpu_busy_s": 9.0, "cpu_steal_s": 3.0, "cpu_user_s": 0.0}, "cpu_busy_percent", 10.0),
        ({"netdevs_known_s": 30.0}, "packets_per_s", 1000 / 30),
        ({"rtt_p50_us": 5000.0, "rtt_p50_us_integral": 12_000.0}, "rtt_p50_us", 200.0),
        (
            {"rtt_p50_us": 5000.0, "rtt_p50_us_integral": 6000.0, "rtt_p50_us_integral_known_s": 30.0},
            "rtt_p50_us",
            200.0,
        ),
    ],
)
def test_metrics_that_are_formulas_and_rates(amounts: dict[str, float], metric: str, value: float) -> None:
    assert figures(rollup(amounts=amounts)).sums[metric].value == pytest.approx(value)


def test_a_metric_that_is_unknown_in_one_rollup_is_absent() -> None:
    found = figures(rollup(amounts={"rtt_p99_us": 100, "rtt_p99_us_integral": 6000.0}), rollup())
    assert "rtt_p99_us" not in found.sums
    absent = rollup()
    absent.means[:] = ABSENT_SHARE
    assert not figures(absent).sums.keys() & {"cpu_busy_percent", "cpu_s_per_gbit"}
    assert figures().sums == {}
    assert figures().bit_per_s is None


def test_events_of_which_there_are_none_have_a_difference() -> None:
    none, some = (figures(rollup(amounts={"dropped": count})) for count in (0.0, 9.0))
    assert difference(none, none, "softnet_dropped_per_s") == 0
    assert difference(some, none, "softnet_dropped_per_s") == pytest.approx(math.log(10))


def test_blocks_without_remote_pages_have_a_difference() -> None:
    none, some = (figures(rollup(amounts={"numa_local": 1000.0, "numa_other": other})) for other in (0.0, 9.0))
    assert none.sums["remote_numa_share"].value == 0
    assert difference(none, none, "remote_numa_share") == 0
    assert difference(some, none, "remote_numa_share") == pytest.approx(math.log(10 / 1.009))


@pytest.mark.parametrize(("value", "counts_as"), [(0.0, 0.01), (0.001, 0.01), (0.5, 0.5)])
def test_a_floor_stands_for_smaller_values_and_for_0(value: float, counts_as: float) -> None:
    low, high = (BlockFigures(60.0, {"app.errors": Sums(one, 1.0, floor=0.01)}) for one in (value, 1.0))
    assert difference(low, high, "app.errors") == pytest.approx(math.log(counts_as))


@pytest.mark.parametrize("metric", ["cpu_s_per_gbit", "rtt_p99_us"])
def test_without_a_value_there_is_no_difference(metric: str) -> None:
    nothing = figures(rollup(busy=0))
    assert difference(nothing, figures(rollup(amounts={"rtt_p99_us": 5})), metric) is None


@given(st.tuples(*[st.integers(1, 200)] * 2), st.tuples(*[st.integers(1, 10**6)] * 2))
def test_a_difference_changes_its_sign_with_the_coin(busy: tuple[int, int], megabytes: tuple[int, int]) -> None:
    first, second = (figures(rollup(busy=b, megabytes=m)) for b, m in zip(busy, megabytes, strict=True))
    for metric in ("cpu_s_per_gbit", "cpu_busy_percent", "rx_bit_per_s"):
        there, back = difference(first, second, metric), difference(second, first, metric)
        assert there is not None and back is not None
        assert there == pytest.approx(-back)


def test_the_cpu_time_of_cpus_that_are_almost_idle_counts() -> None:
    idle = rollup(busy=0, megabytes=1000, amounts={"cpu_user_s": 0.24})  # 0.2 % of each, rounded to 0
    assert figures(idle).sums["cpu_s_per_gbit"].value == pytest.approx(0.24 / 8)
    assert figures(idle).sums["cpu_busy_percent"].value == pytest.approx(0.4)


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param({"busy": 30.0, "user": 12.0, "system": 4.8, "irq": 2.4, "softirq": 4.8}, id="stored"),
        pytest.param({}, id="rounded means of older roll-ups"),
    ],
)
def test_time_in_which_the_host_ran_other_guests_is_no_cpu_time(stored: dict[str, float]) -> None:
    one = rollup(amounts={f"cpu_{kind}_s": seconds for kind, seconds in stored.items()})
    for kind, share in {"busy": 50, "user": 20, "system": 8, "irq": 4, "softirq": 8, "steal": 10}.items():
        one.means[CPU_SHARES.index(kind)] = share
    found = figures(one).sums
    assert found["cpu_busy_percent"].value == pytest.approx(2 * 20)
    assert found["cpu_s_per_gbit"].value == pytest.approx(24 / 0.8)


@pytest.mark.parametrize(
    ("start_s", "seconds", "belongs"),
    [
        pytest.param(0, 60, True, id="in it"),
        pytest.param(60, 61, True, id="its last sample ends a little later"),
        pytest.param(59, 60, True, id="whatever is before it"),
        pytest.param(80, 60, False, id="reaches into the next block, with its middle in this one"),
        pytest.param(-20, 60, False, id="begins in the wash-out"),
        pytest.param(119.5, 1, False, id="a short one on the edge"),
    ],
)
def test_a_rollup_that_reaches_out_of_a_block_does_not_belong_to_it(
    start_s: float, seconds: float, belongs: bool
) -> None:
    one = rollup(int(1000 * start_s), seconds)
    assert within([one], 0, 120_000) == ([one] if belongs else [])


def test_what_is_covered_does_not_depend_on_where_rollups_begin() -> None:
    for skew_ms in (0, 20_000, 40_000):
        rollups = [rollup(skew_ms + 60_000 * at) for at in range(-3, 6)]
        assert covered_s(rollups, 0, 120_000) == pytest.approx(120)
    assert covered_s([rollup(0, 30.0)], 0, 120_000) == pytest.approx(30)


def test_a_rollup_belongs_to_the_part_in_which_its_middle_lies() -> None:
    rollups = [rollup(start_ms) for start_ms in (-59_500, 500, 60_500, 119_000)]
    assert [one.start_ms for one in between(rollups, 0, 120_000)] == [500, 60_500]
