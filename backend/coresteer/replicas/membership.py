"""This backend among the others on its database: its heartbeat, who else is alive, and who leads."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from coresteer.background import cancel
from coresteer.db import Database
from coresteer.errors import is_database_unavailable
from coresteer.replicas import repository
from coresteer.replicas.repository import GONE_AFTER_S, LEASE_S, Replica

log = logging.getLogger("coresteer.replicas")

CHANNEL = "coresteer_replicas"
"""Notified when a replica joins or leaves."""
RENEW_S = 3.0
_RETRY_S = 1.0


class Membership:
    """Renews this replica's heartbeat every 3 s, and knows the others as of then.

    While the database does not answer, nothing is concluded about others: what was known last stays.
    id: of this replica; 0 before it has joined. installation: identifies the database, among all that there are.
    """

    def __init__(self, database: Database, name: str, version: str, *, renew_s: float = RENEW_S) -> None:
        self.id = 0
        self.installation = ""
        self.name = name
        self.replicas: Mapping[int, Replica] = {}
        self.on_change: list[Callable[[], None]] = []
        """Called after each renewal that found other replicas alive, gone or leading than the one before."""
        self._database = database
        self._version = version
        self._renew_s = renew_s
        self._token: int | None = None
        self._renewed_at = 0.0
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        """Add this replica, and take the lease if nobody holds it. Raises database errors."""
        if not self.id:
            async with self._database.pool.connection() as connection:
                self.installation = await repository.installation(connection)
                self.id = await repository.add(connection, self.name, self._version)
                await connection.execute(f"NOTIFY {CHANNEL}")
        await self.renew()

    def start(self) -> None:
        """Start renewing the heartbeat."""
        self._tasks = [asyncio.create_task(self._run())]

    async def stop(self) -> None:
        """Stop, and give up what this replica holds, so that nobody waits for it."""
        await cancel(self._tasks)
        self._token = None
        if not self.id:
            return
        try:
            async with self._database.pool.connection() as connection:
                await repository.remove(connection, self.id)
                await connection.execute(f"NOTIFY {CHANNEL}")
        except Exception as error:
            log.warning("The other backends notice within %d s that this one has stopped: %r", GONE_AFTER_S, error)

    def wake(self) -> None:
        """Renew soon: a replica has joined or left."""
        self._wake.set()

    def distrust_lease(self) -> None:
        """Do not lead until the next renewal, soon, says whether this replica still holds the lease."""
        self._token = None
        self._wake.set()

    @property
    def token(self) -> int | None:
        """Return the fencing token while this replica leads, None while it does not, or may not any more."""
        return self._token if self._silent_s < LEASE_S else None

    @property
    def is_isolated(self) -> bool:
        """Return whether the others count this replica as gone, because the database does not answer it."""
        return bool(self.id) and self._silent_s >= GONE_AFTER_S

    @property
    def _silent_s(self) -> float:
        return time.monotonic() - self._renewed_at

    @property
    def others(self) -> list[Replica]:
        """Return the other replicas that are alive."""
        return [replica for replica in self.replicas.values() if replica.alive and replica.id != self.id]

    def is_alive(self, replica_id: int) -> bool:
        """Return whether a replica is alive; this one is."""
        replica = self.replicas.get(replica_id)
        return replica_id == self.id or (replica is not None and replica.alive)

    def name_of(self, replica_id: int) -> str:
        """Return the name of a replica, also of one that is gone."""
        replica = self.replicas.get(replica_id)
        return f"number {replica_id}" if replica is None else replica.name

    async def renew(self) -> None:
        """Renew the heartbeat and learn of the others. Raises database errors."""
        began = time.monotonic()
        async with self._database.pool.connection() as connection:
            token = await repository.renew(connection, self.id, self.name, self._version)
            replicas = await repository.list_replicas(connection)
            if token is not None and any(not replica.alive for replica in replicas):
                await repository.remove_gone(connection)
        before = self.summary()
        self._token, self._renewed_at = token, began
        self.replicas = {replica.id: replica for replica in replicas}
        if self.summary() != before:
            for changed in self.on_change:
                changed()

    def summary(self) -> tuple[int | None, frozenset[tuple[int, bool, bool]]]:
        """Return what others act on: this replica's token, who is alive and who leads."""
        return self._token, frozenset((each.id, each.alive, each.leads) for each in self.replicas.values())

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._renew_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self.renew()
            except Exception as error:
                if not is_database_unavailable(error):
                    log.exception("Renewing this backend's heartbeat failed; retrying.")
                await asyncio.sleep(_RETRY_S)
                self._wake.set()
