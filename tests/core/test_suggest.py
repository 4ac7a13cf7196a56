import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.policy_machines import Machine, machines
from tests.core.test_irq_spread import FLAT, TWO_NODES, machine
from tests.support.views import make_topology

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.limits import Limits, SettingLimits
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.view import View
from coresteer_core.policies.suggest import HOT_PERCENT, HOT_SOFTIRQ_PERCENT, Crossing, Option, suggest
from coresteer_core.settings import parse_setting


def minute(made: Machine, limits: Limits | None = None) -> View:
    """The machine's view with a load that covers a minute."""
    view = made.view
    inventory = replace(view.inventory, limits=limits or view.inventory.limits)
    return replace(view, inventory=inventory, load=replace(view.load, seconds=60.0))


def keys(option: Option) -> list[str]:
    return [move.key for move in option.moves]


def test_a_hot_cpu_is_relieved_with_the_predicted_load_in_numbers() -> None:
    found = suggest(minute(machine(FLAT, (0, 50), (0, 40))))
    (spot,) = found.hot
    (option,) = spot.options
    assert [(move.key, move.origin, move.target) for move in option.moves] == [("irq/40/affinity", 0, "1")]
    assert (option.policy, option.label) == ("irq-spread", "IRQ 40 → CPU 1")
    assert [(f.cpu, round(f.before), round(f.least), round(f.most)) for f in option.forecasts] == [
        (0, 90, -75, -25),
        (1, 0, 25, 75),
    ]
    assert (spot.cause, spot.sentence) == (
        "both queues of eth0 on one CPU",
        "IRQ 40 → CPU 1: CPU 0 from 90 % to between 15 and 65 %.",
    )
    assert found.sentence == "1 CPU is hot, at least 65 % busy or 50 % in softirq; a move would help."


def test_the_best_option_has_the_fewest_moves_that_cool_the_cpu_and_the_others_are_a_second_one() -> None:
    (spot,) = suggest(minute(machine(FLAT, (0, 30), (0, 30), (0, 30)))).hot
    assert [keys(option) for option in spot.options] == [["irq/40/affinity"], ["irq/42/affinity"]]
    (spot,) = suggest(minute(machine(FLAT, (0, 24), (0, 24), (0, 24), (0, 24)))).hot
    assert keys(spot.options[0]) == ["irq/40/affinity", "irq/41/affinity"]
    assert spot.options[0].label == "IRQ 40 → CPU 1, 41 → 2"


def test_a_label_names_each_interrupt_with_its_own_cpu_and_of_many_the_first() -> None:
    (spot,) = suggest(minute(machine(FLAT, (0, 20), (0, 30), (0, 25), (0, 15)))).hot
    for option in spot.options:
        pairs = [f"{parse_setting(move.key).interrupt} → {move.target}" for move in option.moves]
        assert option.label == "IRQ " + ", ".join(pairs).replace("→ ", "→ CPU ", 1)
    wide = make_topology(packages=1, nodes_per_package=1, cores_per_node=16, threads=1)
    (spot,) = suggest(minute(machine(wide, *[(0, 8.0)] * 12))).hot
    assert [option.label for option in spot.options] == [
        "IRQ 40 → CPU 1, 41 → 2, 42 → 3, 43 → 4",
        "IRQ 45 → CPU 5, 46 → 6, 47 → 7, 48 → 8 and 3 more",
    ]


def test_a_queue_whose_directions_have_interrupts_of_their_own_is_one_queue() -> None:
    made = machine(FLAT, (0, 30), (0, 30), (0, 15), (1, 5))
    names = ["rx-0", "tx-0", "rx-1", "rx-2"]
    irqs = [replace(irq, queues=[name]) for irq, name in zip(made.view.inventory.irqs, names, strict=True)]
    view = replace(made.view, inventory=replace(made.view.inventory, irqs=irqs))
    (spot,) = suggest(minute(replace(made, view=view))).hot
    assert spot.cause == "2 of 3 queues of eth0 on one CPU"


def test_a_cpu_that_is_hot_by_softirq_time_alone_is_relieved() -> None:
    found = suggest(minute(machine(FLAT, (0, 30), (0, 25))))
    assert [keys(option) for spot in found.hot for option in spot.options] == [["irq/40/affinity"]]


def receiver(cpu: int, at: int, share: float = 0.1) -> NetTask:
    """A process on a CPU whose packets are handled at another one."""
    placement = RxPlacement("eth0", "rx-0", 40, at, "rss", 1, 1e6, 0.0)
    return NetTask(812, 1, "envoy", None, 1, "0-7", "0-7", cpu, share, 0.0, [placement])


def test_a_process_far_from_its_packets_is_an_option_beside_the_interrupts() -> None:
    made = machine(TWO_NODES, (0, 50), (0, 40))
    made = replace(made, view=replace(made.view, tasks=[receiver(5, at=0)])).loaded()
    (spot,) = suggest(minute(made)).hot
    first, process = spot.options
    assert (first.policy, process.policy, process.moves[0].subject) == ("irq-spread", "network-process", "envoy (812)")
    assert process.crossing == Crossing(100.0, 0.0)
    assert process.forecasts[0].cpu == 0


def test_a_cpu_that_a_process_keeps_busy_is_relieved_by_moving_the_process() -> None:
    made = machine(TWO_NODES, (0, 5), other={5: 20.0})
    made = replace(made, view=replace(made.view, tasks=[receiver(5, at=0, share=0.7)])).loaded()
    (spot,) = suggest(minute(made)).hot
    (option,) = spot.options
    assert (spot.cpu, spot.cause, option.policy) == (5, "runs envoy (812)", "network-process")
    assert spot.sentence.startswith("envoy (812) → CPU ")
    assert spot.sentence.endswith(": CPU 5 from 90 % to between 20 and 55 %.")


def test_nothing_hot_is_said_with_the_limits() -> None:
    found = suggest(minute(machine(FLAT, (0, 20), (1, 30))))
    assert (found.hot, found.sentence) == ([], "Nothing is hot: no CPU is 65 % busy or spends 50 % in softirq.")


def test_without_samples_the_load_is_not_known() -> None:
    made = machine(FLAT, (0, 90))
    found = suggest(replace(made.view, load=replace(made.view.load, seconds=1.0)))
    assert (found.hot, found.sentence) == ([], "The load of this node's CPUs in the last minute is not known.")


def test_a_cpu_busy_without_interrupts_says_so() -> None:
    (spot,) = suggest(minute(machine(FLAT, (0, 5), other={2: 95.0}))).hot
    assert (spot.options, spot.sentence) == ([], "CPU 2 is 95 % busy, but not with interrupts.")


def test_a_hot_cpu_that_no_move_helps_is_explained_by_the_interrupt_that_loads_it_most() -> None:
    two = make_topology(packages=1, nodes_per_package=1, cores_per_node=2, threads=1)
    made = machine(two, (1, 44), (1, 42), (1, 0.5), other={0: 57, 1: 13})
    kept = replace(made.view.inventory.irqs[2], queues=[], netdev=None, movable=False, locked_reason="Managed.")
    inventory = replace(made.view.inventory, irqs=[*made.view.inventory.irqs[:2], kept])
    (spot,) = suggest(minute(replace(made, view=replace(made.view, inventory=inventory)))).hot
    assert spot.sentence == (
        "No move is known to help CPU 1. IRQ 40 (eth0-rx-0): CPU 1 is 100 % busy and no move would help: CPU 0, the "
        "only other allowed CPU, is 57 % busy and would reach 101 % with the 44 percentage points of this interrupt."
    )


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(SettingLimits(interrupts_off_limits=["eth0-*"])), "interrupts_off_limits"),
        (Limits(SettingLimits(allow=["netdev/*"])), "does not allow to change irq/40/affinity"),
        (Limits(unusable="It is writable by others."), "It is writable by others."),
    ],
)
def test_the_limits_of_a_node_are_the_reason_for_no_move(limits: Limits, why: str) -> None:
    (spot,) = suggest(minute(machine(FLAT, (0, 50), (0, 40)), limits)).hot
    assert spot.options == []
    assert why in spot.sentence


def test_a_cpu_off_limits_is_passed_over() -> None:
    limits = Limits(SettingLimits(cpus_off_limits="1-2"))
    (spot,) = suggest(minute(machine(FLAT, (0, 50), (0, 40)), limits)).hot
    assert [move.target for option in spot.options for move in option.moves] == ["3"]


@given(made=machines(max_cpus=64), closed=st.sets(st.integers(0, 63)), heat=st.floats(1.0, 4.0))
@settings(deadline=None)
def test_no_suggestion_names_a_forbidden_cpu_or_makes_one_hotter_than_the_source(
    made: Machine, closed: set[int], heat: float
) -> None:
    limits = Limits(SettingLimits(cpus_off_limits=",".join(map(str, sorted(closed)))))
    view = minute(made, limits)
    load = view.load
    busy = [None if share is None else min(1.0, share * heat) for share in load.busy]
    view = replace(view, load=replace(load, busy=busy))
    found = suggest(view)
    hot = {spot.cpu for spot in found.hot}
    assert found.sentence
    moved = [move.key for spot in found.hot for option in spot.options for move in option.moves]
    assert len(moved) == len(set(moved))
    forbidden = view.topology.isolated_cpus | closed | hot
    for spot in found.hot:
        assert spot.busy >= HOT_PERCENT or (spot.softirq or 0) >= HOT_SOFTIRQ_PERCENT
        assert spot.sentence
        assert spot.cause
        assert len(spot.options) <= 3
        likely: dict[int, float] = {}
        for option in spot.options:
            assert option.moves
            assert option.forecasts[0].cpu == spot.cpu
            for move in option.moves:
                targets = parse_cpu_list(move.value)
                assert targets <= view.topology.online() - forbidden
                number = parse_setting(move.key).interrupt
                irq = None if number is None else view.inventory.irq(number)
                assert number is None or (irq is not None and irq.movable is not False)
            for forecast in option.forecasts:
                assert forecast.least <= forecast.most
                # a gain's least is half of what moves; its most also has what may follow
                likely[forecast.cpu] = likely.get(forecast.cpu, forecast.before) + 2 * forecast.least
        assert all(percent < spot.busy + 1e-6 for cpu, percent in likely.items() if cpu not in hot), (spot, likely)
