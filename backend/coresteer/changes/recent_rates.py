"""Rates of a node's last minute, from which a preview predicts the effect of a plan."""

from datetime import UTC, datetime, timedelta

from coresteer.db import Database
from coresteer.telemetry import repository
from coresteer.telemetry.chunk_decoding import decode_columns
from coresteer.telemetry.service import Ingest
from coresteer_core.node.rates import Rates

SPAN = timedelta(seconds=60)
"""How long a prediction looks back."""
_NEEDED = ("busy", "irq", "softirq", "irqs")


async def last_minute(database: Database, ingest: Ingest, node_id: int) -> list[Rates]:
    """Return the node's Rates of the last 60 s, oldest first, with the columns that predictions read."""
    unstored = ingest.unstored(node_id)
    # the node's clock may differ; its newest sample has its present time
    now = repository.from_unix_ms(unstored[-1].time_ms) if unstored else datetime.now(UTC)
    async with database.pool.connection() as connection:
        rows = await repository.read_chunks(connection, node_id, now - SPAN, now, _NEEDED)
    found = {rates.time_ms: rates for rates in unstored}
    for samples, cpus, scalars, *columns in rows:
        stored = decode_columns(samples, cpus, scalars, dict(zip(_NEEDED, columns, strict=True)))
        found |= {rates.time_ms: rates for rates in stored}
    oldest = repository.to_unix_ms(now - SPAN)
    return [found[time_ms] for time_ms in sorted(found) if time_ms > oldest]
