"""Runs the application in uvicorn."""

import errno
import logging
import socket
from collections.abc import Callable

import uvicorn

from coresteer.app import create_app
from coresteer.auth import service as auth
from coresteer.config import Config
from coresteer.db import Database
from coresteer_core.protocol import MAX_FRAME_BYTES

_PATIENCE_MS = 30_000


class PortBusyError(Exception):
    """Something else listens on the backend's address; the message names it and the option."""


def listening_socket(config: Config) -> socket.socket:
    """The backend's socket, bound. Raises PortBusyError, or OSError for an address that is not this machine's."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # connections inherit it: one whose peer takes nothing any more ends instead of lasting for many minutes
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _PATIENCE_MS)
    try:
        listener.bind((config.host, config.port))
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortBusyError(
            f"Port {config.port} on {config.host} is in use already. Is Coresteer running? "
            "Choose another port with --port or CORESTEER_PORT."
        ) from None
    return listener


async def set_up_link(config: Config, database: Database) -> str | None:
    """A new link that makes the first administrator; None when there is a user already."""
    async with database.session() as session:
        token = await auth.new_set_up_token(session)
    return f"{config.address}/setup?token={token}" if token else None


async def announce(config: Config, database: Database, say: Callable[[str], None]) -> None:
    """Say where the backend is, and the set-up link while nobody can sign in."""
    say(f"Coresteer is at {config.address}")
    if link := await set_up_link(config, database):
        say(f"Make the first administrator with this link, which works once: {link}")


def serve(config: Config, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)

    async def announce_unless_supervised(database: Database) -> None:
        if not config.supervised:
            await announce(config, database, say)

    app = create_app(config, announce_unless_supervised)
    listener = listening_socket(config)
    # uvicorn would show a failed start as a traceback; it is told below
    logging.getLogger("uvicorn.error").addFilter(lambda _: app.state.failure is None)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            loop="uvloop",
            http="httptools",
            ws="websockets-sansio",
            ws_per_message_deflate=False,
            ws_max_size=MAX_FRAME_BYTES,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # whoever sits on loopback could otherwise claim any address at the login limit
            timeout_graceful_shutdown=2,
        )
    )
    try:
        server.run(sockets=[listener])
    except SystemExit:
        if app.state.failure is None:
            raise
    if app.state.failure is not None:
        raise app.state.failure
