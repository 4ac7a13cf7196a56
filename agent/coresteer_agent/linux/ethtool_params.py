"""Reads and sets coalescing (of a netdev or one queue) and ring sizes through ethtool.

Of the running kernel, by names of coresteer_core.settings.params.PARAMS. Every function raises OSError with the
kernel's messages where it has some. By netlink, except coalescing of one queue, for which there is only an ioctl
(kernel: include/uapi/linux/ethtool.h, struct ethtool_per_queue_op and ethtool_coalesce).
"""

import errno
import struct
from collections.abc import Mapping, Sequence

from msgspec import Struct

from coresteer_agent.linux.ethtool import WRITE_TIMEOUT_S, exchange, ioctl
from coresteer_agent.linux.netlink import encode_attribute, parse_number
from coresteer_core.settings.params import PARAMS

_RINGS_GET, _RINGS_SET = 15, 16
_COALESCE_GET, _COALESCE_SET = 19, 20
_RINGS = {"ring/rx": 6, "ring/tx": 9}
_RINGS_MAX = {"ring/rx": 2, "ring/tx": 5}
_COALESCE = {
    "coalesce/rx-usecs": 2,
    "coalesce/rx-frames": 3,
    "coalesce/rx-usecs-irq": 4,
    "coalesce/rx-frames-irq": 5,
    "coalesce/tx-usecs": 6,
    "coalesce/tx-frames": 7,
    "coalesce/tx-usecs-irq": 8,
    "coalesce/tx-frames-irq": 9,
    "coalesce/adaptive-rx": 11,
    "coalesce/adaptive-tx": 12,
    "coalesce/cqe-mode-tx": 24,
    "coalesce/cqe-mode-rx": 25,
}
"""The attributes. The fields of struct ethtool_coalesce have the same order from one less on."""

_U32 = struct.Struct("=I")
_PERQUEUE = 0x4B
_GCOALESCE, _SCOALESCE = 0x0E, 0x0F
_PER_QUEUE = struct.Struct("=II128I")
_MAX_QUEUES = 4096
_QUEUE_COALESCE = struct.Struct("=23I")


class Params(Struct, frozen=True):
    """Coalescing and ring values of a netdev by name, and the maximum of those that have one."""

    values: dict[str, str]
    maxima: dict[str, str]


def read_params(netdev: str) -> Params:
    """Return all coalescing and ring parameters that a netdev's driver supports. Raises OSError."""
    coalesce, rings = _request(_COALESCE_GET, netdev), _request(_RINGS_GET, netdev)
    values = _values(coalesce, _COALESCE) | _values(rings, _RINGS)
    return Params(values, _values(rings, _RINGS_MAX))


def set_param(netdev: str, name: str, value: str) -> None:
    """Set one coalescing or ring parameter of a netdev; the others keep their values. Raises OSError."""
    command, kinds = (_RINGS_SET, _RINGS) if name in _RINGS else (_COALESCE_SET, _COALESCE)
    content = bytes([value == "on"]) if PARAMS[name].is_switch else _U32.pack(_number(value))
    exchange(command, netdev, encode_attribute(kinds[name], content), timeout_s=WRITE_TIMEOUT_S)


def read_queue_params(netdev: str, queues: Sequence[int]) -> dict[int, dict[str, str]]:
    """Return coalescing by queue number; empty if the driver has none per queue. Raises OSError.

    It has a value for every parameter; only those that read_params() returns are the driver's.
    """
    try:
        answer = _per_queue(netdev, _GCOALESCE, queues, bytes(_QUEUE_COALESCE.size * len(queues)))
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        return {}
    return {
        queue: {
            name: _format(name, fields[kind - 1]) for name, kind in _COALESCE.items() if PARAMS[name].queue is not None
        }
        for queue, fields in zip(sorted(queues), _QUEUE_COALESCE.iter_unpack(answer), strict=True)
    }


def set_queue_param(netdev: str, queue: int, name: str, value: str) -> None:
    """Set one coalescing parameter of a queue; its others are written with their present values. Raises OSError."""
    stands = _per_queue(netdev, _GCOALESCE, [queue], bytes(_QUEUE_COALESCE.size))
    fields = list(_QUEUE_COALESCE.unpack(stands))
    fields[0] = _SCOALESCE
    fields[_COALESCE[name] - 1] = int(value == "on") if PARAMS[name].is_switch else _number(value)
    _per_queue(netdev, _SCOALESCE, [queue], _QUEUE_COALESCE.pack(*fields))


def _per_queue(netdev: str, command: int, queues: Sequence[int], content: bytes) -> bytes:
    """Return the ioctl's data as the kernel modified it, for each queue in the order of their numbers."""
    mask = sum(1 << queue for queue in queues if queue < _MAX_QUEUES)
    words = (mask >> bit & 0xFFFF_FFFF for bit in range(0, _MAX_QUEUES, 32))
    return ioctl(netdev, _PER_QUEUE.pack(_PERQUEUE, command, *words) + content)[_PER_QUEUE.size :]


def _request(command: int, netdev: str) -> Mapping[int, memoryview]:
    try:
        return exchange(command, netdev)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return {}


def _values(answer: Mapping[int, memoryview], kinds: Mapping[str, int]) -> dict[str, str]:
    return {name: _format(name, parse_number(answer[kind])) for name, kind in kinds.items() if kind in answer}


def _format(name: str, value: int) -> str:
    return str(value) if not PARAMS[name].is_switch else "on" if value else "off"


def _number(value: str) -> int:
    if int(value) >= 1 << 32:
        raise OSError(errno.ERANGE, "the value exceeds 32 bits")
    return int(value)
