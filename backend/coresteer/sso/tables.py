"""Table of the logout tokens of the issuer."""

from datetime import datetime

from sqlalchemy import DateTime, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from coresteer.db import Base


class LogoutTokenRow(Base):
    """A logout token that was used, by the hash of its id; kept until it has expired, so that it is not used again."""

    __tablename__ = "logout_token"

    id_hash: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
