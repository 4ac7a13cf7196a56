"""Netlink sockets (Documentation/userspace-api/netlink/intro.rst), without a library, which would cost 10 MiB."""

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from functools import cache

NETLINK_ROUTE = 0
NETLINK_SOCK_DIAG = 4
NETLINK_GENERIC = 16

_HEADER = struct.Struct("=IHHII")
NLMSG_ERROR = 2
"""Type of a message with an error number; 0 is an acknowledgement."""
NLMSG_DONE = 3
"""Type of the last message of a dump."""
_REQUEST = 0x001
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
"""struct genlmsghdr: the command, the version, two bytes that are reserved."""
_CONTROL = 0x10
_GET_FAMILY = 3
_FAMILY_ID = 1
_FAMILY_NAME = 2
_FAMILY_OPERATIONS = 6
_OPERATION_ID = 1
_MAX_ERRNO = 4095
_BUFFER_BYTES = 128 * 1024
_TIMEOUT_S = 1.0


class Netlink:
    """One netlink socket. Every method raises OSError with the kernel's errno."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.settimeout(_TIMEOUT_S)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._sequence = 0

    def dump(self, kind: int, payload: bytes) -> Iterator[memoryview]:
        """Yield the payload of each message of a dump request; valid until the next one."""
        self.begin_dump(kind, payload)
        while True:
            view = self.receive()
            position = 0
            while position + _HEADER.size <= len(view):
                length, found, _, sequence, _ = _HEADER.unpack_from(view, position)
                if length < _HEADER.size or position + length > len(view):
                    raise OSError(errno.EBADMSG, "the kernel's netlink reply is incomplete")
                if sequence == self._sequence:
                    if found in (NLMSG_DONE, NLMSG_ERROR):
                        raise_for_error(view[position + _HEADER.size : position + length])
                        return
                    yield view[position + _HEADER.size : position + length]
                position += (length + 3) & ~3

    def begin_dump(self, kind: int, payload: bytes) -> None:
        """Send a dump request; call receive() until NLMSG_DONE or NLMSG_ERROR, and raise_for_error() with that."""
        self._sequence += 1
        length = _HEADER.size + len(payload)
        self._socket.send(_HEADER.pack(length, kind, _REQUEST_DUMP, self._sequence, 0) + payload)

    def query(self, kind: int, payloads: Sequence[bytes]) -> Iterator[memoryview]:
        """Send requests for one object each; yield the replies, valid until the next one, without those refused.

        All replies must fit into the socket's buffer.
        """
        if not payloads:
            return
        self._sequence += 1
        headers = (_HEADER.pack(_HEADER.size + len(each), kind, _REQUEST, self._sequence, 0) for each in payloads)
        self._socket.send(b"".join(map(bytes.__add__, headers, payloads)))
        for _ in payloads:
            view = self.receive()
            length, found, *_ = _HEADER.unpack_from(view)
            if found != NLMSG_ERROR:
                yield view[_HEADER.size : length]

    def exchange(self, kind: int, payload: bytes, *, timeout_s: float = _TIMEOUT_S, create: bool = False) -> bytes:
        """Send a request that is not a dump and return the reply's payload; empty for an acknowledgement.

        create: the requested object must not exist yet. The OSError has the kernel's message where there is one
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
            if found != NLMSG_ERROR:
                answer = bytes(content)
                continue
            code = _error_number(content)
            if code == 0:
                return answer
            received = dict(parse_attributes(content, 4 + _HEADER.size)) if flags & _HAS_ATTRIBUTES else {}
            text = bytes(received.get(_MESSAGE, b"")).rstrip(b"\0").decode("utf-8", "replace")
            raise OSError(code, text or os.strerror(code))

    def receive(self) -> memoryview:
        """Return the next datagram of the reply to the last request; valid until the next call."""
        while True:
            size = self._socket.recv_into(self._buffer)
            if size >= _HEADER.size and _HEADER.unpack_from(self._buffer)[3] == self._sequence:
                return memoryview(self._buffer)[:size]

    def close(self) -> None:
        """Close the netlink socket."""
        self._socket.close()


def request(family: str, command: int, payload: bytes, *, timeout_s: float = _TIMEOUT_S) -> dict[int, memoryview]:
    """Return the attributes of the reply to a request of a generic netlink family. Raises OSError."""
    netlink = Netlink(NETLINK_GENERIC)
    try:
        answer = netlink.exchange(family_id(family), GENERIC_HEADER.pack(command, 1, 0) + payload, timeout_s=timeout_s)
        return dict(parse_attributes(memoryview(answer), GENERIC_HEADER.size))
    finally:
        netlink.close()


def request_dump(family: str, command: int, payload: bytes) -> list[dict[int, bytes]]:
    """Return the attributes of each reply to a dump request of a generic netlink family. Raises OSError."""
    netlink = Netlink(NETLINK_GENERIC)
    try:
        replies = netlink.dump(family_id(family), GENERIC_HEADER.pack(command, 1, 0) + payload)
        return [
            {kind: bytes(value) for kind, value in parse_attributes(reply, GENERIC_HEADER.size)} for reply in replies
        ]
    finally:
        netlink.close()


@cache  # the kernel keeps a family's number
def family_id(name: str) -> int:
    """Return the id of a generic netlink family by its name. Raises OSError, ENOENT if there is no such family."""
    return int(struct.unpack("=H", _read_family(name)[_FAMILY_ID])[0])


@cache  # and its commands, even if it is a module's
def family_commands(name: str) -> frozenset[int]:
    """Return the commands that the running kernel has in a generic netlink family. Raises OSError as family_id()."""
    operations = parse_attributes(_read_family(name).get(_FAMILY_OPERATIONS, memoryview(b"")), 0)
    return frozenset(parse_number(dict(parse_attributes(each, 0))[_OPERATION_ID]) for _, each in operations)


def _read_family(name: str) -> dict[int, memoryview]:
    netlink = Netlink(NETLINK_GENERIC)
    try:
        query = GENERIC_HEADER.pack(_GET_FAMILY, 1, 0) + encode_attribute(_FAMILY_NAME, name.encode() + b"\0")
        return dict(parse_attributes(memoryview(netlink.exchange(_CONTROL, query)), GENERIC_HEADER.size))
    finally:
        netlink.close()


def raise_for_error(payload: memoryview) -> None:
    """Raise OSError if the payload of NLMSG_DONE or NLMSG_ERROR reports an error."""
    if len(payload) >= 4 and (code := _error_number(payload)) > 0:
        raise OSError(code, os.strerror(code))


def _error_number(payload: memoryview) -> int:
    """Return the errno of a NLMSG_ERROR, 0 for none; at most the kernel's largest, which os.strerror() has to take."""
    return min(-int(struct.unpack_from("=i", payload)[0]), _MAX_ERRNO)


def parse_attributes(payload: memoryview, start: int) -> Iterator[tuple[int, memoryview]]:
    """Yield type and value of each netlink attribute from offset start on; an incomplete last one is ignored."""
    end = len(payload)
    while start + 4 <= end:
        length, kind = struct.unpack_from("=HH", payload, start)
        if length < 4 or start + length > end:
            return
        yield kind & _NESTED, payload[start + 4 : start + length]
        start += (length + 3) & ~3


def encode_attribute(kind: int, value: bytes) -> bytes:
    """Return an encoded netlink attribute."""
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)


def parse_number(value: memoryview) -> int:
    """Parse an unsigned number of a netlink attribute (NLA_U8 to NLA_U64, NLA_UINT)."""
    return int.from_bytes(value, sys.byteorder)
