"""Which of a NIC's flow rules matches a flow (ethtool -n; kernel: net/ethtool/ioctl.c)."""

from ipaddress import IPv4Address, IPv6Address
from typing import Generic, TypeAlias, TypeVar

from coresteer_core.settings.flow_rule_text import Rule

T = TypeVar("T")
_Key: TypeAlias = tuple[bytes | None, bytes | None, bytes | None, bytes | None]
"""Address and port of the peer and of this node; None where a rule leaves it open."""


class FlowRuleIndex(Generic[T]):
    """Targets of flows by the rules that match them; of several, the one with the lowest location, as in the NIC.

    A flow is looked up once for each set of fields that rules have, at most 16 times, however many rules there are.
    """

    def __init__(self) -> None:
        self._by_fields: dict[str, dict[tuple[bool, ...], dict[_Key, tuple[int, T]]]] = {}

    def add(self, location: int, rule: Rule, target: T) -> None:
        """Add a rule in a slot. target: of the flows that it matches."""
        key = _address(rule.src_ip), _address(rule.dst_ip), _port(rule.src_port), _port(rule.dst_port)
        fields = tuple(part is not None for part in key)
        rules = self._by_fields.setdefault(rule.flow_type, {}).setdefault(fields, {})
        if key not in rules or location < rules[key][0]:
            rules[key] = location, target

    def find(self, flow_type: str, peer: bytes, local: bytes, ports: bytes) -> T | None:
        """Return the target of a flow, None if no rule matches it.

        flow_type: ``tcp4`` and so on. peer, local, ports: of peer and local, in network order, as received packets have
        them.
        """
        whole = (peer, local, ports[:2], ports[2:])
        found: tuple[int, T] | None = None
        for fields, rules in self._by_fields.get(flow_type, {}).items():
            first, second, third, fourth = (
                part if is_present else None for part, is_present in zip(whole, fields, strict=True)
            )
            matched = rules.get((first, second, third, fourth))
            if matched is not None and (found is None or matched[0] < found[0]):
                found = matched
        return None if found is None else found[1]


def _address(address: IPv4Address | IPv6Address | None) -> bytes | None:
    return None if address is None else address.packed


def _port(port: int | None) -> bytes | None:
    return None if port is None else port.to_bytes(2, "big")
