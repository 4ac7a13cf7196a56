"""A database with backends and agents of either version, each a process of its own."""

import asyncio
import contextlib
import socket
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import parse_qs, urlsplit

import psycopg
import requests
from psycopg import sql
from tests.agent.test_loop import plant
from tests.backend.conftest import PASSWORD, Client
from tests.backend.fake_agent import stored_seqs
from tests.support.polling import poll_async
from tests.upgrade.releases import Tree

from coresteer.paths import API
from coresteer.postgres import EmbeddedPostgres

FOUND = "0-1"
"""Affinity of each interrupt of the agents' machine, before anything changed it."""
_START_S = 180.0
"""Within it a backend has started, whose modules may have to be compiled first."""


class CommandError(Exception):
    """A program ended with another exit code than 0."""


@dataclass
class Process:
    """A process whose output is in a file."""

    tree: Tree
    log: Path
    process: asyncio.subprocess.Process | None = None

    async def run(self, module: str, *arguments: str, **environment: str) -> None:
        """Start it."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.tree.command(module, *arguments), env=self.tree.environment(**environment), stdout=log, stderr=log
            )

    async def end(self, *, kill: bool = False) -> None:
        """End it, if it runs, and wait until it has."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                if kill:
                    self.process.kill()
                else:
                    self.process.terminate()
            await self.process.wait()

    @property
    def is_running(self) -> bool:
        """Return whether the process is there, frozen or not."""
        return self.process is not None and self.process.returncode is None

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def errors(self) -> list[str]:
        """Return the lines of its output that say that something unexpected happened."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(("ERROR", "CRITICAL", "Traceback"))]


@dataclass
class BackendProcess(Process):
    """A backend, which keeps its port when it is replaced."""

    database_url: str = ""
    port: int = 0
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> str:
        """Where its API is; the paths below are the same in both versions."""
        return f"{self.url}{API}"

    async def start(self) -> None:
        """Start it; returns when it answers."""
        settings = {
            "DATABASE_URL": self.database_url,
            "CORESTEER_PORT": str(self.port),
            "CORESTEER_STATE_DIR": str(self.log.parent),
            "CORESTEER_CHUNK_SECONDS": "1",
            "CORESTEER_SUPERVISED": "1",
            **self.settings,
        }
        await self.run("coresteer", "serve", **settings)
        await poll_async(self._answers, timeout_s=_START_S, interval_s=0.1)

    async def _answers(self) -> bool:
        if self.process is None or self.process.returncode is not None:
            raise CommandError(self.log.read_text())
        try:
            return (await Client(self.url).get("/livez")).status_code == 200
        except requests.ConnectionError:
            return False


@dataclass
class AgentProcess(Process):
    """An agent on a captured tree of two CPUs and a NIC whose interrupts 41 and 42 can be moved."""

    name: str = ""
    folder: Path = Path()

    async def start(self, backend: BackendProcess) -> None:
        """Start it. Its key is that of the file ``token`` in its folder, once it has none."""
        token = ("--token-file", str(self.folder / "token"), "--name", self.name)
        await self.run("coresteer_agent", "run", "--backend", backend.url, "--interval", "0.2", *token, *self.folders)

    async def restore(self) -> None:
        """Restore all settings with the command of the agent's version. Raises CommandError."""
        await command(self.tree, "coresteer_agent", "restore", *self.folders)

    @property
    def folders(self) -> tuple[str, ...]:
        return ("--root", str(self.folder / "root"), "--state-dir", str(self.folder / "state"))

    def affinity(self, irq: int) -> str:
        """Return the CPUs of an interrupt."""
        return (self.folder / f"root/proc/irq/{irq}/smp_affinity_list").read_text().strip()


@dataclass
class Installation:
    """owner_url, url: of its database, for the role that owns the tables and for backends."""

    folder: Path
    owner_url: str
    url: str
    processes: list[Process] = field(default_factory=list)

    async def migrate(self, tree: Tree) -> None:
        """Bring the schema to that of a version, by its own command."""
        await command(tree, "coresteer", "migrate", DATABASE_URL=self.url, CORESTEER_OWNER_URL=self.owner_url)

    async def backend(
        self, tree: Tree, *, in_place_of: BackendProcess | None = None, database_url: str = "", **settings: str
    ) -> BackendProcess:
        """Start a backend, on the port of one that has ended or on a new one. settings: other ones, by variable."""
        port = in_place_of.port if in_place_of else _free_port()
        url = database_url or self.url
        backend = BackendProcess(tree, self._new_folder() / "log", database_url=url, port=port, settings=settings)
        self.processes.append(backend)
        await backend.start()
        return backend

    async def agent(self, tree: Tree, backend: BackendProcess) -> AgentProcess:
        """Start the agent of a new node, which enrols with a token of the backend's version."""
        folder = self._new_folder()
        agent = AgentProcess(tree, folder / "log", name=f"node-{uuid.uuid4().hex[:8]}", folder=folder)
        plant(folder / "root")
        (folder / "token").write_text(await self.command(backend.tree, "enrolment-token"))
        self.processes.append(agent)
        await agent.start(backend)
        return agent

    async def replaced(self, agent: AgentProcess, tree: Tree, backend: BackendProcess) -> AgentProcess:
        """End an agent and start one of another version with its state."""
        await agent.end()
        successor = replace(agent, tree=tree, log=agent.folder / "log-of-successor", process=None)
        self.processes.append(successor)
        await successor.start(backend)
        return successor

    async def command(self, tree: Tree, *arguments: str) -> str:
        """Run a command of the backend's program on the database; return its output."""
        return await command(tree, "coresteer", *arguments, DATABASE_URL=self.url)

    async def administrator(self, backend: BackendProcess) -> Client:
        """Create the first administrator as a person does; return one who is signed in on all backends."""
        link = await self.command(backend.tree, "set-up-link")
        (token,) = parse_qs(urlsplit(link.strip()).query)["token"]
        client = Client(backend.api)
        who = {"token": token, "username": "administrator", "password": PASSWORD}
        answer = await success(client, "POST", "/auth/setup", who)
        client.session.headers["X-CSRF-Token"] = answer["csrf_token"]
        return client

    async def operator(self, client: Client, agent: AgentProcess, backend: BackendProcess | None = None) -> "Operator":
        """Return who operates an agent's node, once the backend that it is connected to has its samples."""
        there = client if backend is None else Client(backend.api, client.session)
        found: list[int] = []

        async def streams() -> bool:
            nodes = await success(there, "GET", "/nodes")
            found[:] = [node["id"] for node in nodes if node["name"] == agent.name and node["health"] == "live"]
            return bool(found)

        await poll_async(streams, interval_s=0.2)
        return Operator(there, found[0])

    async def acknowledged(self, node_id: int) -> tuple[str | None, int]:
        """Return the stream of a node's agent, a new one for each start, and how many of its samples are stored."""
        async with await psycopg.AsyncConnection.connect(self.owner_url) as connection:
            cursor = await connection.execute("SELECT stream, acked_seq FROM node WHERE id = %s", (node_id,))
            return await cursor.fetchone() or (None, 0)

    async def until_acknowledged(self, node_id: int, more: int) -> None:
        """Wait until more samples of a node are acknowledged."""
        stream, before = await self.acknowledged(node_id)

        async def is_enough() -> bool:
            now, acked = await self.acknowledged(node_id)
            return acked >= more + (before if now == stream else 0)

        await poll_async(is_enough, interval_s=0.1)

    async def check_samples(self, node_id: int) -> None:
        """Assert that no sample of a node, whose agent started once, was lost or stored twice."""
        _, acked = await self.acknowledged(node_id)
        stored = await stored_seqs(self.owner_url, node_id)
        assert stored == list(range(1, len(stored) + 1))
        assert len(stored) >= acked > 0

    def _new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder))


@asynccontextmanager
async def installation(server: EmbeddedPostgres, folder: Path) -> AsyncIterator[Installation]:
    """Create an empty database; at the end all processes are ended and it is dropped."""
    name = f"overlap_{uuid.uuid4().hex}"
    admin_url, owner_url = (server.url.replace("/coresteer?", f"/{which}?") for which in ("postgres", name))
    made = Installation(folder, owner_url, server.backend_url.replace("/coresteer?", f"/{name}?"))

    async def execute(statement: LiteralString) -> None:
        async with await psycopg.AsyncConnection.connect(admin_url, autocommit=True) as admin:
            await admin.execute(sql.SQL(statement).format(sql.Identifier(name)))

    await execute("CREATE DATABASE {} TEMPLATE template0")
    try:
        yield made
    finally:
        for process in made.processes:
            await process.end(kill=True)
        await execute("DROP DATABASE {} WITH (FORCE)")


async def command(tree: Tree, module: str, *arguments: str, **environment: str) -> str:
    """Run a program of a version to its end; return its output. Raises CommandError."""
    process = await asyncio.create_subprocess_exec(
        *tree.command(module, *arguments),
        env=tree.environment(**environment),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise CommandError(f"{module} {' '.join(arguments)}: {output.decode()}")
    return output.decode()


@dataclass
class Operator:
    """A person who changes one node by HTTP, through any backend."""

    client: Client
    node_id: int

    def at(self, backend: BackendProcess) -> "Operator":
        """Return the same person at another backend."""
        return replace(self, client=Client(backend.api, self.client.session))

    async def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return an answer, as success()."""
        return await success(self.client, "GET", path)

    async def post(self, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Return the answer to a POST, as success()."""
        return await success(self.client, "POST", path, body)

    async def node(self) -> Any:  # noqa: ANN401 - JSON
        """Return what the backend says of the node."""
        return await self.get(f"/nodes/{self.node_id}")

    async def move(self, irq: int, cpus: str = "1") -> str:
        """Preview and apply the move of an interrupt; return the change's id once it waits to be confirmed."""
        desired = [{"key": f"irq/{irq}/affinity", "value": cpus}]
        plans: list[Any] = []

        async def differs() -> bool:
            """The agent is connected, and has reported the present affinity since."""
            if (await self.node())["health"] != "live":
                return False
            plans[:] = [(await self.post(f"/nodes/{self.node_id}/previews", {"desired": desired}))["plan"]]
            return bool(plans[0]["actions"])

        await poll_async(differs, interval_s=0.1)
        change_id = (await self.post(f"/nodes/{self.node_id}/changes", {"plan": plans[0]}))["id"]
        await self.until(change_id, "unconfirmed")
        return str(change_id)

    async def until(self, change_id: str, state: str) -> Any:  # noqa: ANN401 - JSON
        """Wait until a change is in a state; return it."""
        seen: list[Any] = []

        async def is_there() -> bool:
            seen[:] = [await self.get(f"/changes/{change_id}")]
            return bool(seen[0]["state"] == state)

        await poll_async(is_there)
        return seen[0]


async def success(client: Client, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
    """Return the answer to a request that must succeed, sent again while a busy backend answers 503."""
    answers: list[requests.Response] = []

    async def is_answered() -> bool:
        answers[:] = [await client.request(method, path, json=body)]
        return answers[0].status_code != requests.codes.service_unavailable

    await poll_async(is_answered, interval_s=0.5)
    assert answers[0].ok, f"{method} {path}: {answers[0].text}"
    return answers[0].json()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
