"""Flow rules as text, in ethtool's words (ethtool -N, -n).

Kernel: include/uapi/linux/ethtool.h, struct ethtool_rx_flow_spec.
"""

import re
from ipaddress import IPv4Address, IPv6Address

from msgspec import Struct

from coresteer_core.node.inventory import FlowRule


class FlowRuleError(ValueError):
    """Raised for text that is no flow rule; the message is a sentence for the person who entered it."""


ADDRESSES: dict[str, type[IPv4Address | IPv6Address]] = {
    "tcp4": IPv4Address,
    "udp4": IPv4Address,
    "tcp6": IPv6Address,
    "udp6": IPv6Address,
}
"""The type of the addresses of a rule, by ethtool's flow-type."""
_FIELDS = ("flow-type", "src-ip", "dst-ip", "src-port", "dst-port", "action", "context")
_PORT = re.compile(r"\d{1,5}\Z", re.ASCII)
EXAMPLE = "flow-type tcp4 dst-port 80 action 3"
"""A rule, for sentences."""


class Rule(Struct, frozen=True):
    """One flow rule: the packets that it matches, and the receive queue (action) or the RSS context that they get.

    flow_type: a key of ADDRESSES. src: their sender. None: any. Either action or context is None.
    """

    flow_type: str
    action: int | None
    src_ip: IPv4Address | IPv6Address | None = None
    dst_ip: IPv4Address | IPv6Address | None = None
    src_port: int | None = None
    dst_port: int | None = None
    context: int | None = None

    def __str__(self) -> str:
        """Return the rule in ethtool's words: ``flow-type tcp4 dst-ip 10.0.0.1 dst-port 80 action 3``."""
        values = (self.flow_type, self.src_ip, self.dst_ip, self.src_port, self.dst_port, self.action, self.context)
        return " ".join(f"{name} {value}" for name, value in zip(_FIELDS, values, strict=True) if value is not None)

    def row(self, location: int, *, ours: bool = False) -> FlowRule:
        """Return the row of an Inventory for the rule in a slot."""
        names_queue = self.context is None
        return FlowRule(location, str(self) if names_queue else "", ours, "" if names_queue else str(self))


def parse_rule(value: str) -> Rule:
    """Return the rule that a text in ethtool's words states, its fields in any order. Raises FlowRuleError."""
    words = value.split()
    fields = dict(zip(words[::2], words[1::2], strict=False))
    unknown = next((name for name in words[::2] if name not in _FIELDS), None)
    if unknown is not None or len(words) != 2 * len(fields):
        what = f"“{unknown[:40]}” is no field of a flow rule" if unknown else "A field repeats or has no value"
        raise FlowRuleError(f"{what}; write for example {EXAMPLE}, or none.")
    flow_type = fields.get("flow-type", "")
    if flow_type not in ADDRESSES:
        raise FlowRuleError(f"A flow rule has a flow-type, one of {', '.join(ADDRESSES)}; write for example {EXAMPLE}.")
    if "action" in fields and "context" in fields:
        raise FlowRuleError(f"A flow rule has an action or a context, not both; write for example {EXAMPLE}.")
    context = _number("context", fields["context"], "the number of an RSS context", 1) if "context" in fields else None
    action = _number("action", fields.get("action", ""), "the number of a receive queue") if context is None else None
    src_ip, dst_ip = (_address(flow_type, name, fields.get(name)) for name in ("src-ip", "dst-ip"))
    src_port, dst_port = (
        _number(name, fields[name], "a port") if name in fields else None for name in ("src-port", "dst-port")
    )
    return Rule(flow_type, action, src_ip, dst_ip, src_port, dst_port, context)


def _address(flow_type: str, name: str, text: str | None) -> IPv4Address | IPv6Address | None:
    if text is None:
        return None
    kind = ADDRESSES[flow_type]
    try:
        if "%" in text:
            raise ValueError
        return kind(text)
    except ValueError:
        version = 4 if kind is IPv4Address else 6
        raise FlowRuleError(f"{name} “{text[:45]}” is not an IPv{version} address, which {flow_type} needs.") from None


def _number(name: str, text: str, what: str, least: int = 0) -> int:
    if _PORT.match(text) and least <= int(text) < 1 << 16:
        return int(text)
    raise FlowRuleError(f"{name} “{text[:40]}” is not {what}; write a number from {least} to 65535.")
