"""The schedule of a running experiment: fixed by its seed, or of a tune also by its results."""

import asyncio
from collections.abc import Sequence

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.experiments import repository, schedule
from coresteer.experiments.spec import Attempt, PlannedRun, RecordedRun, Spec
from coresteer.experiments.tune.plan import plan_tune


class Plan:
    """The runs of an experiment in order, as far as they are known."""

    def __init__(self, experiment_id: int, spec: Spec, seed: int) -> None:
        self._experiment_id, self._spec, self._seed = experiment_id, spec, seed
        self._runs = [] if spec.kind == "tune" else schedule.plan_runs(spec, seed)
        self._attempts = -1

    async def after(self, session: AsyncSession, attempts: Sequence[Attempt]) -> Sequence[PlannedRun]:
        """Return the runs after these attempts; a tune chooses its next block when the previous one is complete."""
        if self._spec.kind == "tune" and len(attempts) != self._attempts:
            settled = schedule.left_out(attempts) | {each.number for each in attempts if each.discarded is None}
            if settled.issuperset(run.number for run in self._runs):
                rows = await repository.list_runs(session, self._experiment_id)
                runs = [msgspec.convert(row.run, RecordedRun) for row in rows]
                self._runs = await asyncio.to_thread(plan_tune, self._spec, self._seed, runs)
            self._attempts = len(attempts)
        return self._runs
