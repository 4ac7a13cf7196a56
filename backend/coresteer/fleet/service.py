"""The fleet table: summaries and details of nodes, their labels, the revocation of keys, and deletion."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.auth.repository import delete_readmissions
from coresteer.changes.repository import count_open
from coresteer.fleet.figures import natural
from coresteer.fleet.query import Fleet, compared, groups, hot_spots, ordered, select, totals
from coresteer.fleet.schemas import FleetAnswer, FleetQuery, Labels, Node, NodeSummary, OutsideWindows
from coresteer.nodes import repository
from coresteer.nodes.service import find_node, reported_state
from coresteer.nodes.tables import NodeRow, effective_labels
from coresteer.policies import windows
from coresteer.presence.registry import NodeRegistry
from coresteer_core.protocol import lacking

MAX_LABELS = 100
"""Labels that are suggested."""


async def node_summaries(
    session: AsyncSession, registry: NodeRegistry, node_ids: Sequence[int] | None = None, *, name: str | None = None
) -> list[NodeSummary]:
    """Return summaries of nodes, ordered by name: of all, of those of the ids, or of the one of that name."""
    rows = await repository.list_nodes(session, node_ids, name)
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


async def answer(
    session: AsyncSession, registry: NodeRegistry, fleet: Fleet, query: FleetQuery, *, is_past: bool
) -> FleetAnswer:
    """Return the page of a query, and the figures of all nodes that match. is_past: figures of rows are the fleet's."""
    selection = select(fleet, query.q, query.group, query.within)
    if query.id or query.name:
        ids, names = set(query.id), {name.lower() for name in query.name}
        wanted = [node.id in ids or node.name.lower() in names for node in fleet.nodes]
        selection = replace(selection, mask=selection.mask & np.array(wanted, np.bool_))
    page = [int(at) for at in ordered(selection, query.sort)[query.offset : query.offset + query.limit]]
    spots = hot_spots(selection, query.hot_spots)
    shown = dict.fromkeys([*page, *spots])
    rows = {row.id: row for row in await node_summaries(session, registry, [fleet.nodes[at].id for at in shown])}
    if is_past:
        for row in rows.values():
            row.figures = fleet.values.figures(fleet.places[row.id])
    page = [at for at in page if fleet.nodes[at].id in rows]
    largest, others = groups(selection) if query.group is not None and query.within is None else ([], 0)
    before = fleet.before
    return FleetAnswer(
        nodes=len(fleet.nodes),
        cpus=sum(node.cpus or 0 for node in fleet.nodes),
        simulated=sum(node.simulated for node in fleet.nodes),
        problems=selection.filter.problems,
        totals=totals(fleet, selection.places),
        compared=compared(fleet, selection.places),
        groups=largest,
        other_groups=others,
        rows=[rows[fleet.nodes[at].id] for at in page],
        before=None if before is None else [before.figures(at) for at in page],
        hot_spots=[rows[fleet.nodes[at].id] for at in spots if fleet.nodes[at].id in rows],
    )


def labels_of(fleet: Fleet) -> Labels:
    """Return the names of labels by which nodes may be grouped, and the labels that most nodes have."""
    names = Counter(name for node in fleet.nodes for name in node.labels)
    common = Counter(f"{name}={value}" for node in fleet.nodes for name, value in node.labels.items())
    return Labels(
        names=sorted(name for name, _ in names.most_common(MAX_LABELS)),
        common=[label for label, _ in sorted(common.items(), key=lambda one: (-one[1], natural(one[0])))[:MAX_LABELS]],
    )


async def node_details(session: AsyncSession, registry: NodeRegistry, node_id: int) -> Node:
    """Return everything about one node except its history. Raises NotFound."""
    row = await find_node(session, node_id)
    counts = await count_open(session)
    summary = _summary(row, registry, counts.get(row.id, 0))
    topology, inventory, _ = reported_state(row)
    times = await windows.times_of(session, node_id)
    return Node(
        **summary.model_dump(),
        topology=topology,
        inventory=inventory,
        tasks=registry.get(node_id).tasks,
        interval_s=(row.hello or {}).get("interval_s"),
        capabilities=(row.hello or {}).get("capabilities"),
        lacks=None if row.hello is None else lacking(row.hello.get("features", [])),
        outside_windows=None if times.open else OutsideWindows(opens_at=times.changes_at),
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
