"""Tables of alerts: rules, alerts, silences, receivers, deliveries."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, DateTime, ForeignKey, Identity, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from coresteer.db import Base


class AlertRuleRow(Base):
    """A rule. labels: of the nodes that it watches, with shell patterns; empty for every node.

    notified_at: when receivers were told last of a change; repeated_at: when an Alertmanager was told last.
    """

    __tablename__ = "alert_rule"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    signal: Mapped[str] = mapped_column(Text)
    labels: Mapped[dict[str, str]] = mapped_column(JSONB, default=dict)
    threshold: Mapped[float]
    clear: Mapped[float]
    for_s: Mapped[float]
    keep_s: Mapped[float]
    severity: Mapped[str] = mapped_column(Text)
    enabled: Mapped[bool]
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    updated_by: Mapped[str] = mapped_column(Text)
    notified_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    repeated_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class AlertRow(Base):
    """An alert of a node or a policy (subject: its id) or of the backend (subject 0). resolved_at: None while it fires.

    name, labels: of the subject when it fired. notified: what receivers were told: nothing, ``firing``, ``resolved``.
    """

    __tablename__ = "alert"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    rule_id: Mapped[int] = mapped_column(ForeignKey("alert_rule.id"))
    subject: Mapped[int]
    name: Mapped[str] = mapped_column(Text)
    labels: Mapped[dict[str, str]] = mapped_column(JSONB)
    value: Mapped[float | None]
    fired_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    resolved_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    notified: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))


class SilenceRow(Base):
    """A silence. labels: shell patterns of ``rule``, ``node`` and labels of nodes, all of which an alert matches."""

    __tablename__ = "alert_silence"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    labels: Mapped[dict[str, str]] = mapped_column(JSONB)
    comment: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_by: Mapped[str] = mapped_column(Text)
    ends_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class ReceiverRow(Base):
    """A receiver. secret: signing key, password or token, which the API never returns. severity: the least it gets."""

    __tablename__ = "alert_receiver"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    kind: Mapped[str] = mapped_column(Text)
    url: Mapped[str] = mapped_column(Text)
    secret: Mapped[str] = mapped_column(Text)
    username: Mapped[str] = mapped_column(Text)
    sender: Mapped[str] = mapped_column(Text)
    recipients: Mapped[list[str]] = mapped_column(JSONB)
    severity: Mapped[str] = mapped_column(Text)
    enabled: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_by: Mapped[str] = mapped_column(Text)


class DeliveryRow(Base):
    """A notification to a receiver. id: the same in each attempt. number: their order. outcome: of the last attempt."""

    __tablename__ = "alert_delivery"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    receiver_id: Mapped[int] = mapped_column(ForeignKey("alert_receiver.id"))
    rule_id: Mapped[int] = mapped_column(ForeignKey("alert_rule.id"))
    number: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    notification: Mapped[dict[str, Any]] = mapped_column(JSONB)  # Any: JSON of a Notification
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    state: Mapped[str] = mapped_column(Text)
    attempts: Mapped[int]
    due_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    outcome: Mapped[str] = mapped_column(Text)
