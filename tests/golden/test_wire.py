"""The frames between agent and backend: their tags, field names, order of arrays and values of enums."""

import json
from typing import Any, get_args

import msgspec
import pytest
from tests.golden.populated import instances
from tests.golden.store import check, row

from coresteer_core.node.inventory import Inventory
from coresteer_core.node.topology import Topology
from coresteer_core.protocol import PROTOCOL_VERSION, ToAgent, ToBackend, decode_to_agent, decode_to_backend, encode


def readable(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """A decoded frame as JSON: bytes in hexadecimal."""
    match value:
        case bytes():
            return f"bytes {value.hex()}"
        case dict():
            return {str(key): readable(each) for key, each in value.items()}
        case list():
            flat = not any(isinstance(each, dict | list | bytes) for each in value)
            return [row(value)] if flat else [readable(each) for each in value]
    return value


@pytest.mark.parametrize(
    ("name", "union", "decode"),
    [("to_backend", ToBackend, decode_to_backend), ("to_agent", ToAgent, decode_to_agent)],
)
def test_every_message_has_the_same_frames_as_before(name: str, union: Any, decode: Any) -> None:  # noqa: ANN401
    frames: dict[str, list[object]] = {}
    for kind in get_args(union):
        for message in instances(kind):
            frame = encode(message)  # type: ignore[arg-type]  # of the union by its get_args
            assert decode(frame) == message
            plain = readable(msgspec.msgpack.decode(frame))
            said = frames.setdefault(plain["type"], [])
            if plain not in said:
                said.append(plain)
    check(f"wire/{name}", {"protocol": PROTOCOL_VERSION, "frames": frames})


@pytest.mark.parametrize("kind", [Inventory, Topology])
def test_what_a_database_keeps_as_json_is_the_same_when_it_is_read(kind: type[msgspec.Struct]) -> None:
    for value in instances(kind):
        assert msgspec.convert(json.loads(msgspec.json.encode(value)), kind) == value
