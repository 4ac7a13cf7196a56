"""Experiments: preview, start, cancel, read."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from secrets import randbelow

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.application_metrics.service import find_declared
from coresteer.audit.actions import Action
from coresteer.audit.service import record
from coresteer.auth.dependencies import Identity
from coresteer.auth.schemas import Role
from coresteer.changes.validation import view_of_node
from coresteer.db import Database
from coresteer.errors import Conflict, Invalid, NotFound
from coresteer.experiments import repository, schedule, serialize, validation
from coresteer.experiments.arm_config import all_levels, changes_nothing, runs_on_both_nodes
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.events import ExperimentEvent, QueueEvent
from coresteer.experiments.repository import RunCounts
from coresteer.experiments.schemas import (
    Experiment,
    ExperimentPage,
    ExperimentPreview,
    ExperimentState,
    ExperimentSummary,
)
from coresteer.experiments.spec import RecordedRun, Spec
from coresteer.experiments.tables import ExperimentRow
from coresteer.experiments.templates import deviations_of
from coresteer.nodes import service as nodes
from coresteer.nodes.tables import NodeRow, effective_labels
from coresteer.policies import repository as policies
from coresteer.policies.in_force import in_force
from coresteer.policies.stops import stopped_nodes
from coresteer_core.experiments.model import Command
from coresteer_core.node.view import View
from coresteer_core.policies.base import Mode
from coresteer_core.protocol import Hello


async def get_experiment(session: AsyncSession, experiment_id: int) -> Experiment:
    """Return one experiment with its runs and analysis.

    Raises NotFound, and Conflict if another version stored it in an unreadable form.
    """
    row = await find_row(session, experiment_id)
    positions = await _queue_positions_of(session, [row])
    rows = await repository.list_runs(session, experiment_id)
    try:
        spec = msgspec.convert(row.spec, Spec)
        runs = [msgspec.convert(run.run, RecordedRun) for run in rows]
    except msgspec.ValidationError as error:
        raise Conflict(unreadable_sentence(experiment_id, error)) from None
    applications = await find_declared(session, spec.application_metrics, deleted=True)
    return await asyncio.to_thread(serialize.to_experiment, row, spec, runs, positions.get(row.id), applications)


async def find_row(session: AsyncSession, experiment_id: int, *, lock: bool = False) -> ExperimentRow:
    """Return the row of one experiment. lock: until the end of the transaction. Raises NotFound."""
    row = await repository.find_experiment(session, experiment_id, lock=lock)
    if row is None:
        raise NotFound(f"There is no experiment {experiment_id}.")
    return row


def unreadable_sentence(experiment_id: int, error: msgspec.ValidationError) -> str:
    """Return the error message for an experiment whose stored form this version of Coresteer cannot read."""
    why = str(error).replace("`", "")
    return f"Experiment {experiment_id} was stored by another version of Coresteer; this one cannot read it: {why}."


async def list_experiments(
    session: AsyncSession,
    *,
    node_id: int | None,
    state: ExperimentState | None,
    older_than: int | None,
    limit: int,
) -> ExperimentPage:
    """Return a page of experiments, newest first."""
    rows = await repository.newest_experiments(
        session, node_id=node_id, state=state, older_than=older_than, limit=limit + 1
    )
    found = await _summaries(session, rows[:limit])
    return ExperimentPage(experiments=found, older=found[-1].id if len(rows) > limit else None)


async def summary(session: AsyncSession, experiment_id: int) -> ExperimentSummary | None:
    """Return the list entry of one experiment, None if it does not exist."""
    row = await repository.find_experiment(session, experiment_id)
    return None if row is None else (await _summaries(session, [row]))[0]


async def events_of(database: Database, experiment_ids: Sequence[int]) -> list[ExperimentEvent]:
    """Return the events that say what state these experiments are in now."""
    async with database.session() as session:
        found = [await summary(session, experiment_id) for experiment_id in experiment_ids]
    return [ExperimentEvent(each) for each in found if each is not None]


async def _summaries(session: AsyncSession, rows: Sequence[ExperimentRow]) -> list[ExperimentSummary]:
    done = await repository.count_runs(session, [row.id for row in rows])
    positions = await _queue_positions_of(session, rows)
    return [serialize.to_summary(row, done.get(row.id, RunCounts(0, 0)), positions.get(row.id)) for row in rows]


async def _queue_positions_of(session: AsyncSession, rows: Sequence[ExperimentRow]) -> dict[int, int]:
    """Return the queue positions of experiments by id; reads the whole queue only if one of them is queued."""
    if any(row.state == ExperimentState.QUEUED for row in rows):
        return _queue_positions(await repository.unfinished_experiments(session))
    return {row.id: 0 for row in rows if row.state == ExperimentState.RUNNING}


def _queue_positions(unfinished: Sequence[repository.UnfinishedExperiment]) -> dict[int, int]:
    """Return the queue position of each experiment by id, 0 for running ones. unfinished: oldest first."""
    positions: dict[int, int] = {}
    waiting: dict[int, int] = {}
    for experiment in unfinished:
        if experiment.state == ExperimentState.RUNNING:
            positions[experiment.experiment_id] = 0
            continue
        position = 1 + max(waiting.get(node_id, 0) for node_id in experiment.node_ids)
        waiting |= dict.fromkeys(experiment.node_ids, position)
        positions[experiment.experiment_id] = position
    return positions


async def preview(
    session: AsyncSession, context: ExperimentContext, spec: Spec, *, identity: Identity
) -> ExperimentPreview:
    """Return what an experiment would do and how long it would take.

    Raises Invalid with the field, NotFound, and Conflict for a node that has not reported its topology.
    """
    node, peer, view, names = await _validate(session, context, spec)
    applications = await find_declared(session, spec.application_metrics)
    warnings = await _warnings(session, spec, node, peer)
    blocked = _blocked_because(context, spec, node, peer, identity, stopped=await stopped_nodes(session))
    netdev = validation.expected_netdev(spec, view.inventory, simulated=node.simulated)
    arms = await asyncio.to_thread(validation.arm_previews, spec, view, names, netdev)
    return ExperimentPreview(
        sentence=validation.summary_sentence(spec, node.name, None if peer is None else peer.name, applications),
        runs=schedule.run_count(spec),
        duration_s=schedule.estimate_duration_s(spec),
        arms=arms,
        warnings=warnings,
        deviations=[each.en for each in deviations_of(spec)],
        blocked_because=blocked,
    )


async def start(context: ExperimentContext, spec: Spec, *, identity: Identity) -> Experiment:
    """Queue an experiment; it starts when its nodes are free. Raises Invalid, NotFound and Conflict."""
    async with context.database.session() as session:
        node, peer, _, _ = await _validate(session, context, spec)
        stopped = await stopped_nodes(session)
        if (blocked := _blocked_because(context, spec, node, peer, identity, stopped=stopped)) is not None:
            raise Conflict(blocked)
        applications = await find_declared(session, spec.application_metrics)
        row = ExperimentRow(
            node_id=node.id,
            node=node,
            peer_node_id=None if peer is None else peer.id,
            spec=msgspec.to_builtins(spec),
            seed=randbelow(2**31) if spec.seed is None else spec.seed,
            runs_planned=schedule.run_count(spec),
            planned_s=schedule.estimate_duration_s(spec),
            state=ExperimentState.QUEUED,
            sentence=validation.summary_sentence(spec, node.name, None if peer is None else peer.name, applications),
            activity="Waiting in the queue of its node.",
            machine={},
            created_at=datetime.now(UTC),
            created_by=identity.username,
        )
        session.add(row)
        await session.flush()
        audit(session, identity.username, "experiment.start", row)
        experiment = await get_experiment(session, row.id)
    context.bus.publish(QueueEvent())
    await publish(context, experiment.id)
    return experiment


async def cancel(context: ExperimentContext, experiment_id: int, *, actor: str, why: str = "") -> Experiment:
    """Cancel an experiment: at once while it is queued, else as soon as the node's settings are restored.

    why: a sentence, if a person did not ask for exactly this.
    Raises NotFound and Conflict.
    """
    async with context.database.session() as session:
        row = await find_row(session, experiment_id, lock=True)
        if row.state not in repository.OPEN_STATES:
            raise Conflict(f"This experiment has ended: {row.sentence}")
        if row.ending_state is not None:
            raise Conflict(f"This experiment is already ending: {row.sentence}")
        sentence = why or "Cancelled."
        if row.state == ExperimentState.QUEUED:
            end(row, ExperimentState.CANCELLED, sentence)
        else:
            row.ending_state, row.sentence = ExperimentState.CANCELLED, sentence
            row.activity = "Ending: restoring the node's settings."
        audit(session, actor, "experiment.cancel", row)
        await session.flush()
        experiment = await get_experiment(session, experiment_id)
    context.bus.publish(QueueEvent())
    await publish(context, experiment_id)
    return experiment


def end(row: ExperimentRow, state: ExperimentState, sentence: str) -> None:
    """Set the final state of an experiment and its sentence."""
    row.state, row.sentence, row.activity, row.ended_at = state, sentence, "", datetime.now(UTC)


def audit(session: AsyncSession, actor: str, action: Action, row: ExperimentRow) -> None:
    """Record an action on an experiment, with its state, in the audit log."""
    detail = {"experiment": row.id, "state": row.state, "sentence": row.sentence, "seed": row.seed}
    target = f"experiment {row.id} on {row.node.name}"
    result = "failed" if row.state == ExperimentState.FAILED else "ok"
    record(session, actor=actor, action=action, target=target, node_id=row.node_id, result=result, detail=detail)


async def publish(context: ExperimentContext, experiment_id: int) -> None:
    """Publish an experiment's present state to browsers."""
    async with context.database.session() as session:
        found = await summary(session, experiment_id)
    if found is not None:
        context.bus.publish(ExperimentEvent(found))


async def _validate(
    session: AsyncSession, context: ExperimentContext, spec: Spec
) -> tuple[NodeRow, NodeRow | None, View, dict[int, str]]:
    """Validate a spec; return the node, its peer, the node's view, and the names of the policies by id."""
    node = await _node(session, spec.node_id, "spec.node_id")
    peer = None if spec.peer_node_id is None else await _node(session, spec.peer_node_id, "spec.peer_node_id")
    view = view_of_node(node, context.registry.get(node.id).flows)
    peer_topology = None if peer is None else nodes.reported_state(peer).topology
    await asyncio.to_thread(validation.check_on_node, spec, view, peer_topology)
    applications = await find_declared(session, spec.application_metrics)
    for place, name in enumerate(spec.application_metrics):
        if name not in applications:
            sentence = f"There is no application metric {name}; an administrator declares it in the settings."
            raise Invalid(sentence, field=f"spec.application_metrics[{place}]")
    return node, peer, view, await _policy_names(session, spec)


async def _node(session: AsyncSession, node_id: int, field: str) -> NodeRow:
    try:
        return await nodes.find_node(session, node_id)
    except NotFound as missing:
        raise Invalid(missing.detail, field=field) from None


async def _policy_names(session: AsyncSession, spec: Spec) -> dict[int, str]:
    names: dict[int, str] = {}
    for path, level in all_levels(spec):
        if (stored := level.policy) is None:
            continue
        row = await policies.find_policy(session, stored.policy_id)
        if row is None:
            raise Invalid(f"There is no policy {stored.policy_id}.", field=f"{path}.policy.policy_id")
        if await policies.find_version(session, stored.policy_id, stored.version) is None:
            sentence = f"The policy “{row.name}” has no version {stored.version}."
            raise Invalid(sentence, field=f"{path}.policy.version")
        names[row.id] = row.name
    return names


async def enforced_on(session: AsyncSession, node_ids: Sequence[int]) -> dict[str, list[str]]:
    """Return the names of the enforced policies by node name."""
    enabled = await policies.enabled_policies(session)
    return {
        facts.name: [policy.name for policy in in_force(enabled, facts) if policy.mode is Mode.ENFORCE]
        for facts in await policies.node_attributes(session, node_ids)
    }


async def _warnings(session: AsyncSession, spec: Spec, node: NodeRow, peer: NodeRow | None) -> list[str]:
    warnings = validation.block_warnings(spec)
    both = [node] if peer is None else [node, peer]
    for name, paused in (await enforced_on(session, [row.id for row in both])).items():
        if paused:
            warnings.append(f"Pauses the enforced policies on {name}: {', '.join(paused)}.")
    if peer is not None:
        part = "runs every other process of the jobs" if runs_on_both_nodes(spec) else "generates the load"
        warnings.append(f"{peer.name} {part}, over its network.")
    if node.simulated:
        warnings.append(f"{node.name} is simulated: its runs take about a tenth of the time.")
    if isinstance(spec.workload, Command):
        warnings.append(
            f"Runs the command “{spec.workload.name}”, as the agent's configuration on {node.name} defines it."
        )
    ids = {row.id for row in both}
    queue = [each for each in await repository.unfinished_experiments(session) if ids & set(each.node_ids)]
    if queue:
        ahead = "1 experiment is" if len(queue) == 1 else f"{len(queue)} experiments are"
        warnings.append(f"{ahead} ahead in the queue of these nodes.")
    return warnings


def _blocked_because(
    context: ExperimentContext,
    spec: Spec,
    node: NodeRow,
    peer: NodeRow | None,
    identity: Identity,
    *,
    stopped: Collection[int],
) -> str | None:
    for row in [node] if peer is None else [node, peer]:
        if identity.role_on(effective_labels(row.hello, row.token_labels, row.labels)) is Role.VIEWER:
            return f"Starting an experiment requires the role operator; yours is viewer on {row.name}."
        if (elsewhere := context.connections.unreachable(row.id)) is not None:
            return elsewhere
        if not context.connections.is_connected(row.id):
            return f"{row.name} is disconnected; an experiment requires its agent to be connected."
        if row.id in stopped:
            return f"Enforcement is stopped on {row.name}; an administrator must lift the stop first."
    changes = not changes_nothing(spec)
    hello = None if node.hello is None else msgspec.convert(node.hello, Hello)
    if changes and (hello is None or hello.mode != "control"):
        reason = hello.observe_reason if hello is not None else None
        return f"The agent on {node.name} only observes. {reason or 'It reported no reason.'}"
    return None
