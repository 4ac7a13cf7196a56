"""SQL of the audit log's chain."""

from collections.abc import AsyncIterator

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.chain import PERSONAL, Entry, Head, Link

_LINKS = text("""
    SELECT number, audit_id, actor_salt, actor_digest, target_salt, target_digest, detail_salt, detail_digest,
        previous, hash, id, (extract(epoch FROM at) * 1000000)::bigint AS at_us, actor, action, target, node_id, result,
        detail::text AS detail
    FROM audit_chain LEFT JOIN audit ON id = audit_id
    WHERE number > :after ORDER BY number LIMIT :at_most
""")


async def head(session: AsyncSession) -> Head:
    """Return number and hash of the last link."""
    row = (await session.execute(text("SELECT number, hash FROM audit_head"))).one()
    return Head(row.number, row.hash)


async def links(session: AsyncSession, after: int = 0, at_most: int | None = None) -> AsyncIterator[Link]:
    """Iterate over the links with a number above after, in order; they are read a block at a time."""
    async for row in await session.stream(_LINKS, {"after": after, "at_most": at_most}):
        yield _link(row)


async def unchained(session: AsyncSession) -> list[int]:
    """Return the ids of entries of the audit log that have no link."""
    query = "SELECT id FROM audit WHERE NOT EXISTS (SELECT FROM audit_chain WHERE audit_id = id) ORDER BY id"
    return list((await session.scalars(text(query))).all())


def _link(row: Row[tuple[object, ...]]) -> Link:
    entry = None
    if row.id is not None:
        fields = (row.id, row.at_us, row.actor, row.action, row.target, row.node_id, row.result, row.detail)
        entry = Entry(*fields)
    values = row._mapping
    salted = {field: (values[f"{field}_salt"], values[f"{field}_digest"]) for field in PERSONAL}
    return Link(row.number, row.audit_id, salted, row.previous, row.hash, entry)
