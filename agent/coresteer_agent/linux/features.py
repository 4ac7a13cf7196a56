"""Reads and switches ntuple, the feature of a netdev whose NIC follows flow rules (ethtool -k, -K).

Kernel: include/uapi/linux/ethtool.h, struct ethtool_gfeatures; net/ethtool/ioctl.c. Every function raises OSError.
"""

import errno
import struct
from functools import lru_cache

from coresteer_agent.linux.ethtool import ioctl

_GET, _SET = 0x3A, 0x3B
_GET_SIZES, _GET_STRINGS = 0x37, 0x1B
_FEATURES = 4
_NAME_BYTES = 32
_NTUPLE = b"rx-ntuple-filter"
_HEAD = struct.Struct("=II")
_SIZES = struct.Struct("=IIQI")
_STRINGS = struct.Struct("=III")
_BLOCK_BITS = 32


def read_ntuple(netdev: str) -> str | None:
    """Return whether ntuple is ``on`` or ``off``; None where its driver has it fixed or has no features."""
    try:
        bit = _ntuple_bit(netdev)
        if bit is None:
            return None
        blocks = bit // _BLOCK_BITS + 1
        answer = ioctl(netdev, _HEAD.pack(_GET, blocks) + bytes(16 * blocks))
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return None
    available, _, active, _ = struct.unpack_from("=4I", answer, _HEAD.size + 16 * (blocks - 1))
    mask = 1 << bit % _BLOCK_BITS
    if not available & mask:
        return None
    return "on" if active & mask else "off"


def set_ntuple(netdev: str, *, on: bool) -> None:
    """Switch ntuple on or off. Off removes every flow rule from the NIC."""
    bit = _ntuple_bit(netdev)
    if bit is None:
        raise OSError(errno.EOPNOTSUPP, "the kernel has no feature ntuple")
    blocks, mask = bit // _BLOCK_BITS + 1, 1 << bit % _BLOCK_BITS
    ioctl(netdev, _HEAD.pack(_SET, blocks) + bytes(8 * (blocks - 1)) + struct.pack("=II", mask, mask if on else 0))


def _ntuple_bit(netdev: str) -> int | None:
    count = _SIZES.unpack(ioctl(netdev, _SIZES.pack(_GET_SIZES, 0, 1 << _FEATURES, 0)))[3]
    return _bit_of_names(netdev, count)


@lru_cache(maxsize=1)  # the names are those of the running kernel, for any netdev
def _bit_of_names(netdev: str, count: int) -> int | None:
    answer = ioctl(netdev, _STRINGS.pack(_GET_STRINGS, _FEATURES, count) + bytes(_NAME_BYTES * count))
    names = (answer[at : at + _NAME_BYTES].rstrip(b"\0") for at in range(_STRINGS.size, len(answer), _NAME_BYTES))
    return next((bit for bit, name in enumerate(names) if name == _NTUPLE), None)
