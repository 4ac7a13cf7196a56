"""What bounds of the coalescing policy result in: on nodes now, and on typical traffic."""

import asyncio
from collections.abc import Iterator

from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.coalescing.schemas import BoundsOutcome, OutcomesRequest, TrafficOutcomes
from coresteer.coalescing.service import is_in
from coresteer.errors import NotFound
from coresteer.nodes import service as nodes
from coresteer.policies.preview import current_view
from coresteer.presence.registry import NodeRegistry
from coresteer_core.node.inventory import Netdev
from coresteer_core.node.receive import int_param, received_traffic
from coresteer_core.node.view import View
from coresteer_core.policies.base import Scope
from coresteer_core.policies.coalescing.outcome import EXAMPLES, knee_within, settle
from coresteer_core.policies.coalescing.spec import Coalescing

_NETDEVS = 2
"""Most network devices of a node that are examined, those with the most packets."""


async def predict_outcomes(
    session: AsyncSession, registry: NodeRegistry, request: OutcomesRequest
) -> list[TrafficOutcomes]:
    """Return what the bounds and each preset result in, on the nodes' busiest devices and then on typical traffic.

    Unknown nodes are omitted.
    """
    found: list[TrafficOutcomes] = []
    for node_id in dict.fromkeys(request.node_ids):
        try:
            name = (await nodes.find_node(session, node_id)).name
            view = await current_view(session, registry, node_id)
        except NotFound:
            continue
        # takes tens of milliseconds; a thread keeps the event loop responsive
        found += await asyncio.to_thread(_on_node, node_id, name, view, request)
    return found + await asyncio.to_thread(_on_examples, request)


def _on_node(node_id: int, name: str, view: View | None, request: OutcomesRequest) -> list[TrafficOutcomes]:
    if view is None or not view.load.netdevs:
        why = f"The traffic of {name} is not known now."
        return [_without(node_id, name, why)]
    devices = sorted(_devices(view, request.scope), reverse=True, key=lambda each: each[0])[:_NETDEVS]
    if not devices:
        why = f"No network device of {name} that is in scope and has an interrupt of its own receives anything now."
        return [_without(node_id, name, why)]
    return [_outcomes(f"{name} {netdev.name}", view, netdev, request.spec, node_id) for _, netdev in devices]


def _without(node_id: int, name: str, why: str) -> TrafficOutcomes:
    return TrafficOutcomes(
        node_id=node_id,
        label=name,
        usecs=None,
        frames=None,
        packets_per_s=None,
        frame_bytes=None,
        interrupts_per_s=None,
        outcomes=[],
        knee=None,
        why_not=why,
    )


def _devices(view: View, scope: Scope) -> Iterator[tuple[float, Netdev]]:
    """Yield the network devices in scope that receive packets, with their packets per second."""
    for netdev in view.inventory.netdevs:
        traffic = received_traffic(view.inventory, view.load, netdev)
        if is_in(netdev, scope) and not netdev.virtual and traffic is not None and traffic.interrupts_per_s is not None:
            yield traffic.packets_per_s, netdev


def _on_examples(request: OutcomesRequest) -> list[TrafficOutcomes]:
    return [
        _outcomes(example.label, example.view, example.view.inventory.netdevs[0], request.spec) for example in EXAMPLES
    ]


def _outcomes(label: str, view: View, netdev: Netdev, spec: Coalescing, node_id: int | None = None) -> TrafficOutcomes:
    traffic = received_traffic(view.inventory, view.load, netdev)
    bounds = [(None, spec), *((each.label, replace(spec, **each.values)) for each in Coalescing.presets)]
    settled = [(preset, each, settle(view, netdev, each)) for preset, each in bounds]
    return TrafficOutcomes(
        node_id=node_id,
        label=label,
        usecs=int_param(netdev.params, "coalesce/rx-usecs"),
        frames=int_param(netdev.params, "coalesce/rx-frames"),
        packets_per_s=None if traffic is None else traffic.packets_per_s,
        frame_bytes=None if traffic is None else traffic.frame_bytes,
        interrupts_per_s=None if traffic is None or node_id is None else traffic.interrupts_per_s,
        outcomes=[
            BoundsOutcome(
                preset=preset,
                max_added_us=each.max_added_us,
                packets_per_interrupt=each.packets_per_interrupt,
                outcome=outcome,
            )
            for preset, each, outcome in settled
            if outcome is not None
        ],
        knee=knee_within(view, netdev, spec),
        why_not=None,
    )
