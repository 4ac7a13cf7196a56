"""An experiment as the API tells it."""

from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime

from coresteer.experiments import next_step, schedule
from coresteer.experiments.analysis import analyse
from coresteer.experiments.findings import findings
from coresteer.experiments.repository import Done
from coresteer.experiments.schemas import Experiment, ExperimentState, ExperimentSummary, SettingsNow
from coresteer.experiments.spec import Analysis, RecordedRun, Spec
from coresteer.experiments.tables import ExperimentRow
from coresteer_core.experiments.model import METRICS

_KEPT = 32
_analyses: OrderedDict[tuple[object, ...], Analysis] = OrderedDict()
"""Those asked for last: all who look at an experiment ask after every run."""


def summary(row: ExperimentRow, done: Done, place: int | None) -> ExperimentSummary:
    """Its line in a list."""
    return ExperimentSummary(
        id=row.id,
        name=row.spec["name"],
        kind=row.spec["kind"],
        template=row.spec["template"],
        node_id=row.node_id,
        node_name=row.node.name,
        primary=row.spec["primary"],
        state=ExperimentState(row.state),
        sentence=row.sentence,
        created_at=row.created_at,
        created_by=row.created_by,
        started_at=row.started_at,
        ended_at=row.ended_at,
        place=place,
        runs_done=done.kept,
        runs_planned=row.runs_planned,
        runs_discarded=done.discarded,
        remaining_s=_remaining_s(row, done),
    )


def whole(row: ExperimentRow, spec: Spec, runs: Sequence[RecordedRun], place: int | None) -> Experiment:
    """All of it; its analysis takes some 100 ms of CPU time where nobody has asked for it since its last run."""
    discarded = sum(run.discarded is not None for run in runs)
    experiment = Experiment(
        **summary(row, Done(len(runs) - discarded, discarded), place).model_dump(),
        spec=spec,
        seed=row.seed,
        machine=row.machine,
        settings=SettingsNow(before=row.before or {}, after=row.after),
        now=row.now,
        arms=[schedule.arm_name(spec, arm) for arm in schedule.arms(spec)],
        runs=list(runs),
        analysis=_analysed(row, spec, runs),
        metrics=dict(METRICS),
    )
    experiment.findings = findings(experiment, "en")
    return experiment


def _analysed(row: ExperimentRow, spec: Spec, runs: Sequence[RecordedRun]) -> Analysis:
    # numbers of experiments begin anew in another database
    key = (row.id, row.created_at, len(runs))
    if (found := _analyses.get(key)) is None:
        found = analyse(spec, row.seed, runs)
        _analyses[key] = found
        while len(_analyses) > _KEPT:
            _analyses.popitem(last=False)
    return found


def _remaining_s(row: ExperimentRow, done: Done) -> float | None:
    if row.state not in (ExperimentState.QUEUED, ExperimentState.RUNNING):
        return None
    elapsed = 0.0 if row.started_at is None else (datetime.now(UTC) - row.started_at).total_seconds()
    return next_step.remaining_s(planned_s=row.planned_s, planned=row.runs_planned, done=done.kept, elapsed_s=elapsed)
