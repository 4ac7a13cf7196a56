"""Request and response bodies of the fleet table and of a node's page."""

from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, Field

from coresteer.inputs import RequestBody, RowId
from coresteer.nodes.schemas import LabelName, LabelValue
from coresteer.presence.schemas import Figures, FleetMetricName, Health
from coresteer.structs import AsStruct
from coresteer.telemetry.schemas import Resolution
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.tasks import Task
from coresteer_core.node.topology import Topology

MAX_ROWS = 500
"""Nodes of one answer; as many cells has the map of the fleet page."""
MAX_HOT_SPOTS = 15
SORTS = MappingProxyType(
    {
        "busiest": "busiest_cpu_percent",
        "softirq": "softirq_cpu_percent",
        "rx": "rx_bytes_per_s",
        "tx": "tx_bytes_per_s",
        "interrupts": "interrupts_per_s",
        "dropped": "softnet_dropped_per_s",
        "squeezed": "squeezed_per_s",
        "rtt": "rtt_p99_us",
        "wrong-node": "wrong_node_percent",
    }
)
"""Figures by which nodes are sorted, beside name and health."""
GroupBy = Annotated[
    str, Field(max_length=80, pattern=r"^(label:[^\x00]+|kernel|driver)$", description="label:NAME, kernel or driver.")
]


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


class OutsideWindows(BaseModel):
    """A node is outside its change windows now: policies write nothing there, except in an experiment.

    opens_at: when they may write again; None if not within 8 days.
    """

    opens_at: datetime | None


class Node(NodeSummary):
    """Everything about one node except its history.

    capabilities: of the agent's process, None if it reports none. lacks: what the backend knows and the agent, being
    older, does not, as names for a sentence; None until the agent has connected. outside_windows: None while policies
    may write.
    """

    topology: Annotated[Topology, AsStruct()] | None
    inventory: Annotated[Inventory, AsStruct()] | None
    tasks: list[Annotated[Task, AsStruct()]]
    interval_s: float | None
    capabilities: list[str] | None
    lacks: list[str] | None = None
    outside_windows: OutsideWindows | None = None


class WorstNode(BaseModel):
    """The node with the largest value of a figure."""

    id: int
    name: str
    value: float


class Totals(BaseModel):
    """Figures of several nodes together; None where no node's is known.

    health: numbers of nodes. with_data: nodes with figures. hot: nodes whose hottest CPU spends SOFTIRQ_BOUND_PERCENT
    or more in softirq. sums: of rates; worst: the largest of other figures.
    """

    nodes: int
    health: dict[Health, int]
    open_changes: int
    with_data: int
    hot: int | None
    sums: dict[FleetMetricName, float | None]
    worst: dict[FleetMetricName, WorstNode | None]


class Compared(BaseModel):
    """Figures of a time before; sums and now_sums are of the nodes of which both are known."""

    now_sums: dict[FleetMetricName, float | None]
    sums: dict[FleetMetricName, float | None]
    hot: int | None
    worst: dict[FleetMetricName, WorstNode | None]


class Group(BaseModel):
    """The nodes of a group that match."""

    name: str
    totals: Totals


class FleetQuery(RequestBody):
    """Which nodes are asked for, and in which order.

    q: a filter line, such as ``web label:role=db softirq > 60``. group: label:NAME, kernel or driver; within: only the
    nodes of the group so named. sort: a name of SORTS, name or health; descending after -. id, name: only these nodes.
    hot_spots: how many of these nodes are asked for.

    at: a past minute or hour, whose figures are asked for instead of the present ones; compared_h: with how many hours
    before they are compared.
    """

    q: Annotated[str, Field(max_length=2000)] = ""
    group: GroupBy | None = None
    within: Annotated[str | None, Field(max_length=1000)] = None
    sort: Annotated[str, Field(pattern=f"^-?({'|'.join(['name', 'health', *SORTS])})$")] = "name"
    id: Annotated[list[RowId], Field(max_length=MAX_ROWS)] = Field(default_factory=list)
    name: Annotated[list[str], Field(max_length=MAX_ROWS)] = Field(default_factory=list)
    offset: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    limit: Annotated[int, Field(ge=0, le=MAX_ROWS)] = 50
    hot_spots: Annotated[int, Field(ge=0, le=MAX_HOT_SPOTS)] = 0
    at: AwareDatetime | None = None
    resolution: Literal[Resolution.MINUTE, Resolution.HOUR] = Resolution.MINUTE
    compared_h: Annotated[int | None, Field(ge=1, le=168)] = None


class FleetAnswer(BaseModel):
    """A page of the nodes that match a query, and the figures of all that match.

    nodes, cpus, simulated: of the whole fleet. problems: of the filter line. groups: in the order of their names, none
    where one group is asked for; other_groups: how many more there are. rows: the page; before: their figures at the
    time that they are compared with, in their order.
    """

    nodes: int
    cpus: int
    simulated: int
    problems: list[str]
    totals: Totals
    compared: Compared | None
    groups: list[Group]
    other_groups: int
    rows: list[NodeSummary]
    before: list[Figures | None] | None
    hot_spots: list[NodeSummary]


class Labels(BaseModel):
    """Labels that nodes have. names: those of most nodes; common: as NAME=VALUE, those of most nodes first."""

    names: list[str]
    common: list[str]


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


class Outliers(BaseModel):
    """The nodes that differ most. more: how many others there are."""

    outliers: "list[Outlier]"
    more: int


class Outlier(BaseModel):
    """A node that differs from the rest of its group. group: empty if the fleet is one group."""

    node_id: int
    node_name: str
    group: str
    differences: list[TraitDifference]


class NodeUpdate(RequestBody):
    """Labels of a node given by people; they replace all former ones. Those of its agent may be among them."""

    labels: dict[LabelName, LabelValue] = Field(max_length=128)
