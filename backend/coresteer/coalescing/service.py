"""What a netdev waits for before it interrupts: what is set, what was learned, and what other values would do."""

import asyncio
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.coalescing.schemas import Coalescing, PolicyBound, QueueParams, Standing, Traffic
from coresteer.coalescing.surface import Model, number, rank_correlation, receive_rates, traffic_of
from coresteer.errors import NotFound
from coresteer.nodes import service as nodes
from coresteer.nodes.registry import Registry
from coresteer.policies import repository as policies
from coresteer.policies.in_force import in_force
from coresteer_core.load import load_of
from coresteer_core.model import Inventory, Load, Netdev
from coresteer_core.nic import Learned, Tried, Verdict, sets_own_pace, timer_of
from coresteer_core.policies.base import Scope
from coresteer_core.policies.coalescing import Coalescing as Spec

SOFTWARE = ("gro_flush_timeout", "napi_defer_hard_irqs")
_SURFACE_POINTS = 6
"""So many of the newest measured points have a line of the surface to themselves."""


@dataclass(frozen=True)
class _Known:
    """What is known of a netdev and its node."""

    netdev: Netdev
    inventory: Inventory
    load: Load
    learned: Learned
    kernel: str | None
    bounds: list[PolicyBound]


async def coalescing(
    session: AsyncSession,
    registry: Registry,
    node_id: int,
    name: str,
    *,
    packets_per_s: float | None,
    frame_bytes: float | None,
) -> Coalescing:
    """Everything about one netdev's coalescing. Raises NotFound."""
    row = await nodes.find(session, node_id)
    told = nodes.told(row)
    netdev = None if told.inventory is None else told.inventory.netdev(name)
    if told.inventory is None or netdev is None:
        raise NotFound(f"{row.name} has no network device {name} now.")
    known = _Known(
        netdev,
        told.inventory,
        load_of(list(registry.get(node_id).recent)),
        told.learned,
        (row.hello or {}).get("kernel"),
        await _bounds(session, node_id, netdev),
    )
    # tens of milliseconds, which others need not wait for
    return await asyncio.to_thread(_picture, known, packets_per_s, frame_bytes)


async def _bounds(session: AsyncSession, node_id: int, netdev: Netdev) -> list[PolicyBound]:
    enabled = await policies.enabled(session)
    (facts,) = await policies.facts(session, [node_id])
    return [
        PolicyBound(policy_id=int(policy.policy_id), name=policy.name, max_added_us=policy.spec.max_added_us)
        for policy in in_force(enabled, facts)
        if isinstance(policy.spec, Spec) and _is_in(netdev, policy.scope)
    ]


def _is_in(netdev: Netdev, scope: Scope) -> bool:
    looked_at = ((netdev.name, scope.netdevs), (netdev.driver or "", scope.drivers))
    return all(not patterns or any(fnmatchcase(text, p) for p in patterns) for text, patterns in looked_at)


def _picture(known: _Known, packets_per_s: float | None, frame_bytes: float | None) -> Coalescing:
    netdev = known.netdev
    timer, timer_why = timer_of(netdev.driver, netdev.params)
    rates = receive_rates(known.inventory, netdev, known.load)
    traffic = traffic_of(netdev, known.load, rates, packets_per_s=packets_per_s, frame_bytes=frame_bytes)
    tried = [
        one
        for record in known.learned.drivers
        if (record.driver, record.kernel) == (netdev.driver, known.kernel)
        for one in record.tried
    ]
    model = Model(netdev, timer)
    points = sorted((p for p in known.learned.points if p.netdev == netdev.name), key=lambda p: -p.last_ms)
    measured = [model.measured(point, traffic) for point in points if point.seconds > 0]
    rx_usecs, rx_frames = number(netdev.params, "coalesce/rx-usecs"), number(netdev.params, "coalesce/rx-frames")
    adaptive = netdev.params.get("coalesce/adaptive-rx") == "on"
    why_not = _why_not(netdev, tried, traffic)
    standing = [(rx_usecs, rx_frames), *((p.rx_usecs, p.rx_frames) for p in points[:_SURFACE_POINTS])]
    surface = None
    if why_not is None and traffic is not None:
        usecs, frames = zip(*standing, strict=True)
        surface = model.surface(traffic, *([v for v in values if v is not None] for values in (usecs, frames)))
    predicted = None
    if surface is not None and traffic is not None and rx_usecs is not None and not adaptive:
        predicted = model.of_traffic(traffic, rx_usecs, rx_frames)
    return Coalescing(
        netdev=netdev.name,
        driver=netdev.driver,
        kernel=known.kernel,
        params=netdev.params,
        params_max=netdev.params_max,
        queues=[QueueParams(name=queue.name, params=queue.params) for queue in netdev.queues if queue.params],
        timer=timer,
        timer_why=timer_why,
        tried=tried,
        traffic=traffic,
        current=Standing(
            rx_usecs=rx_usecs,
            rx_frames=rx_frames,
            adaptive=adaptive,
            own_pace=rx_usecs is not None and sets_own_pace(netdev.driver, rx_usecs),
            interrupts_per_s=None if rates is None else sum(rates),
            predicted=predicted,
        ),
        surface=surface,
        points=measured,
        rank_correlation=rank_correlation(measured),
        bounds=known.bounds,
        why_not=why_not,
    )


def _why_not(netdev: Netdev, tried: list[Tried], traffic: Traffic | None) -> str | None:
    """Why other values of rx-usecs are not worth a picture, and what can be done instead."""
    who = netdev.driver or "The driver"
    answers = [one for one in tried if one.name == "coalesce/rx-usecs"]
    if "coalesce/rx-usecs" not in netdev.params:
        return f"{who} has no rx-usecs: this NIC cannot be told to wait. {_instead(netdev)}"
    if answers and all(one.verdict in (Verdict.REFUSED, Verdict.IGNORED, Verdict.NO_EFFECT) for one in answers):
        last = max(answers, key=lambda one: one.time_ms)
        became = {Verdict.REFUSED: "refused", Verdict.IGNORED: "ignored"}.get(last.verdict, "took without effect")
        words = f" ({last.words.rstrip('.')})" if last.words else ""
        return f"{who} {became} every rx-usecs it was asked for, {last.asked} the last time{words}. {_instead(netdev)}"
    if traffic is None:
        return f"{netdev.name} receives nothing now; suppose some traffic to see what other values would do."
    return None


def _instead(netdev: Netdev) -> str:
    if any(name in netdev.params for name in SOFTWARE):
        return (
            "The kernel can wait in its place: with napi_defer_hard_irqs above 0 it leaves the interrupt off after "
            "polling and looks again after gro_flush_timeout."
        )
    return "Its kernel offers no software coalescing for it either."
