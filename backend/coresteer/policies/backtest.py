"""Backtest: evaluation of a policy on the stored samples, flows and inventories of a node."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TypeVar

from coresteer.errors import Conflict, Invalid
from coresteer.nodes import service as nodes
from coresteer.policies import service, snapshot_store
from coresteer.policies.context import PolicyContext
from coresteer.policies.in_force import to_policy_in_force
from coresteer.policies.schemas import BacktestRequest, BacktestResult, BacktestStep, PolicyBody
from coresteer.telemetry import history
from coresteer.telemetry.history import TelemetrySource, TimeRange
from coresteer.telemetry.repository import from_unix_ms
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.load import mean_load
from coresteer_core.node.rates import Rates
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.backtest import backtest as run_backtest
from coresteer_core.policies.base import ROUND_PERIOD_S, Evaluation
from coresteer_core.policies.engine import same_outcome
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.protocol import FlowsMessage

T = TypeVar("T")

MAX_RANGE = timedelta(hours=1)
"""The longest time range of a backtest."""
_STEP_MS = ROUND_PERIOD_S * 1000
_FLOWS_VALID_MS = 4 * _STEP_MS
"""Flows older than this are not used."""
_NO_FLOWS = FlowsMessage(0, [])


async def backtest(context: PolicyContext, policy_id: int, request: BacktestRequest) -> BacktestResult:
    """Return the rounds whose evaluation differs from the round before, over at most one hour of stored samples.

    Raises NotFound, Invalid, and Conflict where the time range has no samples or no inventory.
    """
    span = TimeRange.validated(request.from_time, request.to_time, MAX_RANGE)
    if request.version is not None and request.body is not None:
        raise Invalid("Give a version or a body, not both.", field="body")
    async with context.database.session() as session:
        policy = await service.find_policy(session, policy_id)
        number = request.version or policy.version
        row = await service.find_version(session, policy_id, number)
        node = await nodes.find_node(session, request.node_id)
    body = request.body or PolicyBody.model_validate(row.body)
    interval_s = (node.hello or {}).get("interval_s", nodes.DEFAULT_INTERVAL_S)
    source = TelemetrySource(context.database, context.ingest, node.id, interval_s)
    async with context.backtest_lock:
        samples = await history.read_samples(source, span)
        if not samples:
            raise Conflict(f"No samples of {node.name} are stored for this time range.")
        async with context.database.pool.connection() as connection:
            start, end = from_unix_ms(span.start), from_unix_ms(span.end)
            topologies = await snapshot_store.read_topologies(connection, node.id, start, end)
            inventories = await snapshot_store.read_inventories(connection, node.id, start, end)
            flows = await snapshot_store.read_flows(
                connection, node.id, from_unix_ms(span.start - _FLOWS_VALID_MS), end
            )
        if not topologies or not inventories:
            raise Conflict(f"The topology and inventory of {node.name} are not stored for this time range.")
        # takes seconds for an hour of a large machine; a thread keeps the event loop responsive
        return await asyncio.to_thread(
            _answer, to_policy_in_force(policy_id, number, body), samples, topologies, inventories, flows
        )


def _answer(
    policy: PolicyInForce,
    samples: Sequence[Rates],
    topologies: Sequence[tuple[float, Topology]],
    inventories: Sequence[tuple[float, Inventory]],
    flows: Sequence[bytes],
) -> BacktestResult:
    decoded = [snapshot_store.decode_flows(data) for data in flows]
    found = run_backtest(_views(samples, topologies, inventories, decoded), policy)
    times = [window[-1].time_ms for window in _windows(samples)]
    steps: list[BacktestStep] = []
    before: Evaluation | None = None
    for time_ms, evaluation in zip(times, found.evaluations, strict=True):
        if before is None or not same_outcome(before, evaluation):
            steps.append(BacktestStep(at=from_unix_ms(time_ms), evaluation=evaluation))
        before = evaluation
    settings = {action.key for evaluation in found.evaluations for action in evaluation.actions}
    moves = f"{found.moves} {'write' if found.moves == 1 else 'writes'}"
    moves += f" to {len(settings)} {'setting' if len(settings) == 1 else 'settings'}" if settings else ""
    minutes = (times[-1] - samples[0].time_ms) / 60_000
    return BacktestResult(
        steps=steps,
        moves=found.moves,
        sentence=f"In {len(times)} rounds over {minutes:.1f} minutes “{policy.name}” would have made {moves}.",
        from_time=from_unix_ms(samples[0].time_ms - samples[0].duration_s * 1000),
        to_time=from_unix_ms(times[-1]),
    )


def _windows(samples: Sequence[Rates]) -> Iterator[list[Rates]]:
    """Yield the samples of each round of ROUND_PERIOD_S; rounds without samples are left out."""
    window: list[Rates] = []
    for rates in samples:
        if window and rates.time_ms // _STEP_MS != window[0].time_ms // _STEP_MS:
            yield window
            window = []
        window.append(rates)
    yield window


def _views(
    samples: Sequence[Rates],
    topologies: Sequence[tuple[float, Topology]],
    inventories: Sequence[tuple[float, Inventory]],
    flows: Sequence[FlowsMessage],
) -> Iterator[View]:
    for window in _windows(samples):
        now_ms = float(window[-1].time_ms)
        latest = flows[bisect_right(flows, now_ms, key=lambda message: message.time_ms) - 1] if flows else None
        if latest is None or not 0 <= now_ms - latest.time_ms <= _FLOWS_VALID_MS:
            latest = _NO_FLOWS
        yield View(
            topology=_at(topologies, now_ms),
            inventory=_at(inventories, now_ms),
            load=mean_load(window),
            tasks=latest.tasks,
            time_s=now_ms / 1000,
            cgroups=latest.cgroups,
            numa=latest.numa,
            cpusets=latest.cpusets,
        )


def _at(items: Sequence[tuple[float, T]], now_ms: float) -> T:
    """Return the item valid at that time; before the first item, the first one."""
    return items[max(0, bisect_right(items, now_ms, key=lambda item: item[0]) - 1)][1]
