"""Tables of policies, their versions and rollouts, and of decisions and drifts."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, DateTime, ForeignKey, Identity, Text, false, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from coresteer.db import Base

# Any: JSON of Pydantic models and of the core's structs


class PolicyRow(Base):
    """A policy. version: the current one, apart from rollouts. Deleted ones stay because other rows refer to them.

    leave_pages: nodes that no longer enforce it leave memory where it has moved it. rolled_back_version: the last one
    that was taken out of force because of a violation or by a person's rollback; rolled_back_because: why, a sentence.
    pace: a RolloutPace, of the next rollout unless its request says otherwise.
    """

    __tablename__ = "policy"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    enabled: Mapped[bool]
    version: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_by: Mapped[str] = mapped_column(Text)
    deleted_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    leave_pages: Mapped[bool] = mapped_column(server_default=false(), default=False)
    rolled_back_version: Mapped[int | None]
    rolled_back_because: Mapped[str | None] = mapped_column(Text)
    pace: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'"), default=dict)


class PolicyVersionRow(Base):
    """One version of a policy; rows are never changed. body: a PolicyBody."""

    __tablename__ = "policy_version"

    policy_id: Mapped[int] = mapped_column(ForeignKey("policy.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[dict[str, Any]] = mapped_column(JSONB)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_by: Mapped[str] = mapped_column(Text)
    note: Mapped[str] = mapped_column(Text)


class RolloutRow(Base):
    """A rollout of a policy version. stage_at: when the present stage began. evidence: of each ended stage.

    begun_at: when a node of the present stage could first enforce the version; None before. stage_at is later if the
    stage began anew after a stop or a closed change window.
    violation: of its guardrails, in a sentence, by a node of a backend that does not lead.
    """

    __tablename__ = "rollout"

    id: Mapped[int] = mapped_column(primary_key=True)
    policy_id: Mapped[int] = mapped_column(ForeignKey("policy.id"))
    from_version: Mapped[int | None]
    to_version: Mapped[int]
    state: Mapped[str] = mapped_column(Text)
    stage: Mapped[int]
    stages: Mapped[list[list[int]]] = mapped_column(JSONB)
    sentence: Mapped[str] = mapped_column(Text)
    wait_s: Mapped[float]
    guardrails: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)
    stage_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    begun_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    started_by: Mapped[str] = mapped_column(Text)
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    evidence: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=text("'[]'"), default=list)
    violation: Mapped[str | None] = mapped_column(Text)


class StopRow(Base):
    """A stop of enforcement on the nodes that labels select, all nodes if it has none.

    restore: every setting gets its original value, else settings keep their values. nodes, settings: reached when it
    began; None in rows from before these columns. lifted_by: also None where a stop that restores took its place.
    """

    __tablename__ = "enforcement_stop"

    id: Mapped[int] = mapped_column(primary_key=True)
    labels: Mapped[dict[str, str]] = mapped_column(JSONB)
    restore: Mapped[bool]
    reason: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_by: Mapped[str] = mapped_column(Text)
    lifted_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    lifted_by: Mapped[str | None] = mapped_column(Text)
    nodes: Mapped[int | None]
    settings: Mapped[int | None]


class WindowRow(Base):
    """A change window of the nodes that labels select. weekdays: 0 is Monday. start_min, end_min: since midnight."""

    __tablename__ = "change_window"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    labels: Mapped[dict[str, str]] = mapped_column(JSONB)
    zone: Mapped[str] = mapped_column(Text)
    weekdays: Mapped[list[int]] = mapped_column(JSONB)
    start_min: Mapped[int]
    end_min: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_by: Mapped[str] = mapped_column(Text)


class ApprovalRow(Base):
    """An action on a policy that waits for the approval of another operator, or has waited; one at a time for a policy.

    request: its arguments. basis: what the policy was then; nodes: ids of those that it concerned; above: as in
    ApprovalThresholdRow then. reason: why it was rejected, or was not what was requested any more.
    """

    __tablename__ = "approval"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    policy_id: Mapped[int] = mapped_column(ForeignKey("policy.id"))
    action: Mapped[str] = mapped_column(Text)
    request: Mapped[dict[str, Any]] = mapped_column(JSONB)
    basis: Mapped[dict[str, Any]] = mapped_column(JSONB)
    nodes: Mapped[list[int]] = mapped_column(JSONB)
    above: Mapped[int]
    state: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text, default="")
    requested_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    requested_by: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    decided_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    decided_by: Mapped[str | None] = mapped_column(Text)


class ApprovalThresholdRow(Base):
    """The only row says above how many nodes actions wait for approval; 0, or no row, for never."""

    __tablename__ = "approval_threshold"

    id: Mapped[int] = mapped_column(primary_key=True)
    above: Mapped[int]


class StopNodeRow(Base):
    """A node of a stop. was_connected: when the stop began. obeyed_at: when its agent reported that it had obeyed.

    stuck: settings that the agent could not restore.
    """

    __tablename__ = "enforcement_stop_node"

    stop_id: Mapped[int] = mapped_column(ForeignKey("enforcement_stop.id"), primary_key=True)
    node_id: Mapped[int] = mapped_column(ForeignKey("node.id"), primary_key=True)
    was_connected: Mapped[bool]
    obeyed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    stuck: Mapped[int] = mapped_column(server_default=text("0"), default=0)


class DecisionRow(Base):
    """A decision of a policy on a node. policy_id is the agent's: the policy may belong to another database.

    holdout: a HoldoutReport, NULL for a policy that was never held out.
    """

    __tablename__ = "decision"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    node_id: Mapped[int] = mapped_column(ForeignKey("node.id"))
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    policy_id: Mapped[int]
    policy_name: Mapped[str] = mapped_column(Text)
    version: Mapped[int]
    mode: Mapped[str] = mapped_column(Text)
    evaluation: Mapped[dict[str, Any]] = mapped_column(JSONB)
    change_id: Mapped[UUID | None] = mapped_column(ForeignKey("change.id"))
    holdout: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))


class DriftRow(Base):
    """A setting that a policy had set and another program changed."""

    __tablename__ = "drift"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    node_id: Mapped[int] = mapped_column(ForeignKey("node.id"))
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    policy_id: Mapped[int]
    key: Mapped[str] = mapped_column(Text)
    expected: Mapped[str] = mapped_column(Text)
    found: Mapped[str] = mapped_column(Text)
    cause: Mapped[str | None] = mapped_column(Text)
    response: Mapped[str] = mapped_column(Text)
