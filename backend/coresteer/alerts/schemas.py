"""Request and response bodies of alerts."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, Field, model_validator

from coresteer.guarded_http import is_forbidden
from coresteer.inputs import STORABLE, RequestBody, TextPattern, validation_error
from coresteer.policies.schemas import Glob
from coresteer_core.alerts.signals import SIGNALS, Of

Name = Annotated[str, Field(min_length=1, max_length=100), STORABLE]
Comment = Annotated[str, Field(min_length=1, max_length=500), STORABLE]
LabelGlobs = Annotated[dict[Annotated[str, Field(min_length=1, max_length=63), STORABLE], Glob], Field(max_length=32)]
_Finite = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
_LINE = TextPattern("[^\r\n]*", "The text must be one line.")
_Address = Annotated[str, Field(min_length=3, max_length=254), STORABLE, TextPattern(
    r"[^\s@,<>]+@[^\s@,<>]+", "Write an e-mail address, such as ops@example.org."
)]  # fmt: skip


class Severity(StrEnum):
    """How urgent an alert is."""

    WARNING = "warning"
    CRITICAL = "critical"


class AlertRuleBody(RequestBody):
    """A rule: an alert fires when the signal has been ≥ threshold for for_s seconds.

    It is resolved when the signal has been < clear for keep_s seconds. labels: of the nodes that it watches, with shell
    patterns; empty for every node.
    """

    name: Name
    signal: str = Field(json_schema_extra={"enum": list(SIGNALS)})
    labels: LabelGlobs = Field(default={})
    threshold: _Finite
    clear: _Finite
    for_s: _Seconds = 0.0
    keep_s: _Seconds = 0.0
    severity: Severity = Severity.WARNING
    enabled: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.signal not in SIGNALS:
            raise validation_error(f"There is no such signal; choose one of {', '.join(SIGNALS)}.", path=".signal")
        if self.clear > self.threshold:
            raise validation_error("clear must not be above threshold, else the alert would flap.", path=".clear")
        if self.labels and SIGNALS[self.signal].of is not Of.NODE:
            raise validation_error("Only signals of nodes have labels.", path=".labels")
        return self


class AlertRule(BaseModel):
    """A rule with the label, the unit and the meaning of its signal. firing: number of alerts that fire."""

    id: int
    name: str
    signal: str
    labels: dict[str, str]
    threshold: float
    clear: float
    for_s: float
    keep_s: float
    severity: Severity
    enabled: bool
    updated_at: datetime
    updated_by: str
    label: str
    unit: str
    meaning: str
    firing: int


class SignalInfo(BaseModel):
    """A signal that rules may watch."""

    name: str
    label: str
    unit: str
    of: Of
    meaning: str


class Alert(BaseModel):
    """An alert. resolved_at: None while it fires. silence: the id of a silence in force that matches it.

    node_id, policy_id: what it is about, None for the backend. value: the latest known, in the unit.
    """

    id: int
    rule_id: int
    rule: str
    severity: Severity
    label: str
    unit: str
    threshold: float
    node_id: int | None
    policy_id: int | None
    name: str
    value: float | None
    fired_at: datetime
    resolved_at: datetime | None
    silence: int | None


class AlertList(BaseModel):
    """Alerts, those that fire first, the newest first. firing: how many fire in total, silenced ones included."""

    firing: int
    alerts: list[Alert]


@dataclass(frozen=True)
class AlertFilter:
    """Query parameters that select alerts; None selects any."""

    rule_id: Annotated[int | None, Field(ge=1, le=2**31 - 1)] = None
    firing: bool | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 200


class SilenceBody(RequestBody):
    """A silence until ends_at. labels: patterns of ``rule``, ``node`` (names) or labels of nodes; all must match."""

    labels: Annotated[LabelGlobs, Field(min_length=1)]
    ends_at: AwareDatetime
    comment: Comment


class Silence(BaseModel):
    """A silence. alerts: how many that fire match it now."""

    id: int
    labels: dict[str, str]
    ends_at: datetime
    comment: str
    created_at: datetime
    created_by: str
    alerts: int


class ReceiverKind(StrEnum):
    """How a receiver is told: JSON with a signature, Slack's JSON, e-mail by SMTP, or Alertmanager's API v2."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    EMAIL = "email"
    ALERTMANAGER = "alertmanager"


_SCHEMES = {ReceiverKind.EMAIL: ("smtp", "smtps")}
_EXAMPLES = {
    ReceiverKind.EMAIL: "smtp://mail.example:587 (STARTTLS) or smtps://mail.example:465",
    ReceiverKind.ALERTMANAGER: "http://alertmanager.example:9093",
}


class ReceiverBody(RequestBody):
    """A receiver. secret: a webhook's signing key, SMTP's password, or Alertmanager's bearer token; never returned.

    It is None to keep the present one. Slack's address is a secret by itself: only its host is returned, and it is kept
    if that is sent back. username: of SMTP. sender, recipients: of e-mail. severity: the least that it is told of.
    """

    name: Name
    kind: ReceiverKind
    url: Annotated[str, Field(min_length=1, max_length=1000), STORABLE]
    secret: Annotated[str, Field(max_length=500), STORABLE, _LINE] | None = None
    username: Annotated[str, Field(max_length=200), STORABLE, _LINE] = ""
    sender: _Address | None = None
    recipients: Annotated[list[_Address], Field(max_length=20)] = Field(default=[])
    severity: Severity = Severity.WARNING
    enabled: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        example = _EXAMPLES.get(self.kind, "https://hooks.example/coresteer")
        sentence = f"Write an address such as {example}."
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError:
            raise validation_error(sentence, path=".url") from None
        printable = self.url.isascii() and self.url.isprintable() and " " not in self.url
        if not printable or parts.scheme not in _SCHEMES.get(self.kind, ("http", "https")) or not parts.hostname:
            raise validation_error(sentence, path=".url")
        if port == 0 or "@" in parts.netloc or parts.fragment:
            raise validation_error("The address must not contain a user name, a password or a fragment.", path=".url")
        if is_forbidden(parts.hostname):
            raise validation_error(
                "Link-local addresses and those of a cloud's metadata service are not contacted.", path=".url"
            )
        if self.kind is ReceiverKind.EMAIL and (self.sender is None or not self.recipients):
            raise validation_error("E-mail needs a sender and at least one recipient.", path=".recipients")
        return self


class Receiver(BaseModel):
    """A receiver without its secret. has_secret: whether one is stored. url: of Slack, only the host's."""

    id: int
    name: str
    kind: ReceiverKind
    url: str
    has_secret: bool
    username: str
    sender: str | None
    recipients: list[str]
    severity: Severity
    enabled: bool
    created_at: datetime
    created_by: str


class ReceiverTest(BaseModel):
    """Outcome of a test of a receiver, in a sentence."""

    delivered: bool
    outcome: str


class Delivery(BaseModel):
    """A notification to a receiver. state: waiting, delivered or failed; outcome: of its last attempt."""

    id: UUID
    receiver_id: int
    rule: str
    sentence: str
    created_at: datetime
    state: str
    attempts: int
    due_at: datetime
    outcome: str


class NotifiedAlert(BaseModel):
    """An alert in a notification."""

    name: str
    node_id: int | None
    state: str
    value: float | None
    since: datetime


class Notification(BaseModel):
    """What receivers are told of a rule: all its alerts in one. alerts: the first 10 that are new or resolved.

    status: ``firing`` while any alert of the rule fires, else ``resolved``. firing: how many fire now; new, resolved:
    since the notification before. since: when the first of them fired. url: of the page, empty without a public URL.
    """

    status: str
    rule: str
    rule_id: int
    severity: Severity
    signal: str
    unit: str
    threshold: float
    firing: int
    new: int
    resolved: int
    since: datetime
    sentence: str
    alerts: list[NotifiedAlert]
    url: str
