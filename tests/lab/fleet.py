"""A backend on this host and agents in guests that join it."""

import contextlib
import http.cookiejar
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.lab.inside import SHARE
from tests.lab.qemu import BACKEND
from tests.lab.rig import Guest, GuestError

from coresteer.cli.local_backend import environment_of, free_port, running_up

SAID_S = 180
"""A machine that is busy with other work emulates slowly."""
ADMIN = {"username": "ada", "password": "correct horse battery"}
HOST = "this-host"
"""The node's name of the agent that `coresteer up` starts beside the backend."""


class BackendError(Exception):
    """The backend did not start, or refused a request; the message has its output. status: of the refusal."""

    status: int | None = None


class Backend:
    """A running backend. set_up_link: valid until an administrator exists, whom the first request creates."""

    def __init__(self, port: int, set_up_link: str, env: dict[str, str]) -> None:
        self.port = port
        self.address = f"http://127.0.0.1:{port}"
        self.set_up_link = set_up_link
        self.env = env
        self._csrf_token: str | None = None
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),  # one from the environment is for outside
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()),
        )

    def token(self, name: str) -> str:
        """Return a one-time enrolment token for a node, also one that was installed anew. Raises BackendError."""
        command = [sys.executable, "-m", "coresteer", "enrolment-token", "--name", name, "--rejoin-for", "5m"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=self.env)
        if done.returncode:
            raise BackendError(done.stderr.strip())
        return done.stdout.strip()

    def request(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON of whatever was asked for
        """Send a request as administrator, who is created by the first one. Raises BackendError for a refusal."""
        if self._csrf_token is None:
            token = self.set_up_link.partition("token=")[2]
            self._csrf_token = self._send("POST", "/api/v1/auth/setup", {"token": token, **ADMIN})["csrf_token"]
        return self._send(method, path, body)

    def command(self, change_id: str, what: str) -> None:
        """Request confirm or rollback of a change. Raises BackendError for a refusal.

        An agent that answers after the backend has stopped waiting does it all the same.
        """
        try:
            self.request("POST", f"/api/v1/changes/{change_id}/{what}")
        except BackendError as error:
            if error.status != HTTPStatus.GATEWAY_TIMEOUT:
                raise

    def await_live(self, name: str, timeout_s: float = 120) -> dict[str, Any]:
        """Return the node's summary, once the backend has a sample of it. Raises BackendError."""
        end = time.monotonic() + timeout_s
        while True:
            found: list[dict[str, Any]] = self.request("GET", f"/api/v1/nodes?name={name}")
            if found and found[0]["health"] == "live":
                return found[0]
            if time.monotonic() > end:
                raise BackendError(f"{name} is not live but {found[0]['health'] if found else 'unknown'}.")
            time.sleep(0.1)

    def read(self, path: str) -> bytes:
        """Download a file of the backend as administrator. Raises BackendError."""
        return self._open("GET", path, None)

    def _send(self, method: str, path: str, body: object) -> Any:  # noqa: ANN401 - as above
        text = self._open(method, path, None if body is None else json.dumps(body).encode())
        return json.loads(text) if text else None

    def _open(self, method: str, path: str, data: bytes | None) -> bytes:
        headers = {"Content-Type": "application/json", "X-CSRF-Token": self._csrf_token or ""}
        request = urllib.request.Request(self.address + path, data, headers, method=method)  # noqa: S310 - http to 127.0.0.1
        try:
            with self._opener.open(request, timeout=150) as answer:
                text: bytes = answer.read()
        except urllib.error.HTTPError as error:
            refusal = BackendError(f"{method} {path} is answered with {error.code}: {error.read().decode()}")
            refusal.status = error.code
            raise refusal from error
        return text


@contextlib.contextmanager
def backend(port: int | None = None) -> Iterator[Backend]:
    """Run `coresteer up` in a temporary state folder, on a free port unless given. Raises LocalBackendError."""
    port = port or free_port()
    state_dir = Path(tempfile.mkdtemp(prefix="coresteer-lab-state-"))
    env = environment_of(state_dir, port, HOST)
    try:
        with running_up(env) as (address, token):
            yield Backend(port, f"{address}/setup?token={token}", env)
    finally:
        shutil.rmtree(state_dir, ignore_errors=True)


AGENT = ("coresteer-agent",)


def join(guest: Guest, backend: Backend, program: tuple[str, ...] = AGENT) -> int:
    """Start the agent in the guest and wait until it is connected; return its PID. program: that runs the agent."""
    pid = start_agent(guest, backend, program)
    await_joined(guest)
    return pid


@contextlib.contextmanager
def agent_in(guest: Guest, backend: Backend, program: tuple[str, ...] = AGENT) -> Iterator[int]:
    """A live agent in the guest, gone at the end. Gives its process's number."""
    pid = join(guest, backend, program)
    backend.await_live(guest.machine.name)
    try:
        yield pid
    finally:
        guest.run("kill", str(pid), check=False)
        guest.run("sh", "-c", f"while [ -d /proc/{pid} ] && ! grep -q Z /proc/{pid}/stat; do sleep 0.1; done")


def start_agent(guest: Guest, backend: Backend, program: tuple[str, ...] = AGENT) -> int:
    """In the guest, with the machine's name. What it says goes to guest.share / "agent.log"."""
    (guest.share / "token").write_text(backend.token(guest.machine.name))
    host, port = BACKEND
    return guest.start(
        *(*program, "run", "--backend", f"http://{host}:{port}", "--insecure"),
        *("--token-file", str(SHARE / "token")),
        output="agent.log",
    )


def await_joined(guest: Guest) -> None:
    """Wait until the agent is connected. Raises GuestError."""
    await_said(guest, "agent.log", "Connected to")


def await_said(guest: Guest, output: str, words: str) -> None:
    """Wait until what was started with that output says the words. Raises GuestError."""
    end = time.monotonic() + SAID_S
    while words not in (said := (guest.share / output).read_text()):
        if time.monotonic() > end:
            raise GuestError(f"{guest.machine.name} did not say “{words}” in {SAID_S} s but:\n{said}")
        time.sleep(0.1)  # a file tells nobody when it grows
