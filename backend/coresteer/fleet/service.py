"""The fleet table: summaries and details of nodes, their labels, the revocation of keys, and deletion."""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.auth.repository import delete_readmissions
from coresteer.changes.repository import count_open
from coresteer.fleet.schemas import Node, NodeSummary
from coresteer.nodes import repository
from coresteer.nodes.service import find_node, reported_state
from coresteer.nodes.tables import NodeRow, effective_labels
from coresteer.presence.registry import NodeRegistry
from coresteer_core.protocol import lacking


async def node_summaries(
    session: AsyncSession, registry: NodeRegistry, node_ids: Sequence[int] | None = None
) -> list[NodeSummary]:
    """Return the rows of the fleet table, ordered by name."""
    rows = await repository.list_nodes(session, node_ids)
    counts = await count_open(session)
    return [_summary(row, registry, counts.get(row.id, 0)) for row in rows]


def _summary(row: NodeRow, registry: NodeRegistry, open_changes: int) -> NodeSummary:
    state = registry.get(row.id)
    hello = row.hello or {}
    return NodeSummary(
        id=row.id,
        name=row.name,
        simulated=row.simulated,
        health=registry.health(row.id, seen_before=row.last_seen_at is not None),
        mode=hello.get("mode"),
        observe_reason=hello.get("observe_reason"),
        agent_version=hello.get("agent_version"),
        kernel=hello.get("kernel"),
        labels=effective_labels(row.hello, row.token_labels, row.labels),
        cpus=row.cpus,
        packages=row.packages,
        numa_nodes=row.numa_nodes,
        drivers=row.drivers,
        last_seen_at=row.last_seen_at,
        clock_skew_ms=row.clock_skew_ms if state.clock_skew_ms is None else state.clock_skew_ms,
        clock_correction_ms=state.clock_correction_ms,
        rejected_samples=row.rejected_samples,
        figures=state.latest_figures(),
        open_changes=open_changes,
    )


async def node_details(session: AsyncSession, registry: NodeRegistry, node_id: int) -> Node:
    """Return everything about one node except its history. Raises NotFound."""
    row = await find_node(session, node_id)
    counts = await count_open(session)
    summary = _summary(row, registry, counts.get(row.id, 0))
    topology, inventory, _ = reported_state(row)
    return Node(
        **summary.model_dump(),
        topology=topology,
        inventory=inventory,
        tasks=registry.get(node_id).tasks,
        interval_s=(row.hello or {}).get("interval_s"),
        capabilities=(row.hello or {}).get("capabilities"),
        lacks=None if row.hello is None else lacking(row.hello.get("features", [])),
    )


async def set_labels(
    session: AsyncSession, registry: NodeRegistry, node_id: int, labels: dict[str, str], *, actor: str
) -> NodeSummary:
    """Replace a node's labels that people gave. Raises NotFound.

    A label that equals the one of the node's agent or token is not stored: it follows that one.
    """
    row = await find_node(session, node_id)
    others = effective_labels(row.hello, row.token_labels, {})
    own = {name: value for name, value in labels.items() if others.get(name) != value}
    detail = {"was": row.labels, "becomes": own}
    row.labels = own
    record(session, actor=actor, action="node.set_labels", target=row.name, node_id=node_id, detail=detail)
    await session.flush()
    counts = await count_open(session)
    return _summary(row, registry, counts.get(node_id, 0))


async def revoke_key(session: AsyncSession, node_id: int, *, actor: str) -> None:
    """Revoke the keys of the node's agent, whose connection ends after the commit, and unused tokens for others.

    Raises NotFound.
    """
    row = await find_node(session, node_id)
    row.key_hash = row.previous_key_hash = row.previous_key_until = None
    await delete_readmissions(session, node_id)
    record(session, actor=actor, action="node.revoke_key", target=row.name, node_id=node_id)


async def delete_node(session: AsyncSession, node_id: int, *, actor: str) -> None:
    """Delete a node; the caller closes its connection after the commit. Raises NotFound."""
    row = await find_node(session, node_id)
    record(session, actor=actor, action="node.delete", target=row.name, node_id=node_id)
    await repository.delete_nodes(session, [node_id])
