"""A receiver of alerts: HTTP and SMTP servers on this machine that keep what they are told."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FakeReceiver:
    """url: its address. requests: path, headers and body of each request. statuses: of the next answers, then 200."""

    url: str = ""
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)


@contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def fake_receiver() -> Iterator[FakeReceiver]:
    """Serve HTTP on a free port of this machine until the end of the block."""
    fake = FakeReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            fake.requests.append((self.path, dict(self.headers), body))
            self.send_response(fake.statuses.pop(0) if fake.statuses else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as in the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with _serving(server) as port:
        fake.url = f"http://127.0.0.1:{port}"
        yield fake


@contextmanager
def fake_mail_server() -> Iterator[FakeReceiver]:
    """Serve the few commands of SMTP that a client without a password needs, without encryption.

    It refuses recipients whose address contains “unknown”.
    """
    fake = FakeReceiver()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 mail\r\n")
            while line := self.rfile.readline():
                command = line[:4].upper()
                if command == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = iter(self.rfile.readline, b".\r\n")
                    fake.mails.append(b"".join(lines).decode())
                if command == b"RCPT" and b"unknown" in line:
                    self.wfile.write(b"550 no such user\r\n")
                else:
                    self.wfile.write(b"221 bye\r\n" if command == b"QUIT" else b"250 ok\r\n")

    with _serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        fake.url = f"smtp://127.0.0.1:{port}"
        yield fake
