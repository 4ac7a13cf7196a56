"""Flow rules as text, their refusals, and the model of what they do to a node's flows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.flow_rules import CONTEXT_RULES, RULES
from tests.support.views import make_netdev, make_view

from coresteer_agent.linux.flow_rules import format_spec, parse_spec
from coresteer_core.changes.plan import DesiredValue, inverse, preview
from coresteer_core.node.inventory import FlowRule, FlowRuleTable, Irq, Queue, RssContext
from coresteer_core.node.tasks import HeavyFlow, NetTask, RxPlacement
from coresteer_core.node.view import View
from coresteer_core.settings import FlowRuleSlot, SettingError, parse_setting
from coresteer_core.settings.flow_rule_text import parse_rule
from coresteer_core.settings.overlay import overlay

SLOT = FlowRuleSlot("eth0", 7)
RULE = "flow-type tcp4 src-ip 10.0.0.2 dst-ip 10.0.0.1 src-port 4242 dst-port 80 action 3"
OTHERS = "flow-type udp4 dst-port 53 action 1"


def node(*rules: FlowRule, complete: bool = True) -> View:
    """eth0 with 4 queues, 16 slots and these rules, and a process with a flow on queue 0 and others on queue 1."""
    queues = [Queue(f"rx-{n}", 40 + n, params={"rps_flow_cnt": "0"}) for n in range(4)]
    netdev = make_netdev(queues=queues, rss="0,1", flow_rules=FlowRuleTable(16, list(rules), complete))
    irqs = [Irq(40 + n, f"eth0-{n}", "PCI-MSI", str(n), str(n), 0, True, netdev="eth0") for n in range(4)]
    placements = [
        RxPlacement("eth0", "rx-0", 40, 0, "rss", 1, 5e6, 1e5),
        RxPlacement("eth0", "rx-1", 41, 1, "rss", 3, 2e6, 1e5),
    ]
    flow = HeavyFlow("tcp", "10.0.0.1", 80, "10.0.0.2", 4242, "eth0", "rx-0", 0, 0, 5e6)
    task = NetTask(812, 1, "nginx", None, 1, "0-7", "0-7", 3, 0.5, 0.0, placements, flows=[flow])
    view = make_view(8, netdevs=[netdev], irqs=irqs, tasks=[task])
    settings = {"kernel/rps_sock_flow_entries": "0"}
    return replace(view, inventory=replace(view.inventory, settings=settings))


@given(RULES | CONTEXT_RULES)
def test_parsing_a_canonical_rule_and_formatting_it_returns_it(value: str) -> None:
    assert SLOT.canonical(value) == value
    assert str(parse_rule(value)) == value


@given(RULES | CONTEXT_RULES, st.integers(0, 65_535))
def test_the_kernels_bytes_of_a_rule_state_the_rule(value: str, location: int) -> None:
    spec = format_spec(parse_rule(value), location)
    rule = parse_spec(spec, parse_rule(value).context or 0)
    assert rule is not None
    assert (str(rule), format_spec(rule, location)) == (value, spec)


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        (" none ", "none"),
        ("context 2 dst-port 80 flow-type tcp4", "flow-type tcp4 dst-port 80 context 2"),
        ("action 3 dst-port 080 flow-type tcp4", "flow-type tcp4 dst-port 80 action 3"),
        ("flow-type udp6 dst-ip 2001:DB8::0:1 action 0", "flow-type udp6 dst-ip 2001:db8::1 action 0"),
    ],
)  # fmt: skip
def test_a_rule_has_one_canonical_form(value: str, canonical: str) -> None:
    assert SLOT.canonical(value) == canonical


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "A flow rule has a flow-type, one of tcp4, udp4, tcp6, udp6"),
        ("flow-type sctp4 dst-port 80 action 3", "A flow rule has a flow-type"),
        ("flow-type tcp4 dst-port 80", "action “” is not the number of a receive queue"),
        ("flow-type tcp4 dst-port 80 action -1", "action “-1” is not the number of a receive queue"),
        ("flow-type tcp4 dst-port 65536 action 3", "dst-port “65536” is not a port"),
        ("flow-type tcp4 dst-port 80 action 3 loc 7", "“loc” is no field of a flow rule"),
        ("flow-type tcp4 dst-port 80 dst-port 81 action 3", "A field repeats or has no value"),
        ("flow-type tcp4 dst-port 80 action", "A field repeats or has no value"),
        ("flow-type tcp4 dst-port 80 action 0 context 1", "has an action or a context, not both"),
        (
            "flow-type tcp4 dst-port 80 context 0",
            "context “0” is not the number of an RSS context",
        ),
        ("flow-type tcp6 dst-ip 10.0.0.1 dst-port 80 action 3", "“10.0.0.1” is not an IPv6 address, which tcp6 needs."),
        ("flow-type udp4 src-ip ::1 dst-port 80 action 3", "“::1” is not an IPv4 address, which udp4 needs."),
        ("flow-type tcp6 dst-ip fe80::1%eth0 dst-port 80 action 3", "is not an IPv6 address"),
    ],
)
def test_a_text_that_is_no_rule_is_refused_with_the_field(value: str, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        SLOT.canonical(value)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (SLOT.key, RULE.replace("action 3", "action 4"), "eth0 has no receive queue 4."),
        (SLOT.key, "flow-type tcp4 action 3", "flow rule 7 of eth0 has to name the destination port (dst-port)."),
        (SLOT.key, "other", "cannot be set"),
        ("netdev/eth0/flow-rule/16", RULE, "eth0 has 16 slots for flow rules, numbered from 0; there is no 16."),
        ("netdev/eth0/flow-rule/2", RULE, f"flow rule 2 of eth0 ({OTHERS}) was added by another program"),
        ("netdev/eth0/flow-rule/2", "none", "was added by another program, so Coresteer never changes it"),
        ("netdev/eth0/flow-rule/3", "none", "flow rule 3 of eth0 was added by another program"),
        ("netdev/eth9/flow-rule/3", "none", "This node has no network device eth9."),
        ("netdev/eth0/ntuple", "off", "eth0 has flow rules, which ntuple off would remove; delete them first."),
    ],
)
def test_what_must_not_be_set_is_refused_with_the_reason(key: str, value: str, says: str) -> None:
    view = node(FlowRule(2, OTHERS), FlowRule(3, ""))
    [netdev] = view.inventory.netdevs
    view = replace(view, inventory=replace(view.inventory, netdevs=[replace(netdev, params={"ntuple": "on"})]))
    refused = preview(view, [DesiredValue(key, value)], reason="test").refused
    assert any(says in each.sentence for each in refused), refused


def test_a_driver_without_rules_and_an_incomplete_table_are_told_apart() -> None:
    view = node()
    [netdev] = view.inventory.netdevs
    without = replace(view, inventory=replace(view.inventory, netdevs=[replace(netdev, flow_rules=None)]))
    assert SLOT.missing_reason(without) == "The driver of eth0 has no flow rules."
    assert (SLOT.current(view), SLOT.current(node(complete=False))) == ("none", None)


def test_a_rule_moves_its_flow_to_the_queue_and_its_inverse_returns_it() -> None:
    view = node()
    plan = preview(view, [DesiredValue(SLOT.key, RULE)], reason="test").plan
    after = overlay(view, {action.key: action.becomes for action in plan.actions})
    assert after.inventory.netdevs[0].flow_rules == FlowRuleTable(16, [FlowRule(7, RULE, ours=True)])
    [task] = after.tasks
    assert (task.flows[0].queue, task.flows[0].cpu) == ("rx-3", 3)
    assert task.rx_placements[0] == RxPlacement("eth0", "rx-3", 43, 3, "rule", 1, 5e6, 1e5)
    assert task.rx_placements[1] == view.tasks[0].rx_placements[1]
    assert overlay(after, {action.key: action.becomes for action in inverse(plan).actions}) == view


def test_of_two_rules_that_match_the_one_with_the_lower_location_applies() -> None:
    view = node(FlowRule(2, "flow-type tcp4 dst-port 80 action 2"))
    assert overlay(view, {SLOT.key: RULE}).tasks[0].flows[0].queue == "rx-2"


@pytest.mark.parametrize(
    ("values", "rfs"),
    [
        ({"kernel/rps_sock_flow_entries": "32768"}, [False, False]),
        ({"netdev/eth0/rx-0/rps_flow_cnt": "4096"}, [False, False]),
        ({"kernel/rps_sock_flow_entries": "32768", "netdev/eth0/rx-0/rps_flow_cnt": "4096"}, [True, False]),
    ],
)
def test_rfs_passes_packets_on_where_both_tables_have_entries(values: dict[str, str], rfs: list[bool]) -> None:
    view = node()
    after = overlay(view, values)
    assert [placement.rfs for placement in after.tasks[0].rx_placements] == rfs
    originals = {key: parse_setting(key).current(view) or "" for key in values}
    assert overlay(after, originals) == view


CONTEXTS = st.dictionaries(st.integers(1, 4), st.sampled_from(["0", "1,2", "3,3,0"]))


@given(CONTEXTS, CONTEXTS, st.sets(st.integers(1, 4)))
def test_a_plan_of_contexts_changes_only_coresteers_and_its_inverse_restores_all(
    present: dict[int, str], desired: dict[int, str], theirs: set[int]
) -> None:
    view = node()
    [netdev] = view.inventory.netdevs
    contexts = [RssContext(number, rss, number not in theirs) for number, rss in sorted(present.items())]
    view = replace(view, inventory=replace(view.inventory, netdevs=[replace(netdev, rss_contexts=contexts)]))
    wanted = [DesiredValue(f"netdev/eth0/rss-context/{n}", desired.get(n, "none")) for n in range(1, 5)]
    wanted.append(DesiredValue(SLOT.key, "flow-type tcp4 dst-port 80 context 1"))
    planned = preview(view, wanted, reason="test")
    refused = {refusal.key for refusal in planned.refused}
    changed = {n for n in range(1, 5) if present.get(n) != desired.get(n)}
    assert {f"netdev/eth0/rss-context/{n}" for n in changed & theirs & present.keys()} <= refused
    assert (SLOT.key in refused) == (1 not in desired or (1 in theirs and 1 in present))
    if not refused:
        keys = [action.key for action in planned.plan.actions]
        after_rule = planned.plan.actions[keys.index(SLOT.key) + 1 :]
        assert all(action.becomes == "none" for action in after_rule), "contexts are created before the rule"
        after = overlay(view, {action.key: action.becomes for action in planned.plan.actions})
        assert {each.number: each.rss for each in after.inventory.netdevs[0].rss_contexts or []} == desired
        assert overlay(after, {action.key: action.becomes for action in inverse(planned.plan).actions}) == view
