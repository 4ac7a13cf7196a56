"""A backend with honest simulated nodes as a victim of bench_attacks."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from msgspec import Struct
from tests.support.polling import poll

from coresteer.cli.api_client import ApiClient, sign_up
from coresteer.cli.local_backend import environment_of, free_port, running_up

HONEST_NODES = 5
ROGUE_NODES = 20
_TIMEOUT_S = 5.0


class Access(Struct):
    """What attackers of a backend know. agent_keys: of enrolled nodes that no honest agent uses."""

    host: str
    port: int
    admin_token: str
    viewer_token: str
    agent_keys: list[str]


class AttackedBackend:
    """A backend started by `coresteer up`. Its honest client reads the list of nodes over one connection."""

    def __init__(self, client: ApiClient, folder: Path, simulation: "subprocess.Popen[bytes]") -> None:
        self._client = client
        self._folder = folder
        self._simulation = simulation
        self._port = int(client.url.rpartition(":")[2])
        self.pid = poll(lambda: _backend_pid(folder))
        self._connection: HTTPConnection | None = None
        enrolment = client.post("/api/v1/enrolment-tokens", {"simulated": True})["token"]
        names = [f"rogue-{number}" for number in range(ROGUE_NODES)]
        nodes = client.post("/api/enrol", {"token": enrolment, "names": names})["nodes"]
        body = {"name": "bench", "role": "viewer", "expires_in_days": 1}
        self._access = Access(
            "127.0.0.1",
            self._port,
            client.post("/api/v1/tokens", body | {"name": "admin", "role": "admin"})["token"],
            client.post("/api/v1/tokens", body)["token"],
            [node["key"] for node in nodes],
        )
        poll(lambda: sum(node["health"] == "live" for node in client.get("/api/v1/nodes")) >= HONEST_NODES)
        self._sockets = self._honest_sockets()

    def access(self) -> Access:
        """Return the backend's address, tokens of users and keys of nodes."""
        return self._access

    def request(self) -> None:
        """Read the list of nodes. Raises OSError when there is no answer of status 200."""
        if self._connection is None:
            self._connection = HTTPConnection(self._access.host, self._port, timeout=_TIMEOUT_S)
        try:
            self._connection.request(
                "GET", "/api/v1/nodes", headers={"Authorization": f"Bearer {self._access.viewer_token}"}
            )
            answer = self._connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise OSError(f"The backend answered {answer.status}.")
        except (OSError, HTTPException) as error:
            self._connection.close()
            self._connection = None
            raise OSError(str(error)) from error

    def dropped(self) -> int:
        """Return how many of the honest nodes' connections are gone."""
        return len(self._sockets - self._honest_sockets())

    def stored_mib(self) -> float:
        """Return the size of the embedded database's folder."""
        size = 0
        for path in (self._folder / "postgres").rglob("*"):
            with suppress(FileNotFoundError):
                size += path.stat().st_size
        return size / 2**20

    def _honest_sockets(self) -> set[str]:
        links = (str(path.readlink()) for path in Path(f"/proc/{self._simulation.pid}/fd").iterdir())
        return {link for link in links if link.startswith("socket:")}


def _backend_pid(folder: Path) -> int | None:
    """Return the PID of the `coresteer serve` whose state folder this is."""
    state_dir = f"CORESTEER_STATE_DIR={folder}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"serve" in words and state_dir in (process / "environ").read_bytes() + b"\0":
                return int(process.name)
    return None


@contextmanager
def attacked_backend() -> Iterator[AttackedBackend]:
    """Run a backend and honest nodes for one attack."""
    folder = Path(tempfile.mkdtemp(prefix="coresteer-attacks-"))
    folder.chmod(0o755)  # its database runs as another account
    environment = environment_of(folder, free_port(), "honest")
    try:
        with running_up(environment) as (address, token):
            client = sign_up(address, token)
            enrolment = client.post("/api/v1/enrolment-tokens", {"simulated": True})["token"]
            command = [sys.executable, "-m", "coresteer_agent", "simulate", "--backend", address, "--token", enrolment]
            options = [
                "--nodes",
                str(HONEST_NODES),
                "--cpus",
                "8",
                "--irqs",
                "16",
                "--state-dir",
                str(folder / "honest"),
            ]
            simulation = subprocess.Popen(command + options, stderr=subprocess.DEVNULL)
            try:
                yield AttackedBackend(client, folder, simulation)
            finally:
                simulation.terminate()
                simulation.wait(10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
