"""Request and response bodies of the fleet table and of a node's page."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from coresteer.inputs import RequestBody
from coresteer.nodes.schemas import LabelName, LabelValue
from coresteer.presence.schemas import Figures, FleetMetricName, Health
from coresteer.structs import AsStruct
from coresteer.telemetry.schemas import Resolution
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.tasks import Task
from coresteer_core.node.topology import Topology


class NodeSummary(BaseModel):
    """A row of the fleet table.

    clock_skew_ms: how far the times of the node's samples are ahead of the backend's clock. clock_correction_ms: what
    the backend adds to the node's times, 0 unless its clock is off by more than 24 hours. rejected_samples: of the
    running agent, rejected as invalid or above the node's quota.
    """

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
    clock_correction_ms: int
    rejected_samples: int
    figures: Figures | None
    open_changes: int


class Node(NodeSummary):
    """Everything about one node except its history.

    capabilities: of the agent's process, None if it reports none. lacks: what the backend knows and the agent, being
    older, does not, as names for a sentence; None until the agent has connected.
    """

    topology: Annotated[Topology, AsStruct()] | None
    inventory: Annotated[Inventory, AsStruct()] | None
    tasks: list[Annotated[Task, AsStruct()]]
    interval_s: float | None
    capabilities: list[str] | None
    lacks: list[str] | None = None


class PastFigures(BaseModel):
    """Figures of nodes over one past minute or hour: means, and of round-trip times the maximum; None where unknown.

    node_ids: those of which anything is stored; the other lists are in their order. after: the id after which the next
    page begins, None on the last one.
    """

    from_time: datetime
    to_time: datetime
    node_ids: list[int]
    busiest_cpu: list[int | None]
    softirq_cpu: list[int | None]
    metrics: dict[FleetMetricName, list[float | None]]
    after: int | None


class FleetSeries(BaseModel):
    """The whole fleet over time. Each point is one minute or hour, step_ms apart; what is between them is not read.

    times_ms: when each one begins. nodes: of how many anything is stored. values: rates summed over the nodes, others
    the largest of a node; None where no node's is known.
    """

    resolution: Resolution
    step_ms: float
    times_ms: list[int]
    nodes: list[int]
    values: dict[FleetMetricName, list[float | None]]


class TraitDifference(BaseModel):
    """A trait in which a node differs from its group. usual: the value of usual_nodes of the nodes that report it."""

    trait: str
    value: str
    usual: str
    usual_nodes: int
    nodes: int


class Outlier(BaseModel):
    """A node that differs from the rest of its group. group: empty if the fleet is one group."""

    node_id: int
    node_name: str
    group: str
    differences: list[TraitDifference]


class NodeUpdate(RequestBody):
    """Labels of a node given by people; they replace all former ones. Those of its agent may be among them."""

    labels: dict[LabelName, LabelValue] = Field(max_length=128)
