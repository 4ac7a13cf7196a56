"""What the API says about nodes."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, Field

from coresteer.inputs import KEPT, Body, Spelt
from coresteer.structs import AsStruct
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.tasks import Task
from coresteer_core.node.topology import Topology


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


class NodeSummary(BaseModel):
    """A line of the fleet table. clock_skew_ms: how far the node's clock is ahead of the backend's."""

    id: int
    name: str
    simulated: bool
    health: Health
    mode: str | None
    observe_reason: str | None
    agent_version: str | None
    kernel: str | None
    labels: dict[str, str]
    cpus: int | None
    packages: int | None
    numa_nodes: int | None
    drivers: list[str]
    last_seen_at: datetime | None
    clock_skew_ms: float | None
    figures: Figures | None
    open_changes: int


class Node(NodeSummary):
    """Everything about one node but its history."""

    topology: Annotated[Topology, AsStruct()] | None
    inventory: Annotated[Inventory, AsStruct()] | None
    tasks: list[Annotated[Task, AsStruct()]]
    interval_s: float | None


class NodeUpdate(Body):
    """Labels given by people; they replace the ones there are."""

    labels: dict[
        Annotated[
            str,
            Field(min_length=1, max_length=63),
            Spelt(
                r"[a-z0-9][a-z0-9._/-]*",
                "A label's name is made of small letters, digits and . _ / -, and begins with a letter or digit.",
            ),
        ],
        Annotated[str, Field(max_length=63), KEPT],
    ] = Field(max_length=32)
