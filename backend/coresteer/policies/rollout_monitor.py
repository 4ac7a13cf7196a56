"""Looks after the rollouts under way: on to the next stage in time, back when a node of one fares badly."""

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.bus import PoliciesEvent
from coresteer.errors import is_database_away
from coresteer.policies import repository, rollouts
from coresteer.policies.context import Shared
from coresteer.policies.schemas import RolloutState
from coresteer.policies.tables import PolicyRow, RolloutRow
from coresteer_core.changes.guardrail import METRICS, measure
from coresteer_core.changes.machine import STRIKES, STRIKES_S

log = logging.getLogger("coresteer.policies")

_TICK_S = 1.0
AWAY_S = 30.0
"""A node of a rollout may be away so long: an agent that restarts, or all of them after the backend did."""
_GOES_ON = (RolloutState.CANARY, RolloutState.BATCHES)


class _Strikes(NamedTuple):
    seq: int
    times: int
    seconds: float


class Watch:
    """Everything that must survive a restart is in the database; what a guardrail has counted begins anew."""

    def __init__(self, shared: Shared, *, away_s: float = AWAY_S) -> None:
        self._shared = shared
        self._away_s = away_s
        self._away_since: dict[tuple[int, int], float] = {}
        self._strikes: dict[tuple[int, int, str], _Strikes] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End; the next start goes on from the database."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self.look(datetime.now(UTC))
            except Exception as error:
                if not is_database_away(error):
                    log.exception("The rollouts could not be looked after; trying again.")
            await asyncio.sleep(_TICK_S)

    async def look(self, now: datetime) -> None:
        """One round."""
        async with self._shared.database.session() as session:
            under_way = [
                r.policy_id for r in (await repository.all_unfinished(session)).values() if r.state in _GOES_ON
            ]
        for policy_id in under_way:
            async with self._shared.database.session() as session:
                policy = await repository.find(session, policy_id, lock=True)
                row = await repository.unfinished(session, policy_id, lock=True)
                moved = policy is not None and row is not None and await self._advance(session, policy, row, now)
            if moved:
                self._shared.bus.publish(PoliciesEvent(None))
        if not under_way:
            self._away_since.clear()
            self._strikes.clear()

    async def _advance(self, session: AsyncSession, policy: PolicyRow, row: RolloutRow, now: datetime) -> bool:
        if row.state not in _GOES_ON:
            return False
        have = [node_id for stage in row.stages[: row.stage + 1] for node_id in stage]
        names = {facts.node_id: facts.name for facts in await repository.facts(session, have)}
        trouble = await self._undone_by_guardrail(session, row, names) or self._trouble(row, names)
        if trouble is not None:
            rollouts.take_back(policy, row, trouble)
            rollouts.audit(session, "coresteer", "rollout.undo", policy, row)
        elif (now - row.stage_at).total_seconds() < row.wait_s:
            return False
        elif row.stage + 1 < len(row.stages):
            rollouts.enter(row, row.stage + 1, now)
            rollouts.audit(session, "coresteer", "rollout.advance", policy, row)
        else:
            rollouts.finish(policy, row)
            rollouts.audit(session, "coresteer", "rollout.done", policy, row)
        return True

    @staticmethod
    async def _undone_by_guardrail(session: AsyncSession, row: RolloutRow, names: dict[int, str]) -> str | None:
        tripped = await repository.guardrail_tripped(session, row)
        if tripped is None:
            return None
        node_id, change_id, sentence = tripped
        return f"On {names.get(node_id, node_id)} a guardrail undid change {change_id}: {sentence}"

    def _trouble(self, row: RolloutRow, names: dict[int, str]) -> str | None:
        """Why the version is to be taken back; a node that is deleted is none."""
        for node_id, name in names.items():
            if self._is_away(row.id, node_id):
                return f"{name} has been away for {self._away_s:g} s."
            if tripped := self._tripped(row, node_id):
                return f"On {name} {tripped}"
        return None

    def _is_away(self, rollout_id: int, node_id: int) -> bool:
        if self._shared.registry.get(node_id).connected:
            self._away_since.pop((rollout_id, node_id), None)
            return False
        since = self._away_since.setdefault((rollout_id, node_id), time.monotonic())
        return time.monotonic() - since >= self._away_s

    def _tripped(self, row: RolloutRow, node_id: int) -> str | None:
        """As the agent counts for a change: so many intervals in a row, and so long, over the limit."""
        rates = self._shared.registry.get(node_id).rates
        if rates is None or not row.guardrails:
            return None
        figures = measure(rates)
        for guardrail in row.guardrails:
            metric, limit = str(guardrail["metric"]), float(guardrail["max"])
            at = (row.id, node_id, metric)
            before = self._strikes.get(at, _Strikes(-1, 0, 0.0))
            if rates.seq != before.seq:
                value = figures[metric]
                over = value is not None and value > limit
                before = _Strikes(
                    rates.seq, before.times + 1 if over else 0, before.seconds + rates.duration_s if over else 0.0
                )
                self._strikes[at] = before
            if before.times >= STRIKES and round(before.seconds, 1) >= STRIKES_S:
                return (
                    f"the {METRICS[metric]} was {figures[metric]:.6g} and so for {before.times} intervals in a row "
                    f"over the guardrail of {limit:.6g}."
                )
        return None
