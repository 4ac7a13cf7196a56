"""Reads round-trip times of TCP sockets by NETLINK_SOCK_DIAG (kernel: include/uapi/linux/inet_diag.h, tcp.h)."""

import errno
import logging
import math
import socket
import struct
import time
from collections.abc import Iterable

from coresteer_agent.linux.netlink import NETLINK_SOCK_DIAG, Netlink
from coresteer_core.node.rates import TcpLatency

_log = logging.getLogger(__name__)

TCPDIAG_GETSOCK = 18
"""The type of the request and of each answer. Unlike SOCK_DIAG_BY_FAMILY it lists IPv4 and IPv6 at once, for which the
kernel searches its table of all sockets once: half the time where there are few sockets."""
_REQUEST = struct.Struct("=3xB48xI4x")
"""struct inet_diag_req; the kernel ignores the address family of a dump."""
_ESTABLISHED = 1 << 1
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

_LOOPBACK_6 = bytes(15) + b"\x01"
_MAPPED = bytes(10) + b"\xff\xff"


def tcp_request(states: int) -> bytes:
    """Return the netlink request for all TCP sockets. states: bit set of TCP states."""
    return _REQUEST.pack(1 << (TCP_INFO - 1), states)


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


class TcpLatencyReader:
    """Reads round-trip times of TCP sockets; of more than 2,000 sockets only every 5 s, and None in between.

    After a refusal by the kernel the result is None from then on; after any other error the next read tries again.
    Both are logged once.
    """

    def __init__(self) -> None:
        self._netlink: Netlink | None = None
        self._refused = False
        self._failing = False
        self._next_s = 0.0

    def read(self) -> TcpLatency | None:
        """Return the present round-trip times; None without active remote sockets, or if they cannot be read."""
        now_s = time.monotonic()
        if self._refused or now_s < self._next_s:
            return None
        try:
            if self._netlink is None:
                self._netlink = Netlink(NETLINK_SOCK_DIAG)
            rtts_us: list[int] = []
            sockets = 0
            for message in self._netlink.dump(TCPDIAG_GETSOCK, tcp_request(_ESTABLISHED)):
                sockets += 1
                rtt = parse_message(message)
                if rtt is not None:
                    rtts_us.append(rtt)
        except OSError as error:
            if not self._failing:
                _log.warning("TCP latency is unknown, because the kernel does not list sockets: %s.", error)
            self._failing = True
            self._refused = error.errno in _REFUSALS
            self.close()
            return None
        self._failing = False
        self._next_s = now_s + _MANY_PERIOD_S if sockets > _MANY_SOCKETS else 0.0
        return summarize(rtts_us)

    def close(self) -> None:
        """Close the netlink socket."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None
