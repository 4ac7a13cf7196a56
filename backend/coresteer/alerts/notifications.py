"""What receivers are told: one notification for all alerts of a rule, stored together with the alerts' state."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.alerts import repository
from coresteer.alerts.schemas import Notification, NotifiedAlert, ReceiverKind, Severity
from coresteer.alerts.silencing import silence_of
from coresteer.alerts.tables import AlertRow, AlertRuleRow, DeliveryRow, ReceiverRow
from coresteer_core.alerts.signals import SIGNALS, Of

GROUP_WAIT = timedelta(seconds=30)
"""How long the first alert of a rule waits for others, so that nodes that fail together are one notification."""
GROUP_INTERVAL = timedelta(minutes=5)
"""How long further alerts of a rule wait after a notification, unless all are resolved."""
REPEAT_INTERVAL = timedelta(minutes=5)
"""How often an Alertmanager is told again of what fires: it forgets when it restarts."""
MAX_LISTED = 10


async def queue(session: AsyncSession, now: datetime, page_url: str) -> None:
    """Queue the notifications that are due; mark the alerts that they contain."""
    alerts: dict[int, list[AlertRow]] = defaultdict(list)
    for alert in await repository.unnotified(session):
        alerts[alert.rule_id].append(alert)
    if not alerts:
        return
    silences = await repository.silences(session, now)
    receivers = await repository.receivers(session, enabled=True)
    for rule in await repository.rules(session):
        of_rule = [alert for alert in alerts[rule.id] if silence_of(silences, rule.name, alert) is None]
        told = [receiver for receiver in receivers if _takes(receiver, rule)]
        if not of_rule or not told:
            continue
        new = [alert for alert in of_rule if alert.resolved_at is None and not alert.notified]
        resolved = [alert for alert in of_rule if alert.resolved_at is not None]
        firing = [alert for alert in of_rule if alert.resolved_at is None]
        if _is_due(rule, new, resolved, firing, now):
            rule.notified_at = rule.repeated_at = now
            for alert in new:
                alert.notified = "firing"
            for alert in resolved:
                alert.notified = "resolved"
        elif not _is_repeat_due(rule, firing, now):
            continue
        else:
            rule.repeated_at, new, resolved = now, [], []
            told = [receiver for receiver in told if receiver.kind == ReceiverKind.ALERTMANAGER]
        notification = describe(rule, firing, new, resolved, page_url)
        for receiver in told:
            session.add(
                DeliveryRow(
                    id=uuid4(),
                    receiver_id=receiver.id,
                    rule_id=rule.id,
                    notification=notification.model_dump(mode="json"),
                    created_at=now,
                    state="waiting",
                    attempts=0,
                    due_at=now,
                    outcome="",
                )
            )


def _takes(receiver: ReceiverRow, rule: AlertRuleRow) -> bool:
    return rule.severity == Severity.CRITICAL or receiver.severity == Severity.WARNING


def _is_due(
    rule: AlertRuleRow,
    new: Sequence[AlertRow],
    resolved: Sequence[AlertRow],
    firing: Sequence[AlertRow],
    now: datetime,
) -> bool:
    if not new and not resolved:
        return False
    if not firing:
        return True
    is_first = len(new) == len(firing) and not resolved
    if is_first and now - min(alert.fired_at for alert in new) < GROUP_WAIT:
        return False
    return is_first or rule.notified_at is None or now - rule.notified_at >= GROUP_INTERVAL


def _is_repeat_due(rule: AlertRuleRow, firing: Sequence[AlertRow], now: datetime) -> bool:
    was_told = any(alert.notified == "firing" for alert in firing)
    return was_told and rule.repeated_at is not None and now - rule.repeated_at >= REPEAT_INTERVAL


def describe(
    rule: AlertRuleRow,
    firing: Sequence[AlertRow],
    new: Sequence[AlertRow],
    resolved: Sequence[AlertRow],
    page_url: str,
) -> Notification:
    """Return the notification of a rule's alerts: those that fire, and of them the new ones, and resolved ones."""
    signal = SIGNALS[rule.signal]
    listed = [*(new or firing), *resolved][:MAX_LISTED]
    return Notification(
        status="firing" if firing else "resolved",
        rule=rule.name,
        rule_id=rule.id,
        severity=Severity(rule.severity),
        signal=rule.signal,
        unit=signal.unit,
        threshold=rule.threshold,
        firing=len(firing),
        new=len(new),
        resolved=len(resolved),
        since=min(alert.fired_at for alert in [*firing, *resolved]),
        sentence=_sentence(rule, firing, new, resolved),
        alerts=[
            NotifiedAlert(
                name=alert.name,
                node_id=alert.subject if signal.of is Of.NODE else None,
                state="firing" if alert.resolved_at is None else "resolved",
                value=alert.value,
                since=alert.fired_at if alert.resolved_at is None else alert.resolved_at,
            )
            for alert in listed
        ],
        url=page_url,
    )


def _sentence(
    rule: AlertRuleRow, firing: Sequence[AlertRow], new: Sequence[AlertRow], resolved: Sequence[AlertRow]
) -> str:
    if not firing:
        return f"{rule.name}: resolved ({_names(rule, resolved)})."
    parts = [f"{len(firing)} firing", f"{len(new)} new" if new and len(new) < len(firing) else ""]
    parts.append(f"{len(resolved)} resolved" if resolved else "")
    return f"{rule.name}: {', '.join(filter(None, parts))} ({_names(rule, new or firing)})."


def _names(rule: AlertRuleRow, alerts: Sequence[AlertRow]) -> str:
    unit = SIGNALS[rule.signal].unit
    names = [
        f"{alert.name} {alert.value:.3g} {unit}" if unit and alert.value is not None else alert.name
        for alert in alerts[:MAX_LISTED]
    ]
    more = len(alerts) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
