"""Table of links to reports."""

from datetime import datetime

from sqlalchemy import DateTime, ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from coresteer.db import Base


class ReportShareRow(Base):
    """A link to an experiment's report. token_hash: SHA-256 of the token in the link."""

    __tablename__ = "report_share"

    token_hash: Mapped[bytes] = mapped_column(primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiment.id"))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_by: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
