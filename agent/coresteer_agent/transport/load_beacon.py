"""The beacon: agents tell each other TS and ENP of their nodes by UDP, for the policy ``coscheduling``.

A datagram is 16 bytes: a tag, then the load. It is not authenticated. A hostile sender that forges the address of a
node with which a process of the job is connected can change which process of this job is boosted, and nothing else.
From any other address nothing is accepted.
"""

import socket
from collections.abc import Iterable, Set
from contextlib import suppress

from coresteer_agent.transport.load_carrier import LOAD_BYTES, Heard, decode_load, encode_load
from coresteer_core.policies.coscheduling.load import PeerLoad

PORT = 7749
"""UDP port of every agent, which a firewall between nodes of one job has to admit."""
_TAG = b"CSBEACN1"
_DATAGRAM_BYTES = len(_TAG) + LOAD_BYTES
_MAX_DATAGRAMS = 256
"""Datagrams read at a time; more are dropped by the kernel, whose buffer is small."""
_RECEIVE_BUFFER_BYTES = 64 * 1024
_MAX_PEERS = 64
_MAPPED = bytes(10) + b"\xff\xff"


def encode_beacon(load: PeerLoad) -> bytes:
    """Return a load as a datagram."""
    return _TAG + encode_load(load)


def decode_beacon(datagram: bytes) -> PeerLoad | None:
    """Return the load in a datagram; None for anything that no agent sends."""
    if len(datagram) != _DATAGRAM_BYTES or not datagram.startswith(_TAG):
        return None
    return decode_load(datagram[len(_TAG) :])


class LoadBeacon:
    """Sends this node's load to its peers and keeps theirs. The constructor raises OSError if the port is in use."""

    def __init__(self, port: int = PORT, address: str = "") -> None:
        self._port = port
        self._heard: dict[bytes, Heard] = {}
        self._socket = _open_socket(address, port)
        self._is_6 = self._socket.family == socket.AF_INET6

    def exchange(self, load: PeerLoad | None, peers: Set[bytes], now_s: float) -> dict[bytes, Heard]:
        """Send this node's load to its peers, and return the latest load of each, noted as of now_s."""
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
                datagram, sender = self._socket.recvfrom(_DATAGRAM_BYTES + 1)
            except BlockingIOError:
                return
            except OSError:  # a peer's refusal of an earlier datagram
                continue
            address = self._source(sender)
            if address not in peers:
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
