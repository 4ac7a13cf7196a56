"""Store agents' reports about changes, including those that a policy on the node started."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import MappingProxyType
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.actions import Action
from coresteer.changes import lifecycle, repository, validation
from coresteer.changes.context import ChangeContext
from coresteer.changes.records import ENDED_STATES, add_step, audit, new_change_row, publish_change, utc_now
from coresteer.changes.schemas import Change, GuardrailIn
from coresteer.changes.serialize import to_schema
from coresteer.changes.tables import ChangeRow, EarlyReportRow
from coresteer.changes.undone import to_schemas
from coresteer.db import Database
from coresteer.errors import NodeDisconnected
from coresteer.instruments import CHANGES
from coresteer.nodes.tables import NodeRow
from coresteer_core.bounds import MAX_SENTENCE
from coresteer_core.changes.plan import Plan, summarize_plan
from coresteer_core.changes.report import ChangeMessage, ChangeState, cut_text
from coresteer_core.protocol import ChangeAck, Extend, FlowsMessage

log = logging.getLogger("coresteer")

_ACTIONS: Mapping[ChangeState, Action] = MappingProxyType(
    {
        ChangeState.APPLYING: "change.applying",
        ChangeState.UNCONFIRMED: "change.unconfirmed",
        ChangeState.CONFIRMED: "change.confirmed",
        ChangeState.ROLLED_BACK: "change.rolled_back",
        ChangeState.FAILED: "change.failed",
    }
)
_MAX_EARLY_REPORTS = 256
"""Reports of unknown changes stored per node; beyond that the oldest are dropped."""
_MAX_STEPS = 32
"""Of a change, which each report sends to every page; a further report of the same state replaces the last step."""
_MAX_AUDITED = 500
"""Characters of an agent's sentence in the audit log, of which retention deletes nothing."""
_MAX_QUERIES = 64
"""Changes about which a connecting agent is asked; UnansweredChanges asks about further ones that are applying."""
_POLICY_CONFIRMS_AFTER_S = 10.0


async def record_report(context: ChangeContext, node_id: int, message: ChangeMessage) -> None:
    """Store an agent's report about a change; late and repeated reports change nothing.

    A report of an unknown change is stored until the decision that the change belongs to arrives. The end of a change
    is acknowledged with ChangeAck once it is stored, so that the agent does not report it again.
    """
    try:
        change_id = UUID(message.change_id)
    except ValueError:
        log.warning("Node %d reports a change with the id %r, which is not a UUID.", node_id, message.change_id)
        return
    CHANGES.labels(message.state.value).inc()
    async with context.database.session() as session:
        row = await repository.find_change(session, change_id, lock=True)
        if row is not None and row.node_id == node_id:
            _update(session, row, message)
            (change,) = await to_schemas(session, [row], utc_now())
        else:
            change = None
            if row is not None:
                log.warning("Node %d reports the change %s, which belongs to another node.", node_id, change_id)
            else:
                await _store_early(session, node_id, change_id, message)
    if change is not None:
        publish_change(context.bus, change)
    if message.state in ENDED_STATES:
        with suppress(NodeDisconnected):  # it reports again when it reconnects
            await context.connections.send(node_id, ChangeAck(message.change_id, message.state))


async def _store_early(session: AsyncSession, node_id: int, change_id: UUID, message: ChangeMessage) -> None:
    await repository.lock_node(session, node_id)
    if await repository.find_node(session, node_id) is not None:
        encoded = msgspec.to_builtins(message)
        row = EarlyReportRow(node_id=node_id, change_id=change_id, at=utc_now(), message=encoded)
        await repository.store_early_report(session, row, _MAX_EARLY_REPORTS)


async def record_policy_change(
    session: AsyncSession,
    node: NodeRow,
    *,
    change_id: UUID,
    plan: Plan,
    flows: FlowsMessage | None,
    policy_id: int | None,
    created_by: str,
    reason: str,
    guardrails: Sequence[GuardrailIn],
    decided_at: datetime,
    restores: bool = False,
) -> Change | None:
    """Store a change that a policy on the node started, with the reports that arrived before; the caller publishes it.

    The node must be locked with lock_node. decided_at: by the backend's clock; an agent that was disconnected reports
    later. policy_id: None for a policy that this backend does not have. restores: it restores values from before the
    policy. Returns None when the id belongs to another node's change.
    """
    row = await repository.find_change(session, change_id)
    if row is not None:
        return to_schema(row, utc_now()) if row.node_id == node.id else None
    row = new_change_row(
        node,
        change_id,
        plan,
        _plan_sentence(node, plan, flows),
        created_by=created_by,
        reason=reason,
        confirm_timeout_s=_POLICY_CONFIRMS_AFTER_S,
        guardrails=guardrails,
        policy_id=policy_id,
        restores=restores,
    )
    row.created_at = decided_at
    session.add(row)
    add_step(row, ChangeState.APPLYING, "Started by the policy on the node.")
    detail = {"sentence": cut_text(row.sentence, _MAX_AUDITED), "reason": cut_text(reason, _MAX_AUDITED)}
    audit(session, row, created_by, "change.apply", result="requested", detail=detail)
    await session.flush()
    for early in await repository.pop_early_reports(session, node.id, change_id):
        _update(session, row, msgspec.convert(early.message, ChangeMessage))
    return to_schema(row, utc_now())


def _plan_sentence(node: NodeRow, plan: Plan, flows: FlowsMessage | None) -> str:
    if node.topology is None or node.inventory is None:
        return "; ".join(f"{action.key} changes from {action.was} to {action.becomes}" for action in plan.actions) + "."
    return summarize_plan(validation.view_of_node(node, flows), plan)


async def state_queries(database: Database, node_ids: Sequence[int]) -> dict[int, list[Extend]]:
    """Return messages that make connecting agents report their open changes again, by node: a report may be lost.

    To extend a change by 0 s changes nothing, and the agent answers with its state, or that it does not know it.
    """
    queries: dict[int, list[Extend]] = {}
    async with database.session() as session:
        for row in await repository.open_changes(session, node_ids):
            of_node = queries.setdefault(row.node_id, [])
            if len(of_node) < _MAX_QUERIES:
                of_node.append(Extend(str(row.id), 0.0))
    return queries


def _update(session: AsyncSession, row: ChangeRow, message: ChangeMessage) -> None:
    before = ChangeState(row.state)
    state = lifecycle.state_after(before, message)
    if state is None:
        return
    at = utc_now()
    if state is ChangeState.UNCONFIRMED:
        row.deadline_at = lifecycle.confirm_deadline(message, at) or row.deadline_at
        row.applied_at = row.applied_at or _applied_at(row, at)
    if message.state is state and message.results:
        row.results = msgspec.to_builtins(message.results)
    last = row.steps[-1] if row.steps else None
    sentence = cut_text(message.sentence, MAX_SENTENCE)
    if state is before and last is not None and last.sentence == sentence:
        return
    # each failure is audited: a rollback that failed can be requested again
    is_audited = message.state is not ChangeState.FAILED and any(step.state == message.state for step in row.steps[1:])
    if state is before and last is not None and len(row.steps) >= _MAX_STEPS:
        last.at, last.sentence = at, sentence
    else:
        add_step(row, state, sentence)
    if state is not before:
        row.state = state
        if state in ENDED_STATES:
            row.ended_at = at
            row.ended_by = message.ended_by
            if state is ChangeState.CONFIRMED:
                row.deadline_at = None
                row.applied_at = row.applied_at or _applied_at(row, at)
    if not is_audited:
        result = "failed" if message.state is ChangeState.FAILED else "ok"
        detail = {"sentence": cut_text(sentence, _MAX_AUDITED)}
        audit(session, row, "agent", _ACTIONS[message.state], result=result, detail=detail)


def _applied_at(row: ChangeRow, reported_at: datetime) -> datetime:
    """Return when a change was applied that is reported now: a policy applies it at once, and may report late."""
    is_late = reported_at - row.created_at > timedelta(seconds=lifecycle.REPORT_TIMEOUT_S)
    return row.created_at if row.policy_id is not None and is_late else reported_at
