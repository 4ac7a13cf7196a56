"""Interrupt coalescing of a network device: settings, observations of its driver, and predictions."""

import asyncio
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.coalescing.schemas import Coalescing, PolicyBound, PresentCoalescing, QueueParams, Traffic
from coresteer.coalescing.surface import compare_with_prediction, predict_surface, rank_correlation, what_if_traffic
from coresteer.errors import NotFound
from coresteer.nodes import service as nodes
from coresteer.policies import repository as policies
from coresteer.policies.in_force import in_force
from coresteer.presence.registry import NodeRegistry
from coresteer_core.node.inventory import Inventory, Netdev
from coresteer_core.node.load import Load, mean_load
from coresteer_core.node.nic import DriverResponse, NicKnowledge, Verdict, interrupt_timer, selects_adaptive_mode
from coresteer_core.node.nic_model import frame_wire_time_us
from coresteer_core.node.receive import ReceivedTraffic, int_param, predict_received, received_traffic, timer_params
from coresteer_core.policies.base import Scope
from coresteer_core.policies.coalescing.spec import Coalescing as Spec

_USECS = "coalesce/rx-usecs"
_ENOUGH_ANSWERS = 3
"""Failed values after which rx-usecs counts as unsupported, unless the kernel reported that explicitly."""
_SURFACE_POINTS = 6
"""Number of newest measured points whose values are added to the surface."""


@dataclass(frozen=True)
class _Known:
    """A network device and its node."""

    netdev: Netdev
    inventory: Inventory
    load: Load
    learned: NicKnowledge
    kernel: str | None
    bounds: list[PolicyBound]


async def describe_coalescing(
    session: AsyncSession,
    registry: NodeRegistry,
    node_id: int,
    name: str,
    *,
    packets_per_s: float | None,
    frame_bytes: float | None,
) -> Coalescing:
    """Return settings, observations and predictions of one device's interrupt coalescing. Raises NotFound."""
    row = await nodes.find_node(session, node_id)
    state = nodes.reported_state(row)
    netdev = None if state.inventory is None else state.inventory.netdev(name)
    if state.inventory is None or netdev is None:
        raise NotFound(f"{row.name} has no network device {name} now.")
    known = _Known(
        netdev,
        state.inventory,
        mean_load(registry.get(node_id).recent_rates()),
        state.learned,
        (row.hello or {}).get("kernel"),
        await _bounds(session, node_id, netdev),
    )
    # takes tens of milliseconds; a thread keeps the event loop responsive
    return await asyncio.to_thread(_describe, known, packets_per_s, frame_bytes)


async def _bounds(session: AsyncSession, node_id: int, netdev: Netdev) -> list[PolicyBound]:
    enabled = await policies.enabled_policies(session)
    (attributes,) = await policies.node_attributes(session, [node_id])
    return [
        PolicyBound(policy_id=int(policy.policy_id), name=policy.name, max_added_us=policy.spec.max_added_us)
        for policy in in_force(enabled, attributes)
        if isinstance(policy.spec, Spec) and is_in(netdev, policy.scope)
    ]


def is_in(netdev: Netdev, scope: Scope) -> bool:
    """Return whether a network device is in the scope of a policy."""
    patterns_by_text = ((netdev.name, scope.netdevs), (netdev.driver or "", scope.drivers))
    return all(not patterns or any(fnmatchcase(text, p) for p in patterns) for text, patterns in patterns_by_text)


def _describe(known: _Known, packets_per_s: float | None, frame_bytes: float | None) -> Coalescing:
    netdev = known.netdev
    timer, timer_why = interrupt_timer(netdev.driver, netdev.params)
    seen = received_traffic(known.inventory, known.load, netdev)
    usual = float(netdev.mtu or 1500)
    traffic = what_if_traffic(seen, packets_per_s=packets_per_s, frame_bytes=frame_bytes, usual_frame_bytes=usual)
    responses = [
        one
        for record in known.learned.drivers
        if (record.driver, record.kernel) == (netdev.driver, known.kernel)
        for one in record.responses
    ]
    points = sorted((p for p in known.learned.points if p.netdev == netdev.name), key=lambda p: -p.last_ms)
    share = 1.0 if seen is None else seen.share
    measured_points = [compare_with_prediction(netdev, timer, point, share) for point in points]
    rx_usecs, rx_frames = int_param(netdev.params, _USECS), int_param(netdev.params, "coalesce/rx-frames")
    unsupported = why_not = _unsupported(netdev, responses)
    if unsupported is None and traffic is None:
        why_not = f"{netdev.name} receives nothing now; enter some traffic to see predictions for other values."
    predictions = None
    if why_not is None and traffic is not None:
        standing = [(rx_usecs, rx_frames), *((p.rx_usecs, p.rx_frames) for p in points[:_SURFACE_POINTS])]
        usecs, frames = ([value for value in values if value is not None] for values in zip(*standing, strict=True))
        predictions = predict_surface(netdev, timer, traffic, usecs, frames)
    described = None
    if traffic is not None:
        is_supposed = packets_per_s is not None or frame_bytes is not None
        described = _traffic(traffic, netdev, known.load, is_supposed=is_supposed)
    wait, predicted = timer_params(netdev.driver, netdev.params), None
    if wait is not None and predictions is not None and traffic is not None:
        predicted = predict_received(netdev, traffic, wait)
    return Coalescing(
        netdev=netdev.name,
        driver=netdev.driver,
        kernel=known.kernel,
        params=netdev.params,
        params_max=netdev.params_max,
        queues=[QueueParams(name=queue.name, params=queue.params) for queue in netdev.queues if queue.params],
        timer=timer,
        timer_why=timer_why,
        responses=responses,
        traffic=described,
        current=PresentCoalescing(
            rx_usecs=rx_usecs,
            rx_frames=rx_frames,
            adaptive=netdev.params.get("coalesce/adaptive-rx") == "on",
            adaptive_mode=rx_usecs is not None and selects_adaptive_mode(netdev.driver, rx_usecs),
            interrupts_per_s=None if seen is None else seen.interrupts_per_s,
            predicted=predicted,
        ),
        surface=predictions,
        points=measured_points,
        rank_correlation=rank_correlation(measured_points),
        bounds=known.bounds,
        can_wait=unsupported is None,
        why_not=why_not,
    )


def _traffic(traffic: ReceivedTraffic, netdev: Netdev, load: Load, *, is_supposed: bool) -> Traffic:
    speed = netdev.speed_bits_per_s
    return Traffic(
        packets_per_s=traffic.packets_per_s,
        packets_per_s_a_queue=traffic.packets_per_s * traffic.share,
        frame_bytes=traffic.frame_bytes,
        gap_us=frame_wire_time_us(traffic.frame_bytes, speed) if speed else None,
        measured_s=None if is_supposed else load.seconds,
    )


def _unsupported(netdev: Netdev, responses: list[DriverResponse]) -> str | None:
    """Return why the NIC does not support rx-usecs and what to use instead, None if it may support it."""
    who = netdev.driver or "The driver"
    if _USECS not in netdev.params:
        return f"{who} has no rx-usecs: this NIC does not support interrupt coalescing by time. {_instead(netdev)}"
    answers = sorted((one for one in responses if one.name == _USECS), key=lambda one: one.time_ms)
    if not answers or any(one.verdict in (Verdict.ACCEPTED, Verdict.ROUNDED) for one in answers):
        return None
    last = answers[-1]
    # a single value may be refused; unsupported hardware refuses every one
    if len(answers) < _ENOUGH_ANSWERS and not any(one.unsupported for one in answers):
        return None
    became = {Verdict.REFUSED: "refused", Verdict.IGNORED: "ignored"}.get(last.verdict, "accepted without effect")
    reason = f" ({last.message.rstrip('.')})" if last.message else ""
    return f"{who} {became} every requested rx-usecs, last {last.requested}{reason}. {_instead(netdev)}"


def _instead(netdev: Netdev) -> str:
    if any(name in netdev.params for name in ("gro_flush_timeout", "napi_defer_hard_irqs")):
        return (
            "The kernel can do it instead: with napi_defer_hard_irqs above 0 it leaves the interrupt disabled after "
            "polling and polls again after gro_flush_timeout."
        )
    return "The kernel offers no software coalescing for it either."
