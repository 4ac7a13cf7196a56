"""Response bodies about the present state of nodes."""

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import BaseModel

from coresteer_core.metrics import FLEET_METRICS


class Health(StrEnum):
    """Health of a node.

    live: no sample or summary is overdue; stale: connected, one is overdue; away: disconnected; new: never connected.
    """

    LIVE = "live"
    STALE = "stale"
    AWAY = "away"
    NEW = "new"


if TYPE_CHECKING:
    FleetMetricName: TypeAlias = str
else:
    FleetMetricName = Literal[tuple(FLEET_METRICS)]  # which a type checker cannot follow


class Figures(BaseModel):
    """Fleet figures of a node's latest interval; None where unknown.

    metrics: the values of coresteer_core.metrics.FLEET_METRICS. busiest_cpu, softirq_cpu: the CPUs of
    busiest_cpu_percent and softirq_cpu_percent.
    """

    time: datetime
    busiest_cpu: int | None
    softirq_cpu: int | None
    metrics: dict[FleetMetricName, float | None]
