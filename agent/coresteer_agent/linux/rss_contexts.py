"""Reads, creates, changes and deletes RSS contexts of a netdev through ethtool netlink (Linux 6.17).

Kernel: Documentation/networking/ethtool-netlink.rst, RSS_CREATE_ACT; net/ethtool/rss.c. Older kernels create a context
by ioctl and choose its number, so that it could not be journaled before. Every function is about the running kernel,
takes a netdev's name and raises OSError with the kernel's message.
"""

import errno
import struct
from array import array

from coresteer_agent.linux.ethtool import WRITE_TIMEOUT_S, exchange, request_header
from coresteer_agent.linux.netlink import encode_attribute, family_commands, parse_number, request_dump

_GET, _SET, _CREATE, _DELETE = 38, 48, 49, 50
_CONTEXT, _TABLE, _FIRST = 2, 4, 7
_U32 = struct.Struct("=I")


def is_supported(netdev: str) -> bool:
    """Return whether contexts can be created by number: the kernel has the command, the driver has contexts."""
    if _CREATE not in family_commands("ethtool"):
        return False
    try:
        read_context(netdev, 1)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return False
    return True


def read_contexts(netdev: str) -> dict[int, list[int]] | None:
    """Return the RSS table of each context of a netdev by its number; None if none can be created by number."""
    if not is_supported(netdev):
        return None
    replies = request_dump("ethtool", _GET, request_header(netdev) + encode_attribute(_FIRST, _U32.pack(1)))
    return {parse_number(memoryview(each[_CONTEXT])): _table(each.get(_TABLE, b"")) for each in replies}


def read_context(netdev: str, number: int) -> list[int] | None:
    """Return the RSS table of a context; None if it does not exist. Raises EOPNOTSUPP if the driver has no contexts."""
    try:
        return _table(exchange(_GET, netdev, _number(number)).get(_TABLE, b""))
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        return None


def create_context(netdev: str, number: int, table: list[int]) -> None:
    """Create a context with this number. Raises EBUSY if it exists, also if another program is faster."""
    _write(_CREATE, netdev, number, encode_attribute(_TABLE, array("I", table).tobytes()))


def set_context(netdev: str, number: int, table: list[int]) -> None:
    """Set the RSS table of a context; rules that name it stay."""
    _write(_SET, netdev, number, encode_attribute(_TABLE, array("I", table).tobytes()))


def delete_context(netdev: str, number: int) -> None:
    """Delete a context. Raises EBUSY while a flow rule names it."""
    _write(_DELETE, netdev, number, b"")


def _write(command: int, netdev: str, number: int, content: bytes) -> None:
    exchange(command, netdev, _number(number) + content, timeout_s=WRITE_TIMEOUT_S)


def _number(number: int) -> bytes:
    return encode_attribute(_CONTEXT, _U32.pack(number))


def _table(value: bytes | memoryview) -> list[int]:
    return list(array("I", bytes(value)))
