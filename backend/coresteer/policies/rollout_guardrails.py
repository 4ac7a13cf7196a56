"""Guardrails of rollouts: each backend checks the nodes that are connected to it; the leader rolls back."""

import asyncio
import logging
from collections.abc import Callable
from itertools import chain

from sqlalchemy import update

from coresteer.background import Pace, cancel, repeat
from coresteer.bus import PoliciesEvent
from coresteer.policies import repository
from coresteer.policies.context import PolicyContext
from coresteer.policies.in_force import IN_PROGRESS_STATES
from coresteer.policies.rollouts import HELD
from coresteer.policies.tables import RolloutRow
from coresteer.presence.interest import Interest
from coresteer.presence.registry import NodeRegistry
from coresteer_core.changes.guardrail import Guardrail, Strikes

log = logging.getLogger("coresteer.policies")

_TICK_S = 1.0


class RolloutGuardrails:
    """Counts the intervals in which nodes that are connected to this backend violate guardrails of rollouts."""

    def __init__(self, registry: NodeRegistry, interest: Interest) -> None:
        self._registry, self._interest = registry, interest
        self._strikes: dict[tuple[int, int, str], tuple[int, Strikes]] = {}

    def forget(self) -> None:
        """Count from 0."""
        self._strikes.clear()

    def violation(self, row: RolloutRow, node_id: int) -> str | None:
        """Return a node's violation of the rollout's guardrails, to continue a sentence, None where there is none."""
        if not row.guardrails:
            return None
        self._interest.need_summaries(node_id)
        if (summary := self._registry.get(node_id).latest_summary()) is None:
            return None
        for stored in row.guardrails:
            guardrail = Guardrail(str(stored["metric"]), float(stored["max"]))
            at, value = (row.id, node_id, guardrail.metric), summary.metrics.get(guardrail.metric)
            seq, strikes = self._strikes.get(at, (-1, Strikes()))
            if summary.seq != seq:
                strikes = strikes.count(guardrail, value, summary.duration_s)
                self._strikes[at] = summary.seq, strikes
            if violation := strikes.violation(guardrail, value):
                return f"the {violation}"
        return None


class GuardrailWatch:
    """Stores the first violation of each rollout, once a second, for the leader, which has no samples of these nodes.

    leads: returns whether this backend leads, and so checks its own nodes itself.
    """

    def __init__(self, context: PolicyContext, leads: Callable[[], bool]) -> None:
        self._context = context
        self._leads = leads
        self._guardrails = RolloutGuardrails(context.registry, context.interest)
        self._pace = Pace()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start checking guardrails."""
        failure = "The check of the guardrails of rollouts failed; retrying."
        self._tasks = [
            asyncio.create_task(self._context.bus.call(PoliciesEvent(None), self._pace.wake)),
            asyncio.create_task(repeat(lambda: self._pace.take(self.check), _TICK_S, log, failure)),
        ]

    async def stop(self) -> None:
        """Stop checking guardrails."""
        await cancel(self._tasks)

    async def check(self) -> bool:
        """Check the nodes that are connected to this backend once; return whether they may be in a rollout."""
        if self._leads():
            self._guardrails.forget()
            return True  # asks nothing, and goes on in the second in which another backend takes the lead
        async with self._context.database.session() as session:
            unfinished = (await repository.unfinished_rollouts(session)).values()
            ongoing = [row for row in unfinished if row.state in IN_PROGRESS_STATES]
            if not ongoing:
                self._guardrails.forget()
            for row in ongoing:
                if row.violation is not None or row.sentence.startswith(HELD):
                    continue
                nodes = [
                    node_id
                    for node_id in chain(*row.stages[: row.stage + 1])
                    if self._context.registry.get(node_id).connected
                ]
                for node_id in nodes:
                    if (violation := self._guardrails.violation(row, node_id)) is None:
                        continue
                    names = {each.node_id: each.name for each in await repository.node_attributes(session, [node_id])}
                    sentence = f"On {names.get(node_id, node_id)} {violation}"
                    # of this stage only: the leader may have held or advanced the rollout since
                    same = (RolloutRow.id == row.id, RolloutRow.stage_at == row.stage_at)
                    first = update(RolloutRow).where(*same, RolloutRow.violation.is_(None))
                    await session.execute(first.values(violation=sentence))
                    break
        return bool(ongoing)
