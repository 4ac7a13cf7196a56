"""Table of declared application metrics."""

from datetime import datetime
from typing import Literal

from sqlalchemy import DateTime, Identity, Text
from sqlalchemy.orm import Mapped, mapped_column

from coresteer.db import Base


class ApplicationMetricRow(Base):
    """A declared application metric. It is never changed, and a deleted one stays, because evidence refers to it."""

    __tablename__ = "application_metric"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    label: Mapped[str] = mapped_column(Text)
    unit: Mapped[str] = mapped_column(Text)
    better: Mapped[Literal["more", "less", ""]] = mapped_column(Text)
    url: Mapped[str] = mapped_column(Text)
    query: Mapped[str] = mapped_column(Text)
    floor: Mapped[float | None]
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_by: Mapped[str] = mapped_column(Text)
    deleted_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
