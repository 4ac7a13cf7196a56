"""Bounds, refusals and warnings of a NIC's coalescing and ring settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.views import make_netdev, make_view

from coresteer_core.changes.guard import refusals, warnings
from coresteer_core.changes.plan import DesiredValue, inverse, preview
from coresteer_core.node.inventory import Queue
from coresteer_core.node.nic import DriverRecord, DriverResponse, NicKnowledge, Verdict
from coresteer_core.node.view import View
from coresteer_core.settings import parse_setting
from coresteer_core.settings.params import PARAMS

RX_USECS = "netdev/eth0/coalesce/rx-usecs"


def response(
    name: str, requested: str, verdict: Verdict, read_back: str | None = None, message: str = ""
) -> DriverResponse:
    return DriverResponse(name, requested, verdict, read_back, message, 0)


RESPONSES = [
    response("coalesce/rx-usecs", "4", Verdict.REFUSED, message="Invalid argument"),
    response("coalesce/adaptive-rx", "on", Verdict.IGNORED, "off"),
    response("coalesce/rx-usecs", "50", Verdict.ACCEPTED, "50"),
    response("coalesce/rx-usecs", "60", Verdict.NO_EFFECT, "60", "8,000 interrupts/s before and after."),
    response("ring/rx", "500", Verdict.ROUNDED, "504"),
]


def view(
    params: dict[str, str], queue: dict[str, str] | None = None, learned: list[DriverResponse] = RESPONSES
) -> View:
    """eth0 of igb with these params and a queue that has its own."""
    queues = [Queue("rx-0", params=queue or {}), Queue("rx-1")]
    netdev = make_netdev(queues=queues, params=params, params_max={"ring/rx": "4096"})
    records = [DriverRecord("igb", "6.12.0", learned), DriverRecord("mlx5_core", "6.12.0", [])]
    return make_view(netdevs=[netdev], learned=NicKnowledge(records))


RFS = "netdev/eth0/rx-0/rps_flow_cnt"
DEFAULTS = {"coalesce/rx-usecs": "3", "coalesce/adaptive-rx": "off", "ring/rx": "256", "gro_flush_timeout": "0"}


@pytest.mark.parametrize(
    ("key", "value", "code", "sentence"),
    [
        (RX_USECS, "10001", "bounds", "rx-usecs of eth0 can be from 0 to 10000 µs, not 10001."),
        ("netdev/eth0/ring/rx", "0", "bounds", "rx ring of eth0 can be from 1 to 4096 descriptors, not 0."),
        ("netdev/eth0/ring/rx", "4097", "bounds", "rx ring of eth0 can be from 1 to 4096 descriptors, not 4097."),
        ("netdev/eth0/threaded", "2", "bounds", "threaded of eth0 can be from 0 to 1, not 2."),
        (
            RFS,
            "3000",
            "bounds",
            "rps_flow_cnt of eth0 rx-0 has to be 0 or a power of two, to which the kernel rounds up: "
            "2048 or 4096, not 3000.",
        ),
        (RFS, "2097152", "bounds", "rps_flow_cnt of eth0 rx-0 can be from 0 to 1048576 flows, not 2097152."),
        ("netdev/eth0/gro_flush_timeout", "10000001", "bounds", "gro_flush_timeout of eth0 can be from 0 to 10000000"),
        ("netdev/eth0/rx-0/coalesce/rx-usecs", "20000", "bounds", "rx-usecs of eth0 rx-0 can be from 0 to 10000 µs"),
        (RX_USECS, "4", "learned", "igb refused rx-usecs 4 µs before. Its answer: Invalid argument."),
        ("netdev/eth0/rx-0/coalesce/rx-usecs", "4", "learned", "igb refused rx-usecs 4 µs before."),
        ("netdev/eth0/ring/rx", "500", "learned", "igb set rx ring 504 instead of 500; use 504."),
        (
            "netdev/eth0/coalesce/adaptive-rx",
            "on",
            "learned",
            "igb accepted adaptive-rx on before",
        ),
    ],
)
def test_values_outside_the_bounds_or_refused_by_the_driver_before_are_refused(
    key: str, value: str, code: str, sentence: str
) -> None:
    (refusal,) = refusals(view(DEFAULTS), [(key, value)], allow_isolated=False)
    assert (refusal.code, refusal.key) == (code, key)
    assert refusal.sentence.startswith(sentence)


@pytest.mark.parametrize("value", ["0", "50", "60", "10000"])
def test_a_value_that_the_driver_accepted_before_is_accepted(value: str) -> None:
    assert refusals(view(DEFAULTS), [(RX_USECS, value)], allow_isolated=False) == []


def test_refusals_of_another_driver_do_not_apply() -> None:
    of_igb = view(DEFAULTS)
    netdevs = [replace(netdev, driver="mlx5_core") for netdev in of_igb.inventory.netdevs]
    of_mlx5 = replace(of_igb, inventory=replace(of_igb.inventory, netdevs=netdevs))
    assert refusals(of_mlx5, [(RX_USECS, "4")], allow_isolated=False) == []


@pytest.mark.parametrize(
    ("stands", "wanted", "told"),
    [
        ({}, {"coalesce/rx-usecs": "1000"}, []),
        ({}, {"coalesce/rx-usecs": "1500"}, ["eth0: a packet may wait 1.5 ms for its interrupt (rx-usecs)."]),
        ({}, {"coalesce/tx-usecs": "5000"}, ["eth0: a packet may wait 5 ms for its interrupt (tx-usecs)."]),
        ({"coalesce/rx-frames": "64"}, {"coalesce/rx-usecs": "50", "coalesce/rx-frames": "4"}, []),
        (
            {"coalesce/rx-frames": "64"},
            {"coalesce/rx-usecs": "0"},
            ["eth0: with rx-usecs 0 a packet waits without a time limit until 64 have arrived."],
        ),
        ({}, {"coalesce/rx-frames": "1", "coalesce/rx-usecs": "0"}, []),
        ({}, {"gro_flush_timeout": "2000000"}, ["eth0: a packet may wait 2 ms until the kernel polls"]),
        (
            {"coalesce/adaptive-rx": "on"},
            {"coalesce/rx-usecs": "50"},
            ["eth0: adaptive-rx is on, so the driver itself"],
        ),
        ({"coalesce/adaptive-rx": "on"}, {"coalesce/rx-usecs": "50", "coalesce/adaptive-rx": "off"}, []),
        ({}, {"ring/rx": "512"}, ["eth0 may restart when its ring size changes: packets are lost for a moment."]),
    ],
)
def test_delays_and_restarts_are_warned_of_once_with_figures(
    stands: dict[str, str], wanted: dict[str, str], told: list[str]
) -> None:
    pairs = [(f"netdev/eth0/{name}", value) for name, value in wanted.items()]
    sentences = [warning.sentence for warning in warnings(view(DEFAULTS | stands), pairs, allow_isolated=False)]
    assert len(sentences) == len(told), sentences
    assert all(sentence.startswith(start) for sentence, start in zip(sentences, told, strict=True)), sentences


@pytest.mark.parametrize(
    ("driver", "cqe_mode", "told"),
    [
        ("igb", None, []),
        ("mlx5_core", "off", []),
        (
            "mlx5_core",
            "on",
            [
                "eth0: a packet may wait 3.2 ms for its interrupt, as each packet restarts the timer "
                "(rx-usecs 50 × rx-frames 64)."
            ],
        ),
        (
            "acme",
            None,
            [
                "eth0: a packet may wait 3.2 ms for its interrupt if each packet restarts the timer "
                "(rx-usecs 50 × rx-frames 64), which is not known."
            ],
        ),
    ],
)
def test_the_delay_of_a_restarting_timer_is_a_product(driver: str, cqe_mode: str | None, told: list[str]) -> None:
    node = view(DEFAULTS | ({} if cqe_mode is None else {"coalesce/cqe-mode-rx": cqe_mode}))
    netdevs = [replace(netdev, driver=driver) for netdev in node.inventory.netdevs]
    node = replace(node, inventory=replace(node.inventory, netdevs=netdevs))
    pairs = [(RX_USECS, "50"), ("netdev/eth0/coalesce/rx-frames", "64")]
    assert [warning.sentence for warning in warnings(node, pairs, allow_isolated=False)] == told


def test_a_value_that_replaces_a_queues_own_is_warned_of() -> None:
    node = view(DEFAULTS, {"coalesce/rx-usecs": "8"})
    (said,) = preview(node, [DesiredValue(RX_USECS, "50")], reason="test").warnings
    assert (said.code, said.sentence) == (
        "queue",
        "eth0 rx-0 has rx-usecs 8 µs of its own, which this replaces; a rollback does not bring it back.",
    )


def test_a_queue_with_its_own_parameters_is_checked_against_them() -> None:
    node = view(DEFAULTS | {"coalesce/rx-frames": "64"}, {"coalesce/rx-usecs": "3", "coalesce/rx-frames": "1"})
    key = "netdev/eth0/rx-0/coalesce/rx-usecs"
    assert preview(node, [DesiredValue(key, "50")], reason="test").warnings == []
    (said,) = preview(node, [DesiredValue(key, "5000")], reason="test").warnings
    assert said.sentence == "eth0 rx-0: a packet may wait 5 ms for its interrupt (rx-usecs)."
    (refused,) = preview(node, [DesiredValue("netdev/eth0/rx-1/coalesce/rx-usecs", "50")], reason="test").refused
    assert (refused.code, refused.sentence) == (
        "unsupported",
        "The current value of rx-usecs of eth0 rx-1 is unknown, so it cannot be changed.",
    )


def test_ntuple_that_the_driver_has_fixed_is_refused_with_the_reason() -> None:
    [refused] = preview(view(DEFAULTS), [DesiredValue("netdev/eth0/ntuple", "on")], reason="test").refused
    assert refused.sentence == (
        "ntuple of eth0 cannot be changed: its driver has it fixed, so it has no flow rules and no accelerated RFS."
    )
    shown = preview(view({"ntuple": "off"}), [DesiredValue("netdev/eth0/ntuple", "on")], reason="test")
    assert (shown.refused, shown.commands) == ([], ["ethtool -K eth0 ntuple on"])


def test_a_preview_shows_the_values_with_their_units() -> None:
    shown = preview(
        view(DEFAULTS), [DesiredValue(RX_USECS, "50"), DesiredValue("netdev/eth0/ring/rx", "512")], reason="test"
    )
    assert shown.sentence == (
        "rx-usecs of eth0 changes from 3 µs to 50 µs; rx ring of eth0 changes from 256 descriptors to 512 descriptors."
    )
    assert shown.commands == ["ethtool -C eth0 rx-usecs 50", "ethtool -G eth0 rx 512"]


def values(name: str) -> st.SearchStrategy[str]:
    param = PARAMS[name]
    if param.is_switch:
        return st.sampled_from(["on", "off"])
    numbers = (
        st.sampled_from([0, *(1 << n for n in range(21))]) if param.powers else st.integers(param.least, param.most)
    )
    return numbers.map(str)


PAIRS = st.sampled_from(sorted(PARAMS)).flatmap(lambda name: st.tuples(st.just(name), values(name), values(name)))


@given(st.lists(PAIRS, min_size=1, max_size=20, unique_by=lambda pair: pair[0]), st.booleans())
def test_the_inverse_of_a_plan_restores_the_previous_parameters(
    pairs: list[tuple[str, str, str]], of_queue: bool
) -> None:
    pairs = [pair for pair in pairs if (PARAMS[pair[0]].queue == "rx" if of_queue else PARAMS[pair[0]].of_netdev)]
    stands = {name: was for name, was, _ in pairs}
    node = replace(view(stands, stands, learned=[]))
    netdevs = [replace(netdev, params_max={}) for netdev in node.inventory.netdevs]
    node = replace(node, inventory=replace(node.inventory, netdevs=netdevs))
    where = "netdev/eth0/rx-0" if of_queue else "netdev/eth0"
    shown = preview(node, [DesiredValue(f"{where}/{name}", to) for name, _, to in pairs], reason="test")
    assert shown.refused == []
    after = {parse_setting(action.key): action.becomes for action in shown.plan.actions}
    assert {s.key for s in after} == {f"{where}/{name}" for name, was, to in pairs if was != to}
    back = {parse_setting(action.key): action.becomes for action in inverse(shown.plan).actions}
    assert all(setting.current(node) == value for setting, value in back.items())
    assert back.keys() == after.keys()
