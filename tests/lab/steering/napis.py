"""Prints the NAPI ids of the receiving NICs' queues, in the queues' order, as JSON. Runs in a guest.

igb reports no queue's NAPI before Linux 6.14 (netif_queue_set_napi). It adds one NAPI for each queue, in order, and the
kernel numbers them consecutively (netif_napi_add, net/core/dev.c).
"""

import json
import socket

from coresteer_agent.linux.netlink import (
    GENERIC_HEADER,
    NETLINK_GENERIC,
    Netlink,
    encode_attribute,
    family_id,
    parse_attributes,
    parse_number,
)

NETDEVS = ("eth0", "eth1")
_NAPI_GET, _IFINDEX, _ID = 11, 1, 2


def main() -> None:
    print(json.dumps({netdev: napis(netdev) for netdev in NETDEVS}))


def napis(netdev: str) -> list[int]:
    """Return the ids of a netdev's NAPIs, ascending. Raises OSError."""
    netlink = Netlink(NETLINK_GENERIC)
    try:
        index = encode_attribute(_IFINDEX, socket.if_nametoindex(netdev).to_bytes(4, "little"))
        replies = netlink.dump(family_id("netdev"), GENERIC_HEADER.pack(_NAPI_GET, 1, 0) + index)
        return sorted(parse_number(dict(parse_attributes(reply, GENERIC_HEADER.size))[_ID]) for reply in replies)
    finally:
        netlink.close()


if __name__ == "__main__":
    main()
