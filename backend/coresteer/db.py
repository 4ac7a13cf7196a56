"""PostgreSQL: SQLAlchemy sessions for control tables, a psycopg pool for COPY and raw SQL, migrations."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import alembic.command
import alembic.config
import psycopg
from fastapi import Depends
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import MetaData, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.pool import NullPool
from starlette.requests import HTTPConnection

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
_MIGRATION_LOCK = 0x436F7265  # "Core": the advisory lock that lets one starter migrate at a time


class UnsupportedServerError(Exception):
    """The database server is older than PostgreSQL 15."""


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
            pool_pre_ping=True,
        )
        self._question: asyncio.Task[bool] | None = None
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        self.pool = AsyncConnectionPool(
            self._conninfo,
            min_size=1,
            max_size=10,
            timeout=TIMEOUT_S,
            reconnect_timeout=0,
            check=AsyncConnectionPool.check_connection,
            open=False,
        )

    async def _new_connection(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(self._conninfo)

    async def open(self) -> None:
        """Start the connection pool, also while the server does not answer."""
        await self.pool.open(wait=False)

    async def close(self) -> None:
        """Close every database connection."""
        await self.pool.close(timeout=TIMEOUT_S)
        await self.engine.dispose()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """Open a session that commits at the end of the block, or rolls back when the block raises."""
        async with self._sessions() as session, session.begin():
            yield session

    async def is_reachable(self) -> bool:
        """Return whether the database server answers within TIMEOUT_S; one check at a time."""
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._ask())
        # not asyncio.timeout: a cancelled task goes on waiting for a server that hangs
        await asyncio.wait([self._question], timeout=TIMEOUT_S)
        return self._question.done() and self._question.result()

    async def _ask(self) -> bool:
        try:
            async with self.engine.connect() as connection:
                await connection.execute(text("SELECT 1"))
        except Exception:  # any error means that it does not answer
            return False
        return True

    async def migrate(self) -> None:
        """Upgrade the database schema to the newest version; concurrent calls wait. Raises UnsupportedServerError."""
        await asyncio.to_thread(self._migrate)

    def _migrate(self) -> None:
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
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            config.attributes["connection"] = connection
            alembic.command.upgrade(config, "head")


async def _request_session(connection: HTTPConnection) -> AsyncIterator[AsyncSession]:
    database: Database = connection.app.state.database
    async with database.session() as session:
        yield session


# scope="function": the commit precedes the response, so that a response never describes what was not stored.
Session = Annotated[AsyncSession, Depends(_request_session, scope="function")]
