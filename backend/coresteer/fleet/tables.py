"""Table of saved views of the fleet page."""

from datetime import datetime

from sqlalchemy import DateTime, Identity, Text
from sqlalchemy.orm import Mapped, mapped_column

from coresteer.db import Base


class FleetViewRow(Base):
    """A saved view. search: the page's search parameters, which only the front end reads."""

    __tablename__ = "fleet_view"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    search: Mapped[str] = mapped_column(Text)
    shared: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_by: Mapped[str] = mapped_column(Text)
