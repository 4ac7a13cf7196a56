"""What a policy does on its nodes now, and did in the last 24 hours."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.policies import overview_repository as found
from coresteer.policies import repository, service, windows
from coresteer.policies.in_force import EnabledPolicy, version_counts, version_in_force
from coresteer.policies.overview_repository import LatestDecision
from coresteer.policies.overview_schemas import (
    ClosedNodes,
    DeferredCount,
    DriftCount,
    GuardrailUndo,
    NothingRecommended,
    PolicyOnNode,
    PolicyOverview,
    Recommended,
)
from coresteer.policies.selector import NodeAttributes
from coresteer.presence.registry import NodeRegistry
from coresteer.spreadsheet import Cell, csv_lines
from coresteer_core.policies.base import HoldoutState, Mode, Ownership

_PERIOD = timedelta(hours=24)
_GUARDRAILS = 20
_RECOMMENDATIONS = 50


_CSV_COLUMNS = (
    "node", "version", "mode", "decided at", "decision", "settings held", "moves, 24 h", "deferred", "drifts, 24 h",
    "setting", "was", "becomes", "reason",
)  # fmt: skip


async def overview(session: AsyncSession, registry: NodeRegistry, policy_id: int) -> PolicyOverview:
    """Return what a policy does on its nodes now, and did in the last 24 hours. Raises NotFound."""
    await service.find_policy(session, policy_id)
    now = datetime.now(UTC)
    since = now - _PERIOD
    nodes = await repository.node_attributes(session)
    policy = await _enabled(session, policy_id)
    latest = await found.latest_decisions(session, policy_id)
    held: dict[int, set[str]] = defaultdict(set)
    for setting in await found.held_settings(session, policy_id):
        held[setting.node_id].add(setting.key)
    moves = await found.count_moves(session, policy_id, since)
    drifts = await found.count_drifts(session, policy_id, since)
    drifted = Counter[int]()
    for node_id, _, _, count in drifts:
        drifted[node_id] += count
    undone = await found.guardrail_undos(session, policy_id, since)
    names = {node.node_id: node.name for node in nodes}
    rows = []
    for node in sorted(nodes, key=lambda node: node.name):
        row = _on_node(node, policy, latest.get(node.node_id), held[node.node_id])
        if row.version is not None or row.settings or row.foreign:
            row.connected = registry.is_connected(node.node_id)
            row.moves, row.drifts = moves.get(node.node_id, 0), drifted[node.node_id]
            rows.append(row)
    in_force = [latest[row.node_id] for row in rows if row.version is not None and row.node_id in latest]
    recommended = _recommended(rows, latest)
    return PolicyOverview(
        fleet=len(nodes),
        versions=[] if policy is None else version_counts(policy, nodes),
        closed=_closed(rows, nodes, windows.Calendar(await windows.all_windows(session), now)),
        nodes=rows,
        moves=sum(moves.values()),
        recommended=len(recommended),
        recommendations=recommended[:_RECOMMENDATIONS],
        nothing_recommended=_nothing_recommended(rows, policy, latest),
        deferred=_deferred(in_force),
        drifts=_drifts(drifts),
        guardrail_undos=len(undone),
        guardrails=[
            GuardrailUndo(node_id=row[0], node_name=names[row[0]], at=row[1], sentence=row[2])
            for row in undone[:_GUARDRAILS]
            if row[0] in names
        ],
    )


async def overview_csv(session: AsyncSession, registry: NodeRegistry, policy_id: int) -> bytes:
    """Return the latest decision on each node as CSV: a row for each change that it makes or proposes, at least one.

    Raises NotFound.
    """
    shown = await overview(session, registry, policy_id)
    policy = await _enabled(session, policy_id)
    latest = await found.latest_decisions(session, policy_id)
    rows: list[Sequence[Cell]] = [_CSV_COLUMNS]
    for node in shown.nodes:
        decision = latest.get(node.node_id)
        mode = None if policy is None or node.version is None else policy.bodies[node.version].mode
        decided = (None, None) if decision is None else (decision.at.isoformat(), decision.sentence)
        counts = (node.settings, node.moves, node.deferred, node.drifts)
        for action in (decision.actions if decision is not None else []) or [{}]:
            change = (action.get(name) for name in ("key", "was", "becomes", "reason"))
            rows.append([node.node_name, node.version, mode, *decided, *counts, *change])
    return csv_lines(rows)


async def _enabled(session: AsyncSession, policy_id: int) -> EnabledPolicy | None:
    return next((each for each in await repository.enabled_policies(session) if each.policy_id == policy_id), None)


def _on_node(
    node: NodeAttributes, policy: EnabledPolicy | None, latest: LatestDecision | None, held: set[str]
) -> PolicyOnNode:
    version = None if policy is None else version_in_force(policy, node)
    foreign = held & set(() if latest is None else latest.drifted)
    return PolicyOnNode(
        node_id=node.node_id,
        node_name=node.name,
        connected=False,
        version=version,
        enforced=policy is not None and version is not None and policy.bodies[version].mode is Mode.ENFORCE,
        held_out=version is not None and latest is not None and latest.holdout == HoldoutState.HELD_OUT,
        settings=len(held - foreign),
        foreign=len(foreign),
        deferred=0 if latest is None or version is None else len(latest.codes),
        recommended=len(latest.actions) if latest is not None and _recommends(policy, version, latest) else 0,
        moves=0,
        drifts=0,
        at=None if latest is None else latest.at,
    )


def _closed(
    rows: Sequence[PolicyOnNode], nodes: Sequence[NodeAttributes], calendar: windows.Calendar
) -> ClosedNodes | None:
    enforced = {row.node_id for row in rows if row.enforced}
    closed = [times for node in nodes if node.node_id in enforced and not (times := calendar.of(node)).open]
    opens_at = min((times.changes_at for times in closed if times.changes_at is not None), default=None)
    return ClosedNodes(nodes=len(closed), opens_at=opens_at) if closed else None


def _recommends(policy: EnabledPolicy | None, version: int | None, latest: LatestDecision | None) -> bool:
    """Return whether the latest decision on a node is a recommendation of the version that is in force there."""
    if policy is None or version is None or latest is None or latest.version != version:
        return False
    return policy.bodies[version].mode is Mode.RECOMMEND


def _nothing_recommended(
    rows: Sequence[PolicyOnNode], policy: EnabledPolicy | None, latest: Mapping[int, LatestDecision]
) -> list[NothingRecommended]:
    found = (row for row in rows if row.recommended == 0 and _recommends(policy, row.version, latest.get(row.node_id)))
    return [
        NothingRecommended(node_id=row.node_id, node_name=row.node_name, sentence=latest[row.node_id].sentence)
        for row in islice(found, _RECOMMENDATIONS)
    ]


def _recommended(rows: Sequence[PolicyOnNode], latest: Mapping[int, LatestDecision]) -> list[Recommended]:
    return [
        Recommended(
            node_id=row.node_id,
            node_name=row.node_name,
            key=action["key"],
            was=action["was"],
            becomes=action["becomes"],
            reason=action["reason"],
        )
        for row in rows
        if row.recommended > 0
        for action in latest[row.node_id].actions
    ]


def _deferred(decisions: Sequence[LatestDecision]) -> list[DeferredCount]:
    moves, nodes = Counter[str](), Counter[str]()
    for decision in decisions:
        moves.update(decision.codes)
        nodes.update(set(decision.codes))
    return [DeferredCount(code=code, moves=count, nodes=nodes[code]) for code, count in moves.most_common()]


def _drifts(rows: Sequence[tuple[int, str | None, str, int]]) -> list[DriftCount]:
    drifts, restored = Counter[str | None](), Counter[str | None]()
    for _, cause, response, count in rows:
        drifts[cause] += count
        restored[cause] += count if response == Ownership.REASSERT else 0
    return [DriftCount(cause=cause, drifts=count, restored=restored[cause]) for cause, count in drifts.most_common()]
