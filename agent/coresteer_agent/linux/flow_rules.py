"""Reads, inserts and deletes flow rules of a NIC through the ethtool ioctl (ethtool -n, -N).

Kernel: include/uapi/linux/ethtool.h, struct ethtool_rxnfc and ethtool_rx_flow_spec; net/ethtool/ioctl.c. Every function
is about the running kernel, takes a netdev's name and raises OSError with the driver's errno.
"""

import errno
import struct

from msgspec import Struct

from coresteer_agent.linux import features
from coresteer_agent.linux.ethtool import ioctl
from coresteer_core.node.inventory import MAX_FLOW_RULES
from coresteer_core.settings.flow_rule_text import ADDRESSES, Rule

_COUNT, _GET, _GET_ALL, _DELETE, _INSERT = 0x2E, 0x2F, 0x30, 0x31, 0x32
_LOCATION_SPECIAL = 1 << 31
_ABSENT = (errno.EOPNOTSUPP, 524)
"""Errors of a device without flow rules; 524 is ENOTSUPP, which some drivers return."""

_HEAD = struct.Struct("=IIQ")
_SPEC = struct.Struct("=I52s20s52s20s4xQI4x")
"""struct ethtool_rx_flow_spec: flow_type, h_u, h_ext, m_u, m_ext, ring_cookie, location."""
_COUNT_AT = _HEAD.size + _SPEC.size
_LOCATIONS_AT = _COUNT_AT + 4
_BYTES = 192
"""Size of struct ethtool_rxnfc without rule_locs, which begin within its padding."""

FLOW_TYPES = {"tcp4": 1, "udp4": 2, "tcp6": 5, "udp6": 6}
_NAMES = {number: name for name, number in FLOW_TYPES.items()}
_EXTENSIONS = 1 << 31 | 1 << 30
"""FLOW_EXT and FLOW_MAC_EXT, which some drivers report although no bit of the extension is compared."""
_MATCH_4, _MATCH_6 = struct.Struct(">4s4sHH40x"), struct.Struct(">16s16sHH16x")
_MATCHES = {"tcp4": _MATCH_4, "udp4": _MATCH_4, "tcp6": _MATCH_6, "udp6": _MATCH_6}
"""struct ethtool_tcpip4_spec and ethtool_tcpip6_spec: sender's and own address and port; the traffic class is 0."""
_ALL_ONES = 0xFFFF
_RSS = 1 << 29
"""FLOW_RSS: the packets get the RSS context in place of the rule's number (rule_cnt), beginning at queue 0."""


class Table(Struct, frozen=True):
    """A NIC's flow rules. size: number of slots. rules: by slot; None for one that Coresteer cannot express.

    complete: all of them could be read.
    """

    size: int
    rules: dict[int, Rule | None]
    complete: bool


def read_locations(netdev: str) -> tuple[int, list[int]] | None:
    """Return the size of a netdev's table and the slots that have rules; None if its driver has no flow rules.

    A driver that has ntuple fixed may state the size of a table (igb does for some devices), but refuses every rule.
    """
    if features.read_ntuple(netdev) is None:
        return None
    try:
        [count] = struct.unpack_from("=I", ioctl(netdev, _request(_COUNT)), _COUNT_AT)
        command = bytearray(_request(_GET_ALL).ljust(_LOCATIONS_AT + 4 * count, b"\0"))
        struct.pack_into("=I", command, _COUNT_AT, count)
        answer = ioctl(netdev, bytes(command))
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
    size = _HEAD.unpack_from(answer)[2] & ~_LOCATION_SPECIAL
    [found] = struct.unpack_from("=I", answer, _COUNT_AT)
    return (size, sorted(struct.unpack_from(f"={min(found, count)}I", answer, _LOCATIONS_AT))) if size else None


def read_rule(netdev: str, location: int) -> Rule | None:
    """Return the rule in a slot that has one; None if Coresteer cannot express it."""
    command = bytearray(_request(_GET))
    _SPEC.pack_into(command, _HEAD.size, 0, b"", b"", b"", b"", 0, location)
    answer = ioctl(netdev, bytes(command))
    return parse_spec(answer[_HEAD.size : _COUNT_AT], *struct.unpack_from("=I", answer, _COUNT_AT))


def read_table(netdev: str) -> Table | None:
    """Return all flow rules of a netdev, as many as an inventory takes; None if its driver has no flow rules."""
    found = read_locations(netdev)
    if found is None:
        return None
    size, locations = found
    rules: dict[int, Rule | None] = {}
    for location in locations[:MAX_FLOW_RULES]:
        try:
            rules[location] = read_rule(netdev, location)
        except OSError as error:  # deleted meanwhile, or a driver that hides its own
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
    return Table(size, rules, complete=len(rules) == len(locations))


def insert_rule(netdev: str, location: int, rule: Rule) -> None:
    """Insert a rule into a slot. A rule that is in the slot is replaced, or the driver refuses."""
    command = bytearray(_request(_INSERT))
    command[_HEAD.size : _COUNT_AT] = format_spec(rule, location)
    struct.pack_into("=I", command, _COUNT_AT, rule.context or 0)
    ioctl(netdev, bytes(command))


def delete_rule(netdev: str, location: int) -> None:
    """Delete the rule in a slot."""
    command = bytearray(_request(_DELETE))
    _SPEC.pack_into(command, _HEAD.size, 0, b"", b"", b"", b"", 0, location)
    ioctl(netdev, bytes(command))


def format_spec(rule: Rule, location: int) -> bytes:
    """Return a rule as struct ethtool_rx_flow_spec, which lacks the number of its RSS context.

    What is compared has a mask of ones.
    """
    match = _MATCHES[rule.flow_type]
    fields = (rule.src_ip, rule.dst_ip, rule.src_port, rule.dst_port)
    values = [b"" if each is None else each.packed for each in fields[:2]], [each or 0 for each in fields[2:]]
    masks = [b"" if each is None else b"\xff" * len(each.packed) for each in fields[:2]]
    ones = [0 if each is None else _ALL_ONES for each in fields[2:]]
    return _SPEC.pack(
        FLOW_TYPES[rule.flow_type] | (0 if rule.context is None else _RSS),
        match.pack(*values[0], *values[1]),
        b"",
        match.pack(*masks, *ones),
        b"",
        rule.action or 0,
        location,
    )


def parse_spec(spec: bytes, context: int = 0) -> Rule | None:
    """Return the rule of a struct ethtool_rx_flow_spec and an RSS context; None if Coresteer cannot express it.

    That is one of another protocol or of a virtual function, with an extension or a traffic class, one that compares
    parts of a field, one that drops packets, and one that adds a queue to those of an RSS context, or names context 0.
    """
    flow_type, values, _, masks, extension_masks, action, _ = _SPEC.unpack(spec)
    name = _NAMES.get(flow_type & ~(_EXTENSIONS | _RSS))
    if name is None or (flow_type & _EXTENSIONS and any(extension_masks)) or action > _ALL_ONES:
        return None
    spreads = bool(flow_type & _RSS)
    if spreads and (action or not 0 < context <= _ALL_ONES):
        return None
    kind, match = ADDRESSES[name], _MATCHES[name]
    present: list[bool] = []
    for mask in match.unpack(masks):
        none, ones = (0, _ALL_ONES) if isinstance(mask, int) else (bytes(len(mask)), b"\xff" * len(mask))
        if mask not in (none, ones):
            return None
        present.append(mask == ones)
    if masks != match.pack(*match.unpack(masks)):  # a traffic class
        return None
    src_ip, dst_ip, src_port, dst_port = (
        each if is_present else None for each, is_present in zip(match.unpack(values), present, strict=True)
    )
    return Rule(
        name,
        None if spreads else action,
        None if src_ip is None else kind(src_ip),
        None if dst_ip is None else kind(dst_ip),
        src_port,
        dst_port,
        context if spreads else None,
    )


def _request(command: int) -> bytes:
    return _HEAD.pack(command, 0, 0).ljust(_BYTES, b"\0")
