"""The log of changes: groups, filters, pages, export, and the values that settings had before."""

from csv import DictReader
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from tests.backend.conftest import Backend, Client
from tests.backend.fake_agent import enrolled

from coresteer.changes import repository
from coresteer.changes.records import new_change_row
from coresteer.changes.reports import record_policy_change, record_report
from coresteer.policies.tables import PolicyRow
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy

HOUR = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Log:
    """A node of its own with changes at given minutes after 12:00."""

    def __init__(self, backend: Backend, viewer: Client, node_id: int, policy_id: int) -> None:
        self.backend, self.viewer, self.node_id = backend, viewer, node_id
        self.moved = {"created_by": "policy spread v4", "policy_id": policy_id}

    async def add(self, minute: float, *actions: tuple[str, str, str], **columns: object) -> UUID:
        plan = Plan([Action(*action, "") for action in actions or [("irq/38/affinity", "0-7", "0")]])
        change_id = uuid4()
        async with self.backend.database.session() as session:
            node = await repository.find_node(session, self.node_id)
            assert node is not None
            sentence = f"{plan.actions[0].key} moves."
            row = new_change_row(
                node, change_id, plan, sentence, created_by="olga", reason="", confirm_timeout_s=60, guardrails=[]
            )
            row.created_at = row.applied_at = HOUR + timedelta(minutes=minute)
            row.state = ChangeState.CONFIRMED
            for name, value in columns.items():
                setattr(row, name, value)
            session.add(row)
        return change_id

    async def page(self, query: str = "") -> dict[str, Any]:  # Any: JSON
        answer = await self.viewer.get(f"/api/v1/changes/log?node_id={self.node_id}&{query}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def ids(self, query: str = "") -> list[str]:
        return [entry["change"]["id"] for entry in (await self.page(query))["entries"]]

    async def exported(self) -> list[dict[str, str]]:
        answer = await self.viewer.get(f"/api/v1/changes/log.csv?node_id={self.node_id}")
        return list(DictReader(answer.text.splitlines()))


@pytest_asyncio.fixture
async def log(backend: Backend) -> Log:
    name = f"log-{uuid4().hex[:8]}"
    agent = await enrolled(backend.database, backend.url, name)
    async with backend.database.session() as session:
        policy = PolicyRow(name=name, enabled=False, version=1, created_at=HOUR, created_by="olga")
        session.add(policy)
        await session.flush()
        return Log(backend, await backend.client("viewer"), agent.node_id, policy.id)


async def test_moves_of_a_policy_are_one_entry_for_each_hour(log: Log) -> None:
    for minute in (1, 59, 61):
        await log.add(minute, **log.moved)
    newest = await log.add(62, **log.moved, state=ChangeState.FAILED)
    mine = await log.add(30)
    page = await log.page()
    entries = page["entries"]
    assert [(one["changes"], one["nodes"], one["statuses"]) for one in entries] == [
        (2, 1, {"confirmed": 1, "failed": 1}),
        (2, 1, {"confirmed": 2}),
        (1, 1, {"confirmed": 1}),
    ]
    assert entries[0]["change"]["id"] == str(newest)
    assert (entries[0]["hour"], entries[2]["hour"]) == ("2026-03-01T13:00:00Z", None)
    assert entries[2]["change"]["id"] == str(mine)
    assert (page["people"], page["policies"], page["experiments"]) == (1, 4, 0)
    assert len(await log.ids("grouped=false")) == 5


async def test_an_entry_whose_changes_leave_its_group_meanwhile_has_the_state_that_was_found(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute in (1, 59):
        await log.add(minute, **log.moved)

    async def none(*_: object) -> dict[object, object]:
        return {}

    monkeypatch.setattr("coresteer.changes.log_repository.statuses", none)
    [entry] = (await log.page())["entries"]
    assert entry["statuses"] == {"confirmed": 2}


@pytest.mark.parametrize("grouped", ["true", "false"])
async def test_pages_follow_each_other_without_gap_or_repetition(log: Log, grouped: str) -> None:
    for minute in range(0, 300, 20):
        await log.add(minute)
        await log.add(minute, **log.moved)
    expected = await log.ids(f"grouped={grouped}")
    seen: list[str] = []
    older: str | None = ""
    while older is not None:
        page = await log.page(f"grouped={grouped}&limit=4{older and f'&older_than={older}'}")
        seen += [entry["change"]["id"] for entry in page["entries"]]
        older = page["older"]
    assert seen == expected
    assert len(seen) == (20 if grouped == "true" else 30)


FILTERS = [
    ("by=kim", "kim"),
    ("origin=policies", "policy"),
    ("state=rolled_back", "rolled back"),
    ("state=failed", "failed"),
    ("state=unconfirmed", "unconfirmed"),
    ("setting=netdev/*/coalesce/rx-usecs", "usecs"),
    ("setting=netdev/ens5/coalesce/rx-usecs", "usecs"),
    ("text=RX-usecs", "usecs"),
    ("text=ticket 812", "reason"),
    ("from_time=2026-03-01T12:49:00Z", "late"),
    ("to_time=2026-03-01T12:00:30Z", "kim"),
]


@pytest.mark.parametrize(("query", "name"), FILTERS)
async def test_a_filter_selects_one_of_many_changes(log: Log, query: str, name: str) -> None:
    ids = {
        "kim": await log.add(0, created_by="kim"),
        "policy": await log.add(10, **log.moved),
        "rolled back": await log.add(12, state=ChangeState.ROLLED_BACK, ended_by=EndedBy.TIMEOUT),
        "failed": await log.add(13, state=ChangeState.FAILED),
        "unconfirmed": await log.add(14, state=ChangeState.UNCONFIRMED),
        "usecs": await log.add(15, ("netdev/ens5/coalesce/rx-usecs", "3", "18")),
        "reason": await log.add(16, reason="drops, ticket 812"),
        "late": await log.add(50),
    }
    assert await log.ids(query) == [str(ids[name])]


async def test_wildcards_of_the_database_are_ordinary_text(log: Log) -> None:
    await log.add(0)
    assert await log.ids("text=%25") == []
    assert await log.ids("setting=irq_38%25") == []


async def test_an_export_has_a_line_for_each_setting_and_no_formula(log: Log) -> None:
    await log.add(0, ("irq/38/affinity", "0", "1"), ("irq/39/affinity", "0", "2"), reason="=cmd()")
    assert [(line["setting"], line["was"], line["becomes"], line["reason"]) for line in await log.exported()] == [
        ("irq/38/affinity", "0", "1", "'=cmd()"),
        ("irq/39/affinity", "0", "2", "'=cmd()"),
    ]


async def test_a_setting_has_the_values_of_its_changes_and_the_one_that_the_first_found(log: Log) -> None:
    for minute, (was, becomes) in enumerate(pairwise(["0-7", "0", "2", "0"])):
        await log.add(minute, ("irq/38/affinity", was, becomes))
    await log.add(9, ("irq/38/affinity", "0", "5"), applied_at=None, state=ChangeState.FAILED)
    (setting,) = (await log.viewer.get(f"/api/v1/nodes/{log.node_id}/written-settings")).json()
    assert setting["key"] == "irq/38/affinity"
    assert [(value["value"], value["by"]) for value in setting["values"]] == [
        ("0", "olga"),
        ("2", "olga"),
        ("0-7", None),
    ]


async def test_a_policys_change_that_is_reported_late_has_the_time_of_its_decision(log: Log) -> None:
    change_id, decided_at = uuid4(), datetime.now(UTC) - timedelta(hours=1)
    async with log.backend.database.session() as session:
        await repository.lock_node(session, log.node_id)
        node = await repository.find_node(session, log.node_id)
        assert node is not None
        await record_policy_change(
            session, node, change_id=change_id, plan=Plan([Action("irq/38/affinity", "0", "1", "")]), flows=None,
            policy_id=int(str(log.moved["policy_id"])), created_by="policy spread v4", reason="", guardrails=[],
            decided_at=decided_at,
        )  # fmt: skip
    report = ChangeMessage(str(change_id), ChangeState.CONFIRMED, "Confirmed.", [], EndedBy.USER)
    await record_report(log.backend.app.state.changes, log.node_id, report)
    change = (await log.viewer.get(f"/api/v1/changes/{change_id}")).json()
    assert datetime.fromisoformat(change["created_at"]) == datetime.fromisoformat(change["applied_at"]) == decided_at


async def test_a_confirmed_change_is_undone_by_a_later_one_until_that_is_undone(log: Log) -> None:
    first = await log.add(1)
    undo = await log.add(2, undoes=first, created_by="anna")
    await log.add(3, undoes=undo, state=ChangeState.ROLLED_BACK)
    changes = [entry["change"] for entry in (await log.page())["entries"]]
    by = {"change": str(undo), "by": "anna", "at": "2026-03-01T12:02:00Z"}
    assert [(one["status"], one["undone"]) for one in changes] == [
        ("rolled_back", None),
        ("confirmed", None),
        ("undone", by),
    ]
    assert [one["undoes"] for one in changes] == [str(undo), str(first), None]
    assert (await log.viewer.get(f"/api/v1/changes/{first}")).json()["undone"] == by
    assert [(line["state"], line["undone_by"], line["undone_by_change"]) for line in await log.exported()] == [
        ("rolled_back", "", ""),
        ("confirmed", "", ""),
        ("undone", "anna", str(undo)),
    ]
    assert (await log.ids("state=undone"), await log.ids("state=confirmed")) == ([str(first)], [str(undo)])
    redo = await log.add(4, undoes=undo)
    assert (await log.ids("state=undone"), await log.ids("state=confirmed")) == ([str(undo)], [str(redo), str(first)])


async def test_a_restore_undoes_every_earlier_change_of_its_settings_until_it_is_undone(log: Log) -> None:
    irq, usecs = ("irq/38/affinity", "0", "1"), ("netdev/eth0/coalesce/rx-usecs", "18", "90")
    moved = await log.add(1, irq)
    of_policy = await log.add(2, irq, usecs, **log.moved)
    other = await log.add(3, ("irq/39/affinity", "0", "1"))
    of_policy_restored = await log.add(4, irq, usecs, **log.moved, restores=True)
    undone = [str(of_policy)]
    assert await log.ids("state=undone&grouped=false") == undone, "a policy's restore is about its own changes"
    group = (await log.page("origin=policies"))["entries"][0]
    assert (group["changes"], group["statuses"]) == (2, {"confirmed": 1, "undone": 1})
    restore = await log.add(5, irq, usecs, restores=True, created_by="anna")
    later = await log.add(6, irq)
    assert await log.ids("state=undone&grouped=false") == [str(of_policy), str(moved)]
    changes = [entry["change"] for entry in (await log.page("grouped=false"))["entries"]]
    assert {change["id"]: change["undone"] and change["undone"]["by"] for change in changes} == {
        str(later): None,
        str(restore): None,
        str(of_policy_restored): None,
        str(other): None,
        str(of_policy): log.moved["created_by"],
        str(moved): "anna",
    }
    await log.add(7, irq, usecs, undoes=restore)
    assert await log.ids("state=undone&grouped=false") == [str(restore), str(of_policy)]
