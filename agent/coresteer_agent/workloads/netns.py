"""Program that creates a network namespace for an experiment's client, connected by a veth pair.

    python -m coresteer_agent.workloads.netns ORDERS

Prints ``ready NETDEV ADDRESS PATH``: the server's end, which stays in the namespace of the parent, its address, and the
namespace as a path. The client's end sends no packet larger than its MTU. Everything ends with this process.
"""

import errno
import fcntl
import os
import signal
import socket
import struct
import sys
from array import array
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import msgspec
from msgspec import Struct

from coresteer_agent.linux.addresses import parse_address
from coresteer_agent.linux.netlink import NETLINK_ROUTE, Netlink, encode_attribute
from coresteer_agent.workloads.process_control import end_with_parent, enter_new_network_namespace
from coresteer_agent.workloads.traffic_protocol import READY, exit_with_error, print_line
from coresteer_core.experiments.model import VETH_PREFIX

_NEW_LINK, _GET_LINK, _NEW_ADDRESS, _GET_ADDRESS = 16, 18, 20, 22  # include/uapi/linux/rtnetlink.h
_LINK = struct.Struct("=BxHiII")
"""struct ifinfomsg: family, type, index, flags, which of them change."""
_ADDRESS = struct.Struct("=BBBBI")
_UP = 1
_NAME, _LINK_INFO, _NETWORK_OF_PID, _TX_QUEUES, _RX_QUEUES = 3, 18, 19, 31, 32
_SIOCETHTOOL = 0x8946
_SET_TSO, _SET_GRO = 0x1F, 0x2C  # include/uapi/linux/ethtool.h
_IFREQ = struct.Struct("16sP16x")
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RANGE = IPv4Network("198.18.0.0/15")
"""Networks for benchmarks of network devices (RFC 2544, RFC 6890), not used elsewhere."""
_PREFIX = 30
_CLIENT_END = "client0"
_LOOPBACK = "lo"
_MOST_NAMES = 100


class NetnsConfig(Struct):
    """Configuration of the program. parent: PID of the process with which it ends."""

    parent: int


def main() -> None:
    """Create the network namespace and the veth pair, print them, and keep them until this process is ended."""
    end_with_parent(msgspec.json.decode(sys.argv[1], type=NetnsConfig).parent)
    outside = Netlink(NETLINK_ROUTE)
    try:
        network = find_free_network(_networks_in_use(outside))
        server_end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        enter_new_network_namespace()
        netdev = _make_pair(outside)
        server, client = network.hosts()
        inside = Netlink(NETLINK_ROUTE)
        _bring_up(outside, netdev, server)
        _bring_up(inside, _CLIENT_END, client)
        _bring_up(inside, _LOOPBACK)
        with server_end, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client_end:
            _packets_as_on_a_wire(client_end, netdev, server_end)
    except OSError as error:
        needs = " It requires root." if error.errno == errno.EPERM else ""
        exit_with_error(f"A network namespace for the client could not be created: {error.strerror or error}.{needs}")
    print_line(f"{READY} {netdev} {server} /proc/{os.getpid()}/ns/net")
    while True:
        signal.pause()


def _networks_in_use(netlink: Netlink) -> list[IPv4Network]:
    """Return this namespace's IPv4 addresses and its routes into _RANGE, as networks."""
    messages = netlink.dump(_GET_ADDRESS, _ADDRESS.pack(socket.AF_INET, 0, 0, 0, 0))
    used = [IPv4Network(bytes(found[0])) for message in messages if (found := parse_address(message)) is not None]
    return used + [route for route in parse_routes(Path("/proc/self/net/route").read_text()) if route.subnet_of(_RANGE)]


def parse_routes(text: str) -> list[IPv4Network]:
    """Parse the destination networks of /proc/net/route (kernel: net/ipv4/fib_trie.c), in host byte order."""
    columns = [line.split() for line in text.splitlines()[1:]]
    return [
        IPv4Network((_in_order(column[1]), int(IPv4Address(_in_order(column[7]))).bit_count())) for column in columns
    ]


def _in_order(text: str) -> bytes:
    return int(text, 16).to_bytes(4, sys.byteorder)


def find_free_network(used: Sequence[IPv4Network]) -> IPv4Network:
    """Return an unused /30 network of 198.18.0.0/15. Raises OSError if all are in use.

    The search starts at a place that depends on the PID, so that two processes choose different ones.
    """
    bits = _PREFIX - _RANGE.prefixlen
    for number in range(1 << bits):
        place = (number + os.getpid()) % (1 << bits)
        network = IPv4Network((int(_RANGE.network_address) + (place << 32 - _PREFIX), _PREFIX))
        if not any(network.overlaps(other) for other in used):
            return network
    raise OSError(errno.EADDRNOTAVAIL, f"every network of {_RANGE} is in use")


def _make_pair(outside: Netlink) -> str:
    """Create the veth pair with one end in each namespace; return the name of the server's end."""
    own = encode_attribute(_NAME, _text(_CLIENT_END)) + encode_attribute(_NETWORK_OF_PID, _u32(os.getpid()))
    peer = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + own + _QUEUES
    kind = encode_attribute(_INFO_KIND, b"veth") + encode_attribute(_INFO_DATA, encode_attribute(_VETH_PEER, peer))
    for number in range(_MOST_NAMES):
        name = f"{VETH_PREFIX}{number}"
        link = encode_attribute(_NAME, _text(name)) + _QUEUES + encode_attribute(_LINK_INFO, kind)
        try:
            outside.exchange(_NEW_LINK, _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + link, create=True)
        except FileExistsError:
            continue
        return name
    raise OSError(errno.EEXIST, f"{_MOST_NAMES} netdevs named {VETH_PREFIX}N already exist")


def _bring_up(netlink: Netlink, netdev: str, address: IPv4Address | None = None) -> None:
    query = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + encode_attribute(_NAME, _text(netdev))
    index = _LINK.unpack_from(netlink.exchange(_GET_LINK, query))[2]
    if address is not None:  # the kernel gives the loopback its own
        attributes = encode_attribute(_IFA_LOCAL, address.packed) + encode_attribute(_IFA_ADDRESS, address.packed)
        netlink.exchange(_NEW_ADDRESS, _ADDRESS.pack(socket.AF_INET, _PREFIX, 0, 0, index) + attributes, create=True)
    netlink.exchange(_NEW_LINK, _LINK.pack(socket.AF_UNSPEC, 0, index, _UP, _UP))


def _packets_as_on_a_wire(client_end: socket.socket, netdev: str, server_end: socket.socket) -> None:
    """Make the veth pair carry packets of at most its MTU, received with NAPI, as a NIC does.

    TCP segmentation offload is off, so that segments are split before they reach the other end. There the kernel polls
    for them (NAPI), which a veth does with GRO alone (drivers/net/veth.c), so that gro_flush_timeout and
    napi_defer_hard_irqs have the same effect as on a NIC. The sockets are of the ends' namespaces.
    """
    for where, name, *value in ((client_end, _CLIENT_END, _SET_TSO, 0), (server_end, netdev, _SET_GRO, 1)):
        command = array("I", value)
        fcntl.ioctl(where, _SIOCETHTOOL, _IFREQ.pack(_text(name), command.buffer_info()[0]))


def _text(name: str) -> bytes:
    return name.encode() + b"\0"


def _u32(value: int) -> bytes:
    return struct.pack("=I", value)


_QUEUES = encode_attribute(_TX_QUEUES, _u32(1)) + encode_attribute(_RX_QUEUES, _u32(1))


if __name__ == "__main__":
    main()
