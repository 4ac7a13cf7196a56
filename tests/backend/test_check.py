"""What an agent tells of its netdevs is bounded before it is kept and decided on."""

import pytest
from msgspec.structs import replace

from coresteer.gateway.validation import check_inventory, check_learned
from coresteer_core.node.inventory import Inventory, Netdev, Queue
from coresteer_core.node.nic import Learned, Point


def inventory(params: dict[str, str], queue: dict[str, str], params_max: dict[str, str]) -> Inventory:
    netdev = Netdev(
        "eth0", "igb", 10**9, 1500, 0, up=True, virtual=False, management=True,
        queues=[Queue("rx-0", params=queue)], params=params, params_max=params_max,
    )  # fmt: skip
    return Inventory([netdev], [])


def test_coalescing_rings_and_polling_are_taken() -> None:
    values = {"coalesce/rx-usecs": "3", "coalesce/adaptive-rx": "off", "gro_flush_timeout": str(2**64 - 1)}
    assert check_inventory(inventory(values | {"ring/rx": "256"}, values, {"ring/rx": "4096"})) is None


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("coalesce/rx-msecs", "3", "'coalesce/rx-msecs' is not a setting of a network device."),
        ("x" * 1000, "3", "is not a setting of a network device."),
        ("coalesce/rx-usecs", "-3", "not a number of µs"),
        ("coalesce/rx-usecs", "9" * 4000, "not a number of µs"),
        ("coalesce/adaptive-rx", "maybe", "neither on nor off"),
        ("ring/rx", str(2**64), "not a number of descriptors"),
    ],
)
@pytest.mark.parametrize("where", range(3))
def test_what_is_no_param_or_no_value_is_named(name: str, value: str, says: str, where: int) -> None:
    places: list[dict[str, str]] = [{}, {}, {}]
    places[where][name] = value
    wrong = check_inventory(inventory(*places))
    assert wrong is not None
    assert says in wrong
    assert len(wrong) < 200


def test_a_link_of_no_speed_is_not_told_as_0() -> None:
    told = inventory({}, {}, {})
    netdev = replace(told.netdevs[0], speed_bits_per_s=0)
    assert "eth0 with a speed of 0 bit/s" in (check_inventory(replace(told, netdevs=[netdev])) or "")


@pytest.mark.parametrize("seconds", [0.0, 5e-324, float("nan"), -1.0, float("inf")])
def test_a_point_that_took_no_time_says_nothing_by_the_second(seconds: float) -> None:
    point = Point("eth0", 54, None, False, seconds, 2**52, 0, 0, 0)
    assert "a number that no NIC can have counted" in (check_learned(Learned([], [point])) or "")
    assert check_learned(Learned([], [replace(point, seconds=5.0)])) is None
