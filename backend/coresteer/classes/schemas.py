"""Request and response bodies of service classes."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, Field

from coresteer.inputs import RequestBody
from coresteer.structs import AsStruct, FromStruct
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.policies.base import Mode, Scope
from coresteer_core.policies.service_class.policy import ServiceClasses


class ClassFigure(StrEnum):
    """Figures of a service class: attainment (f) now; requests and longest wait of the window; times in µs."""

    F = "f"
    REQUESTS = "requests"
    SATISFIED = "satisfied"
    WAITING = "waiting"
    ACTIVE = "active"
    P50 = "p50_us"
    P95 = "p95_us"
    P99 = "p99_us"
    LONGEST_WAIT = "longest_wait_us"


class PolicyClasses(BaseModel):
    """Service classes of a policy in force on the node.

    reported, at: the agent's latest report, None before the first.
    """

    policy_id: int
    name: str
    version: int
    mode: Mode
    spec: Annotated[ServiceClasses, AsStruct()]
    at: datetime | None
    reported: list[Annotated[ClassFigures, AsStruct()]] | None


class NodeClasses(BaseModel):
    """The service-class policies in force on a node, in order of rank."""

    policies: list[PolicyClasses]


class ClassHistory(BaseModel):
    """A class's figures, one value per step; None without a report, for f and response times also without requests."""

    name: str
    values: dict[ClassFigure, list[float | None]]


class PolicyHistory(BaseModel):
    """History of a policy's service classes in a range. name: None for a policy that no longer exists."""

    policy_id: int
    name: str | None
    classes: list[ClassHistory]


class ClassesHistory(BaseModel):
    """Figures of service classes over time. times_ms: the start of each step, by the node's clock.

    A step of several seconds has the worst value: the lowest f and satisfied, the highest of the others.
    """

    step_ms: int
    times_ms: list[int]
    policies: list[PolicyHistory]


class MatchRequest(RequestBody):
    """Service classes to match against a node's processes.

    scope: as in the policy; processes outside it are ignored.
    """

    spec: Annotated[ServiceClasses, FromStruct()]
    scope: Annotated[Scope, FromStruct()] = Field(default={}, validate_default=True)


class MatchedTask(BaseModel):
    """A process that uses the network, with every attribute that a service class can match."""

    pid: int
    name: str
    cgroup: str | None
    unit: str | None
    user: str | None
    command: str | None
    listens: list[int]
    clients: list[str]


class MatchedClass(BaseModel):
    """A service class and the processes that match it."""

    name: str
    tasks: list[MatchedTask]


class Matches(BaseModel):
    """Service classes in order of precedence with their processes; unmatched: processes of no class.

    at: when the node reported its processes, None before its first report. exact: as in NodeFlows.
    """

    at: datetime | None
    exact: bool
    classes: list[MatchedClass]
    unmatched: list[MatchedTask]
