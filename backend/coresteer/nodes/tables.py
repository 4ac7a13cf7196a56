"""Table of nodes."""

from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, BigInteger, DateTime, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from coresteer.db import Base

# Any: JSON as the agent reported it, read back through msgspec.convert


def effective_labels(
    hello: dict[str, Any] | None, token_labels: dict[str, str], labels: dict[str, str]
) -> dict[str, str]:
    """Return a node's labels: people's before those of its enrolment token, those before its agent's."""
    reported: dict[str, str] = (hello or {}).get("labels", {})
    return reported | token_labels | labels


class NodeRow(Base):
    """A node: name, key, labels and its agent's latest reports.

    labels: given by people; token_labels: by the token with which it enrolled. effective_labels has the precedence.

    key_hash: SHA-256 of its agent's key, NULL when revoked. key_used_at: when it was noted last that a key is in use.
    previous_key_hash: of the key before, valid until previous_key_until; where that is NULL, the agent has not used the
    new key yet, and both are valid. simulated: fixed at enrolment. hello, topology, inventory, learned (observations of
    its NICs): latest reports of its agent. cpus, packages, numa_nodes, drivers, netdevs (driver by name): extracts of
    these, for lists and selectors; changed_settings: as in Inventory. stream and acked_seq: everything up to that
    sample of that stream is stored, except rejected_samples of them.
    """

    __tablename__ = "node"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    simulated: Mapped[bool]
    labels: Mapped[dict[str, str]] = mapped_column(JSONB, server_default=text("'{}'"))
    token_labels: Mapped[dict[str, str]] = mapped_column(JSONB, server_default=text("'{}'"))
    key_hash: Mapped[bytes | None] = mapped_column(unique=True)
    key_created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=text("now()"))
    key_used_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    previous_key_hash: Mapped[bytes | None] = mapped_column(unique=True)
    previous_key_until: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=text("now()"))
    last_seen_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    hello: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    topology: Mapped[dict[str, Any] | None] = mapped_column(JSONB, deferred=True)
    inventory: Mapped[dict[str, Any] | None] = mapped_column(JSONB, deferred=True)
    learned: Mapped[dict[str, Any] | None] = mapped_column(JSONB, deferred=True)
    cpus: Mapped[int | None]
    packages: Mapped[int | None]
    numa_nodes: Mapped[int | None]
    drivers: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{}'"))
    netdevs: Mapped[dict[str, str | None]] = mapped_column(JSONB, server_default=text("'{}'"))
    changed_settings: Mapped[int | None]
    stream: Mapped[str | None] = mapped_column(Text)
    acked_seq: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    rejected_samples: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    clock_skew_ms: Mapped[float | None]
