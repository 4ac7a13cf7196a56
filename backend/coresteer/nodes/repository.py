"""SQL about nodes."""

from sqlalchemy import ARRAY, LargeBinary, Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncSession

_UPSERT = text("""
    INSERT INTO node (name, key_hash, simulated)
    SELECT name, key_hash, :simulated FROM unnest(:names, :hashes) AS new (name, key_hash)
    ON CONFLICT (name) DO UPDATE SET key_hash = excluded.key_hash WHERE node.simulated = excluded.simulated
    RETURNING id, name
""").bindparams(bindparam("names", type_=ARRAY(Text)), bindparam("hashes", type_=ARRAY(LargeBinary)))


async def upsert(session: AsyncSession, key_hashes: dict[str, bytes], *, simulated: bool) -> dict[str, int]:
    """Ids by name; a name taken by a node of the other kind is left out."""
    rows = await session.execute(
        _UPSERT, {"names": list(key_hashes), "hashes": list(key_hashes.values()), "simulated": simulated}
    )
    return {row.name: row.id for row in rows}
