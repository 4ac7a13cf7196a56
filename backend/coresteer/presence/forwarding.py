"""Nodes of other replicas, live: a replica that needs a node now is sent what its agent sends, until it does not.

The need is a lease, renewed every 5 s, that ends after 15 s: a replica that is killed leaves nothing behind.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from coresteer.background import cancel, repeat
from coresteer.presence.connections import AgentConnection, Connections
from coresteer.presence.interest import INTEREST_S, Interest
from coresteer.presence.locations import Location, Locations
from coresteer.presence.registry import NodeRegistry, NodeState
from coresteer.replicas.broker import Broker
from coresteer.replicas.membership import Membership
from coresteer_core.node.summary import Summary
from coresteer_core.protocol import (
    Detail,
    FlowsMessage,
    ProtocolError,
    RatesMessage,
    SummaryMessage,
    TasksMessage,
    ToBackend,
    decode_to_backend,
    encode,
)

log = logging.getLogger("coresteer.presence")

_TICK_S = 1.0
_RENEW_S = 5.0
_ARRIVE_S = 2.0
"""A replica that is asked for summaries sends all within 1 s."""
_NODES_A_MESSAGE = 1000
"""Maximum number of summaries in a message: a third of the message size that NATS permits by default, 1 MiB."""


class Need(Struct, frozen=True, tag="need"):
    """What the sender needs of this replica for the next 15 s, in place of what it needed before.

    nodes: by id, the epoch of the connection of which it knows the present state, 0 for none, and how much it needs,
    summaries at least. fleet: the summaries of all nodes.
    """

    nodes: dict[int, tuple[int, Detail]]
    fleet: bool


class Connected(Struct, frozen=True, tag="connected"):
    """What the sender knows of a node's connection; anew: it is followed by what its agent sent last."""

    node_id: int
    epoch: int
    interval_s: float
    sends_columns: bool
    clock_skew_ms: float | None
    clock_correction_ms: int
    physical: list[str] | None
    anew: bool


class Forwarded(Struct, frozen=True, tag="forwarded"):
    """A message of a node's agent on the connection with this epoch, with corrected times."""

    node_id: int
    epoch: int
    frame: bytes


class Summaries(Struct, frozen=True, tag="summaries"):
    """The newest summaries of some nodes: id, epoch, what their agents were asked for, summary."""

    nodes: list[tuple[int, int, Detail, Summary]]


class Forwarding:
    """Both ends: what others need of the agents here, and what this replica needs of agents elsewhere.

    show: handles a message of a node of another replica, decoded but not validated, as one of an agent here, but
    without storing it; its last argument is the message's size in bytes. Raises ValueError for an invalid one.
    """

    def __init__(
        self,
        broker: Broker,
        membership: Membership,
        *,
        locations: Locations,
        connections: Connections,
        registry: NodeRegistry,
        interest: Interest,
    ) -> None:
        self._broker, self._membership, self._locations = broker, membership, locations
        self._connections, self._registry, self._interest = connections, registry, interest
        self.show: Callable[[int, NodeState, ToBackend, int], None] = lambda *_: None
        self._leases: dict[int, tuple[Need, float]] = {}
        self._followers: dict[int, list[int]] = {}
        self._followed_until: dict[int, float] = {}
        self._asked: dict[int, tuple[Need, float]] = {}
        self._held: dict[int, int] = {}
        """The epoch of each connection elsewhere of which the registry has a state."""
        self._following: set[int] = set()
        """Of these nodes, those of which the owner sends more than summaries."""
        self._summaries_at = 0.0
        self._sent_fleet_at: dict[int, float] = {}
        """When each replica that needs the fleet was last sent summaries."""
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        interest.on_need = self._wake.set
        broker.on(Need, self._lease)
        broker.on(Connected, self._begin)
        broker.on(Forwarded, self._receive)
        broker.on(Summaries, self._receive_summaries)

    def start(self) -> None:
        """Start renewing what is needed, and ending what is not."""
        failure = "Live samples could not be exchanged with other backends; retrying."
        self._tasks = [asyncio.create_task(repeat(self._tick, 0.0, log, failure))]

    async def stop(self) -> None:
        """Stop; the leases of this replica end by themselves."""
        await cancel(self._tasks)

    # what others need of this replica

    def is_followed(self, node_id: int) -> bool:
        """Return whether another replica is sent the messages of a node that is connected here."""
        return node_id in self._followers

    def forward(self, node_id: int, epoch: int, frame: bytes) -> None:
        """Send a message of an agent that is connected here, with corrected times, to the replicas that need it."""
        for replica_id in self._followers.get(node_id, ()):
            self._broker.publish(replica_id, Forwarded(node_id, epoch, frame))

    async def _lease(self, sender: int, need: Need) -> None:
        self._leases[sender] = (need, time.monotonic() + INTEREST_S)
        self._index()
        if need.fleet:
            self._interest.need_fleet_elsewhere()
        for node_id, (known, detail) in need.nodes.items():
            if (connection := self._connections.get(node_id)) is None:
                continue
            if detail is Detail.SAMPLES:
                self._interest.need(node_id)
            else:
                self._interest.need_summaries(node_id)
            self._tell(sender, node_id, connection, anew=known != connection.epoch)

    def _index(self) -> None:
        self._followers = {}
        for replica_id, (need, _) in self._leases.items():
            for node_id in need.nodes:
                self._followers.setdefault(node_id, []).append(replica_id)

    def _tell(self, replica_id: int, node_id: int, connection: AgentConnection, *, anew: bool) -> None:
        state = self._registry.get(node_id)
        physical = None if state.physical is None else sorted(state.physical)
        self._broker.publish(
            replica_id,
            Connected(
                node_id,
                connection.epoch,
                state.interval_s,
                connection.sends_columns,
                state.clock_skew_ms,
                state.clock_correction_ms,
                physical,
                anew,
            ),
        )
        for message in _present(state) if anew else ():
            self._broker.publish(replica_id, Forwarded(node_id, connection.epoch, encode(message)))

    def _end_lapsed(self, now: float) -> None:
        lapsed = [replica_id for replica_id, (_, until) in self._leases.items() if until <= now]
        for replica_id in lapsed:
            del self._leases[replica_id]
        if lapsed:
            self._index()

    async def _send_summaries(self) -> None:
        now, before = time.monotonic(), self._sent_fleet_at
        followers = [replica_id for replica_id, (need, _) in self._leases.items() if need.fleet]
        self._summaries_at, self._sent_fleet_at = now, dict.fromkeys(followers, now)
        # a replica that begins to need the fleet gets all, also those of seconds ago
        for since in {before.get(replica_id, 0.0) for replica_id in followers}:
            rows = (
                (node_id, state.epoch, state.detail, summary)
                for node_id, state in self._registry.items()
                if state.connected
                and now <= state.stale_at
                and (state.seen_at or 0.0) >= since
                and (summary := state.latest_summary()) is not None
            )
            while some := list(islice(rows, _NODES_A_MESSAGE)):
                for replica_id in followers:
                    if before.get(replica_id, 0.0) == since:
                        self._broker.publish(replica_id, Summaries(some))
                await asyncio.sleep(0)

    # what this replica needs of others

    def follow(self, node_id: int) -> None:
        """Receive a node's summaries and what else its agent sends for the next 15 s, wherever it is connected."""
        self._interest.need_summaries(node_id)
        self._followed_until[node_id] = time.monotonic() + INTEREST_S
        self._wake.set()

    async def need_fleet(self) -> None:
        """Express interest in the summaries of all nodes for the next 15 s, and wait up to 2 s until they are here.

        Returns at once when they were needed before, and where no other replica can send any.
        """
        self._interest.need_fleet()
        if self._membership.others and self._broker.is_connected:
            self._wake.set()
            await asyncio.sleep(self._interest.fleet_since + _ARRIVE_S - time.monotonic())

    async def _tick(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_TICK_S):
                await self._wake.wait()
        self._wake.clear()
        now = time.monotonic()
        if now - self._summaries_at >= _TICK_S:
            await self._send_summaries()
        self._end_lapsed(now)
        self._forget(now)
        self._ask(now)

    def _needed(self) -> dict[int, Detail]:
        """Return the nodes of which something is needed, and how much."""
        followed = dict.fromkeys(self._followed_until, Detail.SUMMARIES)
        return followed | dict.fromkeys(self._interest.node_ids(), Detail.SAMPLES)

    def _ask(self, now: float) -> None:
        by_replica: dict[int, dict[int, tuple[int, Detail]]] = {}
        for node_id, detail in self._needed().items():
            location = self._locations.elsewhere(node_id)
            if location is not None and location.replica_id is not None and self._connections.get(node_id) is None:
                known = self._held[node_id] if node_id in self._following else 0
                by_replica.setdefault(location.replica_id, {})[node_id] = (known, detail)
        nothing = Need({}, fleet=False)
        for replica in self._membership.others:
            need = Need(by_replica.get(replica.id, {}), self._interest.is_fleet_needed)
            asked, renew_at = self._asked.get(replica.id, (nothing, 0.0))
            is_due = need != nothing and now >= renew_at
            if (need != asked or is_due) and self._broker.publish(replica.id, need):
                self._asked[replica.id] = (need, now + _RENEW_S)

    def _forget(self, now: float) -> None:
        """Forget nodes that are not needed any more, cannot be, or are connected elsewhere: nothing here is present.

        So is what a replica sent that has lost NATS, and goes on with its heartbeat.
        """
        for node_id in [node_id for node_id, until in self._followed_until.items() if until <= now]:
            del self._followed_until[node_id]
        needed, fleet = self._needed(), self._interest.is_fleet_needed
        for node_id, epoch in list(self._held.items()):
            location = self._locations.elsewhere(node_id)
            if (
                location is not None
                and location.epoch <= epoch
                and not self._is_silent(node_id, location, now)
                and self._broker.is_connected
                and (node_id in needed or (fleet and node_id not in self._following))
            ):
                continue
            del self._held[node_id]
            self._following.discard(node_id)
            if not (state := self._registry.get(node_id)).connected and state.epoch == epoch:
                self._registry.remove(node_id)

    def _is_silent(self, node_id: int, location: Location, now: float) -> bool:
        """Return whether its replica sends nothing of a node although that is not stale there."""
        state = self._registry.get(node_id)
        return not location.stale and state.seen_at is not None and now > state.stale_at

    def _state(self, node_id: int, epoch: int, *, anew: bool = False) -> NodeState | None:
        """Return the state of a connection elsewhere, None for one of the past."""
        state = self._registry.get(node_id)
        if state.connected or epoch < self._locations.epoch(node_id):
            return None
        if anew or state.epoch != epoch:
            state = self._registry.renew(node_id, epoch)
            if (location := self._locations.elsewhere(node_id)) is not None:
                state.interval_s = location.interval_s
            self._held[node_id] = epoch
            self._following.discard(node_id)
        return state

    async def _begin(self, _: int, connected: Connected) -> None:
        node_id = connected.node_id
        if not connected.anew and node_id not in self._following:
            return
        if (state := self._state(node_id, connected.epoch, anew=connected.anew)) is None:
            return
        if connected.anew:
            self._following.add(node_id)
        state.interval_s, state.sends_columns = connected.interval_s, connected.sends_columns
        state.clock_skew_ms, state.clock_correction_ms = connected.clock_skew_ms, connected.clock_correction_ms
        state.physical = None if connected.physical is None else frozenset(connected.physical)

    async def _receive(self, sender: int, forwarded: Forwarded) -> None:
        node_id, state = forwarded.node_id, self._registry.get(forwarded.node_id)
        if state.connected or node_id not in self._following or state.epoch != forwarded.epoch:
            return
        try:
            self.show(node_id, state, decode_to_backend(forwarded.frame), len(forwarded.frame))
        except (ProtocolError, ValueError) as error:
            log.warning("A message of node %d from backend %d was refused: %s", node_id, sender, error)

    async def _receive_summaries(self, _: int, summaries: Summaries) -> None:
        for node_id, epoch, detail, summary in summaries.nodes:
            if (state := self._state(node_id, epoch)) is not None:
                state.ask(detail)
                state.add_summary(summary)


def _present(state: NodeState) -> Iterable[ToBackend]:
    """Return as messages what the agent sent last of everything that is shown.

    Intervals after processes and classes: who waits for an interval needs these, too.
    """
    if state.tasks:
        yield TasksMessage(time.time_ns() // 1_000_000, state.tasks)
    if (flows := state.flows) is not None:
        yield FlowsMessage(flows.time_ms, flows.tasks, flows.exact, flows.cgroups, flows.numa, flows.cpusets)
    yield from state.classes.values()
    for rates in state.recent_rates():
        yield RatesMessage(rates)
    if (summary := state.latest_summary()) is not None:
        yield SummaryMessage(summary)
