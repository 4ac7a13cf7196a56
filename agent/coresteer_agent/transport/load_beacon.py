"""The beacon: agents tell each other TS and ENP of their nodes by UDP, for the policy ``coscheduling``.

A datagram is 16 bytes: a tag, then TS in seconds and ENP as floats in network order. It is not authenticated. A hostile
sender that forges the address of a node with which a process of the job is connected can change which process of this
job is boosted, and nothing else. From any other address nothing is accepted.
"""

import math
import socket
import struct
from collections.abc import Iterable, Set
from contextlib import suppress

from msgspec import Struct

from coresteer_core.policies.coscheduling.load import PeerLoad

PORT = 7749
"""UDP port of every agent, which a firewall between nodes of one job has to admit."""
_DATAGRAM = struct.Struct("!8sff")
_TAG = b"CSBEACN1"
_MAX_TS_S = 100.0
_MAX_ENP = 65_536.0
_MAX_DATAGRAMS = 256
"""Datagrams read at a time; more are dropped by the kernel, whose buffer is small."""
_RECEIVE_BUFFER_BYTES = 64 * 1024
_LEAST_INTERVAL_S = 0.005
"""A datagram sooner after the last one of its sender is ignored."""
_MAX_PEERS = 64
_MAPPED = bytes(10) + b"\xff\xff"


class Heard(Struct, frozen=True):
    """The load of a node and when it arrived."""

    load: PeerLoad
    heard_s: float


def encode_beacon(load: PeerLoad) -> bytes:
    """Return a load as a datagram."""
    return _DATAGRAM.pack(_TAG, load.ts_s, load.enp)


def decode_beacon(datagram: bytes) -> PeerLoad | None:
    """Return the load in a datagram; None for anything that no agent sends."""
    if len(datagram) != _DATAGRAM.size:
        return None
    tag, ts_s, enp = _DATAGRAM.unpack(datagram)
    if tag != _TAG or not (math.isfinite(ts_s) and math.isfinite(enp)):
        return None
    return PeerLoad(ts_s, enp) if 0 < ts_s <= _MAX_TS_S and 0 <= enp <= _MAX_ENP else None


class LoadBeacon:
    """Sends this node's load to its peers and keeps theirs. The constructor raises OSError if the port is in use."""

    def __init__(self, port: int = PORT, address: str = "") -> None:
        self._port = port
        self._heard: dict[bytes, Heard] = {}
        self._socket = _open_socket(address, port)
        self._is_6 = self._socket.family == socket.AF_INET6

    def exchange(self, load: PeerLoad | None, peers: Set[bytes], now_s: float) -> dict[bytes, Heard]:
        """Send this node's load to peers, at most 64 of them, and return the latest load of each.

        peers: addresses, 4 or 16 bytes in network order, with which a process of the job is connected now. load: None
        while it is unknown. now_s: monotonic time, noted for what arrived.
        """
        self._heard = {address: heard for address, heard in self._heard.items() if address in peers}
        self._receive(peers, now_s)
        if load is not None:
            datagram = encode_beacon(load)
            for address in sorted(peers)[:_MAX_PEERS]:
                with suppress(OSError):  # no route, or the peer's machine refuses: its agent has no such policy
                    self._socket.sendto(datagram, self._destination(address))
        return self._heard

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _receive(self, peers: Set[bytes], now_s: float) -> None:
        for _ in range(_MAX_DATAGRAMS):
            try:
                datagram, sender = self._socket.recvfrom(_DATAGRAM.size + 1)
            except BlockingIOError:
                return
            except OSError:  # a peer's refusal of an earlier datagram
                continue
            address = self._source(sender)
            if address not in peers:
                continue
            before = self._heard.get(address)
            if before is not None and 0 < now_s - before.heard_s < _LEAST_INTERVAL_S:
                continue
            if (load := decode_beacon(datagram)) is not None:
                self._heard[address] = Heard(load, now_s)

    def _destination(self, address: bytes) -> tuple[str, int]:
        if not self._is_6:
            return socket.inet_ntop(socket.AF_INET, address), self._port
        return socket.inet_ntop(socket.AF_INET6, _MAPPED + address if len(address) == 4 else address), self._port

    def _source(self, sender: tuple[str, int]) -> bytes:
        if not self._is_6:
            return socket.inet_aton(sender[0])
        address = socket.inet_pton(socket.AF_INET6, sender[0].partition("%")[0])
        return address[12:] if address.startswith(_MAPPED) else address


def _open_socket(address: str, port: int) -> socket.socket:
    """Open a UDP socket for both versions of IP, or for that of a given address or of a kernel without version 6."""
    families: Iterable[socket.AddressFamily] = (socket.AF_INET6, socket.AF_INET) if not address else (socket.AF_INET,)
    for family in families:
        try:
            found = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        except OSError:
            if family is socket.AF_INET:
                raise
            continue
        try:
            if family is socket.AF_INET6:
                found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            found.bind((address, port))
        except OSError:
            found.close()
            raise
        return found
    raise AssertionError("A family was opened or raised.")
