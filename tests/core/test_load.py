"""Load from the Rates of some intervals: what the netdevs moved, and the round trips."""

import pytest
from msgspec.structs import replace
from tests.support.rates import make_rates

from coresteer_core.node.load import NetdevLoad, mean_load
from coresteer_core.node.rates import ABSENT_SHARE, NetdevCounts, Rates, TcpLatency


def interval(netdevs: list[NetdevCounts] | None, *, seconds: float = 1.0, tcp: TcpLatency | None = None) -> Rates:
    return make_rates(duration_s=seconds, netdevs=netdevs, tcp=tcp)


def eth0(packets: int, name: str = "eth0") -> NetdevCounts:
    return NetdevCounts(name, 100 * packets, 10 * packets, packets, packets // 2, 3, 4, 5, 6)


def test_a_netdevs_load_is_its_counts_over_the_time_that_they_cover() -> None:
    load = mean_load([interval([eth0(1000)]), interval([eth0(4000)], seconds=4.0)])
    assert load.netdevs == [NetdevLoad("eth0", 1000.0, 100_000.0, 500.0, 10_000.0, 6 / 5)]


@pytest.mark.parametrize(
    ("intervals", "names"),
    [
        ([interval([eth0(1)]), interval(None)], ["eth0"]),
        ([interval([eth0(1)]), interval([eth0(1), eth0(1, "eth1")])], ["eth0"]),
        ([interval([eth0(1), eth0(1, "eth1")]), interval([eth0(1, "eth1")])], ["eth1"]),
        ([interval([eth0(1)], seconds=0.0)], []),
        ([interval(None)], []),
    ],
)
def test_only_netdevs_that_were_counted_throughout_are_in_the_load(intervals: list[Rates], names: list[str]) -> None:
    assert [netdev.name for netdev in mean_load(intervals).netdevs] == names


def test_intervals_without_netdev_counters_do_not_thin_the_load() -> None:
    assert mean_load([interval([eth0(1000)]), interval(None)]).netdevs[0].rx_packets_per_s == 1000.0


def test_the_median_round_trip_is_weighted_with_time_and_not_known_without_sockets() -> None:
    quick, slow, none = TcpLatency(3, 100, 200, 300), TcpLatency(3, 400, 500, 600), TcpLatency(0, 0, 0, 0)
    assert mean_load([interval(None, tcp=quick), interval(None, tcp=slow, seconds=2.0)]).rtt_p50_us == 300
    assert mean_load([interval(None, tcp=quick), interval(None, tcp=none), interval(None)]).rtt_p50_us == 100
    assert mean_load([interval(None, tcp=none)]).rtt_p50_us is None


def test_the_system_share_of_a_cpu_does_not_include_its_softirq_share() -> None:
    rates = make_rates(busy=[50, 90], softirq=[20, None])
    rates = replace(rates, shares=rates.shares | {"system": bytes([40, 255])})
    assert (mean_load([rates]).softirq, mean_load([rates]).system) == ([0.2, None], [0.2, None])


def test_busy_includes_steal_time_which_is_also_known_by_itself() -> None:
    absent = bytes([ABSENT_SHARE])
    first = make_rates(cpus=2, shares={"busy": bytes([150, 20]), "steal": bytes([50, 0])})
    second = make_rates(cpus=2, shares={"busy": bytes([50]) + absent, "steal": bytes([10]) + absent})
    load = mean_load([first, second])
    assert (load.busy, load.steal) == ([0.5, 0.1], [0.15, 0.0])
