"""Conversion of experiments to the schemas of the API."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from coresteer.application_metrics.reading import PREFIX, DeclaredMetric
from coresteer.experiments import next_step, schedule
from coresteer.experiments.analysis import analyse
from coresteer.experiments.findings import findings
from coresteer.experiments.repository import RunCounts
from coresteer.experiments.schemas import Experiment, ExperimentState, ExperimentSummary, SettingsBeforeAfter
from coresteer.experiments.spec import Analysis, RecordedRun, Spec
from coresteer.experiments.tables import ExperimentRow
from coresteer.experiments.templates import deviations_of, published_by, unmeasured_by
from coresteer.experiments.tune.plan import tune_result
from coresteer.experiments.tune.result import TuneResult
from coresteer_core.metrics import EXPERIMENT_METRICS, MetricLabel

_CACHED = 32
_analyses: OrderedDict[tuple[object, ...], tuple[Analysis, TuneResult | None]] = OrderedDict()
"""Cache of recent analyses: every open page requests the analysis after every run."""


def to_summary(row: ExperimentRow, done: RunCounts, queue_position: int | None) -> ExperimentSummary:
    """Return the list entry of an experiment, without its runs.

    queue_position: 0 while running, None once it has ended.
    """
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
        queue_position=queue_position,
        runs_done=done.counted,
        runs_planned=row.runs_planned,
        runs_discarded=done.discarded,
        remaining_s=_remaining_s(row, done),
    )


def to_experiment(
    row: ExperimentRow,
    spec: Spec,
    runs: Sequence[RecordedRun],
    queue_position: int | None,
    applications: Mapping[str, DeclaredMetric],
) -> Experiment:
    """Return an experiment with runs, analysis and findings. Takes about 100 ms of CPU time unless cached.

    applications: its application metrics, by name.
    """
    discarded = sum(run.discarded is not None for run in runs)
    analysis, tune = _analysed(row, spec, runs)
    experiment = Experiment(
        **to_summary(row, RunCounts(len(runs) - discarded, discarded), queue_position).model_dump(),
        spec=spec,
        seed=row.seed,
        machine=row.machine,
        settings=SettingsBeforeAfter(before=row.settings_before or {}, after=row.settings_after),
        activity=row.activity,
        arms=[schedule.arm_name(spec, arm) for arm in analysis.arms],
        runs=list(runs),
        analysis=analysis,
        tune=tune,
        metrics={name: MetricLabel(one.label, one.unit, one.better) for name, one in EXPERIMENT_METRICS.items()}
        | {f"{PREFIX}{name}": one.shown_as for name, one in applications.items()},
    )
    experiment.findings = findings(experiment, "en")
    experiment.published = published_by(spec, experiment.analysis)
    experiment.deviations = [each.en for each in deviations_of(spec)]
    return experiment


def _analysed(row: ExperimentRow, spec: Spec, runs: Sequence[RecordedRun]) -> tuple[Analysis, TuneResult | None]:
    # created_at: another database has other experiments with the same ids
    key = (row.id, row.created_at, len(runs), row.ended_at is None)
    if (found := _analyses.get(key)) is None:
        tune = tune_result(spec, row.seed, runs, has_ended=row.ended_at is not None) if spec.kind == "tune" else None
        found = (analyse(spec, row.seed, runs, unmeasured=unmeasured_by(spec).keys()), tune)
        _analyses[key] = found
        while len(_analyses) > _CACHED:
            _analyses.popitem(last=False)
    return found


def _remaining_s(row: ExperimentRow, done: RunCounts) -> float | None:
    if row.state not in (ExperimentState.QUEUED, ExperimentState.RUNNING):
        return None
    elapsed = 0.0 if row.started_at is None else (datetime.now(UTC) - row.started_at).total_seconds()
    return next_step.estimate_remaining_s(
        planned_s=row.planned_s, planned=row.runs_planned, done=done.counted, elapsed_s=elapsed
    )
