"""Netlink by hand (kernel: Documentation/userspace-api/netlink/intro.rst); a library costs 10 MiB more."""

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator
from functools import cache

NETLINK_ROUTE = 0
NETLINK_SOCK_DIAG = 4
NETLINK_GENERIC = 16

_HEADER = struct.Struct("=IHHII")
ERROR = 2
"""The type of a message that says what went wrong, or with 0 that nothing did."""
DONE = 3
"""The type of a dump's last message."""
_REQUEST_DUMP = 0x001 | 0x300
_REQUEST_ACK = 0x001 | 0x004
_CREATE = 0x200 | 0x400
_SOL_NETLINK = 270
_CAP_ACK = 10
_EXT_ACK = 11
_HAS_ATTRIBUTES = 0x200
_MESSAGE = 1
_NESTED = 0x3FFF
GENERIC_HEADER = struct.Struct("=BBH")
"""struct genlmsghdr: the command, the version, two bytes that are kept free."""
_CONTROL = 0x10
_GET_FAMILY = 3
_FAMILY_ID = 1
_FAMILY_NAME = 2
_BUFFER_BYTES = 128 * 1024
_TIMEOUT_S = 1.0


class Netlink:
    """One netlink socket. Every method raises OSError with the kernel's own number."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.settimeout(_TIMEOUT_S)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._sequence = 0

    def dump(self, kind: int, payload: bytes) -> Iterator[memoryview]:
        """The payload of each message of a dump; valid until the next one is taken."""
        self.ask(kind, payload)
        while True:
            view = self.receive()
            position = 0
            while position + _HEADER.size <= len(view):
                length, found, _, sequence, _ = _HEADER.unpack_from(view, position)
                if length < _HEADER.size or position + length > len(view):
                    raise OSError(errno.EBADMSG, "the kernel's answer is cut")
                if sequence == self._sequence:
                    if found in (DONE, ERROR):
                        check(view[position + _HEADER.size : position + length])
                        return
                    yield view[position + _HEADER.size : position + length]
                position += (length + 3) & ~3

    def ask(self, kind: int, payload: bytes) -> None:
        """Begin a dump. Take datagrams with receive() until one holds a message DONE or ERROR, then check() that."""
        self._sequence += 1
        length = _HEADER.size + len(payload)
        self._socket.send(_HEADER.pack(length, kind, _REQUEST_DUMP, self._sequence, 0) + payload)

    def exchange(self, kind: int, payload: bytes, *, timeout_s: float = _TIMEOUT_S, create: bool = False) -> bytes:
        """The payload of the one answer to a request that is not a dump; empty where it only says that it is done.

        create: what is asked for must not be there yet. The OSError has the kernel's own words where it gives some
        (NLMSGERR_ATTR_MSG).
        """
        self._socket.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
        self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
        self._socket.settimeout(timeout_s)
        self._sequence += 1
        length = _HEADER.size + len(payload)
        flags = _REQUEST_ACK | _CREATE if create else _REQUEST_ACK
        self._socket.send(_HEADER.pack(length, kind, flags, self._sequence, 0) + payload)
        answer = b""
        while True:
            view = self.receive()
            length, found, flags, _, _ = _HEADER.unpack_from(view)
            content = view[_HEADER.size : length]
            if found != ERROR:
                answer = bytes(content)
                continue
            code = -int(struct.unpack_from("=i", content)[0])
            if code == 0:
                return answer
            told = dict(attributes(content, 4 + _HEADER.size)) if flags & _HAS_ATTRIBUTES else {}
            words = bytes(told.get(_MESSAGE, b"")).rstrip(b"\0").decode("utf-8", "replace")
            raise OSError(code, words or os.strerror(code))

    def receive(self) -> memoryview:
        """The next datagram that answers what was asked last: messages with their headers. Valid until the next."""
        while True:
            size = self._socket.recv_into(self._buffer)
            if size >= _HEADER.size and _HEADER.unpack_from(self._buffer)[3] == self._sequence:
                return memoryview(self._buffer)[:size]

    def close(self) -> None:
        """Let the socket go."""
        self._socket.close()


def ask(family: str, command: int, payload: bytes, *, timeout_s: float = _TIMEOUT_S) -> dict[int, memoryview]:
    """The attributes of the one answer to a request of a generic netlink family. Raises OSError as exchange() does."""
    netlink = Netlink(NETLINK_GENERIC)
    try:
        answer = netlink.exchange(family_id(family), GENERIC_HEADER.pack(command, 1, 0) + payload, timeout_s=timeout_s)
        return dict(attributes(memoryview(answer), GENERIC_HEADER.size))
    finally:
        netlink.close()


@cache  # the kernel keeps a family's number
def family_id(name: str) -> int:
    """The number of a generic netlink family. Raises OSError, ENOENT where the kernel has none of that name."""
    netlink = Netlink(NETLINK_GENERIC)
    try:
        asked = GENERIC_HEADER.pack(_GET_FAMILY, 1, 0) + attribute(_FAMILY_NAME, name.encode() + b"\0")
        told = dict(attributes(memoryview(netlink.exchange(_CONTROL, asked)), GENERIC_HEADER.size))
        return int(struct.unpack("=H", told[_FAMILY_ID])[0])
    finally:
        netlink.close()


def check(payload: memoryview) -> None:
    """Raises OSError where the payload of a message DONE or ERROR tells of one."""
    if len(payload) >= 4 and (code := int(struct.unpack_from("=i", payload)[0])) < 0:
        raise OSError(-code, os.strerror(-code))


def attributes(payload: memoryview, start: int) -> Iterator[tuple[int, memoryview]]:
    """Type and value of the attributes from start on; the rest is ignored where it is cut."""
    end = len(payload)
    while start + 4 <= end:
        length, kind = struct.unpack_from("=HH", payload, start)
        if length < 4 or start + length > end:
            return
        yield kind & _NESTED, payload[start + 4 : start + length]
        start += (length + 3) & ~3


def attribute(kind: int, value: bytes) -> bytes:
    """An attribute as the kernel takes it."""
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)


def number(value: memoryview) -> int:
    """An unsigned number of any size that netlink has (NLA_U8 to NLA_U64, NLA_UINT)."""
    return int.from_bytes(value, sys.byteorder)
