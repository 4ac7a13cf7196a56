"""Frames of agents, mutated at random: bytes of the frame, and fields of the message in it."""

import math
from collections.abc import Iterator
from random import Random
from typing import Any, get_args

import msgspec
from tests.golden.populated import instances

from coresteer_agent.simulate.cache import SimulationCache
from coresteer_agent.simulate.machine import make_machine
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_agent.transport.samples import block_message
from coresteer_core.node.tasks import NetTask
from coresteer_core.protocol import (
    FlowsMessage,
    InventoryMessage,
    LearnedMessage,
    RatesMessage,
    TasksMessage,
    ToBackend,
    TopologyMessage,
    encode,
)

_NUMBERS = (-(2**63), -1, 0, 1, 2**31, 2**32, 2**47, 2**53, 2**64 - 1, -0.0, math.nan, math.inf, -math.inf, 5e-324)
_TEXTS = (
    "",
    "a\x00b",
    "\x7f",
    "0-3,",
    "9" * 5000,
    "é\ud7ff\U0010ffff",
    "irq/1/affinity",
    "../..",
    "'; DROP TABLE node",
)
_OTHERS: tuple[object, ...] = (None, True, b"", b"\xff" * 9, [], {}, [[]], {"a": {}})


_SIMULATED, _OFTEN = 9, 4
"""The first messages are those of a node, and more frequent than those with every field filled in."""


def real_messages(now_ms: int) -> Iterator[ToBackend]:
    """Messages as a node sends them, and one of each kind with every field filled in."""
    machine = make_machine(cpus=4, irqs=12, kind=0, seed=1)
    node = SimulatedNode(name="n", key="", index=0, seed=1, machine=machine, cache=SimulationCache(1.0), stream="s")
    yield TopologyMessage(machine.topology)
    yield InventoryMessage(node.inventory)
    yield LearnedMessage(node.learned)
    for second in range(3):
        yield RatesMessage(node.sample(now_ms / 1000 + second))
    yield block_message([node.sample(now_ms / 1000 + second) for second in range(3, 6)])
    yield TasksMessage(now_ms, node.tasks(now_ms / 1000))
    tasks: list[NetTask] = node.net_tasks()
    numa = node.numa()
    yield FlowsMessage(now_ms, tasks, cgroups=node.cgroups(), numa=numa, cpusets=node.cpusets(numa))
    for kind in get_args(ToBackend):
        yield from instances(kind)  # type: ignore[misc]  # of the union by its get_args


class FrameMutator:
    """Makes mutated frames. seed: the same one makes the same frames."""

    def __init__(self, seed: int, now_ms: int) -> None:
        self._random = Random(seed)  # noqa: S311 - no secret
        self._now_ms = now_ms
        frames = [encode(message) for message in real_messages(now_ms)]
        self.frames = [*frames[:_SIMULATED] * _OFTEN, *frames[_SIMULATED:]]

    def next_frame(self) -> bytes:
        """Return one of the real frames with one to three mutations."""
        frame = self._random.choice(self.frames)
        for _ in range(self._random.choice((1, 1, 2, 3))):
            frame = self.with_other_bytes(frame) if self._random.random() < 0.25 else self.with_other_field(frame)
        return frame

    def with_other_bytes(self, frame: bytes) -> bytes:
        """Return an encoded message with some bytes changed."""
        r = self._random
        at, end = sorted((r.randrange(len(frame) + 1), r.randrange(len(frame) + 1)))
        end = min(end, at + 64)
        match r.randrange(6):
            case 0:  # a bit
                at = min(at, max(0, len(frame) - 1))
                return frame[:at] + bytes(byte ^ (1 << r.randrange(8)) for byte in frame[at : at + 1]) + frame[at + 1 :]
            case 1:
                return frame[:at]
            case 2:
                return frame[:at] + frame[end:]
            case 3:
                return frame[:end] + frame[at:end] + frame[end:]
            case 4:
                return frame[:at] + r.randbytes(r.randint(1, 8)) + frame[end:]
            case _:
                other = r.choice(self.frames)
                return frame[:at] + other[r.randrange(len(other)) :]

    def with_other_field(self, frame: bytes) -> bytes:
        """Return an encoded message with one field changed."""
        try:
            message = msgspec.msgpack.decode(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):  # TypeError: a dict as a key
            return frame
        places = list(_places(message))
        if not places:
            return frame
        container, key = self._random.choice(places)
        match self._random.randrange(4):
            case 0:
                del container[key]
            case 1 if isinstance(container, list):
                container.extend([container[key]] * self._random.choice((1, 300, 5000)))
            case 2 if isinstance(container, dict):
                container[self._random.choice((*_TEXTS, "seq", "time_ms", "type"))] = container[key]
            case _:
                container[key] = self._other_value(container[key])
        return msgspec.msgpack.encode(message)

    def _other_value(self, value: object) -> object:  # noqa: PLR0911 - one line a type
        """Return another value, mostly of the same type, so that many mutations get past the decoder."""
        r = self._random
        if r.random() < 0.2:
            return r.choice((*_NUMBERS, *_TEXTS, *_OTHERS))
        match value:
            case bool():
                return not value
            case int():
                return r.choice((min(value + 1, 2**53), value // 2, 2**32 - value % 2**32, r.randrange(2**16), 0, -1))
            case float():
                return r.choice((value * r.uniform(-1, 3), 0.0, 1e300, *_NUMBERS[-5:]))
            case str():
                return r.choice((*_TEXTS, value + "\n", value[:-1], value * 2, value.upper()))
            case bytes():
                return r.choice((value[:-1], value + b"\x00", value * 2, r.randbytes(len(value)), b"\xff" * len(value)))
            case list():
                return r.choice((value[:1], value * 2, value[::-1], []))
        return r.choice((None, {}, [], 0))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any decoded message
    """Yield each container in a message with each of its keys or positions."""
    if isinstance(value, dict | list):
        items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        for key, item in items:
            yield value, key
            yield from _places(item)
