"""A PostgreSQL server of a test, in a folder of its own."""

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from coresteer.postgres import EmbeddedPostgres


@contextlib.asynccontextmanager
async def running_postgres(
    prefix: str, *, pg_bin: Path | None = None, settings: Mapping[str, str] | None = None
) -> AsyncIterator[EmbeddedPostgres]:
    """Start a server that loses its data in a crash.

    Its folder is not pytest's, which the server's account may not enter when the tests run as root.
    """
    state_dir = Path(tempfile.mkdtemp(prefix=prefix))
    server = EmbeddedPostgres(state_dir, pg_bin=pg_bin, durable=False, settings=settings)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
        shutil.rmtree(state_dir)
