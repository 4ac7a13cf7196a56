"""Whether the backend runs and can do its work: /livez, /readyz, /api/v1/health; the backends of the database."""

import os
from datetime import datetime
from statistics import median
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from coresteer.auth.dependencies import Admin
from coresteer.config import Config
from coresteer.db import VERSION, Database, works_with
from coresteer.paths import FORMER_HEALTH
from coresteer.presence.registry import NodeRegistry
from coresteer.replicas.broker import Broker
from coresteer.replicas.repository import list_replicas

MIN_FREE_BYTES = 48 * 1024**2
"""Three segments of PostgreSQL's write-ahead log; without room for the next one the server stops."""
MIN_FREE_SHARE, ENOUGH_FREE_BYTES = 0.02, 1024**3
"""The share of a large disk that has to be free, and how much is enough on the largest."""
MAX_CLOCK_OFFSET_S = 5.0
MIN_NODES = 3
"""Connected nodes from which their median, rather than the backend's clock, is believed."""

Trouble = Literal["starting", "database", "migrations", "disk", "clock", "nats"]

router = APIRouter()
probes_router = APIRouter()


class Reason(BaseModel):
    """Why the backend cannot do its work, or with nats not all of it, and what to do."""

    what: Trouble
    detail: str


class LiveResponse(BaseModel):
    """The process answers."""

    status: Literal["live"] = "live"


class ReadyResponse(BaseModel):
    """Whether the backend can do its work, with all reasons why not; without NATS it is ready, with that reason."""

    status: Literal["ready", "not-ready"]
    reasons: list[Reason]


class HealthResponse(BaseModel):
    """Health of the backend; degraded for any reason of /readyz."""

    status: Literal["ok", "degraded"]
    database: Literal["ok", "away"]
    version: str
    reasons: list[Reason]


class Backend(BaseModel):
    """A backend on this database.

    name: its host and port, and its number among workers that share them. silent_s: since its last heartbeat;
    is_alive: less than 15 s. leads: it runs rollouts, experiments, the proof of policies and retention. answered: it
    answered this request.
    """

    id: int
    name: str
    version: str
    started_at: datetime
    silent_s: float
    is_alive: bool
    leads: bool
    answered: bool


class Readiness:
    """Checks of what the backend needs."""

    def __init__(self, config: Config, database: Database, registry: NodeRegistry, broker: Broker) -> None:
        self._database = database
        self._broker = broker
        self._registry = registry
        self._data = config.state_dir / "postgres" / "data"

    async def reasons(self, *, is_started: bool) -> list[Reason]:
        """Return why the backend cannot do its work, an empty list when it can. is_started: its features run."""
        reasons = []
        status = await self._database.status()
        if status is None:
            reasons.append(
                Reason(what="database", detail="The database does not answer; the backend tries again each second.")
            )
        elif is_started and not works_with(
            status.schema, status.oldest_backend, newest := await self._database.newest_schema()
        ):
            detail = f"The database's schema has version {status.schema or 'none'}, this program needs {newest}."
            reasons.append(Reason(what="migrations", detail=f"{detail} Run `coresteer migrate`, or install the newer."))
        elif not is_started:
            reasons.append(Reason(what="starting", detail="The backend is bringing the database's schema up to date."))
        if (disk := self.disk()) is not None:
            reasons.append(Reason(what="disk", detail=disk))
        offset_s = None if status is None else status.clock_offset_s
        if (clock := self._clock(offset_s)) is not None:
            reasons.append(Reason(what="clock", detail=clock))
        if is_started and self._broker.trouble is not None:
            detail = f"{self._broker.trouble} Nodes of other backends are shown without live samples, and commands to "
            reasons.append(Reason(what="nats", detail=f"{detail}them are refused, until it is back."))
        return reasons

    def disk(self) -> str | None:
        """Return why the database's disk has too little room, None while it has enough or nothing is known of it."""
        try:
            disk = os.statvfs(self._data)
        except OSError:  # the database is not the built-in one, so only it can tell
            if self._database.is_disk_full:
                return "The database has just refused to store something because its disk is full: free space there."
            return None
        free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        needed = max(MIN_FREE_BYTES, min(total * MIN_FREE_SHARE, ENOUGH_FREE_BYTES))
        if free < needed:
            return (
                f"The disk of {self._data} has {free / 1024**2:.0f} MiB free of {total / 1024**2:.0f}; the database "
                f"needs {needed / 1024**2:.0f}. Free space on it, or lower CORESTEER_RETENTION_BYTES."
            )
        return None

    def disk_used_percent(self) -> float | None:
        """Return the used part of the built-in database's disk in percent, None for another database."""
        try:
            disk = os.statvfs(self._data)
        except OSError:
            return None
        usable = disk.f_blocks - disk.f_bfree + disk.f_bavail  # as df: without what is reserved for root
        return 100.0 * (1 - disk.f_bavail / usable) if usable else None

    def _clock(self, database_offset_s: float | None) -> str | None:
        if database_offset_s is not None and abs(database_offset_s) > MAX_CLOCK_OFFSET_S:
            return f"The clocks of this machine and of the database's differ by {abs(database_offset_s):.0f} s."
        skews = [state.clock_skew_ms for _, state in self._registry.items() if state.connected and state.clock_skew_ms]
        if len(skews) >= MIN_NODES and abs(offset_s := median(skews) / 1000) > MAX_CLOCK_OFFSET_S:
            return f"This machine's clock differs by {abs(offset_s):.0f} s from those of most of {len(skews)} nodes."
        return None


async def _reasons(request: Request) -> list[Reason]:
    readiness: Readiness = request.app.state.readiness
    return await readiness.reasons(is_started=request.app.state.is_ready)


@probes_router.get("/livez", include_in_schema=False)
async def livez() -> LiveResponse:
    """Return that the process answers; restart it when this fails."""
    return LiveResponse()


@probes_router.get("/readyz", include_in_schema=False)
async def readyz(request: Request, response: Response) -> ReadyResponse:
    """Return whether the backend can do its work: 503 with the reasons when it cannot."""
    reasons = await _reasons(request)
    is_ready = all(reason.what == "nats" for reason in reasons)
    if not is_ready:
        response.status_code = 503
    return ReadyResponse(status="ready" if is_ready else "not-ready", reasons=reasons)


@router.get("/backends")
async def list_backends(request: Request, _: Admin) -> list[Backend]:
    """Return all backends on this database, the oldest first; those that have been gone for an hour are removed."""
    database: Database = request.app.state.database
    async with database.pool.connection() as connection:
        found = await list_replicas(connection)
    return [
        Backend(
            id=each.id,
            name=each.name,
            version=each.version,
            started_at=each.started_at,
            silent_s=each.silent_s,
            is_alive=each.alive,
            leads=each.leads,
            answered=each.id == request.app.state.membership.id,
        )
        for each in found
    ]


@probes_router.get(FORMER_HEALTH, include_in_schema=False)
@router.get("/health")
async def health(request: Request) -> HealthResponse:
    """Return the backend's health; answers also without a database."""
    reasons = await _reasons(request)
    is_away = any(reason.what in ("database", "starting") for reason in reasons)
    return HealthResponse(
        status="degraded" if reasons else "ok",
        database="away" if is_away else "ok",
        version=VERSION,
        reasons=reasons,
    )
