"""A PostgreSQL and a backend of a bench's own."""

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import requests
from tests.support.polling import poll_async

from coresteer.auth.secrets import API_TOKEN_PREFIX, ENROLMENT_TOKEN_PREFIX, token_hash
from coresteer.config import REPOSITORY
from coresteer.db import Database
from coresteer.postgres import EmbeddedPostgres

ENROLMENT, API_TOKEN = f"{ENROLMENT_TOKEN_PREFIX}bench", f"{API_TOKEN_PREFIX}bench"
_SERVE = """
import logging
from coresteer.config import Config
from coresteer.cli.asgi_server import serve
logging.getLogger("coresteer.telemetry").setLevel(logging.DEBUG)
{patch}
serve(Config(), print)
"""


@dataclass(frozen=True)
class OwnBackend:
    """A running backend. pid: its process; owner_url: of the database's owner; log: the file with what it prints."""

    url: str
    pid: int
    database: Database
    owner_url: str
    state_dir: Path
    log: Path


@asynccontextmanager
async def own_backend(patch: str = "") -> AsyncIterator[OwnBackend]:
    """Run a backend with an enrolment token and a user, and remove it. patch: Python that it runs before it serves."""
    state_dir = Path(tempfile.mkdtemp(prefix="coresteer-bench-"))
    postgres = EmbeddedPostgres(state_dir)
    await postgres.start()
    await Database(postgres.url, REPOSITORY / "migrations").migrate(postgres.backend_url)
    database = Database(postgres.backend_url, REPOSITORY / "migrations")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url, log = f"http://127.0.0.1:{port}", state_dir / "backend.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _SERVE.format(patch=patch)),
            env=os.environ | {"DATABASE_URL": postgres.backend_url, "CORESTEER_PORT": str(port)},
            stdout=output,
            stderr=output,
        )
    try:
        await poll_async(lambda: asyncio.to_thread(is_healthy, url), timeout_s=300, interval_s=0.2)
        await database.open()
        await prepare(database)
        yield OwnBackend(url, process.pid, database, postgres.url, state_dir, log)
    finally:
        process.terminate()
        await process.wait()
        await database.close()
        await postgres.stop()
        shutil.rmtree(state_dir)


def is_healthy(url: str) -> bool:
    """Return whether a backend can do all its work."""
    with suppress(requests.RequestException):
        return bool(requests.get(f"{url}/api/v1/health", timeout=5).json()["status"] == "ok")
    return False


async def prepare(database: Database, role: str = "viewer") -> None:
    """Create an enrolment token and a user for the bench."""
    async with database.pool.connection() as connection:
        await connection.execute(
            "INSERT INTO enrolment_token (token_hash, simulated, created_by, expires_at, max_uses) "
            "VALUES (%s, true, 'bench', now() + interval '1 hour', 100000)",
            (token_hash(ENROLMENT),),
        )
        await connection.execute(
            "INSERT INTO app_user (username, role, password_hash, password_salt, scrypt_n, scrypt_r, scrypt_p) "
            "VALUES ('bench', %s, '', '', 2, 1, 1)",
            (role,),
        )
        await connection.execute(
            "INSERT INTO api_token (token_hash, name, role, user_id) SELECT %s, 'bench', role, id FROM app_user",
            (token_hash(API_TOKEN),),
        )
