"""Application metrics of one experiment: their values in each run, and the guardrails on them."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from coresteer.application_metrics.reading import PREFIX, DeclaredMetric, Reading
from coresteer.application_metrics.service import find_declared
from coresteer.errors import is_database_unavailable
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.session_state import ActiveRun, SessionState
from coresteer.experiments.spec import Spec
from coresteer_core.changes.guardrail import Guardrail, Strikes
from coresteer_core.experiments.model import RunResult

log = logging.getLogger("coresteer.experiments")

POLL_S = 5.0
"""Seconds between two readings of a guardrail's metric during a run."""
_WINDOW = timedelta(seconds=30)
_DELETED = Reading(reason="The application metric was deleted.")


class Applications:
    """Reads the application metrics of one experiment."""

    def __init__(self, context: ExperimentContext, spec: Spec, state: SessionState) -> None:
        self._context = context
        self._names = spec.application_metrics
        self._state = state
        self._guardrails = [each for each in spec.guardrails if each.metric.startswith(PREFIX)]

    async def measure(self, measured: RunResult) -> tuple[dict[str, float], dict[str, str]]:
        """Return the values of a run's application metrics, and why others are missing, by metric."""
        if not self._names:
            return {}, {}
        skew_ms = self._context.registry.get(self._state.node_id).clock_skew_ms or 0.0
        start = datetime.fromtimestamp((measured.started_ms - skew_ms) / 1000, UTC)
        readings = await self._read(self._names, start, start + timedelta(seconds=measured.duration_s))
        found = {f"{PREFIX}{name}": each.value for name, each in readings.items() if each.value is not None}
        missing = {f"{PREFIX}{name}": each.reason for name, each in readings.items() if each.value is None}
        return found, missing

    async def watch(self) -> None:
        """Check the guardrails during each run until cancelled; a violation stops the experiment."""
        while self._guardrails:
            await asyncio.sleep(POLL_S)
            run = self._state.active_run
            if run is None or run.violation is not None:
                continue
            try:
                now = datetime.now(UTC)
                names = [guardrail.metric.removeprefix(PREFIX) for guardrail in self._guardrails]
                readings = await self._read(names, now - _WINDOW, now)
            except Exception as error:
                if not is_database_unavailable(error):
                    log.exception("Experiment %d: its guardrails were not read.", self._state.experiment_id)
                continue
            for guardrail, name in zip(self._guardrails, names, strict=True):
                if (violation := _violation(run, guardrail, readings[name])) is not None:
                    run.violation = violation
                    self._state.changed.set()

    async def _read(self, names: Sequence[str], start: datetime, end: datetime) -> dict[str, Reading]:
        async with self._context.database.session() as session:
            declared = await find_declared(session, names)
        node = self._state.participants[self._state.node_id].name

        async def read(metric: DeclaredMetric | None) -> Reading:
            if metric is None:
                return _DELETED
            return await self._context.read_application_metric(metric, node, start, end)

        readings = await asyncio.gather(*(read(declared.get(name)) for name in names))
        return dict(zip(names, readings, strict=True))


def _violation(run: ActiveRun, guardrail: Guardrail, reading: Reading) -> str | None:
    """Return the violation of a guardrail by a run in a sentence, else None; a missing value is none."""
    strikes = run.strikes.get(guardrail.metric, Strikes()).count(guardrail, reading.value, POLL_S)
    run.strikes[guardrail.metric] = strikes
    if reading.value is None or not strikes.violated:
        return None
    return (
        f"{guardrail.metric} was {reading.value:.6g}, above its guardrail of {guardrail.max:.6g}, "
        f"in {strikes.intervals} readings in a row."
    )
