"""Sends the queued notifications on the leader, and tries again those that failed."""

import asyncio
import logging
import random
from datetime import UTC, datetime, timedelta

from coresteer.alerts import repository
from coresteer.alerts.context import AlertContext
from coresteer.alerts.schemas import Notification
from coresteer.alerts.tables import DeliveryRow, ReceiverRow
from coresteer.background import cancel, repeat
from coresteer_core.alerts.retry import pause_s

log = logging.getLogger("coresteer.alerts")

_EVERY_S = 5.0
_AT_ONCE = 8


class Outbox:
    """Sends each notification at least once, under an id that stays the same, in the order of each rule.

    A backend that ends after an attempt and before it is stored repeats it: receivers drop an id that they know.
    """

    def __init__(self, context: AlertContext) -> None:
        self._context = context
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start sending what waits."""
        failure = "Sending notifications of alerts failed; retrying."
        self._tasks = [asyncio.create_task(repeat(lambda: self.check(datetime.now(UTC)), _EVERY_S, log, failure))]

    async def stop(self) -> None:
        """Stop sending; what waits is sent by the next leader."""
        await cancel(self._tasks)

    async def check(self, now: datetime) -> None:
        """Send what is due at a time."""
        async with self._context.database.session() as session:
            due = [pair for pair in await repository.heads(session, 200) if pair[0].due_at <= now]
        for first in range(0, len(due), _AT_ONCE):
            await asyncio.gather(*(self._deliver(row, to, now) for row, to in due[first : first + _AT_ONCE]))

    async def _deliver(self, waiting: DeliveryRow, receiver: ReceiverRow, now: datetime) -> None:
        attempt = await self._context.sending.send(
            receiver, waiting.id, Notification.model_validate(waiting.notification)
        )
        async with self._context.database.session() as session:
            row = await session.get(DeliveryRow, waiting.id, with_for_update=True)
            if row is None:
                return  # its receiver was deleted
            row.attempts += 1
            row.outcome = attempt.outcome
            pause = None if attempt.final else pause_s(row.attempts, random.random())  # noqa: S311 - spreads attempts
            if attempt.delivered:
                row.state = "delivered"
            elif pause is None:
                row.state = "failed"
                log.warning("A notification to %s is given up: %s", receiver.name, attempt.outcome)
            else:
                row.due_at = now + timedelta(seconds=pause)
