"""What the API says about experiments."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel

from coresteer.experiments.spec import Analysis, RecordedRun, Spec
from coresteer.inputs import Body
from coresteer.structs import AsStruct, FromStruct
from coresteer_core.experiments.model import Metric


class ExperimentState(StrEnum):
    """An experiment's life: queued → running → done | stopped (guardrail) | cancelled | failed."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    FAILED = "failed"


class ExperimentRequest(Body):
    """Start an experiment, or look at what it would do."""

    spec: Annotated[Spec, FromStruct()]


class ArmPreview(BaseModel):
    """What one arm does to the node, in a sentence, with the commands that would do the same by hand."""

    name: str
    sentence: str
    commands: list[str]


class ExperimentPreview(BaseModel):
    """What would be done. blocked_because: why it cannot be started, None when it can.

    sentence: the whole in one line; warnings: what is worth knowing first (policies that pause, load on a peer).
    """

    sentence: str
    runs: int
    duration_s: float
    arms: list[ArmPreview]
    warnings: list[str]
    blocked_because: str | None


class ExperimentSummary(BaseModel):
    """An experiment in a list. place: in its node's queue, 0 for the one that runs, None once it has ended."""

    id: int
    name: str
    kind: str
    template: str
    node_id: int
    node_name: str
    primary: str
    state: ExperimentState
    sentence: str
    created_at: datetime
    created_by: str
    started_at: datetime | None
    ended_at: datetime | None
    place: int | None
    runs_done: int
    runs_planned: int
    runs_discarded: int
    remaining_s: float | None


class ExperimentPage(BaseModel):
    """Newest first; older: the id to ask for the next page with, None at the end."""

    experiments: list[ExperimentSummary]
    older: int | None


class SettingsNow(BaseModel):
    """Settings that the experiment is about, by key, as they stood before it and after it."""

    before: dict[str, str]
    after: dict[str, str] | None


class Experiment(ExperimentSummary):
    """All of an experiment. seed: the one that was drawn where none was given. machine: the node when it began.

    arms: the names of all combinations, in the analysis's order. analysis: of the runs so far. findings: what
    follows from its intervals, in sentences, the most important first.
    """

    spec: Annotated[Spec, AsStruct()]
    seed: int
    machine: dict[str, Any]  # Any: JSON of facts that reports print as they are
    settings: SettingsNow
    now: str
    arms: list[str]
    runs: list[Annotated[RecordedRun, AsStruct()]]
    analysis: Annotated[Analysis, AsStruct()]
    findings: list[str] = []
    metrics: dict[str, Annotated[Metric, AsStruct()]]


class AuthorsRow(BaseModel):
    """A figure that a paper states for an arm, to stand beside the new one. text: as it is printed."""

    arm: str
    metric: str
    text: str
    value: float | None


class Template(BaseModel):
    """An experiment of a paper, made for one node. available_because/unavailable_because: why it is so here.

    differs: how this machine differs from the authors', a sentence each.
    """

    slug: str
    title: str
    paper: str
    explains: str
    spec: Annotated[Spec, AsStruct()] | None
    unavailable_because: str | None
    differs: list[str]
    authors: list[AuthorsRow]
