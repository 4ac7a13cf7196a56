"""Publisher of policies: sends each connected agent the policies in force on its node whenever they change."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.background import cancel
from coresteer.bus import Bus, NodeEvent, PoliciesEvent
from coresteer.db import Database
from coresteer.errors import is_database_unavailable
from coresteer.policies import repository, stops, windows
from coresteer.policies.in_force import during_experiment, holding_out, in_force
from coresteer.presence.connections import AgentConnection, Connections
from coresteer.presence.registry import NodeRegistry
from coresteer.replicas.broker import Broker
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import MAX_STOPS, EnforcementStop, PolicyInForce
from coresteer_core.protocol import MAX_POLICIES_IN_FORCE, Policies

log = logging.getLogger("coresteer.policies")

_RETRY_S = 1.0
_PUBLISH_ALL_EVERY_S = 60.0
_NODES_PER_BATCH = 500
_CLOCK_STEP_MS = 10_000
"""To this a node's clock offset is rounded, so that policies are not sent again whenever it is measured."""


NodesInUse: TypeAlias = Callable[[AsyncSession, Sequence[int]], Awaitable[Collection[int]]]
"""Returns those of the nodes on which an experiment runs: there only the policies that it leased may write."""
HeldOut: TypeAlias = Callable[[AsyncSession, Sequence[int]], Awaitable[Mapping[int, tuple[int, int]]]]
"""Returns policy and version that are held out on each of the nodes now, to measure their effect."""


class Lease(Struct, frozen=True, tag="lease"):
    """Request to publish the policies of a node now; policies: those that the experiment on it leases from now on."""

    node_id: int
    policies: list[PolicyInForce]


class Published(Struct, frozen=True):
    """Answer: what was requested is queued for the agent, if it is connected."""


class PolicyPublisher:
    """Sends agents the policies in force on their nodes.

    Nothing is sent that equals the last message on the present connection.
    """

    def __init__(
        self,
        database: Database,
        bus: Bus,
        connections: Connections,
        registry: NodeRegistry,
        *,
        broker: Broker,
        nodes_in_use: NodesInUse,
        held_out: HeldOut,
    ) -> None:
        broker.on(Lease, self._publish_for_another)
        self._broker = broker
        self._database = database
        self._bus = bus
        self._connections = connections
        self._registry = registry
        self._nodes_in_use = nodes_in_use
        self._held_out = held_out
        self._last_sent: dict[int, tuple[AgentConnection, Policies]] = {}
        self._leased: dict[int, tuple[AgentConnection | None, list[PolicyInForce]]] = {}
        self._waiting: set[int] = set()
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start publishing policies to agents."""
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._run())]

    async def stop(self) -> None:
        """Stop publishing; agents continue with the policies that they have."""
        await cancel(self._tasks)

    def schedule(self, node_id: int) -> None:
        """Send a node its policies soon: something about it may have changed, or its agent connected."""
        self._waiting.add(node_id)
        self._wake.set()

    def lease(self, node_id: int, policies: list[PolicyInForce]) -> None:
        """Set the policies that the experiment on the node leases while its present connection lasts.

        An empty list ends the lease.
        """
        if policies:
            self._leased[node_id] = self._connections.get(node_id), policies
        else:
            self._leased.pop(node_id, None)

    async def publish_now(self, node_id: int) -> None:
        """Send a node its policies in force before any later message to its agent, if it is connected.

        The lease is sent to the backend to which it is connected, which sends them to the agent.
        Raises UndeliveredError and UnansweredError.
        """
        location = self._connections.location_elsewhere(node_id)
        if location is None or location.replica_id is None or not self._broker.is_configured:
            return await self._publish([node_id])
        _, leased = self._leased.get(node_id, (None, []))
        lease = Lease(node_id, leased)
        await self._broker.request(location.replica_id, lease, Published)
        return None

    async def _publish_for_another(self, _: int, lease: Lease) -> Published:
        self.lease(lease.node_id, lease.policies)
        await self._publish([lease.node_id])
        return Published()

    def _schedule_all(self) -> None:
        self._waiting.update(node_id for node_id, state in self._registry.items() if state.connected)
        self._wake.set()

    async def _listen(self) -> None:
        with self._bus.subscribe() as events:
            async for event in events:
                match event:
                    case PoliciesEvent(None):
                        self._schedule_all()
                    case NodeEvent(node_id):
                        self.schedule(node_id)

    async def _run(self) -> None:
        publish_all_at = time.monotonic() + _PUBLISH_ALL_EVERY_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, publish_all_at - time.monotonic())):
                    await self._wake.wait()
            if time.monotonic() >= publish_all_at:  # a full queue may have dropped an event
                publish_all_at = time.monotonic() + _PUBLISH_ALL_EVERY_S
                self._schedule_all()
            self._wake.clear()
            while self._waiting:
                some = list(self._waiting)[:_NODES_PER_BATCH]
                self._waiting.difference_update(some)
                try:
                    await self._publish(some)
                except Exception as error:
                    if not is_database_unavailable(error):
                        log.exception("Publishing policies to some agents failed; retrying.")
                    self._waiting.update(some)
                    await asyncio.sleep(_RETRY_S)

    async def _publish(self, node_ids: list[int]) -> None:
        async with self._lock:
            await self._publish_locked(node_ids)

    async def _publish_locked(self, node_ids: list[int]) -> None:
        peers = {node_id: peer for node_id in node_ids if (peer := self._connections.get(node_id)) is not None}
        for node_id in set(node_ids) - peers.keys():
            self._last_sent.pop(node_id, None)
        if not peers:
            return
        async with self._database.session() as session:
            # a policy and its rollout are read by two queries, and a rollback changes both
            await session.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            policies = await repository.enabled_policies(session)
            attributes = await repository.node_attributes(session, list(peers))
            in_use = await self._nodes_in_use(session, list(peers))
            held_out = await self._held_out(session, list(peers))
            leave_pages = await repository.policies_leaving_pages(session)
            stops_in_force = await stops.in_force(session)
            calendar = windows.Calendar(await windows.all_windows(session), datetime.now(UTC))
        for one in attributes:
            applying = [EnforcementStop(stop.id, stop.restore) for stop in stops.applying(stops_in_force, one)]
            peer, now = peers[one.node_id], holding_out(in_force(policies, one), held_out.get(one.node_id))
            times = calendar.of(one)
            if one.node_id in in_use:  # its policies pause, and the experiment ends by itself
                times = windows.Times()
                leased_to, leased = self._leased.get(one.node_id, (None, []))
                now = during_experiment(now, leased if leased_to is peer else ())
            if len(now) > MAX_POLICIES_IN_FORCE:
                log.error(
                    "Node %d has %d policies in force; the agent gets the first %d by rank. Disable some.",
                    one.node_id,
                    len(now),
                    MAX_POLICIES_IN_FORCE,
                )
            if not times.open:
                applying.append(EnforcementStop(windows.CLOSED))
            if applying and not peer.obeys_stops:  # an old agent can only restore what its policies have set
                now = [replace(policy, mode=Mode.RECOMMEND) for policy in now]
            hold_from_ms = self._hold_from_ms(one.node_id, times)
            message = Policies(now[:MAX_POLICIES_IN_FORCE], leave_pages, applying[-MAX_STOPS:], hold_from_ms)
            if self._last_sent.get(one.node_id) != (peer, message):
                self._last_sent[one.node_id] = (peer, message)
                peer.post(message)
                self._bus.publish(PoliciesEvent(one.node_id))

    def _hold_from_ms(self, node_id: int, times: windows.Times) -> int | None:
        """Return Times.hold_from_ms by the clock of a connected node."""
        if times.hold_from_ms is None:
            return None
        state = self._registry.get(node_id)
        ahead_ms = (state.clock_skew_ms or 0.0) - state.clock_correction_ms
        return max(0, times.hold_from_ms + round(ahead_ms / _CLOCK_STEP_MS) * _CLOCK_STEP_MS)
