"""Enrolment of nodes."""

import hashlib
import secrets

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.auth.schemas import EnrolledNode
from coresteer.errors import Conflict, Invalid
from coresteer.nodes import repository


def hash_key(key: str) -> bytes:
    """What is kept of an agent's key. Keys are random, so that one round of SHA-256 is enough."""
    return hashlib.sha256(key.encode()).digest()


async def enrol(session: AsyncSession, names: list[str], *, simulated: bool) -> list[EnrolledNode]:
    """Nodes of these names with a new key each, in the order asked for.

    A name that exists already keeps its history and gets a new key; the old one stops working. Raises Conflict when a
    real node would become a simulated one or the other way round, Invalid when a name is given twice.
    """
    if len(set(names)) != len(names):
        raise Invalid("A name is given twice; every node needs a name of its own.", field="names")
    keys = {name: f"csn_{secrets.token_urlsafe(32)}" for name in names}
    ids = await repository.upsert(session, {name: hash_key(key) for name, key in keys.items()}, simulated=simulated)
    if missing := [name for name in names if name not in ids]:
        kind, other = ("simulated", "real") if simulated else ("real", "simulated")
        raise Conflict(f"“{missing[0]}” is a {other} node already; choose another name for the {kind} one.")
    return [EnrolledNode(node_id=ids[name], name=name, key=key) for name, key in keys.items()]
