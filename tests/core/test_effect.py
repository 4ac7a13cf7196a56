from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.rates import make_rates
from tests.support.views import EMPTY, make_netdev, make_view

from coresteer_core.changes.effect import predict_effect
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.node.inventory import Queue
from coresteer_core.node.rates import NetdevCounts, Rates, encode_irq_id
from coresteer_core.node.view import View

LOC = encode_irq_id("LOC") or 0
minute = partial(make_rates, duration_s=60.0)


def plan(*moves: tuple[int, str]) -> Plan:
    return Plan([Action(f"irq/{irq}/affinity", "0", becomes, "") for irq, becomes in moves])


def test_from_half_of_an_interrupts_share_of_the_load_to_one_and_a_half_moves_but_no_more_than_there_is() -> None:
    # IRQ 41 has 3 of 4 device interrupts on CPU 0, whose irq and softirq time is 44 %: 33 percentage points
    base = minute(
        busy=[94, 12], softirq=[40, 1], irq=[4, 0], cells=[(41, 0, 300), (42, 0, 100), (LOC, 0, 9000), (LOC, 1, 9000)]
    )
    assert predict_effect(plan((41, "1")), EMPTY, [base]) == ["CPU 0 94 → 50…78 % busy.", "CPU 1 12 → 28…62 % busy."]


def test_with_several_allowed_cpus_the_effect_names_no_single_target() -> None:
    base = minute(busy=[50, 0, 0], softirq=[20, 0, 0], cells=[(41, 0, 5)])
    assert predict_effect(plan((41, "1-2")), EMPTY, [base]) == [
        "CPU 0 50 → 30…40 % busy.",
        "One of CPUs 1-2 takes over 10…30 % of a CPU from IRQ 41; the kernel chooses which.",
    ]


def test_an_interrupt_stays_where_it_is_while_its_cpu_remains_allowed() -> None:
    base = minute(busy=[50, 0], softirq=[20, 0], cells=[(41, 0, 5)])
    assert predict_effect(plan((41, "0-1")), EMPTY, [base]) == []


def test_a_saturated_cpu_may_stay_so_because_work_was_waiting() -> None:
    base = minute(busy=[100, 0], softirq=[80, 0], cells=[(41, 0, 1), (42, 0, 1)])
    assert predict_effect(plan((41, "1")), EMPTY, [base]) == ["CPU 0 100 → 60…100 % busy.", "CPU 1 0 → 20…100 % busy."]


def test_a_quiet_interrupt_moves_no_load() -> None:
    base = minute(busy=[50, 0], softirq=[20, 0], cells=[(42, 0, 5)])
    assert predict_effect(plan((41, "1")), EMPTY, [base]) == ["IRQ 41 was quiet; no load moves with it."]


def test_a_cell_with_a_count_of_zero_is_ignored() -> None:
    base = minute(busy=[50, 0], softirq=[20, 0], cells=[(41, 0, 0)])
    assert predict_effect(plan((41, "1")), EMPTY, [base]) == ["IRQ 41 was quiet; no load moves with it."]


def test_intervals_before_an_interrupts_last_move_are_ignored() -> None:
    before = minute(busy=[90, 0, 0], softirq=[80, 0, 0], cells=[(41, 0, 500)])
    since = minute(busy=[0, 50, 0], softirq=[0, 20, 0], cells=[(41, 1, 5)])
    assert predict_effect(plan((41, "2")), EMPTY, [before, since]) == [
        "CPU 1 50 → 30…40 % busy.",
        "CPU 2 0 → 10…30 % busy.",
    ]


def test_effects_of_moves_to_the_same_cpu_add_up() -> None:
    base = minute(busy=[40, 40, 10], softirq=[20, 10, 0], cells=[(41, 0, 5), (42, 1, 5)])
    assert predict_effect(plan((41, "2"), (42, "2")), EMPTY, [base])[-1] == "CPU 2 10 → 25…55 % busy."


@pytest.mark.parametrize(
    "history",
    [
        [],
        [make_rates(busy=[50], softirq=[20], cells=[(41, 0, 5)])],
        [minute(busy=[50], cells=[(41, 0, 5)])],
    ],
    ids=["nothing", "one second", "no softirq times"],
)
def test_without_enough_history_no_effect_is_predicted(history: list[Rates]) -> None:
    assert predict_effect(plan((41, "1")), EMPTY, history) == []


def test_a_cpu_with_an_unknown_load_has_no_predicted_effect() -> None:
    base = minute(busy=[50, None], softirq=[20, None], cells=[(41, 0, 5)])
    assert predict_effect(plan((41, "1")), EMPTY, [base]) == ["CPU 0 50 → 30…40 % busy."]


@given(
    busy=st.lists(st.integers(0, 100), min_size=4, max_size=4),
    cells=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(0, 1000)), max_size=12),
    moves=st.dictionaries(st.integers(1, 6), st.sampled_from(["0", "1", "2-3", "0-3"]), max_size=6),
)
def test_every_predicted_load_is_a_percentage_and_every_range_ascends(
    busy: list[int], cells: list[tuple[int, int, int]], moves: dict[int, str]
) -> None:
    base = minute(busy=busy, softirq=[share // 2 for share in busy], cells=cells)
    for sentence in predict_effect(plan(*moves.items()), EMPTY, [base]):
        if "→" in sentence:
            low, _, high = sentence.split("→ ")[1].split(" %")[0].partition("…")
            assert 0 <= int(low) <= int(high or low) <= 100


def node(driver: str, params: dict[str, str], *, queues: Sequence[Queue] = (Queue("rx-0", 41),)) -> View:
    """eth0 of 1 Gbit/s with one receive queue on IRQ 41."""
    return make_view(netdevs=[make_netdev(driver=driver, mtu=9000, queues=list(queues), params=params)])


def asked(**values: str) -> Plan:
    return Plan([Action(f"netdev/eth0/coalesce/{k.replace('_', '-')}", "", v, "") for k, v in values.items()])


BULK = minute(
    busy=[20],
    softirq=[10],
    cells=[(41, 0, 60 * 13_889)],
    netdevs=[NetdevCounts("eth0", 60 * 125_000_000, 0, 60 * 13_889, 0, 0, 0, 0, 0)],
)
"""A minute of back-to-back frames of 9000 B at 1 Gbit/s, each with its interrupt."""

CQE = {"coalesce/rx-usecs": "18", "coalesce/rx-frames": "6", "coalesce/cqe-mode-rx": "on"}


def test_a_longer_delay_predicts_fewer_interrupts_and_more_latency() -> None:
    assert predict_effect(asked(rx_usecs="90"), node("mlx5_core", CQE), [BULK]) == [
        "eth0: for its 13,889 packets/s of 9,000 B the NIC model predicts 13,889 → 2,317 interrupts/s, added latency "
        "18 → 180 µs in the mean and 18 → 360 µs at worst; a packet waits 450 µs at most (rx-usecs × "
        "rx-frames is 540 µs)."
    ]


def test_predicted_drops_are_shown() -> None:
    (sentence,) = predict_effect(
        asked(rx_usecs="90", rx_frames="60"), node("mlx5_core", CQE | {"ring/rx": "42"}), [BULK]
    )
    assert "at worst; 2.3% of the packets are dropped; a packet waits 5,310 µs at most" in sentence


def test_under_an_adaptive_driver_the_measured_rate_is_the_value_before() -> None:
    (sentence,) = predict_effect(asked(rx_usecs="200"), node("igb", {"coalesce/rx-usecs": "3"}), [BULK])
    assert "the NIC model predicts 13,889 (measured) → 5,000 interrupts/s, added latency " in sentence
    assert sentence.endswith("; a packet waits 200 µs at most.")


@pytest.mark.parametrize(
    ("driver", "values"), [("mlx5_core", {"adaptive_rx": "on"}), ("igb", {"rx_usecs": "1"})], ids=["adaptive", "a mode"]
)
def test_for_an_adaptive_driver_no_effect_is_predicted(driver: str, values: dict[str, str]) -> None:
    assert predict_effect(asked(**values), node(driver, CQE), [BULK]) == [
        "eth0: the driver adapts the delay to the load, so its effect is not predicted."
    ]


def test_without_traffic_only_the_latency_bound_is_predicted() -> None:
    assert predict_effect(asked(rx_usecs="50"), node("igb", {"coalesce/rx-usecs": "10"}), []) == [
        "eth0: a packet waits 50 µs at most."
    ]


def test_for_an_unknown_timer_the_longest_delay_is_given_with_the_reason() -> None:
    (sentence,) = predict_effect(asked(rx_usecs="50"), node("nfp", {"coalesce/rx-usecs": "10"}), [])
    assert sentence.startswith("eth0: the delay of a packet is unbounded. The event from which nfp counts rx-usecs")


def test_a_queue_with_its_own_parameters_has_its_own_prediction() -> None:
    view = node("virtio_net", {"coalesce/rx-usecs": "0"}, queues=[Queue("rx-0", 41), Queue("rx-1", 42)])
    plan = Plan([Action("netdev/eth0/rx-1/coalesce/rx-usecs", "0", "100", "")])
    half = minute(
        busy=[20], softirq=[10], cells=[(41, 0, 30_000), (42, 0, 30_000)],
        netdevs=[NetdevCounts("eth0", 60 * 100_000, 0, 60_000, 0, 0, 0, 0, 0)],
    )  # fmt: skip
    (sentence,) = predict_effect(plan, view, [half])
    assert sentence.startswith("eth0 rx-1: for its 500 packets/s of 100 B the NIC model predicts ")


def test_a_removed_netdev_or_queue_has_no_predicted_effect() -> None:
    assert predict_effect(asked(rx_usecs="50"), EMPTY, [BULK]) == []
    gone = Plan([Action("netdev/eth0/rx-9/coalesce/rx-usecs", "0", "100", "")])
    assert predict_effect(gone, node("virtio_net", {}), [BULK]) == []
