"""What history answers, from what is stored and what is still on its way."""

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import replace as with_changes
from datetime import UTC, datetime
from itertools import chain, repeat

import numpy as np
import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.backend.conftest import Backend, Client, running_backend
from tests.backend.fake_agent import FakeAgent, enrolled, now_ms, tell
from tests.backend.telemetry_data import machine
from tests.support.polling import PATIENCE_S

from coresteer.telemetry import chunks, partitions, repository
from coresteer.telemetry.history import TelemetrySource, TimeRange, read_samples
from coresteer.telemetry.hours import HourlyRollups
from coresteer.telemetry.partitions import HOUR_MS
from coresteer.telemetry.repository import EncodedChunk, from_unix_ms, to_unix_ms
from coresteer.telemetry.rollup import minute_rollups
from coresteer_core.metrics import COUNTER_SOURCES, HISTORY_METRICS
from coresteer_core.node.inventory import Inventory, Netdev
from coresteer_core.node.rates import NetdevCounts, Rates
from coresteer_core.protocol import InventoryMessage, RatesMessage

CPUS = 8
SECONDS = 300


def _time(milliseconds: float) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")


def _netdev(name: str, *, virtual: bool) -> Netdev:
    return Netdev(name, None, None, None, None, True, virtual, False, [])


class Past:
    """A node with five minutes of samples, of which the last is not stored yet."""

    def __init__(self, agent: FakeAgent, samples: list[Rates]) -> None:
        self.agent = agent
        self.samples = samples
        self.start = samples[0].time_ms - 1000
        self.end = samples[-1].time_ms + 1

    def path(self, what: str, start: float | None = None, end: float | None = None) -> str:
        start, end = self.start if start is None else start, self.end if end is None else end
        return f"/api/v1/nodes/{self.agent.node_id}/{what}from_time={_time(start)}&to_time={_time(end)}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def slow(database_url: str) -> AsyncIterator[Backend]:
    async with running_backend(database_url, chunk_seconds=60) as backend:
        yield backend


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def viewer(slow: Backend) -> Client:
    return await slow.client("viewer")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def past(slow: Backend) -> AsyncIterator[Past]:
    agent = await enrolled(slow.database, slow.url, "past")
    first = now_ms() - SECONDS * 1000
    samples = []
    for position, rates in enumerate(machine(SECONDS, cpus=CPUS, irqs=10)):
        eth0 = rates.netdevs or []
        veth = [NetdevCounts("veth1", 10, 10, 1, 1, 0, 0, 0, 0), NetdevCounts("lo", 7, 7, 1, 1, 0, 0, 0, 0)]
        time_ms = first + position * 1000
        samples.append(replace(rates, time_ms=time_ms, duration_s=1.0, netdevs=eth0 + veth))
    async with asyncio.timeout(PATIENCE_S), agent:
        inventory = Inventory([_netdev("eth0", virtual=False), _netdev("veth1", virtual=True)], [])
        await tell(slow.app.state.bus, agent, InventoryMessage(inventory), *map(RatesMessage, samples))
        await agent.until_acked(SECONDS - 60)  # all but the minute that is still open
        yield Past(agent, samples)


async def _heatmap(viewer: Client, path: str) -> tuple[tuple[int, int, int, float, float], np.ndarray]:
    answer = await viewer.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream"), answer.text
    assert answer.content[:4] == b"CSH1"
    rows, columns, resolution, start, width = struct.unpack_from("<IIIdd", answer.content, 4)
    cells = np.frombuffer(answer.content, np.uint8, offset=32).reshape(rows, columns)
    return (rows, columns, resolution, start, width), cells


async def test_the_span_of_samples_reaches_from_the_first_stored_to_the_latest_one(
    past: Past, slow: Backend, viewer: Client
) -> None:
    span = (await viewer.get(f"/api/v1/nodes/{past.agent.node_id}/samples-span")).json()
    first, last = (to_unix_ms(datetime.fromisoformat(span[end])) for end in ("from_time", "to_time"))
    assert first == pytest.approx(past.start, abs=1), "the first minutes are stored"
    assert last == past.end - 1, "the last minute is not stored yet"
    silent = await enrolled(slow.database, slow.url, "silent")
    none = (await viewer.get(f"/api/v1/nodes/{silent.node_id}/samples-span")).json()
    assert none == {"from_time": None, "to_time": None}


async def test_a_heatmap_shows_every_sample_stored_or_not(past: Past, viewer: Client) -> None:
    header, cells = await _heatmap(viewer, past.path("heatmap?share=busy&columns=900&"))
    busy = np.array([np.frombuffer(rates.shares["busy"] or b"", np.uint8) for rates in past.samples]).T
    assert list(header) == [CPUS, SECONDS, 0, past.start, (past.end - past.start) / SECONDS]
    assert (cells == busy).all()


async def test_fewer_columns_keep_the_maximum(past: Past, viewer: Client) -> None:
    _, fine = await _heatmap(viewer, past.path("heatmap?share=softirq&"))
    header, coarse = await _heatmap(viewer, past.path("heatmap?share=softirq&columns=10&"))
    assert header[1] == 10
    assert (coarse == fine.reshape(CPUS, 10, -1).max(axis=2)).all()


async def test_longer_ranges_are_read_from_minutes_and_hours(past: Past, viewer: Client) -> None:
    softirq = np.array([np.frombuffer(rates.shares["softirq"] or b"", np.uint8) for rates in past.samples])
    for hours, resolution in ((10, 1), (24 * 10, 2)):
        path = past.path("heatmap?share=softirq&columns=2000&", start=past.end - hours * HOUR_MS)
        header, cells = await _heatmap(viewer, path)
        assert header[2] == resolution
        assert (np.where(cells == 255, 0, cells).max(axis=1) == softirq.max(axis=0)).all()


async def test_a_short_range_that_begins_before_the_oldest_samples_is_read_from_minutes(
    past: Past, slow: Backend, viewer: Client
) -> None:
    expired = await enrolled(slow.database, slow.url, "expired")
    hour = now_ms() // HOUR_MS * HOUR_MS - 72 * HOUR_MS
    minutes = minute_rollups(machine(120, cpus=2, irqs=2, start_ms=hour + 2000))

    async def known(path: str) -> tuple[str, int, int]:
        """The resolution of a series, and how many steps of it have a value."""
        series = (await viewer.get(path.format("series?metric=interrupts_per_s&points=120&"))).json()
        header, _ = await _heatmap(viewer, path.format("heatmap?share=busy&columns=120&"))
        assert header[1:3] == (len(series["times_ms"]), {"sample": 0, "minute": 1}[series["resolution"]])
        values = series["values"]["interrupts_per_s"]
        return series["resolution"], len(values), sum(value is not None for value in values)

    path = f"/api/v1/nodes/{expired.node_id}/{{}}from_time={_time(hour)}&to_time={_time(hour + HOUR_MS)}"
    async with slow.database.pool.connection() as connection:
        parts = {partitions.partition_of(table, hour) for table in ("telemetry_chunk", "telemetry_minute")}
        await partitions.create_partitions(connection, parts)
        await repository.copy_minutes(connection, [(expired.node_id, minute) for minute in minutes])
    assert await known(path) == ("minute", 60, len(minutes))
    oldest = machine(10, cpus=2, irqs=2, start_ms=minutes[-1].end_ms)  # that are not deleted yet
    async with slow.database.pool.connection() as connection:
        await repository.copy_chunks(connection, [EncodedChunk(expired.node_id, "s", chunks.encode(oldest), [])])
    assert await known(path) == ("minute", 60, len(minutes))
    resolution, steps, _ = await known(past.path("{}", start=past.start - HOUR_MS))
    assert (resolution, steps) == ("sample", 120), "the node was not there before"


async def test_a_range_without_data_is_all_unknown(past: Past, viewer: Client) -> None:
    header, cells = await _heatmap(
        viewer, past.path("heatmap?share=busy&", start=past.start - 2 * HOUR_MS, end=past.start - HOUR_MS)
    )
    assert (cells == 255).all() and header[0] in (0, CPUS)


@pytest.mark.parametrize(("netdev", "extra"), [("", 0), ("&netdev=veth1", None), ("&netdev=eth0", 0)])
async def test_traffic_counts_physical_netdevs_once(past: Past, viewer: Client, netdev: str, extra: int | None) -> None:
    path = past.path("series?metric=rx_bytes_per_s&points=10&")
    series = (await viewer.get(path + netdev)).json()
    step_s = series["step_ms"] / 1000
    expected = sum((rates.netdevs or [])[0].rx_bytes for rates in past.samples) if extra == 0 else 10 * SECONDS
    assert series["resolution"] == "sample" and len(series["times_ms"]) == 10
    assert sum(series["values"]["rx_bytes_per_s"]) * step_s == pytest.approx(expected, rel=0.01)


async def test_lines_have_gaps_where_nothing_is_known(past: Past, viewer: Client) -> None:
    metrics = "&".join(f"metric={name}" for name in ("interrupts_per_s", "rtt_p99_us", "agent_cpu_percent"))
    path = past.path(f"series?{metrics}&points=20&", start=past.start - SECONDS * 1000)
    values = (await viewer.get(path)).json()["values"]
    for line in values.values():
        assert line[:9] == [None] * 9 and None not in line[11:]
    assert max(value for value in values["rtt_p99_us"] if value) == max(r.tcp.rtt_p99_us for r in past.samples if r.tcp)
    assert all(0.3 < value < 0.7 for value in values["agent_cpu_percent"] if value)


async def test_lines_have_no_gap_where_samples_follow_each_other(slow: Backend, viewer: Client) -> None:
    agent = await enrolled(slow.database, slow.url, "uneven")
    first_ms = now_ms() - 20_000
    ends_s = [1.0, 2.0, 3.48, 4.5, 5.52, 9.5, 10.3]  # no middle from 4 to 5, and one sample of four seconds
    uneven = []
    for rates, begun_s, ended_s in zip(machine(len(ends_s), cpus=CPUS, irqs=10), [0.0, *ends_s], ends_s, strict=False):
        lasted_s = ended_s - begun_s
        counters = rates.counters | {"rx_bytes_l3": round(1000 * lasted_s)}
        timed = replace(rates, time_ms=first_ms + round(1000 * ended_s), duration_s=lasted_s, counters=counters)
        uneven.append(replace(timed, irq_counts=np.full(len(timed.irq_ids or b"") // 4, 100, "<u4").tobytes()))
    async with asyncio.timeout(PATIENCE_S), agent:
        await tell(slow.app.state.bus, agent, *map(RatesMessage, uneven))
        past = Past(agent, uneven)
        past.start, past.end = first_ms, first_ms + 10_000
        lines = (await viewer.get(past.path("series?metric=rx_bytes_l3_per_s&points=100&"))).json()
        interrupts = (await viewer.get(past.path("interrupts?points=100&"))).json()
    assert lines["step_ms"] == 1000
    assert lines["values"]["rx_bytes_l3_per_s"] == pytest.approx([1000] * 10, abs=1)
    assert all(None not in line for line in interrupts["values"].values())


async def test_series_of_minutes_add_up_to_those_of_samples(past: Past, viewer: Client) -> None:
    path = past.path("series?metric=interrupts_per_s&points=600&", start=past.end - 10 * HOUR_MS)
    answer = (await viewer.get(path)).json()
    exact = (await viewer.get(past.path("series?metric=interrupts_per_s&points=2&"))).json()
    known = [value for value in answer["values"]["interrupts_per_s"] if value is not None]
    assert answer["resolution"] == "minute"
    assert np.mean(known) == pytest.approx(np.mean(exact["values"]["interrupts_per_s"]), rel=0.1)


@pytest.mark.parametrize(
    "name", [name for name, one in HISTORY_METRICS.items() if one.source and one.source.field in COUNTER_SOURCES]
)
async def test_a_counter_is_stored_and_rolled_up_by_minute_and_hour(past: Past, viewer: Client, name: str) -> None:
    source = HISTORY_METRICS[name].source
    assert source is not None
    total = sum(rates.counters[source.field] for rates in past.samples)
    for points, hours, resolution in ((600, 0, "sample"), (600, 10, "minute"), (240, 240, "hour")):
        start = past.end - hours * HOUR_MS if hours else None
        answer = (await viewer.get(past.path(f"series?metric={name}&points={points}&", start=start))).json()
        assert answer["resolution"] == resolution
        known = [value for value in answer["values"][name] if value is not None]
        assert np.mean(known) == pytest.approx(total / SECONDS, rel=0.3)


async def test_the_matrix_counts_every_cell(past: Past, viewer: Client) -> None:
    matrix = (await viewer.get(past.path("matrix?"))).json()
    expected = 0
    for rates in past.samples:
        labels = np.frombuffer(rates.irq_ids or b"", "<u4")
        expected += int(np.frombuffer(rates.irq_counts or b"", "<u4")[labels == 24].sum())
    row = next(row for row in matrix["rows"] if row["label"] == "24")
    assert sum(row["per_s"].values()) * matrix["covered_s"] == pytest.approx(expected)
    assert matrix["covered_s"] == pytest.approx(SECONDS)
    assert {row["label"] for row in matrix["rows"]} >= {"LOC", "RES"}


async def test_the_interrupts_of_an_irq_over_time_add_up_to_the_matrix(past: Past, viewer: Client) -> None:
    matrix = (await viewer.get(past.path("matrix?"))).json()
    series = (await viewer.get(past.path("interrupts?points=10&"))).json()
    numbered = [row for row in matrix["rows"] if row["label"].isdigit()]
    assert list(series["values"]) == [row["label"] for row in numbered[:16]]
    for row in numbered[:16]:
        mean = np.mean(series["values"][row["label"]])
        assert mean == pytest.approx(sum(row["per_s"].values()), rel=0.02)


async def test_making_an_hour_again_gives_the_same(past: Past, slow: Backend) -> None:
    async def hours() -> list[object]:
        async with slow.database.pool.connection() as connection:
            cursor = await connection.execute("SELECT * FROM telemetry_hour ORDER BY node_id, t0")
            return [*(await cursor.fetchall())]

    hourly = HourlyRollups(slow.database)
    later = now_ms() + 2 * HOUR_MS
    await hourly.roll_up(later)
    first = await hours()
    async with slow.database.pool.connection() as connection:
        await hourly.mark_due(connection, [past.start], later)
    await hourly.roll_up(later)
    assert first and await hours() == first


async def test_a_rate_of_minutes_is_of_the_time_in_which_it_is_known(slow: Backend, viewer: Client) -> None:
    start = now_ms() // HOUR_MS * HOUR_MS - 72 * HOUR_MS
    agent = await enrolled(slow.database, slow.url, "gaps")
    minute = minute_rollups(machine(60, cpus=2, irqs=2, start_ms=start + 2000))[0]
    partly = with_changes(minute, duration_s=60.0, amounts={"interrupts": 600, "interrupts_known_s": 15.0})
    async with slow.database.pool.connection() as connection:
        await partitions.create_partitions(connection, [partitions.partition_of("telemetry_minute", start)])
        await repository.copy_minutes(connection, [(agent.node_id, partly)])
    span = f"from_time={_time(start)}&to_time={_time(start + 10 * HOUR_MS)}"
    path = f"/api/v1/nodes/{agent.node_id}/series?metric=interrupts_per_s&points=600&{span}"
    answer = (await viewer.get(path)).json()
    assert answer["resolution"] == "minute"
    assert [value for value in answer["values"]["interrupts_per_s"] if value is not None] == [40.0]


async def test_an_hour_that_cannot_be_made_of_one_node_is_made_of_the_others(
    slow: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    hour = now_ms() // HOUR_MS * HOUR_MS - 48 * HOUR_MS
    good, bad = [(await enrolled(slow.database, slow.url, name)).node_id for name in ("huge-sums", "unreadable")]
    minute = minute_rollups(machine(2, cpus=2, irqs=2, start_ms=hour + 2000))[0]
    huge = with_changes(minute, amounts={"tcp_retransmits": 2**63 - 1}, netdevs={"eth0": [2**63 - 1] * 8})
    later = with_changes(huge, start_ms=huge.start_ms + 60_000, end_ms=huge.end_ms + 60_000)
    hourly = HourlyRollups(slow.database)
    async with slow.database.pool.connection() as connection:
        await partitions.create_partitions(connection, [partitions.partition_of("telemetry_minute", hour)])
        await repository.copy_minutes(connection, [(good, huge), (good, later), (bad, minute)])
        await connection.execute("UPDATE telemetry_minute SET shares = 'x' WHERE node_id = %s", (bad,))
        await hourly.mark_due(connection, [hour], now_ms())
    await hourly.roll_up(now_ms())
    async with slow.database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT node_id, retransmits FROM telemetry_hour WHERE t0 >= %s AND t0 < %s",
            (from_unix_ms(hour), from_unix_ms(hour + HOUR_MS)),
        )
        assert await cursor.fetchall() == [(good, 2**63 - 1)]
        assert hour not in await repository.due_hours(connection)
    assert f"of node {bad} cannot be stored" in caplog.text


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("heatmap?share=busy&from_time=2026-01-02T00:00:00Z&to_time=2026-01-01T00:00:00Z", "to_time"),
        ("heatmap?share=busy&from_time=2026-01-01T00:00:00Z&to_time=2026-01-01T00:00:00Z", "to_time"),
        ("heatmap?share=busy&from_time=2020-01-01T00:00:00Z&to_time=2026-01-01T00:00:00Z", "to_time"),
        ("heatmap?share=busy&from_time=yesterday&to_time=2026-01-01T00:00:00Z", "from_time"),
        ("heatmap?share=idle&from_time=2026-01-01T00:00:00Z&to_time=2026-01-01T01:00:00Z", "share"),
        ("heatmap?share=busy&from_time=2026-01-01T00:00:00Z&to_time=2026-01-01T01:00:00Z&columns=2001", "columns"),
        ("series?metric=cpu&from_time=2026-01-01T00:00:00Z&to_time=2026-01-01T01:00:00Z", "metric[0]"),
        ("series?from_time=2026-01-01T00:00:00Z&to_time=2026-01-01T01:00:00Z", "metric"),
        ("series?metric=rtt_p99_us&from_time=2026-01-01T00:00:00Z&to_time=2026-01-01T01:00:00Z&points=1", "points"),
        ("matrix?from_time=2026-01-01T00:00:00Z&to_time=2026-01-09T00:00:00Z", "to_time"),
    ],
)
async def test_a_wrong_range_is_refused_naming_the_field(past: Past, viewer: Client, query: str, field: str) -> None:
    answer = await viewer.get(f"/api/v1/nodes/{past.agent.node_id}/{query}")
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


async def test_a_slow_commit_hides_no_samples(past: Past, slow: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    generations = chain([1] * 15, repeat(2))  # odd during a commit, which here takes 15 looks
    monkeypatch.setattr(slow.app.state.ingest, "commit_generation", lambda _: next(generations))
    source = TelemetrySource(slow.database, slow.app.state.ingest, past.agent.node_id, interval_s=1.0)
    found = await read_samples(source, TimeRange(past.start, past.end))
    assert [rates.seq for rates in found] == [rates.seq for rates in past.samples]


async def test_an_unknown_node_is_not_found(viewer: Client) -> None:
    answer = await viewer.get(
        "/api/v1/nodes/999999/heatmap?share=busy&from_time=2026-01-01T00:00:00Z&to_time=2026-01-01T01:00:00Z"
    )
    assert answer.status_code == 404
