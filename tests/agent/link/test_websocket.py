"""A link's WebSocket: fragments, closes, pings and TLS."""

import logging
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
from tests.agent.fake_backend import Backend
from tests.agent.link.node import WELCOME, Node, RawPeer
from tests.support.polling import PATIENCE_S
from tests.support.rates import UNREAD
from websockets.frames import Close as CloseFrame
from websockets.frames import Frame, Opcode

from coresteer_agent.transport.link import Link
from coresteer_agent.transport.websocket import ConnectionTiming, WebSocket
from coresteer_core.changes.events import BackendLost, BackendReconnected
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.node.topology import Cache, Topology
from coresteer_core.protocol import Apply, CloseCode, TopologyMessage, encode


def test_a_fragmented_message_with_a_ping_in_between_is_received(raw_peer: RawPeer) -> None:
    node = Node(raw_peer.address)
    pieces = Frame(Opcode.BINARY, WELCOME[:3], fin=False), Frame(Opcode.PING, b"x"), Frame(Opcode.CONT, WELCOME[3:])
    taken = raw_peer.accept(*pieces)
    assert node.next() == BackendReconnected()
    taken.close()
    assert node.next() == BackendLost()
    node.link.stop()


def test_a_close_reason_right_after_the_handshake_is_logged(
    raw_peer: RawPeer, said: SimpleQueue[logging.LogRecord]
) -> None:
    node = Node(raw_peer.address)
    closing = Frame(Opcode.CLOSE, CloseFrame(CloseCode.REPLACED, "because I say so").serialize())
    raw_peer.accept(closing).close()
    assert "because I say so" in said.get(timeout=PATIENCE_S).getMessage()
    node.link.stop()


def test_messages_right_before_the_close_are_received(raw_peer: RawPeer) -> None:
    node = Node(raw_peer.address)
    asked = Apply("c", Plan([]), 60)
    raw_peer.accept(Frame(Opcode.BINARY, WELCOME), Frame(Opcode.BINARY, encode(asked))).close()
    assert [node.next(), node.next(), node.next()] == [BackendReconnected(), asked, BackendLost()]
    node.link.stop()


def test_a_connection_without_pongs_is_replaced(raw_peer: RawPeer, said: SimpleQueue[logging.LogRecord]) -> None:
    node = Node(
        raw_peer.address,
        ConnectionTiming(first_retry_s=0.01, longest_retry_s=0.02, welcome_s=PATIENCE_S, keepalive_s=0.05),
    )
    with raw_peer.accept(Frame(Opcode.BINARY, WELCOME)):
        assert [node.next(), node.next()] == [BackendReconnected(), BackendLost()]
        with raw_peer.accept(Frame(Opcode.BINARY, WELCOME)):
            assert node.next() == BackendReconnected()
    sentences = [said.get(timeout=PATIENCE_S).getMessage() for _ in range(2)]
    assert "was lost" in sentences[1]
    node.link.stop()


@pytest.mark.parametrize(
    ("status", "says"),
    [(401, "Enrol this node again"), (403, "Enrol this node again"), (503, "HTTP status 503 instead of a WebSocket")],
)
def test_a_refused_handshake_says_why(
    answer: Callable[[int, bytes], str], said: SimpleQueue[logging.LogRecord], status: int, says: str
) -> None:
    node = Node(answer(status, b"no"))
    assert says in said.get(timeout=PATIENCE_S).getMessage()
    node.link.stop()


def test_an_unexpected_exception_does_not_end_the_connecting(
    backend: Backend, said: SimpleQueue[logging.LogRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, failures = Link._run_session, iter([ArithmeticError("of a test")])

    def fail_once(self: Link, websocket: WebSocket) -> None:
        if (error := next(failures, None)) is not None:
            raise error
        run(self, websocket)

    monkeypatch.setattr(Link, "_run_session", fail_once)
    node = Node(backend.address, ConnectionTiming(first_retry_s=0.01, slow_retry_s=0.01))
    assert "An internal error" in said.get(timeout=PATIENCE_S).getMessage()
    backend.next_connection()
    backend.next_connection().hello()
    node.link.stop()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, signed by itself, with its key in one file."""
    path = tmp_path_factory.mktemp("tls") / "backend.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(path), "-out", str(path.with_suffix(".crt")), "-days", "2", "-subj", "/CN=backend"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


@pytest.fixture
def tls_backend(certificate: Path) -> Iterator[Backend]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    backend = Backend(context)
    yield backend
    backend.close()


def test_messages_of_any_size_pass_through_tls_both_ways(
    tls_backend: Backend, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_suffix(".crt")))
    node = Node(tls_backend.address)
    topology = Topology([], [], [Cache(3, "Unified", 1, "1" * 60_000)] * 15)
    node.link.send_state(topology)
    connection = tls_backend.next_connection()
    connection.hello()
    connection.welcome()
    assert connection.hear() == TopologyMessage(topology)
    asked = Apply("c", Plan([Action("irq/41/affinity", "0", "1", "why " * 10_000)] * 5), 60)
    connection.websocket.send(encode(asked))
    assert [node.next(), node.next()] == [BackendReconnected(), asked]
    node.link.send_rates(UNREAD)
    node.link.stop()
    assert connection.seqs(1) == [1]
    assert connection.closed.wait(PATIENCE_S)
    assert connection.websocket.close_code == 1000


def test_a_certificate_that_this_machine_does_not_trust_is_refused(
    tls_backend: Backend, said: SimpleQueue[logging.LogRecord]
) -> None:
    node = Node(tls_backend.address)
    assert "CERTIFICATE_VERIFY_FAILED" in said.get(timeout=PATIENCE_S).getMessage()
    assert tls_backend.connections.empty()
    node.link.stop()
