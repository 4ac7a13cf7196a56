"""FakeContexts: RSS contexts of a netdev behind ethtool netlink, with the kernel's messages, attributes and errors.

As net/ethtool/rss.c of Linux 6.17 answers.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.fake_nic import FakeNic

from coresteer_agent.apply import rss_context
from coresteer_agent.linux import netlink, rss_contexts
from coresteer_agent.linux.netlink import encode_attribute, parse_attributes

_FAMILY = 21
_CONTROL = 16
_GET, _SET, _CREATE, _DELETE = 38, 48, 49, 50
_HEADER, _CONTEXT, _TABLE, _FIRST = 1, 2, 4, 7
_DUMP = 0x300
_MESSAGE = struct.Struct("=IHHII")
_GENERIC = struct.Struct("=BBH")
_ERROR, _DONE, _MULTI = 2, 3, 2
_HAS_ATTRIBUTES = 0x200


class FakeContexts:
    """Answers CTRL_CMD_GETFAMILY, RSS_GET, RSS_SET, RSS_CREATE_ACT and RSS_DELETE_ACT for eth0.

    The contexts are a file, so that they outlive a killed process as the kernel's do. rules: the NIC's flow rules.
    most: contexts that the driver has, with context 0. room: how many fit, where hardware has less. commands: those of
    the kernel. has_contexts: the driver's. alter: what the driver makes of a table. queues: receive queues.
    """

    def __init__(self, path: Path, rules: FakeNic, most: int = 8, entries: int = 8) -> None:
        path.write_bytes(bytes(most * (1 + 4 * entries)))
        self._fd = os.open(path, os.O_RDWR)
        self.most, self.entries, self.queues = most, entries, 4
        self.room = most - 1
        self.commands = [_GET, _SET, _CREATE, _DELETE]
        self.has_contexts = True
        self.alter: Callable[[list[int]], list[int]] = lambda table: table
        self.before_write: Callable[[], None] = lambda: None
        self._rules = rules
        rules.contexts = lambda: self.tables

    @property
    def tables(self) -> dict[int, list[int]]:
        """The RSS table of each context by its number."""
        size = 1 + 4 * self.entries
        data = os.pread(self._fd, self.most * size, 0)
        rows = (data[at : at + size] for at in range(0, len(data), size))
        unpack = struct.Struct(f"={self.entries}I").unpack
        return {number: list(unpack(row[1:])) for number, row in enumerate(rows) if row[0]}

    def put(self, number: int, table: list[int] | None) -> None:
        """Create a context with a table, or remove it (None)."""
        size = 1 + 4 * self.entries
        row = bytes(size) if table is None else b"\1" + struct.pack(f"={self.entries}I", *table)
        os.pwrite(self._fd, row, number * size)

    def reset(self) -> None:
        """Lose all contexts and rules, as when a driver cannot restore them after a reset."""
        self._rules.reset()
        for number in self.tables:
            self.put(number, None)

    def socket(self, *_: int) -> "_Socket":
        """Return a socket whose peer is this kernel."""
        return _Socket(self)

    def answer(self, message: bytes) -> bytes:
        """Return the kernel's reply to one request, as bytes."""
        length, kind, flags, sequence, _ = _MESSAGE.unpack_from(message)
        assert length == len(message)
        command = _GENERIC.unpack_from(message, _MESSAGE.size)[0]
        attributes = dict(parse_attributes(memoryview(message), _MESSAGE.size + _GENERIC.size))
        if kind == _CONTROL:
            return _reply(kind, sequence, 1, self._family()) + _end(sequence, 0)
        assert kind == _FAMILY
        try:
            self._check(command, attributes)
            if flags & _DUMP == _DUMP:
                return self._dump(sequence, attributes)
            return self._do(command, sequence, attributes) + _end(sequence, 0)
        except OSError as error:
            return _end(sequence, error.errno or 0, error.strerror or "")

    def _family(self) -> bytes:
        commands = (
            encode_attribute(index, encode_attribute(1, struct.pack("=I", command)))
            for index, command in enumerate(self.commands, 1)
        )
        return encode_attribute(1, struct.pack("=H", _FAMILY)) + encode_attribute(6, b"".join(commands))

    def _check(self, command: int, attributes: dict[int, memoryview]) -> None:
        if command not in self.commands:
            raise OSError(errno.EOPNOTSUPP, "")
        header = dict(parse_attributes(attributes[_HEADER], 0))
        if bytes(header[2]) != b"eth0\0":
            raise OSError(errno.ENODEV, "")
        if _number(attributes, _CONTEXT) and not self.has_contexts:
            raise OSError(errno.EOPNOTSUPP, "")

    def _dump(self, sequence: int, attributes: dict[int, memoryview]) -> bytes:
        assert _CONTEXT not in attributes, "a dump cannot be filtered by context"
        tables = self.tables if self.has_contexts else {}
        if not (first := _number(attributes, _FIRST)):
            tables = {0: self._default(), **tables}
        replies = (self._shown(sequence, each, table) for each, table in tables.items() if each >= first)
        return b"".join(replies) + _MESSAGE.pack(_MESSAGE.size + 4, _DONE, _MULTI, sequence, 1) + bytes(4)

    def _do(self, command: int, sequence: int, attributes: dict[int, memoryview]) -> bytes:
        number, tables = _number(attributes, _CONTEXT), self.tables
        if command == _GET:
            if number and number not in tables:
                raise OSError(errno.ENOENT, "")
            return self._shown(sequence, number, tables.get(number, self._default()))
        self.before_write()
        tables = self.tables
        assert number, "context 0 is the setting rss"
        if command == _DELETE:
            if number in self._rules.contexts_of_rules.values():
                raise OSError(errno.EBUSY, "")
            if number not in tables:
                raise OSError(errno.ENOENT, "")
            self.put(number, None)
            return b""
        table = self._wanted(attributes)
        if command == _CREATE:
            if number >= self.most:
                raise OSError(errno.ERANGE, "")
            if number in tables:
                raise OSError(errno.EBUSY, "error allocating context ID")
            if len(tables) >= self.room:
                raise OSError(errno.ENOSPC, "")
        elif number not in tables:
            raise OSError(errno.ENOENT, "")
        self.put(number, self.alter(table))
        return self._shown(sequence, number, table) if command == _CREATE else b""

    def _wanted(self, attributes: dict[int, memoryview]) -> list[int]:
        given = list(attributes[_TABLE].cast("I"))
        assert given and self.entries % len(given) == 0
        for entry, queue in enumerate(given):
            if queue >= self.queues:
                raise OSError(errno.EINVAL, f"entry {entry}: queue out of range ({queue})")
        return given * (self.entries // len(given))

    def _default(self) -> list[int]:
        return [entry % self.queues for entry in range(self.entries)]

    def _shown(self, sequence: int, number: int, table: list[int]) -> bytes:
        device = encode_attribute(1, struct.pack("=I", 2)) + encode_attribute(2, b"eth0\0")
        content = encode_attribute(_HEADER | 0x8000, device)
        if number:
            content += encode_attribute(_CONTEXT, struct.pack("=I", number))
        content += encode_attribute(_TABLE, struct.pack(f"={self.entries}I", *table))
        return _reply(_FAMILY, sequence, _GET, content)


class _Socket:
    """A netlink socket: each request is answered in one datagram for the reply and one for what follows."""

    def __init__(self, kernel: FakeContexts) -> None:
        self._kernel = kernel
        self._pending: list[bytes] = []

    def settimeout(self, _: float) -> None:
        """Do nothing: the answer is always there."""

    def setsockopt(self, *_: int) -> None:
        """Do nothing: messages and short acknowledgements are always on."""

    def send(self, message: bytes) -> None:
        """Take a request; its answer can be received from then on."""
        answer = self._kernel.answer(message)
        is_dump = struct.unpack_from("=H", message, 6)[0] & _DUMP == _DUMP
        while answer and not is_dump:
            length = (_MESSAGE.unpack_from(answer)[0] + 3) & ~3
            self._pending.append(answer[:length])
            answer = answer[length:]
        self._pending += [answer] if is_dump else []

    def recv_into(self, buffer: bytearray) -> int:
        """Return the next datagram."""
        datagram = self._pending.pop(0)
        buffer[: len(datagram)] = datagram
        return len(datagram)

    def close(self) -> None:
        """Forget what was not received."""
        self._pending.clear()


def _number(attributes: dict[int, memoryview], kind: int) -> int:
    return int(struct.unpack("=I", attributes[kind])[0]) if kind in attributes else 0


def _reply(kind: int, sequence: int, command: int, content: bytes) -> bytes:
    payload = _GENERIC.pack(command, 1, 0) + content
    return _MESSAGE.pack(_MESSAGE.size + len(payload), kind, 0, sequence, 1) + payload


def _end(sequence: int, code: int, text: str = "") -> bytes:
    """Return NLMSG_ERROR, with the request's header and the message of the extended acknowledgement, if any."""
    payload = struct.pack("=i", -code) + bytes(_MESSAGE.size)
    payload += encode_attribute(1, text.encode() + b"\0") if text else b""
    return _MESSAGE.pack(_MESSAGE.size + len(payload), _ERROR, _HAS_ATTRIBUTES if text else 0, sequence, 1) + payload


def install(monkeypatch: pytest.MonkeyPatch, kernel: FakeContexts) -> None:
    """Let the agent take this kernel for the running one, wherever it opens a netlink socket."""
    names = ("AF_NETLINK", "SOCK_RAW", "SOCK_CLOEXEC")
    fake = SimpleNamespace(socket=kernel.socket, **{name: getattr(socket, name) for name in names})
    monkeypatch.setattr(netlink, "socket", fake)
    for lookup in ("family_id", "family_commands"):
        uncached = getattr(netlink, lookup).__wrapped__
        for module in (netlink, rss_contexts):
            if hasattr(module, lookup):
                monkeypatch.setattr(module, lookup, uncached)
    monkeypatch.setattr(rss_context, "is_running_kernel", lambda _: True)
