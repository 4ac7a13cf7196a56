from array import array
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.rates import make_rates

from coresteer_core.node.derive import (
    AgentUsage,
    CounterTable,
    CpuTimes,
    NetdevTotals,
    Sample,
    SoftnetCounts,
    derive_rates,
)
from coresteer_core.node.rates import (
    ABSENT_SHARE,
    ABSENT_U32,
    CPU_SHARES,
    SHARES_PER_UNIT,
    NetdevCounts,
    Rates,
    TcpLatency,
    decode_irq_id,
)
from coresteer_core.protocol import RatesMessage, decode_to_backend, encode

U32 = 2**32


def table(cpus: tuple[int, ...], rows: Mapping[str, list[int]]) -> CounterTable:
    return CounterTable(cpus, {label: array("I", row) for label, row in rows.items()})


def sample(
    at_s: float,
    *,
    cpus: int = 2,
    times: dict[int, CpuTimes] | None = None,
    interrupts: CounterTable | None = None,
    softirqs: CounterTable | None = None,
    softnet: dict[int, SoftnetCounts] | None = None,
    netdevs: dict[str, NetdevTotals] | None = None,
    tcp: TcpLatency | None = None,
    self_usage: AgentUsage | None = None,
    counters: dict[str, int] | None = None,
) -> Sample:
    return Sample(
        int(at_s * 1000), at_s, cpus, times, interrupts, softirqs, softnet, netdevs, tcp, self_usage, counters or {}
    )


def u32(column: bytes | None) -> list[int]:
    assert column is not None
    return list(memoryview(column).cast("I"))


def cells(rates: Rates) -> dict[tuple[str, int], int]:
    assert rates.irq_cpus is not None
    cpus = memoryview(rates.irq_cpus).cast("H")
    return {
        (decode_irq_id(irq_id), cpu): count
        for irq_id, cpu, count in zip(u32(rates.irq_ids), cpus, u32(rates.irq_counts), strict=True)
    }


def test_shares_are_parts_of_the_time_that_was_counted() -> None:
    before: dict[int, CpuTimes] = {0: (0,) * 8, 1: (100, 10, 100, 100, 100, 100, 100, 100)}
    after: dict[int, CpuTimes] = {0: (10, 10, 20, 30, 10, 5, 10, 5), 1: (100, 10, 100, 200, 100, 100, 100, 100)}
    shares = derive_rates(sample(1, times=before), sample(2, times=after), 1).shares
    assert {name: list(column or b"") for name, column in shares.items()} == {
        "busy": [120, 0],
        "user": [40, 0],
        "system": [40, 0],
        "irq": [10, 0],
        "softirq": [20, 0],
        "steal": [10, 0],
        "iowait": [20, 0],
    }


def test_idle_time_that_goes_back_a_tick_is_no_time() -> None:
    rates = derive_rates(
        sample(1, times={0: (0, 0, 0, 100, 50, 0, 0, 0)}), sample(2, times={0: (9, 0, 0, 190, 49, 0, 1, 0)}), 1
    )
    assert rates.shares["busy"] == bytes([20, ABSENT_SHARE])
    assert rates.shares["iowait"] == bytes([0, ABSENT_SHARE])


@pytest.mark.parametrize(
    "after",
    [
        {},  # went offline
        {0: (100,) * 8},  # no tick was counted
        {0: (1,) * 8},  # counts anew
    ],
)
def test_a_cpu_without_counted_time_is_unknown_and_not_idle(after: dict[int, CpuTimes]) -> None:
    rates = derive_rates(sample(1, cpus=1, times={0: (100,) * 8}), sample(2, cpus=1, times=after), 1)
    assert rates.shares == dict.fromkeys(CPU_SHARES, bytes([ABSENT_SHARE]))


def test_only_interrupts_that_came_are_told() -> None:
    before = table((0, 1), {"24": [1, 0], "38": [0, 100], "LOC": [5, 5]})
    after = table((0, 1), {"24": [1, 0], "38": [0, 130], "LOC": [7, 5]})
    rates = derive_rates(sample(1, interrupts=before), sample(2, interrupts=after), 1)
    assert cells(rates) == {("38", 1): 30, ("LOC", 0): 2}


def test_a_counter_that_wraps_goes_on() -> None:
    before, after = table((0,), {"24": [U32 - 10]}), table((0,), {"24": [5]})
    assert cells(derive_rates(sample(1, interrupts=before), sample(2, interrupts=after), 1)) == {("24", 0): 15}


def test_a_counter_that_was_reset_tells_nothing() -> None:
    before, after = table((0, 1), {"24": [1000, 7]}), table((0, 1), {"24": [5, 8]})
    assert cells(derive_rates(sample(1, interrupts=before), sample(2, interrupts=after), 1)) == {("24", 1): 1}


def test_a_new_interrupt_counts_from_zero() -> None:
    before, after = table((0, 1), {"24": [1, 1]}), table((0, 1), {"24": [1, 1], "50": [0, 3]})
    assert cells(derive_rates(sample(1, interrupts=before), sample(2, interrupts=after), 1)) == {("50", 1): 3}


def test_a_cpu_that_comes_back_does_not_count_what_it_counted_before_it_left() -> None:
    before = table((0,), {"24": [1], "LOC": [10]})
    after = table((0, 1), {"24": [2, 500], "LOC": [11, 9000], "50": [4, 5]})
    rates = derive_rates(sample(1, interrupts=before), sample(2, interrupts=after), 1)
    assert cells(rates) == {("24", 0): 1, ("LOC", 0): 1, ("50", 0): 4}


def test_rows_without_a_number_or_short_label_are_left_out() -> None:
    before, after = table((0,), {"LONGNAME": [1]}), table((0,), {"LONGNAME": [2]})
    assert cells(derive_rates(sample(1, interrupts=before), sample(2, interrupts=after), 1)) == {}


def test_softirqs_are_split_into_receive_send_and_others() -> None:
    before = table((0, 1), {"NET_RX": [0, 1], "NET_TX": [0, 1], "TIMER": [5, 1], "RCU": [0, 1]})
    after = table((0, 1), {"NET_RX": [4, 1], "NET_TX": [2, 2], "TIMER": [6, 1], "RCU": [7, 1]})
    counts = derive_rates(sample(1, softirqs=before), sample(2, softirqs=after), 1).counts
    assert [u32(counts[name]) for name in ("net_rx", "net_tx", "softirq_other")] == [[4, 0], [2, 1], [8, 0]]


def test_a_reset_softirq_counter_and_a_new_cpu_are_unknown() -> None:
    before = table((0,), {"NET_RX": [1000], "NET_TX": [0]})
    after = table((0, 1), {"NET_RX": [4, 1], "NET_TX": [2, 2]})
    counts = derive_rates(sample(1, softirqs=before), sample(2, softirqs=after), 1).counts
    assert u32(counts["net_rx"]) == [ABSENT_U32, ABSENT_U32]
    assert u32(counts["net_tx"]) == [2, ABSENT_U32]


def test_softnet_counters_wrap_and_reset_each_on_its_own() -> None:
    before: dict[int, SoftnetCounts] = {0: (U32 - 1, 5, 100), 1: (0, 0, 0)}
    after: dict[int, SoftnetCounts] = {0: (9, 5, 3), 2: (1, 1, 1)}
    counts = derive_rates(sample(1, softnet=before), sample(2, cpus=3, softnet=after), 1).counts
    assert u32(counts["processed"]) == [10, ABSENT_U32, ABSENT_U32]
    assert u32(counts["dropped"]) == [0, ABSENT_U32, ABSENT_U32]
    assert u32(counts["time_squeeze"]) == [ABSENT_U32] * 3


def test_a_netdev_that_is_new_or_began_anew_is_left_out() -> None:
    before: dict[str, NetdevTotals] = {"eth0": (10, 0, 0, 0, 0, 0, 0, 0), "eth1": (9, 9, 9, 9, 9, 9, 9, 9)}
    after: dict[str, NetdevTotals] = {
        "eth0": (30, 1, 2, 3, 4, 5, 6, 7),
        "eth1": (0, 0, 0, 0, 0, 0, 0, 0),
        "eth2": (5, 5, 5, 5, 5, 5, 5, 5),
    }
    rates = derive_rates(sample(1, netdevs=before), sample(2, netdevs=after), 1)
    assert rates.netdevs == [NetdevCounts("eth0", 20, 1, 2, 3, 4, 5, 6, 7)]


def test_another_device_under_the_same_name_is_no_burst() -> None:
    before: dict[str, NetdevTotals] = {"eth0": (0,) * 8}
    after: dict[str, NetdevTotals] = {"eth0": (1 << 50, 0, 0, 0, 0, 0, 0, 0)}
    assert derive_rates(sample(1, netdevs=before), sample(2, netdevs=after), 1).netdevs == []


def test_tcp_and_the_agent_itself_are_told() -> None:
    latency = TcpLatency(3, 100, 200, 300)
    before = sample(1, counters={"segments": 100, "resent": 5, "gone": 1}, self_usage=AgentUsage(1.0, 10))
    after = sample(2, tcp=latency, counters={"segments": 150, "resent": 4, "new": 6}, self_usage=AgentUsage(1.25, 20))
    rates = derive_rates(before, after, 1)
    assert (rates.tcp, rates.counters) == (latency, {"segments": 50})
    assert (rates.agent_cpu_s, rates.agent_rss_bytes) == (0.25, 20)


def test_a_source_that_was_not_read_is_none() -> None:
    assert derive_rates(sample(1), sample(2), 7) == make_rates(seq=7, time_ms=2000, cpus=2)


@pytest.mark.parametrize("at_s", [5.0, 4.0])
def test_when_no_time_passed_nothing_is_known(at_s: float) -> None:
    full = {"interrupts": table((0,), {"24": [1]}), "counters": {"segments": 1}}
    rates = derive_rates(sample(5, **full), sample(at_s, **full), 1)  # type: ignore[arg-type]  # two of many fields
    assert rates.duration_s == 0.0
    assert rates.irq_counts is None and rates.counters == {}
    assert set(rates.shares.values()) == {None}


def test_a_stepped_wall_clock_does_not_change_the_duration() -> None:
    before, after = sample(10), sample(11)
    stepped = Sample(5, *(getattr(after, name) for name in Sample.__struct_fields__[1:]))
    rates = derive_rates(before, stepped, 1)
    assert (rates.time_ms, rates.duration_s) == (5, 1.0)


# Properties

moves = st.integers(0, 1_000_000)
starts = st.integers(0, U32 - 1)


@given(st.lists(st.tuples(st.tuples(starts, moves), st.tuples(starts, moves)), max_size=8))
def test_the_cells_add_up_to_the_difference_of_the_totals(rows: list[tuple[tuple[int, int], tuple[int, int]]]) -> None:
    before = table((0, 1), {str(i): [a for a, _ in row] for i, row in enumerate(rows)})
    after = table((0, 1), {str(i): [(a + d) % U32 for a, d in row] for i, row in enumerate(rows)})
    found = cells(derive_rates(sample(1, interrupts=before), sample(2, interrupts=after), 1))
    assert sum(found.values()) == sum(d for row in rows for _, d in row)
    assert all(count > 0 for count in found.values())


u32s = st.integers(0, U32 - 1)
cpu_sets = st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True).map(lambda c: tuple(sorted(c)))


@st.composite
def tables(draw: st.DrawFn, labels: tuple[str, ...]) -> CounterTable:
    cpus = draw(cpu_sets)
    rows = draw(st.dictionaries(st.sampled_from(labels), st.lists(u32s, min_size=len(cpus), max_size=len(cpus))))
    return table(cpus, rows)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    totals = st.integers(0, 2**64 - 1)
    return sample(
        draw(st.floats(0, 1e6)),
        cpus=6,
        times=draw(st.none() | st.dictionaries(st.integers(0, 5), st.tuples(*[st.integers(0, 2**40)] * 8))),
        interrupts=draw(st.none() | tables(("24", "25", "LOC", "TOO LONG"))),
        softirqs=draw(st.none() | tables(("NET_RX", "NET_TX", "TIMER", "RCU"))),
        softnet=draw(st.none() | st.dictionaries(st.integers(0, 5), st.tuples(u32s, u32s, u32s))),
        netdevs=draw(st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.tuples(*[totals] * 8))),
        counters=draw(st.dictionaries(st.sampled_from(["a", "b"]), totals)),
        self_usage=draw(st.none() | st.builds(AgentUsage, st.floats(0, 1e6), st.integers(0, 2**40))),
    )


@given(samples(), samples())
def test_whatever_the_samples_hold_no_rate_is_negative_or_absurd(before: Sample, after: Sample) -> None:
    rates = derive_rates(before, after, 1)
    assert rates.duration_s >= 0
    most = max(rates.duration_s, 1.0) * 50_000_000
    for share in rates.shares.values():
        assert share is None or (len(share) == 6 and all(s <= SHARES_PER_UNIT or s == ABSENT_SHARE for s in share))
    for column in rates.counts.values():
        assert column is None or all(c <= most or c == ABSENT_U32 for c in u32(column))
        assert column is None or len(column) == 4 * 6
    if rates.irq_counts is not None:
        assert all(0 < count <= most for count in cells(rates).values())
        assert {cpu for _, cpu in cells(rates)} <= set(range(6))
    for netdev in rates.netdevs or []:
        assert all(0 <= getattr(netdev, name) <= most * 2**20 for name in NetdevCounts.__struct_fields__[1:])
    assert rates.agent_cpu_s is None or rates.agent_cpu_s >= 0
    if 0 < rates.duration_s <= 86_400:  # the bounds of the wire type
        assert decode_to_backend(encode(RatesMessage(rates))) == RatesMessage(rates)


@given(samples(), st.integers(0, 5))
def test_a_cpu_that_is_only_in_one_sample_is_unknown(before: Sample, cpu: int) -> None:
    after = Sample(before.time_ms, before.monotonic_s + 1, *(getattr(before, n) for n in Sample.__struct_fields__[2:]))
    missing = {c: t for c, t in (before.times or {}).items() if c != cpu}
    gone = sample(before.monotonic_s, cpus=6, times=missing)
    for pair in ((gone, after), (before, sample(before.monotonic_s + 1, cpus=6, times=missing))):
        share = derive_rates(*pair, 1).shares["busy"]
        assert share is None or share[cpu] == ABSENT_SHARE
