"""A backend that replaces an agent's key."""

import hashlib
from functools import partial
from pathlib import Path

import pytest
from tests.agent.fake_backend import Backend
from tests.agent.link.node import Node

from coresteer_agent.transport.enrol import NodeKey, load_key, store_key
from coresteer_core.protocol import Clock, CloseCode, KeyStored, NewKey, Ping, ProtocolError, decode_to_agent, encode

NEW_KEY = f"csn_{'k' * 43}"


def test_a_new_key_is_stored_before_the_backend_is_told_and_used_from_then_on(backend: Backend, tmp_path: Path) -> None:
    path = tmp_path / "agent/key.json"
    node = Node(backend.address, store_key=partial(store_key, path))
    try:
        connection = backend.next_connection()
        assert connection.hello().rotates_keys
        connection.welcome()
        connection.websocket.send(encode(NewKey(NEW_KEY)))
        assert connection.hear() == KeyStored(hashlib.sha256(NEW_KEY.encode()).hexdigest())
        assert load_key(path) == NodeKey(backend.address, 7, "n", NEW_KEY, previous="secret")
        connection.close()
        request = backend.next_connection().websocket.request
        assert request is not None and request.headers["Authorization"] == f"Bearer {NEW_KEY}"
    finally:
        node.link.stop()


def test_a_backend_restored_from_a_backup_is_offered_the_previous_key_once_the_present_one_is_refused(
    backend: Backend,
) -> None:
    node = Node(backend.address, previous="previous")
    presented = []
    try:
        for code in (CloseCode.BAD_KEY, CloseCode.BAD_KEY, CloseCode.BAD_KEY, 1001, 1001):
            connection = backend.next_connection()
            connection.hello()
            if code == 1001:
                connection.welcome()
            request = connection.websocket.request
            assert request is not None
            presented.append(request.headers["Authorization"].removeprefix("Bearer "))
            connection.close(code)
    finally:
        node.link.stop()
    assert presented == ["secret", "previous", "secret", "previous", "previous"]


def test_a_new_key_that_cannot_be_stored_is_not_used(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "agent").touch()
    node = Node(backend.address, store_key=partial(store_key, tmp_path / "agent/key.json"))
    try:
        connection = backend.next_connection()
        connection.hello()
        connection.welcome()
        connection.websocket.send(encode(NewKey(NEW_KEY)))
        connection.websocket.send(encode(Ping(1)))
        assert isinstance(connection.hear(), Clock)
        connection.close()
        request = backend.next_connection().websocket.request
        assert request is not None and request.headers["Authorization"] == "Bearer secret"
    finally:
        node.link.stop()
    assert "new key cannot be stored" in caplog.text


@pytest.mark.parametrize("key", ["short", "k" * 201, "line\r\nbreak" * 5, "ä" * 50])
def test_a_key_that_does_not_fit_into_a_header_is_refused(key: str) -> None:
    with pytest.raises(ProtocolError):
        decode_to_agent(encode(NewKey(key)))
