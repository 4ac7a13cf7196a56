import msgspec
import pytest
from msgspec.structs import replace
from tests.core.nic_plant import FRAMES, USECS, Plant, Traffic, run

from coresteer.papers.nic_model import FRAME_BYTES, GAP_US
from coresteer_core.node.inventory import Queue
from coresteer_core.node.load import IrqLoad, Load
from coresteer_core.node.nic import Timer
from coresteer_core.policies.coalescing.outcome import EXAMPLES, Outcome, knee_within, settle
from coresteer_core.policies.coalescing.spec import Coalescing
from coresteer_core.schema import json_schema

PRESETS = {
    preset.label: msgspec.convert({"type": "coalescing", **preset.values}, Coalescing) for preset in Coalescing.presets
}
BALANCED = PRESETS["balanced"]
PAPER, THROTTLE, _ = EXAMPLES


def on(example_index: int, label: str) -> Outcome:
    view = EXAMPLES[example_index].view
    found = settle(view, view.inventory.netdevs[0], PRESETS[label])
    assert found is not None
    return found


def test_the_presets_are_published_with_the_form_and_one_of_them_is_the_default() -> None:
    assert [preset["label"] for preset in json_schema(Coalescing)["presets"]] == [
        "bulk transfer",
        "balanced",
        "latency first",
    ]
    assert Coalescing() in PRESETS.values()


@pytest.mark.parametrize(
    ("label", "values"), [("bulk transfer", (90, 42)), ("balanced", (100, 5)), ("latency first", (20, 5))]
)
def test_on_the_papers_traffic_bulk_transfer_finds_the_authors_values(label: str, values: tuple[int, int]) -> None:
    found = on(0, label)
    assert (found.usecs, found.frames) == values
    traffic = Traffic(1e6 / GAP_US, FRAME_BYTES, link_bits_per_s=10**9)
    plant = Plant(Timer.RESTARTING, "bnx2", {USECS: "18", FRAMES: "6"}, traffic)
    enforced = run(plant, PRESETS[label], 100).end.params
    assert (int(enforced[USECS]), int(enforced[FRAMES])) == values, "what the form shows is not what is enforced"


def test_on_the_papers_traffic_the_shortest_bound_collects_nothing_and_says_so() -> None:
    found = on(0, "latency first")
    assert found.predicted is not None
    assert found.predicted.packets_per_interrupt == 1.0
    assert found.why.endswith("within 100 µs a timer that restarts collects hardly two of them.")


@pytest.mark.parametrize("index", range(len(EXAMPLES)))
def test_presets_trade_interrupts_for_latency_in_their_order(index: int) -> None:
    outcomes = [on(index, label) for label in ("bulk transfer", "balanced", "latency first")]
    rates = [found.predicted.interrupts_per_s for found in outcomes if found.predicted]
    waits = [found.max_wait_us for found in outcomes if found.max_wait_us is not None]
    assert (len(rates), len(waits)) == (3, 3)
    assert rates == sorted(rates)
    assert waits == sorted(waits, reverse=True)
    for found, spec in zip(outcomes, PRESETS.values(), strict=True):
        assert (found.max_wait_us or 0) <= spec.max_added_us


def test_the_knee_stays_within_the_bounds() -> None:
    view = PAPER.view
    netdev = view.inventory.netdevs[0]
    bulk = knee_within(view, netdev, PRESETS["bulk transfer"])
    assert bulk is not None
    assert (bulk.rx_usecs, bulk.rx_frames) == (80, 42)
    assert knee_within(view, netdev, PRESETS["latency first"]) is None


def test_the_knee_of_several_queues_counts_all_their_interrupts() -> None:
    view = replace(THROTTLE.view, load=replace(THROTTLE.view.load, irqs=[IrqLoad(1, 0, 500.0)]))
    netdev, (irq,), (load,) = view.inventory.netdevs[0], view.inventory.irqs, view.load.netdevs
    other = replace(irq, irq=2, queues=["rx-1"])
    doubled = replace(load, rx_packets_per_s=2 * load.rx_packets_per_s, rx_bytes_per_s=2 * load.rx_bytes_per_s)
    two = replace(
        view,
        inventory=replace(view.inventory, irqs=[irq, other]),
        load=replace(view.load, irqs=[IrqLoad(1, 0, 500.0), IrqLoad(2, 0, 500.0)], netdevs=[doubled]),
    )
    netdev = replace(netdev, queues=[*netdev.queues, Queue("rx-1", 2)])
    one, both = knee_within(view, view.inventory.netdevs[0], BALANCED), knee_within(two, netdev, BALANCED)
    assert one is not None and both is not None
    assert (both.rx_usecs, both.max_wait_us) == (one.rx_usecs, one.max_wait_us)
    assert both.predicted.interrupts_per_s == pytest.approx(2 * one.predicted.interrupts_per_s)


def test_measured_interrupts_correct_the_model() -> None:
    view = THROTTLE.view
    netdev = view.inventory.netdevs[0]
    found = settle(replace(view, load=replace(view.load, irqs=[IrqLoad(1, 0, 1000.0)])), netdev, BALANCED)
    assert found is not None and found.predicted is not None
    assert found.usecs == 10
    assert found.predicted.interrupts_per_s == pytest.approx(1000)
    assert "The target of 16 is reached" in found.why


def test_a_device_that_never_interrupts_as_its_packet_count_exceeds_its_ring_gets_a_time() -> None:
    view = EXAMPLES[2].view
    netdev = view.inventory.netdevs[0]
    netdev = replace(netdev, params={**netdev.params, USECS: "0", FRAMES: "300"})
    found = settle(view, netdev, BALANCED)
    assert found is not None
    assert found.usecs == 500


def test_a_silent_device_has_no_outcome() -> None:
    view = replace(PAPER.view, load=Load())
    assert settle(view, view.inventory.netdevs[0], Coalescing()) is None
    assert knee_within(view, view.inventory.netdevs[0], Coalescing()) is None


def test_a_device_without_coalescing_keeps_its_reason() -> None:
    view = PAPER.view
    netdev = replace(view.inventory.netdevs[0], params={})
    found = settle(view, netdev, Coalescing())
    assert found is not None
    assert (found.usecs, found.frames, found.predicted) == (None, None, None)
    assert found.why == "Its driver bnx2 has no rx-usecs."
