"""Fixtures of a link and its backend."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from logging.handlers import QueueHandler
from queue import SimpleQueue

import pytest
from tests.agent.fake_backend import Backend
from tests.agent.link.node import Node, RawPeer


@pytest.fixture
def backend() -> Iterator[Backend]:
    with closing(Backend()) as backend:
        yield backend


@pytest.fixture
def node(backend: Backend) -> Iterator[Node]:
    node = Node(backend.address)
    yield node
    node.link.stop()


@pytest.fixture
def raw_peer() -> Iterator[RawPeer]:
    with closing(RawPeer()) as peer:
        yield peer


@pytest.fixture
def said() -> Iterator[SimpleQueue[logging.LogRecord]]:
    """What the link says, as it says it."""
    records: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = QueueHandler(records)
    logging.getLogger("coresteer.link").addHandler(handler)
    yield records
    logging.getLogger("coresteer.link").removeHandler(handler)


@pytest.fixture
def answer() -> Iterator[Callable[[int, bytes], str]]:
    """A backend that gives one HTTP answer to everything."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    servers: list[HTTPServer] = []

    def start(status: int, body: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
