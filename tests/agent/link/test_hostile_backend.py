"""A backend that floods an agent, does not read, or sends what is too large."""

import logging
import threading
from contextlib import suppress
from queue import SimpleQueue

import pytest
from tests.agent.fake_backend import Backend, Connection
from tests.agent.link.node import WELCOME, Node, RawPeer
from tests.support.polling import PATIENCE_S, poll
from websockets.frames import Frame, Opcode

from coresteer_agent.transport.inbox import MAX_WAITING_BYTES
from coresteer_agent.transport.link import MAX_ANSWERS_BYTES, REQUESTS_AT_ONCE, REQUESTS_PER_S
from coresteer_agent.transport.websocket import ConnectionTiming
from coresteer_core.changes.events import BackendLost, BackendReconnected
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.irq_spread.policy import IrqSpread
from coresteer_core.protocol import (
    MAX_FRAME_BYTES,
    MAX_POLICIES_IN_FORCE,
    Ack,
    Apply,
    ChangeAck,
    CloseCode,
    Confirm,
    Extend,
    Ping,
    Policies,
    encode,
)


def flood(connection: Connection, frame: Frame) -> None:
    """Repeat a frame, at most 20,000 times, until the agent ends the connection."""
    pieces = frame.serialize(mask=False) * 100
    with suppress(OSError):
        for _ in range(200):
            if connection.closed.is_set():
                return
            connection.websocket.socket.sendall(pieces)


@pytest.mark.parametrize(
    "frame",
    [
        Frame(Opcode.BINARY, encode(Apply("c", Plan([]), 60))),
        Frame(Opcode.BINARY, encode(ChangeAck("c", ChangeState.CONFIRMED))),
        Frame(Opcode.BINARY, encode(Ack(0))),
        Frame(Opcode.BINARY, encode(Ping(0))),
        Frame(Opcode.CONT, b"", fin=False),
        Frame(Opcode.PING, b""),
    ],
    ids=["plans", "acknowledged changes", "acknowledged samples", "requests for the time", "fragments", "pings"],
)
def test_a_backend_that_floods_the_agent_is_disconnected_with_a_reason(
    backend: Backend, said: SimpleQueue[logging.LogRecord], frame: Frame
) -> None:
    node = Node(backend.address, ConnectionTiming(slow_retry_s=60, keepalive_s=60))
    connection = backend.next_connection()
    connection.hello()
    connection.welcome()
    assert node.next() == BackendReconnected()
    if frame.opcode is Opcode.CONT:
        connection.websocket.socket.sendall(Frame(Opcode.BINARY, b"", fin=False).serialize(mask=False))
    flood(connection, frame)
    assert connection.closed.wait(PATIENCE_S)
    assert connection.websocket.close_code == CloseCode.FLOOD
    assert "more" in (connection.websocket.close_reason or "")
    received = 0
    while isinstance(node.next(), Apply | ChangeAck):
        received += 1
    assert received <= REQUESTS_AT_ONCE + PATIENCE_S * REQUESTS_PER_S
    while "accepts; the connection was closed" not in said.get(timeout=PATIENCE_S).getMessage():
        pass
    node.link.stop()


def test_a_backend_waits_while_the_loop_is_busy_so_few_bytes_wait_for_it(raw_peer: RawPeer) -> None:
    node = Node(raw_peer.address)
    taken = raw_peer.accept(Frame(Opcode.BINARY, WELCOME))
    taken.settimeout(PATIENCE_S)
    assert node.next() == BackendReconnected()
    large = Apply("c", Plan([Action("k", "", "x" * 100_000, "")]), 60)
    frames = [Frame(Opcode.BINARY, frame) for frame in [*[encode(large)] * 60, encode(Confirm("last"))]]
    data = b"".join(frame.serialize(mask=False) for frame in frames)
    sending = threading.Thread(target=taken.sendall, args=(data,))
    sending.start()
    poll(lambda: node.heard.full)
    for _ in range(100):  # each answer is one more round of the link, which could have read 64 KiB
        node.link.send_now(ChangeMessage("c", ChangeState.APPLYING, "x", []))
        assert taken.recv(4096)
    assert node.heard.waiting_bytes <= MAX_WAITING_BYTES + 200_000
    assert [node.next() for _ in range(61)] == [*[large] * 60, Confirm("last")]
    sending.join(PATIENCE_S)
    taken.close()
    node.link.stop()


def test_answers_that_the_backend_does_not_read_are_bounded_and_end_the_connection(raw_peer: RawPeer) -> None:
    node = Node(raw_peer.address)
    with raw_peer.accept(Frame(Opcode.BINARY, WELCOME)):
        assert node.next() == BackendReconnected()
        for _ in range(40):
            node.link.send_now(ChangeMessage("c", ChangeState.FAILED, "x" * 1_000_000, []))
        assert sum(map(len, node.link._urgent)) <= MAX_ANSWERS_BYTES + 1_000_100
        assert node.next() == BackendLost()
    node.link.stop()


def test_a_long_id_many_policies_and_a_large_frame_are_refused_with_a_reason(backend: Backend, node: Node) -> None:
    policies = [PolicyInForce("1", 1, "p", 1, Mode.ENFORCE, IrqSpread())] * (MAX_POLICIES_IN_FORCE + 1)
    for frame, code in (
        (encode(Policies(policies)), CloseCode.BAD_FRAME),
        (encode(Extend("x" * 65, 1.0)), CloseCode.BAD_FRAME),
        (bytes(MAX_FRAME_BYTES + 1), CloseCode.TOO_LARGE),
    ):
        connection = backend.next_connection()
        connection.hello()
        connection.welcome()
        connection.websocket.send(frame)
        assert connection.closed.wait(PATIENCE_S)
        assert connection.websocket.close_code == code
