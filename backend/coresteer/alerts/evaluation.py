"""Evaluates the rules on the leader: which alerts fire and which are resolved, and what receivers are told."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.alerts import notifications, readings, repository
from coresteer.alerts.context import AlertContext
from coresteer.alerts.readings import Readings
from coresteer.alerts.tables import AlertRow, AlertRuleRow
from coresteer.background import cancel, repeat
from coresteer.policies.schemas import Selector
from coresteer.policies.selector import NodeAttributes, matches
from coresteer_core.alerts.hysteresis import Limits, Watch, step
from coresteer_core.alerts.signals import SIGNALS, Of

log = logging.getLogger("coresteer.alerts")

_EVERY_S = 15.0

_Key = tuple[int, int]
"""Rule and subject."""


class AlertEvaluation:
    """Evaluates every rule each 15 s. Which alerts fire is in the database; periods that go on begin anew at start."""

    def __init__(self, context: AlertContext) -> None:
        self._context = context
        self._since_s: dict[_Key, float] = {}
        self._limits: dict[int, tuple[str, Limits]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start evaluating; every period has its full length."""
        self._since_s.clear()
        failure = "The evaluation of alerts failed; retrying."
        self._tasks = [asyncio.create_task(repeat(lambda: self.check(datetime.now(UTC)), _EVERY_S, log, failure))]

    async def stop(self) -> None:
        """Stop evaluating; alerts stay as they are."""
        await cancel(self._tasks)

    async def check(self, now: datetime) -> None:
        """Evaluate every rule at a time, and queue what receivers are to be told."""
        async with self._context.database.session() as session:
            rules = await repository.rules(session, enabled=True)
            signals = {rule.signal for rule in rules}
            present = await readings.read(session, self._context.directory, self._context.disk_used, signals, now)
            await self._evaluate(session, rules, present, now)
            await session.flush()
            await notifications.queue(session, now, self._context.page_url)

    async def _evaluate(
        self, session: AsyncSession, rules: Sequence[AlertRuleRow], present: Readings, now: datetime
    ) -> None:
        firing = {(row.rule_id, row.subject): row for row in await repository.firing(session)}
        self._forget_changed(rules)
        resolved = [row.id for key, row in firing.items() if key[0] not in {rule.id for rule in rules}]
        since_s: dict[_Key, float] = {}
        values: dict[int, float] = {}
        for rule in rules:
            of_rule = {key[1]: row for key, row in firing.items() if key[0] == rule.id}
            for subject, value in _candidates(rule, present, of_rule).items():
                key, row = (rule.id, subject), of_rule.get(subject)
                described = present.subject(SIGNALS[rule.signal].of, subject)
                if described is None or not _is_watched(rule, subject, described):
                    resolved += [] if row is None else [row.id]
                    continue
                watch = step(_limits(rule), Watch(row is not None, self._since_s.get(key)), value, now.timestamp())
                if watch.since_s is not None:
                    since_s[key] = watch.since_s
                if watch.firing and row is None:
                    session.add(
                        AlertRow(
                            rule_id=rule.id,
                            subject=subject,
                            name=described.name,
                            labels=dict(described.labels),
                            value=value,
                            fired_at=now,
                        )
                    )
                elif row is not None and not watch.firing:
                    resolved.append(row.id)
                if row is not None and value is not None and value != row.value:
                    values[row.id] = value
        self._since_s = since_s
        await repository.set_values(session, values)
        await repository.resolve(session, resolved, now)

    def _forget_changed(self, rules: Sequence[AlertRuleRow]) -> None:
        """Let the periods of rules that an administrator has changed begin anew."""
        limits = {rule.id: (rule.signal, _limits(rule)) for rule in rules}
        self._since_s = {key: at for key, at in self._since_s.items() if limits.get(key[0]) == self._limits.get(key[0])}
        self._limits = limits


def _candidates(rule: AlertRuleRow, present: Readings, firing: Mapping[int, AlertRow]) -> dict[int, float | None]:
    """Return the values of the subjects that may fire or be resolved; all others have nothing to remember."""
    if (column := present.values.get(rule.signal)) is None:
        return dict.fromkeys(firing)
    subjects = [*column.at_least(rule.threshold), *firing]
    return {subject: column.value(subject) for subject in subjects}


def _limits(rule: AlertRuleRow) -> Limits:
    return Limits(rule.threshold, rule.clear, rule.for_s, rule.keep_s)


def _is_watched(rule: AlertRuleRow, subject: int, described: readings.Subject) -> bool:
    if not rule.labels or SIGNALS[rule.signal].of is not Of.NODE:
        return True
    node = NodeAttributes(subject, described.name, None, described.labels, {})
    return matches(Selector.model_construct(labels=rule.labels), node)
