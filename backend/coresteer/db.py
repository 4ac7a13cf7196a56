"""PostgreSQL: SQLAlchemy sessions for control tables, a psycopg pool for COPY and raw SQL, migrations."""

import asyncio
import logging
import select
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, LiteralString

import alembic.command
import alembic.config
import psycopg
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from fastapi import Depends
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import MetaData, create_engine, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.pool import ConnectionPoolEntry, NullPool
from starlette.requests import HTTPConnection

from coresteer import privileges
from coresteer.errors import DeposedError, is_disk_full

log = logging.getLogger("coresteer.db")

VERSION = metadata.version("coresteer")
"""The release of this program."""
OLDEST_BACKEND = "0.3.0"
"""The oldest release whose backends work on this program's schema: the previous one. `migrate` notes it there."""
MIN_SERVER_VERSION = 15
TIMEOUT_S = 3
"""Seconds a request waits for a connection before it gets 503."""

_CONNECT: dict[str, str | int] = {
    "connect_timeout": TIMEOUT_S,
    "application_name": "coresteer",
    # a server that vanished from the network is noticed within about 10 s; ignored by Unix sockets
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_DISK_FULL_S = 60.0
_NOTE = "SELECT obj_description(to_regclass('alembic_version'), 'pg_class')"
"""A comment on the table of the schema's version: OLDEST_BACKEND of the program that migrated last."""
MIGRATION_LOCK = 0x436F7265  # "Core": the advisory lock that lets one starter migrate at a time


class UnsupportedServerError(Exception):
    """The database server is older than PostgreSQL 15."""


@dataclass(frozen=True)
class ServerStatus:
    """An answer of the database server.

    clock_offset_s: its clock minus ours. schema: its version, None without one. oldest_backend: the oldest release
    whose backends work with it, None if it does not say.
    """

    clock_offset_s: float
    schema: str | None
    oldest_backend: str | None


@dataclass(frozen=True)
class Fence:
    """What must hold at the end of a transaction that writes.

    query: returns whether it does. on_break: is called when it does not, before the transaction is rolled back.
    """

    query: LiteralString
    parameters: Mapping[str, int]
    on_break: Callable[[], None]


FENCE: ContextVar[Fence | None] = ContextVar("FENCE", default=None)
"""The fence of all transactions of a task and of the tasks that it starts; the leader's tasks have one."""


class SchemaVersionError(Exception):
    """The schema is not this program's version, and the role in DATABASE_URL may not change it."""


class Base(DeclarativeBase):
    """Base class of all table classes; constraints are named as PostgreSQL names them."""

    metadata = MetaData(
        naming_convention={
            "ix": "%(table_name)s_%(column_0_N_name)s_idx",
            "uq": "%(table_name)s_%(column_0_N_name)s_key",
            "ck": "%(table_name)s_%(constraint_name)s_check",
            "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
            "pk": "%(table_name)s_pkey",
        }
    )


def works_with(schema: str | None, oldest_backend: str | None, newest: str | None) -> bool:
    """Return whether this program works with a schema: its own (newest), or a newer one that admits its release."""
    if schema is None or newest is None or schema <= newest:
        return schema == newest
    return oldest_backend is not None and _numbers(VERSION) >= _numbers(oldest_backend)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


class Database:
    """Connections to one PostgreSQL database, opened on first use.

    url: libpq's form, ``postgresql://user@host/name``.
    """

    def __init__(self, url: str, migrations_dir: Path) -> None:
        self.url = url
        self._conninfo = make_conninfo(url, **_CONNECT)
        self._migrations_dir = migrations_dir
        self.engine = create_async_engine(
            "postgresql+psycopg://",
            async_creator=self._new_connection,
            pool_size=10,
            max_overflow=5,
            pool_timeout=TIMEOUT_S,
        )
        event.listen(self.engine.sync_engine, "checkout", _refuse_ended)
        self._question: asyncio.Task[ServerStatus | None] | None = None
        self._newest_schema: str | None = None
        self._disk_full_at: float | None = None
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        self._autocommitting = async_sessionmaker(
            self.engine.execution_options(isolation_level="AUTOCOMMIT"), expire_on_commit=False
        )
        self.pool = AsyncConnectionPool(
            self._conninfo,
            min_size=1,
            max_size=10,
            timeout=TIMEOUT_S,
            reconnect_timeout=0,
            check=_check_unless_silent,
            open=False,
        )

    async def _new_connection(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(self._conninfo)

    async def connect(self) -> psycopg.AsyncConnection:
        """Open a connection outside the pool, for LISTEN; each statement commits by itself."""
        return await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)

    async def open(self) -> None:
        """Start the connection pool, also while the server does not answer."""
        await self.pool.open(wait=False)

    async def close(self) -> None:
        """Close every database connection."""
        await self.pool.close(timeout=TIMEOUT_S)
        await self.engine.dispose()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """Open a session that commits at the end of the block, or rolls back when the block raises.

        Raises DeposedError, and rolls back, where the task has a fence that does not hold.
        """
        async with self._sessions() as session, session.begin():
            yield session
            if (fence := FENCE.get()) is not None:
                await session.flush()
                connection = await session.connection()
                _check(fence, (await connection.exec_driver_sql(fence.query, fence.parameters)).scalar_one())

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """Open a transaction of the pool, for COPY and raw SQL; its end is that of session()."""
        async with self.pool.connection() as connection:
            yield connection
            if (fence := FENCE.get()) is not None:
                cursor = await connection.execute(fence.query, fence.parameters)
                _check(fence, *(await cursor.fetchone() or (False,)))

    @asynccontextmanager
    async def autocommitting(self) -> AsyncIterator[AsyncSession]:
        """Open a session each statement of which commits by itself: one round trip to the server instead of three."""
        async with self._autocommitting() as session:
            yield session

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """Lend a connection of the pool on which each statement commits by itself: one round trip to the server."""
        async with self.pool.connection() as connection:
            await connection.set_autocommit(True)
            try:
                yield connection
            finally:
                if not connection.broken:
                    await connection.set_autocommit(False)

    async def is_reachable(self) -> bool:
        """Return whether the database server answers within TIMEOUT_S."""
        return await self.status() is not None

    async def status(self) -> ServerStatus | None:
        """Return the database server's status, None if it does not answer within TIMEOUT_S; one question at a time."""
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._ask())
        # not asyncio.timeout: a cancelled task goes on waiting for a server that hangs
        await asyncio.wait([self._question], timeout=TIMEOUT_S)
        return self._question.result() if self._question.done() else None

    async def _ask(self) -> ServerStatus | None:
        try:
            async with self.engine.connect() as connection:
                clock = text("SELECT extract(epoch FROM clock_timestamp())::float8, to_regclass('alembic_version')")
                now_s, versions = (await connection.execute(clock)).one()
                offset_s = now_s - time.time()
                schema = versions and await connection.scalar(text("SELECT max(version_num) FROM alembic_version"))
                oldest = await connection.scalar(text(_NOTE))
        except Exception:  # any error means that it does not answer
            return None
        return ServerStatus(offset_s, schema, oldest)

    async def newest_schema(self) -> str | None:
        """Return the version of the schema that this program's migrations lead to."""
        if self._newest_schema is None:
            folder = ScriptDirectory(str(self._migrations_dir))
            self._newest_schema = await asyncio.to_thread(folder.get_current_head)
        return self._newest_schema

    @property
    def is_disk_full(self) -> bool:
        """Return whether the server has said within the last minute that its disk is full."""
        return self._disk_full_at is not None and time.monotonic() - self._disk_full_at < _DISK_FULL_S

    def note_failure(self, error: BaseException) -> None:
        """Remember that a statement failed because the server's disk is full, if that is what the error says."""
        if is_disk_full(error):
            self._disk_full_at = time.monotonic()

    async def migrate(self, backend_url: str | None = None) -> None:
        """Upgrade the database schema to the newest version, unless it is newer; concurrent calls wait.

        backend_url: address whose role is created if it does not exist, and may then work with the tables.
        Raises UnsupportedServerError; SchemaVersionError for a role that does not own an older schema.
        """
        await asyncio.to_thread(self._migrate, backend_url)

    def _migrate(self, backend_url: str | None) -> None:
        engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: psycopg.connect(self._conninfo),
            poolclass=NullPool,
        )
        config = alembic.config.Config()
        config.set_main_option("script_location", str(self._migrations_dir).replace("%", "%%"))
        with engine.begin() as connection:
            version = (
                connection.execute(text("SELECT current_setting('server_version_num')::int")).scalar_one() // 10000
            )
            if version < MIN_SERVER_VERSION:
                raise UnsupportedServerError(
                    f"The database server is PostgreSQL {version}; Coresteer needs {MIN_SERVER_VERSION} or newer. "
                    "Name another server in DATABASE_URL, or unset it to use the built-in one."
                )
            present = MigrationContext.configure(connection).get_current_revision()
            newest = ScriptDirectory.from_config(config).get_current_head()
            oldest = connection.execute(text(_NOTE)).scalar_one()
            if present != newest and works_with(present, oldest, newest):
                return log.warning(
                    "The database's schema %s is that of a newer release; this one works with it.", present
                )
            if not privileges.owns_tables(connection):
                if present != newest:
                    raise SchemaVersionError(
                        f"The database's schema is at version {present}, this program's is {newest}, and the role in "
                        "DATABASE_URL may not change it. Run `coresteer migrate` with CORESTEER_OWNER_URL, the "
                        "address of the database for the role that owns the tables; see docs/SECURITY.md."
                    )
                return
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
            config.attributes["connection"] = connection
            alembic.command.upgrade(config, "head")
            connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{OLDEST_BACKEND}'"))
            if backend_url is None:
                log.warning(
                    "The backend's database role owns its tables, so it could alter the audit log; docs/SECURITY.md "
                    "says how to give it a role of its own."
                )
            else:
                privileges.grant(connection, backend_url)


def _is_silent(connection: psycopg.AsyncConnection) -> bool:
    """Return whether nothing has arrived on an idle connection, such as its end.

    A round trip would only find as well that a server hangs or cannot be reached, as the next statement does.
    """
    if connection.closed:
        return False
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    return not poller.poll(0)


async def _check_unless_silent(connection: psycopg.AsyncConnection) -> None:
    if not _is_silent(connection):
        await AsyncConnectionPool.check_connection(connection)


def _refuse_ended(connection: DBAPIConnection, record: ConnectionPoolEntry, _: object) -> None:
    """Replace the engine's connections when one of them has ended, because the server then has ended all of them."""
    driver = record.driver_connection
    if isinstance(driver, psycopg.AsyncConnection) and not _is_silent(driver):
        raise InvalidatePoolError


def _check(fence: Fence, holds: bool) -> None:
    if not holds:
        fence.on_break()
        raise DeposedError("Another backend leads now, or this one did not renew its lease; nothing was written.")


async def _request_session(connection: HTTPConnection) -> AsyncIterator[AsyncSession]:
    database: Database = connection.app.state.database
    async with database.session() as session:
        yield session


# scope="function": the commit precedes the response, so that a response never describes what was not stored.
Session = Annotated[AsyncSession, Depends(_request_session, scope="function")]
