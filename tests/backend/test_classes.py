"""A node's service classes over HTTP: the latest report, their history, and which processes belong to them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import psycopg
import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.backend.conftest import Backend
from tests.backend.fake_agent import now_ms
from tests.backend.policy_node import PolicyNode, asked, created, policy_node
from tests.backend.rejection import rejection
from tests.backend.test_live import browser, subscribe, until

from coresteer.classes.chunks import encode, worst_per_step
from coresteer.classes.schemas import ClassFigure
from coresteer.presence.registry import MAX_POLICIES
from coresteer.telemetry.repository import from_unix_ms
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.node.tasks import NetTask
from coresteer_core.protocol import ClassesMessage, CloseCode, FlowsMessage

GOLD = ClassFigures("gold", 90, 50_000, "gate", 100, 72, 0.8, 3, 1, 10_000, 30_000, 60_000, 45_000, 2)
SILENT = ClassFigures("silent", 50, None, None, 0, 0, 0.0)
SPEC = {
    "type": "service-class",
    "classes": [
        {"name": "gold", "target_percent": 90, "deadline_ms": 50, "match": {"commands": ["nginx"]}},
        {"name": "silent", "target_percent": 50},
    ],
}
F, P99 = list(ClassFigure).index(ClassFigure.F), list(ClassFigure).index(ClassFigure.P99)


@pytest_asyncio.fixture
async def node(backend: Backend) -> AsyncIterator[PolicyNode]:
    async with policy_node(backend) as node:
        yield node


async def in_force(node: PolicyNode) -> dict[str, Any]:
    policy = await created(node, node.body(spec=SPEC))
    await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
    return policy


def message(policy_id: int, time_ms: int, **gold: object) -> ClassesMessage:
    return ClassesMessage(time_ms, str(policy_id), [replace(GOLD, **gold), SILENT])


async def tell(node: PolicyNode, *messages: ClassesMessage) -> None:
    """Returns when all are taken: what an agent says is handled in order."""
    for told in messages:
        await node.agent.say(told)
    await node.show([])


def history_of(node: PolicyNode, start_ms: int, end_ms: int, figures: str = "f") -> Any:  # noqa: ANN401 - JSON
    times = {"from_time": from_unix_ms(start_ms), "to_time": from_unix_ms(end_ms)}
    query = "&".join(f"{name}={time:%Y-%m-%dT%H:%M:%S.%fZ}" for name, time in times.items())
    query += "".join(f"&figure={figure}" for figure in figures.split())
    return node.get(f"classes/history?{query}")


async def test_a_policy_in_force_has_no_figures_before_its_agent_reports(node: PolicyNode) -> None:
    policy = await in_force(node)
    await created(node, node.body())
    (found,) = (await node.get("classes"))["policies"]
    assert (found["policy_id"], found["version"], found["at"], found["reported"]) == (policy["id"], 1, None, None)
    assert [one["name"] for one in found["spec"]["classes"]] == ["gold", "silent"]
    time_ms = now_ms()
    await tell(node, message(policy["id"], time_ms), message(policy["id"] + 1000, time_ms))
    (found,) = (await node.get("classes"))["policies"]
    assert (found["at"], found["reported"]) == (
        f"{from_unix_ms(time_ms):%Y-%m-%dT%H:%M:%S.%f}Z",
        msgspec.to_builtins([GOLD, SILENT]),
    )
    await asked(node.operator, f"/api/v1/policies/{policy['id']}/disable")
    assert await node.get("classes") == {"policies": []}


async def test_history_has_a_value_per_second_and_none_without_report_or_request(node: PolicyNode) -> None:
    policy = await in_force(node)
    start = (now_ms() - 60_000) // 1000 * 1000
    told = [message(policy["id"], start + 1000 * second + 200, f=second / 10) for second in range(1, 4)]
    told += [message(policy["id"], start + 1000 * second + 900, f=second / 10, requests=0) for second in (8, 9)]
    await tell(node, *told)
    found = await history_of(node, start, start + 12_000, "f p99_us requests")
    assert (found["step_ms"], found["times_ms"]) == (1000, list(range(start, start + 12_000, 1000)))
    (of_policy,) = found["policies"]
    assert (of_policy["policy_id"], of_policy["name"]) == (policy["id"], policy["name"])
    (gold,) = of_policy["classes"]
    assert gold["name"] == "gold", "of a class whose source is not known there is nothing to show"
    assert gold["values"]["f"] == [None, 0.1, 0.2, 0.3, *[None] * 8]
    assert gold["values"]["requests"] == [None, 100, 100, 100, *[None] * 4, 0, 0, None, None]
    assert gold["values"]["p99_us"][1:4] == [60_000] * 3


async def test_a_minute_of_a_policy_is_a_row_and_is_read_with_what_is_not_stored_yet(node: PolicyNode) -> None:
    policy = await in_force(node)
    start = (now_ms() - 300_000) // 1000 * 1000
    await tell(node, *(message(policy["id"], start + 1000 * second, f=second / 100) for second in range(150)))
    before = await history_of(node, start, start + 150_000)
    store = node.backend.app.state.agents.class_reports
    await store.flush()
    rows = "SELECT count(*), max(length(data)) FROM telemetry_classes WHERE node_id = %s"
    async with node.backend.database.pool.connection() as connection:
        stored, largest = await (await connection.execute(rows, (node.agent.node_id,))).fetchone() or (0, 0)
        assert (stored, largest < 4000) == (2, True), "the third minute is still open"
        assert await history_of(node, start, start + 150_000) == before
        await store.flush(everything=True)
        assert (await (await connection.execute(rows, (node.agent.node_id,))).fetchone() or (0,))[0] == 3
    assert await history_of(node, start, start + 150_000) == before
    assert before["policies"][0]["classes"][0]["values"]["f"] == [second / 100 for second in range(150)]


async def test_what_cannot_be_stored_now_is_stored_later(node: PolicyNode, monkeypatch: pytest.MonkeyPatch) -> None:
    store = node.backend.app.state.agents.class_reports
    start = now_ms() - 200_000
    await tell(node, *(message(7, start + 1000 * second) for second in range(3)))

    async def broken(*_: object) -> None:
        raise psycopg.OperationalError("away")

    with monkeypatch.context() as patched:
        patched.setattr("coresteer.classes.repository.insert_chunks", broken)
        with pytest.raises(psycopg.OperationalError):
            await store.flush(everything=True)
    await store.flush()
    async with node.backend.database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT count(*) FROM telemetry_classes WHERE node_id = %s", (node.agent.node_id,)
        )
        assert await cursor.fetchone() == (1,)


async def test_an_agent_that_names_ever_more_policies_or_talks_too_often_fills_nothing(node: PolicyNode) -> None:
    time_ms = now_ms()
    await tell(node, *(message(policy_id, time_ms) for policy_id in range(1, 3 * MAX_POLICIES)))
    await tell(node, *(message(1, time_ms + step) for step in range(1, 400, 10)))
    found = await history_of(node, time_ms - 5000, time_ms + 5000)
    assert len(found["policies"]) == MAX_POLICIES
    assert len(node.backend.app.state.registry.get(node.agent.node_id).classes) <= MAX_POLICIES


async def test_a_page_of_the_node_receives_its_agents_reports(node: PolicyNode, backend: Backend) -> None:
    time_ms = now_ms()

    async with browser(backend) as page:
        await subscribe(page, backend, node.agent.node_id)
        await node.agent.say(message(4, time_ms))
        event, _ = await until(page, lambda frame: frame[0]["type"] == "classes")
    assert (event["node_id"], event["policy_id"], event["time_ms"]) == (node.agent.node_id, 4, time_ms)
    assert event["reported"] == msgspec.to_builtins([GOLD, SILENT])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"f": float("nan")}, "$.classes[0].f"),
        ({"requests": -1}, "$.classes[0].requests"),
        ({"p99_us": 2**60}, "$.classes[0].p99_us"),
        ({"target_percent": 0.0}, "$.classes[0].target_percent"),
        ({"source": "hearsay"}, "$.classes[0].source"),
        ({"name": "silent"}, "silent is listed twice"),
        ({"name": "a\x00b"}, "control characters"),
    ],
)
def test_figures_that_nothing_can_have_counted_are_refused(change: dict[str, Any], sentence: str) -> None:
    assert rejection(message(1, 1000)) == ""
    assert sentence in rejection(message(1, 1000, **change))


def test_a_message_out_of_bounds_is_refused_by_field() -> None:
    many = ClassesMessage(0, "1", [replace(GOLD, name=f"c{place}") for place in range(17)])
    assert "`array` of length <= 16" in rejection(many)
    assert "$.policy_id" in rejection(ClassesMessage(0, "-1", []))
    assert "24 hours" in rejection(message(1, 10**12))


async def test_a_message_out_of_bounds_ends_the_connection(node: PolicyNode) -> None:
    await node.agent.say(message(1, now_ms(), f=-1.0))
    code, reason = await node.agent.closed()
    assert (code, "$.classes[0].f" in reason) == (CloseCode.BAD_FRAME, True)


def test_a_step_of_several_seconds_has_the_worst_of_them() -> None:
    told = [message(1, 1000 * second + 999, f=second / 10, p99_us=1000 * second) for second in range(10)]
    pooled = worst_per_step([encode(told[:4]), encode(told[4:])], first_ms=0, step_ms=5000, steps=3)["gold"]
    assert pooled[F].tolist()[:2] == [0.0, 0.5]
    assert pooled[P99].tolist()[:2] == [4000, 9000]
    assert np.isnan(pooled[:, 2]).all()


@pytest.mark.parametrize(
    ("start_ms", "minutes", "step_ms", "steps"),
    [(0, 15, 1000, 900), (500, 15, 1000, 901), (0, 14, 1000, 840), (0, 16, 2000, 480), (500, 30, 2000, 901)],
)
async def test_history_is_per_second_up_to_15_minutes_else_in_900_steps(
    node: PolicyNode, start_ms: int, minutes: int, step_ms: int, steps: int
) -> None:
    start = (now_ms() - 3_600_000) // 2000 * 2000 + start_ms
    found = await history_of(node, start, start + minutes * 60_000, "f")
    assert (found["step_ms"], len(found["times_ms"])) == (step_ms, steps)


async def test_a_range_is_a_week_at_the_most(node: PolicyNode) -> None:
    until = datetime.now(UTC).replace(tzinfo=None)
    times = f"from_time={(until - timedelta(days=8)).isoformat()}Z&to_time={until.isoformat()}Z"
    answer = await node.operator.get(f"{node.path}/classes/history?figure=f&{times}")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "to_time")


async def test_each_process_is_in_the_first_class_that_it_fits_or_in_none(node: PolicyNode) -> None:
    spec = {
        "type": "service-class",
        "classes": [
            {"name": "web", "target_percent": 90, "match": {"commands": ["nginx"], "listens": [80]}},
            {"name": "rest", "target_percent": 50, "match": {"cgroups": ["/web*"]}},
            {"name": "asks", "target_percent": 40},
        ],
    }
    before = await asked(node.operator, f"{node.path}/classes/match", {"spec": spec})
    assert (before["at"], before["classes"][0]) == (None, {"name": "web", "tasks": []})
    flows = node.flows()
    (task,) = flows.tasks
    tasks = [
        replace(task, pid=1, command="nginx", listens=[80, 443], unit="nginx.service", user="www-data"),
        replace(task, pid=2, command="nginx", listens=[8080]),
        replace(task, pid=3, cgroup="/other"),
    ]
    await node.tell(replace(flows, tasks=tasks))
    found = await asked(node.operator, f"{node.path}/classes/match", {"spec": spec})
    matched = {one["name"]: [its["pid"] for its in one["tasks"]] for one in found["classes"]}
    assert (matched, [one["pid"] for one in found["unmatched"]]) == ({"web": [1], "rest": [2], "asks": []}, [3])
    web = found["classes"][0]["tasks"][0]
    assert (web["unit"], web["user"], web["listens"]) == ("nginx.service", "www-data", [80, 443])
    scoped = await asked(node.operator, f"{node.path}/classes/match", {"spec": spec, "scope": {"tasks": ["postgres"]}})
    assert (len(scoped["unmatched"]), scoped["exact"]) == (3, False)
    wrong = spec | {"classes": [{"name": "a", "target_percent": 500}]}
    refused = await asked(node.operator, f"{node.path}/classes/match", {"spec": wrong}, 422)
    assert refused["errors"][0]["field"] == "spec.classes[0].target_percent"


TASK = NetTask(812, 5, "nginx", "/web", 4, "0-7", "0-7", 1, 0.4, 0.0, [], user="www-data", listens=[80])


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (FlowsMessage(0, [replace(TASK, params={"nice": "-21"})]), "not a nice value"),
        (FlowsMessage(0, [replace(TASK, params={"mood": "1"})]), "'task/1/mood' is not a setting"),
        (FlowsMessage(0, [replace(TASK, listens=[0])]), "$.tasks[0].listens[0]"),
        (FlowsMessage(0, [replace(TASK, listens=[80] * 65_536)] * 5), "exceed the limit of 262144"),
        (FlowsMessage(0, [replace(TASK, clients=["10.0.0.1"] * 16_385)]), "$.tasks[0].clients"),
        (FlowsMessage(0, [replace(TASK, user="a\nb")]), "control characters"),
        (FlowsMessage(0, [replace(TASK, clients=["x" * 300])]), "length <= 256"),
        (FlowsMessage(0, [], cgroups={"web": {"cpu.max": "1"}}), "'cgroup/group/cpu.max' is not a setting"),
        (FlowsMessage(0, [], cgroups={"web": {"cpu.weight": "much"}}), "not a weight; write a number"),
        (FlowsMessage(0, [], cgroups={"a\x1bb": {"cpu.weight": "1"}}), "control characters"),
    ],
)
def test_invalid_weights_and_matches_are_refused(message: FlowsMessage, sentence: str) -> None:
    sound = FlowsMessage(0, [replace(TASK, params={"nice": "5"})], cgroups={"web": {"cpu.weight": "100"}})
    assert rejection(sound) == ""
    assert sentence in rejection(message)


async def test_a_preview_says_what_weights_the_classes_would_be_given(node: PolicyNode) -> None:
    flows = node.flows()
    tasks = [replace(flows.tasks[0], command="nginx", params={"nice": "0"})]
    told = replace(flows, tasks=tasks, cgroups={"web": {"cpu.weight": "100"}})
    await node.tell(told)
    spec = SPEC | {"weights": ["cpu"]}
    body = {"body": node.body(spec=spec), "node_ids": [node.agent.node_id]}
    (found,) = await asked(node.operator, "/api/v1/policies/preview", body)
    (action,) = found["evaluation"]["actions"]
    assert (action["key"], action["was"]) == ("cgroup/web/cpu.weight", "100")
    assert "gold" in action["reason"]
