"""Messages from agents are bounded before they are stored and decided on."""

import typing
from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace
from tests.backend.rejection import rejection
from tests.support.views import make_netdev

from coresteer.gateway.validation import RULES
from coresteer.text_validation import control_characters
from coresteer_core.node.cpusets import Cpuset
from coresteer_core.node.inventory import FlowRule, FlowRuleTable, Inventory, Irq, Netdev, Queue, RssContext
from coresteer_core.node.limits import Limits, LoadLimits, SettingLimits
from coresteer_core.node.nic import CoalescingPoint, NicKnowledge
from coresteer_core.node.numa import NumaState, NumaTask
from coresteer_core.node.reserved import ReservedCpus
from coresteer_core.node.tasks import MAX_HEAVY_FLOWS, HeavyFlow, NetTask, RxPlacement, Task
from coresteer_core.node.topology import Cache, Cpu, NumaNode, Topology
from coresteer_core.protocol import (
    FlowsMessage,
    InventoryMessage,
    LearnedMessage,
    TasksMessage,
    ToBackend,
    TopologyMessage,
)


def inventory(params: dict[str, str], queue: dict[str, str], params_max: dict[str, str]) -> Inventory:
    netdev = Netdev(
        "eth0", "igb", 10**9, 1500, 0, up=True, virtual=False, management=True,
        queues=[Queue("rx-0", params=queue)], params=params, params_max=params_max,
    )  # fmt: skip
    return Inventory([netdev], [])


def test_coalescing_rings_and_polling_are_accepted() -> None:
    values = {"coalesce/rx-usecs": "3", "coalesce/adaptive-rx": "off", "gro_flush_timeout": str(2**64 - 1)}
    accepted = inventory(
        values | {"ring/rx": "256", "ntuple": "on", "threaded": "0"},
        values | {"rps_flow_cnt": "4096"},
        {"ring/rx": "4096"},
    )
    assert rejection(InventoryMessage(accepted)) == ""


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("coalesce/rx-msecs", "3", "coalesce/rx-msecs' is not a setting."),
        ("x" * 1000, "3", "Expected `str` of length <= 256"),
        ("coalesce/rx-usecs", "-3", "not a number of µs"),
        ("coalesce/rx-usecs", "9" * 40, "not a number of µs"),
        ("coalesce/rx-usecs", "9" * 4000, "Expected `str` of length <= 256"),
        ("coalesce/adaptive-rx", "maybe", "neither on nor off"),
        ("gro_flush_timeout", str(2**64), "not a number of ns"),
    ],
)
@pytest.mark.parametrize("where", range(3))
def test_an_unknown_parameter_or_value_is_named(name: str, value: str, reason: str, where: int) -> None:
    places: list[dict[str, str]] = [{}, {}, {}]
    places[where][name] = value
    wrong = rejection(InventoryMessage(inventory(*places)))
    assert reason in wrong
    assert len(wrong) < 200


def test_an_unknown_speed_must_not_be_sent_as_0() -> None:
    accepted = inventory({}, {}, {})
    netdev = replace(accepted.netdevs[0], speed_bits_per_s=0)
    message = InventoryMessage(replace(accepted, netdevs=[netdev]))
    assert "eth0 has a speed of 0 bit/s" in rejection(message)


@pytest.mark.parametrize("seconds", [0.0, 5e-324, float("nan"), -1.0, float("inf")])
def test_a_point_must_last_a_millisecond(seconds: float) -> None:
    point = CoalescingPoint("eth0", 54, None, False, seconds, 2**52, 0, 0, 0)
    assert "$.learned.points[0].seconds" in rejection(LearnedMessage(NicKnowledge([], [point])))
    assert rejection(LearnedMessage(NicKnowledge([], [replace(point, seconds=5.0)]))) == ""


TASK = Task(812, "nginx", 3, 0.5)


@pytest.mark.parametrize(
    ("tasks", "path"),
    [
        ([TASK] * 257, "$.tasks"),
        ([replace(TASK, cpu=8192)], "$.tasks[0].cpu"),
        ([replace(TASK, pid=2**31)], "$.tasks[0].pid"),
        ([replace(TASK, cpu_share=float("nan"))], "$.tasks[0].cpu_share"),
        ([replace(TASK, name="x" * 257)], "$.tasks[0].name"),
    ],
)
def test_the_error_names_the_path_of_the_field(tasks: list[Task], path: str) -> None:
    assert rejection(TasksMessage(0, [TASK] * 256)) == ""
    assert rejection(TasksMessage(0, tasks)).endswith(f"at `{path}`")


@pytest.mark.parametrize("character", ["\x00", "\x1f", "\n", "\t", "\x7f", '\\"\x1b', "\\\n"])
@pytest.mark.parametrize("place", ["value", "key", "nested"])
def test_control_characters_are_found_in_every_text(character: str, place: str) -> None:
    text = f"a{character}b"
    value = {"value": [text], "key": {text: 1}, "nested": [{"a": {"b": [TASK, replace(TASK, name=text)]}}]}[place]
    assert "has control characters" in (control_characters(value) or "")


@pytest.mark.parametrize("text", ["", "\\", "\\\\", "\\n", '"', '\\"', "a\\x2db", "é\u2028\x85", "/", "\\u0001"])
def test_backslashes_quotes_and_other_characters_are_accepted(text: str) -> None:
    assert control_characters([text, {text: text}]) is None


def test_every_message_of_an_agent_has_rules() -> None:
    assert set(RULES) == set(typing.get_args(ToBackend))


Wanted = Callable[[msgspec.inspect.Type], bool]


def fields_of(node: msgspec.inspect.Type, wanted: Wanted, path: str) -> set[str]:
    """Paths of the wanted fields below a type."""
    if wanted(node):
        return {path}
    if isinstance(node, msgspec.inspect.Metadata):
        return fields_of(node.type, wanted, path)
    if isinstance(node, msgspec.inspect.StructType):
        found = [fields_of(field.type, wanted, f"{path}.{field.name}") for field in node.fields]
    elif isinstance(node, msgspec.inspect.UnionType):
        found = [fields_of(member, wanted, path) for member in node.types]
    elif isinstance(node, msgspec.inspect.ListType):
        found = [fields_of(node.item_type, wanted, path)]
    elif isinstance(node, msgspec.inspect.DictType):
        found = [fields_of(node.value_type, wanted, path)]
    else:
        found = []
    return set().union(*found)


def fields_on_the_wire(wanted: Wanted) -> set[str]:
    messages = typing.get_args(ToBackend)
    return set().union(*(fields_of(msgspec.inspect.type_info(each), wanted, each.__name__) for each in messages))


def is_cpu_list(node: msgspec.inspect.Type) -> bool:
    return isinstance(node, msgspec.inspect.Metadata) and (node.extra or {}).get("text") == "cpu-list"


def is_unbounded(node: msgspec.inspect.Type) -> bool:
    return isinstance(node, msgspec.inspect.ListType | msgspec.inspect.DictType) and node.max_length is None


def test_every_list_on_the_wire_has_a_maximum_unless_its_keys_are_those_of_a_declaration() -> None:
    assert fields_on_the_wire(is_unbounded) == {
        "InventoryMessage.inventory.netdevs.params",
        "InventoryMessage.inventory.netdevs.params_max",
        "InventoryMessage.inventory.netdevs.queues.params",
        "FlowsMessage.cgroups",
        "FlowsMessage.numa.tasks.params",
        "FlowsMessage.tasks.params",
        "ExperimentMessage.measured.cpus",
        "ExperimentMessage.measured.figures",
    }


@pytest.mark.parametrize("changes", [{"bytes_by_node": {1024: 1}}, {"cpu_nodes": {-1: 1.0}}])
def test_a_numa_node_has_a_number_that_linux_can_give(changes: dict[str, object]) -> None:
    assert "Expected `int`" in rejection(numa_flows(**changes))


INVALID = "3-"
CPU = Cpu(0, 0, 0, 0, True)
NUMA_NODE = NumaNode(0, "0", 1)
CACHE = Cache(1, "Data", 1, "0")
TOPOLOGY = Topology([CPU], [NUMA_NODE], [CACHE])
IRQ = Irq(1, "a", "b", "0", "0", 0, True)
NET_TASK = NetTask(812, 5, "nginx", "/web", 4, "0", "0", 1, 0.4, 0.0, [RxPlacement("eth0", None, 1, 0, None, 1, 0, 0)])
INVENTORY = inventory({}, {}, {})


def numa_flows(**changes: object) -> FlowsMessage:
    task = NumaTask(812, 5, "nginx", "/web", 4, "0", "0", 1, 0.4, 4096, 1.0)
    return FlowsMessage(0, [], numa=NumaState([], [replace(task, **changes)]))


INVALID_CPU_LISTS: dict[str, ToBackend] = {
    "TopologyMessage.topology.cpus.siblings": TopologyMessage(replace(TOPOLOGY, cpus=[replace(CPU, siblings=INVALID)])),
    "TopologyMessage.topology.numa_nodes.cpus": TopologyMessage(
        replace(TOPOLOGY, numa_nodes=[replace(NUMA_NODE, cpus=INVALID)])
    ),
    "TopologyMessage.topology.caches.cpus": TopologyMessage(replace(TOPOLOGY, caches=[replace(CACHE, cpus=INVALID)])),
    "TopologyMessage.topology.isolated": TopologyMessage(replace(TOPOLOGY, isolated=INVALID)),
    "TopologyMessage.topology.nohz_full": TopologyMessage(replace(TOPOLOGY, nohz_full=INVALID)),
    "InventoryMessage.inventory.irqs.requested": InventoryMessage(
        replace(INVENTORY, irqs=[replace(IRQ, requested=INVALID)])
    ),
    "InventoryMessage.inventory.limits.settings.cpus_off_limits": InventoryMessage(
        replace(INVENTORY, limits=Limits(SettingLimits(cpus_off_limits=INVALID)))
    ),
    "InventoryMessage.inventory.reserved.cpus": InventoryMessage(
        replace(INVENTORY, reserved=[ReservedCpus(INVALID, "container app of pod shop/web-1")])
    ),
    "InventoryMessage.inventory.irqs.effective": InventoryMessage(
        replace(INVENTORY, irqs=[replace(IRQ, effective=INVALID)])
    ),
    "InventoryMessage.inventory.netdevs.queues.rps": InventoryMessage(
        replace(INVENTORY, netdevs=[replace(INVENTORY.netdevs[0], queues=[Queue("rx-0", rps=INVALID)])])
    ),
    "InventoryMessage.inventory.netdevs.queues.xps": InventoryMessage(
        replace(INVENTORY, netdevs=[replace(INVENTORY.netdevs[0], queues=[Queue("tx-0", xps=INVALID)])])
    ),
    "FlowsMessage.tasks.affinity": FlowsMessage(0, [replace(NET_TASK, affinity=INVALID)]),
    "FlowsMessage.tasks.allowed": FlowsMessage(0, [replace(NET_TASK, allowed=INVALID)]),
    "FlowsMessage.numa.tasks.affinity": numa_flows(affinity=INVALID),
    "FlowsMessage.numa.tasks.allowed": numa_flows(allowed=INVALID),
    "FlowsMessage.numa.tasks.mems_allowed": numa_flows(mems_allowed=INVALID),
    **{
        f"FlowsMessage.cpusets.{field}": FlowsMessage(0, [], cpusets={"web": msgspec.convert({field: INVALID}, Cpuset)})
        for field in ("cpus", "mems", "effective_cpus", "effective_mems")
    },
}


@pytest.mark.parametrize(
    ("inventory", "reason"),
    [
        (replace(INVENTORY, netdevs=[make_netdev(addresses=["10.0.0.256"])]), "'10.0.0.256' does not appear to be"),
        (replace(INVENTORY, limits=Limits(loads=LoadLimits(addresses=["10.0.0.1/8"]))), "10.0.0.1/8 has host bits set"),
    ],
)
def test_addresses_of_a_node_are_parsed(inventory: Inventory, reason: str) -> None:
    assert reason in rejection(InventoryMessage(inventory))


@pytest.mark.parametrize("value", ["other", "none", "flow-type tcp4 dst-port 80"])
def test_a_flow_rule_of_a_nic_is_a_rule(value: str) -> None:
    table = FlowRuleTable(16, [FlowRule(0, ""), FlowRule(3, value)])
    assert "write" in rejection(InventoryMessage(replace(INVENTORY, netdevs=[make_netdev(flow_rules=table)])))
    for wrong in (
        make_netdev(flow_rules=FlowRuleTable(16, [FlowRule(7, "", context_rule="flow-type tcp4 context x")])),
        make_netdev(rss_contexts=[RssContext(1, "0,x")]),
    ):
        assert "write" in rejection(InventoryMessage(replace(INVENTORY, netdevs=[wrong])))


@pytest.mark.parametrize(("entries", "is_valid"), [(0, False), (128, True), (65_537, False), (1 << 52, False)])
def test_the_length_of_an_rss_table_is_limited(entries: int, is_valid: bool) -> None:
    message = InventoryMessage(replace(INVENTORY, netdevs=[make_netdev(rss="0,1", rss_entries=entries)]))
    assert (rejection(message) == "") is is_valid


@pytest.mark.parametrize("field", ["local", "peer"])
def test_the_addresses_of_flows_are_parsed(field: str) -> None:
    flow = HeavyFlow("tcp", "10.0.0.1", 80, "10.0.0.2", 5555, "eth0", None, None, None, 1e6)
    assert rejection(FlowsMessage(0, [replace(NET_TASK, flows=[flow])])) == ""
    wrong = replace(NET_TASK, flows=[replace(flow, **{field: "localhost"})])
    assert "'localhost' does not appear to be" in rejection(FlowsMessage(0, [wrong]))


def test_every_cpu_list_on_the_wire_is_parsed() -> None:
    assert fields_on_the_wire(is_cpu_list) == set(INVALID_CPU_LISTS)
    for path, message in INVALID_CPU_LISTS.items():
        assert "“3-” is not a CPU or a range of CPUs" in rejection(message), path


def test_the_flows_of_all_processes_together_are_limited() -> None:
    flow = HeavyFlow("tcp", "10.0.0.1", 80, "10.0.0.2", 5555, "eth0", None, None, None, 1e6)
    half = replace(NET_TASK, flows=[flow] * (MAX_HEAVY_FLOWS // 2))
    assert "2560 flows exceed the limit of 2048" in rejection(
        FlowsMessage(0, [half, half, replace(half, flows=[flow] * 512)])
    )
