"""Limits of connections: how many wait for their peer, how long, and how many there are in all.

A connection waits for its peer while the TLS handshake, the head or the body of a request is incomplete, between two
requests, and while the peer does not read a response. An honest client waits briefly each time, an attacker holds
connections in one of these states. So the connection that has waited longest ends first, and there is always room for
a new one. Connections of agents and pages (WebSockets) and requests in progress do not wait and are never ended here;
those of signed-in users wait apart, so that strangers do not displace them.
"""

import time
from collections.abc import Callable, Iterable
from itertools import takewhile

MAX_WAIT_S = 10.0
"""Seconds that a connection may wait for its peer. More than twice the slowest TLS handshake over a bad mobile link."""
PROGRESS_BYTES = 64 * 1024
"""Bytes of a body or a response after which a wait begins anew: at least 6.4 kB/s."""
MAX_WAITING = 1024
"""Connections of strangers that wait at the same time, and as many of signed-in users: 16 KiB of headers each."""
MAX_WAITING_PER_ADDRESS = 256
"""Of strangers at one address, or in one IPv6 network of 64 bits: a quarter, so that three more have room."""


class Peer:
    """One connection. end: called to end it; with False if it has waited too long, with True if others need its place.

    Only in the former case it may begin another wait instead. is_signed_in: its last request was a user's.
    """

    __slots__ = ("end", "is_signed_in", "network")

    def __init__(self, network: str, end: Callable[[bool], object]) -> None:
        self.network = network
        self.end = end
        self.is_signed_in = False


class ConnectionLimits:
    """Count of all connections and of those that wait for their peer."""

    def __init__(self, max_connections: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_connections = max_connections
        self._clock = clock
        self._open: set[Peer] = set()
        # since when they wait, in the order in which they began
        self._strangers: dict[Peer, float] = {}
        self._users: dict[Peer, float] = {}
        self._strangers_by_network: dict[str, dict[Peer, None]] = {}
        self.displaced = 0
        """Connections that were ended for others so far."""

    def admit(self, peer: Peer) -> bool:
        """Count a new connection, which waits for its peer, and end one that waits longer where there are too many.

        Return False when there is no room, because all connections are in use.
        """
        if len(self._open) >= self._max_connections:
            waiting = self._strangers or self._users
            if not waiting:
                return False
            self._end_longest(waiting)
        self._open.add(peer)
        self.begin_wait(peer)
        return True

    def begin_wait(self, peer: Peer) -> None:
        """Note that the connection waits for its peer from now on, also when it has waited already.

        Ends one that waits longer where there are too many.
        """
        if peer not in self._open:
            return
        self.end_wait(peer)
        if peer.is_signed_in:
            self._users[peer] = self._clock()
            if len(self._users) > MAX_WAITING:
                self._end_longest(self._users)
            return
        self._strangers[peer] = self._clock()
        of_network = self._strangers_by_network.setdefault(peer.network, {})
        of_network[peer] = None
        if len(of_network) > MAX_WAITING_PER_ADDRESS:
            self._end_longest(of_network)
        elif len(self._strangers) > MAX_WAITING:
            self._end_longest(self._strangers)

    def end_wait(self, peer: Peer) -> None:
        """Note that the connection no longer waits for its peer."""
        self._users.pop(peer, None)
        if self._strangers.pop(peer, None) is None:
            return
        of_network = self._strangers_by_network[peer.network]
        del of_network[peer]
        if not of_network:
            del self._strangers_by_network[peer.network]

    def leave(self, peer: Peer) -> None:
        """Count the connection no longer; idempotent."""
        self._open.discard(peer)
        self.end_wait(peer)

    def end_overdue(self) -> None:
        """End the connections that have waited for MAX_WAIT_S."""
        until = self._clock() - MAX_WAIT_S
        for waiting in (self._strangers, self._users):
            for peer, _ in list(takewhile(lambda item: item[1] <= until, waiting.items())):
                peer.end(False)

    def _end_longest(self, waiting: Iterable[Peer]) -> None:
        """End a connection for another one. It counts no longer, although its socket closes a moment later."""
        peer = next(iter(waiting))
        self.leave(peer)
        self.displaced += 1
        peer.end(True)
