"""A run's figures from two readings."""

import math
from array import array

import pytest
from msgspec.structs import replace

from coresteer_core.experiments import run_metrics
from coresteer_core.experiments.run_metrics import Reading, run_result
from coresteer_core.metrics import EXPERIMENT_METRICS, METRICS
from coresteer_core.node.derive import CounterTable, Sample
from coresteer_core.node.rates import TcpLatency

NOTHING = Sample(1000, 1.0, 2, None, None, None, None, None, None, None)

BEFORE = Reading(
    replace(
        NOTHING,
        times={0: (100, 0, 100, 1000, 0, 10, 20, 5), 1: (0, 0, 0, 0, 0, 0, 0, 0)},
        interrupts=CounterTable((0, 1), {"41": array("I", [10, 2**32 - 5]), "9": array("I", [0, 0])}),
        softnet={0: (0, 0, 1), 1: (0, 0, 2**32 - 1)},
        netdevs={"eth0": (0, 0, 0, 0, 0, 0, 0, 0), "lo": (0, 0, 0, 0, 0, 0, 0, 0), "eth1": (0, 0, 0, 0, 0, 0, 0, 0)},
    ),
    context_switches=1000,
    migrations=7,
    numa_pages=(100, 50),
    pages_moved=10,
)
AFTER = Reading(
    replace(
        NOTHING,
        time_ms=3000,
        monotonic_s=3.0,
        times={0: (150, 10, 120, 1080, 0, 20, 40, 15), 1: (20, 0, 0, 180, 0, 0, 0, 0)},
        interrupts=CounterTable((0, 1), {"41": array("I", [110, 95]), "9": array("I", [8, 0])}),
        softnet={0: (0, 0, 3), 1: (0, 0, 1)},
        netdevs={
            "eth0": (2_000_000, 500_000, 4000, 10, 6, 2, 0, 0),
            "lo": (9, 9, 9, 9, 9, 9, 9, 9),
            "eth1": (0, 0, 400, 0, 0, 0, 0, 0),
        },
    ),
    context_switches=3000,
    migrations=17,
    numa_pages=(130, 60),
    pages_moved=4106,
)
IRQS = {"eth0": frozenset({41}), "eth1": frozenset[int]()}


def test_every_figure_of_a_run_is_what_was_counted_between_its_readings() -> None:
    run = run_result(BEFORE, AFTER, irqs=IRQS, load={"throughput_bit_per_s": 5e8}, load_before=0.5)
    assert (run.started_ms, run.duration_s, run.load_before, run.disturbed) == (1000, 2.0, 0.5, [])
    assert run.figures == pytest.approx(
        {
            "cpu_busy_percent": 100 * 110 / 200 + 100 * 20 / 200,
            "cpu_user_percent": 30 + 10,
            "cpu_system_percent": 10,
            "cpu_irq_percent": 5,
            "cpu_softirq_percent": 10,
            "interrupts_per_s": (100 + 100 + 8) / 2,
            "packets_per_s": 2200,
            "packets_per_interrupt": 4000 / 200,
            "dropped_per_s": 4,
            "squeezed_per_s": 2,
            "context_switches_per_s": 1000,
            "migrations_per_s": 5,
            "remote_numa_share": 0.25,
            "pages_moved": 4096,
            "throughput_bit_per_s": 5e8,
            "cpu_s_per_gbit": 0.65 / 0.5,
            "gbit_per_cpu_s": 0.5 / 0.65,
        }
    )
    assert run.steal_percent == pytest.approx(2.5)
    assert run.cpus["busy"] == pytest.approx([55.0, 10.0])
    assert run.figures.keys() <= EXPERIMENT_METRICS.keys()


def test_only_the_netdevs_of_the_run_count() -> None:
    figures = run_result(BEFORE, AFTER, netdevs=["eth1"], irqs=IRQS, load={}, load_before=0).figures
    assert figures["packets_per_s"] == 200
    assert "packets_per_interrupt" not in figures


def test_a_metric_with_a_source_is_measured_from_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {**EXPERIMENT_METRICS, "retransmits_per_s": METRICS["retransmits_per_s"]}
    monkeypatch.setattr(run_metrics, "_COUNTED", counted)
    before = replace(BEFORE, sample=replace(BEFORE.sample, counters={"tcp_retransmits": 10}))
    after = replace(AFTER, sample=replace(AFTER.sample, counters={"tcp_retransmits": 16}))
    figures = run_result(before, after, irqs=IRQS, load={}, load_before=0).figures
    assert figures["retransmits_per_s"] == 3.0
    sourced = {name for name, metric in counted.items() if metric.source and metric.source.kind != "tcp"}
    assert sourced <= figures.keys()


def test_traffic_that_is_only_observed_has_the_netdevs_bits_and_the_kernels_round_trip_times() -> None:
    tcp = [TcpLatency(3, 100, 200, 300), TcpLatency(3, 300, 400, 500)]
    figures = run_result(BEFORE, AFTER, netdevs=["eth0"], irqs=IRQS, load={}, load_before=0, tcp=tcp).figures
    assert figures["throughput_bit_per_s"] == 10_000_000
    assert [figures[f"rtt_p{n}_us"] for n in (50, 95, 99)] == [200, 300, 400]


def test_what_the_kernel_does_not_tell_is_absent_and_never_0() -> None:
    run = run_result(Reading(NOTHING), Reading(replace(NOTHING, monotonic_s=2.0)), irqs={}, load={}, load_before=0)
    assert run.figures == {}
    assert run.steal_percent is None
    assert run.cpus["busy"] == [None, None]


def test_what_a_load_says_that_is_no_figure_is_left_out() -> None:
    said = {"command.ok": 1.0, "command.with space": 1.0, "own": 1.0, "command.inf": math.inf, "rtt_p50_us": math.nan}
    figures = run_result(BEFORE, AFTER, irqs=IRQS, load=said, load_before=0).figures
    assert figures.keys() & said.keys() == {"command.ok"}


def test_a_counter_that_was_reset_is_absent() -> None:
    after = replace(AFTER, context_switches=5, numa_pages=(0, 0))
    figures = run_result(BEFORE, after, irqs=IRQS, load={}, load_before=0).figures
    assert figures.keys() & {"context_switches_per_s", "remote_numa_share"} == set()


@pytest.mark.parametrize(
    ("after", "netdevs", "sentence"),
    [
        (replace(AFTER.sample, times={0: (200, 0, 200, 2000, 0, 20, 40, 15)}), [], "CPU 1 went offline."),
        (replace(AFTER.sample, times={**(AFTER.sample.times or {}), 2: (0,) * 8}), [], "CPU 2 came online."),
        (replace(AFTER.sample, netdevs={}), ["eth0"], "The netdev eth0 is gone."),
        (replace(AFTER.sample, times=None), [], "The time of the CPUs could not be read."),
    ],
)
def test_a_machine_that_changed_while_it_was_measured_disturbs_the_run(
    after: Sample, netdevs: list[str], sentence: str
) -> None:
    run = run_result(BEFORE, replace(AFTER, sample=after), netdevs=netdevs, irqs=IRQS, load={}, load_before=0)
    assert run.disturbed == [sentence]
