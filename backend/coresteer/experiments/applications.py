"""Application metrics of one experiment: their values in each run, and the guardrails on them."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from coresteer.application_metrics.reading import PREFIX, DeclaredMetric, Reading
from coresteer.application_metrics.service import find_declared
from coresteer.errors import is_database_unavailable
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.session_state import ActiveRun, SessionState
from coresteer.experiments.spec import Spec
from coresteer.presence.stored import clock_skew_ms
from coresteer_core.changes.guardrail import Guardrail, Strikes
from coresteer_core.experiments.model import RunResult

log = logging.getLogger("coresteer.experiments")

POLL_S = 5.0
"""Seconds between two readings of a guardrail's metric during a run."""
_WINDOW_S = 30.0
_DELETED = Reading(reason="The application metric was deleted.")


class Applications:
    """Reads the application metrics of one experiment."""

    def __init__(self, context: ExperimentContext, spec: Spec, state: SessionState) -> None:
        self._context = context
        self._names = spec.application_metrics
        self._state = state
        self._guardrails = [each for each in spec.guardrails if each.metric.startswith(PREFIX)]

    async def measure(self, measured: RunResult) -> dict[str, Reading]:
        """Return the readings of a run's application metrics, by metric."""
        if not self._names:
            return {}
        skew_ms = await clock_skew_ms(self._context.database, self._context.registry, self._state.node_id)
        start = datetime.fromtimestamp((measured.started_ms - skew_ms) / 1000, UTC)
        readings = await self._read(self._names, start, start + timedelta(seconds=measured.duration_s))
        return {f"{PREFIX}{name}": each for name, each in readings.items()}

    async def watch(self) -> None:
        """Check the guardrails during each run until cancelled; a violation stops the experiment."""
        while self._guardrails:
            await asyncio.sleep(POLL_S)
            run, participant = self._state.active_run, self._state.participants[self._state.node_id]
            sent_at_s = participant.run_sent_at_s
            if run is None or run.violation is not None or sent_at_s is None or participant.measured is not None:
                continue
            window_s = min(_WINDOW_S, time.monotonic() - sent_at_s)  # before it, another arm's settings were applied
            if window_s < POLL_S:
                continue
            try:
                now = datetime.now(UTC)
                names = [guardrail.metric.removeprefix(PREFIX) for guardrail in self._guardrails]
                readings = await self._read(names, now - timedelta(seconds=window_s), now)
            except Exception as error:
                if not is_database_unavailable(error):
                    log.exception("Experiment %d: its guardrails were not read.", self._state.experiment_id)
                continue
            self.check(run, {f"{PREFIX}{name}": each for name, each in readings.items()}, POLL_S)

    def check(self, run: ActiveRun, readings: Mapping[str, Reading], duration_s: float) -> None:
        """Note the violation of a guardrail by a run. readings: by metric; duration_s: the time that they add."""
        for guardrail in self._guardrails:
            if (violation := _violation(run, guardrail, readings[guardrail.metric], duration_s)) is not None:
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


def _violation(run: ActiveRun, guardrail: Guardrail, reading: Reading, duration_s: float) -> str | None:
    """Return the violation of a guardrail by a run in a sentence, else None; a missing value is none."""
    strikes = run.strikes.get(guardrail.metric, Strikes()).count(guardrail, reading.value, duration_s)
    run.strikes[guardrail.metric] = strikes
    if reading.value is None or not strikes.violated:
        return None
    return (
        f"{guardrail.metric} was {reading.value:.6g}, above its guardrail of {guardrail.max:.6g}, "
        f"in {strikes.intervals} readings in a row."
    )
