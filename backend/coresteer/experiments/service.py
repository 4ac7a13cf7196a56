"""Experiments: what one would do, its start, its cancellation, and what is shown of it."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from secrets import randbelow

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.auth.dependencies import Identity
from coresteer.auth.schemas import Role
from coresteer.changes.validation import view_of
from coresteer.errors import Conflict, Invalid, NotFound
from coresteer.experiments import repository, schedule, serialize, validation
from coresteer.experiments.arms import every_level, is_as_it_is
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.events import ExperimentEvent
from coresteer.experiments.repository import Done
from coresteer.experiments.schemas import (
    Experiment,
    ExperimentPage,
    ExperimentPreview,
    ExperimentState,
    ExperimentSummary,
)
from coresteer.experiments.spec import RecordedRun, Spec
from coresteer.experiments.tables import ExperimentRow
from coresteer.nodes import service as nodes
from coresteer.nodes.tables import NodeRow
from coresteer.policies import repository as policies
from coresteer.policies.in_force import in_force
from coresteer_core.experiments.model import Command
from coresteer_core.node.view import View
from coresteer_core.policies.base import Mode
from coresteer_core.protocol import Hello


async def get(session: AsyncSession, experiment_id: int) -> Experiment:
    """All of one experiment. Raises NotFound, and Conflict where another version kept what this one cannot read."""
    row = await find(session, experiment_id)
    places = await _places_of(session, [row])
    rows = await repository.runs(session, experiment_id)
    try:
        spec = msgspec.convert(row.spec, Spec)
        runs = [msgspec.convert(run.run, RecordedRun) for run in rows]
    except msgspec.ValidationError as error:
        raise Conflict(cannot_be_read(experiment_id, error)) from None
    return await asyncio.to_thread(serialize.whole, row, spec, runs, places.get(row.id))


async def find(session: AsyncSession, experiment_id: int, *, lock: bool = False) -> ExperimentRow:
    """One experiment's row; locked, it is not changed by others until the session's end. Raises NotFound."""
    row = await repository.find(session, experiment_id, lock=lock)
    if row is None:
        raise NotFound(f"There is no experiment {experiment_id}.")
    return row


def cannot_be_read(experiment_id: int, error: msgspec.ValidationError) -> str:
    """What is told of an experiment that another version of Coresteer kept."""
    why = str(error).replace("`", "")
    return f"Experiment {experiment_id} was kept by another version of Coresteer, and this one cannot read it: {why}."


async def page(
    session: AsyncSession,
    *,
    node_id: int | None,
    state: ExperimentState | None,
    older_than: int | None,
    limit: int,
) -> ExperimentPage:
    """Experiments, newest first."""
    rows = await repository.newest(session, node_id=node_id, state=state, older_than=older_than, limit=limit + 1)
    found = await _summaries(session, rows[:limit])
    return ExperimentPage(experiments=found, older=found[-1].id if len(rows) > limit else None)


async def summary(session: AsyncSession, experiment_id: int) -> ExperimentSummary | None:
    """One experiment's line, None when it is not there any more."""
    row = await repository.find(session, experiment_id)
    return None if row is None else (await _summaries(session, [row]))[0]


async def _summaries(session: AsyncSession, rows: Sequence[ExperimentRow]) -> list[ExperimentSummary]:
    done = await repository.done(session, [row.id for row in rows])
    places = await _places_of(session, rows)
    return [serialize.summary(row, done.get(row.id, Done(0, 0)), places.get(row.id)) for row in rows]


async def _places_of(session: AsyncSession, rows: Sequence[ExperimentRow]) -> dict[int, int]:
    """As _places; of those that run it is known without a look at the others."""
    if any(row.state == ExperimentState.QUEUED for row in rows):
        return _places(await repository.not_over(session))
    return {row.id: 0 for row in rows if row.state == ExperimentState.RUNNING}


def _places(not_over: Sequence[repository.Taken]) -> dict[int, int]:
    """The place in its node's queue of each experiment that is not over, 0 for one that runs. Oldest first."""
    places: dict[int, int] = {}
    waiting: dict[int, int] = {}
    for taken in not_over:
        if taken.state == ExperimentState.RUNNING:
            places[taken.experiment_id] = 0
            continue
        place = 1 + max(waiting.get(node_id, 0) for node_id in taken.node_ids)
        waiting |= dict.fromkeys(taken.node_ids, place)
        places[taken.experiment_id] = place
    return places


async def preview(session: AsyncSession, shared: ExperimentContext, spec: Spec, *, role: Role) -> ExperimentPreview:
    """What an experiment would do. Raises Invalid with the field, NotFound, and Conflict for a node never seen."""
    node, peer, seen, names = await _checked(session, shared, spec)
    warnings = await _warnings(session, spec, node, peer)
    blocked = _blocked_because(shared, spec, node, peer, role)
    arms = await asyncio.to_thread(validation.arm_previews, spec, seen, names)
    return ExperimentPreview(
        sentence=validation.sentence(spec, node.name, None if peer is None else peer.name),
        runs=schedule.run_count(spec),
        duration_s=schedule.duration_s(spec),
        arms=arms,
        warnings=warnings,
        blocked_because=blocked,
    )


async def start(shared: ExperimentContext, spec: Spec, *, identity: Identity) -> Experiment:
    """Queue an experiment; it begins when its nodes are free. Raises Invalid, NotFound and Conflict."""
    async with shared.database.session() as session:
        node, peer, _, _ = await _checked(session, shared, spec)
        if (blocked := _blocked_because(shared, spec, node, peer, identity.role)) is not None:
            raise Conflict(blocked)
        row = ExperimentRow(
            node_id=node.id,
            node=node,
            peer_node_id=None if peer is None else peer.id,
            spec=msgspec.to_builtins(spec),
            seed=randbelow(2**31) if spec.seed is None else spec.seed,
            runs_planned=schedule.run_count(spec),
            planned_s=schedule.duration_s(spec),
            state=ExperimentState.QUEUED,
            sentence=validation.sentence(spec, node.name, None if peer is None else peer.name),
            now="Waiting for its turn.",
            machine={},
            created_at=datetime.now(UTC),
            created_by=identity.username,
        )
        session.add(row)
        await session.flush()
        audit(session, identity.username, "experiment.start", row)
        experiment = await get(session, row.id)
    shared.wake.set()
    await tell(shared, experiment.id)
    return experiment


async def cancel(shared: ExperimentContext, experiment_id: int, *, actor: str) -> Experiment:
    """End it: at once while it is queued, else as soon as the node is as before. Raises NotFound and Conflict."""
    async with shared.database.session() as session:
        row = await find(session, experiment_id, lock=True)
        if row.state not in repository.OPEN:
            raise Conflict(f"This experiment is over: {row.sentence}")
        if row.ending is not None:
            raise Conflict(f"This experiment is ending already: {row.sentence}")
        sentence = f"{actor} cancelled it."
        if row.state == ExperimentState.QUEUED:
            end(row, ExperimentState.CANCELLED, sentence)
        else:
            row.ending, row.sentence = ExperimentState.CANCELLED, sentence
            row.now = "Ending: the node's settings go back."
        audit(session, actor, "experiment.cancel", row)
        await session.flush()
        experiment = await get(session, experiment_id)
    shared.wake.set()
    await tell(shared, experiment_id)
    return experiment


def end(row: ExperimentRow, state: ExperimentState, sentence: str) -> None:
    """It is over."""
    row.state, row.sentence, row.now, row.ended_at = state, sentence, "", datetime.now(UTC)


def audit(session: AsyncSession, actor: str, action: str, row: ExperimentRow) -> None:
    """Put on record where it stands."""
    detail = {"experiment": row.id, "state": row.state, "sentence": row.sentence, "seed": row.seed}
    target = f"experiment {row.id} on {row.node.name}"
    result = "failed" if row.state == ExperimentState.FAILED else "ok"
    record(session, actor=actor, action=action, target=target, node_id=row.node_id, result=result, detail=detail)


async def tell(shared: ExperimentContext, experiment_id: int) -> None:
    """Show everybody where it stands."""
    async with shared.database.session() as session:
        found = await summary(session, experiment_id)
    if found is not None:
        shared.bus.publish(ExperimentEvent(found))


async def _checked(
    session: AsyncSession, shared: ExperimentContext, spec: Spec
) -> tuple[NodeRow, NodeRow | None, View, dict[int, str]]:
    """The node, its peer, the node's view, and the names of the policies by id."""
    node = await _node(session, spec.node_id, "spec.node_id")
    peer = None if spec.peer_node_id is None else await _node(session, spec.peer_node_id, "spec.peer_node_id")
    seen = view_of(node, shared.registry.get(node.id).flows)
    peer_topology = None if peer is None else nodes.reported(peer).topology
    await asyncio.to_thread(validation.check, spec, seen, peer_topology)
    return node, peer, seen, await _policy_names(session, spec)


async def _node(session: AsyncSession, node_id: int, field: str) -> NodeRow:
    try:
        return await nodes.find(session, node_id)
    except NotFound as missing:
        raise Invalid(missing.detail, field=field) from None


async def _policy_names(session: AsyncSession, spec: Spec) -> dict[int, str]:
    names: dict[int, str] = {}
    for path, level in every_level(spec):
        if (wanted := level.policy) is None:
            continue
        row = await policies.find(session, wanted.policy_id)
        if row is None:
            raise Invalid(f"There is no policy {wanted.policy_id}.", field=f"{path}.policy.policy_id")
        if await policies.version(session, wanted.policy_id, wanted.version) is None:
            sentence = f"The policy “{row.name}” has no version {wanted.version}."
            raise Invalid(sentence, field=f"{path}.policy.version")
        names[row.id] = row.name
    return names


async def enforced_on(session: AsyncSession, node_ids: Sequence[int]) -> dict[str, list[str]]:
    """The names of the policies that are enforced on the nodes, by node name."""
    enabled = await policies.enabled(session)
    return {
        facts.name: [policy.name for policy in in_force(enabled, facts) if policy.mode is Mode.ENFORCE]
        for facts in await policies.node_attributes(session, node_ids)
    }


async def _warnings(session: AsyncSession, spec: Spec, node: NodeRow, peer: NodeRow | None) -> list[str]:
    warnings = validation.too_few(spec)
    both = [node] if peer is None else [node, peer]
    for name, paused in (await enforced_on(session, [row.id for row in both])).items():
        if paused:
            warnings.append(f"On {name} it pauses what is enforced: {', '.join(paused)}.")
    if peer is not None:
        warnings.append(f"{peer.name} makes the load, and its network carries it.")
    if isinstance(spec.workload, Command):
        warnings.append(
            f"It runs the command “{spec.workload.name}” that the agent's configuration on {node.name} allows."
        )
    queue = [taken for taken in await repository.not_over(session) if {row.id for row in both} & set(taken.node_ids)]
    if queue:
        first = "Another experiment on these nodes comes" if len(queue) == 1 else f"{len(queue)} others come"
        warnings.append(f"{first} first.")
    return warnings


def _blocked_because(
    shared: ExperimentContext, spec: Spec, node: NodeRow, peer: NodeRow | None, role: Role
) -> str | None:
    if role is Role.VIEWER:
        return "Starting an experiment needs the role operator; yours is viewer."
    for row in [node] if peer is None else [node, peer]:
        if not shared.connections.is_connected(row.id):
            return f"{row.name} is away; an experiment needs its agent connected."
    changes = not all(is_as_it_is(spec, arm) for arm in schedule.arms(spec))
    hello = None if node.hello is None else msgspec.convert(node.hello, Hello)
    if changes and (hello is None or hello.mode != "control"):
        reason = hello.observe_reason if hello is not None else None
        return f"The agent on {node.name} only observes. {reason or 'It did not say why.'}"
    return None
