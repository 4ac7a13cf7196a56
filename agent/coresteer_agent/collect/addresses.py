"""Which netdev has which address (kernel: include/uapi/linux/if_addr.h, rtnetlink(7))."""

import socket
import struct
from collections.abc import Iterable

from coresteer_agent.collect.netlink import NETLINK_ROUTE, Netlink, attributes

_GET_ADDRESSES = 22
_HEADER = struct.Struct("=BBBBI")
_ADDRESS, _LOCAL = 1, 2


def parse_address(message: memoryview) -> tuple[bytes, int] | None:
    """An address of this host in network order and the number of its netdev; None where the message has none."""
    if len(message) < _HEADER.size:
        return None
    told = dict(attributes(message, _HEADER.size))
    # of a point-to-point link IFA_ADDRESS is the other end's
    address = told.get(_LOCAL, told.get(_ADDRESS))
    return None if address is None else (bytes(address), int(_HEADER.unpack_from(message)[4]))


def netdev_of_address(found: Iterable[tuple[bytes, int]], names: dict[int, str]) -> dict[bytes, str | None]:
    """By address; None for one that several netdevs have, such as fe80::1."""
    owners: dict[bytes, str | None] = {}
    for address, ifindex in found:
        name = names.get(ifindex)
        owners[address] = name if owners.get(address, name) == name else None
    return owners


class Addresses:
    """The addresses of this network namespace, as of the last read(). Raises OSError with the kernel's number."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._netdevs: dict[bytes, str | None] = {}
        self.read()

    def read(self) -> None:
        """Ask the kernel."""
        self.names = dict(socket.if_nameindex())
        netlink = Netlink(NETLINK_ROUTE)
        try:
            messages = netlink.dump(_GET_ADDRESSES, _HEADER.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
            found = [address for message in messages if (address := parse_address(message)) is not None]
        finally:
            netlink.close()
        self._netdevs = netdev_of_address(found, self.names)

    def knows(self, address: bytes) -> bool:
        """Whether it is one of this host's."""
        return address in self._netdevs or is_loopback(address)

    def netdev(self, address: bytes, ifindex: int) -> str | None:
        """The netdev that has an address of a socket, which may be bound to one; None where it is not known."""
        if is_loopback(address):
            return "lo"
        return self._netdevs.get(address) or self.names.get(ifindex)


def is_loopback(address: bytes) -> bool:
    """127.0.0.0/8, as a whole, or ::1."""
    return address[0] == 127 if len(address) == 4 else address == bytes(15) + b"\x01"
