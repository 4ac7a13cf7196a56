"""Tables of users, their sessions, API tokens and one-time tokens. Of every secret only a hash is stored."""

from datetime import datetime

from sqlalchemy import Boolean, DateTime, ForeignKey, Integer, LargeBinary, Text, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from coresteer.db import Base


class UserRow(Base):
    """A user. scrypt_n, scrypt_r, scrypt_p: the parameters of password_hash.

    role_labels: patterns of the labels of the nodes of which the user is operator; empty for every node.

    issuer, subject: who it is at an issuer, NULL of a local user. confirmed_at: when the issuer said so last. Such a
    user has no password: password_hash is empty, which no password has.
    """

    __tablename__ = "app_user"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    username: Mapped[str] = mapped_column(Text)
    role: Mapped[str] = mapped_column(Text)
    role_labels: Mapped[dict[str, str]] = mapped_column(JSONB, server_default=text("'{}'"), default=dict)
    password_hash: Mapped[bytes] = mapped_column(LargeBinary)
    password_salt: Mapped[bytes] = mapped_column(LargeBinary)
    scrypt_n: Mapped[int] = mapped_column(Integer)
    scrypt_r: Mapped[int] = mapped_column(Integer)
    scrypt_p: Mapped[int] = mapped_column(Integer)
    disabled: Mapped[bool] = mapped_column(Boolean, server_default="false", default=False)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    last_login_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    issuer: Mapped[str | None] = mapped_column(Text)
    subject: Mapped[str | None] = mapped_column(Text)
    confirmed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class SessionRow(Base):
    """A signed-in browser session. address, browser: where it was signed in and its User-Agent, for its user.

    Of a session with an issuer, issuer_session: the issuer's id of it. issuer_ends_at: until when its word holds.
    renew_at: when to ask again, NULL where it cannot be asked. issuer_tokens: refresh and ID token, encrypted with the
    text of the cookie, which only the browser has.
    """

    __tablename__ = "session"

    token_hash: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("app_user.id"))
    csrf_token: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    address: Mapped[str | None] = mapped_column(Text)
    browser: Mapped[str | None] = mapped_column(Text)
    issuer_session: Mapped[str | None] = mapped_column(Text)
    issuer_ends_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    renew_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    issuer_tokens: Mapped[bytes | None] = mapped_column(LargeBinary)
    user: Mapped[UserRow] = relationship(lazy="joined", innerjoin=True)


class ApiTokenRow(Base):
    """An API token of a script; it never has more rights than its creator has at that moment.

    role_labels: as in UserRow, in addition to those of its creator.
    """

    __tablename__ = "api_token"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    token_hash: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    name: Mapped[str] = mapped_column(Text)
    role: Mapped[str] = mapped_column(Text)
    role_labels: Mapped[dict[str, str]] = mapped_column(JSONB, server_default=text("'{}'"), default=dict)
    user_id: Mapped[int] = mapped_column(ForeignKey("app_user.id"))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    last_used_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    user: Mapped[UserRow] = relationship(lazy="joined", innerjoin=True)


class OneTimeTokenRow(Base):
    """The token of a set-up link, or an enrolment token of the previous version; its row is deleted when it is used.

    simulated, node_id: as in EnrolmentTokenRow.
    """

    __tablename__ = "one_time_token"

    token_hash: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    purpose: Mapped[str] = mapped_column(Text)
    simulated: Mapped[bool] = mapped_column(Boolean, default=False)
    node_id: Mapped[int | None] = mapped_column(Integer)
    created_by: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class EnrolmentTokenRow(Base):
    """A token with which agents enrol; its row is kept until it expires, or is revoked.

    simulated: for simulated nodes, any number per use. node_id: of the only node that it readmits, NULL for one that
    adds nodes. labels: that its nodes get. name_pattern: a shell pattern that their names must match, NULL for any.
    rejoin_until: until when nodes that exist may enrol again, NULL for never.
    """

    __tablename__ = "enrolment_token"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    token_hash: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    created_by: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    simulated: Mapped[bool] = mapped_column(Boolean, default=False)
    node_id: Mapped[int | None] = mapped_column(Integer)
    max_uses: Mapped[int] = mapped_column(Integer, default=1)
    uses: Mapped[int] = mapped_column(Integer, default=0)
    last_used_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    labels: Mapped[dict[str, str]] = mapped_column(JSONB, default=dict)
    name_pattern: Mapped[str | None] = mapped_column(Text)
    rejoin_until: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
