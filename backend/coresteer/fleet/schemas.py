"""Request and response bodies of the fleet table and of a node's page."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from coresteer.inputs import STORABLE, RequestBody, TextPattern
from coresteer.presence.schemas import Figures, Health
from coresteer.structs import AsStruct
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.tasks import Task
from coresteer_core.node.topology import Topology


class NodeSummary(BaseModel):
    """A row of the fleet table. clock_skew_ms: how far the node's clock is ahead of the backend's."""

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
    """Everything about one node except its history."""

    topology: Annotated[Topology, AsStruct()] | None
    inventory: Annotated[Inventory, AsStruct()] | None
    tasks: list[Annotated[Task, AsStruct()]]
    interval_s: float | None


class NodeUpdate(RequestBody):
    """Labels of a node given by people; they replace all former ones."""

    labels: dict[
        Annotated[
            str,
            Field(min_length=1, max_length=63),
            TextPattern(
                r"[a-z0-9][a-z0-9._/-]*",
                "A label's name is made of small letters, digits and . _ / -, and begins with a letter or digit.",
            ),
        ],
        Annotated[str, Field(max_length=63), STORABLE],
    ] = Field(max_length=32)
