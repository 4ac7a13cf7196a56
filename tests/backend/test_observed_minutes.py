"""Metrics of a node's stored minutes, from its samples."""

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace
from tests.backend.telemetry_data import machine

from coresteer.reports.minutes import Minute, observed_minutes
from coresteer.telemetry.rollup import minute_rollups
from coresteer_core.node.rates import CPU_SHARES, Rates, TcpLatency

CPUS = 64
SAMPLES = [
    replace(sample, duration_s=1.0) for sample in machine(60, cpus=CPUS, irqs=1, start_ms=1_800_000_000_000 + 1000)
]


def minute(samples: Sequence[Rates]) -> Minute:
    (found,) = observed_minutes(minute_rollups(samples), frozenset({"eth0"}))
    return found


def with_shares(sample: Rates, **shares: Sequence[int]) -> Rates:
    """The sample with these shares of its first CPUs, in units of 0.5 %, and otherwise idle."""
    given = {kind: bytes(of).ljust(CPUS, b"\0") for kind, of in shares.items()}
    return replace(sample, shares=dict.fromkeys(CPU_SHARES, bytes(CPUS)) | given)


def test_work_that_is_spread_over_all_cpus_takes_as_much_cpu_time() -> None:
    places = ([0] * 60, range(60))
    before, after = (
        minute([with_shares(one, busy=share, softirq=share) for one, share in zip(SAMPLES, shares, strict=True)])
        for shares in ([[0] * place + [24] for place in each] for each in places)
    )
    for metric in ("cpu_busy_percent", "cpu_softirq_percent", "cpu_s_per_gbit"):
        assert after.figures[metric] == pytest.approx(before.figures[metric]), metric
    assert after.figures["cpu_busy_percent"] == pytest.approx(12)
    assert after.cpus["softirq"] == [0.0] * CPUS, "the heat map has the rounded means of CPUs"


def test_time_in_which_the_host_ran_other_guests_is_no_cpu_time() -> None:
    alone, beside = (
        minute([with_shares(one, busy=[40 + steal], user=[30], softirq=[10], steal=[steal]) for one in SAMPLES])
        for steal in (0, 60)
    )
    assert alone.figures == beside.figures
    assert alone.figures["cpu_busy_percent"] == pytest.approx(20)
    assert beside.cpus["busy"][0] == 50


def test_a_round_trip_time_is_its_mean_over_the_minute() -> None:
    calm, slow = TcpLatency(9, 100, 300, 500), TcpLatency(9, 5000, 5000, 5000)
    figures = minute([replace(one, tcp=calm if at else slow) for at, one in enumerate(SAMPLES)]).figures
    found = [figures[f"rtt_{which}_us"] for which in ("p50", "p95", "p99")]
    assert found == pytest.approx(np.mean([[100, 300, 500]] * 59 + [[5000] * 3], axis=0))
