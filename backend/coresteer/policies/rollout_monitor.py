"""Advances rollouts from stage to stage on the figures of each, and rolls them back.

A rollout is rolled back when a node violates a guardrail or disconnects, or when a stage made a metric worse. A stage
without figures passes because neither happened, and is recorded as passed without figures.
"""

import asyncio
import logging
import time
from datetime import UTC, datetime, timedelta
from itertools import chain

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.background import Pace, cancel, repeat
from coresteer.bus import PoliciesEvent
from coresteer.policies import repository, rollouts, stops, windows
from coresteer.policies.context import PolicyContext
from coresteer.policies.in_force import IN_PROGRESS_STATES
from coresteer.policies.rollout_guardrails import RolloutGuardrails
from coresteer.policies.rollout_schemas import StageEvidence
from coresteer.policies.stage_evidence import worsened
from coresteer.policies.stage_windows import measure_stage
from coresteer.policies.tables import PolicyRow, RolloutRow

log = logging.getLogger("coresteer.policies")

_TICK_S = 1.0
MAX_DISCONNECTED_S = 30.0
"""Seconds a node of a rollout may be disconnected: agents reconnect after their or the backend's restart."""
LOST_WITH_BACKEND_TIMES = 4.0
"""How many times longer if its backend has vanished: a load balancer may go on offering a hung one to agents."""


def _is_due(row: RolloutRow, now: datetime) -> bool:
    return (now - row.stage_at).total_seconds() >= row.wait_s


def _since(began: float) -> timedelta:
    return timedelta(seconds=time.monotonic() - began)


class RolloutMonitor:
    """Checks rollouts once a second while one is in progress.

    All state that must survive a restart is in the database; guardrail strikes restart from 0.
    """

    def __init__(self, context: PolicyContext, *, disconnected_s: float = MAX_DISCONNECTED_S) -> None:
        self._context = context
        self._disconnected_s = disconnected_s
        self._disconnected_since: dict[tuple[int, int], float] = {}
        self._lost_until: dict[tuple[int, int], float] = {}
        self._guardrails = RolloutGuardrails(context.registry, context.interest)
        self._pace = Pace()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start checking rollouts once a second; nodes get the whole time to connect again."""
        self._disconnected_since.clear()
        self._lost_until.clear()
        self._guardrails.forget()
        self._pace.wake()
        failure = "The check of rollouts failed; retrying."
        self._tasks = [
            asyncio.create_task(self._context.bus.call(PoliciesEvent(None), self._pace.wake)),
            asyncio.create_task(
                repeat(lambda: self._pace.take(lambda: self.check(datetime.now(UTC))), _TICK_S, log, failure)
            ),
        ]

    async def stop(self) -> None:
        """Stop checking rollouts; the next start continues from the database."""
        await cancel(self._tasks)

    async def check(self, now: datetime) -> bool:
        """Check every rollout in progress once; return whether there is one."""
        async with self._context.database.session() as session:
            unfinished = (await repository.unfinished_rollouts(session)).values()
            ongoing = [row for row in unfinished if row.state in IN_PROGRESS_STATES]
            closed = await windows.closed_nodes(session) if ongoing else frozenset()
        failed: Exception | None = None
        began = time.monotonic()
        for seen in ongoing:
            try:
                await self._check_one(seen, now + _since(began), closed=closed)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed  # which must not keep the other rollouts from being checked
        if not ongoing:
            self._disconnected_since.clear()
            self._lost_until.clear()
            self._guardrails.forget()
        return bool(ongoing)

    async def _check_one(self, seen: RolloutRow, now: datetime, *, closed: frozenset[int]) -> None:
        if _is_due(seen, now) and not seen.sentence.startswith(rollouts.WAITS):
            # its time was over before a window closed, while samples of its nodes are awaited
            closed -= frozenset(seen.stages[seen.stage])
        is_measured = _is_due(seen, now) and closed.isdisjoint(seen.stages[seen.stage])
        began = time.monotonic()
        # before the rows are locked, because it takes a while
        evidence = await measure_stage(self._context, seen, now) if is_measured else None
        now += _since(began)  # else the next stage would have begun in the past
        async with self._context.database.session() as session:
            stopped = await stops.stopped_nodes(session)
            policy = await repository.find_policy(session, seen.policy_id, lock=True)
            row = await repository.unfinished_rollout(session, seen.policy_id, lock=True)
            if row is not None and row.state in IN_PROGRESS_STATES:
                rollouts.note_begin(row, stopped | closed, now)
            moved = (
                policy is not None
                and row is not None
                and not self._hold(row, stopped, now)
                and await self._advance(session, policy, row, now, evidence, closed=closed)
            )
        if moved:
            self._context.bus.publish(PoliciesEvent(None))

    @staticmethod
    def _hold(row: RolloutRow, stopped: frozenset[int], now: datetime) -> bool:
        """Return whether enforcement is stopped on a node of a rollout; its stage begins anew afterwards."""
        if row.state not in IN_PROGRESS_STATES:
            return False
        if among := len(stopped.intersection(chain(*row.stages))):
            rollouts.hold(row, now, among)
        elif row.sentence.startswith(rollouts.HELD):
            rollouts.enter_stage(row, row.stage, now)
        return among > 0

    async def _advance(
        self,
        session: AsyncSession,
        policy: PolicyRow,
        row: RolloutRow,
        now: datetime,
        evidence: StageEvidence | None,
        *,
        closed: frozenset[int],
    ) -> bool:
        """Move a rollout on, or back; return whether it moved. evidence: of its stage, None while it waits.

        closed: nodes outside their change windows. One in the stage keeps it from moving on, not from moving back: the
        other nodes enforce the version.
        """
        if row.state not in IN_PROGRESS_STATES:
            return False
        have = [node_id for stage in row.stages[: row.stage + 1] for node_id in stage]
        names = {attributes.node_id: attributes.name for attributes in await repository.node_attributes(session, have)}
        failure = await self._rolled_back_by_guardrail(session, row, names) or self._failure(row, names)
        if failure is not None:
            rollouts.apply_rollback(policy, row, failure)
            rollouts.audit(session, "coresteer", "rollout.roll_back", policy, row)
        elif among := len(closed.intersection(row.stages[row.stage])):
            rollouts.wait_for_window(row, among)
            return False
        elif row.sentence.startswith(rollouts.WAITS):
            rollouts.enter_stage(row, row.stage, now)
            return False
        elif evidence is None or evidence.stage != row.stage or not _is_due(row, now):
            return False
        elif (worse := worsened(evidence)) is not None:
            rollouts.add_evidence(row, evidence)
            rollouts.apply_rollback(policy, row, f"Stage {row.stage + 1} made the nodes worse. {worse}")
            rollouts.audit(session, "coresteer", "rollout.roll_back", policy, row)
        elif row.stage + 1 < len(row.stages):
            rollouts.add_evidence(row, evidence)
            rollouts.enter_stage(row, row.stage + 1, now)
            rollouts.audit(session, "coresteer", "rollout.advance", policy, row)
        else:
            rollouts.add_evidence(row, evidence)
            rollouts.finish(policy, row)
            rollouts.audit(session, "coresteer", "rollout.finish", policy, row)
        return True

    @staticmethod
    async def _rolled_back_by_guardrail(session: AsyncSession, row: RolloutRow, names: dict[int, str]) -> str | None:
        violation = await repository.guardrail_violation(session, row)
        if violation is None:
            return None
        node_id, change_id, sentence = violation
        return f"On {names.get(node_id, node_id)} a guardrail rolled change {change_id} back: {sentence}"

    def _failure(self, row: RolloutRow, names: dict[int, str]) -> str | None:
        """Return why the rollout must be rolled back, None if it need not be; deleted nodes do not count."""
        if row.violation is not None:
            return row.violation
        for node_id, name in names.items():
            if self._is_disconnected(row.id, node_id):
                return f"{name} has been disconnected for {self._allowed_s(node_id):g} s."
            if violation := self._guardrails.violation(row, node_id):
                return f"On {name} {violation}"
        return None

    def _is_disconnected(self, rollout_id: int, node_id: int) -> bool:
        if self._context.registry.is_connected(node_id):
            self._disconnected_since.pop((rollout_id, node_id), None)
            self._lost_until.pop((rollout_id, node_id), None)
            return False
        now, is_lost = time.monotonic(), self._context.registry.is_lost_with_backend(node_id)
        if is_lost:
            self._lost_until[rollout_id, node_id] = now
        since = self._disconnected_since.setdefault((rollout_id, node_id), now)
        if not is_lost:  # a backend that wakes up ends the connection: the node has the full time from then on
            since = max(since, self._lost_until.get((rollout_id, node_id), since))
        return now - since >= self._allowed_s(node_id)

    def _allowed_s(self, node_id: int) -> float:
        is_lost = self._context.registry.is_lost_with_backend(node_id)
        return self._disconnected_s * (LOST_WITH_BACKEND_TIMES if is_lost else 1.0)
