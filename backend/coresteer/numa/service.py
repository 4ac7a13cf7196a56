"""NUMA state of a node as last reported, with the policy's predictions."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.numa.schemas import NodeNuma, NumaMoveOption, NumaTaskEntry
from coresteer.policies.preview import current_view
from coresteer.presence.registry import NodeRegistry
from coresteer.telemetry.repository import from_unix_ms
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.node.numa import NumaState
from coresteer_core.node.numa_traffic import traffic_between
from coresteer_core.node.view import View
from coresteer_core.policies.numa.options import options, placements


async def numa(session: AsyncSession, registry: NodeRegistry, node_id: int) -> NodeNuma:
    """Return a node's memory and processes by NUMA node. Raises NotFound."""
    view, flows = await current_view(session, registry, node_id), registry.get(node_id).flows
    if view is None or view.numa is None or flows is None:
        return NodeNuma(at=None, nodes=[], tasks=[], traffic=[], bandwidth_unknown=None, traffic_unknown=None)
    # in a thread: 1,024 processes on 1,024 NUMA nodes, the most that an agent may report, take seconds
    return await asyncio.to_thread(_numa, view, view.numa, flows.time_ms)


def _numa(view: View, state: NumaState, time_ms: int) -> NodeNuma:
    entries = [
        NumaTaskEntry(task=task, remote_share=found.remote_share, run_time=found.run_time, contention=found.contention)
        for task, found in zip(state.tasks, placements(view), strict=True)
    ]
    entries.sort(key=lambda entry: (-(entry.remote_share or 0.0) * entry.task.rss_bytes, -entry.task.cpu_share))
    return NodeNuma(
        at=from_unix_ms(time_ms),
        nodes=state.nodes,
        tasks=entries,
        traffic=traffic_between([node.id for node in view.topology.numa_nodes], state),
        bandwidth_unknown=state.bandwidth_unknown,
        traffic_unknown=state.traffic_unknown,
    )


async def move_options(session: AsyncSession, registry: NodeRegistry, node_id: int, pid: int) -> list[NumaMoveOption]:
    """Return what moving a process to each NUMA node is predicted to save and cost. Raises NotFound."""
    view = await current_view(session, registry, node_id)
    if view is None:
        return []
    return [
        NumaMoveOption(
            node=option.node,
            with_pages=option.with_pages,
            cpus=format_cpu_list(option.cpus),
            speed_up=option.speed_up,
            saved_cpus=option.saved_cpus,
            moved_bytes=option.moved_bytes,
            cost_s=option.cost_s,
        )
        for option in await asyncio.to_thread(options, view, pid)
    ]
