"""Run the application in uvicorn."""

import logging
from collections.abc import Callable

import uvicorn

from coresteer.app import create_app
from coresteer.cli.announce import announce
from coresteer.config import Config
from coresteer.db import Database
from coresteer.listen import listening_socket
from coresteer_core.protocol import MAX_FRAME_BYTES


def serve(config: Config, say: Callable[[str], None]) -> None:
    """Serve the backend until SIGINT or SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)

    async def announce_unless_supervised(database: Database) -> None:
        if not config.supervised:
            await announce(config, database, say)

    app = create_app(config, announce_unless_supervised)
    listener = listening_socket(config)
    # uvicorn would print a failed start as a traceback; it is raised below
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
            # without a proxy, any local process could evade the login limit by claiming addresses
            proxy_headers=config.public_url is not None,
            forwarded_allow_ips=config.trusted_proxies,
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
