"""What history takes in the database, and whose quotas were exceeded, over HTTP."""

from datetime import UTC, datetime
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel

from coresteer.auth.dependencies import Admin
from coresteer.quotas import Quotas, Stored
from coresteer.telemetry import evidence, partitions

router = APIRouter()


class QuotaExceeded(BaseModel):
    """A quota of a node (by id) or user (by name) that was exceeded since the backend started.

    rows, bytes: stored under it. rejected_rows, rejected_bytes: not stored because of it. exceeded_at: most recently.
    """

    peer: Literal["node", "user"]
    id: str
    quota: Stored
    rows: int
    bytes: int
    rejected_rows: int
    rejected_bytes: int
    exceeded_at: datetime


class Storage(BaseModel):
    """What history takes on disk. budget_bytes: CORESTEER_RETENTION_BYTES. tables: bytes by table, largest first."""

    budget_bytes: int
    used_bytes: int
    tables: dict[str, int]
    exceeded: list[QuotaExceeded]


@router.get("/storage")
async def get_storage(request: Request, _: Admin) -> Storage:
    """Return what history takes of its budget, and the quotas of nodes and users that were exceeded."""
    quotas: Quotas = request.app.state.quotas
    async with request.app.state.database.pool.connection() as connection:
        tables = await evidence.sizes(connection)
        for partition, size in (await partitions.partition_sizes(connection)).items():
            tables[partition.table] = tables.get(partition.table, 0) + size
    exceeded = [
        QuotaExceeded(
            peer=peer.kind,
            id=str(peer.id),
            quota=stored,
            rows=usage.rows,
            bytes=usage.bytes,
            rejected_rows=usage.rejected_rows,
            rejected_bytes=usage.rejected_bytes,
            exceeded_at=datetime.fromtimestamp(usage.exceeded_at, UTC),
        )
        for (peer, stored), usage in quotas.usages().items()
        if usage.exceeded_at is not None
    ]
    return Storage(
        budget_bytes=request.app.state.config.retention_bytes,
        used_bytes=sum(tables.values()),
        tables=dict(sorted(tables.items(), key=lambda item: -item[1])),
        exceeded=sorted(exceeded, key=lambda each: each.exceeded_at, reverse=True),
    )
