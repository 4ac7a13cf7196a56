"""A netdev's interrupt coalescing over HTTP, and what other values would do to its traffic."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.backend.conftest import Backend
from tests.backend.fake_agent import now_ms
from tests.backend.policy_node import PolicyNode, asked, created, policy_node

from coresteer.coalescing.schemas import MeasuredPoint
from coresteer.coalescing.surface import rank_correlation
from coresteer.telemetry.repository import from_unix_ms
from coresteer_core.node.inventory import Netdev
from coresteer_core.node.nic import CoalescingPoint, DriverRecord, DriverResponse, NicKnowledge, Verdict
from coresteer_core.node.rates import NetdevCounts
from coresteer_core.protocol import InventoryMessage, LearnedMessage

PARAMS = {"coalesce/rx-usecs": "18", "coalesce/rx-frames": "32", "coalesce/adaptive-rx": "off", "ring/rx": "1024"}
SOFTWARE = {"gro_flush_timeout": "0", "napi_defer_hard_irqs": "0"}
PACKETS_PER_S = 12_000


@pytest_asyncio.fixture
async def node(backend: Backend) -> AsyncIterator[PolicyNode]:
    async with policy_node(backend, kernel="6.12") as node:
        yield node


def netdev_of(node: PolicyNode) -> Netdev:
    return node.machine.inventory.netdevs[0]


async def tell(node: PolicyNode, learned: NicKnowledge | None = None, **changes: object) -> None:
    """The first netdev with these fields, and what was learned of it."""
    first, *others = node.machine.inventory.netdevs
    inventory = replace(node.machine.inventory, netdevs=[replace(first, **changes), *others])
    await node.tell(InventoryMessage(inventory), LearnedMessage(learned or NicKnowledge()))


async def show_traffic(node: PolicyNode) -> None:
    """Seconds in which frames of 1000 bytes come, 8 to an interrupt, half of them on one queue of three."""
    start = now_ms() - 5000
    counts = NetdevCounts(netdev_of(node).name, PACKETS_PER_S * 1000, 0, PACKETS_PER_S, 0, 0, 0, 0, 0)
    columns = {
        "netdevs": [counts],
        "irq_ids": np.array(node.irqs[:3], "<u4").tobytes(),
        "irq_cpus": np.zeros(3, "<u2").tobytes(),
        "irq_counts": np.array([750, 375, 375], "<u4").tobytes(),
    }
    await node.show([replace(node.hot(second + 1, start + 1000 * second), **columns) for second in range(5)])


async def coalescing(node: PolicyNode, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = await node.get(f"netdevs/{netdev_of(node).name}/coalescing{query}")
    return found


async def test_measured_traffic_gives_a_surface_with_the_present_values_and_bounds(
    node: PolicyNode,
) -> None:
    await tell(node, driver="virtio_net", params=PARAMS, speed_bits_per_s=10**9)
    await show_traffic(node)
    found = await coalescing(node)
    assert (found["timer"], found["why_not"], found["kernel"]) == ("absolute", None, "6.12")
    traffic = found["traffic"]
    assert traffic["packets_per_s"] == pytest.approx(PACKETS_PER_S)
    assert traffic["packets_per_s_a_queue"] == pytest.approx(PACKETS_PER_S / 2)
    assert (traffic["frame_bytes"], traffic["gap_us"]) == (pytest.approx(1000), pytest.approx(8))
    assert (found["current"]["rx_usecs"], found["current"]["rx_frames"]) == (18, 32)
    assert found["current"]["interrupts_per_s"] == pytest.approx(1500)
    surface = found["surface"]
    shape = (len(surface["rx_frames"]), len(surface["rx_usecs"]))
    assert {np.shape(surface[name]) for name in ("bound_us", "product_us")} == {shape}
    row, column = surface["rx_frames"].index(32), surface["rx_usecs"].index(18)
    assert surface["predicted"][row][column]["interrupts_per_s"] == pytest.approx(
        found["current"]["predicted"]["interrupts_per_s"], rel=0.1
    )
    assert (surface["bound_us"][row][column], surface["product_us"][row][column]) == (18, 18 * 32)
    rates = [cell["interrupts_per_s"] for cell in surface["predicted"][-1]]
    assert rates[1] > 5 * rates[-1], "waiting longer must interrupt less"
    assert surface["bound_us"][-1][0] is None, "with rx-usecs 0 only the count ends the wait"


async def test_traffic_can_be_supposed_in_the_place_of_what_is_measured(node: PolicyNode) -> None:
    await tell(node, driver="virtio_net", params=PARAMS, mtu=9000)
    silent = await coalescing(node)
    assert (silent["surface"], silent["traffic"]) == (None, None)
    assert "receives nothing now" in silent["why_not"]
    found = await coalescing(node, "?packets_per_s=50000")
    assert found["traffic"]["packets_per_s_a_queue"] == 50_000
    assert (found["traffic"]["frame_bytes"], found["traffic"]["measured_s"]) == (9000, None)
    assert found["surface"] is not None
    await show_traffic(node)
    smaller = await coalescing(node, "?frame_bytes=64")
    assert (smaller["traffic"]["packets_per_s"], smaller["traffic"]["frame_bytes"]) == (pytest.approx(12_000), 64)
    assert smaller["traffic"]["measured_s"] is None, "its frames are supposed"


@pytest.mark.parametrize(
    ("params", "verdict", "sentences"),
    [
        (SOFTWARE, None, ["has no rx-usecs", "napi_defer_hard_irqs above 0"]),
        ({}, None, ["has no rx-usecs", "no software coalescing"]),
        (
            PARAMS | SOFTWARE,
            Verdict.REFUSED,
            ["refused every requested rx-usecs", "50", "Operation not supported", "gro_flush"],
        ),
    ],
)
async def test_a_nic_without_rx_usecs_has_a_reason_and_an_alternative(
    node: PolicyNode, params: dict[str, str], verdict: Verdict | None, sentences: list[str]
) -> None:
    responses = (
        []
        if verdict is None
        else [DriverResponse("coalesce/rx-usecs", "50", verdict, None, "Operation not supported", 5, unsupported=True)]
    )
    other = DriverRecord(
        "virtio_net", "5.10", [DriverResponse("coalesce/rx-usecs", "60", Verdict.ACCEPTED, "60", "", 6)]
    )
    learned = NicKnowledge([DriverRecord("virtio_net", "6.12", responses), other])
    await tell(node, learned, driver="virtio_net", params=params)
    await show_traffic(node)
    found = await coalescing(node)
    assert (found["surface"], found["can_wait"]) == (None, False)
    assert [sentence for sentence in sentences if sentence not in found["why_not"]] == []
    assert [(one["requested"], one["verdict"]) for one in found["responses"]] == [
        (one.requested, one.verdict) for one in responses
    ]


@pytest.mark.parametrize(
    ("verdicts", "can_wait"),
    [
        ([Verdict.REFUSED], True),
        ([Verdict.IGNORED, Verdict.REFUSED, Verdict.NO_EFFECT], False),
        ([Verdict.REFUSED, Verdict.REFUSED, Verdict.REFUSED, Verdict.ROUNDED], True),
    ],
)
async def test_one_refused_value_does_not_mean_that_a_nic_cannot_wait(
    node: PolicyNode, verdicts: list[Verdict], can_wait: bool
) -> None:
    tried = [
        DriverResponse("coalesce/rx-usecs", str(place), verdict, None, "Invalid argument", place)
        for place, verdict in enumerate(verdicts)
    ]
    await tell(node, NicKnowledge([DriverRecord("igb", "6.12", tried)]), driver="igb", params=PARAMS)
    assert (await coalescing(node))["can_wait"] is can_wait


async def test_measured_points_have_the_prediction_for_their_traffic(node: PolicyNode) -> None:
    name = netdev_of(node).name

    def point(rx_usecs: int, interrupts: int, *, adaptive: bool = False, last_ms: int = 0) -> CoalescingPoint:
        return CoalescingPoint(
            name, rx_usecs, 64, adaptive, 10.0, 120_000, 120_000_000, interrupts, 50, 2000.0, 10.0, last_ms
        )

    points = [point(7, 100_000, last_ms=4), point(77, 50_000, last_ms=3), point(700, 9_000, last_ms=2)]
    other = CoalescingPoint("other0", 5, None, False, 10.0, 1, 1, 1, 0)
    await tell(
        node, NicKnowledge(points=[*points, point(11, 30_000, adaptive=True), other]), params=PARAMS, driver="ena"
    )
    await show_traffic(node)
    found = await coalescing(node)
    assert [one["rx_usecs"] for one in found["points"]] == [7, 77, 700, 11], "the newest first"
    first, *_, adaptive = found["points"]
    assert (first["packets_per_s"], first["interrupts_per_s"], first["dropped_per_s"]) == (12_000, 10_000, 5)
    assert (first["packets_per_interrupt"], first["rtt_p50_us"], first["frame_bytes"]) == (1.2, 200, 1000)
    assert first["predicted_interrupts_per_s"] > found["points"][2]["predicted_interrupts_per_s"]
    assert adaptive["predicted_interrupts_per_s"] is None, "the driver moved the values meanwhile"
    assert found["rank_correlation"] == pytest.approx(1)
    assert {7, 77, 700} <= set(found["surface"]["rx_usecs"])


async def test_a_mode_of_the_driver_has_no_prediction(node: PolicyNode) -> None:
    await tell(node, driver="igb", params={"coalesce/rx-usecs": "3"})
    await show_traffic(node)
    found = await coalescing(node)
    assert (found["current"]["adaptive_mode"], found["current"]["predicted"]) == (True, None)
    (line,) = found["surface"]["predicted"]
    assert line[found["surface"]["rx_usecs"].index(3)] is None
    assert found["surface"]["rx_frames"] == []


async def test_the_bounds_of_policies_in_force_for_the_device_are_returned(node: PolicyNode) -> None:
    await tell(node, params=PARAMS)
    spec = {"type": "coalescing", "max_added_us": 250.0}
    mine = await created(node, node.body(spec=spec, mode="observe"))
    others = await created(node, node.body(spec=spec, mode="observe", scope={"netdevs": ["other*"]}))
    await asked(node.operator, f"/api/v1/policies/{mine['id']}/enable")
    await asked(node.operator, f"/api/v1/policies/{others['id']}/enable")
    (bound,) = (await coalescing(node))["bounds"]
    assert (bound["policy_id"], bound["max_added_us"]) == (mine["id"], 250)


@pytest.mark.parametrize(
    ("query", "field"),
    [("packets_per_s=0", "packets_per_s"), ("packets_per_s=x", "packets_per_s"), ("frame_bytes=9", "frame_bytes")],
)
async def test_what_cannot_be_supposed_is_refused_with_its_name(node: PolicyNode, query: str, field: str) -> None:
    answer = await node.operator.get(f"{node.path}/netdevs/{netdev_of(node).name}/coalescing?{query}")
    assert answer.status_code == 422
    assert field in answer.json()["errors"][0]["field"]


async def test_a_netdev_that_is_not_there_is_named(node: PolicyNode) -> None:
    answer = await node.operator.get(f"{node.path}/netdevs/eth99/coalescing")
    assert answer.status_code == 404
    assert "eth99" in answer.json()["detail"]


async def test_bounds_have_an_outcome_on_a_node_and_on_typical_traffic(node: PolicyNode) -> None:
    await tell(node, driver="virtio_net", params=PARAMS, speed_bits_per_s=10**9)
    spec = {"type": "coalescing", "max_added_us": 3780, "packets_per_interrupt": 42}
    body = {"spec": spec, "node_ids": [node.agent.node_id, 2**31 - 1]}
    silent, *_ = await asked(node.operator, "/api/v1/coalescing/outcomes", body)
    assert (silent["outcomes"], silent["why_not"]) == ([], f"The traffic of {node.name} is not known now.")
    await show_traffic(node)
    here, paper, *_ = await asked(node.operator, "/api/v1/coalescing/outcomes", body)
    assert (here["node_id"], here["usecs"], here["frames"]) == (node.agent.node_id, 18, 32)
    assert here["interrupts_per_s"] == pytest.approx(1500)
    assert [one["preset"] for one in here["outcomes"]] == [None, "bulk transfer", "balanced", "latency first"]
    for one in here["outcomes"]:
        assert one["outcome"]["max_wait_us"] <= one["max_added_us"]
        assert one["outcome"]["predicted"]["interrupts_per_s"] > 0
    assert paper["node_id"] is None
    own, bulk, *_ = (one["outcome"] for one in paper["outcomes"])
    assert own == bulk
    assert (own["usecs"], own["frames"], paper["knee"]["rx_usecs"]) == (90, 42, 80)
    out_of_scope, *_ = await asked(node.operator, "/api/v1/coalescing/outcomes", body | {"scope": {"netdevs": ["x*"]}})
    assert "is in scope" in out_of_scope["why_not"]


@pytest.mark.parametrize(
    ("pairs", "correlation"),
    [
        ([(1, 10), (2, 20)], None),
        ([(1, 10), (2, 20), (3, 900)], 1),
        ([(1, 30), (2, 20), (3, 10)], -1),
        ([(1, 5), (2, 5), (3, 5)], None),
        ([(1, 10), (2, 10), (3, 30), (9, None)], 0.866),
    ],
)
def test_a_rank_correlation_needs_three_points_that_differ(
    pairs: list[tuple[float, float | None]], correlation: float | None
) -> None:
    def point(interrupts: float, said: float | None) -> MeasuredPoint:
        return MeasuredPoint(
            rx_usecs=1,
            rx_frames=None,
            adaptive=False,
            seconds=1,
            packets_per_s=1,
            frame_bytes=1,
            interrupts_per_s=interrupts,
            packets_per_interrupt=1,
            dropped_per_s=0,
            rtt_p50_us=None,
            last_at=from_unix_ms(0),
            predicted_interrupts_per_s=said,
        )

    found = rank_correlation([point(*pair) for pair in pairs])
    assert found == (None if correlation is None else pytest.approx(correlation, abs=1e-3))
