"""Determines by which of a NIC's flow rules a TCP flow is received (ethtool -n; kernel: net/ethtool/ioctl.c)."""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Generic, TypeAlias, TypeVar

from coresteer_agent.collect.tcp_sockets import Flow
from coresteer_core.node.inventory import FlowRule, FlowRuleTable
from coresteer_core.settings.flow_rule_text import FlowRuleError, parse_rule

T = TypeVar("T")
_Key: TypeAlias = tuple[bytes | None, bytes | None, bytes | None, bytes | None]
"""Address and port of the peer and of this node; None where a rule leaves it open."""
_ADDRESS_BYTES = {"tcp4": 4, "tcp6": 16}


class RuleTargets(Generic[T]):
    """Targets of flows by the rules that match them; of several, the one with the lowest location, as in the NIC."""

    def __init__(self) -> None:
        self._by_shape: dict[tuple[int, tuple[bool, ...]], dict[_Key, tuple[int, T]]] = {}

    @classmethod
    def of(cls, table: FlowRuleTable | None, count: int, targets: Mapping[str, T]) -> "RuleTargets[T] | None":
        """Return the targets of a NIC's rules; None unless all of its rules are known.

        count: its present number of rules, which the table may not yet show. targets: by queue.
        """
        if table is None or not table.complete or len(table.rules) != count:
            return None
        found = cls()
        for rule in table.rules:
            if not found._add(rule, targets):
                return None
        return found

    def _add(self, rule: FlowRule, targets: Mapping[str, T]) -> bool:
        try:
            parsed = parse_rule(rule.value)
        except FlowRuleError:
            return False
        target = targets.get(f"rx-{parsed.action}")
        if target is None:
            return False
        if parsed.flow_type.startswith("tcp"):
            key = _address(parsed.src_ip), _address(parsed.dst_ip), _port(parsed.src_port), _port(parsed.dst_port)
            shape = _ADDRESS_BYTES[parsed.flow_type], tuple(part is not None for part in key)
            self._by_shape.setdefault(shape, {}).setdefault(key, (rule.location, target))
        return True

    def find(self, flow: Flow) -> T | None:
        """Return the target of a TCP flow, None if no rule matches it."""
        whole = (flow.peer, flow.local, flow.ports[:2], flow.ports[2:])
        found: tuple[int, T] | None = None
        for (address_bytes, present), rules in self._by_shape.items():
            if address_bytes != len(flow.local):
                continue
            first, second, third, fourth = (
                part if is_present else None for part, is_present in zip(whole, present, strict=True)
            )
            matched = rules.get((first, second, third, fourth))
            if matched is not None and (found is None or matched[0] < found[0]):
                found = matched
        return None if found is None else found[1]


def _address(address: IPv4Address | IPv6Address | None) -> bytes | None:
    return None if address is None else address.packed


def _port(port: int | None) -> bytes | None:
    return None if port is None else port.to_bytes(2, "big")
