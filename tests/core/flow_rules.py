"""Flow rules for property tests."""

from hypothesis import strategies as st

from coresteer_core.settings.flow_rule_text import Rule

_PORTS = st.integers(1, 65_535)


def _rule(flow_type: str) -> st.SearchStrategy[str]:
    addresses = st.none() | st.ip_addresses(v=4 if flow_type.endswith("4") else 6)
    rules = st.builds(Rule, st.just(flow_type), st.integers(0, 3), addresses, addresses, st.none() | _PORTS, _PORTS)
    return rules.map(str)


RULES: st.SearchStrategy[str] = st.sampled_from(["tcp4", "udp4", "tcp6", "udp6"]).flatmap(_rule)
"""Canonical texts of rules that Coresteer may set, to the receive queues 0 to 3."""
CONTEXT_RULES: st.SearchStrategy[str] = st.builds(
    lambda value, context: f"{value.rpartition(' action')[0]} context {context}", RULES, st.integers(1, 65_535)
)
"""Canonical texts of rules that name an RSS context."""
