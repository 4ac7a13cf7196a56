"""Prints the backend's address and the link that creates the first administrator."""

from collections.abc import Callable

from coresteer.auth import service as auth
from coresteer.config import Config
from coresteer.db import Database


async def set_up_link(address: str, database: Database, *, replaces: bool = True) -> str | None:
    """Create and return a new set-up link, None when there is a user. replaces: former ones become invalid."""
    async with database.session() as session:
        token = await auth.new_set_up_token(session, replaces=replaces)
    return f"{address}/setup?token={token}" if token else None


async def announce(config: Config, database: Database, say: Callable[[str], None]) -> None:
    """Print the backend's address, and a set-up link while there is no user.

    Former links stay valid: `coresteer set-up-link` may have printed one while this backend started.
    """
    link = await set_up_link(config.public_address, database, replaces=False)
    say(f"Coresteer is at {config.public_address}")
    if config.tls is not None:
        say(
            f"Its certificate authority is {config.ca_path}, SHA-256 {config.ca_fingerprint}. Enrolment tokens contain "
            "this, so that agents trust no other; a browser warns until you import the file."
        )
    if link:
        say(f"Create the first administrator with this link, which works once: {link}")
