"""Reads IP addresses of netdevs by rtnetlink (kernel: include/uapi/linux/if_addr.h, rtnetlink(7))."""

import socket
import struct
from collections.abc import Iterable
from ipaddress import ip_address

from coresteer_agent.linux.netlink import NETLINK_ROUTE, Netlink, parse_attributes

_GET_ADDRESSES = 22
_HEADER = struct.Struct("=BBBBI")
_ADDRESS, _LOCAL = 1, 2
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
LOOPBACK = "lo"


def parse_address(message: memoryview) -> tuple[bytes, int] | None:
    """Parse a local IP address (network order) and the ifindex of its netdev from a message; None without one."""
    if len(message) < _HEADER.size or message[0] not in _FAMILIES:
        return None  # a dump has the addresses of other families, such as MCTP, as well
    found = dict(parse_attributes(message, _HEADER.size))
    # of a point-to-point link IFA_ADDRESS is the other end's
    address = found.get(_LOCAL, found.get(_ADDRESS))
    return None if address is None else (bytes(address), int(_HEADER.unpack_from(message)[4]))


def netdev_of_address(found: Iterable[tuple[bytes, int]], names: dict[int, str]) -> dict[bytes, str | None]:
    """Return the netdev of each address; None for an address of several netdevs, such as fe80::1."""
    owners: dict[bytes, str | None] = {}
    for address, ifindex in found:
        name = names.get(ifindex)
        owners[address] = name if owners.get(address, name) == name else None
    return owners


def read_addresses_by_netdev() -> dict[str, list[str]]:
    """Return the IP addresses of each netdev of this network namespace, sorted; empty if netlink is refused."""
    found: dict[str, list[str]] = {}
    try:
        names = dict(socket.if_nameindex())
        netlink = Netlink(NETLINK_ROUTE)
        try:
            for message in netlink.dump(_GET_ADDRESSES, _HEADER.pack(socket.AF_UNSPEC, 0, 0, 0, 0)):
                parsed = parse_address(message)
                if parsed is not None and parsed[1] in names:
                    found.setdefault(names[parsed[1]], []).append(str(ip_address(parsed[0])))
        finally:
            netlink.close()
    except OSError:
        return {}
    return {name: sorted(addresses) for name, addresses in found.items()}


class Addresses:
    """Local IP addresses of this network namespace as of the last read(). Raises OSError with the kernel's errno.

    missed: an address that is not among them was requested since.
    """

    def __init__(self) -> None:
        self.missed = False
        self._names: dict[int, str] = {}
        self._netdevs: dict[bytes, str | None] = {}
        self.read()

    def read(self) -> None:
        """Read all IP addresses of this network namespace again. Raises OSError."""
        self._names = dict(socket.if_nameindex())
        netlink = Netlink(NETLINK_ROUTE)
        try:
            messages = netlink.dump(_GET_ADDRESSES, _HEADER.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
            found = [address for message in messages if (address := parse_address(message)) is not None]
        finally:
            netlink.close()
        self._netdevs = netdev_of_address(found, self._names)
        self.missed = False

    def netdev(self, local: bytes, peer: bytes, ifindex: int) -> str:
        """Return the netdev with a socket's local address; the loopback if the peer's address is local too.

        ifindex: the netdev that the socket is bound to, 0 for none. Empty where it is not known.
        """
        if local == peer or peer in self._netdevs or _is_loopback(local):
            return LOOPBACK
        if local not in self._netdevs:
            self.missed = True
        return self._netdevs.get(local) or self._names.get(ifindex, "")


def _is_loopback(address: bytes) -> bool:
    """Return whether an address is in 127.0.0.0/8 or ::1."""
    return address[0] == 127 if len(address) == 4 else address == bytes(15) + b"\x01"
