"""Run the application in the HTTP server."""

import logging
from collections.abc import Callable

from coresteer.app import create_app
from coresteer.cli.announce import announce
from coresteer.config import Config
from coresteer.db import Database
from coresteer.http_server.server import Server
from coresteer.listen import listening_socket
from coresteer.logs import set_up_logs


def serve(
    config: Config,
    say: Callable[[str], None],
    *,
    worker: int | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve the backend until SIGINT or SIGTERM. worker: its number among those that share the port, None alone."""
    set_up_logs(config.log_format)

    async def announce_unless_supervised(database: Database) -> None:
        if not config.supervised:
            await announce(config, database, say)
        on_ready()

    app = create_app(config, announce_unless_supervised, worker=worker)
    listener = listening_socket(config, shared=worker is not None)
    # uvicorn would print a failed start as a traceback; it is raised below
    logging.getLogger("uvicorn.error").addFilter(lambda _: app.state.failure is None)
    server = Server(app, config, listener)
    try:
        server.run()
    except SystemExit:
        if app.state.failure is None:
            raise
    if app.state.failure is not None:
        raise app.state.failure
