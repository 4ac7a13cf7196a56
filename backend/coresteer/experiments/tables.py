"""Tables of experiments and of their runs."""

from datetime import datetime
from typing import Any

from sqlalchemy import DateTime, ForeignKey, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from coresteer.db import Base
from coresteer.nodes.tables import NodeRow

# Any: JSON of structs, read back through msgspec.convert, and of facts that reports print as they are


class ExperimentRow(Base):
    """An experiment with its spec, state and settings before and after.

    spec: a Spec. planned_s: planned duration. ending_state: the state in which it will end once its settings are
    restored; sentence then has the reason. activity: the present step in a sentence. settings_before, settings_after:
    values by key of the settings that it compares, None until they are read.
    """

    __tablename__ = "experiment"

    id: Mapped[int] = mapped_column(primary_key=True)
    node_id: Mapped[int] = mapped_column(ForeignKey("node.id"))
    peer_node_id: Mapped[int | None] = mapped_column(ForeignKey("node.id"))
    spec: Mapped[dict[str, Any]] = mapped_column(JSONB)
    seed: Mapped[int]
    runs_planned: Mapped[int]
    planned_s: Mapped[float]
    state: Mapped[str] = mapped_column(Text)
    ending_state: Mapped[str | None] = mapped_column(Text)
    sentence: Mapped[str] = mapped_column(Text)
    activity: Mapped[str] = mapped_column(Text)
    machine: Mapped[dict[str, Any]] = mapped_column(JSONB)
    settings_before: Mapped[dict[str, str] | None] = mapped_column(JSONB(none_as_null=True))
    settings_after: Mapped[dict[str, str] | None] = mapped_column(JSONB(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_by: Mapped[str] = mapped_column(Text)
    started_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))

    node: Mapped[NodeRow] = relationship(foreign_keys=node_id, lazy="joined", innerjoin=True)


class ExperimentRunRow(Base):
    """One run of an experiment; rows are never changed.

    run: a RecordedRun; discarded: its reason, so that SQL can count runs.
    """

    __tablename__ = "experiment_run"

    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiment.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    recorded_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    run: Mapped[dict[str, Any]] = mapped_column(JSONB)
    discarded: Mapped[str | None] = mapped_column(Text)
