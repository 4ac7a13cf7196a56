"""Response bodies about the present state of nodes."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel


class Health(StrEnum):
    """live: a sample in the last three intervals; stale: connected but silent; away: not connected; new: never seen."""

    LIVE = "live"
    STALE = "stale"
    AWAY = "away"
    NEW = "new"


class Figures(BaseModel):
    """A node's last interval in a few numbers; None where unknown."""

    time: datetime
    busiest_cpu: int | None
    busiest_percent: float | None
    softirq_cpu: int | None
    softirq_percent: float | None
    rx_bytes_per_s: float | None
    tx_bytes_per_s: float | None
    rx_packets_per_s: float | None
    interrupts_per_s: float | None
    dropped_per_s: float | None
    squeezed_per_s: float | None
    rtt_p99_us: int | None
