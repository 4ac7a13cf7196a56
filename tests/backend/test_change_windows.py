"""Change windows: outside of them agents hold policies, rollouts wait; also an agent without its backend holds."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import select, update
from tests.backend.conftest import Backend, Client
from tests.backend.policy_node import PolicyNode, asked, created, policy_node

from coresteer.audit.tables import AuditRow
from coresteer.policies import rollout_monitor, windows
from coresteer.policies.rollout_monitor import RolloutMonitor
from coresteer.policies.stage_windows import _WindowReader
from coresteer.policies.tables import RolloutRow
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import EnforcementStop
from coresteer_core.protocol import Policies, decode_to_agent


@pytest_asyncio.fixture
async def admin(backend: Backend) -> AsyncIterator[Client]:
    client = await backend.client("admin")
    yield client
    for window in (await client.get("/api/v1/change-windows")).json():
        await client.delete(f"/api/v1/change-windows/{window['id']}")


@pytest_asyncio.fixture
async def node(backend: Backend) -> AsyncIterator[tuple[str, PolicyNode]]:
    label = uuid4().hex[:8]
    async with policy_node(backend, obeys_stops=True) as one:
        await one.operator.patch(one.path, {"labels": {"pool": label}})
        yield label, one


def body(label: str, *, opens_in: timedelta) -> dict[str, object]:
    """A window of an hour every day that opens in a time from now."""
    opens = datetime.now(UTC) + opens_in
    ends = opens + timedelta(hours=1)
    times = {"start": f"{opens:%H:%M}", "end": f"{ends:%H:%M}", "zone": "UTC", "weekdays": list(range(7))}
    return {"name": uuid4().hex, "labels": {"pool": label}, **times}


async def next_policies(node: PolicyNode, *, held: bool) -> Policies:
    while True:
        message = decode_to_agent(await node.agent.receive())
        if isinstance(message, Policies) and message.policies and bool(message.stops) is held:
            return message


async def test_outside_its_window_an_agent_holds_policies_and_it_knows_when_one_closes(
    admin: Client, node: tuple[str, PolicyNode]
) -> None:
    label, one = node
    policy = await created(one, one.body(selector={"labels": {"pool": label}}, mode="enforce"))
    await asked(one.operator, f"/api/v1/policies/{policy['id']}/enable")
    assert (await next_policies(one, held=False)).hold_from_ms is None
    closed = await asked(admin, "/api/v1/change-windows", body(label, opens_in=timedelta(hours=3)), 201)
    assert (closed["open"], closed["nodes"], closed["held"]) == (False, 1, 1)
    held = await next_policies(one, held=True)
    assert held.stops == [EnforcementStop(windows.CLOSED)], "as a stop that keeps what is set"
    assert [each.mode for each in held.policies] == [Mode.ENFORCE]
    opened = await asked(admin, "/api/v1/change-windows", body(label, opens_in=timedelta(minutes=-10)), 201)
    message = await next_policies(one, held=False)
    assert message.hold_from_ms == datetime.fromisoformat(opened["changes_at"]).timestamp() * 1000
    found = {each["id"]: each["held"] for each in (await admin.get("/api/v1/change-windows")).json()}
    assert found == {closed["id"]: 0, opened["id"]: 0}, "any open window is enough"


@pytest.mark.parametrize(
    ("skew_ms", "correction_ms", "offset_ms"),
    [
        pytest.param(None, 0, 0, id="not measured"),
        pytest.param(4_000.0, 0, 0, id="almost right"),
        pytest.param(-7_200_300.0, 0, -7_200_000, id="slow"),
        pytest.param(120.0, -40 * 86_400_000, 40 * 86_400_000, id="wrong"),
    ],
)
async def test_an_agent_knows_by_its_own_clock_when_its_window_closes(  # noqa: PLR0917 - fixtures and a table's row
    backend: Backend,
    admin: Client,
    node: tuple[str, PolicyNode],
    skew_ms: float | None,
    correction_ms: int,
    offset_ms: int,
) -> None:
    label, one = node
    state = backend.app.state.registry.get(one.agent.node_id)
    state.clock_skew_ms, state.clock_correction_ms = skew_ms, correction_ms
    policy = await created(one, one.body(selector={"labels": {"pool": label}}, mode="enforce"))
    await asked(one.operator, f"/api/v1/policies/{policy['id']}/enable")
    opened = await asked(admin, "/api/v1/change-windows", body(label, opens_in=timedelta(minutes=-10)), 201)
    while (message := await next_policies(one, held=False)).hold_from_ms is None:
        pass
    assert message.hold_from_ms == datetime.fromisoformat(opened["changes_at"]).timestamp() * 1000 + offset_ms


async def test_a_node_says_until_when_it_is_outside_its_windows(admin: Client, node: tuple[str, PolicyNode]) -> None:
    label, one = node

    async def outside() -> object:
        return (await one.operator.get(one.path)).json()["outside_windows"]

    assert await outside() is None, "without windows every time is open"
    closed = await asked(admin, "/api/v1/change-windows", body(label, opens_in=timedelta(hours=3)), 201)
    assert await outside() == {"opens_at": closed["changes_at"]}
    await asked(admin, "/api/v1/change-windows", body(label, opens_in=timedelta(minutes=-10)), 201)
    assert await outside() is None, "any open window is enough"


async def test_a_policys_overview_says_on_how_many_nodes_it_waits_for_a_window_and_when_the_first_opens(
    admin: Client, node: tuple[str, PolicyNode]
) -> None:
    label, one = node
    policy = await created(one, one.body(selector={"labels": {"pool": label}}, mode="enforce"))
    await asked(one.operator, f"/api/v1/policies/{policy['id']}/enable")

    async def closed() -> object:
        return (await admin.get(f"/api/v1/policies/{policy['id']}/overview")).json()["closed"]

    assert await closed() is None, "without windows every time is open"
    for hours in (5, 3):
        made = await asked(admin, "/api/v1/change-windows", body(label, opens_in=timedelta(hours=hours)), 201)
        assert await closed() == {"nodes": 1, "opens_at": made["changes_at"]}
    await asked(one.operator, f"/api/v1/policies/{policy['id']}/disable")
    assert await closed() is None, "it does not write anyway"


async def test_a_rollout_waits_for_the_window_of_its_stage(
    backend: Backend, admin: Client, node: tuple[str, PolicyNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    label, one = node
    policy = await created(one, one.body(selector={"labels": {"pool": label}}, mode="enforce"))
    window = await asked(admin, "/api/v1/change-windows", body(label, opens_in=timedelta(hours=3)), 201)
    request = {"version": 1, "canary": 1, "batch": 1, "wait_s": 600}
    rollout = await asked(one.operator, f"/api/v1/policies/{policy['id']}/rollouts", request, 201)
    monitor = RolloutMonitor(backend.app.state.policies)
    await monitor.check(datetime.now(UTC))
    path = f"/api/v1/rollouts/{rollout['id']}"
    waits = (await one.operator.get(path)).json()
    assert waits["sentence"] == "Waits in stage 1: no change window is open for 1 of its nodes."
    assert waits["remaining_s"] is None, "the stage begins anew, so nothing counts down"
    with monkeypatch.context() as patched:
        patched.setattr(rollout_monitor, "measure_stage", None)  # what would not be used is not measured
        await monitor.check(datetime.now(UTC) + timedelta(hours=1))
    await admin.delete(f"/api/v1/change-windows/{window['id']}")
    await monitor.check(datetime.now(UTC))
    begun = (await one.operator.get(path)).json()
    assert "Waits" not in begun["sentence"]
    assert begun["remaining_s"] > 0


@pytest.mark.parametrize("interrupted", [True, False], ids=["interrupted", "not begun"])
@pytest.mark.parametrize("by", ["window", "stop"])
async def test_a_stage_is_compared_with_the_time_before_a_node_of_it_could_enforce_the_version(  # noqa: PLR0917 - fixtures
    backend: Backend,
    admin: Client,
    node: tuple[str, PolicyNode],
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    interrupted: bool,
) -> None:
    label, one = node
    policy = await created(one, one.body(selector={"labels": {"pool": label}}, mode="enforce"))
    monitor = RolloutMonitor(backend.app.state.policies)
    before: list[datetime] = []

    async def read(_: _WindowReader, __: Sequence[int], window: tuple[datetime, datetime], ___: object) -> list[object]:
        before.append(window[1])
        return []

    async def close() -> str:
        if by == "stop":
            return str((await asked(admin, "/api/v1/stops", {"labels": {"pool": label}}, 201))["id"])
        return str((await asked(admin, "/api/v1/change-windows", body(label, opens_in=timedelta(hours=3)), 201))["id"])

    monkeypatch.setattr(_WindowReader, "read", read)
    await backend.app.state.rollout_monitor.stop()  # only the test's takes stages
    closed = None if interrupted else await close()
    request = {"version": 1, "canary": 1, "batch": 1, "wait_s": 600}
    begun = await asked(one.operator, f"/api/v1/policies/{policy['id']}/rollouts", request, 201)
    await monitor.check(datetime.now(UTC))
    closed = closed or await close()
    await monitor.check(datetime.now(UTC))
    if by == "stop":
        await admin.post(f"/api/v1/stops/{closed}/lift")
    else:
        await admin.delete(f"/api/v1/change-windows/{closed}")
    for _ in range(2):
        await monitor.check(datetime.now(UTC) + timedelta(minutes=30))
    again = (await one.operator.get(f"/api/v1/rollouts/{begun['id']}")).json()
    assert again["stage_at"] > begun["stage_at"]
    await monitor.check(datetime.now(UTC) + timedelta(hours=1))
    assert before[-1] == datetime.fromisoformat((begun if interrupted else again)["stage_at"])
    backend.app.state.rollout_monitor.start()


async def test_a_stage_whose_time_is_over_does_not_begin_anew_when_a_window_closes(
    backend: Backend, admin: Client, node: tuple[str, PolicyNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_samples_yet(*_: object) -> None:
        return None

    label, one = node
    policy = await created(one, one.body(selector={"labels": {"pool": label}}, mode="enforce"))
    monitor = RolloutMonitor(backend.app.state.policies)
    monkeypatch.setattr(rollout_monitor, "measure_stage", no_samples_yet)
    await backend.app.state.rollout_monitor.stop()  # only the test's takes stages
    request = {"version": 1, "canary": 1, "batch": 1, "wait_s": 600}
    begun = await asked(one.operator, f"/api/v1/policies/{policy['id']}/rollouts", request, 201)
    await asked(admin, "/api/v1/change-windows", body(label, opens_in=timedelta(hours=3)), 201)
    await monitor.check(datetime.now(UTC) + timedelta(minutes=11))
    waiting = (await one.operator.get(f"/api/v1/rollouts/{begun['id']}")).json()
    assert (waiting["sentence"], waiting["stage_at"]) == (begun["sentence"], begun["stage_at"])
    backend.app.state.rollout_monitor.start()


async def test_a_rollout_that_no_window_is_long_enough_for_is_refused(
    admin: Client, node: tuple[str, PolicyNode]
) -> None:
    label, one = node
    policy = await created(one, one.body(selector={"labels": {"pool": label}}, mode="enforce"))
    await asked(admin, "/api/v1/change-windows", body(label, opens_in=timedelta(hours=3)), 201)
    path, request = f"/api/v1/policies/{policy['id']}/rollouts", {"version": 1, "canary": 1, "batch": 1}
    refused = await asked(one.operator, path, request | {"wait_s": 3600}, 409)
    assert "in stage 1 are open together for 3600 s at most, but the stage waits 3600 s." in refused["detail"]
    await asked(one.operator, path, request | {"wait_s": 3599}, 201)


async def test_a_violation_rolls_back_a_rollout_that_waits_for_a_window(
    backend: Backend, admin: Client, node: tuple[str, PolicyNode]
) -> None:
    label, one = node
    policy = await created(one, one.body(selector={"labels": {"pool": label}}, mode="enforce"))
    await asked(admin, "/api/v1/change-windows", body(label, opens_in=timedelta(hours=3)), 201)
    request = {"version": 1, "canary": 1, "batch": 1, "wait_s": 600}
    rollout = await asked(one.operator, f"/api/v1/policies/{policy['id']}/rollouts", request, 201)
    monitor = RolloutMonitor(backend.app.state.policies)
    await monitor.check(datetime.now(UTC))
    async with backend.database.session() as session:
        violated = update(RolloutRow).where(RolloutRow.id == rollout["id"])
        await session.execute(violated.values(violation="On web-1 the p99 is too high."))
    await monitor.check(datetime.now(UTC))
    found = (await one.operator.get(f"/api/v1/rollouts/{rollout['id']}")).json()
    assert (found["state"], "p99 is too high" in found["sentence"]) == ("rolled_back", True)


async def test_nodes_without_a_window_are_always_open(admin: Client, node: tuple[str, PolicyNode]) -> None:
    label, one = node
    await asked(admin, "/api/v1/change-windows", body("another", opens_in=timedelta(hours=3)), 201)
    policy = await created(one, one.body(selector={"labels": {"pool": label}}))
    assert policy["enabled"] is False or policy["body"]["mode"] == "observe"
    async with one.backend.database.session() as session:
        assert one.agent.node_id not in await windows.closed_nodes(session)


@pytest.mark.parametrize(
    ("field", "value"), [("zone", "Mars/Olympus"), ("start", "24:00"), ("weekdays", []), ("weekdays", [7])]
)
async def test_a_window_that_no_calendar_has_is_refused(admin: Client, field: str, value: object) -> None:
    answer = await admin.post("/api/v1/change-windows", body("x", opens_in=timedelta()) | {field: value})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(f"{field}")


async def test_windows_are_in_the_audit_log(backend: Backend, admin: Client) -> None:
    made = await asked(admin, "/api/v1/change-windows", body("x", opens_in=timedelta()), 201)
    await admin.delete(f"/api/v1/change-windows/{made['id']}")
    async with backend.database.session() as session:
        of_window = select(AuditRow).where(AuditRow.target == made["name"]).order_by(AuditRow.id)
        entries = (await session.scalars(of_window)).all()
    assert [entry.action for entry in entries] == ["change-window.create", "change-window.delete"]
