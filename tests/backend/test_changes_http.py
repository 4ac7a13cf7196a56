"""Changes over HTTP, with a simulated node on the real agent socket."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.backend.conftest import Backend
from tests.backend.live_node import Live, connected_node
from tests.backend.telemetry_data import machine

from coresteer.changes import repository, suggestions
from coresteer.changes.records import utc_now
from coresteer.telemetry.repository import to_unix_ms
from coresteer_core.changes.report import ChangeState
from coresteer_core.node.rates import Rates
from coresteer_core.node.view import View
from coresteer_core.policies.suggest import Suggestions
from coresteer_core.protocol import FlowsMessage

ACTION = {"key": "irq/30/affinity", "was": "0", "becomes": "1", "reason": ""}


@pytest_asyncio.fixture
async def live(backend: Backend) -> AsyncIterator[Live]:
    async with connected_node(backend) as live:
        yield live


async def test_the_weight_of_a_cgroup_is_previewed_as_the_node_reported_it(live: Live) -> None:
    told = FlowsMessage(0, [], cgroups={"web.slice": {"cpu.weight": "100"}})
    live.backend.app.state.agents.registry.get_or_create(live.node_id).flows = told
    desired = [{"key": "cgroup/web.slice/cpu.weight", "value": "300"}]
    answer = await live.operator.post(f"{live.path}/previews", {"desired": desired})
    assert [action["was"] for action in answer.json()["plan"]["actions"]] == ["100"], answer.text


async def test_an_interrupt_is_previewed_moved_confirmed_and_rolled_back(live: Live) -> None:
    plan = await live.previewed("5")
    body = {"plan": plan, "confirm_timeout_s": 300, "reason": "a try"}
    answer = await live.until(ChangeState.UNCONFIRMED, lambda: live.operator.post(f"{live.path}/changes", body))
    assert answer.status_code == 201
    change = answer.json()
    number = int(live.key.split("/")[1])
    moved = live.node.inventory.irq(number)
    assert moved is not None
    assert moved.requested == "5"

    one = f"/api/v1/changes/{change['id']}"
    assert 200 < (await live.operator.get(one)).json()["remaining_s"] <= 300
    extended = await live.operator.post(f"{one}/extend", {"seconds": 100})
    assert 300 < extended.json()["remaining_s"] <= 400
    kept = await live.operator.post(f"{one}/confirm")
    assert (kept.status_code, kept.json()["state"]) == (200, "confirmed")
    again = await live.operator.post(f"{one}/confirm")
    assert again.status_code == 409
    assert "already confirmed" in again.json()["detail"]
    back = await live.operator.post(f"{one}/rollback")
    assert (back.json()["state"], back.json()["ended_by"]) == ("rolled_back", "user")
    listed = await live.operator.get(f"/api/v1/changes?node_id={live.node_id}&open=false")
    assert [entry["id"] for entry in listed.json()["changes"]] == [change["id"]]
    audit = (await live.operator.get(f"/api/v1/audit?node_id={live.node_id}&action=change")).json()
    assert {entry["change"] for entry in audit["entries"]} == {change["id"]}
    assert [(one["id"], one["status"]) for one in audit["changes"]] == [(change["id"], "rolled_back")]


async def test_a_viewer_previews_but_changes_nothing(live: Live) -> None:
    viewer = await live.backend.client("viewer")
    seen = await viewer.post(f"{live.path}/previews", {"desired": [{"key": live.key, "value": "5"}]})
    assert seen.json()["can_apply"] is False
    assert "operator" in seen.json()["blocked_because"]
    for path in (f"{live.path}/changes", *(f"/api/v1/changes/{uuid4()}/{verb}" for verb in ("confirm", "rollback"))):
        assert (await viewer.post(path, {"plan": seen.json()["plan"]})).status_code == 403
    assert (await live.backend.anonymous().get("/api/v1/changes")).status_code == 401


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("previews", {"desired": []}, "desired"),
        ("previews", {"desired": [{"key": "irq/1/affinity", "value": "0"}] * 65}, "desired"),
        ("previews", {"desired": [{"key": "", "value": "0"}]}, "desired[0].key"),
        ("changes", {"plan": {"actions": "none"}}, "plan.actions"),
        ("changes", {"plan": {"actions": [ACTION] * 65}}, "plan.actions"),
        ("changes", {"plan": {"actions": [ACTION | {"key": 1}]}}, "plan.actions[0].key"),
        ("changes", {"plan": {"actions": [ACTION | {"reason": "a\x00"}]}}, "plan.actions[0].reason"),
        ("changes", {"plan": {"actions": [ACTION | {"reason": "\ud800"}]}}, "plan.actions[0].reason"),
        ("changes", {"plan": {"actions": [ACTION | {"reason": "x" * 501}]}}, "plan.actions[0].reason"),
        ("changes", {"plan": {"actions": [ACTION | {"priority": 1}]}}, "plan.actions[0].priority"),
        ("changes", {"plan": {"actions": [ACTION], "force": True}}, "plan.force"),
        ("changes", {"plan": {"actions": [ACTION]}, "confirm_timeout": 30}, "confirm_timeout"),
        ("changes", {"plan": {"actions": [ACTION]}, "\ud800": 30}, "body"),
        ("previews", {"desired": [{"key": "irq/1/affinity", "value": "0", "was": "1"}]}, "desired[0].was"),
        ("changes", {"plan": {"actions": []}}, "plan.actions"),
        ("changes", {"plan": {"actions": []}, "confirm_timeout_s": 29}, "confirm_timeout_s"),
        ("changes", {"plan": {"actions": []}, "confirm_timeout_s": 601}, "confirm_timeout_s"),
        ("changes", {"plan": {"actions": []}, "reason": "a\x00b"}, "reason"),
        (
            "changes",
            {"plan": {"actions": []}, "guardrails": [{"metric": "mood", "max": 1}]},
            "guardrails[0].metric",
        ),
    ],
)
async def test_bad_input_is_refused_with_its_field(live: Live, path: str, body: object, field: str) -> None:
    answer = await live.operator.post(f"{live.path}/{path}", body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert field in [error["field"] for error in answer.json()["errors"]]


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=501", "node_id=0", "from_time=yesterday", "from_time=2026-01-01T00:00:00", "older_than=1"],
)
async def test_a_bad_filter_is_refused_with_its_name(live: Live, query: str) -> None:
    answer = await live.operator.get(f"/api/v1/changes?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == query.split("=", maxsplit=1)[0]


async def test_without_samples_of_the_last_minute_nothing_is_suggested(live: Live) -> None:
    answer = await live.operator.get(f"{live.path}/suggestions")
    assert answer.status_code == 200, answer.text
    found = answer.json()["suggestions"]
    assert (found["hot"], found["sentence"]) == ([], "The load of this node's CPUs in the last minute is not known.")


async def test_after_a_change_the_load_is_measured_anew_before_anything_is_suggested(live: Live) -> None:
    plan = await live.previewed()
    before = (await live.operator.get(f"{live.path}/suggestions")).json()
    assert before["measuring_s"] == 0
    await live.until(ChangeState.UNCONFIRMED, lambda: live.operator.post(f"{live.path}/changes", {"plan": plan}))
    found = (await live.operator.get(f"{live.path}/suggestions")).json()
    left = found["measuring_s"]
    assert 0 < left <= 15
    assert found["suggestions"]["hot"] == []
    assert found["suggestions"]["sentence"] == f"Measuring after the last change, {left} s left."


@pytest.mark.parametrize(("newest_s", "is_measuring"), [(-5, True), (14, True), (20, False)])
async def test_only_samples_from_after_a_change_are_suggested_from_however_old_the_newest_one_is(
    live: Live, monkeypatch: pytest.MonkeyPatch, newest_s: int, is_measuring: bool
) -> None:
    written_at, skew_ms = utc_now() - timedelta(seconds=40), 90_000
    newest_ms = round(to_unix_ms(written_at)) + skew_ms + newest_s * 1000
    samples = machine(60, cpus=8, irqs=3, start_ms=newest_ms - 59_000)
    used: list[Rates] = []

    async def last_write(*_: object) -> datetime:
        return written_at

    async def last_minute(*_: object) -> list[Rates]:
        return [replace(rates, time_ms=newest_ms - 1000 * (59 - place)) for place, rates in enumerate(samples)]

    def suggest(_: View, rates: Sequence[Rates]) -> Suggestions:
        used.extend(rates)
        return Suggestions([], "", 0.0)

    live.backend.app.state.registry.get_or_create(live.node_id).clock_skew_ms = skew_ms
    monkeypatch.setattr(repository, "last_write", last_write)
    monkeypatch.setattr(suggestions, "last_minute", last_minute)
    monkeypatch.setattr(suggestions, "_suggest", suggest)
    found = (await live.operator.get(f"{live.path}/suggestions")).json()
    assert (found["measuring_s"] > 0) is is_measuring
    oldest_ms = newest_ms - newest_s * 1000
    assert all(rates.time_ms > oldest_ms for rates in used)
    assert bool(used) is not is_measuring


async def test_the_fleet_has_suggestions_for_a_few_nodes_at_once(live: Live) -> None:
    node_id = live.path.rsplit("/", maxsplit=1)[1]
    known = await live.operator.get(f"/api/v1/suggestions?node_id={node_id}&node_id=2147483647")
    assert (known.status_code, known.json()) == (200, [])
    many = await live.operator.get("/api/v1/suggestions?" + "&".join(f"node_id={n}" for n in range(1, 10)))
    assert many.status_code == 422
