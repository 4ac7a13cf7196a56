"""Quotas: how many rows and bytes one node or user may have stored, and what was rejected because of them."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

import zstandard
from sqlalchemy import text

from coresteer.audit.service import record
from coresteer.background import cancel, repeat
from coresteer.config import Config
from coresteer.db import Database
from coresteer.errors import TooManyRequests

log = logging.getLogger("coresteer")

_AT_ONCE_BYTES = 64 * 1024**2
"""Bytes of any quota that may be stored at once: an agent's buffer of an outage has a tenth of it."""
_LEAST_COMPRESSED = 64
"""PostgreSQL's pglz makes a value at most about this many times smaller; zstd compresses repetitions further."""
_ENTROPY = 3
"""zstd stores the characters of a text such as hexadecimal digits in fewer bits, which pglz does not."""
_AUDIT_EVERY_S = 3600.0
_WRITE_EVERY_S = 1.0
_REQUEST_RETRY_S = 60
_zstd = zstandard.ZstdCompressor(level=1)


class Stored(StrEnum):
    """What a quota is about.

    telemetry: samples, flows and figures of service classes of a node. reports: its decisions, topologies, inventories
    and reports about changes and experiments. requests: of a user, those that change something.
    """

    TELEMETRY = "telemetry"
    REPORTS = "reports"
    REQUESTS = "requests"


class Peer(NamedTuple):
    """A node by its id, or a user by name."""

    kind: Literal["node", "user"]
    id: int | str


@dataclass(frozen=True)
class Quota:
    """Rows and bytes that may be stored at once, and the rates at which used ones become available again."""

    rows: int
    rows_per_s: float
    bytes_per_s: float
    bytes: int = _AT_ONCE_BYTES

    def share(self, backends: int) -> "Quota":
        """Return the part of one of several backends: of the rows and rates, and at least half of the bytes at once.

        So each admits the largest body, a trace of 32 MiB.
        """
        if backends == 1:
            return self
        rows, size = -(-self.rows // backends), -(-self.bytes // min(backends, 2))
        return Quota(rows, self.rows_per_s / backends, self.bytes_per_s / backends, size)


def quotas_of(config: Config) -> dict[Stored, Quota]:
    """Return the quota of each kind. Over the retention period one node fills at most three quarters of the budget.

    With the defaults 18 kB of samples a second, five times what 512 CPUs and 2,000 interrupts take.
    """
    bytes_per_s = config.retention_bytes / (config.retention_days * 86_400)
    return {
        # a chunk a minute and flows every 5 s; a backlog of an agent that samples once an hour has a chunk per sample
        Stored.TELEMETRY: Quota(rows=8192, rows_per_s=2.0, bytes_per_s=bytes_per_s / 2),
        # a decision every 5 s, of a policy that never settles
        Stored.REPORTS: Quota(rows=4096, rows_per_s=1.0, bytes_per_s=bytes_per_s / 4),
        # a script that labels a fleet
        Stored.REQUESTS: Quota(rows=4096, rows_per_s=4.0, bytes_per_s=bytes_per_s / 4),
    }


def stored_size(data: bytes) -> int:
    """Return about how many bytes the database takes for data, whether that can be compressed or not."""
    return max(min(len(data), _ENTROPY * len(_zstd.compress(data))), len(data) // _LEAST_COMPRESSED)


@dataclass
class Usage:
    """What one peer has used of one quota since the backend started; rows_left and bytes_left as of at_s (monotonic).

    exceeded_at: Unix time of the last rejection.
    """

    rows_left: float
    bytes_left: float
    at_s: float
    rows: int = 0
    bytes: int = 0
    rejected_rows: int = 0
    rejected_bytes: int = 0
    exceeded_at: float | None = None
    audited_s: float | None = None


@dataclass
class Quotas:
    """The quotas of all peers, in memory. When one is exceeded, it is recorded in the audit log, at most hourly.

    Of several backends, each grants a user its share. An agent is connected to one of them at a time, and its quota
    becomes available again only there, so that it gains nothing by moving. backends: how many are alive.
    """

    database: Database
    limits: dict[Stored, Quota]
    clock: Callable[[], float] = time.monotonic
    backends: Callable[[], int] = lambda: 1
    _usage: dict[tuple[Peer, Stored], Usage] = field(default_factory=dict)
    _exceeded: list[tuple[Peer, Stored]] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _flushing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def start(self) -> None:
        """Start recording exceeded quotas in the audit log."""
        failure = "Recording exceeded quotas failed; retrying."
        self._tasks = [asyncio.create_task(repeat(self.flush, _WRITE_EVERY_S, log, failure))]

    async def stop(self) -> None:
        """Stop recording."""
        await cancel(self._tasks)

    def admit(self, peer: Peer, stored: Stored, size: int, rows: int = 1) -> bool:
        """Count rows of size bytes in all; return False, and count them as rejected, if they exceed the quota."""
        quota, now = self.limits[stored], self.clock()
        if peer.kind == "user":
            quota = quota.share(self.backends())
        usage = self._usage.get((peer, stored))
        if usage is None:
            usage = self._usage[peer, stored] = Usage(quota.rows, quota.bytes, now)
        passed_s, usage.at_s = now - usage.at_s, now
        usage.rows_left = min(quota.rows, usage.rows_left + passed_s * quota.rows_per_s)
        usage.bytes_left = min(quota.bytes, usage.bytes_left + passed_s * quota.bytes_per_s)
        if rows <= usage.rows_left and size <= usage.bytes_left:
            usage.rows_left -= rows
            usage.bytes_left -= size
            usage.rows += rows
            usage.bytes += size
            return True
        usage.rejected_rows += rows
        usage.rejected_bytes += size
        usage.exceeded_at = time.time()
        if usage.audited_s is None or now - usage.audited_s >= _AUDIT_EVERY_S:
            usage.audited_s = now
            self._exceeded.append((peer, stored))
        return False

    def resume(self, peer: Peer) -> None:
        """Note that a node has connected: while it was not connected here, nothing became available again."""
        for stored in Stored:
            if (usage := self._usage.get((peer, stored))) is not None:
                usage.at_s = self.clock()

    def sentence(self, stored: Stored) -> str:
        """Return why something of this kind was rejected, and what to do about it."""
        quota = self.limits[stored]
        return (
            f"The quota of {stored} is exceeded: {quota.rows} rows or {quota.bytes >> 20} MiB at once, and "
            f"{quota.rows_per_s:g} rows or {quota.bytes_per_s:.0f} bytes a second. Bytes grow with "
            "CORESTEER_RETENTION_BYTES."
        )

    def admit_request(self, username: str, size: int) -> None:
        """Count a user's request that changes something. Raises TooManyRequests if it exceeds the quota."""
        if not self.admit(Peer("user", username), Stored.REQUESTS, size):
            raise TooManyRequests(
                f"{self.sentence(Stored.REQUESTS)} {username} has to wait.", retry_after_s=_REQUEST_RETRY_S
            )

    def usages(self) -> dict[tuple[Peer, Stored], Usage]:
        """Return the usage of each peer that has stored anything since the start, by kind."""
        return dict(self._usage)

    def forget(self, peer: Peer) -> None:
        """Forget a deleted peer."""
        for stored in Stored:
            self._usage.pop((peer, stored), None)

    async def flush(self) -> None:
        """Record the quotas that were exceeded since the last call in the audit log, each once."""
        async with self._flushing:
            while self._exceeded:
                peer, stored = self._exceeded[0]
                usage = self._usage.get((peer, stored))
                async with self.database.session() as session:
                    node_id = peer.id if peer.kind == "node" and isinstance(peer.id, int) else None
                    name = await session.scalar(text("SELECT name FROM node WHERE id = :id"), {"id": node_id})
                    record(
                        session,
                        actor="coresteer",
                        action="quota.exceed",
                        target=f"{peer.kind} {name or peer.id}",
                        node_id=node_id,
                        result="refused",
                        detail={
                            "quota": stored,
                            "rejected_rows": usage.rejected_rows if usage else None,
                            "rejected_bytes": usage.rejected_bytes if usage else None,
                            "sentence": self.sentence(stored),
                        },
                    )
                del self._exceeded[0]
                log.warning("The quota of %s of %s %s is exceeded.", stored, peer.kind, name or peer.id)
