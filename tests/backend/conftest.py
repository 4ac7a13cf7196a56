"""A real PostgreSQL and a real backend: one server a session, a fresh migrated database and a backend a module."""

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import pytest_asyncio
import requests
from fastapi import FastAPI
from psycopg import sql
from tests.support.nats import NatsServer
from tests.support.polling import PATIENCE_S, poll_async
from tests.support.postgres import running_postgres

from coresteer.app import create_app
from coresteer.auth import repository, service
from coresteer.auth.dependencies import Identity
from coresteer.auth.schemas import Role, UserCreate
from coresteer.auth.secrets import SESSION_COOKIE, new_token, token_hash
from coresteer.auth.tables import SessionRow
from coresteer.config import REPOSITORY, Config
from coresteer.db import Database
from coresteer.http_server.server import Server
from coresteer.postgres import EmbeddedPostgres

MIGRATIONS = REPOSITORY / "migrations"
PASSWORD = "a password for tests"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_server() -> AsyncIterator[EmbeddedPostgres]:
    """The session's server, migrated."""
    async with running_postgres("coresteer-test-") as server:
        await Database(server.url, MIGRATIONS).migrate(server.backend_url)
        yield server


@contextlib.asynccontextmanager
async def _new_database(postgres_server: EmbeddedPostgres) -> AsyncIterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    server = postgres_server.url.replace("/coresteer?", "/postgres?")
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as admin:
        await admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE coresteer").format(sql.Identifier(name)))
        yield postgres_server.backend_url.replace("/coresteer?", f"/{name}?")
        await admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def database_url(postgres_server: EmbeddedPostgres) -> AsyncIterator[str]:
    """The backend's address of a fresh database with the newest schema, dropped after the module."""
    async with _new_database(postgres_server) as url:
        yield url


@pytest_asyncio.fixture
async def own_database_url(postgres_server: EmbeddedPostgres) -> AsyncIterator[str]:
    """As database_url, of one test: its backends are not replicas of the module's, which leads."""
    async with _new_database(postgres_server) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def owner_url(postgres_server: EmbeddedPostgres, database_url: str) -> str:
    """The address of the module's database for the role that owns the tables."""
    return postgres_server.url.replace("/coresteer?", f"{urlsplit(database_url).path}?")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def database(database_url: str) -> AsyncIterator[Database]:
    """The module's database, open."""
    database = Database(database_url, MIGRATIONS)
    await database.open()
    yield database
    await database.close()


@dataclass
class Client:
    """Somebody who speaks HTTP with the backend, and keeps cookies and headers."""

    url: str
    session: requests.Session = field(default_factory=requests.Session)

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,  # noqa: ANN401 - whatever JSON the test sends
        headers: Mapping[str, str | bytes] | None = None,
        data: bytes | Iterable[bytes] | None = None,
    ) -> requests.Response:
        """The answer to one request."""

        self.session.trust_env = False  # a proxy is for the world outside

        def send() -> requests.Response:
            return self.session.request(
                method,
                self.url + path,
                json=json,
                headers=headers,
                data=data,
                timeout=PATIENCE_S,
                allow_redirects=False,
            )

        return await asyncio.to_thread(send)

    async def get(self, path: str, headers: Mapping[str, str | bytes] | None = None) -> requests.Response:
        return await self.request("GET", path, headers=headers)

    async def post(
        self, path: str, json: object = None, headers: Mapping[str, str | bytes] | None = None
    ) -> requests.Response:
        return await self.request("POST", path, json=json, headers=headers)

    async def patch(self, path: str, json: object = None) -> requests.Response:
        return await self.request("PATCH", path, json=json)

    async def delete(self, path: str) -> requests.Response:
        return await self.request("DELETE", path)


@dataclass
class Backend:
    """A backend that listens on a port of its own."""

    url: str
    app: FastAPI
    database: Database

    def anonymous(self) -> Client:
        """Somebody who is not signed in."""
        return Client(self.url)

    async def client(self, role: str, role_labels: Mapping[str, str] | None = None) -> Client:
        """Somebody signed in by session cookie, with the CSRF token as header; one user for each role and labels."""
        labels = dict(role_labels or {})
        username = "-".join([role, *labels.values()])
        client = Client(self.url)
        cookie, csrf_token = new_token(), new_token()
        async with self.database.session() as session:
            user = await repository.find_user_by_name(session, username)
            if user is None:
                request = UserCreate(username=username, password=PASSWORD, role=Role(role), role_labels=labels)
                user = await service.create_user(session, Identity("tests", Role.ADMIN, "token"), request)
            session.add(
                SessionRow(
                    token_hash=token_hash(cookie),
                    user_id=user.id,
                    csrf_token=csrf_token,
                    expires_at=datetime.now(UTC) + timedelta(hours=12),
                )
            )
        client.session.cookies.set(SESSION_COOKIE, cookie)
        client.session.headers["X-CSRF-Token"] = csrf_token
        return client


class _Server(Server):
    def __init__(self, app: FastAPI, config: Config, listener: socket.socket) -> None:
        super().__init__(app, config, listener)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals to pytest."""
        yield


@contextlib.asynccontextmanager
async def running_backend(database_url: str, **settings: object) -> AsyncIterator[Backend]:
    """A backend in this event loop; settings are fields of Config."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        config = Config.model_validate({"database_url": database_url, "port": port, **settings})
        app = create_app(config)
        server = _Server(app, config, listener)
        running = asyncio.create_task(server.serve())
        client = Client(config.address)
        ready = asyncio.create_task(server.ready.wait())
        await asyncio.wait([ready, running], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if running.done():
            running.result()
            raise RuntimeError("the backend ended while starting")
        try:
            yield Backend(client.url, app, app.state.database)
        finally:
            server.should_exit = True
            await running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def backend(database_url: str) -> AsyncIterator[Backend]:
    """The module's backend on the module's database."""
    async with running_backend(database_url) as backend:
        yield backend


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def nats_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.kill()


@dataclass
class Pair:
    """Two backends; tests connect their agents to the second one, and ask the first one."""

    first: Backend
    second: Backend
    nats: NatsServer

    async def until_connected(self) -> None:
        await poll_async(lambda: all(each.app.state.broker.is_connected for each in (self.first, self.second)))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def nats_pair(database_url: str, nats_server: NatsServer) -> AsyncIterator[Pair]:
    async with contextlib.AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(running_backend(database_url, nats_url=nats_server.url)) for _ in "12"
        ]
        await poll_async(lambda: first.app.state.membership.others and second.app.state.membership.others)
        found = Pair(first, second, nats_server)
        await found.until_connected()
        yield found
