"""Keeps the gauges of GET /metrics up to date: what the backend has now, rather than what it counts."""

import asyncio
import logging
from collections.abc import Callable
from typing import get_args

from coresteer.background import cancel, repeat
from coresteer.health import Readiness, Trouble
from coresteer.instruments import AGENTS_CONNECTED, LEADS, PROBLEM, SAMPLE_BYTES_WAITING
from coresteer.presence.connections import Connections
from coresteer.replicas.membership import Membership
from coresteer.telemetry.service import Ingest

log = logging.getLogger("coresteer")
_EVERY_S = 5.0


class Gauges:
    """Sets the gauges every 5 s."""

    def __init__(
        self,
        connections: Connections,
        ingest: Ingest,
        membership: Membership,
        readiness: Readiness,
        is_ready: Callable[[], bool],
    ) -> None:
        self._connections = connections
        self._ingest = ingest
        self._membership = membership
        self._readiness = readiness
        self._is_ready = is_ready
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start setting the gauges."""
        failure = "The gauges of /metrics are not set; trying again."
        self._tasks = [asyncio.create_task(repeat(self._set, _EVERY_S, log, failure))]

    async def stop(self) -> None:
        """Stop setting them; they are zero from now on."""
        await cancel(self._tasks)
        for gauge in (AGENTS_CONNECTED, LEADS, SAMPLE_BYTES_WAITING):
            gauge.set(0)

    async def _set(self) -> None:
        AGENTS_CONNECTED.set(len(self._connections.node_ids()))
        LEADS.set(self._membership.token is not None)
        SAMPLE_BYTES_WAITING.set(self._ingest.waiting_bytes)
        found = {reason.what for reason in await self._readiness.reasons(is_started=self._is_ready())}
        for what in get_args(Trouble):
            PROBLEM.labels(what).set(what in found)
