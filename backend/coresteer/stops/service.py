"""Stops of enforcement: what one would reach, begin, turn into a restore, lift."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.actions import Action
from coresteer.audit.service import record
from coresteer.bus import PoliciesEvent
from coresteer.errors import Conflict, NotFound
from coresteer.experiments import repository as experiments
from coresteer.experiments import service as experiment_service
from coresteer.experiments.context import ExperimentContext
from coresteer.nodes.tables import NodeRow
from coresteer.policies import repository as policies
from coresteer.policies import stops
from coresteer.policies.in_force import EnabledPolicy, in_force
from coresteer.policies.selector import NodeAttributes
from coresteer.policies.tables import StopNodeRow, StopRow
from coresteer.presence.registry import NodeRegistry
from coresteer.stops.schemas import Reach, Stop, StopCreate, StopEffect, StoppedPolicy
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import MAX_STOPS


@dataclass(frozen=True)
class _Fleet:
    """What the effect of a stop depends on. changed: number of changed settings by node. experiments: by id."""

    nodes: Sequence[NodeAttributes]
    changed: Mapping[int, int | None]
    enabled: Sequence[EnabledPolicy]
    experiments: Mapping[int, frozenset[int]]


async def list_stops(session: AsyncSession, registry: NodeRegistry) -> list[Stop]:
    """Return the stops in force, oldest first, each with what it reaches now and how many agents obey."""
    rows = await stops.in_force(session)
    fleet = await _fleet(session) if rows else None
    return [] if fleet is None else [await _schema(session, registry, fleet, row) for row in rows]


async def effect_of(session: AsyncSession, registry: NodeRegistry, labels: dict[str, str]) -> StopEffect:
    """Return what a stop on the nodes with these labels would reach now."""
    fleet = await _fleet(session)
    return _effect(registry, fleet, _selected(fleet, labels))


async def begin(context: ExperimentContext, request: StopCreate, *, actor: str) -> Stop:
    """Begin a stop: agents learn it at once, experiments on its nodes end. Raises Conflict."""
    async with context.database.session() as session:
        await session.execute(text("SELECT pg_advisory_xact_lock(hashtext('coresteer.stop'))"))  # one after the other
        before = await stops.in_force(session)
        if any(stop.labels == request.labels for stop in before):
            raise Conflict("Enforcement is already stopped on these nodes.")
        if len(before) >= MAX_STOPS:
            raise Conflict(f"{MAX_STOPS} stops are in force; lift some first.")
        row = await _add(
            session, context.registry, request.labels, request.reason, restore=request.restore, actor=actor
        )
        stop = await _begun(session, context.registry, row, "enforcement.stop", actor)
        experiment_ids = _experiments_on(fleet := await _fleet(session), _selected(fleet, request.labels))
    context.bus.publish(PoliciesEvent(None))
    for experiment_id in experiment_ids:
        try:
            await experiment_service.cancel(context, experiment_id, actor=actor, why="Enforcement was stopped.")
        except Conflict:
            continue  # it has ended meanwhile
    return stop


async def restore(context: ExperimentContext, stop_id: int, *, actor: str) -> Stop:
    """Replace a stop that keeps the settings' values by one that restores them. Raises NotFound and Conflict."""
    async with context.database.session() as session:
        old = await _find(session, stop_id)
        if old.restore:
            raise Conflict("This stop has restored every setting already.")
        old.lifted_at = datetime.now(UTC)
        row = await _add(session, context.registry, old.labels, old.reason, restore=True, actor=actor)
        stop = await _begun(session, context.registry, row, "enforcement.restore", actor)
    context.bus.publish(PoliciesEvent(None))
    return stop


async def lift(context: ExperimentContext, stop_id: int, *, actor: str) -> None:
    """Lift a stop: policies write again, and what disabled ones had set is restored. Raises NotFound."""
    async with context.database.session() as session:
        row = await _find(session, stop_id)
        await _audited(session, context.registry, row, "enforcement.lift", actor)
        row.lifted_at, row.lifted_by = datetime.now(UTC), actor
    context.bus.publish(PoliciesEvent(None))


async def _find(session: AsyncSession, stop_id: int) -> StopRow:
    row = await session.get(StopRow, stop_id, with_for_update=True)
    if row is None or row.lifted_at is not None:
        raise NotFound(f"There is no stop {stop_id} in force; it may have been lifted.")
    return row


async def _add(
    session: AsyncSession, registry: NodeRegistry, labels: dict[str, str], reason: str, *, restore: bool, actor: str
) -> StopRow:
    row = StopRow(labels=labels, restore=restore, reason=reason, created_at=datetime.now(UTC), created_by=actor)
    session.add(row)
    await session.flush()
    nodes = [node for node in await policies.node_attributes(session) if stops.applying([row], node)]
    connected = [node.node_id for node in nodes if registry.is_connected(node.node_id)]
    session.add_all(StopNodeRow(stop_id=row.id, node_id=node_id, was_connected=True) for node_id in connected)
    await session.flush()
    return row


async def _begun(session: AsyncSession, registry: NodeRegistry, row: StopRow, action: Action, actor: str) -> Stop:
    """Record the beginning of a stop with what it reaches; return the stop."""
    stop = await _audited(session, registry, row, action, actor)
    reached = (stop.effect.connected, stop.effect.disconnected)
    row.nodes, row.settings = (sum(getattr(reach, name) for reach in reached) for name in ("nodes", "settings"))
    return stop


async def _audited(session: AsyncSession, registry: NodeRegistry, row: StopRow, action: Action, actor: str) -> Stop:
    """Record an action on a stop in the audit log with what it reaches; return the stop."""
    stop = await _schema(session, registry, await _fleet(session), row)
    reached = (stop.effect.connected, stop.effect.disconnected)
    detail = {
        "stop": row.id,
        "restore": row.restore,
        "reason": row.reason,
        "nodes": sum(reach.nodes for reach in reached),
        "settings": sum(reach.settings for reach in reached),
        "policies": [policy.name for policy in stop.effect.policies],
        "obeyed": stop.obeyed,
    }
    where = " ".join(f"{name}={glob}" for name, glob in sorted(row.labels.items())) or "all nodes"
    record(session, actor=actor, action=action, target=f"enforcement on {where}", detail=detail)
    return stop


async def _fleet(session: AsyncSession) -> _Fleet:
    changed = await session.execute(select(NodeRow.id, NodeRow.changed_settings))
    unfinished = await experiments.unfinished_experiments(session)
    return _Fleet(
        await policies.node_attributes(session),
        {row[0]: row[1] for row in changed},
        await policies.enabled_policies(session),
        {each.experiment_id: frozenset(each.node_ids) for each in unfinished},
    )


def _selected(fleet: _Fleet, labels: dict[str, str]) -> list[NodeAttributes]:
    scope = [StopRow(labels=labels)]
    return [node for node in fleet.nodes if stops.applying(scope, node)]


def _experiments_on(fleet: _Fleet, nodes: Iterable[NodeAttributes]) -> list[int]:
    ids = {node.node_id for node in nodes}
    return [experiment_id for experiment_id, on in fleet.experiments.items() if on & ids]


def _effect(registry: NodeRegistry, fleet: _Fleet, nodes: Sequence[NodeAttributes]) -> StopEffect:
    connected = [node for node in nodes if registry.is_connected(node.node_id)]
    others = [node for node in nodes if not registry.is_connected(node.node_id)]
    found = [policy for node in nodes for policy in in_force(fleet.enabled, node) if policy.mode is Mode.ENFORCE]
    names, counts = {policy.policy_id: policy.name for policy in found}, Counter(policy.policy_id for policy in found)
    ids = {node.node_id for node in nodes}
    held = [each for each in fleet.enabled if each.partial is not None and each.partial.compared & ids]
    return StopEffect(
        connected=_reach(fleet, connected),
        disconnected=_reach(fleet, others),
        policies=[StoppedPolicy(id=int(each), name=names[each], nodes=count) for each, count in counts.most_common()],
        rollouts=[policy.bodies[policy.partial.to_version].name for policy in held if policy.partial is not None],
        experiments=len(_experiments_on(fleet, nodes)),
    )


def _reach(fleet: _Fleet, nodes: Sequence[NodeAttributes]) -> Reach:
    counts = [fleet.changed.get(node.node_id) for node in nodes]
    known = [count for count in counts if count is not None]
    return Reach(nodes=len(nodes), settings=sum(known), uncounted=len(counts) - len(known))


async def _schema(session: AsyncSession, registry: NodeRegistry, fleet: _Fleet, row: StopRow) -> Stop:
    query = select(StopNodeRow).where(StopNodeRow.stop_id == row.id, StopNodeRow.obeyed_at.is_not(None))
    answers = {answer.node_id: answer for answer in await session.scalars(query)}
    nodes = _selected(fleet, row.labels)
    obeyed = [answers[node.node_id] for node in nodes if node.node_id in answers]
    waiting = [node.node_id for node in nodes if node.node_id not in answers]
    times = [
        (answer.obeyed_at - row.created_at).total_seconds()
        for answer in obeyed
        if answer.was_connected and answer.obeyed_at is not None
    ]
    unanswered = sum(registry.is_connected(node_id) for node_id in waiting)
    return Stop(
        id=row.id,
        labels=row.labels,
        restore=row.restore,
        reason=row.reason,
        created_at=row.created_at,
        created_by=row.created_by,
        effect=_effect(registry, fleet, nodes),
        obeyed=len(obeyed),
        within_s=max(times, default=None),
        unanswered=unanswered,
        waiting=len(waiting) - unanswered,
        stuck=sum(answer.stuck for answer in obeyed),
    )
