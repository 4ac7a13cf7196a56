"""Tables of coscheduling studies, their runs and traces."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, ForeignKey, LargeBinary, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, deferred, mapped_column

from coresteer.db import Base

# Any: JSON of structs, read back through msgspec.convert


class TraceRow(Base):
    """A trace in Standard Workload Format. facts: TraceFacts. content: gzipped."""

    __tablename__ = "simulation_trace"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    facts: Mapped[dict[str, Any]] = mapped_column(JSONB)
    content: Mapped[bytes] = deferred(mapped_column(LargeBinary))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_by: Mapped[str] = mapped_column(Text)


class SimulationRow(Base):
    """A study. spec: StudySpec. trace: TraceFacts as they were when it started, None for generated jobs.

    replica_id: of the backend that runs it.
    """

    __tablename__ = "simulation"

    id: Mapped[int] = mapped_column(primary_key=True)
    spec: Mapped[dict[str, Any]] = mapped_column(JSONB)
    trace: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    runs_planned: Mapped[int]
    state: Mapped[str] = mapped_column(Text)
    sentence: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_by: Mapped[str] = mapped_column(Text)
    replica_id: Mapped[int | None] = mapped_column(BigInteger)
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class SimulationRunRow(Base):
    """A finished run of a study; rows are never changed. run: Run."""

    __tablename__ = "simulation_run"

    simulation_id: Mapped[int] = mapped_column(ForeignKey("simulation.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    run: Mapped[dict[str, Any]] = mapped_column(JSONB)
