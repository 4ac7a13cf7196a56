"""Lists XDP programs by rtnetlink and AF_XDP sockets by sock_diag.

Kernel: include/uapi/linux/if_link.h (IFLA_XDP), xdp_diag.h (Linux 5.1, CONFIG_XDP_SOCKETS_DIAG), bpf.h
(bpf_prog_info). Every function accesses the running kernel and raises OSError unless it says otherwise.
"""

import ctypes
import os
import struct
from collections.abc import Mapping

from coresteer_agent.linux.bpf import Command, bpf, bpf_attribute
from coresteer_agent.linux.netlink import (
    NETLINK_ROUTE,
    NETLINK_SOCK_DIAG,
    Netlink,
    encode_attribute,
    parse_attributes,
    parse_number,
)

_GET_LINK, _SOCK_DIAG_BY_FAMILY = 18, 20
_LINK_HEADER = struct.Struct("=BxHiII")
_EXTENSION_MASK, _SKIP_STATS = 29, 1 << 3
_NAME, _XDP = 3, 43
_PROGRAM_IDS = (4, 5, 6, 7)
"""IFLA_XDP_PROG_ID, and those of the driver, generic and hardware modes where several are attached."""
_AF_XDP, _SHOW_INFO, _INFO = 44, 1, 1
_SOCKET_REQUEST = struct.Struct("=BB2xIIQ")
_SOCKET_HEADER = struct.Struct("=BB2xIQ")
_SOCKET_INFO = struct.Struct("=II")
_PROGRAM_NAME = slice(64, 80)
_PROGRAM_INFO_BYTES = 80


def parse_link(message: memoryview) -> tuple[str, int] | None:
    """Parse the name of a netdev with an XDP program, and the program's id, from an RTM_NEWLINK; None without one."""
    found = dict(parse_attributes(message, _LINK_HEADER.size))
    attached: Mapping[int, memoryview] = dict(parse_attributes(found[_XDP], 0)) if _XDP in found else {}
    numbers = (parse_number(attached[kind]) for kind in _PROGRAM_IDS if kind in attached)
    program = next((number for number in numbers if number), None)
    if program is None or _NAME not in found:
        return None
    return bytes(found[_NAME]).rstrip(b"\0").decode("utf-8", "replace"), program


def parse_socket(message: memoryview) -> tuple[int, int, int] | None:
    """Parse ifindex, queue and inode of a bound AF_XDP socket from an xdp_diag_msg; None for another message."""
    if len(message) < _SOCKET_HEADER.size:
        return None
    info = dict(parse_attributes(message, _SOCKET_HEADER.size)).get(_INFO, b"")
    if len(info) < _SOCKET_INFO.size:
        return None
    ifindex, queue = _SOCKET_INFO.unpack_from(info)
    return (ifindex, queue, _SOCKET_HEADER.unpack_from(message)[2]) if ifindex else None


def read_programs() -> dict[str, int]:
    """Return the id of the XDP program of each netdev that has one."""
    query = _LINK_HEADER.pack(0, 0, 0, 0, 0) + encode_attribute(_EXTENSION_MASK, struct.pack("=I", _SKIP_STATS))
    netlink = Netlink(NETLINK_ROUTE)
    try:
        return dict(found for message in netlink.dump(_GET_LINK, query) if (found := parse_link(message)) is not None)
    finally:
        netlink.close()


def read_sockets() -> list[tuple[int, int, int]]:
    """Return ifindex, queue and inode of each AF_XDP socket. ENOENT where the kernel does not list them."""
    netlink = Netlink(NETLINK_SOCK_DIAG)
    try:
        messages = netlink.dump(_SOCK_DIAG_BY_FAMILY, _SOCKET_REQUEST.pack(_AF_XDP, 0, 0, _SHOW_INFO, 0))
        return [found for message in messages if (found := parse_socket(message)) is not None]
    finally:
        netlink.close()


def program_name(program: int) -> str:
    """Return the name of an eBPF program by its id. EPERM without CAP_SYS_ADMIN."""
    descriptor = bpf(Command.PROG_GET_FD_BY_ID, bpf_attribute(struct.pack("=I", program)))
    try:
        info = ctypes.create_string_buffer(_PROGRAM_INFO_BYTES)
        fields = struct.pack("=IIQ", descriptor, _PROGRAM_INFO_BYTES, ctypes.addressof(info))
        bpf(Command.OBJ_GET_INFO_BY_FD, bpf_attribute(fields))
        return info.raw[_PROGRAM_NAME].rstrip(b"\0").decode("ascii", "replace")
    finally:
        os.close(descriptor)
