"""Tells the person at the terminal where the backend is, and how the first administrator is made."""

from collections.abc import Callable

from coresteer.auth import service as auth
from coresteer.config import Config
from coresteer.db import Database


async def set_up_link(address: str, database: Database) -> str | None:
    """A new link that makes the first administrator; None when there is a user already."""
    async with database.session() as session:
        token = await auth.new_set_up_token(session)
    return f"{address}/setup?token={token}" if token else None


async def announce(config: Config, database: Database, say: Callable[[str], None]) -> None:
    """Say where the backend is, and the set-up link while nobody can sign in."""
    link = await set_up_link(config.public_address, database)
    say(f"Coresteer is at {config.public_address}")
    if link:
        say(f"Make the first administrator with this link, which works once: {link}")
