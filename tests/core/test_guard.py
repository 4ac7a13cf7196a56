import pytest
from msgspec.structs import replace
from tests.support.views import EMPTY, make_netdev

from coresteer_core.changes.guard import MAX_PLAN_ACTIONS, refusals, warnings
from coresteer_core.changes.plan import DesiredValue, preview
from coresteer_core.node.inventory import FreeVectors, Inventory, Irq, Netdev, Queue, QueueUser
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.topology import Cpu, NumaNode, Topology
from coresteer_core.node.view import View


@pytest.fixture
def view() -> View:
    """Two NUMA nodes of two cores with two threads each; eth0 on node 0 with three queues, the last managed."""
    cpus = [
        Cpu(cpu, core=cpu // 2, package=0, numa_node=cpu // 4, online=cpu != 7, siblings=f"{cpu & ~1}-{cpu | 1}")
        for cpu in range(8)
    ]
    nodes = [NumaNode(0, "0-3", None, [10, 20]), NumaNode(1, "4-7", None, [20, 10])]
    irqs = [
        Irq(41, "eth0-rx-0", "PCI", "0", "0", 0, True, netdev="eth0", queues=["rx-0"]),
        Irq(42, "eth0-rx-1", "PCI", "2", "2", 0, True, netdev="eth0", queues=["rx-1"]),
        Irq(43, "eth0-rx-2", "PCI", "2", "2", 0, False, "A managed interrupt.", netdev="eth0", queues=["rx-2"]),
        Irq(50, "timer", "IO", "0-7", "0", None, True),
    ]
    queues = [Queue("rx-0", 41), Queue("rx-1", 42), Queue("rx-2", 43)]
    netdev = make_netdev(management=True, queues=queues)
    return View(Topology(cpus, nodes, [], isolated="6", nohz_full="6"), Inventory([netdev], irqs, ["irqbalance"]))


def key(irq: int) -> str:
    return f"irq/{irq}/affinity"


@pytest.mark.parametrize(
    ("irq", "value", "code", "sentence"),
    [
        (41, "7", "offline", "CPU 7 is not online on this node; it has CPUs 0-6."),
        (41, "1,7-9", "offline", "CPUs 7-9 are not online on this node; it has CPUs 0-6."),
        (41, "5-6", "isolated", "CPU 6 is reserved by isolcpus or nohz_full; allow isolated CPUs in this plan"),
        (43, "1", "managed", "IRQ 43 cannot be moved. A managed interrupt."),
    ],
)
def test_forbidden_affinities_are_refused_with_the_cpu_or_irq_number(
    view: View, irq: int, value: str, code: str, sentence: str
) -> None:
    (refusal,) = refusals(view, [(key(irq), value)], allow_isolated=False)
    assert (refusal.code, refusal.key) == (code, key(irq))
    assert refusal.sentence.startswith(sentence)


def test_isolated_cpus_are_accepted_with_a_warning_when_the_plan_allows_them(view: View) -> None:
    assert refusals(view, [(key(41), "6")], allow_isolated=True) == []
    assert "isolated" in {w.code for w in warnings(view, [(key(41), "6")], allow_isolated=True)}


def test_more_moves_than_the_limit_of_a_plan_are_refused(view: View) -> None:
    many = [(key(irq), "1") for irq in range(1000, 1001 + MAX_PLAN_ACTIONS)]
    assert [refusal.code for refusal in refusals(view, many, allow_isolated=False)] == ["too_many"]
    assert refusals(view, many[1:], allow_isolated=False) == []


@pytest.mark.parametrize(
    ("wanted", "codes"),
    [
        ([(50, "1")], {"controller"}),
        ([(41, "1")], {"controller", "management"}),
        ([(41, "4")], {"controller", "management", "other_numa_node"}),
        ([(41, "3")], {"controller", "management", "smt_sibling", "one_core"}),
        ([(41, "2")], {"controller", "management", "one_core"}),
        ([(41, "2-3")], {"controller", "management", "one_core"}),
        ([(41, "0"), (42, "1")], {"controller", "management", "smt_sibling"}),
        ([(999, "1")], set()),
    ],
)
def test_each_warning_is_given_for_its_actions(view: View, wanted: list[tuple[int, str]], codes: set[str]) -> None:
    found = warnings(view, [(key(irq), value) for irq, value in wanted], allow_isolated=False)
    assert {warning.code for warning in found} == codes
    assert all(warning.sentence.endswith(".") for warning in found)


def test_warnings_about_the_whole_plan_are_given_once(view: View) -> None:
    found = warnings(view, [(key(41), "2"), (key(42), "3")], allow_isolated=False)
    codes = [warning.code for warning in found]
    assert [codes.count(code) for code in ("controller", "management", "one_core")] == [1, 1, 1]
    sentences = {warning.code: warning.sentence for warning in found}
    assert sentences["one_core"] == "All 3 interrupts of eth0 would be served by CPUs 2-3, which are one core."
    assert sentences["controller"] == "irqbalance runs on this node and may move the interrupts again."


def test_without_a_numa_node_of_the_netdev_that_of_the_interrupt_is_used(view: View) -> None:
    netdevs = [replace(netdev, numa_node=None) for netdev in view.inventory.netdevs]
    bare = View(view.topology, replace(view.inventory, netdevs=netdevs, controllers=["irqbalance", "tuned"]))
    found = {warning.code: warning.sentence for warning in warnings(bare, [(key(41), "4")], allow_isolated=False)}
    assert found["other_numa_node"] == "CPU 4 is on another NUMA node than eth0 (node 0)."
    assert found["controller"] == "irqbalance and tuned run on this node and may move the interrupt again."


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ([(41, "3")], "CPU 2 shares a core with CPU 3 and serves another queue of eth0."),
        (
            [(41, "3"), (42, "2-3")],
            "CPU 2 shares a core with CPU 3 and serves another queue of eth0; CPU 3 already serves one, too.",
        ),
        ([(41, "0,3"), (42, "1")], "CPUs 1-2 share cores with CPUs 0,3 and serve other queues of eth0."),
    ],
)
def test_warnings_use_singular_and_plural(view: View, wanted: list[tuple[int, str]], sentence: str) -> None:
    found = warnings(view, [(key(irq), value) for irq, value in wanted], allow_isolated=False)
    assert [w.sentence for w in found if w.code == "smt_sibling" and w.key == key(41)] == [sentence]


def test_an_unreadable_topology_is_reported_and_not_shown_as_zero_cpus() -> None:
    (refusal,) = refusals(EMPTY, [(key(41), "1")], allow_isolated=False)
    assert refusal.sentence == "CPU 1 is not online on this node; which CPUs it has could not be read."


TASK = NetTask(812, 99, "nginx", None, 4, "0-3", "0-5", 0, 0.1, 0.0, [])
KERNEL_THREAD = NetTask(33, 1, "kworker/2:1", None, 1, "2", "", 2, 0.0, 0.0, [], bound=True)


@pytest.fixture
def wide(view: View) -> View:
    """The same with tasks, and eth0's queues with RPS, XPS, channels and an RSS table."""
    [netdev] = view.inventory.netdevs
    queues = [Queue(f"rx-{n}", 41 + n, rps="") for n in range(3)] + [Queue("tx-0", xps="0-3")]
    netdev = replace(netdev, queues=queues, channels="combined 3", channels_max="combined 4", rss="0,1,2")
    return replace(view, inventory=replace(view.inventory, netdevs=[netdev]), tasks=[TASK, KERNEL_THREAD])


@pytest.mark.parametrize(
    ("key", "value", "code", "sentence"),
    [
        ("task/812/affinity", "7", "offline", "CPU 7 is not online on this node; it has CPUs 0-6."),
        ("task/812/affinity", "0;813=1", "invalid", "Name the CPUs of nginx (812) for all of its threads together."),
        ("task/33/affinity", "1", "bound", "kworker/2:1 (33) is a kernel thread that is bound to its CPUs."),
        ("netdev/eth0/rx-0/rps", "6", "isolated", "CPU 6 is reserved by isolcpus or nohz_full; allow"),
        ("netdev/eth0/rx-0/rps", "9", "offline", "CPU 9 is not online on this node; it has CPUs 0-6."),
        ("netdev/eth0/rss", "0,3", "queue", "eth0 has no receive queue 3."),
        ("netdev/eth0/channels", "combined 5", "channels", "eth0 has channels for combined 4 at the most, not"),
        ("netdev/eth0/channels", "rx 1,tx 1", "channels", "eth0 has channels for combined 4 at the most, not"),
    ],
)
def test_each_kind_has_its_own_bounds(wide: View, key: str, value: str, code: str, sentence: str) -> None:
    (refusal,) = refusals(wide, [(key, value)], allow_isolated=False)
    assert (refusal.code, refusal.key) == (code, key)
    assert refusal.sentence.startswith(sentence)


def test_a_cpuset_is_a_bound_even_where_isolated_cpus_are_allowed(wide: View) -> None:
    (refusal,) = refusals(wide, [("task/812/affinity", "5-6")], allow_isolated=True)
    assert (refusal.code, refusal.sentence) == (
        "cpuset",
        "CPU 6 is not in the cpuset of nginx (812), which has CPUs 0-5.",
    )


def test_a_preview_says_once_that_children_inherit_and_keep_a_value(wide: View) -> None:
    desired = [("task/812/affinity", "4"), ("task/812/nice", "5")]
    (found,) = [each for each in warnings(wide, desired, allow_isolated=False) if each.code == "children"]
    assert found.sentence == (
        "A process that nginx (812) starts meanwhile inherits this, and an undo does not change it there."
    )


@pytest.mark.parametrize(
    ("key", "value", "codes"),
    [
        ("task/812/affinity", "4", {"children"}),
        ("netdev/eth0/rx-0/rps", "1", {"management"}),
        ("netdev/eth0/rx-0/rps", "4", {"management", "other_numa_node"}),
        ("netdev/eth0/rss", "0", {"management"}),
        ("netdev/eth0/channels", "combined 1", {"management", "restart"}),
        ("netdev/eth1/channels", "combined 1", set()),
    ],
)
def test_each_kind_has_its_own_warnings(wide: View, key: str, value: str, codes: set[str]) -> None:
    found = warnings(wide, [(key, value)], allow_isolated=False)
    assert {warning.code for warning in found} == codes
    assert all(warning.key == key and warning.sentence.endswith(".") for warning in found)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("task/7/affinity", "1", "unknown"),
        ("netdev/eth1/rss", "0", "unknown"),
        ("netdev/eth0/rx-3/rps", "0", "unknown"),
        ("netdev/eth0/tx-1/xps", "0", "unknown"),
        ("netdev/lo/channels", "combined 1", "unsupported"),
        ("netdev/lo/rx-0/rps", "1", "unsupported"),
    ],
)
def test_a_setting_that_is_not_in_the_view_becomes_no_action(wide: View, key: str, value: str, code: str) -> None:
    lo = Netdev("lo", None, None, None, None, True, virtual=True, management=False, queues=[Queue("rx-0")])
    inventory = replace(wide.inventory, netdevs=[*wide.inventory.netdevs, lo])
    answer = preview(replace(wide, inventory=inventory), [DesiredValue(key, value)], reason="test")
    assert [(refusal.code, refusal.key) for refusal in answer.refused] == [(code, key)]
    assert answer.plan.actions == []


def test_a_preview_shows_the_values_before_and_after_of_each_kind(wide: View) -> None:
    wanted = {
        "task/812/affinity": "4",
        "netdev/eth0/rx-0/rps": "0-1",
        "netdev/eth0/tx-0/xps": "none",
        "netdev/eth0/rss": "0",
        "netdev/eth0/channels": "combined 2",
    }
    answer = preview(wide, [DesiredValue(key, value) for key, value in wanted.items()], reason="test")
    assert answer.refused == []
    assert answer.sentence == (
        "nginx (812) changes from CPUs 0-3 to CPU 4; RPS of eth0 rx-0 changes from no CPU to CPUs 0-1; "
        "XPS of eth0 tx-0 changes from CPUs 0-3 to no CPU; RSS of eth0 changes from queues 0,1,2 to queue 0; "
        "eth0's number of channels changes from combined 3 to combined 2."
    )
    assert len(answer.commands) == 5
    assert {a.key: (a.was, a.becomes) for a in answer.plan.actions}["netdev/eth0/rx-0/rps"] == ("none", "0-1")


def test_offline_cpus_of_a_task_do_not_count_as_its_affinity(wide: View) -> None:
    view = replace(wide, tasks=[replace(TASK, affinity="0-127", allowed="")])
    answer = preview(view, [DesiredValue("task/812/affinity", "0-6")], reason="test", allow_isolated=True)
    assert (answer.plan.actions, answer.refused) == ([], [])


USERS = [
    QueueUser("XDP", "eth1", name="xdp_lb"),
    QueueUser("AF_XDP", "eth0", ["rx-1", "tx-1"], "suricata"),
]


@pytest.mark.parametrize(
    ("key", "value", "user"),
    [
        ("netdev/eth0/rx-1/rps", "1", 1),
        ("netdev/eth0/rx-0/rps", "1", None),
        ("netdev/eth0/rss", "0,2", 1),
        ("netdev/eth0/channels", "combined 4", 1),
        ("netdev/eth0/threaded", "1", 1),
        ("netdev/eth0/coalesce/rx-usecs", "20", None),
        ("netdev/eth1/rx-0/rps", "1", 0),
        ("netdev/eth1/rss", "0", 0),
        ("netdev/eth1/flow-rule/3", "flow-type tcp4 dst-port 80 action 0", 0),
        ("irq/42/affinity", "1", 1),
        ("irq/41/affinity", "1", None),
    ],
)
def test_what_moves_a_queue_of_another_program_is_refused(wide: View, key: str, value: str, user: int | None) -> None:
    other = make_netdev("eth1", queues=[Queue("rx-0", 60, rps="")])
    irqs = [
        replace(irq, movable=False, locked_reason=USERS[1].sentence) if irq.irq == 42 else irq
        for irq in wide.inventory.irqs
    ]
    inventory = replace(wide.inventory, netdevs=[*wide.inventory.netdevs, other], irqs=irqs, queue_users=USERS)
    found = refusals(replace(wide, inventory=inventory), [(key, value)], allow_isolated=False)
    expected = [] if user is None else [USERS[user].sentence]
    assert [each.sentence.partition("cannot be changed. ")[2] for each in found if each.code == "in_use"] == expected
    assert "managed" not in {each.code for each in found}


def test_each_user_of_queues_is_described_by_a_sentence() -> None:
    users = [
        *USERS,
        QueueUser("XDP", "eth2"),
        QueueUser("AF_XDP", "eth3", ["rx-0"]),
        QueueUser("vfio-pci", "0000:03:00.0"),
        QueueUser("AF_XDP", "eth4", [f"{kind}-{number}" for number in range(138) for kind in ("rx", "tx")], "vpp"),
    ]
    assert [user.sentence for user in users] == [
        "The XDP program xdp_lb runs on eth1.",
        "An AF_XDP socket of suricata uses rx-1, tx-1 of eth0.",
        "The XDP program of another process runs on eth2.",
        "An AF_XDP socket uses rx-0 of eth3.",
        "0000:03:00.0 belongs to a program in user space, such as DPDK or a virtual machine (vfio-pci).",
        "An AF_XDP socket of vpp uses rx-0, tx-0 and 274 more queues of eth4.",
    ]


@pytest.mark.parametrize(
    ("free", "wanted", "warned"),
    [
        pytest.param({}, [(41, "1")], [], id="not shown by the kernel"),
        pytest.param({1: 1}, [(41, "1")], [], id="one is free"),
        pytest.param({1: 0}, [(41, "1")], [41], id="none is free"),
        pytest.param({0: 0, 1: 0}, [(41, "0-1")], [], id="it keeps its own"),
        pytest.param({1: 0, 3: 1}, [(41, "1,3")], [], id="one of two CPUs has one"),
        pytest.param({1: 1}, [(41, "1"), (42, "1")], [42], id="the first of two takes the last one"),
        pytest.param({1: 0}, [(41, "1,3")], [], id="one CPU is not shown"),
    ],
)
def test_moves_to_cpus_without_a_free_vector_are_warned_of(
    view: View, free: dict[int, int], wanted: list[tuple[int, str]], warned: list[int]
) -> None:
    vectors = [FreeVectors(cpu, count) for cpu, count in free.items()]
    full = replace(view, inventory=replace(view.inventory, free_vectors=vectors))
    found = warnings(full, [(key(irq), value) for irq, value in wanted], allow_isolated=False)
    assert [warning.key for warning in found if warning.code == "vectors"] == [key(irq) for irq in warned]


def test_the_warning_of_no_free_vector_names_the_cpu_and_the_interrupt(view: View) -> None:
    full = replace(view, inventory=replace(view.inventory, free_vectors=[FreeVectors(1, 0)]))
    sentences = [w.sentence for w in warnings(full, [(key(41), "1")], allow_isolated=False) if w.code == "vectors"]
    assert sentences == [
        "CPU 1 has no free interrupt vector for IRQ 41: the kernel will refuse the move unless one becomes free."
    ]
