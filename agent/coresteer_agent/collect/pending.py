"""Reads the bytes that wait in the receive queues of TCP sockets (NETLINK_SOCK_DIAG; kernel: inet_diag.h, tcp.h)."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from coresteer_agent.collect.sock_diag import MESSAGE_BYTES, TCP_INFO, TCPDIAG_GETSOCK, tcp_request
from coresteer_agent.linux.netlink import Netlink, parse_attributes

_STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8
"""ESTABLISHED, FIN_WAIT1, FIN_WAIT2 and CLOSE_WAIT: received data may still wait."""
_PORTS = slice(4, 6), slice(6, 8)
_RQUEUE_AT, _INODE_AT = 56, 68
_LAST_DATA_RECV = 52
_U32 = struct.Struct("=I")
_SOCKET = "socket:["
_MAPPED = bytes(10) + b"\xff\xff"


class PendingSocket(Struct, frozen=True):
    """A TCP socket's receive queue. pending_bytes: received, and not read yet by the process; idle_s: since the last.

    local, peer: the address, 4 or 16 bytes in network order, then the port; IPv4 also where the socket is one of IPv6.
    """

    inode: int
    local: bytes
    peer: bytes
    pending_bytes: int
    idle_s: float

    @property
    def address(self) -> bytes:
        """Return the peer's address without the port."""
        return self.peer[:-2]


def parse_pending(message: bytes | memoryview) -> PendingSocket | None:
    """Parse an inet_diag_msg with its attributes; None without tcp_info, as of a closing socket, or if it is cut."""
    if len(message) < MESSAGE_BYTES:
        return None
    inode = int(_U32.unpack_from(message, _INODE_AT)[0])
    for kind, value in parse_attributes(memoryview(message), MESSAGE_BYTES) if inode else ():
        if kind == TCP_INFO:
            if len(value) < _LAST_DATA_RECV + _U32.size:
                return None
            size = 4 if message[0] == socket.AF_INET else 16
            local, peer = bytes(message[8 : 8 + size]), bytes(message[24 : 24 + size])
            if local.startswith(_MAPPED):
                local, peer = local[12:], peer[12:]
            return PendingSocket(
                inode,
                local + bytes(message[_PORTS[0]]),
                peer + bytes(message[_PORTS[1]]),
                int(_U32.unpack_from(message, _RQUEUE_AT)[0]),
                int(_U32.unpack_from(value, _LAST_DATA_RECV)[0]) / 1000,
            )
    return None


def read_socket_inodes(pid: int) -> set[int]:
    """Return the inodes of the sockets that a process holds; none if it has ended or may not be read."""
    found = set()
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it was closed in the meantime
                target = os.readlink(entry.path)  # noqa: PTH115 - a Path costs more
                if target.startswith(_SOCKET):
                    found.add(int(target[len(_SOCKET) : -1]))
    except OSError:
        return set()
    return found


def read_pending(netlink: Netlink) -> Iterator[PendingSocket]:
    """Yield the receive queue of each connected TCP socket in a netlink socket's network namespace. Raises OSError."""
    for message in netlink.dump(TCPDIAG_GETSOCK, tcp_request(_STATES)):
        if (found := parse_pending(message)) is not None:
            yield found
