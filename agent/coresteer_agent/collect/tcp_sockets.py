"""Reads the bytes that each TCP socket of this network namespace sent and received since the last read.

NETLINK_SOCK_DIAG with tcp_info (kernel: include/uapi/linux/inet_diag.h, tcp.h). The kernel lists ten thousand sockets
in about 5 ms. To cost no more than that, consecutive messages of equal length are parsed by one struct.iter_unpack, and
a socket without new bytes is skipped at once.
"""

import errno
import socket
import struct
from typing import TypeAlias

from msgspec import Struct

from coresteer_agent.collect.sock_diag import (
    MESSAGE_BYTES,
    TCP_INFO,
    TCPDIAG_GETSOCK,
    tcp_request,
)
from coresteer_agent.linux.netlink import (
    NETLINK_SOCK_DIAG,
    NLMSG_DONE,
    NLMSG_ERROR,
    Netlink,
    parse_attributes,
    raise_for_error,
)
from coresteer_core.node.rss import Toeplitz

_LISTEN = 1 << 10
_STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8
"""ESTABLISHED, FIN_WAIT1, FIN_WAIT2 and CLOSE_WAIT: data may still go one way."""
_HEADER = 16
_LENGTH_AND_KIND = struct.Struct("=IH")
_INFO_BYTES = 136
"""Up to bytes_received (Linux 4.1). tcp_info has last_data_sent at 44, last_data_recv 52, rtt 68, bytes_acked 120."""
_PORT = struct.Struct("!H")
_PORT_AT, _INODE_AT = 4, 68
"""The local port and the inode in an inet_diag_msg."""
_U32 = struct.Struct("=I")
_U64 = struct.Struct("=Q")
_CGROUP_ID = 21
_MAPPED = bytes(10) + b"\xff\xff"


class TcpSocket:
    """One TCP socket, identified by its kernel cookie, and its byte counters.

    acked, received: bytes so far. rtt_us: its smoothed round-trip time at its last traffic. flow: set at its first
    traffic. rss: the hash of its received packets, with what computed it and whether over ports.
    """

    __slots__ = ("acked", "flow", "inode", "received", "rss", "rtt_us")

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.acked = 0
        self.received = 0
        self.rtt_us = 0
        self.flow: Flow | None = None
        self.rss: tuple[Toeplitz, bool, int] | None = None


class Flow:
    """Addresses, ports and netdev of a socket.

    local and peer: addresses in network order, 4 or 16 bytes, IPv4 also where the socket is one of IPv6. ports: of
    peer and local, as a received packet has them; port: the local one. ifindex: the netdev it is bound to, 0 for
    none. cgroup_id: of the control group it was made in, None where the kernel does not report it.
    """

    __slots__ = ("cgroup_id", "ifindex", "local", "peer", "port", "ports")

    def __init__(self, message: memoryview) -> None:
        end = 12 if message[0] == socket.AF_INET else 24
        self.local = bytes(message[8:end])
        self.peer = bytes(message[24 : end + 16])
        if self.local.startswith(_MAPPED):
            self.local, self.peer = self.local[12:], self.peer[12:]
        self.ports = bytes(message[6:8]) + bytes(message[4:6])
        self.port = int(_PORT.unpack_from(message, _PORT_AT)[0])
        self.ifindex = int(_U32.unpack_from(message, 40)[0])
        self.cgroup_id = next(
            (
                int(_U64.unpack(value)[0])
                for kind, value in parse_attributes(message, MESSAGE_BYTES)
                if kind == _CGROUP_ID and len(value) == _U64.size
            ),
            None,
        )


SocketTraffic: TypeAlias = tuple[TcpSocket, Flow, int, int, int]
"""A socket with traffic: bytes sent and received since the last read, ms since the last of them."""


class MessageLayout(Struct, frozen=True):
    """Byte offsets of the fields in socket messages of one length.

    info: length and type of their tcp_info as one number.

    fields: of the whole message: its length and type, cookie, inode, info, last_data_sent, last_data_recv,
    rtt, bytes_acked, bytes_received.
    """

    fields: struct.Struct
    info: int


def find_message_layout(message: memoryview) -> MessageLayout | None:
    """Return the layout of a socket message with its header; None if its tcp_info is missing or too short."""
    start = _HEADER + MESSAGE_BYTES
    for kind, value in parse_attributes(message, start):
        if kind == TCP_INFO:
            if len(value) < _INFO_BYTES:
                return None
            # the inode is followed by the other attributes, then by this one
            text = f"=IH54xQ16xI{start - _HEADER - MESSAGE_BYTES}xI44xI4xI12xI48xQQ"
            fields = struct.Struct(f"{text}{len(message) - struct.calcsize(text)}x")
            return MessageLayout(fields, int(fields.unpack(message)[4]))
        start += (len(value) + 4 + 3) & ~3
    return None


class TcpSockets:
    """Reads byte counters of the running kernel's TCP sockets. Methods raise OSError with the kernel's errno."""

    def __init__(self) -> None:
        self._netlink = Netlink(NETLINK_SOCK_DIAG)
        self._sockets: dict[int, TcpSocket] | None = None

    def read(self) -> tuple[list[SocketTraffic], set[int]]:
        """Return sockets with traffic since the last read and the inodes of closed ones; none at the first read.

        A socket that was made in between counts with all of its bytes; what one counted that was made and closed
        in between is missed.
        """
        before = self._sockets
        answer = SocketDump(before)
        self._netlink.begin_dump(TCPDIAG_GETSOCK, tcp_request(_STATES))
        while not answer.parse(self._netlink.receive()):
            pass
        self._sockets = answer.sockets
        gone = {before[cookie].inode for cookie in before.keys() - answer.sockets.keys()} if before else set[int]()
        return answer.moved, gone

    def listening(self) -> dict[int, int]:
        """Return the local port of each listening socket by its inode. Raises OSError."""
        ports = {}
        for message in self._netlink.dump(TCPDIAG_GETSOCK, tcp_request(_LISTEN)):
            if len(message) >= MESSAGE_BYTES:
                inode = int(_U32.unpack_from(message, _INODE_AT)[0])
                ports[inode] = int(_PORT.unpack_from(message, _PORT_AT)[0])
        ports.pop(0, None)
        return ports

    def close(self) -> None:
        """Close the netlink socket."""
        self._netlink.close()


class SocketDump:
    """The kernel's list of sockets while it is received. before, sockets: by cookie; before is None at first."""

    def __init__(self, before: dict[int, TcpSocket] | None) -> None:
        self._first = before is None
        self._before = before or {}
        self.sockets: dict[int, TcpSocket] = {}
        self.moved: list[SocketTraffic] = []
        self._layouts: dict[int, MessageLayout | None] = {}

    def parse(self, view: memoryview) -> bool:
        """Parse one datagram of the list; return whether it was the last. Raises OSError if it is cut or an error."""
        position, end = 0, len(view)
        while position + _HEADER <= end:
            length, kind = _LENGTH_AND_KIND.unpack_from(view, position)
            if length < _HEADER or position + length > end:
                raise OSError(errno.EBADMSG, "the kernel's list of sockets is incomplete")
            if kind in (NLMSG_DONE, NLMSG_ERROR):
                raise_for_error(view[position + _HEADER : position + length])
                return True
            step = (length + 3) & ~3
            layout = None
            if kind == TCPDIAG_GETSOCK and step == length:
                layout = self._layout(view[position : position + length])
            if layout is None:
                position += step
            else:
                position += self._run(layout, view[position : end - (end - position) % length])
        return False

    def _layout(self, message: memoryview) -> MessageLayout | None:
        length = len(message)
        known = self._layouts.get(length)
        if known is None or known.fields.unpack(message)[4] != known.info:
            known = self._layouts[length] = find_message_layout(message)
        return known

    def _run(self, layout: MessageLayout, view: memoryview) -> int:
        """Parse consecutive messages with the layout of the first; return their length in bytes."""
        length, info = layout.fields.size, layout.info
        before, sockets, moved, first = self._before, self.sockets, self.moved, self._first
        position = 0
        for row in layout.fields.iter_unpack(view):
            size, kind, cookie, inode, found, sent_ms, received_ms, rtt_us, acked, received = row
            if size != length or kind != TCPDIAG_GETSOCK or found != info:
                break
            if (known := before.get(cookie)) is None and inode:  # a socket without is no process's any more
                known = TcpSocket(inode)
            if known is not None:
                sockets[cookie] = known
                if acked != known.acked or received != known.received:
                    if known.flow is None and not first:
                        known.flow = Flow(view[position + _HEADER : position + length])
                    if known.flow is not None:
                        idle_ms = sent_ms if sent_ms < received_ms else received_ms
                        moved.append((known, known.flow, acked - known.acked, received - known.received, idle_ms))
                    known.acked = acked
                    known.received = received
                    known.rtt_us = rtt_us
            position += length
        return position
