"""Tables of changes and of their steps."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, DateTime, ForeignKey, Identity, Text, false
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from coresteer.db import Base
from coresteer.nodes.tables import NodeRow

# Any: JSON of the core's structs, read back through msgspec.convert


class ChangeStepRow(Base):
    """One step in the history of a change; only the last one of many is changed, by reports of the same state."""

    __tablename__ = "change_step"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    change_id: Mapped[UUID] = mapped_column(ForeignKey("change.id"))
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    state: Mapped[str] = mapped_column(Text)
    sentence: Mapped[str] = mapped_column(Text)


class EarlyReportRow(Base):
    """An agent's report about a change that is not stored yet: its decision may arrive later."""

    __tablename__ = "early_report"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    node_id: Mapped[int] = mapped_column(ForeignKey("node.id"))
    change_id: Mapped[UUID]
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    message: Mapped[dict[str, Any]] = mapped_column(JSONB)


class ChangeRow(Base):
    """A change of a node. plan, guardrails, results: coresteer_core's structs. Times are the backend's clock.

    observation: coresteer.changes.observation.Observation; None until the 2 minutes after it are over.
    undoes: the change whose undo a person requested by this one. restores: it undoes every earlier change of its
    settings: of its policy, or of anyone if it is a person's.
    """

    __tablename__ = "change"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    node_id: Mapped[int] = mapped_column(ForeignKey("node.id"))
    plan: Mapped[dict[str, Any]] = mapped_column(JSONB)
    sentence: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(Text)
    ended_by: Mapped[str | None] = mapped_column(Text)
    created_by: Mapped[str] = mapped_column(Text)
    policy_id: Mapped[int | None]
    experiment_id: Mapped[int | None]
    undoes: Mapped[UUID | None]
    restores: Mapped[bool] = mapped_column(server_default=false(), default=False)
    reason: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    applied_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    deadline_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    confirm_timeout_s: Mapped[float]
    guardrails: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)
    results: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)
    observation: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))

    node: Mapped[NodeRow] = relationship(lazy="joined", innerjoin=True)
    steps: Mapped[list[ChangeStepRow]] = relationship(lazy="selectin", order_by=ChangeStepRow.id)
