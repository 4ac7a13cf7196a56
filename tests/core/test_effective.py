"""What coalescing does, judged by what was counted."""

import pytest
from msgspec.structs import replace
from tests.support.rates import UNREAD, make_rates
from tests.support.views import make_netdev

from coresteer_core.node.inventory import Inventory, Netdev, Queue
from coresteer_core.node.nic import Timer, Verdict
from coresteer_core.node.rates import NetdevCounts, TcpLatency, encode_irq_id
from coresteer_core.policies.coalescing.effective import (
    CoalescingCounts,
    CoalescingState,
    WriteAttempt,
    check_agreement,
    coalescing_counts,
    coalescing_state,
    receive_interrupts,
)
from coresteer_core.settings import NetdevParam


def nic(driver: str = "igb", *, shared: bool = True, queues: int = 2, **params: str) -> Netdev:
    named = {f"coalesce/{name.replace('_', '-')}": value for name, value in params.items()}
    found = [Queue(f"rx-{n}", 40 + n) for n in range(queues)]
    found += [Queue(f"tx-{n}", (40 if shared else 80) + n) for n in range(queues)]
    return make_netdev(driver=driver, queues=found, params=named)


def standing(driver: str = "igb", *, shared: bool = True, queues: int = 2, **params: str) -> CoalescingState:
    found = coalescing_state(nic(driver, shared=shared, queues=queues, **params))
    assert found is not None
    return found


def did(busiest_per_s: float, *, packets_per_s: float = 80_000, seconds: float = 10.0) -> CoalescingCounts:
    busiest = round(busiest_per_s * seconds)
    packets = round(packets_per_s * seconds)
    return CoalescingCounts(seconds, packets, 1000 * packets, packets // 2, 0, 2 * busiest, busiest)


def test_what_stands_is_read_from_the_parameters() -> None:
    found = standing("mlx5_core", rx_usecs="8", rx_frames="128", adaptive_rx="off", cqe_mode_rx="on", tx_usecs="16")
    assert (found.rx_usecs, found.rx_frames, found.adaptive, found.timer) == (8, 128, False, Timer.RESTARTING)
    assert (found.queues, found.shared, found.tx_usecs) == (2, True, 16)
    assert list(found.values) == ["coalesce/rx-usecs", "coalesce/rx-frames", "coalesce/adaptive-rx"]


@pytest.mark.parametrize(
    "netdev",
    [
        nic(),
        replace(nic(rx_usecs="54"), queues=[]),
        replace(nic(rx_usecs="54"), queues=[Queue("rx-0", 40), Queue("rx-1", 41, params={"coalesce/rx-usecs": "9"})]),
        replace(nic(), params={"coalesce/rx-usecs": "54", "gro_flush_timeout": "20000", "napi_defer_hard_irqs": "2"}),
    ],
    ids=["nothing", "no queues", "a queue of its own", "the kernel defers"],
)
def test_nothing_stands_where_the_parameters_do_not_decide_alone(netdev: Netdev) -> None:
    assert coalescing_state(netdev) is None


HELD = standing(rx_usecs="500")
CASES: dict[
    str, tuple[bool | None, CoalescingState, CoalescingCounts, CoalescingState | None, CoalescingCounts | None]
] = {
    "a timer that holds": (True, HELD, did(1990), None, None),
    "a timer that does not hold": (False, HELD, did(19_800), None, None),
    "a timer nearly held, as NICs count in steps": (True, HELD, did(2600), None, None),
    "too few packets to tell": (None, HELD, did(19_800, packets_per_s=900), None, None),
    "a NIC that adapts": (None, standing(rx_usecs="500", adaptive_rx="on"), did(19_800), None, None),
    "no wait at all": (None, standing(rx_usecs="0"), did(79_000), None, None),
    "a value that is a mode": (None, standing(rx_usecs="3"), did(79_000), None, None),
    "a virtio device that pretends": (
        False,
        standing("virtio_net", shared=False, rx_usecs="200"),
        did(30_000),
        None,
        None,
    ),
    "packets complete before the time is over": (
        True,
        standing("virtio_net", shared=False, rx_usecs="200", rx_frames="4"),
        did(20_000),
        None,
        None,
    ),
    "interrupts that may be of sent packets": (None, standing("virtio_net", rx_usecs="200"), did(30_000), None, None),
    "sent packets that wait as well": (
        False,
        standing("virtio_net", rx_usecs="200", tx_usecs="200"),
        did(30_000),
        None,
        None,
    ),
    "a shorter wait that shows": (True, standing(rx_usecs="20"), did(30_000), HELD, did(2000)),
    "a shorter wait that does not show": (False, standing(rx_usecs="20"), did(2010), HELD, did(2000)),
    "no wait any more, which does not show": (False, standing(rx_usecs="0"), did(2010), HELD, did(2000)),
    "a CPU that polls instead": (True, standing(rx_usecs="20"), did(300), HELD, did(2000)),
    "a wait not so much shorter": (True, standing(rx_usecs="250"), did(2010), HELD, did(2000)),
    "a wait that did not hold anything back": (True, standing(rx_usecs="20"), did(510), HELD, did(500)),
    "other traffic": (True, standing(rx_usecs="20"), did(2010, packets_per_s=20_000), HELD, did(2000)),
    "a longer wait that shows": (True, HELD, did(2000), standing(rx_usecs="20"), did(30_000)),
    "a longer wait that does not show": (False, HELD, did(30_000), standing(rx_usecs="20"), did(30_000)),
    "from adaptive to a wait that is ignored": (
        False,
        HELD,
        did(30_000),
        standing(rx_usecs="500", adaptive_rx="on"),
        did(30_000),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_value_is_effective_when_the_measured_interrupts_agree_with_it(case: str) -> None:
    holds, now, since, before, until = CASES[case]
    found = check_agreement(now, since, before, until)
    assert found.holds is holds
    assert bool(found.explanation) is (holds is False)


def test_a_contradiction_is_explained_with_its_figures() -> None:
    explanation = check_agreement(HELD, did(19_800)).explanation
    assert explanation == (
        "With rx-usecs 500 a queue can interrupt at most 2,000 times/s; "
        "the busiest interrupted 19,800 times/s at 80,000 packets/s."
    )


def test_interrupts_of_receiving_queues_are_counted_over_all_cpus() -> None:
    loc = encode_irq_id("LOC")
    assert loc is not None
    rates = make_rates(cells=[(40, 0, 5), (40, 1, 7), (41, 0, 20), (80, 0, 1000), (7, 0, 9), (loc, 0, 99)])
    assert receive_interrupts(rates, Inventory([nic(shared=False, rx_usecs="54")], [])) == {"eth0": (32, 20)}


def test_an_interrupt_that_did_not_come_counts_nothing() -> None:
    assert receive_interrupts(make_rates(cells=[(7, 0, 9)]), Inventory([nic(rx_usecs="54")], [])) == {"eth0": (0, 0)}


def test_interrupts_of_a_queue_that_are_not_known_are_not_nothing() -> None:
    inventory = Inventory([replace(nic(rx_usecs="54"), queues=[Queue("rx-0", 40), Queue("rx-1")])], [])
    assert receive_interrupts(make_rates(cells=[(40, 0, 5)]), inventory) == {}
    assert receive_interrupts(UNREAD, Inventory([nic(rx_usecs="54")], [])) == {}


def test_windows_add_up() -> None:
    one = coalescing_counts(
        make_rates(duration_s=2.0, tcp=TcpLatency(3, 150, 200, 300), cells=[]),
        NetdevCounts("eth0", 1000, 500, 10, 5, 1, 0, 0, 0),
        (8, 6),
    )
    assert one == CoalescingCounts(2.0, 10, 1000, 5, 1, 8, 6, 300.0, 2.0)
    assert one + one == CoalescingCounts(4.0, 20, 2000, 10, 2, 16, 12, 600.0, 4.0)


@pytest.mark.parametrize(
    ("found", "stood", "verdict"),
    [
        ("3", "500", Verdict.ACCEPTED),
        ("3", "504", Verdict.ROUNDED),
        ("3", "3", Verdict.IGNORED),
        ("3", None, Verdict.REFUSED),
        (None, "3", Verdict.ROUNDED),
    ],
)
def test_what_became_of_a_value(found: str | None, stood: str | None, verdict: Verdict) -> None:
    assert WriteAttempt(NetdevParam("eth0", "coalesce/rx-usecs"), "500", found, stood).verdict is verdict
