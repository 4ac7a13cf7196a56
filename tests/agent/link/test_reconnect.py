"""How a link begins, why it ends, and when and where it connects again."""

from pathlib import Path
from queue import SimpleQueue

import pytest
from msgspec.structs import replace
from tests.agent.fake_backend import Backend, Connection
from tests.agent.link.node import QUICK, Node
from tests.support.polling import PATIENCE_S

from coresteer_agent.runtime.identity import make_hello
from coresteer_agent.transport.enrol import NodeKey
from coresteer_agent.transport.inbox import Inbox
from coresteer_agent.transport.link import Link
from coresteer_agent.transport.link_error import why_closed
from coresteer_agent.transport.link_events import LinkEvent
from coresteer_agent.transport.websocket_protocol import Close
from coresteer_core.changes.events import BackendLost, BackendReconnected
from coresteer_core.protocol import PROTOCOL_VERSION, Clock, CloseCode, Ping, Welcome, encode, reason_with_delay


def test_the_agent_sends_hello_with_its_key(backend: Backend, node: Node) -> None:
    connection = backend.next_connection()
    request = connection.websocket.request
    assert request is not None
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.path == "/api/agent"
    assert connection.hello().first_seq == 1
    assert node.heard.get(0) is None
    connection.welcome()
    assert node.next() == BackendReconnected()


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 40, encode(Welcome(1, 1, 0))[:-3], "text", b"\x81\xa4type\x01"])
def test_an_invalid_message_closes_the_connection_with_a_reason_and_the_agent_reconnects(
    backend: Backend, node: Node, garbage: bytes | str
) -> None:
    for welcomed in (False, True):
        connection = backend.next_connection()
        connection.hello()
        if welcomed:
            connection.welcome()
        connection.websocket.send(garbage)
        assert connection.closed.wait(PATIENCE_S)
        assert connection.websocket.close_code == CloseCode.BAD_FRAME
        assert connection.websocket.close_reason
    assert backend.next_connection().hello()


def test_another_protocol_version_is_logged_and_tried_again(
    backend: Backend, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    connection = backend.next_connection()
    connection.hello()
    connection.welcome(protocol=PROTOCOL_VERSION + 2)
    assert connection.closed.wait(PATIENCE_S)
    assert connection.websocket.close_code == CloseCode.VERSION
    backend.next_connection().hello()
    assert "Bring agent and backend to the same version." in caplog.text
    assert node.heard.get(0) is None


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (CloseCode.BAD_KEY, "Enrol this node again"),
        (CloseCode.VERSION, "same version"),
        (CloseCode.REPLACED, "Two agents with one key"),
        (4499, "code 4499"),
    ],
)
def test_each_close_code_is_logged_once_with_the_backends_reason(
    backend: Backend, node: Node, caplog: pytest.LogCaptureFixture, code: int, says: str
) -> None:
    for _ in range(3):
        connection = backend.next_connection()
        connection.hello()
        connection.close(code, "because I say so")
    backend.next_connection()
    complaints = [record.message for record in caplog.records if says in record.message]
    assert len(complaints) == 1
    assert "because I say so" in complaints[0]


def test_a_refused_key_is_replaced_if_possible(backend: Backend) -> None:
    renewed = NodeKey(backend.address, 8, "n", "new")
    node = Node(backend.address, renew_key=lambda: renewed)
    backend.next_connection().close(CloseCode.BAD_KEY)
    request = backend.next_connection().websocket.request
    assert request is not None
    assert request.headers["Authorization"] == "Bearer new"
    node.link.stop()


def test_the_present_backend_is_kept_while_it_works_and_the_next_one_is_used_after_it_fails(backend: Backend) -> None:
    other = Backend()
    heard: Inbox[LinkEvent] = Inbox()
    key = NodeKey(backend.address, 7, "n", "secret", replicas=(backend.address, other.address))
    link = Link(key, make_hello(Path("/nonexistent"), 1.0, None), heard, timing=QUICK)
    both: SimpleQueue[Connection] = SimpleQueue()
    backend.connections = other.connections = both
    link.start()
    peers = []
    for _ in range(3):
        connection = both.get(timeout=PATIENCE_S)
        peers.append(connection.websocket.local_address)
        connection.hello()
        connection.welcome()
        assert isinstance(heard.get(PATIENCE_S), BackendReconnected)
        connection.close()
        assert isinstance(heard.get(PATIENCE_S), BackendLost)
    link.stop()
    other.close()
    assert peers[0] == peers[2] != peers[1]


def test_an_agent_reaches_the_backend_that_works(backend: Backend) -> None:
    key = NodeKey("http://127.0.0.1:1", 7, "n", "secret", replicas=("http://127.0.0.1:1", backend.address))
    link = Link(key, make_hello(Path("/nonexistent"), 1.0, None), Inbox(), timing=QUICK)
    link.start()
    assert backend.next_connection().hello()
    link.stop()


@pytest.mark.parametrize(
    ("close", "shortest_s", "longest_s"),
    [
        (Close(CloseCode.TRY_AGAIN_LATER, reason_with_delay(40, "Too many connect.")), 40, 60),
        (Close(CloseCode.TRY_AGAIN_LATER, reason_with_delay(999_999, "")), 300, 450),
        (Close(CloseCode.TRY_AGAIN_LATER, "The database does not answer."), 0, 0.01),
        (Close(4499, reason_with_delay(40, "")), 0, 0.01),
    ],
)
def test_a_backend_that_asks_for_a_delay_is_obeyed(close: Close, shortest_s: float, longest_s: float) -> None:
    link = Link(
        NodeKey("http://127.0.0.1:1", 7, "n", "k"), make_hello(Path("/nonexistent"), 1.0, None), Inbox(), timing=QUICK
    )
    assert shortest_s <= link._delay_s(why_closed("http://127.0.0.1:1", close)) <= longest_s


def test_only_a_connection_that_was_welcomed_and_lasted_resets_the_back_off(backend: Backend) -> None:
    node = Node(backend.address, replace(QUICK, stable_s=0))
    for _ in range(3):
        connection = backend.next_connection()
        connection.hello()
        connection.close()
    connection = backend.next_connection()
    assert node.link._backoff._failures == 3
    connection.hello()
    connection.welcome()
    assert node.next() == BackendReconnected()
    connection.close()
    backend.next_connection()
    assert node.link._backoff._failures == 1
    node.link.stop()


def test_the_agents_of_a_large_fleet_return_over_the_time_that_the_backend_named(backend: Backend, node: Node) -> None:
    connection = backend.next_connection()
    connection.hello()
    connection.welcome()
    connection.websocket.send(encode(Ping(0, 20)))
    assert isinstance(connection.hear(), Clock)
    assert node.link._backoff.spread_s == 20
