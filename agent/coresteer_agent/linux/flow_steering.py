"""Reads how a netdev steers flows besides the RSS hash, through ethtool ioctls.

Kernel: include/uapi/linux/ethtool.h, net/ethtool/ioctl.c.
"""

import errno
import fcntl
import socket
import struct
from array import array

from msgspec import Struct

_SIOCETHTOOL = 0x8946
_GET_FLAGS = 0x25
_GET_HASH_FIELDS = 0x29
_COUNT_RULES = 0x2E
_NTUPLE = 1 << 27
_TCP_4, _TCP_6 = 1, 5
_ADDRESSES = 1 << 4 | 1 << 5
_PORTS = 1 << 6 | 1 << 7
_RXNFC_BYTES = 192
_RULE_COUNT_AT = 184
_COMMAND = struct.Struct("=IIQ")
_NAME_BYTES = 16


class Steering(Struct, frozen=True):
    """Flow steering of a netdev. tcp_4, tcp_6: whether the RSS hash of TCP includes ports; None if unknown.

    ntuple: the kernel may steer flows to queues (accelerated RFS). rules: number of its flow rules.
    """

    tcp_4: bool | None
    tcp_6: bool | None
    ntuple: bool
    rules: int


def read_steering(netdev: str) -> Steering:
    """Read a netdev's flow steering. Raises OSError, except for commands that the driver does not support."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        flags = _request(sock, netdev, _GET_FLAGS)
        rules = _request(sock, netdev, _COUNT_RULES)
        return Steering(
            tcp_4=_takes_ports(_request(sock, netdev, _GET_HASH_FIELDS, _TCP_4)),
            tcp_6=_takes_ports(_request(sock, netdev, _GET_HASH_FIELDS, _TCP_6)),
            ntuple=flags is not None and bool(_COMMAND.unpack_from(flags)[1] & _NTUPLE),
            rules=0 if rules is None else int(struct.unpack_from("=I", rules, _RULE_COUNT_AT)[0]),
        )


def _takes_ports(answer: bytes | None) -> bool | None:
    if answer is None:
        return None
    return {_ADDRESSES: False, _ADDRESSES | _PORTS: True}.get(_COMMAND.unpack_from(answer)[2])


def _request(sock: socket.socket, netdev: str, command: int, flow_type: int = 0) -> bytes | None:
    """Return the struct as the driver filled it in, None if it does not support the command."""
    answer = array("B", _COMMAND.pack(command, flow_type, 0).ljust(_RXNFC_BYTES, b"\0"))
    request = struct.pack(f"={_NAME_BYTES}sQ16x", netdev.encode()[: _NAME_BYTES - 1], answer.buffer_info()[0])
    try:
        fcntl.ioctl(sock, _SIOCETHTOOL, request)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
            return None
        raise
    return answer.tobytes()
