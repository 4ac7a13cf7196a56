"""Requests of people and experiments: apply, confirm, roll back and extend changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from uuid import UUID, uuid4

from coresteer.audit.actions import Action
from coresteer.audit.service import record
from coresteer.auth.dependencies import Identity
from coresteer.changes import repository, validation
from coresteer.changes.context import ChangeContext
from coresteer.changes.events import ChangeEvent
from coresteer.changes.records import (
    ENDED_STATES,
    add_step,
    audit,
    audit_target,
    find_change,
    find_node,
    new_change_row,
    publish_change,
    utc_now,
)
from coresteer.changes.reports import record_report
from coresteer.changes.schemas import Change, ChangeRequest
from coresteer.changes.serialize import to_schema
from coresteer.changes.service import get_change
from coresteer.changes.tables import ChangeRow
from coresteer.errors import (
    AgentTimeout,
    Conflict,
    Invalid,
    NodeDisconnected,
    NodeElsewhere,
)
from coresteer.presence.connections import Command
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy
from coresteer_core.protocol import Apply, Confirm, Extend, FlowsMessage, Rollback
from coresteer_core.settings import parse_setting

_REPORT_TIMEOUT_S = 5.0
_PAGE_MOVE_TIMEOUT_S = 120.0
"""For the report of an agent that moves pages before it answers."""


async def apply(
    context: ChangeContext,
    *,
    node_id: int,
    request: ChangeRequest,
    identity: Identity,
    flows: FlowsMessage | None = None,
    experiment_id: int | None = None,
) -> Change:
    """Store a change, then send it to the agent. Raises Invalid, NotFound and Conflict; then nothing was sent.

    experiment_id: of the experiment whose run needs the change.
    """
    plan = request.plan.to_plan()
    row = await _store_new(
        context, plan, node_id=node_id, request=request, identity=identity, flows=flows, experiment_id=experiment_id
    )
    change = to_schema(row, utc_now())
    publish_change(context.bus, change)
    guardrails = [Guardrail(guardrail.metric, guardrail.max) for guardrail in request.guardrails]
    try:
        await context.connections.send(node_id, Apply(change.id, plan, request.confirm_timeout_s, guardrails))
    except NodeElsewhere as elsewhere:
        sentence = f"The change could not be sent to the node's agent; nothing was written. {elsewhere.detail}"
        await _record_unsent(context, node_id, change, sentence)
        raise NodeElsewhere(sentence) from None
    except NodeDisconnected as disconnected:
        sentence = (
            f"The node's agent disconnected before it received the change; nothing was written. {disconnected.detail}"
        )
        await _record_unsent(context, node_id, change, sentence)
        raise Conflict(sentence) from None
    except AgentTimeout:
        pass  # of the backend to which the agent is connected, which asks the agent: see changes.unanswered
    return change


async def _record_unsent(context: ChangeContext, node_id: int, change: Change, sentence: str) -> None:
    message = ChangeMessage(change.id, ChangeState.FAILED, sentence, [], EndedBy.ERROR)
    await record_report(context, node_id, message)


async def _store_new(
    context: ChangeContext,
    plan: Plan,
    *,
    node_id: int,
    request: ChangeRequest,
    identity: Identity,
    flows: FlowsMessage | None,
    experiment_id: int | None,
) -> ChangeRow:
    """Validate the plan against the node as it is now, and store the change. A refusal is recorded, too."""
    target = f"node {node_id}"
    on_record = _problems_on_record(context, identity, "change.apply", target=target, node_id=node_id, result="refused")
    async with on_record, context.database.session() as session:
        validation.check_plan(plan)
        if (elsewhere := context.connections.unreachable(node_id)) is not None:
            raise NodeElsewhere(elsewhere)
        node = await find_node(session, node_id)
        await repository.lock_node(session, node_id)
        found = validation.check_against_node(validation.view_of_node(node, flows), plan)
        blocked = validation.blocked_because(
            node,
            plan,
            identity=identity,
            connected=context.connections.is_connected(node_id),
            others=await repository.open_changes(session, [node_id]),
        )
        if blocked is not None:
            raise Conflict(blocked)
        undone = None if request.undoes is None else await find_change(session, request.undoes)
        if undone is not None and undone.node_id != node_id:
            raise Conflict("A change undoes only changes of its own node.")
        row = new_change_row(
            node,
            uuid4(),
            plan,
            found.sentence,
            created_by=identity.username,
            reason=request.reason,
            confirm_timeout_s=request.confirm_timeout_s,
            guardrails=request.guardrails,
            experiment_id=experiment_id,
            undoes=None if undone is None else undone.id,
            restores=request.restores,
        )
        session.add(row)
        add_step(row, ChangeState.APPLYING, "Sent to the agent.")
        detail = {"sentence": found.sentence, "reason": request.reason}
        audit(session, row, identity.username, "change.apply", result="requested", detail=detail)
    return row


async def confirm(context: ChangeContext, *, change_id: UUID, identity: Identity) -> Change:
    """Confirm an unconfirmed change and return it after its agent's report.

    Raises NotFound, Conflict, NodeDisconnected and AgentTimeout.
    """
    before = await _request(context, change_id, identity, "change.confirm", {ChangeState.UNCONFIRMED})
    async with _failure_on_record(context, identity, "change.confirm", before):
        if before.experiment_id is not None:
            raise Conflict("This change belongs to a run of an experiment, which rolls it back when the run ends.")
        change = await _send(context, before, Confirm(str(change_id)), lambda reported: reported.state in ENDED_STATES)
        if change.state is not ChangeState.CONFIRMED:
            raise Conflict(f"The change could not be confirmed: {_last_sentence(change)}")
    return change


async def roll_back(context: ChangeContext, *, change_id: UUID, identity: Identity) -> Change:
    """Roll back a change, confirmed or not, and return it after its agent's report.

    Raises NotFound, Conflict, NodeDisconnected and AgentTimeout.
    """
    allowed = {ChangeState.APPLYING, ChangeState.UNCONFIRMED, ChangeState.CONFIRMED, ChangeState.FAILED}
    before = await _request(context, change_id, identity, "change.roll_back", allowed)
    was_confirmed = before.state is ChangeState.CONFIRMED
    async with _failure_on_record(context, identity, "change.roll_back", before):
        change = await _send(
            context, before, Rollback(str(change_id)), lambda reported: was_confirmed or reported.state in ENDED_STATES
        )
        if change.state is not ChangeState.ROLLED_BACK:
            raise Conflict(f"The change could not be rolled back: {_last_sentence(change)}")
    return change


async def extend(context: ChangeContext, *, change_id: UUID, seconds: float, identity: Identity) -> Change:
    """Extend the time until an unconfirmed change is rolled back, to at most 600 s from now.

    Raises NotFound, Conflict, NodeDisconnected and AgentTimeout.
    """
    before = await _request(context, change_id, identity, "change.extend", {ChangeState.UNCONFIRMED})
    async with _failure_on_record(context, identity, "change.extend", before):
        change = await _send(context, before, Extend(str(change_id), seconds), lambda _: True)
        if change.state is not ChangeState.UNCONFIRMED:
            raise Conflict(f"The confirmation timeout could not be extended: {_last_sentence(change)}")
    return change


async def _request(
    context: ChangeContext, change_id: UUID, identity: Identity, action: Action, allowed: set[ChangeState]
) -> Change:
    """Record who requested the action and return the change. Raises NotFound, and Conflict in any other state."""
    change = await get_change(context.database, change_id)
    target = audit_target(change_id, change.node_name)
    async with _problems_on_record(context, identity, action, target=target, node_id=change.node_id, result="refused"):
        if change.state not in allowed:
            raise Conflict(_refusal(change))
    async with context.database.session() as session:
        record(
            session, actor=identity.username, action=action, target=target, node_id=change.node_id, result="requested"
        )
    return change


@asynccontextmanager
async def _problems_on_record(
    context: ChangeContext, identity: Identity, action: Action, *, target: str, node_id: int, result: str
) -> AsyncIterator[None]:
    """Record in the audit log a problem that the block raises, in a transaction of its own."""
    try:
        yield
    except (Conflict, Invalid, NodeDisconnected, AgentTimeout) as problem:
        async with context.database.session() as session:
            record(
                session,
                actor=identity.username,
                action=action,
                target=target,
                node_id=node_id,
                result=result,
                detail={"sentence": problem.detail},
            )
        raise


def _failure_on_record(
    context: ChangeContext, identity: Identity, action: Action, change: Change
) -> AbstractAsyncContextManager[None]:
    target = audit_target(UUID(change.id), change.node_name)
    return _problems_on_record(context, identity, action, target=target, node_id=change.node_id, result="failed")


async def _send(
    context: ChangeContext, change: Change, message: Command, is_response: Callable[[Change], bool]
) -> Change:
    """Send a message and wait for the agent's report. Raises NodeDisconnected and AgentTimeout."""
    moves_pages = any(parse_setting(action.key).moves_pages for action in change.plan.actions)
    timeout_s = _PAGE_MOVE_TIMEOUT_S if moves_pages else _REPORT_TIMEOUT_S
    with context.bus.subscribe() as events:
        await context.connections.send(change.node_id, message)
        try:
            async with asyncio.timeout(timeout_s):
                async for event in events:
                    if not isinstance(event, ChangeEvent) or event.change.id != change.id:
                        continue
                    told = event.change
                    is_observation = told.observation != change.observation and told.steps == change.steps
                    if not is_observation and is_response(told):
                        return told
        except TimeoutError:
            pass
    raise AgentTimeout(
        f"{change.node_name} did not answer within {timeout_s:g} s. The result is not known yet; "
        "the change shows it as soon as the agent reports."
    )


def _refusal(change: Change) -> str:
    if change.state is ChangeState.APPLYING:
        return "The agent is still applying the change; wait for its report."
    if change.state is ChangeState.CONFIRMED:
        return "The change is already confirmed."
    what = {ChangeState.ROLLED_BACK: "The change is already rolled back", ChangeState.FAILED: "The change has failed"}
    return f"{what.get(change.state, f'It is {change.state}')}: {_last_sentence(change)}"


def _last_sentence(change: Change) -> str:
    return change.steps[-1].sentence if change.steps else change.sentence
