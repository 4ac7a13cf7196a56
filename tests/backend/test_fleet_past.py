"""Past figures of the fleet: a minute or hour of every node, and the whole fleet over time, in bounded answers."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock

import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.backend.conftest import Backend, Client
from tests.backend.telemetry_data import machine

from coresteer.fleet import past
from coresteer.nodes.tables import NodeRow
from coresteer.telemetry import partitions, repository
from coresteer.telemetry.history import TimeRange
from coresteer.telemetry.rollup import MINUTE_MS, minute_rollups
from coresteer_core.metrics import FLEET_METRICS
from coresteer_core.node.rates import NetdevCounts

START = 1_790_000_040_000
"""The beginning of a minute."""
HOUR_MS = 60 * MINUTE_MS


def _time(milliseconds: float) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")


async def _node(backend: Backend, name: str, minutes: dict[int, int], *, cpus: int = 4) -> int:
    """A node with bytes received per second in these minutes after START, and as many from a bridge."""
    inventory = {"netdevs": [{"name": "eth0", "virtual": False}, {"name": "br0", "virtual": True}]}
    async with backend.database.session() as session:
        row = NodeRow(name=name, simulated=False, inventory=inventory)
        session.add(row)
        await session.flush()
        node_id = row.id
    rollups = []
    for minute, rx in minutes.items():
        counts = [NetdevCounts(netdev, rx, 0, 1, 1, 0, 0, 0, 0) for netdev in ("eth0", "br0", "lo")]
        first = START + minute * MINUTE_MS + 1000
        samples = [
            replace(rates, time_ms=first + second * 1000, duration_s=1.0, netdevs=counts)
            for second, rates in enumerate(machine(60, cpus=cpus, irqs=4))
        ]
        rollups += minute_rollups(samples[:20]) + minute_rollups(samples[20:])  # a minute may be stored in two parts
    async with backend.database.pool.connection() as connection:
        times = {one.start_ms for one in rollups}
        await partitions.create_partitions(connection, {partitions.partition_of("telemetry_minute", t) for t in times})
        await repository.copy_minutes(connection, [(node_id, one) for one in rollups])
    return node_id


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def nodes(backend: Backend) -> AsyncIterator[tuple[int, int, int]]:
    found = (
        await _node(backend, "past-a", {0: 1000, 1: 3000, 60: 500}),
        await _node(backend, "past-b", {0: 200, 60: 700}, cpus=2),
        await _node(backend, "past-c", {}),
    )
    backend.app.state.fleet.forget()  # the alerts may have read it before
    yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def viewer(backend: Backend) -> Client:
    return await backend.client("viewer")


async def _figures(viewer: Client, query: str) -> dict[str, dict[str, Any] | None]:  # Any: JSON
    answer = (await viewer.get(f"/api/v1/fleet?{query}" if "q=" in query else f"/api/v1/fleet?q=past-&{query}")).json()
    return {row["name"]: row["figures"] for row in answer["rows"]}


async def test_a_past_minute_has_the_figures_of_each_node_with_data_from_all_parts_of_the_minute(
    viewer: Client, nodes: tuple[int, int, int]
) -> None:
    found = await _figures(viewer, f"at={_time(START + 59_999)}")
    a, b = found["past-a"], found["past-b"]
    assert a is not None and b is not None and found["past-c"] is None
    assert a["time"] == _time(START)
    assert a["metrics"].keys() == FLEET_METRICS.keys()
    assert [one["metrics"]["rx_bytes_per_s"] for one in (a, b)] == pytest.approx([1000, 200])  # without bridge and lo
    assert [one["metrics"]["rtt_p99_us"] for one in (a, b)] == [2059, 2059]
    assert all(0 < one["metrics"]["busiest_cpu_percent"] <= 100 and one["busiest_cpu"] in range(4) for one in (a, b))
    assert a["metrics"]["wrong_node_percent"] == pytest.approx(300 / 17, rel=0.01)


async def test_a_minute_without_data_has_no_figures_rather_than_zeros(
    viewer: Client, nodes: tuple[int, int, int]
) -> None:
    assert set((await _figures(viewer, f"at={_time(START - 1)}")).values()) == {None}


@pytest.mark.parametrize(("minutes_ago", "seen"), [(0, {"late-0-a", "late-0-b"}), (9, {"late-9-a"})])
async def test_a_minute_that_has_not_ended_is_read_again_soon_and_an_earlier_one_is_not(
    viewer: Client, backend: Backend, monkeypatch: pytest.MonkeyPatch, minutes_ago: int, seen: set[str]
) -> None:
    monkeypatch.setattr(past, "_KEPT_UNFINISHED_S", 0)
    minute = (time.time_ns() // 1_000_000 - START) // MINUTE_MS - minutes_ago
    query = f"q=late-{minutes_ago}&at={_time(START + minute * MINUTE_MS)}"
    for name in ("a", "b"):
        await _node(backend, f"late-{minutes_ago}-{name}", {minute: 1000})
        backend.app.state.fleet.forget()
        found = await _figures(viewer, query)
        assert found[f"late-{minutes_ago}-a"] is not None
    assert {name for name, figures in found.items() if figures} == seen


async def test_pages_of_a_minute_that_has_not_ended_are_read_once_after_other_minutes(
    viewer: Client, nodes: tuple[int, int, int], backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "_KEPT_S", 6000)
    monkeypatch.setattr(past, "_KEPT_UNFINISHED_S", 600)
    read = AsyncMock(wraps=repository.read_rollups_of_nodes)
    monkeypatch.setattr(repository, "read_rollups_of_nodes", read)
    unfinished = time.time_ns() // 1_000_000 + 5 * MINUTE_MS
    minutes = [START + n * MINUTE_MS for n in range(100, 108)]
    for at in [*minutes, unfinished]:
        await _figures(viewer, f"at={_time(at)}")
    assert read.await_count == len(minutes) + 1
    for _ in range(3):
        await _figures(viewer, f"at={_time(unfinished)}")
    assert read.await_count == len(minutes) + 1


async def test_past_figures_filter_sort_and_compare_nodes(viewer: Client, nodes: tuple[int, int, int]) -> None:
    hour_later = _time(START + HOUR_MS)
    answer = (await viewer.get(f"/api/v1/fleet?q=past-&at={hour_later}&compared_h=1&sort=-rx")).json()
    assert [row["name"] for row in answer["rows"]] == ["past-b", "past-a", "past-c"]
    assert [one and one["metrics"]["rx_bytes_per_s"] for one in answer["before"]] == pytest.approx([200, 1000, None])
    assert answer["totals"]["with_data"] == 2 and answer["totals"]["sums"]["rx_bytes_per_s"] == pytest.approx(1200)
    assert answer["compared"]["sums"]["rx_bytes_per_s"] == pytest.approx(1200)
    assert list(await _figures(viewer, f"q=past- rx > 5k&at={hour_later}")) == ["past-b"]


async def test_the_fleet_over_time_sums_rates_and_has_the_largest_of_other_figures(
    viewer: Client, nodes: tuple[int, int, int]
) -> None:
    span = f"from_time={_time(START)}&to_time={_time(START + 3 * MINUTE_MS)}"
    answer = (await viewer.get(f"/api/v1/fleet/series?{span}")).json()
    assert (answer["resolution"], answer["step_ms"]) == ("minute", MINUTE_MS)
    assert answer["times_ms"] == [START, START + MINUTE_MS, START + 2 * MINUTE_MS]
    assert answer["nodes"] == [2, 1, 0]
    assert answer["values"]["rx_bytes_per_s"] == pytest.approx([1200, 3000, None])
    assert answer["values"]["rtt_p99_us"] == [2059, 2059, None]


async def test_a_long_range_is_read_from_hours(viewer: Client, nodes: tuple[int, int, int], backend: Backend) -> None:
    hour = START - START % HOUR_MS + 2 * HOUR_MS
    made = minute_rollups(machine(60, cpus=4, irqs=4, start_ms=hour + 2000))
    async with backend.database.pool.connection() as connection:
        await partitions.create_partitions(connection, [partitions.partition_of("telemetry_hour", hour)])
        await repository.replace_hours(connection, repository.from_unix_ms(hour), [(nodes[0], made[0])])
    span = f"from_time={_time(hour - 24 * HOUR_MS)}&to_time={_time(hour + HOUR_MS)}"
    answer = (await viewer.get(f"/api/v1/fleet/series?{span}")).json()
    assert (answer["resolution"], len(answer["times_ms"]), answer["nodes"][-1]) == ("hour", 25, 1)
    assert sum(answer["nodes"]) == 1
    found = await _figures(viewer, f"at={_time(hour)}&resolution=hour")
    assert [name for name, figures in found.items() if figures] == ["past-a"]


async def test_a_large_fleet_has_fewer_points(
    viewer: Client, nodes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "MAX_READ", 0)
    span = f"from_time={_time(START)}&to_time={_time(START + 61 * MINUTE_MS)}"
    answer = (await viewer.get(f"/api/v1/fleet/series?{span}")).json()
    assert (answer["times_ms"], answer["nodes"]) == ([START + 60 * MINUTE_MS], [2])


@pytest.mark.parametrize(
    ("minutes", "most", "expected"),
    [(1, 10, [0]), (3, 10, [0, 1, 2]), (10, 2, [4, 9]), (10, 4, [2, 4, 7, 9]), (5, 0, [4])],
)
def test_windows_are_even_and_end_with_the_range(minutes: int, most: int, expected: list[int]) -> None:
    starts, step = past.windows(TimeRange(START, START + minutes * MINUTE_MS), MINUTE_MS, most)
    assert [(start - START) // MINUTE_MS for start in starts] == expected
    assert step == MINUTE_MS * max(1, minutes / max(1, most))


@pytest.mark.parametrize("query", ["at=yesterday", "at=0001-01-01T00:00:00Z", f"at={_time(START)}&resolution=sample"])
async def test_an_invalid_time_is_refused(viewer: Client, query: str) -> None:
    assert (await viewer.get(f"/api/v1/fleet?{query}")).status_code == 422
