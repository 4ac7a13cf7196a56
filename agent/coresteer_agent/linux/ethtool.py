"""Reads firmware, and reads and sets channels and receive-side scaling (RSS), of a netdev through ethtool.

By generic netlink (kernel: Documentation/networking/ethtool-netlink.rst). What netlink has no message for, the
firmware, the indirection table before Linux 6.2 and writing one, goes by ioctl (kernel: include/uapi/linux/ethtool.h).
Every function is about the running kernel, takes a netdev's name and raises OSError with the kernel's message.
"""

import errno
import fcntl
import socket
import struct
from array import array
from collections.abc import Mapping

from msgspec import Struct

from coresteer_agent.linux.netlink import encode_attribute, request

_U32 = struct.Struct("=I")
_NESTED = 0x8000
_HEADER = 1
_HEADER_NAME = 2
_CHANNELS_GET = 17
_CHANNELS_SET = 18
_RSS_GET = 38
_MAXIMA = {"rx": 2, "tx": 3, "combined": 5}
_COUNTS = {"rx": 6, "tx": 7, "combined": 9}
_RSS_FUNCTION, _RSS_TABLE, _RSS_KEY, _RSS_INPUT_XFRM = 3, 4, 5, 6
_FUNCTIONS = {1: "toeplitz", 2: "xor", 4: "crc32"}
WRITE_TIMEOUT_S = 20.0
"""A driver may restart its device for a write."""

_SIOCETHTOOL = 0x8946
_GDRVINFO = 0x03
_GRSSH = 0x46
_SRSSH = 0x47
_RXFH = struct.Struct("=IIIIBB6x")
"""struct ethtool_rxfh up to rss_config: cmd, rss_context, indir_size, key_size, hfunc, input_xfrm (Linux 6.8)."""


_DRVINFO = struct.Struct("=I64x32s96x")
"""struct ethtool_drvinfo: cmd, driver, version, fw_version, and what follows."""
_NO_FIRMWARE = ("", "N/A")


class Rss(Struct, frozen=True):
    """Receive-side scaling: the distribution of flows over a netdev's receive queues.

    key: of the hash, empty where the driver does not report it.

    table: the queue of each hash bucket. hash_function: ethtool's name, empty where it is not known. input_xfrm: what
    makes the hash symmetric, as in coresteer_core.node.rss; 0 for nothing, and where the driver does not report it.
    """

    key: bytes
    table: list[int]
    hash_function: str
    input_xfrm: int = 0


class Channels(Struct, frozen=True):
    """Present and maximum number of queues by kind (``rx``, ``tx``, ``combined``), without kinds that have none."""

    counts: dict[str, int]
    maxima: dict[str, int]


def read_rss(netdev: str) -> Rss | None:
    """Return the netdev's RSS hash key and indirection table; None if it has no RSS. Raises OSError."""
    try:
        answer = exchange(_RSS_GET, netdev)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # which a kernel without the message says too
            raise
        return _read_rss_by_ioctl(netdev)
    table = array("I", bytes(answer.get(_RSS_TABLE, b"")))
    function, input_xfrm = (
        _U32.unpack(answer[number])[0] if number in answer else 0 for number in (_RSS_FUNCTION, _RSS_INPUT_XFRM)
    )
    key = bytes(answer.get(_RSS_KEY, b""))
    return Rss(key, list(table), _FUNCTIONS.get(function, ""), input_xfrm) if table else None


def set_rss(netdev: str, table: list[int]) -> None:
    """Set the RSS indirection table, of the size that read_rss() returns; empty: the driver's default. Raises OSError.

    The hash function and key stay.
    """
    # a symmetric hash ends unless it is requested again
    input_xfrm = _RXFH.unpack_from(ioctl(netdev, _RXFH.pack(_GRSSH, 0, 0, 0, 0, 0)))[5]
    ioctl(netdev, _RXFH.pack(_SRSSH, 0, len(table), 0, 0, input_xfrm) + array("I", table).tobytes())


def read_firmware(netdev: str) -> str | None:
    """Return the firmware version that the netdev's driver states; None if it states none. Raises OSError."""
    try:
        answer = ioctl(netdev, _DRVINFO.pack(_GDRVINFO, b""))
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return None
    version = _DRVINFO.unpack(answer)[1].partition(b"\0")[0].decode("ascii", "replace").strip()
    return None if version in _NO_FIRMWARE else version


def read_channels(netdev: str) -> Channels | None:
    """Return the netdev's channels; None if its driver reports none. Raises OSError."""
    try:
        answer = exchange(_CHANNELS_GET, netdev)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return None
    return Channels(_numbers(answer, _COUNTS), _numbers(answer, _MAXIMA))


def set_channels(netdev: str, counts: Mapping[str, int]) -> None:
    """Set a netdev's number of channels by kind; the driver may restart the netdev. Raises OSError."""
    content = b"".join(encode_attribute(_COUNTS[kind], _U32.pack(count)) for kind, count in counts.items())
    exchange(_CHANNELS_SET, netdev, content, timeout_s=WRITE_TIMEOUT_S)


def _numbers(answer: Mapping[int, memoryview], kinds: Mapping[str, int]) -> dict[str, int]:
    found = {kind: int(_U32.unpack(answer[number])[0]) for kind, number in kinds.items() if number in answer}
    return {kind: count for kind, count in found.items() if count}


def exchange(command: int, netdev: str, payload: bytes = b"", *, timeout_s: float = 1.0) -> dict[int, memoryview]:
    """Return the attributes of the reply to an ethtool netlink request about a netdev. Raises OSError."""
    return request("ethtool", command, request_header(netdev) + payload, timeout_s=timeout_s)


def request_header(netdev: str) -> bytes:
    """Return the attribute by which a request of ethtool netlink names its netdev."""
    return encode_attribute(_HEADER | _NESTED, encode_attribute(_HEADER_NAME, netdev.encode() + b"\0"))


def _read_rss_by_ioctl(netdev: str) -> Rss | None:
    try:
        _, _, entries, key_bytes, *_ = _RXFH.unpack_from(ioctl(netdev, _RXFH.pack(_GRSSH, 0, 0, 0, 0, 0)))
        query = _RXFH.pack(_GRSSH, 0, entries, key_bytes, 0, 0) + bytes(4 * entries + key_bytes)
        answer = ioctl(netdev, query)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        return None
    *_, function, input_xfrm = _RXFH.unpack_from(answer)
    end = _RXFH.size + 4 * entries
    table = array("I", answer[_RXFH.size : end])
    return Rss(answer[end:], list(table), _FUNCTIONS.get(function, ""), input_xfrm) if table else None


def ioctl(netdev: str, command: bytes) -> bytes:
    """Execute an ethtool ioctl for a netdev and return the command as the kernel modified it. Raises OSError."""
    data = array("B", command)
    request = struct.pack("16sP16x", netdev.encode(), data.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        fcntl.ioctl(channel, _SIOCETHTOOL, request)
    return data.tobytes()
