"""Previews, changes, and what agents report about them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from uuid import UUID, uuid4

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.auth.dependencies import Identity
from coresteer.bus import Bus, NodeEvent
from coresteer.changes import lifecycle, repository, validation
from coresteer.changes.events import ChangeEvent
from coresteer.changes.schemas import Change, ChangePage, ChangeRequest, GuardrailIn, PreviewAnswer, PreviewRequest
from coresteer.changes.serialize import to_schema
from coresteer.changes.tables import ChangeRow, ChangeStepRow, EarlyReportRow
from coresteer.db import Database
from coresteer.errors import Conflict, Invalid, NodeAway, NotFound, Problem
from coresteer.nodes.tables import NodeRow
from coresteer.presence.connections import Connections
from coresteer_core.changes.effect import expected
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.plan import DesiredValue, Plan, preview, sentence_of
from coresteer_core.node.rates import Rates
from coresteer_core.protocol import (
    Apply,
    ChangeAck,
    ChangeMessage,
    ChangeState,
    Confirm,
    EndedBy,
    Extend,
    FlowsMessage,
    Rollback,
    ToAgent,
)

log = logging.getLogger("coresteer")

_ANSWER_S = 5.0
_MOST_EARLY = 256
"""Reports of changes that are not known yet, kept of each node."""
_POLICY_KEEPS_AFTER_S = 10.0
_ENDED = (ChangeState.CONFIRMED, ChangeState.ROLLED_BACK, ChangeState.FAILED)


class NoAnswer(Problem):
    """504: the agent is connected but did not answer in time."""

    status, slug, title = 504, "no-answer", "The node's agent did not answer in time"


async def preview_for(
    session: AsyncSession,
    node_id: int,
    request: PreviewRequest,
    *,
    identity: Identity,
    connected: bool,
    rates: Sequence[Rates],
    flows: FlowsMessage | None = None,
) -> PreviewAnswer:
    """What would happen. rates: the node's last minute; flows: its processes that talk over the network."""
    node = await _node(session, node_id)
    view = validation.view_of(node, flows)
    found = preview(
        view,
        [DesiredValue(desired_value.key, desired_value.value) for desired_value in request.desired],
        reason=f"Asked for by {identity.username}.",
        allow_isolated=request.allow_isolated,
    )
    blocked = " ".join(refusal.sentence for refusal in found.refused) or validation.blocked_because(
        node,
        found.plan,
        role=identity.role,
        connected=connected,
        others=await repository.open_on(session, [node_id]),
    )
    # tens of milliseconds for 256 CPUs and 600 interrupts, which others need not wait for
    effect = [] if found.refused else await asyncio.to_thread(expected, found.plan, view, rates)
    return PreviewAnswer(
        plan=found.plan,
        sentence=found.sentence,
        commands=found.commands,
        expected=effect,
        warnings=found.warnings,
        refused=found.refused,
        can_apply=blocked is None,
        blocked_because=blocked,
    )


async def apply(
    database: Database,
    connections: Connections,
    bus: Bus,
    *,
    node_id: int,
    request: ChangeRequest,
    identity: Identity,
    flows: FlowsMessage | None = None,
    experiment_id: int | None = None,
) -> Change:
    """Keep the change, then send it to the agent. Raises Invalid and Conflict; then nothing was sent.

    experiment_id: of the experiment whose run it is for.
    """
    plan = request.plan.to_plan()
    change_id = uuid4()
    kept = _on_record(database, identity, "change.apply", target=f"node {node_id}", node_id=node_id, result="refused")
    async with kept, database.session() as session:
        validation.check_plan(plan)
        node = await _node(session, node_id)
        await repository.one_at_a_time(session, node_id)
        found = validation.check_against_node(validation.view_of(node, flows), plan)
        blocked = validation.blocked_because(
            node,
            plan,
            role=identity.role,
            connected=connections.is_connected(node_id),
            others=await repository.open_on(session, [node_id]),
        )
        if blocked is not None:
            raise Conflict(blocked)
        row = ChangeRow(
            id=change_id,
            node_id=node_id,
            node=node,
            plan=msgspec.to_builtins(plan),
            sentence=found.sentence,
            state=ChangeState.APPLYING,
            created_by=identity.username,
            experiment_id=experiment_id,
            reason=request.reason,
            created_at=_now(),
            confirm_timeout_s=request.confirm_timeout_s,
            guardrails=[guardrail.model_dump() for guardrail in request.guardrails],
            results=[],
            steps=[],
        )
        session.add(row)
        _step(row, ChangeState.APPLYING, "Sent to the agent.")
        detail = {"sentence": found.sentence, "reason": request.reason}
        _audit(session, row, identity.username, "change.apply", result="asked", detail=detail)
        change = to_schema(row, _now())
    publish(bus, change)
    guardrails = [Guardrail(guardrail.metric, guardrail.max) for guardrail in request.guardrails]
    try:
        await connections.send(node_id, Apply(str(change_id), plan, request.confirm_timeout_s, guardrails))
    except NodeAway as away:
        sentence = f"The node's agent went away before it got the change; nothing was written. {away.detail}"
        message = ChangeMessage(str(change_id), ChangeState.FAILED, sentence, [], EndedBy.ERROR)
        await on_change_message(database, connections, bus, node_id, message)
        raise Conflict(sentence) from None
    return change


async def confirm(
    database: Database, connections: Connections, bus: Bus, *, change_id: UUID, identity: Identity
) -> Change:
    """Keep an unconfirmed change; the answer is what its agent made of it, not what was hoped for."""
    before = await _ask(database, change_id, identity, "change.confirm", {ChangeState.UNCONFIRMED})
    async with _failure_on_record(database, identity, "change.confirm", before):
        if before.experiment_id is not None:
            raise Conflict("It is a run's of an experiment, which undoes it when the run is over.")
        change = await _tell(connections, bus, before, Confirm(str(change_id)), lambda told: told.state in _ENDED)
        if change.state is not ChangeState.CONFIRMED:
            raise Conflict(f"It could not be kept: {_last_sentence(change)}")
    return change


async def roll_back(
    database: Database, connections: Connections, bus: Bus, *, change_id: UUID, identity: Identity
) -> Change:
    """Undo a change, kept or not; the answer is what its agent made of it."""
    may = {ChangeState.APPLYING, ChangeState.UNCONFIRMED, ChangeState.CONFIRMED, ChangeState.FAILED}
    before = await _ask(database, change_id, identity, "change.roll_back", may)
    kept = before.state is ChangeState.CONFIRMED
    async with _failure_on_record(database, identity, "change.roll_back", before):
        change = await _tell(
            connections, bus, before, Rollback(str(change_id)), lambda told: kept or told.state in _ENDED
        )
        if change.state is not ChangeState.ROLLED_BACK:
            raise Conflict(f"It could not be rolled back: {_last_sentence(change)}")
    return change


async def extend(
    database: Database, connections: Connections, bus: Bus, *, change_id: UUID, seconds: float, identity: Identity
) -> Change:
    """Give an unconfirmed change more time."""
    before = await _ask(database, change_id, identity, "change.extend", {ChangeState.UNCONFIRMED})
    async with _failure_on_record(database, identity, "change.extend", before):
        change = await _tell(connections, bus, before, Extend(str(change_id), seconds), lambda _: True)
        if change.state is not ChangeState.UNCONFIRMED:
            raise Conflict(f"It has no more time: {_last_sentence(change)}")
    return change


async def get(database: Database, change_id: UUID) -> Change:
    """One change. Raises NotFound."""
    async with database.session() as session:
        return to_schema(await _row(session, change_id), _now())


async def page(
    session: AsyncSession,
    *,
    node_id: int | None,
    is_open: bool | None,
    from_time: datetime | None,
    to_time: datetime | None,
    older_than: UUID | None,
    limit: int,
) -> ChangePage:
    """Changes, newest first. The range takes in every change that was under way at some time of it."""
    rows = await repository.newest(
        session,
        node_id=node_id,
        is_open=is_open,
        from_time=from_time,
        to_time=to_time,
        older_than=older_than,
        limit=limit + 1,
    )
    changes = [to_schema(row, _now()) for row in rows[:limit]]
    return ChangePage(changes=changes, older=changes[-1].id if len(rows) > limit else None)


async def on_change_message(
    database: Database, connections: Connections, bus: Bus, node_id: int, message: ChangeMessage
) -> None:
    """Keep what an agent reports; late, repeated and unknown reports do no harm.

    One of a change that is not known yet is kept until the decision that it belongs to comes. An end is answered with
    ChangeAck once it is stored, so that the agent need not tell it again.
    """
    try:
        change_id = UUID(message.change_id)
    except ValueError:
        log.warning("Node %d reports a change with the id %r, which is not a UUID.", node_id, message.change_id)
        return
    async with database.session() as session:
        row = await repository.get(session, change_id, lock=True)
        if row is not None and row.node_id == node_id:
            _take(session, row, message)
            change = to_schema(row, _now())
        else:
            change = None
            if row is not None:
                log.warning("Node %d reports the change %s, which is another node's.", node_id, change_id)
            else:
                await _keep_early(session, node_id, change_id, message)
    if change is not None:
        publish(bus, change)
    if message.state in _ENDED:
        await _try_to_send(connections, node_id, ChangeAck(message.change_id, message.state))


async def _keep_early(session: AsyncSession, node_id: int, change_id: UUID, message: ChangeMessage) -> None:
    await repository.one_at_a_time(session, node_id)
    if await repository.node(session, node_id) is not None:
        told = msgspec.to_builtins(message)
        row = EarlyReportRow(node_id=node_id, change_id=change_id, at=_now(), message=told)
        await repository.keep_early(session, row, _MOST_EARLY)


async def adopt(
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
) -> Change | None:
    """Keep a change that a policy on the node began by itself, with what was told of it before; publish it afterwards.

    Within one_at_a_time of the node. policy_id: None of one that is not known here. None when the id is another node's.
    """
    row = await repository.get(session, change_id)
    if row is not None:
        return to_schema(row, _now()) if row.node_id == node.id else None
    row = ChangeRow(
        id=change_id,
        node_id=node.id,
        node=node,
        plan=msgspec.to_builtins(plan),
        sentence=_plan_sentence(node, plan, flows),
        state=ChangeState.APPLYING,
        created_by=created_by,
        policy_id=policy_id,
        reason=reason,
        created_at=_now(),
        confirm_timeout_s=_POLICY_KEEPS_AFTER_S,
        guardrails=[guardrail.model_dump() for guardrail in guardrails],
        results=[],
        steps=[],
    )
    session.add(row)
    _step(row, ChangeState.APPLYING, "Begun by the policy on the node.")
    _audit(
        session, row, created_by, "change.apply", result="asked", detail={"sentence": row.sentence, "reason": reason}
    )
    await session.flush()
    for early in await repository.take_early(session, node.id, change_id):
        _take(session, row, msgspec.convert(early.message, ChangeMessage))
    return to_schema(row, _now())


def _plan_sentence(node: NodeRow, plan: Plan, flows: FlowsMessage | None) -> str:
    if node.topology is None or node.inventory is None:
        return "; ".join(f"{action.key} goes from {action.was} to {action.becomes}" for action in plan.actions) + "."
    return sentence_of(validation.view_of(node, flows), plan)


async def to_ask(database: Database, node_ids: Sequence[int]) -> dict[int, list[ToAgent]]:
    """What to ask agents that connect, by node: how open changes stand, for a report may have been lost.

    To extend by no time changes nothing, and the agent answers with the present state, or that it does not know it.
    """
    questions: dict[int, list[ToAgent]] = {}
    async with database.session() as session:
        for row in await repository.open_on(session, node_ids):
            questions.setdefault(row.node_id, []).append(Extend(str(row.id), 0.0))
    return questions


async def _try_to_send(connections: Connections, node_id: int, message: ToAgent) -> None:
    with suppress(NodeAway):  # gone again: it is asked and tells again when it comes back
        await connections.send(node_id, message)


def _take(session: AsyncSession, row: ChangeRow, message: ChangeMessage) -> None:
    known = ChangeState(row.state)
    state = lifecycle.state_after(known, message)
    if state is None:
        return
    now = _now()
    if state is ChangeState.UNCONFIRMED:
        row.deadline_at = lifecycle.deadline(message, now) or row.deadline_at
        row.applied_at = row.applied_at or now
    if message.state is state and message.results:
        row.results = msgspec.to_builtins(message.results)
    last = row.steps[-1] if row.steps else None
    if state is known and last is not None and last.sentence == message.sentence:
        return
    _step(row, state, message.sentence)
    if state is not known:
        row.state = state
        if state in _ENDED:
            row.ended_at = now
            row.ended_by = message.ended_by
            row.deadline_at = None
            if state is ChangeState.CONFIRMED:
                row.applied_at = row.applied_at or now
    result = "failed" if message.state is ChangeState.FAILED else "ok"
    _audit(session, row, "agent", f"change.{message.state}", result=result, detail={"sentence": message.sentence})


async def _ask(database: Database, change_id: UUID, identity: Identity, action: str, may: set[ChangeState]) -> Change:
    """The change, once it is on record who asked for what. Raises NotFound, and Conflict in a state not among may."""
    change = await get(database, change_id)
    target = _target(change_id, change.node_name)
    async with _on_record(database, identity, action, target=target, node_id=change.node_id, result="refused"):
        if change.state not in may:
            raise Conflict(_why_not(change))
    async with database.session() as session:
        record(session, actor=identity.username, action=action, target=target, node_id=change.node_id, result="asked")
    return change


@asynccontextmanager
async def _on_record(
    database: Database, identity: Identity, action: str, *, target: str, node_id: int, result: str
) -> AsyncIterator[None]:
    """What is raised inside goes into the audit log with its sentence, in a transaction of its own."""
    try:
        yield
    except (Conflict, Invalid, NodeAway, NoAnswer) as problem:
        async with database.session() as session:
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
    database: Database, identity: Identity, action: str, change: Change
) -> AbstractAsyncContextManager[None]:
    target = _target(UUID(change.id), change.node_name)
    return _on_record(database, identity, action, target=target, node_id=change.node_id, result="failed")


def _target(change_id: UUID, node_name: str) -> str:
    return f"change {change_id} on {node_name}"


async def _tell(
    connections: Connections, bus: Bus, change: Change, message: ToAgent, is_answer: Callable[[Change], bool]
) -> Change:
    """Send and wait for the agent's report. Raises NodeAway and NoAnswer."""
    with bus.subscribe() as events:
        await connections.send(change.node_id, message)
        try:
            async with asyncio.timeout(_ANSWER_S):
                async for event in events:
                    if isinstance(event, ChangeEvent) and event.change.id == change.id and is_answer(event.change):
                        return event.change
        except TimeoutError:
            pass
    raise NoAnswer(
        f"{change.node_name} did not answer within {_ANSWER_S:g} s. Whether it was done is not known yet; "
        "the change shows it as soon as the agent reports."
    )


def _why_not(change: Change) -> str:
    if change.state is ChangeState.APPLYING:
        return "The agent is still applying it; wait for its report."
    if change.state is ChangeState.CONFIRMED:
        return "It was kept already."
    what = {ChangeState.ROLLED_BACK: "It was rolled back already", ChangeState.FAILED: "It has failed"}
    return f"{what.get(change.state, f'It is {change.state}')}: {_last_sentence(change)}"


def _last_sentence(change: Change) -> str:
    return change.steps[-1].sentence if change.steps else change.sentence


def _step(row: ChangeRow, state: ChangeState, sentence: str) -> None:
    row.steps.append(ChangeStepRow(at=_now(), state=state, sentence=sentence))


def _audit(
    session: AsyncSession, row: ChangeRow, actor: str, action: str, *, result: str = "ok", detail: Mapping[str, object]
) -> None:
    record(
        session,
        actor=actor,
        action=action,
        target=_target(row.id, row.node.name),
        node_id=row.node_id,
        result=result,
        detail=detail,
    )


def publish(bus: Bus, change: Change) -> None:
    """Tell that the change took a step."""
    bus.publish(ChangeEvent(change))
    bus.publish(NodeEvent(change.node_id))  # the number of its open changes


async def _node(session: AsyncSession, node_id: int) -> NodeRow:
    node = await repository.node(session, node_id)
    if node is None:
        raise NotFound(f"There is no node {node_id}.")
    return node


async def _row(session: AsyncSession, change_id: UUID) -> ChangeRow:
    row = await repository.get(session, change_id)
    if row is None:
        raise NotFound(f"There is no change {change_id}.")
    return row


def _now() -> datetime:
    return datetime.now(UTC)
