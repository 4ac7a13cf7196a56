"""Request and response bodies of coscheduling studies."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel

from coresteer.inputs import RequestBody
from coresteer.simulation.statements import Verdict
from coresteer.simulation.study import StudySpec
from coresteer.simulation.summary import CellSummary, Sensitivity
from coresteer.simulation.swf import TraceFacts
from coresteer.structs import AsStruct, FromStruct


class SimulationState(StrEnum):
    """State of a study."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class SimulationRequest(RequestBody):
    """The specification of a study to start."""

    spec: Annotated[StudySpec, FromStruct()]


class ParameterValue(BaseModel):
    """A parameter of a study, with its label. help: empty where the label says it. text: the value with its unit."""

    name: str
    label: str
    help: str
    value: float | str
    text: str


class SimulationEstimate(BaseModel):
    """What a study would take here. messages, duration_s: about. sentence: runs, duration and CPUs in words."""

    runs: int
    messages: float
    duration_s: float
    cpus: int
    sentence: str


class SimulationSummary(BaseModel):
    """A study in a list. sentence: why it ended; empty while it runs and once it is done.

    remaining_s: about how long it still takes, None after its end, and where that is not known.
    """

    id: int
    spec: Annotated[StudySpec, AsStruct()]
    state: SimulationState
    sentence: str
    created_at: datetime
    created_by: str
    ended_at: datetime | None
    runs_done: int
    runs_planned: int
    remaining_s: float | None


class Simulation(SimulationSummary):
    """A study with its results so far. verdicts, sensitivities: empty while it runs.

    trace: None for generated jobs. jobs: which jobs it has and how they were scaled, in sentences.
    """

    trace: Annotated[TraceFacts, AsStruct()] | None
    jobs: list[str]
    parameters: list[ParameterValue]
    cells: list[Annotated[CellSummary, AsStruct()]]
    verdicts: list[Annotated[Verdict, AsStruct()]]
    sensitivities: list[Annotated[Sensitivity, AsStruct()]]


class SimulationPage(BaseModel):
    """One page of studies, newest first. older: older_than of the next page, None on the last one.

    unavailable_because: why no study can run here, None if it can.
    """

    simulations: list[SimulationSummary]
    older: int | None
    unavailable_because: str | None


class StoredTrace(BaseModel):
    """A stored trace in Standard Workload Format."""

    facts: Annotated[TraceFacts, AsStruct()]
    created_at: datetime
    created_by: str
