import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer_core.effect import expected
from coresteer_core.model import ABSENT_SHARE, Rates, encode_irq_id
from coresteer_core.plan import Action, Plan

LOC = encode_irq_id("LOC") or 0


def rates(
    *,
    busy: list[int],
    softirq: list[int] | None,
    irq: list[int] | None = None,
    cells: list[tuple[int, int, int]],
    duration_s: float = 60.0,
) -> Rates:
    """Shares in percent, ABSENT_SHARE as it is; cells as (irq_id, CPU, count)."""

    def column(percents: list[int] | None) -> bytes | None:
        return None if percents is None else bytes(p if p == ABSENT_SHARE else 2 * p for p in percents)

    return Rates(
        seq=1,
        time_ms=0,
        duration_s=duration_s,
        cpus=len(busy),
        shares={"busy": column(busy), "irq": column(irq), "softirq": column(softirq)},
        counts={},
        irq_ids=struct.pack(f"<{len(cells)}I", *(cell[0] for cell in cells)),
        irq_cpus=struct.pack(f"<{len(cells)}H", *(cell[1] for cell in cells)),
        irq_counts=struct.pack(f"<{len(cells)}I", *(cell[2] for cell in cells)),
        netdevs=None,
        tcp=None,
        tcp_out_segments=None,
        tcp_retransmits=None,
        agent_cpu_s=None,
        agent_rss_bytes=None,
    )


def plan(*moves: tuple[int, str]) -> Plan:
    return Plan([Action(f"irq/{irq}/affinity", "0", becomes, "") for irq, becomes in moves])


def test_from_half_of_an_interrupts_part_to_all_of_it_moves() -> None:
    # IRQ 41 has 3 of 4 device interrupts on CPU 0, whose irq and softirq time is 44 %: 33 percentage points
    base = rates(
        busy=[94, 12], softirq=[40, 1], irq=[4, 0], cells=[(41, 0, 300), (42, 0, 100), (LOC, 0, 9000), (LOC, 1, 9000)]
    )
    assert expected(plan((41, "1")), [base]) == ["CPU 0 94 → 61…78 % busy.", "CPU 1 12 → 28…45 % busy."]


def test_of_several_allowed_cpus_nobody_knows_which_the_kernel_takes() -> None:
    base = rates(busy=[50, 0, 0], softirq=[20, 0, 0], cells=[(41, 0, 5)])
    assert expected(plan((41, "1-2")), [base]) == [
        "CPU 0 50 → 30…40 % busy.",
        "One of CPUs 1-2 takes over 10…20 % of a CPU from IRQ 41; the kernel chooses which.",
    ]


def test_an_interrupt_stays_where_it_is_while_its_cpu_remains_allowed() -> None:
    base = rates(busy=[50, 0], softirq=[20, 0], cells=[(41, 0, 5)])
    assert expected(plan((41, "0-1")), [base]) == []


def test_a_saturated_cpu_may_stay_so_because_work_was_waiting() -> None:
    base = rates(busy=[100, 0], softirq=[80, 0], cells=[(41, 0, 1), (42, 0, 1)])
    assert expected(plan((41, "1")), [base])[0] == "CPU 0 100 → 60…100 % busy."


def test_a_quiet_interrupt_moves_no_load() -> None:
    base = rates(busy=[50, 0], softirq=[20, 0], cells=[(42, 0, 5)])
    assert expected(plan((41, "1")), [base]) == ["IRQ 41 was quiet; no load moves with it."]


def test_a_cell_that_counted_nothing_is_as_if_it_were_not_there() -> None:
    base = rates(busy=[50, 0], softirq=[20, 0], cells=[(41, 0, 0)])
    assert expected(plan((41, "1")), [base]) == ["IRQ 41 was quiet; no load moves with it."]


def test_where_an_interrupt_was_before_it_last_moved_does_not_count() -> None:
    before = rates(busy=[90, 0, 0], softirq=[80, 0, 0], cells=[(41, 0, 500)])
    since = rates(busy=[0, 50, 0], softirq=[0, 20, 0], cells=[(41, 1, 5)])
    assert expected(plan((41, "2")), [before, since]) == ["CPU 1 50 → 30…40 % busy.", "CPU 2 0 → 10…20 % busy."]


def test_moves_onto_one_cpu_add_up() -> None:
    base = rates(busy=[40, 40, 10], softirq=[20, 10, 0], cells=[(41, 0, 5), (42, 1, 5)])
    assert expected(plan((41, "2"), (42, "2")), [base])[-1] == "CPU 2 10 → 25…40 % busy."


@pytest.mark.parametrize(
    "history",
    [
        [],
        [rates(busy=[50], softirq=[20], cells=[(41, 0, 5)], duration_s=1.0)],
        [rates(busy=[50], softirq=None, cells=[(41, 0, 5)])],
    ],
    ids=["nothing", "one second", "no softirq times"],
)
def test_without_a_base_nothing_is_promised(history: list[Rates]) -> None:
    assert expected(plan((41, "1")), history) == []


def test_a_cpu_whose_load_is_unknown_has_no_sentence() -> None:
    base = rates(busy=[50, ABSENT_SHARE], softirq=[20, ABSENT_SHARE], cells=[(41, 0, 5)])
    assert expected(plan((41, "1")), [base]) == ["CPU 0 50 → 30…40 % busy."]


@given(
    busy=st.lists(st.integers(0, 100), min_size=4, max_size=4),
    cells=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(0, 1000)), max_size=12),
    moves=st.dictionaries(st.integers(1, 6), st.sampled_from(["0", "1", "2-3", "0-3"]), max_size=6),
)
def test_every_figure_is_a_percentage_and_every_range_runs_upwards(
    busy: list[int], cells: list[tuple[int, int, int]], moves: dict[int, str]
) -> None:
    base = rates(busy=busy, softirq=[share // 2 for share in busy], cells=cells)
    for sentence in expected(plan(*moves.items()), [base]):
        if "→" in sentence:
            low, _, high = sentence.split("→ ")[1].split(" %")[0].partition("…")
            assert 0 <= int(low) <= int(high or low) <= 100
