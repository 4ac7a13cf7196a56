"""Request and response bodies of experiments."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel

from coresteer.experiments.spec import Analysis, Interval, RecordedRun, Spec
from coresteer.experiments.tune.result import TuneResult
from coresteer.inputs import RequestBody
from coresteer.structs import AsStruct, FromStruct
from coresteer_core.metrics import MetricLabel


class ExperimentState(StrEnum):
    """State of an experiment: queued → running → done | stopped (by a guardrail) | cancelled | failed."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    FAILED = "failed"


class ExperimentRequest(RequestBody):
    """The specification of an experiment to preview or start."""

    spec: Annotated[Spec, FromStruct()]


class ArmPreview(BaseModel):
    """Changes of one arm on the node, in a sentence and as the equivalent shell commands."""

    name: str
    sentence: str
    commands: list[str]


class ExperimentPreview(BaseModel):
    """Preview of an experiment. blocked_because: why it cannot be started, None when it can.

    sentence: a summary. warnings: side effects, e.g. policies that pause, or load from a peer. deviations: from the
    paper of its template, in sentences, as in Template.
    """

    sentence: str
    runs: int
    duration_s: float
    arms: list[ArmPreview]
    warnings: list[str]
    deviations: list[str]
    blocked_because: str | None


class ExperimentSummary(BaseModel):
    """An experiment in a list. queue_position: 0 for the one that runs on its node, None once it has ended."""

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
    queue_position: int | None
    runs_done: int
    runs_planned: int
    runs_discarded: int
    remaining_s: float | None


class ExperimentPage(BaseModel):
    """One page of experiments, newest first. older: older_than of the next page, None on the last one."""

    experiments: list[ExperimentSummary]
    older: int | None


class SettingsBeforeAfter(BaseModel):
    """Values of settings by key, before and after the experiment. after: None until it has ended."""

    before: dict[str, str]
    after: dict[str, str] | None


class PublishedRow(BaseModel):
    """A published value of a metric for an arm, for comparison. arm: of what; text: as printed in the paper.

    id: in docs/papers.toml. direction: higher, lower or unchanged, empty if the paper states none. role: of the arms it
    belongs to, as a shell pattern; empty for none. against: role of the arm that the value is relative to, empty for an
    absolute value.
    """

    id: str
    arm: str
    metric: str
    text: str
    value: float | None
    direction: str = ""
    role: str = ""
    against: str = ""


class PublishedResult(PublishedRow):
    """A published value next to this node's. arms: indices of the arms it belongs to, empty if there are none.

    effect: relative to the arm `against`, of several arms the largest in the paper's direction; None without one or
    before its result. unmeasured_because: why this experiment cannot measure it, None if it can.
    """

    arms: list[int]
    effect: Annotated[Interval, AsStruct()] | None
    unmeasured_because: str | None


class Experiment(ExperimentSummary):
    """One experiment with its runs. seed: a random one if the spec has none. machine: the node at its start.

    activity: the present step in a sentence. arms: the names of all combinations, in the analysis's order. analysis:
    of the runs so far. findings: its results in sentences, the most important first. published: values of the paper
    that its template repeats. tune: what a tune has found so far, None for other kinds.
    """

    spec: Annotated[Spec, AsStruct()]
    seed: int
    machine: dict[str, Any]  # Any: JSON of facts that reports print as they are
    settings: SettingsBeforeAfter
    activity: str
    arms: list[str]
    runs: list[Annotated[RecordedRun, AsStruct()]]
    analysis: Annotated[Analysis, AsStruct()]
    findings: list[str] = []
    published: list[PublishedResult] = []
    deviations: list[str] = []
    tune: Annotated[TuneResult, AsStruct()] | None = None
    metrics: dict[str, Annotated[MetricLabel, AsStruct()]]


class Template(BaseModel):
    """An experiment of a paper, prepared for one node. unavailable_because: why it cannot run there, or None.

    question: which it answers. needs: its prerequisites. duration_s: estimated, of its experiment, None without one.
    differs: differences between this machine and that of the paper, in sentences. deviations: from the paper that
    follow from the experiment, which a person may change.
    """

    slug: str
    title: str
    question: str
    paper: str
    explains: str
    needs: str
    spec: Annotated[Spec, AsStruct()] | None
    duration_s: float | None
    unavailable_because: str | None
    differs: list[str]
    deviations: list[str]
    published: list[PublishedRow]
