"""Queries of the fleet page: filter, groups, order, hot spots; and that they do not grow with the fleet."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from tests.backend.conftest import Backend, Client, running_backend
from tests.backend.test_live import browser, parse
from tests.support.polling import poll_async

from coresteer.fleet import directory
from coresteer.fleet.directory import FleetDirectory
from coresteer.fleet.figures import HEALTH_CODES, FleetNode, empty_values, natural
from coresteer.fleet.query import MAX_GROUPS, Fleet, groups, hot_spots, ordered, select, totals
from coresteer.fleet.schemas import SORTS
from coresteer.presence.schemas import Health


def node(
    node_id: int,
    name: str,
    labels: dict[str, str] | None = None,
    *,
    simulated: bool = False,
    mode: str = "control",
    kernel: str = "6.12.117",
    driver: str = "igb",
    cpus: int = 8,
    open_changes: int = 0,
) -> FleetNode:
    return FleetNode(node_id, name, simulated, mode, kernel, [driver], labels or {}, cpus, open_changes, True)


NODES = [
    node(1, "db-1", {"role": "db", "rack": "a"}),
    node(2, "db-2", {"role": "db"}),
    node(3, "web-1", {"role": "web"}, simulated=True, driver="virtio_net", mode="observe"),
    node(4, "web-2", cpus=64, kernel="5.15.0", open_changes=1),
]


def fleet() -> Fleet:
    """NODES with figures: db-2 drops, web-2 is away."""
    values = empty_values(len(NODES), 1_790_000_000_000)
    values.health[:] = [HEALTH_CODES[health] for health in (Health.LIVE, Health.LIVE, Health.LIVE, Health.AWAY)]
    for name, column in {
        "softirq_cpu_percent": [94, 12, 94, np.nan],
        "softnet_dropped_per_s": [0, 40, 0, np.nan],
        "rx_bytes_per_s": [2.5e8, 2.5e8, 2.5e8, np.nan],
        "interrupts_per_s": [18_200, 18_200, 18_200, np.nan],
        "squeezed_per_s": [3, 3, 3, np.nan],
    }.items():
        values.metrics[name][:] = column
    return Fleet(NODES, values)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("", "db-1 db-2 web-1 web-2"),
        ("db", "db-1 db-2"),
        ("WEB 2", "web-2"),
        ("label:role=db", "db-1 db-2"),
        ("label:rack", "db-1"),
        ("label:role=DB softirq > 60", "db-1"),
        ("softirq>60", "db-1 web-1"),
        ("softirq <= 12", "db-2"),
        ("drops > 0", "db-2"),
        ("rx >= 2G", "db-1 db-2 web-1"),
        ("rx > 2.1g", ""),
        ("interrupts > 18k", "db-1 db-2 web-1"),
        ("squeezed = 3", "db-1 db-2 web-1"),
        ("rtt > 0", ""),
        ("cpus = 64", "web-2"),
        ("changes > 0", "web-2"),
        ("health:away", "web-2"),
        ("simulated:yes", "web-1"),
        ("simulated:no web", "web-2"),
        ("mode:observe", "web-1"),
        ("kernel:5.15", "web-2"),
        ("driver:virtio", "web-1"),
    ],
)
def test_a_filter_line_selects_nodes(line: str, names: str) -> None:
    found = select(fleet(), line)
    assert found.filter.problems == []
    assert " ".join(NODES[at].name for at in found.places) == names


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("foo:bar", "“foo:bar” is not a filter"),
        ("temperature > 3", "“temperature” is not a figure"),
        ("softirq >", "Enter a number after “softirq >”"),
        ("softirq > hot", "Enter a number after “softirq >”"),
        ("health:fine", "use live, stale, away, new"),
        ("simulated:maybe", "use yes or no"),
        ("label:", "Enter a label"),
    ],
)
def test_an_invalid_part_has_a_message_and_the_others_apply(line: str, sentence: str) -> None:
    found = select(fleet(), f"db-1 {line}")
    (problem,) = found.filter.problems
    assert sentence in problem
    assert [NODES[at].id for at in found.places] == [1]


@given(st.text(max_size=60))
def test_any_text_is_a_filter(line: str) -> None:
    found = select(fleet(), line)
    assert len(found.mask) == len(NODES)


@pytest.mark.parametrize(
    ("sort", "ids"),
    [
        ("name", [1, 2, 3, 4]),
        ("-name", [4, 3, 2, 1]),
        ("softirq", [2, 1, 3, 4]),
        ("-softirq", [1, 3, 2, 4]),
        ("-dropped", [2, 1, 3, 4]),
        ("health", [1, 2, 3, 4]),
        ("-health", [4, 1, 2, 3]),
        ("rtt", [1, 2, 3, 4]),
    ],
)
def test_nodes_are_sorted_with_unknown_figures_last(sort: str, ids: list[int]) -> None:
    assert [NODES[at].id for at in ordered(select(fleet()), sort)] == ids


def test_the_node_whose_whole_name_is_looked_for_comes_first() -> None:
    nodes = [node(at, name) for at, name in enumerate(("a-web-1", "web-1", "web-10"))]
    found = select(Fleet(nodes, empty_values(3, 0)), "web-1")
    assert [nodes[at].name for at in ordered(found, "name")] == ["web-1", "a-web-1", "web-10"]


def test_names_are_ordered_as_people_count() -> None:
    assert sorted(["web-10", "Web-2", "web-1", "db", "7"], key=natural) == ["7", "db", "web-1", "Web-2", "web-10"]


def test_groups_have_the_figures_of_their_nodes_and_one_of_them_is_a_fleet_of_its_own() -> None:
    told, others = groups(select(fleet(), group="label:role"))
    assert [(group.name, group.totals.nodes) for group in told] == [("db", 2), ("web", 1), ("without role", 1)]
    db = told[0].totals
    assert db.sums["softnet_dropped_per_s"] == 40 and db.hot == 1 and db.health[Health.LIVE] == 2
    worst = db.worst["softirq_cpu_percent"]
    assert worst is not None and (worst.name, worst.value) == ("db-1", 94)
    assert told[2].totals.sums["rx_bytes_per_s"] is None and told[2].totals.hot is None and others == 0
    inside = select(fleet(), group="label:role", within="without role")
    assert [NODES[at].id for at in inside.places] == [4]
    assert totals(fleet(), inside.places) == told[2].totals


def test_of_many_groups_the_largest_are_told() -> None:
    nodes = [node(at, f"n{at}", {"host": f"h{at}"}) for at in range(MAX_GROUPS + 5)] + [node(999, "n", {"host": "h7"})]
    told, others = groups(select(Fleet(nodes, empty_values(len(nodes), 0)), group="label:host"))
    assert (len(told), others) == (MAX_GROUPS, 5)
    assert "h7" in [group.name for group in told]


def test_hot_spots_with_drops_come_first() -> None:
    assert [NODES[at].id for at in hot_spots(select(fleet()), 15)] == [2, 1, 3]
    assert hot_spots(select(fleet()), 0) == []


# that the answers do not grow with the fleet


def test_a_part_that_is_repeated_counts_once_and_at_most_16_are_used() -> None:
    assert select(fleet(), "db-1 " * 400).filter.words == ["db-1"]
    found = select(fleet(), " ".join(f"n{number}" for number in range(100)))
    assert len(found.filter.words) == 16
    assert found.filter.problems == ["Only the first 16 parts of the filter are used."]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def quiet(database_url: str) -> AsyncIterator[Backend]:
    """A backend whose fleet has more nodes than a page shows."""
    async with running_backend(database_url) as backend:
        await insert_nodes(backend, 1, 1200)
        yield backend


async def insert_nodes(backend: Backend, first: int, last: int) -> None:
    """Nodes of 20 racks with names of the same length."""
    async with backend.database.pool.connection() as connection:
        await connection.execute(
            """
            INSERT INTO node (name, simulated, labels, cpus, drivers, hello, last_seen_at)
            SELECT 'n' || n, false, jsonb_build_object('rack', 'r' || lpad((n %% 20)::text, 2, '0')), 64, '{ice}',
                '{"mode": "observe", "kernel": "6.12.117"}', now()
            FROM generate_series(%s::int, %s) AS n
            """,
            (100_000 + first, 100_000 + last),
        )
    fleet: FleetDirectory = backend.app.state.fleet
    fleet.forget()


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """How many statements about nodes and changes are executed meanwhile."""
    count = 0
    execute = psycopg.AsyncCursor.execute

    async def counting(self: Any, query: Any, *rest: Any, **more: Any) -> Any:  # noqa: ANN401 - as psycopg
        nonlocal count
        count += re.search(r"\bFROM (node|change)\b", str(query)) is not None
        return await execute(self, query, *rest, **more)

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.AsyncCursor, "execute", counting)
        yield lambda: count


REQUESTS = {
    "map": "/api/v1/fleet?limit=500&hot_spots=15&sort=-softirq",
    "groups": "/api/v1/fleet?limit=0&group=label:rack&hot_spots=15",
    "nodes of a group": "/api/v1/fleet?limit=50&group=label:rack&within=r07",
    "last page": "/api/v1/fleet?limit=50&sort=-name",
    "search": "/api/v1/fleet?limit=50&q=n100&sort=-rx",
    "one name": "/api/v1/fleet?name=n100001",
    "figures only": "/api/v1/fleet?limit=0",
    "labels": "/api/v1/fleet/labels",
    "outliers": "/api/v1/fleet/outliers",
}
TRIES = 3
"""Of which the one with the fewest statements counts: other tasks have statements, too."""


@pytest.mark.slow("stores ten thousand nodes")
async def test_no_request_of_a_page_grows_with_the_fleet(quiet: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer = await quiet.client("viewer")
    monkeypatch.setattr(directory, "RELOAD_S", float("inf"))
    few = await _costs(viewer, quiet, monkeypatch)
    await insert_nodes(quiet, 1201, 10_000)
    many = await _costs(viewer, quiet, monkeypatch)
    for name, (size, statements) in few.items():
        # numbers have more digits
        assert many[name][0] <= size * 1.02 + 200, name
        assert many[name][1] == statements, name
    answer = (await viewer.get("/api/v1/fleet?limit=0&group=label:rack")).json()
    assert (answer["nodes"], answer["totals"]["health"]["away"], len(answer["groups"])) == (10_000, 10_000, 20)


async def _costs(viewer: Client, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """Bytes and statements of each request, after one that has read the directory."""
    found = {}
    for name, path in REQUESTS.items():
        tries = []
        for _ in range(TRIES):

            async def is_answered() -> bool:
                return (
                    await viewer.get("/api/v1/fleet?limit=0")
                ).status_code == 200  # not while the machine is too busy

            await poll_async(is_answered)
            with counted(monkeypatch) as statements:
                answer = await viewer.get(path)
                tries.append(statements())
            assert answer.status_code == 200, f"{name}: {answer.text}"
        found[name] = (len(answer.content), min(tries))
    return found


async def test_a_page_receives_only_the_rows_that_it_shows(quiet: Backend) -> None:
    viewer = await quiet.client("viewer")
    answer = (await viewer.get("/api/v1/fleet?q=label:rack=r03")).json()
    assert "rows" in answer, answer
    ids = [row["id"] for row in answer["rows"]]
    async with browser(quiet) as page:
        await page.send(json.dumps({"fleet": {"group": "label:rack", "ids": ids}}))
        while not isinstance(frame := await page.recv(), bytes):
            pass
    header, columns = parse(frame)
    assert columns["node_id"].tolist() == ids
    assert [group["name"] for group in header["groups"]][:2] == ["r00", "r01"]
    assert len(frame) < 40_000


async def test_a_renamed_label_is_found_at_once_and_a_deleted_node_is_not(quiet: Backend) -> None:
    operator, admin = await quiet.client("operator"), await quiet.client("admin")
    (row,) = (await admin.get("/api/v1/fleet?name=n100042")).json()["rows"]
    assert (await operator.patch(f"/api/v1/nodes/{row['id']}", {"labels": {"rack": "moved"}})).status_code == 200
    assert [found["id"] for found in (await admin.get("/api/v1/fleet?q=label:rack=moved")).json()["rows"]] == [
        row["id"]
    ]
    assert (await admin.get("/api/v1/nodes?name=n100042")).json()[0]["labels"] == {"rack": "moved"}
    assert (await admin.delete(f"/api/v1/nodes/{row['id']}")).status_code == 204
    assert (await admin.get("/api/v1/fleet?name=n100042")).json()["rows"] == []


@pytest.mark.parametrize(
    "query", ["sort=nonsense", "group=nonsense", "limit=501", "hot_spots=16", "offset=-1", "id=0", "unknown=1"]
)
async def test_an_invalid_query_is_refused(quiet: Backend, query: str) -> None:
    viewer = await quiet.client("viewer")
    assert (await viewer.get(f"/api/v1/fleet?{query}")).status_code == 422


async def test_each_sort_is_answered(quiet: Backend) -> None:
    viewer = await quiet.client("viewer")
    for sort in ("name", "health", *SORTS):
        assert (await viewer.get(f"/api/v1/fleet?limit=1&sort=-{sort}")).status_code == 200, sort


async def test_who_asks_soon_after_the_database_did_not_answer_gets_what_was_known(
    quiet: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert_nodes(quiet, 90_001, 90_001)
    fleet = FleetDirectory(quiet.database, quiet.app.state.bus, quiet.app.state.registry)
    known = (await fleet.present()).nodes
    tries = 0

    async def unavailable(_: object) -> None:
        nonlocal tries
        tries += 1
        raise psycopg.OperationalError

    monkeypatch.setattr(fleet, "_read", unavailable)
    fleet.forget()
    for _ in range(3):
        assert (await fleet.present()).nodes == known
    assert tries == 1
    fleet._failed_at -= directory._RETRY_S
    await fleet.present()
    assert tries == 2
