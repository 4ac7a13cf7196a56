"""Reads what waits in the sockets of a job's processes, and from whom: another node, or other CPUs of this machine."""

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address

from coresteer_agent.collect.pending import PendingSocket, read_pending, read_socket_inodes
from coresteer_agent.linux.netlink import NETLINK_SOCK_DIAG, Netlink
from coresteer_agent.linux.network_namespace import network_namespace, open_in_namespace
from coresteer_core.policies.coscheduling.boost import Received

_MAX_NAMESPACES = 32
_INODES_S = 1.0
"""Interval of searching the processes' sockets again."""


class JobSockets:
    """Reads the receive queues of a few processes, also in other network namespaces."""

    def __init__(self) -> None:
        self._pids: list[int] = []
        self._netlinks: dict[int, Netlink] = {}
        self._holders: dict[int, int] = {}
        self._searched_s = float("-inf")
        self.remote: set[bytes] = set()
        """Addresses of other machines with which the processes were connected at the last read."""

    def follow(self, pids: Iterable[int]) -> None:
        """Replace the processes, and open a netlink socket in each of their network namespaces. Raises OSError."""
        self._pids = list(pids)
        self._searched_s = float("-inf")
        namespaces = {found: pid for pid in self._pids if (found := network_namespace(pid)) is not None}
        for gone in self._netlinks.keys() - namespaces.keys():
            self._netlinks.pop(gone).close()
        own = network_namespace(os.getpid())
        for namespace, pid in namespaces.items():
            if namespace in self._netlinks or len(self._netlinks) >= _MAX_NAMESPACES:
                continue
            with suppress(FileNotFoundError):  # the process has ended
                self._netlinks[namespace] = _open() if namespace == own else open_in_namespace(pid, _open)

    def read(self, cpus: Mapping[int, str], now_s: float) -> list[Received]:
        """Return what each connected socket of the processes received. cpus: CPU list by PID. Raises OSError.

        The peer of a socket between two of the processes is the CPUs of the other one; sockets to any other process
        of this machine are omitted, as its run queue is not observed.
        """
        if time.monotonic() - self._searched_s >= _INODES_S:
            self._searched_s = time.monotonic()
            self._holders = {inode: pid for pid in self._pids for inode in read_socket_inodes(pid)}
        found: list[tuple[int, PendingSocket]] = []
        ends: dict[tuple[bytes, bytes], int] = {}
        for netlink in self._netlinks.values():
            for one in read_pending(netlink):
                pid = self._holders.get(one.inode)
                ends[one.local, one.peer] = -1 if pid is None else pid
                if pid is not None and pid in cpus:
                    found.append((pid, one))
        self.remote = set()
        received = []
        for pid, one in found:
            other = ends.get((one.peer, one.local))
            if other is None and _is_loopback(one.address):
                continue  # the other end is closed
            if other is None:
                self.remote.add(one.address)
                peer = str(ip_address(one.address))
            elif other in cpus and other != pid:
                peer = local_peer(cpus[other])
            else:
                continue
            received.append(Received(pid, peer, one.pending_bytes, now_s - one.idle_s))
        return received

    def close(self) -> None:
        """Close the netlink sockets."""
        for netlink in self._netlinks.values():
            netlink.close()
        self._netlinks, self._pids, self._holders, self.remote = {}, [], {}, set()


def local_peer(cpus: str) -> str:
    """Return the name of a set of CPUs of this machine as a peer."""
    return f"CPUs {cpus}"


def _is_loopback(address: bytes) -> bool:
    return ip_address(address).is_loopback


def _open() -> Netlink:
    return Netlink(NETLINK_SOCK_DIAG)
