"""Alerts: what fires, what receivers are told and how often, silences, and what the API never returns."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import select, text
from tests.backend.conftest import MIGRATIONS, Backend
from tests.support.receiver import FakeReceiver, fake_mail_server, fake_receiver

from coresteer.alerts import service
from coresteer.alerts.context import AlertContext
from coresteer.alerts.evaluation import AlertEvaluation
from coresteer.alerts.messages import sign
from coresteer.alerts.outbox import Outbox
from coresteer.alerts.schemas import AlertFilter, ReceiverBody, SilenceBody
from coresteer.alerts.sending import Sending
from coresteer.alerts.tables import AlertRow, AlertRuleRow, DeliveryRow
from coresteer.audit.tables import AuditRow
from coresteer.bus import Bus
from coresteer.db import Database
from coresteer.errors import NotFound
from coresteer.fleet.directory import FleetDirectory
from coresteer.nodes.service import create_nodes
from coresteer.policies.tables import DriftRow
from coresteer.presence.registry import NodeRegistry
from coresteer_core.alerts.retry import MAX_ATTEMPTS

DISCONNECTED, DRIFTED = "Node disconnected", "Setting drifted"
ALERTS_MD = Path(__file__).parents[2] / "docs" / "ALERTS.md"


@dataclass
class Fleet:
    """A fleet without a backend, at a time that the test moves."""

    context: AlertContext
    registry: NodeRegistry
    evaluation: AlertEvaluation
    outbox: Outbox
    now: datetime
    nodes: list[int]
    disk: list[float]

    async def add_nodes(self, count: int, **labels: str) -> None:
        async with self.context.database.session() as session:
            made = await create_nodes(session, [f"n{len(self.nodes) + n}" for n in range(count)], simulated=False)
            await session.execute(
                text("UPDATE node SET last_seen_at = now(), labels = :labels WHERE id = ANY(:ids)"),
                {"labels": json.dumps(labels), "ids": [node.node_id for node in made]},
            )
        self.nodes += [node.node_id for node in made]
        for node in made:
            self.connect(node.node_id, True)

    def connect(self, node_id: int, connected: bool) -> None:
        state = self.registry.get_or_create(node_id)
        state.connected, state.stale_at = connected, float("inf")

    async def run(self, seconds: float = 0, every_s: float = 15) -> None:
        """Evaluate and send at each step of a period, and at its end."""
        end = self.now + timedelta(seconds=seconds)
        while True:
            self.context.directory.forget()
            await self.evaluation.check(self.now)
            await self.outbox.check(self.now)
            if self.now >= end:
                return
            self.now = min(end, self.now + timedelta(seconds=every_s))

    async def firing(self) -> list[tuple[str, str]]:
        async with self.context.database.session() as session:
            found = await service.list_alerts(session, AlertFilter(firing=True))
        return sorted((alert.rule, alert.name) for alert in found.alerts)

    async def receiver(self, url: str, kind: str = "webhook", **more: object) -> int:
        body = ReceiverBody.model_validate({"name": f"{kind} {url}", "kind": kind, "url": url, **more})
        async with self.context.database.session() as session:
            return (await service.create_receiver(session, body, actor="root")).id


@pytest_asyncio.fixture
async def fleet(own_database_url: str) -> AsyncIterator[Fleet]:
    database = Database(own_database_url, MIGRATIONS)
    await database.open()
    registry, disk = NodeRegistry(), [10.0]
    directory = FleetDirectory(database, Bus(), registry)
    context = AlertContext(database, directory, lambda: disk[0], Sending(timeout_s=5), "https://coresteer.example")
    now = datetime.now(UTC).replace(microsecond=0)
    yield Fleet(context, registry, AlertEvaluation(context), Outbox(context), now, [], disk)
    await database.close()


@pytest.fixture
def hook() -> Iterator[FakeReceiver]:
    with fake_receiver() as fake:
        yield fake


def told(hook: FakeReceiver) -> list[Any]:  # Any: JSON
    return [json.loads(body) for _, _, body in hook.requests]


async def test_500_disconnected_nodes_are_one_notification_and_one_when_they_are_back(
    fleet: Fleet, hook: FakeReceiver
) -> None:
    await fleet.receiver(hook.url)
    await fleet.add_nodes(500)
    await fleet.run()
    for node_id in fleet.nodes:
        fleet.connect(node_id, False)
    await fleet.run(105)
    assert await fleet.firing() == []
    await fleet.run(60)
    assert len(await fleet.firing()) == 200, "an answer is bounded"
    (sent,) = told(hook)
    assert (sent["status"], sent["firing"], len(sent["alerts"]), sent["rule"]) == ("firing", 500, 10, DISCONNECTED)
    assert sent["sentence"].endswith("and 490 more).")
    assert sent["url"] == "https://coresteer.example/alerts"
    for node_id in fleet.nodes:
        fleet.connect(node_id, True)
    await fleet.run(60)
    assert [(each["status"], each["firing"]) for each in told(hook)[1:]] == [("resolved", 0)]
    assert told(hook)[1]["resolved"] == 500
    assert await fleet.firing() == []


async def test_a_node_that_reconnects_in_time_fires_nothing_and_a_deleted_one_is_resolved(fleet: Fleet) -> None:
    await fleet.add_nodes(2)
    first, second = fleet.nodes
    for _ in range(3):
        fleet.connect(first, False)
        await fleet.run(105)
        fleet.connect(first, True)
        await fleet.run(15)
    assert await fleet.firing() == []
    fleet.connect(second, False)
    await fleet.run(135)
    assert await fleet.firing() == [(DISCONNECTED, "n1")]
    async with fleet.context.database.session() as session:
        await session.execute(text("DELETE FROM node WHERE id = :id"), {"id": second})
    await fleet.run()
    assert await fleet.firing() == []


async def test_further_alerts_of_a_rule_wait_for_the_next_notification(fleet: Fleet, hook: FakeReceiver) -> None:
    await fleet.receiver(hook.url)
    await fleet.add_nodes(3)
    for node_id, seconds in zip(fleet.nodes, (165, 60, 135), strict=True):
        fleet.connect(node_id, False)
        await fleet.run(seconds)
    assert [(each["firing"], each["new"]) for each in told(hook)] == [(1, 1)]
    await fleet.run(300)
    assert [(each["firing"], each["new"]) for each in told(hook)] == [(1, 1), (3, 2)]


async def test_a_drift_fires_at_once_and_a_disk_only_above_its_band(fleet: Fleet) -> None:
    await fleet.add_nodes(1)
    drift = {"policy_id": 1, "key": "irq/1/affinity", "expected": "1", "found": "2", "response": "yield"}
    async with fleet.context.database.session() as session:
        session.add(DriftRow(node_id=fleet.nodes[0], at=fleet.now, **drift))
    await fleet.run()
    assert await fleet.firing() == [(DRIFTED, "n0")]
    for used in (89.9, 86, 89, 88):
        fleet.disk[0] = used
        await fleet.run(60, every_s=60)
    assert await fleet.firing() == [(DRIFTED, "n0")]
    fleet.disk[0] = 91
    await fleet.run(60)
    for used in (86, 89.9, 91, 85):
        fleet.disk[0] = used
        await fleet.run(180, every_s=180)
        assert ("Disk almost full", "the backend") in await fleet.firing()
    fleet.disk[0] = 80
    await fleet.run(660, every_s=330)
    assert await fleet.firing() == []


async def test_a_delivery_is_tried_again_under_its_id_and_given_up_in_the_end(fleet: Fleet, hook: FakeReceiver) -> None:
    await fleet.receiver(hook.url, secret="shared secret")
    hook.statuses = [503, 429, 500]
    fleet.disk[0] = 95
    await fleet.run(150)
    ids = {headers["X-Coresteer-Delivery"] for _, headers, _ in hook.requests}
    assert (len(hook.requests), len(ids)) == (4, 1)
    for _, headers, body in hook.requests:
        time_s = int(headers["X-Coresteer-Signature"].removeprefix("t=").partition(",")[0])
        assert headers["X-Coresteer-Signature"] == sign("shared secret", time_s, body)
    hook.statuses = [500] * 100
    fleet.disk[0] = 10
    await fleet.run(7800, every_s=600)  # no pause is longer than a step
    assert len(hook.requests) == 4 + MAX_ATTEMPTS
    async with fleet.context.database.session() as session:
        rows = (await session.scalars(select(DeliveryRow).order_by(DeliveryRow.number))).all()
    assert [(row.state, row.attempts) for row in rows] == [("delivered", 4), ("failed", MAX_ATTEMPTS)]
    assert rows[1].outcome == "127.0.0.1 answered 500."


async def test_a_refused_delivery_is_not_tried_again(fleet: Fleet, hook: FakeReceiver) -> None:
    await fleet.receiver(hook.url)
    hook.statuses = [404]
    fleet.disk[0] = 95
    await fleet.run(300)
    assert len(hook.requests) == 1


async def test_silenced_alerts_are_told_of_when_the_silence_ends(fleet: Fleet, hook: FakeReceiver) -> None:
    await fleet.receiver(hook.url)
    await fleet.add_nodes(2, rack="r1")
    await fleet.add_nodes(1, rack="r2")
    silence = {"labels": {"rack": "r1", "rule": "Node*"}, "comment": "new switch"}
    async with fleet.context.database.session() as session:
        body = SilenceBody.model_validate(silence | {"ends_at": datetime.now(UTC) + timedelta(hours=1)})
        made = await service.create_silence(session, body, actor="op")
    for node_id in fleet.nodes:
        fleet.connect(node_id, False)
    await fleet.run(180)
    assert [(each["firing"], each["alerts"][0]["name"]) for each in told(hook)] == [(1, "n2")]
    async with fleet.context.database.session() as session:
        found = await service.list_alerts(session, AlertFilter())
        assert sorted((alert.name, alert.silence) for alert in found.alerts) == [
            ("n0", made.id),
            ("n1", made.id),
            ("n2", None),
        ]
        assert [each.alerts for each in await service.list_silences(session)] == [2]
    fleet.now += timedelta(hours=2)
    await fleet.run(15)
    assert told(hook)[-1]["firing"] == 3


async def test_a_receiver_is_told_of_what_fires_already_from_its_severity_on(fleet: Fleet, hook: FakeReceiver) -> None:
    await fleet.add_nodes(1)
    drift = {"policy_id": 1, "key": "irq/1/affinity", "expected": "1", "found": "2", "response": "yield"}
    async with fleet.context.database.session() as session:
        session.add(DriftRow(node_id=fleet.nodes[0], at=fleet.now, **drift))
    fleet.disk[0] = 95
    await fleet.run(120)
    await fleet.receiver(hook.url, severity="critical")
    await fleet.run(60)
    assert [each["rule"] for each in told(hook)] == ["Disk almost full"]


async def test_slack_and_alertmanager_get_their_own_json(fleet: Fleet, hook: FakeReceiver) -> None:
    await fleet.receiver(f"{hook.url}/services/T0/B0/secret", "slack")
    await fleet.receiver(hook.url, "alertmanager", secret="token")
    fleet.disk[0] = 95
    await fleet.run(135)
    by_path = {path: (headers, json.loads(body)) for path, headers, body in hook.requests}
    text_ = by_path["/services/T0/B0/secret"][1]["text"]
    assert text_.startswith("Disk almost full: 1 firing (the backend 95 %).")
    headers, ((alert),) = by_path["/api/v2/alerts"]
    assert headers["Authorization"] == "Bearer token"
    assert alert["labels"] == {"alertname": "Disk almost full", "severity": "critical", "source": "coresteer"}
    assert datetime.fromisoformat(alert["endsAt"]) > datetime.fromisoformat(alert["startsAt"])
    before = len(hook.requests)
    await fleet.run(300)
    assert [path for path, _, _ in hook.requests[before:]] == ["/api/v2/alerts"], "it forgets when it restarts"


async def test_an_e_mail_has_the_same_id_and_needs_encryption_for_a_password(fleet: Fleet) -> None:
    with fake_mail_server() as mail:
        address = {"sender": "coresteer@example.org", "recipients": ["ops@example.org"]}
        plain = await fleet.receiver(mail.url, "email", **address)
        result = await service.test_receiver(fleet.context, plain, actor="root")
        assert (result.delivered, result.outcome) == (True, "127.0.0.1 accepted the e-mail.")
        assert "Test of a receiver" in mail.mails[0]
        secret = await fleet.receiver(f"{mail.url}/", "email", **address, username="u", secret="p")
        result = await service.test_receiver(fleet.context, secret, actor="root")
        assert (result.delivered, "no encryption" in result.outcome, len(mail.mails)) == (False, True, 1)


@pytest.mark.parametrize(
    ("recipients", "delivered", "outcome"),
    [
        (["unknown@example.org"], False, "127.0.0.1 refused unknown@example.org: 550 no such user."),
        (
            ["ops@example.org", "unknown@example.org"],
            True,
            "127.0.0.1 accepted the e-mail, but refused unknown@example.org: 550 no such user.",
        ),
    ],
)
async def test_a_recipient_that_the_mail_server_refuses_is_named(
    fleet: Fleet, recipients: list[str], delivered: bool, outcome: str
) -> None:
    with fake_mail_server() as mail:
        receiver = await fleet.receiver(mail.url, "email", sender="coresteer@example.org", recipients=recipients)
        result = await service.test_receiver(fleet.context, receiver, actor="root")
        assert (result.delivered, result.outcome) == (delivered, outcome)


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/", "http://[fd00:ec2::254]/x", "http://user:pw@x/", "ftp://x/"]
)
async def test_no_receiver_is_at_a_forbidden_address(backend: Backend, url: str) -> None:
    admin = await backend.client("admin")
    answer = await admin.post("/api/v1/alert-receivers", {"name": url, "kind": "webhook", "url": url})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "body.url")


async def test_a_secret_is_never_returned_nor_kept_for_another_server(backend: Backend, hook: FakeReceiver) -> None:
    admin = await backend.client("admin")
    body: dict[str, object] = {"name": "hook", "kind": "webhook", "url": hook.url, "secret": "s3cr3t-key"}
    made = (await admin.post("/api/v1/alert-receivers", body)).json()
    assert made["has_secret"] is True
    path = f"/api/v1/alert-receivers/{made['id']}"
    kept = {name: value for name, value in body.items() if name != "secret"}
    assert (await admin.request("PUT", path, json=kept | {"name": "hook 2"})).json()["has_secret"] is True
    moved = await admin.request("PUT", path, json=kept | {"url": "http://other.example/"})
    assert (moved.status_code, moved.json()["errors"][0]["field"]) == (422, "secret")
    tried = (await admin.post(f"{path}/test")).json()
    assert tried["delivered"] is True
    assert "X-Coresteer-Signature" in hook.requests[0][1]
    slack = {"name": "slack", "kind": "slack", "url": f"{hook.url}/services/hidden-path"}
    slack_path = f"/api/v1/alert-receivers/{(await admin.post('/api/v1/alert-receivers', slack)).json()['id']}"
    shown = (await admin.get("/api/v1/alert-receivers")).text
    assert "s3cr3t" not in shown
    assert "hidden-path" not in shown
    await admin.request("PUT", slack_path, json=slack | {"url": hook.url})
    await admin.post(f"{slack_path}/test")
    assert hook.requests[-1][0] == "/services/hidden-path"
    async with backend.database.session() as session:
        entries = (await session.scalars(select(AuditRow).where(AuditRow.action.like("alert-receiver.%")))).all()
    assert not any("s3cr3t" in json.dumps(entry.detail) or "hidden" in json.dumps(entry.detail) for entry in entries)


async def test_an_administrator_changes_a_rule_and_the_audit_log_says_what(backend: Backend) -> None:
    admin = await backend.client("admin")
    rules = {rule["name"]: rule for rule in (await admin.get("/api/v1/alert-rules")).json()}
    assert len(rules) == 7
    assert all(rule["enabled"] and rule["clear"] <= rule["threshold"] for rule in rules.values())
    rule = rules["CPU saturated by softirq"]
    fields = ("name", "signal", "labels", "threshold", "clear", "for_s", "keep_s", "severity", "enabled")
    body = {name: rule[name] for name in fields}
    path = f"/api/v1/alert-rules/{rule['id']}"
    wrong = await admin.request("PUT", path, json=body | {"clear": 95})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "body.clear")
    changed = (await admin.request("PUT", path, json=body | {"threshold": 80})).json()
    assert (changed["threshold"], changed["unit"]) == (80, "%")
    async with backend.database.session() as session:
        (entry,) = (await session.scalars(select(AuditRow).where(AuditRow.action == "alert-rule.change"))).all()
    assert entry.detail == {"changed": {"threshold": [90.0, 80.0]}}
    taken = await admin.post("/api/v1/alert-rules", body)
    assert taken.status_code == 409
    of_another = body | {"name": "Setting drifted", "signal": "drifts"}
    assert (await admin.request("PUT", path, json=of_another)).status_code == 409


async def test_disabling_a_rule_resolves_its_alerts(fleet: Fleet) -> None:
    fleet.disk[0] = 95
    await fleet.run(75)
    async with fleet.context.database.session() as session:
        await session.execute(text("UPDATE alert_rule SET enabled = false WHERE signal = 'disk_used_percent'"))
    await fleet.run()
    async with fleet.context.database.session() as session:
        (alert,) = (await session.scalars(select(AlertRow))).all()
    assert alert.resolved_at is not None


async def test_a_rule_of_a_later_release_does_not_stop_the_others(fleet: Fleet, hook: FakeReceiver) -> None:
    await fleet.receiver(hook.url)
    await fleet.add_nodes(1)
    fleet.connect(fleet.nodes[0], False)
    async with fleet.context.database.session() as session:
        rule = await session.scalar(select(AlertRuleRow).where(AlertRuleRow.name == DRIFTED))
        assert rule is not None
        rule_id, rule.signal = rule.id, "a signal of 9.9"
        session.add(AlertRow(rule_id=rule_id, subject=fleet.nodes[0], name="n0", labels={}, fired_at=fleet.now))
    await fleet.run(180)
    assert await fleet.firing() == [(DISCONNECTED, "n0")]
    assert [each["rule"] for each in told(hook)] == [DISCONNECTED]
    async with fleet.context.database.session() as session:
        assert DRIFTED not in [rule.name for rule in await service.list_rules(session)]
        with pytest.raises(NotFound):
            await service.delete_rule(session, rule_id, actor="root")


def test_the_documented_verification_accepts_a_signature_and_refuses_another_body() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", ALERTS_MD.read_text(), re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)  # noqa: S102 - it is what the document tells receivers to run
    now = int(datetime.now(UTC).timestamp())
    header = sign("key", now, b'{"a": 1}')
    assert scope["is_from_coresteer"]("key", header, b'{"a": 1}')
    assert not scope["is_from_coresteer"]("key", header, b'{"a": 2}')
    assert not scope["is_from_coresteer"]("key", sign("key", now - 3600, b""), b"")
