"""Reads and sets the NAPI parameters of one receive queue (Linux 6.13; Documentation/netlink/specs/netdev.yaml).

Every function accesses the running kernel and raises OSError with the kernel's own message where there is one.
"""

import errno
import os
import socket
import struct

from coresteer_agent.linux.netlink import encode_attribute, parse_number, request

NAPI_ATTRIBUTES = {"napi_defer_hard_irqs": 5, "gro_flush_timeout": 6}
"""Netlink attribute of a NAPI by parameter, those of coresteer_core.settings.params.NAPI_PARAMS (Linux 6.13)."""

_QUEUE_GET, _NAPI_GET, _NAPI_SET = 10, 11, 14
_QUEUE_ID, _QUEUE_IFINDEX, _QUEUE_TYPE, _QUEUE_NAPI_ID = 1, 2, 3, 4
_NAPI_ID = 2
_RX = 0
_U32, _U64 = struct.Struct("=I"), struct.Struct("=Q")


def read_napi_id(netdev: str, queue: int) -> int:
    """Return the NAPI id of a receive queue. Raises OSError."""
    try:
        ifindex = socket.if_nametoindex(netdev)
    except OSError:  # without a number or the kernel's message
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV)) from None
    query = {_QUEUE_ID: queue, _QUEUE_IFINDEX: ifindex, _QUEUE_TYPE: _RX}
    answer = request(
        "netdev", _QUEUE_GET, b"".join(encode_attribute(kind, _U32.pack(each)) for kind, each in query.items())
    )
    if _QUEUE_NAPI_ID not in answer:
        raise OSError(errno.EOPNOTSUPP, "the driver does not report the queue's NAPI id")
    return parse_number(answer[_QUEUE_NAPI_ID])


def read_params(napi_id: int) -> dict[str, str]:
    """Return a NAPI's parameters by name of coresteer_core.settings.params; empty if the kernel reports none."""
    answer = request("netdev", _NAPI_GET, encode_attribute(_NAPI_ID, _U32.pack(napi_id)))
    return {name: str(parse_number(answer[kind])) for name, kind in NAPI_ATTRIBUTES.items() if kind in answer}


def set_param(napi_id: int, name: str, value: str) -> None:
    """Set one parameter of a NAPI. Raises OSError."""
    size = _U64 if name == "gro_flush_timeout" else _U32
    if int(value) >= 1 << 8 * size.size:
        raise OSError(errno.ERANGE, "the value exceeds 32 bits")
    content = encode_attribute(NAPI_ATTRIBUTES[name], size.pack(int(value)))
    request("netdev", _NAPI_SET, encode_attribute(_NAPI_ID, _U32.pack(napi_id)) + content)
