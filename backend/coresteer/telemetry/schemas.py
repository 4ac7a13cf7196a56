"""What the API says about history. Heatmap blocks are binary, see endpoints."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel


class Share(StrEnum):
    """Which part of a CPU's time a heatmap shows."""

    BUSY = "busy"
    USER = "user"
    SYSTEM = "system"
    IRQ = "irq"
    SOFTIRQ = "softirq"
    STEAL = "steal"
    IOWAIT = "iowait"


class Resolution(StrEnum):
    """Where an answer was read: samples as they came, or one value a minute or hour."""

    SAMPLE = "sample"
    MINUTE = "minute"
    HOUR = "hour"


class Metric(StrEnum):
    """Figures of a node over time, in base units a second."""

    RX_BYTES = "rx_bytes_per_s"
    TX_BYTES = "tx_bytes_per_s"
    RX_PACKETS = "rx_packets_per_s"
    TX_PACKETS = "tx_packets_per_s"
    INTERRUPTS = "interrupts_per_s"
    DROPPED = "dropped_per_s"
    SQUEEZED = "squeezed_per_s"
    RTT_P50 = "rtt_p50_us"
    RTT_P95 = "rtt_p95_us"
    RTT_P99 = "rtt_p99_us"
    RETRANSMITS = "retransmits_per_s"
    AGENT_CPU = "agent_cpu_percent"
    AGENT_RSS = "agent_rss_bytes"


class Series(BaseModel):
    """Lines over time. times_ms: the start of each step; a None value is a gap."""

    resolution: Resolution
    step_ms: float
    times_ms: list[float]
    values: dict[str, list[float | None]]


class MatrixRow(BaseModel):
    """One row of /proc/interrupts over a range: interrupts per second on each CPU that took any."""

    label: str
    name: str | None
    netdev: str | None
    per_s: dict[int, float]


class Matrix(BaseModel):
    """IRQ × CPU over a range, busiest rows first. covered_s: how much of the range has data."""

    from_time: datetime
    to_time: datetime
    covered_s: float
    rows: list[MatrixRow]
