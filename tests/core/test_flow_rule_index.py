"""Which flow rule matches a flow: as the NIC compares one rule after the other, but with few comparisons."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.views import make_netdev

from coresteer_core.node.inventory import FlowRule, FlowRuleTable, Inventory, Queue
from coresteer_core.node.tasks import HeavyFlow, NetTask
from coresteer_core.settings.flow_rule_index import FlowRuleIndex
from coresteer_core.settings.flow_rule_text import Rule
from coresteer_core.settings.steered_flows import steer_flows

_ADDRESSES = {"4": ["10.0.0.1", "10.0.0.2"], "6": ["fd00::1", "fd00::2"]}
_TYPES = st.sampled_from(["tcp4", "udp4", "tcp6", "udp6"])


def _rules_of(flow_type: str) -> st.SearchStrategy[Rule]:
    addresses = st.none() | st.sampled_from(_ADDRESSES[flow_type[-1]]).map(ip_address)
    ports = st.sampled_from([None, 80, 81])
    return st.builds(Rule, st.just(flow_type), st.integers(0, 3), addresses, addresses, ports, ports)


def _flows_of(flow_type: str) -> st.SearchStrategy[HeavyFlow]:
    addresses, ports = st.sampled_from(_ADDRESSES[flow_type[-1]]), st.sampled_from([80, 81])
    return st.builds(
        HeavyFlow, st.just(flow_type[:3]), addresses, ports, addresses, ports, st.just("eth0"),
        st.just("rx-9"), st.none(), st.none(), st.just(1e6),
    )  # fmt: skip


_TABLES = st.lists(
    st.tuples(st.integers(0, 63), _TYPES.flatmap(_rules_of)), max_size=12, unique_by=lambda placed: placed[0]
)
_FLOWS = _TYPES.flatmap(_flows_of)


def first_match(table: list[tuple[int, Rule]], flow: HeavyFlow) -> int | None:
    """The queue of the matching rule with the lowest location, as a NIC finds it."""
    local = ip_address(flow.local)
    for _, rule in sorted(table, key=lambda placed: placed[0]):
        if (
            rule.flow_type == f"{flow.protocol}{local.version}"
            and rule.src_ip in (None, ip_address(flow.peer))
            and rule.dst_ip in (None, local)
            and rule.src_port in (None, flow.peer_port)
            and rule.dst_port in (None, flow.local_port)
        ):
            return rule.action
    return None


def steered(table: list[FlowRule], flow: HeavyFlow) -> str | None:
    """The queue of a flow on a NIC with these rules."""
    netdev = make_netdev(
        "eth0", queues=[Queue(f"rx-{number}") for number in range(10)], flow_rules=FlowRuleTable(64, table)
    )
    task = NetTask(1, 1, "nginx", None, 1, "0", "0", 0, 0.1, 0.0, [], flows=[flow])
    [after] = steer_flows([task], Inventory([netdev], []), {"eth0": netdev})
    return after.flows[0].queue


@given(_TABLES, _FLOWS)
def test_a_flow_gets_the_queue_of_the_first_rule_that_matches(table: list[tuple[int, Rule]], flow: HeavyFlow) -> None:
    expected = first_match(table, flow)
    rules = [FlowRule(location, str(rule)) for location, rule in table]
    assert steered(rules, flow) == (flow.queue if expected is None else f"rx-{expected}")


class _Counted(bytes):
    """An address that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return bytes(self) == other

    __hash__ = bytes.__hash__


@pytest.mark.parametrize("count", [1, 4096])
def test_a_flow_is_compared_with_one_rule_for_each_set_of_fields_at_most(count: int) -> None:
    rules = FlowRuleIndex[int]()
    peer, local = ip_address("10.0.0.2"), ip_address("10.0.0.1")
    for number in range(count):
        rules.add(2 * number, Rule("tcp4", number, peer, local, number + 1, 80), number)
        rules.add(2 * number + 1, Rule("tcp4", number, peer, None, number + 1, None), number)
    _Counted.compared = 0
    found = rules.find("tcp4", _Counted(peer.packed), local.packed, count.to_bytes(2, "big") + b"\0\x50")
    assert (found, _Counted.compared) == (count - 1, 2)


def test_a_flow_without_an_address_is_matched_by_no_rule() -> None:
    flow = HeavyFlow("tcp", "?", 80, "10.0.0.2", 80, "eth0", "rx-9", None, None, 1e6)
    rules = [FlowRule(0, "flow-type tcp4 dst-port 80 action 3")]
    assert steered(rules, flow) == "rx-9"
    assert steered(rules, replace(flow, local="10.0.0.1")) == "rx-3"
