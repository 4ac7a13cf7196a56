"""Table of the audit log; a trigger of the first migration forbids changing or removing its rows."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Identity, Integer, Text, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from coresteer.db import Base


class AuditRow(Base):
    """One entry of the audit log."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.clock_timestamp())
    actor: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(Text)
    target: Mapped[str] = mapped_column(Text)
    node_id: Mapped[int | None] = mapped_column(Integer)
    result: Mapped[str] = mapped_column(Text)
    detail: Mapped[dict[str, Any]] = mapped_column(JSONB)  # Any: each action has its own fields
