"""Alerts: list them; rules, silences and receivers: list, create, change, delete, test."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit
from uuid import uuid4

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.alerts import notifications, repository
from coresteer.alerts.context import AlertContext
from coresteer.alerts.schemas import (
    Alert,
    AlertFilter,
    AlertList,
    AlertRule,
    AlertRuleBody,
    Delivery,
    Receiver,
    ReceiverBody,
    ReceiverKind,
    ReceiverTest,
    Severity,
    SignalInfo,
    Silence,
    SilenceBody,
)
from coresteer.alerts.silencing import silence_of
from coresteer.alerts.tables import AlertRow, AlertRuleRow, ReceiverRow, SilenceRow
from coresteer.audit.service import record
from coresteer.errors import Conflict, Invalid, NotFound
from coresteer_core.alerts.signals import SIGNALS, Of

MAX_RULES, MAX_RECEIVERS, MAX_SILENCES = 100, 50, 200
MAX_SILENCE = timedelta(days=90)
_MAX_DELIVERIES = 100


def signals() -> list[SignalInfo]:
    """Return the signals that rules may watch."""
    return [
        SignalInfo(name=name, label=one.label, unit=one.unit, of=one.of, meaning=one.meaning)
        for name, one in SIGNALS.items()
    ]


async def list_alerts(session: AsyncSession, filters: AlertFilter) -> AlertList:
    """Return alerts, those that fire first."""
    silences = await repository.silences(session, datetime.now(UTC))
    found = [_alert(row, rule, silences) for row, rule in await repository.find_alerts(session, filters)]
    return AlertList(firing=sum((await repository.firing_counts(session)).values()), alerts=found)


async def list_rules(session: AsyncSession) -> list[AlertRule]:
    """Return all rules by name."""
    counts = await repository.firing_counts(session)
    return [_rule(row, counts.get(row.id, 0)) for row in await repository.rules(session)]


async def create_rule(session: AsyncSession, body: AlertRuleBody, *, actor: str) -> AlertRule:
    """Create a rule. Raises Conflict when the name is taken or there are too many."""
    if len(await repository.rules(session)) >= MAX_RULES:
        raise Conflict(f"There are {MAX_RULES} rules of alerts; delete one first.")
    row = AlertRuleRow(**body.model_dump(), updated_at=datetime.now(UTC), updated_by=actor)
    session.add(row)
    await _flush(session, "rule", body.name)
    record(session, actor=actor, action="alert-rule.create", target=body.name, detail=body.model_dump(mode="json"))
    return _rule(row, 0)


async def change_rule(session: AsyncSession, rule_id: int, body: AlertRuleBody, *, actor: str) -> AlertRule:
    """Replace a rule; periods that go on begin anew. Raises NotFound and Conflict."""
    row = await _found_rule(session, rule_id)
    was = AlertRuleBody.model_validate({name: getattr(row, name) for name in AlertRuleBody.model_fields})
    for name, value in body.model_dump().items():
        setattr(row, name, value)
    row.updated_at, row.updated_by = datetime.now(UTC), actor
    await _flush(session, "rule", body.name)
    if was.signal != body.signal:
        ids = [alert.id for alert in await repository.firing(session) if alert.rule_id == rule_id]
        await repository.resolve(session, ids, row.updated_at)
    before, after = was.model_dump(mode="json"), body.model_dump(mode="json")
    changed = {name: [before[name], after[name]] for name in after if before[name] != after[name]}
    record(session, actor=actor, action="alert-rule.change", target=body.name, detail={"changed": changed})
    counts = await repository.firing_counts(session)
    return _rule(row, counts.get(rule_id, 0))


async def delete_rule(session: AsyncSession, rule_id: int, *, actor: str) -> None:
    """Delete a rule with its alerts. Raises NotFound."""
    row = await _found_rule(session, rule_id)
    await session.delete(row)
    record(session, actor=actor, action="alert-rule.delete", target=row.name)


async def list_silences(session: AsyncSession) -> list[Silence]:
    """Return the silences in force, the first to end first."""
    names = {rule.id: rule.name for rule in await repository.rules(session)}
    firing = await repository.firing(session)
    return [_silence(row, firing, names) for row in await repository.silences(session, datetime.now(UTC))]


async def create_silence(session: AsyncSession, body: SilenceBody, *, actor: str) -> Silence:
    """Silence alerts until a time. Raises Invalid and Conflict."""
    now = datetime.now(UTC)
    if not now < body.ends_at <= now + MAX_SILENCE:
        raise Invalid(f"A silence ends in the future, within {MAX_SILENCE.days} days.", field="ends_at")
    if len(await repository.silences(session, now)) >= MAX_SILENCES:
        raise Conflict(f"{MAX_SILENCES} silences are in force; end one first.")
    row = SilenceRow(**body.model_dump(), created_at=now, created_by=actor)
    session.add(row)
    await session.flush()
    detail = {"silence": row.id, "ends_at": body.ends_at.isoformat(), "comment": body.comment}
    record(session, actor=actor, action="alert-silence.create", target=_words(row.labels), detail=detail)
    names = {rule.id: rule.name for rule in await repository.rules(session)}
    return _silence(row, await repository.firing(session), names)


async def end_silence(session: AsyncSession, silence_id: int, *, actor: str) -> None:
    """End a silence now. Raises NotFound."""
    row = await session.get(SilenceRow, silence_id, with_for_update=True)
    now = datetime.now(UTC)
    if row is None or row.ends_at <= now:
        raise NotFound(f"There is no silence {silence_id} in force; it may have ended.")
    row.ends_at = now
    record(session, actor=actor, action="alert-silence.end", target=_words(row.labels), detail={"silence": row.id})


async def list_receivers(session: AsyncSession) -> list[Receiver]:
    """Return all receivers by name, without their secrets."""
    return [_receiver(row) for row in await repository.receivers(session)]


async def create_receiver(session: AsyncSession, body: ReceiverBody, *, actor: str) -> Receiver:
    """Create a receiver. Raises Conflict when the name is taken or there are too many."""
    if len(await repository.receivers(session)) >= MAX_RECEIVERS:
        raise Conflict(f"There are {MAX_RECEIVERS} receivers of alerts; delete one first.")
    row = ReceiverRow(**_columns(body), secret=body.secret or "", created_at=datetime.now(UTC), created_by=actor)
    session.add(row)
    await _flush(session, "receiver", body.name)
    record(session, actor=actor, action="alert-receiver.create", target=body.name, detail=_public(row))
    return _receiver(row)


async def change_receiver(session: AsyncSession, receiver_id: int, body: ReceiverBody, *, actor: str) -> Receiver:
    """Replace a receiver; its secret stays where none is sent. Raises NotFound, Invalid and Conflict.

    A secret is not kept for another server, which would learn it.
    """
    row = await _found_receiver(session, receiver_id)
    columns = _columns(body)
    if row.kind == body.kind == ReceiverKind.SLACK and body.url == _shown_url(row):
        columns["url"] = row.url
    elsewhere = body.kind != row.kind or urlsplit(body.url)[:2] != urlsplit(row.url)[:2]
    if elsewhere and row.secret and body.secret is None:
        raise Invalid("Another server needs its secret entered again; send an empty one for none.", field="secret")
    for name, value in columns.items():
        setattr(row, name, value)
    if body.secret is not None:
        row.secret = body.secret
    if not row.enabled:
        await repository.delete_waiting(session, receiver_id)
    await _flush(session, "receiver", body.name)
    detail = _public(row) | {"secret_changed": body.secret is not None}
    record(session, actor=actor, action="alert-receiver.change", target=body.name, detail=detail)
    return _receiver(row)


async def delete_receiver(session: AsyncSession, receiver_id: int, *, actor: str) -> None:
    """Delete a receiver with what waits to be sent to it. Raises NotFound."""
    row = await _found_receiver(session, receiver_id)
    await session.delete(row)
    record(session, actor=actor, action="alert-receiver.delete", target=row.name)


async def test_receiver(context: AlertContext, receiver_id: int, *, actor: str) -> ReceiverTest:
    """Send a receiver a test notification now and return the outcome. Raises NotFound."""
    async with context.database.session() as session:
        row = await _found_receiver(session, receiver_id, lock=False)
    now = datetime.now(UTC)
    rule = AlertRuleRow(id=0, name="Test of a receiver", signal="disconnected", threshold=1, severity=Severity.WARNING)
    alert = AlertRow(rule_id=0, subject=0, name="no node", labels={}, value=None, fired_at=now, resolved_at=now)
    message = notifications.describe(rule, [], [], [alert], context.page_url)
    attempt = await context.sending.send(row, uuid4(), message)
    async with context.database.session() as session:
        result = "ok" if attempt.delivered else "failed"
        detail = {"outcome": attempt.outcome}
        record(session, actor=actor, action="alert-receiver.test", target=row.name, result=result, detail=detail)
    return ReceiverTest(delivered=attempt.delivered, outcome=attempt.outcome)


async def list_deliveries(session: AsyncSession, receiver_id: int) -> list[Delivery]:
    """Return the newest notifications of a receiver. Raises NotFound."""
    await _found_receiver(session, receiver_id, lock=False)
    return [
        Delivery(
            id=row.id,
            receiver_id=receiver_id,
            rule=rule,
            sentence=row.notification["sentence"],
            created_at=row.created_at,
            state=row.state,
            attempts=row.attempts,
            due_at=row.due_at,
            outcome=row.outcome,
        )
        for row, rule in await repository.deliveries(session, receiver_id, _MAX_DELIVERIES)
    ]


def _alert(row: AlertRow, rule: AlertRuleRow, silences: Sequence[SilenceRow]) -> Alert:
    signal = SIGNALS[rule.signal]
    silence = silence_of(silences, rule.name, row) if row.resolved_at is None else None
    return Alert(
        id=row.id,
        rule_id=rule.id,
        rule=rule.name,
        severity=Severity(rule.severity),
        label=signal.label,
        unit=signal.unit,
        threshold=rule.threshold,
        node_id=row.subject if signal.of is Of.NODE else None,
        policy_id=row.subject if signal.of is Of.POLICY else None,
        name=row.name,
        value=row.value,
        fired_at=row.fired_at,
        resolved_at=row.resolved_at,
        silence=None if silence is None else silence.id,
    )


def _rule(row: AlertRuleRow, firing: int) -> AlertRule:
    signal = SIGNALS[row.signal]
    known = {name: getattr(row, name) for name in AlertRuleBody.model_fields}
    return AlertRule(
        id=row.id,
        **known,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
        label=signal.label,
        unit=signal.unit,
        meaning=signal.meaning,
        firing=firing,
    )


def _silence(row: SilenceRow, firing: Sequence[AlertRow], names: Mapping[int, str]) -> Silence:
    matching = sum(silence_of([row], names.get(alert.rule_id, ""), alert) is not None for alert in firing)
    return Silence(
        id=row.id,
        labels=row.labels,
        ends_at=row.ends_at,
        comment=row.comment,
        created_at=row.created_at,
        created_by=row.created_by,
        alerts=matching,
    )


def _columns(body: ReceiverBody) -> dict[str, object]:
    return body.model_dump(exclude={"secret", "sender"}) | {"sender": body.sender or ""}


def _receiver(row: ReceiverRow) -> Receiver:
    return Receiver(
        id=row.id,
        name=row.name,
        kind=ReceiverKind(row.kind),
        url=_shown_url(row),
        has_secret=bool(row.secret) or row.kind == ReceiverKind.SLACK,
        username=row.username,
        sender=row.sender or None,
        recipients=row.recipients,
        severity=Severity(row.severity),
        enabled=row.enabled,
        created_at=row.created_at,
        created_by=row.created_by,
    )


def _shown_url(row: ReceiverRow) -> str:
    """Return a receiver's address; of Slack, whose path is a secret, the host alone."""
    parts = urlsplit(row.url)
    return f"{parts.scheme}://{parts.netloc}" if row.kind == ReceiverKind.SLACK else row.url


def _public(row: ReceiverRow) -> dict[str, object]:
    return {"kind": row.kind, "url": _shown_url(row), "severity": row.severity, "enabled": row.enabled}


def _words(labels: Mapping[str, str]) -> str:
    return " ".join(f"{name}={glob}" for name, glob in sorted(labels.items()))


async def _found_rule(session: AsyncSession, rule_id: int) -> AlertRuleRow:
    row = await session.get(AlertRuleRow, rule_id, with_for_update=True)
    if row is None or row.signal not in SIGNALS:
        raise NotFound(f"There is no rule {rule_id} of alerts; it may have been deleted.")
    return row


async def _found_receiver(session: AsyncSession, receiver_id: int, *, lock: bool = True) -> ReceiverRow:
    row = await session.get(ReceiverRow, receiver_id, with_for_update=lock)
    if row is None:
        raise NotFound(f"There is no receiver {receiver_id} of alerts; it may have been deleted.")
    return row


async def _flush(session: AsyncSession, what: str, name: str) -> None:
    try:
        await session.flush()
    except IntegrityError:
        raise Conflict(f"A {what} named “{name}” already exists; choose another name.") from None
