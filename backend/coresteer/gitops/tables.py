"""Table of resources that are managed by files."""

from sqlalchemy import Text
from sqlalchemy.orm import Mapped, mapped_column

from coresteer.db import Base


class ManagedResourceRow(Base):
    """A resource that was applied from a set of files. Ids are never used again, so rows of deleted ones do no harm."""

    __tablename__ = "managed_resource"

    kind: Mapped[str] = mapped_column(Text, primary_key=True)
    resource_id: Mapped[int] = mapped_column(primary_key=True)
    managed_by: Mapped[str] = mapped_column(Text)
