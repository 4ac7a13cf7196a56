"""Request parameters and responses of the history API. Heatmap blocks are binary, see endpoints."""

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import BaseModel

from coresteer_core.metrics import HISTORY_METRICS


class Share(StrEnum):
    """The part of a CPU's time that a heat map shows."""

    BUSY = "busy"
    USER = "user"
    SYSTEM = "system"
    IRQ = "irq"
    SOFTIRQ = "softirq"
    STEAL = "steal"
    IOWAIT = "iowait"


class Resolution(StrEnum):
    """Resolution of the data read: samples, or one value per minute or hour."""

    SAMPLE = "sample"
    MINUTE = "minute"
    HOUR = "hour"


if TYPE_CHECKING:
    MetricName: TypeAlias = str
else:
    MetricName = Literal[tuple(HISTORY_METRICS)]  # which a type checker cannot follow
"""The name of a metric of the history API."""


class SampleSpan(BaseModel):
    """From when until when there are samples of a node, perhaps with gaps; None without any."""

    from_time: datetime | None
    to_time: datetime | None


class Series(BaseModel):
    """Values of metrics over time. times_ms: the start of each step; a None value is a gap."""

    resolution: Resolution
    step_ms: float
    times_ms: list[float]
    values: dict[str, list[float | None]]


class MatrixRow(BaseModel):
    """One row of /proc/interrupts over a range: interrupts per second on each CPU that handled any."""

    label: str
    name: str | None
    netdev: str | None
    per_s: dict[int, float]


class Matrix(BaseModel):
    """Matrix IRQ × CPU over a time range, busiest rows first. covered_s: seconds of the range with data."""

    from_time: datetime
    to_time: datetime
    covered_s: float
    rows: list[MatrixRow]
