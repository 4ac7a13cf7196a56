"""What a policy would have done on a node in a time of which its samples are stored."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TypeVar

from coresteer.errors import Conflict, Invalid
from coresteer.nodes import service as nodes
from coresteer.policies import service, snapshot_store
from coresteer.policies.context import Shared
from coresteer.policies.in_force import for_agent
from coresteer.policies.schemas import BacktestRequest, BacktestResult, BacktestStep, PolicyBody
from coresteer.telemetry import history
from coresteer.telemetry.history import Range, Source
from coresteer.telemetry.repository import at_ms
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.load import load_of
from coresteer_core.node.rates import Rates
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.base import STEP_S, Evaluation
from coresteer_core.policies.engine import same_outcome
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.protocol import FlowsMessage
from coresteer_core.simulate.backtest import replay as enforced_alone

T = TypeVar("T")

_LONGEST = timedelta(hours=1)
_STEP_MS = STEP_S * 1000
_FLOWS_LAST_MS = 4 * _STEP_MS
"""Flows older than this say nothing of the present any more."""
_NO_FLOWS = FlowsMessage(0, [])


async def replay(shared: Shared, policy_id: int, request: BacktestRequest) -> BacktestResult:
    """Rounds that came to something else than those before. Raises NotFound, Invalid, and Conflict without data."""
    span = Range.asked(request.from_time, request.to_time, _LONGEST)
    if request.version is not None and request.body is not None:
        raise Invalid("Give a version or a body, not both.", field="body")
    async with shared.database.session() as session:
        policy = await service.found(session, policy_id)
        number = request.version or policy.version
        kept = await service.version_of(session, policy_id, number)
        node = await nodes.find(session, request.node_id)
    body = request.body or PolicyBody.model_validate(kept.body)
    interval_s = (node.hello or {}).get("interval_s", 1.0)
    source = Source(shared.database, shared.ingest, node.id, interval_s)
    async with shared.one_replay:
        samples = await history.samples(source, span)
        if not samples:
            raise Conflict(f"No samples of {node.name} are stored for this time.")
        async with shared.database.pool.connection() as connection:
            start, end = at_ms(span.start), at_ms(span.end)
            topologies = await snapshot_store.read_topologies(connection, node.id, start, end)
            inventories = await snapshot_store.read_inventories(connection, node.id, start, end)
            flows = await snapshot_store.read_flows(connection, node.id, at_ms(span.start - _FLOWS_LAST_MS), end)
        if not topologies or not inventories:
            raise Conflict(f"What {node.name} was at this time is not stored.")
        # seconds for an hour of a large machine, which others need not wait for
        return await asyncio.to_thread(
            _answer, for_agent(policy_id, number, body), samples, topologies, inventories, flows
        )


def _answer(
    policy: PolicyInForce,
    samples: Sequence[Rates],
    topologies: Sequence[tuple[float, Topology]],
    inventories: Sequence[tuple[float, Inventory]],
    flows: Sequence[bytes],
) -> BacktestResult:
    told = map(snapshot_store.decode_flows, flows)
    found = enforced_alone(_views(samples, topologies, inventories, list(told)), policy)
    times = [window[-1].time_ms for window in _windows(samples)]
    steps: list[BacktestStep] = []
    before: Evaluation | None = None
    for time_ms, evaluation in zip(times, found.evaluations, strict=True):
        if before is None or not same_outcome(before, evaluation):
            steps.append(BacktestStep(at=at_ms(time_ms), evaluation=evaluation))
        before = evaluation
    settings = {action.key for evaluation in found.evaluations for action in evaluation.actions}
    moves = f"{found.moves} {'setting' if found.moves == 1 else 'settings'} written"
    moves += f", to {len(settings)} different ones" if found.moves > len(settings) else ""
    minutes = (times[-1] - samples[0].time_ms) / 60_000
    return BacktestResult(
        steps=steps,
        moves=found.moves,
        sentence=f"In {len(times)} rounds over {minutes:.1f} minutes “{policy.name}” would have had {moves}.",
        from_time=at_ms(samples[0].time_ms - samples[0].duration_s * 1000),
        to_time=at_ms(times[-1]),
    )


def _windows(samples: Sequence[Rates]) -> Iterator[list[Rates]]:
    """The samples of each round; a time without samples has none."""
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
        told = flows[bisect_right(flows, now_ms, key=lambda message: message.time_ms) - 1] if flows else None
        if told is None or not 0 <= now_ms - told.time_ms <= _FLOWS_LAST_MS:
            told = _NO_FLOWS
        yield View(
            topology=_at(topologies, now_ms),
            inventory=_at(inventories, now_ms),
            load=load_of(window),
            tasks=told.tasks,
            time_s=now_ms / 1000,
            cgroups=told.cgroups,
        )


def _at(items: Sequence[tuple[float, T]], now_ms: float) -> T:
    """What was valid then; before the first of them that one, for a little before it was told it was so as well."""
    return items[max(0, bisect_right(items, now_ms, key=lambda item: item[0]) - 1)][1]
