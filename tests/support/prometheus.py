"""Prometheus: a tiny server of its HTTP API, which answers what a test tells it, and the real programs."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

Answer = tuple[int, bytes]


def success(kind: str, result: object) -> Answer:
    """An answer with data: ``vector``, ``matrix`` or ``scalar``."""
    return 200, json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()


def vector(*values: str) -> Answer:
    """One sample of each series, at one moment."""
    return success("vector", [{"metric": {"n": str(n)}, "value": [0, value]} for n, value in enumerate(values)])


def matrix(*values: str) -> Answer:
    """Points of one series; without any there is no series."""
    points = [[place, value] for place, value in enumerate(values)]
    return success("matrix", [{"metric": {}, "values": points}] if values else [])


def refusal(error: str, status: int = 400) -> Answer:
    """An answer of a server that refuses the query."""
    return status, json.dumps({"status": "error", "errorType": "bad_data", "error": error}).encode()


@dataclass
class FakePrometheus:
    """url: its address. requests: path and parameters of each request. answer: makes the answer to a request."""

    url: str = ""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    answer: Callable[[str, dict[str, str]], Answer] = field(default=lambda path, params: vector("0"))


@contextmanager
def fake_prometheus() -> Iterator[FakePrometheus]:
    """Serve on a free port of this machine until the end of the block."""
    fake = FakePrometheus()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            params = dict(parse_qsl(url.query))
            fake.requests.append((url.path, params))
            status, body = fake.answer(url.path, params)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if 300 <= status < 400:
                self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            with suppress(ConnectionError):  # the reader has had enough
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as in the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def program(name: str) -> str:
    """Return the path of prometheus or promtool. CI installs the distribution's package; else the test is skipped."""
    if shutil.which(name) is None and os.environ.get("CI") and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "prometheus"]):
            subprocess.run(["apt-get", *command], stdout=subprocess.DEVNULL, check=True)
    if (found := shutil.which(name)) is None:
        pytest.skip(f"{name} is part of Prometheus: install your distribution's package.")  # most machines have none
    return found


@asynccontextmanager
async def running_prometheus(folder: Path, config: str) -> AsyncIterator[str]:
    """A real Prometheus with this configuration, in YAML; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    (folder / "prometheus.yml").write_text(config)
    process = await asyncio.create_subprocess_exec(
        *(
            program("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
        ),
        *(f"--web.listen-address={address}", "--log.level=error"),
    )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        await process.wait()
