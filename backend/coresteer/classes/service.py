"""Service classes of a node: latest figures, their history, and the processes of each class."""

import asyncio
import math
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.classes import chunks, repository
from coresteer.classes.schemas import (
    ClassesHistory,
    ClassFigure,
    ClassHistory,
    MatchedClass,
    MatchedTask,
    Matches,
    MatchRequest,
    NodeClasses,
    PolicyClasses,
    PolicyHistory,
)
from coresteer.classes.store import ClassReportStore
from coresteer.nodes import service as nodes
from coresteer.policies import preview
from coresteer.policies import repository as policies
from coresteer.policies.in_force import in_force
from coresteer.presence.registry import NodeRegistry
from coresteer.telemetry.history import TimeRange
from coresteer.telemetry.repository import from_unix_ms
from coresteer_core.node.tasks import NetTask
from coresteer_core.policies.service_class.policy import ServiceClasses, assign_classes

HISTORY_STEPS = 900
"""Of a history at most, and one more where it does not begin with a step."""


async def latest_figures(session: AsyncSession, registry: NodeRegistry, node_id: int) -> NodeClasses:
    """Return the agent's latest figures for each service-class policy in force. Raises NotFound."""
    await nodes.find_node(session, node_id)
    enabled = await policies.enabled_policies(session)
    (attributes,) = await policies.node_attributes(session, [node_id])
    found = []
    for policy in in_force(enabled, attributes):
        if not isinstance(policy.spec, ServiceClasses):
            continue
        report = registry.get(node_id).classes.get(int(policy.policy_id))
        found.append(
            PolicyClasses(
                policy_id=int(policy.policy_id),
                name=policy.name,
                version=policy.version,
                mode=policy.mode,
                spec=policy.spec,
                at=None if report is None else from_unix_ms(report.time_ms),
                reported=None if report is None else report.classes,
            )
        )
    return NodeClasses(policies=found)


async def figure_history(
    session: AsyncSession, store: ClassReportStore, node_id: int, span: TimeRange, figures: Sequence[ClassFigure]
) -> ClassesHistory:
    """Return figures of service classes over a time range, stored or not yet stored. Raises NotFound."""
    await nodes.find_node(session, node_id)
    stored = await store.read_chunks(node_id, span.start, span.end)
    # takes hundreds of milliseconds for a week; a thread keeps the event loop responsive
    found = await asyncio.to_thread(_history, stored, span, figures)
    names = await repository.policy_names(session, [policy.policy_id for policy in found.policies])
    for policy in found.policies:
        policy.name = names.get(policy.policy_id)
    return found


def _history(stored: Sequence[tuple[int, bytes]], span: TimeRange, figures: Sequence[ClassFigure]) -> ClassesHistory:
    step_ms = 1000 * math.ceil((span.end - span.start) / 1000 / HISTORY_STEPS)
    first_ms = int(span.start // step_ms) * step_ms
    steps = math.ceil((span.end - first_ms) / step_ms)
    by_policy: dict[int, list[bytes]] = {}
    for policy_id, chunk in stored:
        by_policy.setdefault(policy_id, []).append(chunk)
    rows = {figure: row for row, figure in enumerate(ClassFigure) if figure in figures}
    found = []
    for policy_id, of_policy in sorted(by_policy.items()):
        pooled = chunks.worst_per_step(of_policy, first_ms=first_ms, step_ms=step_ms, steps=steps)
        classes = [
            ClassHistory(name=name, values={figure: _rounded(values[row].tolist()) for figure, row in rows.items()})
            for name, values in pooled.items()
        ]
        if classes:
            found.append(PolicyHistory(policy_id=policy_id, name=None, classes=classes))
    return ClassesHistory(
        step_ms=step_ms, times_ms=[first_ms + step_ms * step for step in range(steps)], policies=found
    )


def _rounded(values: list[float]) -> list[float | None]:
    return [None if math.isnan(value) else round(value, 4) for value in values]


async def match_tasks(session: AsyncSession, registry: NodeRegistry, node_id: int, request: MatchRequest) -> Matches:
    """Return the node's processes by service class, each in the first class that matches. Raises NotFound."""
    view = await preview.current_view(session, registry, node_id)
    flows = registry.get(node_id).flows
    if view is None or flows is None:
        return Matches(
            at=None, exact=False, classes=[_matched(name, []) for name in _names(request.spec)], unmatched=[]
        )
    found = assign_classes(view, request.spec, request.scope)
    return Matches(
        at=from_unix_ms(flows.time_ms),
        exact=flows.exact,
        classes=[_matched(name, found.tasks[name]) for name in _names(request.spec)],
        unmatched=[_task(task) for task in found.unmatched],
    )


def _names(spec: ServiceClasses) -> list[str]:
    return [graded.name for graded in spec.classes]


def _matched(name: str, tasks: Sequence[NetTask]) -> MatchedClass:
    return MatchedClass(name=name, tasks=[_task(task) for task in tasks])


def _task(task: NetTask) -> MatchedTask:
    return MatchedTask(
        pid=task.pid,
        name=task.name,
        cgroup=task.cgroup,
        unit=task.unit,
        user=task.user,
        command=task.command,
        listens=task.listens,
        clients=task.clients,
    )
