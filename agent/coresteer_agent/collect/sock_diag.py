"""Reads round-trip times of TCP sockets by NETLINK_SOCK_DIAG (kernel: include/uapi/linux/inet_diag.h, tcp.h)."""

import errno
import logging
import math
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path

from coresteer_agent.collect.files import HotFile
from coresteer_agent.linux.netlink import NETLINK_SOCK_DIAG, Netlink
from coresteer_core.node.rates import TcpLatency

_log = logging.getLogger(__name__)

TCPDIAG_GETSOCK = 18
"""The type of the request and of each answer. Unlike SOCK_DIAG_BY_FAMILY it lists IPv4 and IPv6 at once, for which the
kernel searches its table of all sockets once: half the time where there are few sockets."""
_REQUEST = struct.Struct("=3xB48xI4x")
"""struct inet_diag_req; the kernel ignores the address family of a dump."""
_EXACT_REQUEST = struct.Struct("=B2xB48s8x")
_ID = slice(4, 52)
"""Addresses, ports, netdev and kernel cookie in an inet_diag_msg, as a request for that one socket has them."""
_ESTABLISHED = 1
_OPENING = 1 << 2 | 1 << 3
"""SYN_SENT and SYN_RECV."""
TCP_INFO = 2
"""The attribute that holds tcp_info."""
MESSAGE_BYTES = 72
"""Of an inet_diag_msg; attributes follow."""
_ATTRIBUTE = struct.Struct("=HH")
_LAST_DATA_SENT = 44
_LAST_DATA_RECV = 52
_RTT = 68
_INFO_BYTES = _RTT + 4
_U32 = struct.Struct("=I")

_REFUSALS = frozenset({errno.EPERM, errno.EACCES, errno.EPROTONOSUPPORT, errno.ENOENT})
_RECENT_MS = 10_000
_MANY_SOCKETS = 2_000
_MANY_PERIOD_S = 5.0
_FEW_SOCKETS = 32
"""A request for one socket costs 10 µs, a list of all at least 1 ms on machines with much memory."""
_LIST_PERIOD_S = 60.0
"""For sockets that were established without being opened, as when a container is migrated."""
_SNMP = "proc/net/snmp"
_OPENS = slice(4, 6)
"""ActiveOpens and PassiveOpens of the line Tcp (kernel: net/ipv4/proc.c)."""

_LOOPBACK_6 = bytes(15) + b"\x01"
_MAPPED = bytes(10) + b"\xff\xff"


def tcp_request(states: int) -> bytes:
    """Return the netlink request for all TCP sockets. states: bit set of TCP states."""
    return _REQUEST.pack(1 << (TCP_INFO - 1), states)


def socket_request(message: memoryview) -> bytes:
    """Return the netlink request for the one socket of an inet_diag_msg."""
    return _EXACT_REQUEST.pack(message[0], 1 << (TCP_INFO - 1), bytes(message[_ID]))


def parse_message(message: bytes | memoryview) -> int | None:
    """Parse a socket's smoothed round-trip time in µs from an inet_diag_msg; None for a local or idle socket.

    A socket counts when its peer is another host and data was sent or received within the last ten seconds.
    A closing socket has no tcp_info, and older kernels' tcp_info is shorter: None.
    """
    end = len(message)
    if end < MESSAGE_BYTES or _is_local(bytes(message[8:24]), bytes(message[24:40]), message[0]):
        return None
    start = MESSAGE_BYTES
    while start + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(message, start)
        if length < 4 or start + length > end:
            return None
        if kind == TCP_INFO:
            if length - 4 < _INFO_BYTES:
                return None
            info = start + 4
            sent = int(_U32.unpack_from(message, info + _LAST_DATA_SENT)[0])
            received = int(_U32.unpack_from(message, info + _LAST_DATA_RECV)[0])
            return int(_U32.unpack_from(message, info + _RTT)[0]) if min(sent, received) < _RECENT_MS else None
        start += (length + 3) & ~3
    return None


def _is_local(source: bytes, peer: bytes, family: int) -> bool:
    if source == peer:
        return True  # packets to an address of the same host use loopback
    if family == socket.AF_INET:
        return peer[0] == 127
    return peer == _LOOPBACK_6 or (peer.startswith(_MAPPED) and peer[12] == 127)


def summarize(rtts_us: Iterable[int]) -> TcpLatency | None:
    """Return percentiles (nearest rank) of round-trip times; None without any. Unmeasured ones (0) are omitted."""
    ordered = sorted(rtt for rtt in rtts_us if rtt)
    if not ordered:
        return None

    def rank(share: float) -> int:
        return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]

    return TcpLatency(len(ordered), rank(0.50), rank(0.95), rank(0.99))


def parse_opens(text: bytes | bytearray) -> list[bytes] | None:
    """Return how many TCP connections were opened since boot, both ways, from /proc/net/snmp; None if it lacks them."""
    header_and_values = text.split(b"\nTcp: ", 2)[1:]
    opens = header_and_values[1].split(None, _OPENS.stop)[_OPENS] if len(header_and_values) == 2 else []
    return list(map(bytes, opens)) if len(opens) == 2 else None


class TcpLatencyReader:
    """Reads round-trip times of TCP sockets; of more than 2,000 sockets only every 5 s, and None in between.

    To list sockets the kernel searches a table whose size grows with the machine's memory. So while no connection is
    opened and few sockets have a remote peer, it is asked for each of these.

    After a refusal by the kernel the result is None from then on; after any other error the next read tries again.
    Both are logged once.
    """

    def __init__(self) -> None:
        self._netlink: Netlink | None = None
        self._snmp = HotFile(Path("/"), _SNMP)
        self._known: list[bytes] | None = None
        """Requests for the remote sockets of the last list; None if others may have been established since."""
        self._opens: list[bytes] | None = None
        """From before that list."""
        self._refused = False
        self._failing = False
        self._next_s = 0.0
        self._list_s = 0.0

    def read(self) -> TcpLatency | None:
        """Return the present round-trip times; None without active remote sockets, or if they cannot be read."""
        now_s = time.monotonic()
        if self._refused or now_s < self._next_s:
            return None
        try:
            if self._netlink is None:
                self._netlink = Netlink(NETLINK_SOCK_DIAG)
            opens = parse_opens(self._snmp.read() or b"")
            if self._known is not None and opens == self._opens and now_s < self._list_s:
                replies = self._netlink.query(TCPDIAG_GETSOCK, self._known)
                rtts_us = [parse_message(message) for message in replies if message[1] == _ESTABLISHED]
            else:
                rtts_us = self._list(self._netlink, opens, now_s)
        except OSError as error:
            if not self._failing:
                _log.warning("TCP latency is unknown, because the kernel does not list sockets: %s.", error)
            self._failing = True
            self._refused = error.errno in _REFUSALS
            self.close()
            return None
        self._failing = False
        return summarize(rtt for rtt in rtts_us if rtt is not None)

    def _list(self, netlink: Netlink, opens: list[bytes] | None, now_s: float) -> list[int | None]:
        """Return the round-trip times of all sockets, as parse_message() does, and note which are remote."""
        rtts_us: list[int | None] = []
        known: list[bytes] = []
        sockets, opening = 0, opens is None
        for message in netlink.dump(TCPDIAG_GETSOCK, tcp_request(1 << _ESTABLISHED | _OPENING)):
            if len(message) < MESSAGE_BYTES:
                continue
            if message[1] != _ESTABLISHED:
                opening = True
                continue
            sockets += 1
            if _is_local(bytes(message[8:24]), bytes(message[24:40]), message[0]):
                continue
            rtts_us.append(parse_message(message))
            if len(known) <= _FEW_SOCKETS:
                known.append(socket_request(message))
        self._known = None if opening or len(known) > _FEW_SOCKETS else known
        self._opens, self._list_s = opens, now_s + _LIST_PERIOD_S
        self._next_s = now_s + _MANY_PERIOD_S if sockets > _MANY_SOCKETS else 0.0
        return rtts_us

    def close(self) -> None:
        """Close the netlink socket and the counters' file."""
        self._known = None
        self._snmp.close()
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None
