"""Response bodies about the memory of a node's NUMA nodes and processes."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel

from coresteer.structs import AsStruct
from coresteer_core.node.numa import NodeMemory, NumaTask
from coresteer_core.node.numa_traffic import NodeTraffic


class NumaTaskEntry(BaseModel):
    """A process with what its place costs. remote_share: share of its memory on other nodes than its CPU time.

    run_time: predicted, 1.0 with all memory local and no contention. contention: the delay that others' memory traffic
    adds, as a share of that time. None where unknown.
    """

    task: Annotated[NumaTask, AsStruct()]
    remote_share: float | None
    run_time: float | None
    contention: float | None


class NodeNuma(BaseModel):
    """Memory and processes by NUMA node. at: None until the agent has reported them.

    traffic: for every pair of nodes. tasks: the largest remote memory first. bandwidth_unknown: why the contention of
    processes is unknown, traffic_unknown: why bytes per second of nodes are; None where they are known.
    """

    at: datetime | None
    nodes: list[Annotated[NodeMemory, AsStruct()]]
    tasks: list[NumaTaskEntry]
    traffic: list[Annotated[NodeTraffic, AsStruct()]]
    bandwidth_unknown: str | None
    traffic_unknown: str | None


class NumaMoveOption(BaseModel):
    """A move of a process to a NUMA node, to the CPUs named. with_pages: its memory moves, too.

    speed_up: predicted factor. saved_cpus: CPU time that all processes together save, in CPUs. moved_bytes, cost_s: of
    its pages.
    """

    node: int
    with_pages: bool
    cpus: str
    speed_up: float
    saved_cpus: float
    moved_bytes: int
    cost_s: float
