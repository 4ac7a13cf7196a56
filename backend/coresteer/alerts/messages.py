"""Notifications in the form of each kind of receiver, and the signature of webhooks. Pure."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.message import EmailMessage
from uuid import UUID

from coresteer.alerts.schemas import Notification, ReceiverKind
from coresteer.alerts.tables import ReceiverRow

DELIVERY_HEADER, SIGNATURE_HEADER = "X-Coresteer-Delivery", "X-Coresteer-Signature"
ALERTMANAGER_PATH = "/api/v2/alerts"
_ALERTMANAGER_KEEPS = timedelta(minutes=15)
"""How long an Alertmanager keeps what fires unless it is told again."""


@dataclass(frozen=True)
class HttpMessage:
    """A POST request: the address with its path, headers, and body."""

    url: str
    headers: Mapping[str, str]
    body: bytes


def to_http(receiver: ReceiverRow, delivery: UUID, notification: Notification, now: datetime) -> HttpMessage:
    """Return the request that tells a webhook, Slack or Alertmanager."""
    headers = {"Content-Type": "application/json", "User-Agent": "coresteer", DELIVERY_HEADER: str(delivery)}
    kind, url = ReceiverKind(receiver.kind), receiver.url
    content: object
    if kind is ReceiverKind.SLACK:
        content = {"text": "\n".join(filter(None, (notification.sentence, notification.url)))}
    elif kind is ReceiverKind.ALERTMANAGER:
        content = [_alertmanager_alert(notification, now)]
        url = url.rstrip("/") + ALERTMANAGER_PATH
    else:
        content = {"id": str(delivery), **notification.model_dump(mode="json")}
    body = json.dumps(content).encode()
    if kind is ReceiverKind.ALERTMANAGER and receiver.secret:
        headers["Authorization"] = f"Bearer {receiver.secret}"
    if kind is ReceiverKind.WEBHOOK and receiver.secret:
        headers[SIGNATURE_HEADER] = sign(receiver.secret, int(now.timestamp()), body)
    return HttpMessage(url, headers, body)


def sign(secret: str, time_s: int, body: bytes) -> str:
    """Return the signature of a body at a time (Unix seconds): ``t=…,v1=`` and HMAC-SHA256 of ``t.body`` as hex."""
    digest = hmac.new(secret.encode(), f"{time_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={time_s},v1={digest}"


def to_email(receiver: ReceiverRow, delivery: UUID, notification: Notification) -> EmailMessage:
    """Return the e-mail that tells a receiver; its Message-ID is the same in each attempt."""
    message = EmailMessage()
    state = "" if notification.status == "firing" else "Resolved: "
    message["Subject"] = f"[Coresteer {notification.severity}] {state}{' '.join(notification.rule.split())}"
    message["From"], message["To"] = receiver.sender, ", ".join(receiver.recipients)
    message["Message-ID"] = f"<{delivery}@coresteer>"
    message[DELIVERY_HEADER] = str(delivery)
    lines = [notification.sentence, ""]
    lines += [
        f"{alert.state}  {alert.name}  since {alert.since:%Y-%m-%d %H:%M:%S} UTC" for alert in notification.alerts
    ]
    message.set_content("\n".join([*lines, "", notification.url]).rstrip() + "\n")
    return message


def _alertmanager_alert(notification: Notification, now: datetime) -> dict[str, object]:
    """Return an alert of Alertmanager's API v2; its labels stay the same, so that it is resolved later.

    https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
    """
    ends_at = now if notification.status == "resolved" else now + _ALERTMANAGER_KEEPS
    labels = {"alertname": notification.rule, "severity": str(notification.severity), "source": "coresteer"}
    return {
        "labels": labels,
        "annotations": {"summary": notification.sentence},
        "startsAt": notification.since.isoformat(),
        "endsAt": ends_at.isoformat(),
        **({"generatorURL": notification.url} if notification.url else {}),
    }
