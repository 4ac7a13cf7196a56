"""What browsers are sent as it happens."""

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import psycopg
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from tests.backend.conftest import Backend, running_backend
from tests.backend.fake_agent import enrolled, rates
from tests.support.polling import PATIENCE_S, poll_async
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from coresteer.auth.secrets import SESSION_COOKIE
from coresteer.fleet import service
from coresteer.live.frames import columnar_frame
from coresteer.live.hub import Browser, LiveHub
from coresteer_core.node.inventory import Inventory
from coresteer_core.protocol import InventoryMessage

DTYPE = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f32": "<f4"}
Frame = tuple[dict[str, Any], dict[str, np.ndarray]]  # Any: JSON


def parse(frame: bytes) -> Frame:
    (length,) = struct.unpack_from("<I", frame)
    assert (4 + length) % 8 == 0
    header = json.loads(frame[4 : 4 + length])
    columns = {}
    for column in header["columns"]:
        assert column["offset"] % 8 == 0
        data = frame[column["offset"] : column["offset"] + column["length"]]
        columns[column["name"]] = np.frombuffer(data, DTYPE[column["type"]])
    return header, columns


@given(st.lists(st.tuples(st.text(max_size=5), st.just("u8"), st.binary(max_size=40)), max_size=8))
def test_every_column_of_a_frame_is_aligned_and_whole(columns: list[tuple[str, str, bytes]]) -> None:
    header, _ = parse(frame := columnar_frame({"type": "x"}, columns))
    found = [(c["name"], c["type"], frame[c["offset"] : c["offset"] + c["length"]]) for c in header["columns"]]
    assert found == columns


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def quick(database_url: str) -> AsyncIterator[Backend]:
    async with running_backend(database_url, chunk_seconds=1) as backend:
        yield backend


@contextlib.asynccontextmanager
async def browser(backend: Backend, origin: str | None = None) -> AsyncIterator[ClientConnection]:
    client = await backend.client("viewer")
    cookie = client.session.cookies.get(SESSION_COOKIE)
    async with connect(
        backend.url.replace("http", "ws", 1) + "/api/v1/live",
        additional_headers={"Cookie": f"{SESSION_COOKIE}={cookie}", "Origin": origin or backend.url},
        proxy=None,
    ) as websocket:
        yield websocket


async def until(websocket: ClientConnection, wanted: Callable[[Frame], bool]) -> Frame:
    """The first frame of that kind."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            frame = await websocket.recv()
            parsed = parse(frame) if isinstance(frame, bytes) else (json.loads(frame), {})
            if wanted(parsed):
                return parsed


async def subscribe(page: ClientConnection, backend: Backend, node_id: int) -> None:
    """Subscribe to a node and wait until the hub has the subscription, which it does not acknowledge."""
    await page.send(json.dumps({"node": node_id}))
    live: LiveHub = backend.app.state.live
    await poll_async(lambda: node_id in live._subscribers)


async def test_a_page_that_looks_at_a_node_gets_its_intervals(quick: Backend) -> None:
    agent = await enrolled(quick.database, quick.url, "watched")
    async with asyncio.timeout(PATIENCE_S), agent, browser(quick) as page:
        await subscribe(page, quick, agent.node_id)
        sample = rates(1)
        await agent.send_rates([sample])
        header, columns = await until(page, lambda frame: frame[0]["type"] == "rates")
    assert (header["node_id"], header["cpus"]) == (agent.node_id, sample.cpus)
    assert sample.tcp is not None and header["metrics"]["rtt_p95_us"] == sample.tcp.rtt_p95_us
    assert columns["busy"].tobytes() == sample.shares["busy"]
    assert columns["irq_cpus"].tobytes() == sample.irq_cpus
    assert header["netdevs"][0][0] == "eth0"


async def test_the_fleet_is_told_once_a_second_with_figures_and_health(quick: Backend) -> None:
    live = await enrolled(quick.database, quick.url, "in-the-fleet", interval_s=60.0)
    never = await enrolled(quick.database, quick.url, "never-seen")
    quick.app.state.fleet.forget()  # the alerts may have read it before
    async with asyncio.timeout(PATIENCE_S), live, browser(quick) as page:
        await page.send(json.dumps({"fleet": {"q": "in-the-fleet", "ids": [never.node_id, live.node_id, 2**31]}}))
        await live.send_rates([rates(1)])

        def is_live(frame: Frame) -> bool:
            ids = frame[1].get("node_id")
            return (
                ids is not None and never.node_id in ids and bool((frame[1]["health"][ids == live.node_id] == 0).any())
            )

        header, columns = await until(page, is_live)
    at = columns["node_id"].tolist().index(live.node_id)
    assert header["type"] == "fleet" and columns["health"][at] == 0
    assert (header["totals"]["nodes"], header["totals"]["health"]["live"], header["groups"]) == (1, 1, [])
    busy = np.frombuffer(rates(1).shares["busy"] or b"", np.uint8)
    assert columns["busiest_cpu_percent"][at] == busy.max() / 2 and columns["busiest_cpu"][at] == busy.argmax()
    away = columns["node_id"].tolist().index(never.node_id)
    assert columns["health"][away] == 3
    assert np.isnan(columns["busiest_cpu_percent"][away]) and columns["busiest_cpu"][away] == 0xFFFFFFFF


async def test_a_node_that_comes_and_goes_is_told_to_the_pages_that_look_at_it(quick: Backend) -> None:
    agent = await enrolled(quick.database, quick.url, "comes-and-goes", interval_s=2.0)  # stale after 6 s

    def is_now(health: str) -> Callable[[Frame], bool]:
        return lambda frame: (
            frame[0]["type"] == "node"
            and frame[0]["node"]["name"] == "comes-and-goes"
            and frame[0]["node"]["health"] == health
        )

    async with asyncio.timeout(PATIENCE_S), browser(quick) as page, browser(quick) as other:
        await subscribe(page, quick, agent.node_id)
        async with agent:
            await agent.send_rates([rates(1)])
            header, _ = await until(page, is_now("live"))
            event, _ = await until(other, lambda frame: frame[0]["type"] in ("nodes", "node"))
            assert event == {"type": "nodes"}  # as long for one node as for all
            assert header["node"]["mode"] == "observe" and header["node"]["figures"]["busiest_cpu"] is not None
            await until(page, is_now("stale"))
        await until(page, is_now("away"))


async def test_a_page_is_told_to_fetch_the_inventory_of_the_node_it_looks_at(quick: Backend) -> None:
    agent = await enrolled(quick.database, quick.url, "inventory")
    other = await enrolled(quick.database, quick.url, "another-inventory")
    async with asyncio.timeout(PATIENCE_S), agent, other, browser(quick) as page:
        await page.send(json.dumps({"node": agent.node_id, "fleet": {}}))
        await until(page, lambda frame: frame[0]["type"] == "fleet")  # it was heard
        await other.say(InventoryMessage(Inventory([], [])))
        await agent.say(InventoryMessage(Inventory([], [])))
        header, _ = await until(page, lambda frame: frame[0]["type"] == "inventory")
    assert header["node_id"] == agent.node_id


async def test_a_page_of_another_origin_is_refused(quick: Backend) -> None:
    async with asyncio.timeout(PATIENCE_S), browser(quick, origin="http://evil.example") as page:
        with pytest.raises(ConnectionClosed):
            await page.recv()
        assert page.close_code == 1008 and "origin" in (page.close_reason or "")


async def test_a_page_that_says_nonsense_is_told_so(quick: Backend) -> None:
    async with asyncio.timeout(PATIENCE_S), browser(quick) as page:
        await page.send('{"node": "one"}')
        with pytest.raises(ConnectionClosed):
            while True:
                await page.recv()
        assert page.close_code == 1008 and "int" in (page.close_reason or "")


async def test_a_page_that_does_not_read_loses_its_oldest_frames_only(quick: Backend) -> None:
    agent = await enrolled(quick.database, quick.url, "unread")
    live: LiveHub = quick.app.state.live
    async with asyncio.timeout(PATIENCE_S), agent, browser(quick) as page:
        await subscribe(page, quick, agent.node_id)
        await agent.send_rates([rates(1)])
        await until(page, lambda frame: frame[0]["type"] == "rates" and frame[0]["seq"] == 1)
        page.transport.pause_reading()
        for seq in range(2, 5000):  # far more than sockets and the page's queue hold
            live.publish_rates(agent.node_id, rates(seq))
            if seq % 100 == 0:
                await asyncio.sleep(0)
        page.transport.resume_reading()
        seqs = [1]
        while seqs[-1] < 4999:
            header, _ = await until(page, lambda frame: frame[0]["type"] == "rates")
            seqs.append(header["seq"])
    assert len(seqs) < 4999 and seqs == sorted(set(seqs))


@pytest.mark.parametrize(("size", "kept"), [(100, 1000), (2**20, 8), (2**23, 1)])
def test_events_that_wait_for_a_page_are_bounded_in_number_and_size(size: int, kept: int) -> None:
    page = Browser()
    for _ in range(2):  # the second time, after all were sent
        for number in range(kept + 5):
            page.send(f"{number:<{size}}")
        assert [int(page.next_event()) for _ in range(len(page.events))] == list(range(5, kept + 5))


async def test_a_page_is_told_to_fetch_the_node_that_was_deleted(quick: Backend) -> None:
    agent = await enrolled(quick.database, quick.url, "deleted")
    admin = await quick.client("admin")
    async with asyncio.timeout(PATIENCE_S), browser(quick) as page:
        await subscribe(page, quick, agent.node_id)
        assert (await admin.delete(f"/api/v1/nodes/{agent.node_id}")).status_code == 204
        event, _ = await until(page, lambda frame: frame[0]["type"] == "inventory")
    assert event["node_id"] == agent.node_id


async def test_figures_are_told_while_the_database_does_not_answer(
    quick: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = asyncio.Event()

    async def unavailable(*_: object) -> None:
        failed.set()
        raise psycopg.OperationalError

    monkeypatch.setattr(service, "node_summaries", unavailable)
    agent = await enrolled(quick.database, quick.url, "without-database")
    async with asyncio.timeout(PATIENCE_S), browser(quick) as page:
        await subscribe(page, quick, agent.node_id)
        async with agent:
            await failed.wait()
            await page.send(json.dumps({"node": agent.node_id, "fleet": {"ids": [agent.node_id]}}))
            await until(page, lambda frame: frame[0]["type"] == "fleet")
