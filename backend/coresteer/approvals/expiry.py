"""Ends requests for approval that nobody decided in time, so that the audit log has an entry of each; on the leader."""

import asyncio
import logging
from datetime import UTC, datetime

from sqlalchemy import select

from coresteer.background import cancel, repeat
from coresteer.bus import PoliciesEvent
from coresteer.policies import approvals
from coresteer.policies.approval_schemas import ApprovalState
from coresteer.policies.context import PolicyContext
from coresteer.policies.tables import ApprovalRow, PolicyRow

log = logging.getLogger("coresteer.approvals")

_EVERY_S = 60.0


class ApprovalExpiry:
    """Looks once a minute for expired requests; they cannot be approved from the moment they expire."""

    def __init__(self, context: PolicyContext) -> None:
        self._context = context
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start looking for expired requests."""
        failure = "Ending expired requests for approval failed; retrying."
        self._tasks = [asyncio.create_task(repeat(lambda: self.end(datetime.now(UTC)), _EVERY_S, log, failure))]

    async def stop(self) -> None:
        """Stop looking for expired requests."""
        await cancel(self._tasks)

    async def end(self, now: datetime) -> None:
        """End every request that waits and has expired."""
        query = select(ApprovalRow, PolicyRow.name).join(PolicyRow, PolicyRow.id == ApprovalRow.policy_id)
        query = query.where(ApprovalRow.state == ApprovalState.WAITING, ApprovalRow.expires_at <= now)
        async with self._context.database.session() as session:
            found = (await session.execute(query.with_for_update(of=ApprovalRow))).all()
            for row, name in found:
                approvals.close(session, row, name, ApprovalState.EXPIRED)
        if found:
            self._context.bus.publish(PoliciesEvent(None))
