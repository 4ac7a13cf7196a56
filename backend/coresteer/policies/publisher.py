"""Tells each connected agent which policies are in force on its node, after Welcome and whenever that changes."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import TypeAlias

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.bus import Bus, NodeEvent, PoliciesEvent
from coresteer.db import Database
from coresteer.errors import is_database_away
from coresteer.policies import repository
from coresteer.policies.in_force import during_experiment, in_force
from coresteer.presence.connections import Connections, Peer
from coresteer.presence.registry import Registry
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.protocol import Policies

log = logging.getLogger("coresteer.policies")

_RETRY_S = 1.0
_EVERYBODY_S = 60.0
_NODES_AT_ONCE = 500


NodesInUse: TypeAlias = Callable[[AsyncSession, Sequence[int]], Awaitable[Collection[int]]]
"""Returns those of the nodes on which an experiment runs: there only the policies that it leased may write."""


class Teller:
    """What an agent was told last on its present connection is not told again."""

    def __init__(
        self,
        database: Database,
        bus: Bus,
        connections: Connections,
        registry: Registry,
        nodes_in_use: NodesInUse,
    ) -> None:
        self._database = database
        self._bus = bus
        self._connections = connections
        self._registry = registry
        self._nodes_in_use = nodes_in_use
        self._told: dict[int, tuple[Peer, list[PolicyInForce]]] = {}
        self._leased: dict[int, list[PolicyInForce]] = {}
        self._waiting: set[int] = set()
        self._one_at_a_time = asyncio.Lock()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to tell."""
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._run())]

    async def stop(self) -> None:
        """End; agents go on with what they were told."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def tell(self, node_id: int) -> None:
        """Something about the node may have changed, or its agent connected."""
        self._waiting.add(node_id)
        self._wake.set()

    def lease(self, node_id: int, policies: list[PolicyInForce]) -> None:
        """What the experiment on the node has in force from now on, beside policies that do not act meanwhile."""
        if policies:
            self._leased[node_id] = policies
        else:
            self._leased.pop(node_id, None)

    async def tell_now(self, node_id: int) -> None:
        """Tell what is in force on the node if its agent is connected; what is sent to it afterwards comes later."""
        await self._tell([node_id])

    def _tell_everybody(self) -> None:
        self._waiting.update(node_id for node_id, state in self._registry.items() if state.connected)
        self._wake.set()

    async def _listen(self) -> None:
        with self._bus.subscribe() as events:
            async for event in events:
                match event:
                    case PoliciesEvent(None):
                        self._tell_everybody()
                    case NodeEvent(node_id):
                        self.tell(node_id)

    async def _run(self) -> None:
        everybody_at = time.monotonic() + _EVERYBODY_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, everybody_at - time.monotonic())):
                    await self._wake.wait()
            if time.monotonic() >= everybody_at:  # an event may have been lost in a storm of them
                everybody_at = time.monotonic() + _EVERYBODY_S
                self._tell_everybody()
            self._wake.clear()
            while self._waiting:
                some = list(self._waiting)[:_NODES_AT_ONCE]
                self._waiting.difference_update(some)
                try:
                    await self._tell(some)
                except Exception as error:
                    if not is_database_away(error):
                        log.exception("Some agents could not be told their policies; trying again.")
                    self._waiting.update(some)
                    await asyncio.sleep(_RETRY_S)

    async def _tell(self, node_ids: list[int]) -> None:
        async with self._one_at_a_time:
            await self._tell_some(node_ids)

    async def _tell_some(self, node_ids: list[int]) -> None:
        peers = {node_id: peer for node_id in node_ids if (peer := self._connections.get(node_id)) is not None}
        for node_id in set(node_ids) - peers.keys():
            self._told.pop(node_id, None)
        if not peers:
            return
        async with self._database.session() as session:
            policies = await repository.enabled(session)
            facts = await repository.facts(session, list(peers))
            in_use = await self._nodes_in_use(session, list(peers))
        for one in facts:
            peer, now = peers[one.node_id], in_force(policies, one)
            if one.node_id in in_use:
                now = during_experiment(now, self._leased.get(one.node_id, ()))
            if self._told.get(one.node_id) != (peer, now):
                self._told[one.node_id] = (peer, now)
                peer.post(Policies(now))
                self._bus.publish(PoliciesEvent(one.node_id))
