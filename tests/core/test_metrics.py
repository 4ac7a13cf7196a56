"""The registry of metrics, and the values that are computed from one interval's Rates."""

import pytest
from tests.support.rates import UNREAD, make_rates, pack

from coresteer_core.metrics import (
    COUNTER_SOURCES,
    FLEET_METRICS,
    GUARDRAIL_METRICS,
    HISTORY_METRICS,
    METRICS,
    SCALAR_SOURCES,
    cpu_s_per_gbit,
    gbit_per_cpu_s,
    wrong_node_percent,
)
from coresteer_core.node.metric_values import (
    SCALAR_READERS,
    device_interrupts,
    guardrail_values,
    largest_share,
    metric_values,
    sum_known_cpus,
)
from coresteer_core.node.rates import ABSENT_U32, CPU_COUNTS, NetdevCounts, Rates, TcpLatency, encode_irq_id


def u32(*numbers: int) -> bytes:
    return pack("I", numbers)


def test_every_metric_has_a_source_or_a_formula_and_both_languages() -> None:
    for name, metric in METRICS.items():
        assert (metric.source is not None) or metric.formula, name
        assert metric.label and metric.label_ko, name
        assert metric.short or not (metric.chart or metric.fleet or metric.guardrail), name


def test_every_source_names_a_field_that_is_there() -> None:
    for name, metric in METRICS.items():
        if metric.source is not None and metric.source.kind == "netdev":
            assert metric.source.field in NetdevCounts.__struct_fields__, name
    for field, source in SCALAR_SOURCES.items():
        fields = {"cpu": CPU_COUNTS, "tcp": TcpLatency.__struct_fields__, "agent": Rates.__struct_fields__}
        assert (source.column if source.kind == "cpu" else field) in fields.get(source.kind, (field,)), field
    assert all(bool(source.path) == bool(source.column) for source in COUNTER_SOURCES.values())
    assert SCALAR_READERS.keys() == SCALAR_SOURCES.keys()


def test_what_could_not_be_read_is_none_and_not_zero() -> None:
    assert set(metric_values(UNREAD, HISTORY_METRICS, None).values()) == {None}
    assert set(guardrail_values(UNREAD).values()) == {None}
    assert guardrail_values(UNREAD).keys() == GUARDRAIL_METRICS.keys()


def test_traffic_is_that_of_the_physical_netdevs_or_of_all_but_loopback() -> None:
    netdevs = [
        NetdevCounts(name, 1000 * n, 0, 10 * n, 0, 0, 0, 0, 0) for n, name in enumerate(("lo", "eth0", "br0"), 1)
    ]
    rates = make_rates(duration_s=2.0, netdevs=netdevs)
    assert metric_values(rates, FLEET_METRICS, frozenset({"eth0"}))["rx_bytes_per_s"] == 1000.0
    assert metric_values(rates, HISTORY_METRICS, None)["rx_packets_per_s"] == 25.0
    assert metric_values(rates, METRICS, None)["rx_bit_per_s"] == 20_000.0
    assert metric_values(rates, FLEET_METRICS, frozenset())["rx_bytes_per_s"] is None


def test_increments_are_rates_and_levels_are_as_they_are() -> None:
    rates = make_rates(
        duration_s=2.0,
        tcp=TcpLatency(3, 100, 200, 300),
        counts={"dropped": u32(4, ABSENT_U32, 2)},
        agent_cpu_s=0.01,
        agent_rss_bytes=5,
        counters={"tcp_retransmits": 8},
    )
    values = metric_values(rates, HISTORY_METRICS, None)
    assert (values["rtt_p99_us"], values["softnet_dropped_per_s"], values["retransmits_per_s"]) == (300, 3.0, 4.0)
    assert (values["agent_cpu_percent"], values["agent_rss_bytes"]) == (0.5, 5)


def test_interrupts_of_devices_are_those_with_a_number() -> None:
    loc, top = encode_irq_id("LOC"), 0x2100_0000 - 1
    assert loc is not None
    cells = make_rates(cells=[(41, 0, 5), (loc, 0, 100), (0, 0, 2), (top, 0, 1)])
    assert device_interrupts(cells) == 8
    assert device_interrupts(make_rates(cells=[])) == 0


def test_sums_and_maxima_leave_out_what_is_unknown() -> None:
    assert (sum_known_cpus(u32(1, ABSENT_U32, 2)), sum_known_cpus(u32(ABSENT_U32)), sum_known_cpus(None)) == (
        3,
        None,
        None,
    )
    assert largest_share(bytes([10, 255, 181])) == (2, 90.5)
    assert largest_share(bytes([255, 0])) == (1, 0.0)
    assert largest_share(bytes([255])) is largest_share(b"") is largest_share(None) is None


@pytest.mark.parametrize(("percent", "bits", "expected"), [(50.0, 2e9, 0.25), (None, 1.0, None), (50.0, 0.0, None)])
def test_cpu_seconds_for_a_gigabit(percent: float | None, bits: float, expected: float | None) -> None:
    assert cpu_s_per_gbit(percent, bits) == expected


@pytest.mark.parametrize(("percent", "bits", "expected"), [(50.0, 2e9, 4.0), (None, 1.0, None), (0.0, 1e9, None)])
def test_gigabits_for_a_cpu_second(percent: float | None, bits: float, expected: float | None) -> None:
    assert gbit_per_cpu_s(percent, bits) == expected


@pytest.mark.parametrize(
    ("counters", "percent"),
    [
        ({"rx_bytes_core": 60, "rx_bytes_node": 20, "rx_bytes_remote": 20, "rx_bytes_unknown": 900}, 20.0),
        ({"rx_bytes_core": 10, "rx_bytes_remote": 0}, 0.0),
        ({"rx_bytes_core": 0, "rx_bytes_remote": 0, "rx_bytes_unknown": 7}, None),
        ({}, None),
    ],
)
def test_wrong_node_bytes_are_of_those_whose_cpu_is_known(counters: dict[str, int], percent: float | None) -> None:
    assert wrong_node_percent(counters.get) == percent
