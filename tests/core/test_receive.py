import pytest
from msgspec.structs import replace
from tests.support.views import make_netdev, make_view

from coresteer_core.node.inventory import Inventory, Irq, Queue
from coresteer_core.node.load import IrqLoad, Load, NetdevLoad
from coresteer_core.node.nic import Timer
from coresteer_core.node.nic_model import TimerParams
from coresteer_core.node.receive import ReceivedTraffic, receive_irqs, received_traffic, timer_params
from coresteer_core.node.view import View
from coresteer_core.settings.overlay import overlay


def irq(number: int, netdev: str, *queues: str) -> Irq:
    return Irq(number, f"{netdev}-{number}", "PCI", "0", "0", 0, True, None, netdev, list(queues))


def node(driver: str = "igb", packets_per_s: float = 40_000.0, **params: str) -> View:
    """eth0 with queues on IRQs 41 (three of four packets) and 42, and eth1, which is as busy."""
    params = {f"coalesce/{name.replace('_', '-')}": value for name, value in params.items()}
    eth0 = make_netdev("eth0", driver, params=params, queues=[Queue("rx-0", 41), Queue("rx-1", 42)])
    netdevs = [eth0, make_netdev("eth1", driver, params=params)]
    irqs = [irq(40, "eth0"), irq(41, "eth0", "rx-0", "tx-0"), irq(42, "eth0", "rx-1", "tx-1"), irq(43, "eth1", "rx-0")]
    load = Load(
        seconds=10.0,
        irqs=[IrqLoad(40, 0, 1.0), IrqLoad(41, 0, 9_000.0), IrqLoad(42, 1, 3_000.0), IrqLoad(43, 1, 9_000.0)],
        netdevs=[NetdevLoad(name, packets_per_s, packets_per_s * 1000, 0.0, 0.0, 0.0) for name in ("eth0", "eth1")],
    )
    return make_view(2, netdevs=netdevs, irqs=irqs, load=load)


def rates(view: View) -> dict[int, float]:
    return {cell.irq: cell.per_s for cell in view.load.irqs}


def test_packets_are_divided_as_interrupts_are() -> None:
    view = node()
    eth0 = view.inventory.netdevs[0]
    assert receive_irqs(view.inventory, eth0) == {41, 42}
    assert received_traffic(view.inventory, view.load, eth0) == ReceivedTraffic(40_000, 1000, 0.75, 12_000)
    assert received_traffic(view.inventory, view.load, eth0, 42) == ReceivedTraffic(10_000, 1000, 1.0, 3_000)


def test_without_known_queues_all_interrupts_of_the_netdev_are_its_receiving_ones() -> None:
    view = node()
    irqs = [replace(each, queues=[]) for each in view.inventory.irqs]
    assert receive_irqs(Inventory([], irqs), replace(view.inventory.netdevs[0], queues=[])) == {40, 41, 42}


@pytest.mark.parametrize(
    "load",
    [Load(), Load(seconds=10.0, netdevs=[NetdevLoad("eth0", 0.0, 0.0, 0.0, 0.0, 0.0)])],
    ids=["not counted", "quiet"],
)
def test_where_nothing_was_received_nothing_is_told(load: Load) -> None:
    view = node()
    assert received_traffic(view.inventory, load, view.inventory.netdevs[0]) is None


def test_packets_of_unknown_interrupts_are_taken_as_one_queues() -> None:
    view = node()
    load = replace(view.load, irqs=[])
    assert received_traffic(view.inventory, load, view.inventory.netdevs[0]) == ReceivedTraffic(40_000, 1000, 1.0, None)
    assert received_traffic(view.inventory, load, view.inventory.netdevs[0], 41) is None


@pytest.mark.parametrize(
    ("driver", "params", "wait"),
    [
        ("igb", {"rx-usecs": "50"}, TimerParams(Timer.THROTTLE, 50)),
        ("igb", {"rx-usecs": "3"}, None),
        ("virtio_net", {"rx-usecs": "8", "rx-frames": "16"}, TimerParams(Timer.ABSOLUTE, 8, 16)),
        ("mlx5_core", {"rx-usecs": "8", "rx-frames": "128", "adaptive-rx": "on"}, None),
        ("unheard_of", {"rx-usecs": "8", "rx-frames": "16"}, TimerParams(Timer.RESTARTING, 8, 16)),
        ("vmxnet3", {}, None),
    ],
)
def test_how_long_a_netdev_waits_is_known_unless_its_driver_changes_it(
    driver: str, params: dict[str, str], wait: TimerParams | None
) -> None:
    assert timer_params(driver, {f"coalesce/{name}": value for name, value in params.items()}) == wait


def test_a_netdev_that_waits_longer_interrupts_less_in_what_is_seen_from_then_on() -> None:
    before = node(rx_usecs="10")
    after = overlay(before, {"netdev/eth0/coalesce/rx-usecs": "500"})
    assert after.inventory.netdevs[0].params == {"coalesce/rx-usecs": "500"}
    assert after.inventory.netdevs[1] == before.inventory.netdevs[1]
    # 30,000 packets/s of the busiest queue, of which a throttle of 10 µs lets most interrupt and one of 500 µs 2,000
    pace = rates(after)[41] / 9_000
    assert 1 / 15 < pace < 1 / 12
    assert rates(after) == {40: 1.0, 41: 9_000 * pace, 42: pytest.approx(3_000 * pace), 43: 9_000.0}


def test_where_the_driver_set_its_own_pace_the_prediction_takes_the_place_of_what_was_measured() -> None:
    after = overlay(node(rx_usecs="3"), {"netdev/eth0/coalesce/rx-usecs": "500"})
    assert rates(after)[41] + rates(after)[42] == pytest.approx(2_000 / 0.75, rel=0.02)


@pytest.mark.parametrize(
    ("view", "values"),
    [
        (node(rx_usecs="10"), {"netdev/eth0/coalesce/rx-usecs": "3"}),
        (node(rx_usecs="10"), {"netdev/eth0/coalesce/tx-usecs": "500"}),
        (node(rx_usecs="10"), {"netdev/eth0/rx-1/coalesce/rx-usecs": "500"}),
        (node(rx_usecs="10", packets_per_s=0.0), {"netdev/eth0/coalesce/rx-usecs": "500"}),
        (node(), {"netdev/eth0/gro_flush_timeout": "20000"}),
    ],
    ids=["the driver's own pace", "what is sent", "one queue alone", "no traffic", "the kernel's polling"],
)
def test_what_says_nothing_of_a_netdevs_interrupts_leaves_them(view: View, values: dict[str, str]) -> None:
    after = overlay(view, values)
    assert after.load == view.load
    assert after.inventory != view.inventory


def test_where_the_model_has_no_interrupts_at_all_what_was_measured_stays() -> None:
    before = node(rx_usecs="0", rx_frames="60000")
    assert overlay(before, {"netdev/eth0/coalesce/rx-usecs": "500"}).load == before.load


def test_a_queue_has_values_of_its_own() -> None:
    after = overlay(node(rx_usecs="10"), {"netdev/eth0/rx-1/coalesce/rx-usecs": "500"})
    assert [queue.params for queue in after.inventory.netdevs[0].queues] == [{}, {"coalesce/rx-usecs": "500"}]


def test_an_interrupt_that_moves_and_waits_longer_arrives_less_on_its_new_cpu() -> None:
    waits = {"netdev/eth0/coalesce/rx-usecs": "500"}
    pace = rates(overlay(node(rx_usecs="10"), waits))[41] / 9_000
    after = overlay(node(rx_usecs="10"), {"irq/41/affinity": "1", **waits})
    assert [cell for cell in after.load.irqs if cell.irq == 41] == [IrqLoad(41, 1, 9_000 * pace)]
