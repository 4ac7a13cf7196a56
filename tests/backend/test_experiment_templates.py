"""Templates of experiments on machines of every kind: this lab's, captured ones and simulated ones."""

from uuid import uuid4

import pytest
from msgspec.structs import replace
from tests.backend.conftest import Backend
from tests.backend.policy_node import asked, created, policy_node
from tests.core.policy_machines import CAPTURED, captured
from tests.support.views import make_topology

from coresteer.experiments.analysis import analyse
from coresteer.experiments.arm_config import NETDEV_PLACEHOLDER
from coresteer.experiments.schedule import estimate_duration_s, run_count
from coresteer.experiments.schemas import Template
from coresteer.experiments.spec import PolicyLevel, Spec
from coresteer.experiments.templates import TEMPLATES, NodeFacts, find_template, published_by, templates
from coresteer.experiments.validation import check_on_node
from coresteer_agent.simulate.machine import make_machine
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.experiments.model import Classes, Memory, Observe, TcpRequest, TcpStream
from coresteer_core.experiments.parallel_jobs import Bsp
from coresteer_core.node.inventory import Inventory, Irq, Netdev, Queue
from coresteer_core.node.load import Load, NetdevLoad
from coresteer_core.node.nic import DriverRecord, DriverResponse, NicKnowledge, Verdict
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View

POLLING = {"gro_flush_timeout": "0", "napi_defer_hard_irqs": "0"}
POLICY = ("beside the packets", PolicyLevel(3, 2))
REORDERING, BOOST = ("first the soonest", PolicyLevel(5, 1)), ("first the oldest", PolicyLevel(6, 2))
NUMA_POLICY = ("beside the memory", PolicyLevel(4, 1))
FAMILIES = [
    "tune",
    "m-n",
    "few-interrupt-cores",
    "rx-usecs",
    "rx-frames",
    "rps",
    "steering",
    "service-classes",
    "unas",
    "contention-factor",
    "coscheduling",
]
MINUTES = {"unas": 60, "coscheduling": 30}
"""A run of these templates needs the time that a policy takes to act; all others are done in half an hour."""


def card(
    name: str, driver: str, *, queues: int = 1, management: bool = False, node: int | None = None, **params: str
) -> tuple[Netdev, list[Irq]]:
    first = 40 if management else 60
    irqs = [
        Irq(first + n, f"{name}-{n}", "PCI-MSI", "0", "0", node, True, None, name, [f"rx-{n}", f"tx-{n}"])
        for n in range(queues)
    ]
    names = [Queue(f"rx-{n}", irq.irq, "name", rps="", params={"rps_flow_cnt": "0"}) for n, irq in enumerate(irqs)]
    known = {key.replace("_usecs", "-usecs").replace("_frames", "-frames"): value for key, value in params.items()}
    told = POLLING | {f"coalesce/{key}": value for key, value in known.items()}
    return Netdev(name, driver, 10**9, 1500, node, True, False, management, names, params=told), irqs


def facts(topology: Topology, *cards: tuple[Netdev, list[Irq]], peer: bool = False, **more: object) -> NodeFacts:
    settings = {"kernel/numa_balancing": "1", "kernel/rps_sock_flow_entries": "0"}
    irqs = [irq for _, irqs in cards for irq in irqs]
    inventory = Inventory([netdev for netdev, _ in cards], irqs, settings=settings)
    made = NodeFacts(
        node_id=1,
        name="web-1",
        kernel="6.12.1",
        topology=topology,
        inventory=inventory,
        network_process=POLICY,
        numa=NUMA_POLICY,
        coscheduling=REORDERING,
        periodic_boost=BOOST,
    )
    return replace(made, **({"peer_id": 2, "peer_name": "web-2"} if peer else {}), **more)


def cpus(count: int, packages: int = 1) -> Topology:
    return make_topology(packages=packages, nodes_per_package=1, cores_per_node=count // packages, threads=1)


THIS = facts(cpus(2), card("eth0", "virtio_net", management=True, rx_usecs="0", rx_frames="0"))
TWO_SOCKET = facts(
    cpus(8, packages=2),
    card("management", "virtio_net", management=True),
    card("eth0", "igb", queues=8, node=1, rx_usecs="3"),
)
TRIO = facts(
    cpus(4), card("management", "virtio_net", management=True), card("eth0", "virtio_net", queues=4), peer=True
)


def simulated(count: int, *, peer: bool = False) -> NodeFacts:
    machine = make_machine(cpus=count, irqs=150, kind=0, seed=1)
    return replace(facts(machine.topology, peer=peer), inventory=machine.inventory)


def of(node: NodeFacts, slug: str) -> Template:
    return next(each for each in templates(node) if each.slug == slug)


def spec_of(node: NodeFacts, slug: str) -> Spec:
    found = of(node, slug)
    assert found.spec is not None, found.unavailable_because
    return found.spec


NODES = {
    "this machine": THIS,
    "two sockets": TWO_SOCKET,
    "two sockets, peer": replace(TWO_SOCKET, peer_id=2, peer_name="web-2"),
    "trio": TRIO,
    "256 CPUs": simulated(256),
    "256 CPUs, peer": simulated(256, peer=True),
    "no policy": replace(THIS, network_process=None),
    "no card": facts(cpus(4), peer=True),
    "one CPU": facts(cpus(1)),
    **{
        f"{name}{' peer' if peer else ''}": replace(
            facts(captured(name).view.topology, peer=peer), inventory=captured(name).view.inventory
        )
        for name in CAPTURED
        for peer in (False, True)
    },
}


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_every_template_is_valid_on_a_node_or_has_a_reason_against_it(node: NodeFacts) -> None:
    found = templates(node)
    assert {family for family in FAMILIES if any(t.slug.startswith(family) for t in found)} == set(FAMILIES)
    for each in found:
        assert (each.spec is None) == (each.unavailable_because is not None)
        kind = find_template(each.slug)
        assert kind is not None
        assert (each.paper, each.published) == (
            ("", []) if kind.paper is None else (kind.paper.citation.en, kind.paper.rows)
        )
        if each.spec is None:
            continue
        check_on_node(each.spec, View(node.topology, node.inventory), None)
        assert each.spec.template == each.slug
        assert each.spec.blocks >= 6
        assert run_count(each.spec) <= 150
        assert estimate_duration_s(each.spec) <= MINUTES.get(each.slug, 30) * 60
        assert each.differs
        assert each.question.endswith("?")
        assert each.duration_s == estimate_duration_s(each.spec)
        sentences = [each.explains, each.needs, *each.differs, *each.deviations]
        assert all(sentence.endswith(".") for sentence in sentences)
        assert NETDEV_PLACEHOLDER not in " ".join(sentences)


def test_local_traffic_changes_no_network_card() -> None:
    for each in templates(THIS):
        assert each.unavailable_because is None or each.slug in ("rx-frames", "unas", "contention-factor")
        for level in (level for factor in each.spec.factors for level in factor.levels) if each.spec else ():
            assert all(
                desired_value.key.startswith((f"netdev/{NETDEV_PLACEHOLDER}/", "kernel/"))
                for desired_value in level.settings
            )


def test_a_tune_searches_what_the_network_card_has_or_else_the_veth_pair_and_the_servers_cpu() -> None:
    card_spec = spec_of(TWO_SOCKET, "tune")
    assert (card_spec.kind, card_spec.primary, card_spec.tune.limit) == ("tune", "cpu_s_per_gbit", 2000.0)
    assert isinstance(card_spec.workload, Observe)
    (usecs,) = card_spec.factors
    assert [level.value for level in usecs.levels] == [3, 8, 16, 32, 64, 125, 250, 500]
    assert usecs.levels[1].settings == [DesiredValue("netdev/eth0/coalesce/rx-usecs", "8")]
    adaptive = spec_of(simulated(256), "tune").factors[0].levels
    assert any(each.value is None for each in adaptive[:1]) or adaptive[0].settings == []
    veth = spec_of(THIS, "tune")
    assert isinstance(veth.workload, TcpRequest)
    assert [factor.name for factor in veth.factors] == ["gro_flush_timeout", "RPS", "server CPUs"]
    assert [level.workload.get("server_cpus") for level in veth.factors[2].levels] == [None, "0", "1"]
    with_peer = spec_of(replace(TWO_SOCKET, peer_id=2), "tune")
    assert with_peer.peer_node_id == 2
    assert with_peer.factors[0].levels[1].settings[0].key == f"netdev/{NETDEV_PLACEHOLDER}/coalesce/rx-usecs"


def test_two_cpus_are_compared_as_a_and_b() -> None:
    spec = spec_of(THIS, "m-n")
    assert spec.kind == "ab"
    baseline, near = spec.factors[0].levels
    assert (baseline.name, near.name) == ("⟨0-0⟩ the same CPU", "⟨0-1⟩ shares L3")
    assert (baseline.role, near.role) == ("n/same", "n/cache")
    assert baseline.settings == near.settings == [DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/rx-0/rps", "0")]
    assert (baseline.workload, near.workload) == ({"server_cpus": "0"}, {"server_cpus": "1"})


def test_the_interrupt_cpu_is_near_the_card_and_clients_are_on_other_cpus() -> None:
    with_peer = spec_of(replace(TWO_SOCKET, peer_id=2), "m-n")
    assert [desired_value.value for desired_value in with_peer.factors[0].levels[0].settings] == ["4"] * 8
    assert [level.name[:5] for level in with_peer.factors[0].levels][:2] == ["⟨4-4⟩", "⟨4-5⟩"]
    assert len(with_peer.factors[0].levels) == 8
    assert with_peer.peer_node_id == 2
    alone = spec_of(TWO_SOCKET, "m-n")
    assert isinstance(alone.workload, TcpStream)
    clients = parse_cpu_list(alone.workload.client_cpus)
    assert clients == {6, 7}
    assert clients.isdisjoint(int(str(level.workload["server_cpus"])) for level in alone.factors[0].levels)


def test_large_machines_measure_some_cpus_at_each_distance() -> None:
    names = [level.name.partition("⟩ ")[2] for level in spec_of(simulated(256), "m-n").factors[0].levels]
    far = ["shares no cache"] * 2 + ["on another NUMA node"] * 2
    assert names == ["the same CPU", "shares L3", "shares L3", "the same core", *far]


@pytest.mark.parametrize(
    ("slug", "used"),
    [("2s", {4, 5}), ("2n", {4, 0})],
)
def test_few_interrupt_cores_share_a_cache_or_none(slug: str, used: set[int]) -> None:
    spec = spec_of(replace(TWO_SOCKET, peer_id=2), f"few-interrupt-cores-{slug}")
    kernel, irqbalance, policy = spec.factors[0].levels
    assert {int(desired_value.value) for desired_value in kernel.settings} == used
    assert kernel.settings == policy.settings
    assert (kernel.policy, policy.policy) == (None, POLICY[1])
    assert (irqbalance.irqbalance, irqbalance.settings) == (True, [])
    assert parse_cpu_list(irqbalance.irqbalance_cpus) == used
    assert [level.role for level in spec.factors[0].levels] == ["kernel", "irqbalance", "policy"]


@pytest.mark.parametrize(
    ("node", "connections"),
    [(TWO_SOCKET, 4), (replace(TWO_SOCKET, peer_id=2), 8), (facts(cpus(16)), 8), (THIS, 4)],
    ids=["8 CPUs, alone", "8 CPUs, a peer", "16 CPUs, alone", "2 CPUs"],
)
def test_there_are_the_authors_8_connections_where_the_node_has_the_cpus(node: NodeFacts, connections: int) -> None:
    slug = "few-interrupt-cores-2s" if node.peer_id is not None else "few-interrupt-cores"
    workload = spec_of(node, slug).workload
    assert isinstance(workload, TcpStream)
    assert workload.connections == connections


def test_without_movable_interrupts_irqbalance_is_not_compared() -> None:
    found = of(THIS, "few-interrupt-cores")
    assert found.spec is not None
    assert [level.name for level in found.spec.factors[0].levels] == ["kernel default", "network-process"]
    assert "irqbalance is not compared, as there is no interrupt." in found.differs


@pytest.mark.parametrize("ending", ["", "-4s", "-4n"])
def test_what_the_paper_does_not_have_is_stated_as_not_reported(ending: str) -> None:
    kind = find_template(f"few-interrupt-cores{ending}")
    assert kind is not None and kind.paper is not None
    texts = {row.metric: row.text for row in kind.paper.rows if row.role == "policy"}
    assert texts == {"throughput_bit_per_s": "not reported", "gbit_per_cpu_s": "not reported"}


def test_without_a_peer_there_is_one_interrupt_cpu() -> None:
    assert [t.slug for t in templates(TWO_SOCKET) if "few" in t.slug] == ["few-interrupt-cores"]
    slugs = {t.slug for t in templates(replace(TWO_SOCKET, peer_id=2))}
    assert slugs >= {"few-interrupt-cores-2s", "few-interrupt-cores-2n", "few-interrupt-cores-4s"}
    assert slugs.isdisjoint({"few-interrupt-cores", "few-interrupt-cores-4n"}), "there are two caches"


def test_without_a_policy_the_reason_says_how_to_create_one() -> None:
    found = of(replace(THIS, network_process=None), "few-interrupt-cores")
    assert "Create one under Policies" in str(found.unavailable_because)


def test_rx_usecs_are_swept_under_existing_or_peer_traffic() -> None:
    own = spec_of(TWO_SOCKET, "rx-usecs")
    assert isinstance(own.workload, Observe)
    assert own.factors[0].levels[0].settings == [DesiredValue("netdev/eth0/coalesce/rx-usecs", "18")]
    assert [level.value for level in own.factors[0].levels] == [18, 36, 54, 72, 90, 250]
    with_peer = spec_of(replace(TWO_SOCKET, peer_id=2), "rx-usecs")
    assert isinstance(with_peer.workload, TcpStream)
    assert with_peer.factors[0].levels[0].settings == [
        DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/coalesce/rx-usecs", "18")
    ]


def test_the_busiest_card_is_swept() -> None:
    cards = [card(name, "igb", rx_usecs="3") for name in ("eth0", "eth1")]
    node = facts(cpus(4), *cards, load=Load(netdevs=[NetdevLoad("eth1", 5000, 1e6, 0, 0, 0)]))
    assert "eth1" in spec_of(node, "rx-usecs").factors[0].levels[0].settings[0].key


@pytest.mark.parametrize("node", [THIS, TRIO], ids=["this machine", "trio"])
def test_without_rx_usecs_software_coalescing_is_swept(node: NodeFacts) -> None:
    level = spec_of(node, "rx-usecs").factors[0].levels[1]
    assert (level.name, level.value) == ("36 µs", 36)
    assert {desired_value.key.rpartition("/")[2]: desired_value.value for desired_value in level.settings} == {
        "napi_defer_hard_irqs": "1",
        "gro_flush_timeout": "36000",
    }
    assert spec_of(node, "rx-usecs").primary == ("cpu_s_per_gbit" if node is THIS else "interrupts_per_s")


def learned(requested: str, verdict: Verdict, read_back: str | None = None, driver: str = "igb") -> NicKnowledge:
    return NicKnowledge(
        [DriverRecord(driver, "6.12.1", [DriverResponse("coalesce/rx-usecs", requested, verdict, read_back, "", 1)])]
    )


def test_a_virtual_card_that_accepted_a_value_is_swept() -> None:
    taken = replace(THIS, learned=learned("50", Verdict.ACCEPTED, "50", driver="virtio_net"))
    assert spec_of(taken, "rx-usecs").primary == "interrupts_per_s"


def test_learned_driver_responses_are_respected() -> None:
    rounded = (
        spec_of(replace(TWO_SOCKET, learned=learned("18", Verdict.ROUNDED, "24")), "rx-usecs").factors[0].levels[0]
    )
    assert (rounded.name, rounded.value, rounded.settings[0].value) == ("18 µs", 24, "24")
    refused = spec_of(replace(TWO_SOCKET, learned=learned("18", Verdict.REFUSED)), "rx-usecs")
    assert "gro_flush_timeout" in refused.factors[0].levels[0].settings[1].key


def test_rx_frames_are_swept_below_and_above_the_packet_gap() -> None:
    mlx5 = card("eth0", "mlx5_core", rx_usecs="8", rx_frames="128")[0]
    mlx5 = replace(mlx5, params=mlx5.params | {"coalesce/adaptive-rx": "on"})
    spec = spec_of(facts(cpus(4), (mlx5, [])), "rx-frames")
    assert [level.value for level in spec.factors[1].levels] == [6, 12, 18, 24, 30, 36, 42, 48]
    assert [level.role for level in spec.factors[0].levels] == ["usecs/18", "usecs/90"]
    assert spec.factors[0].levels[0].settings[0] == DesiredValue("netdev/eth0/coalesce/adaptive-rx", "off")
    assert "rx-frames" in str(of(TWO_SOCKET, "rx-frames").unavailable_because)


def test_service_classes_compare_nice_values_with_the_gate() -> None:
    spec = spec_of(THIS, "service-classes")
    assert isinstance(spec.workload, Classes)
    assert (spec.kind, spec.primary) == ("ab", "c5_by_c1")
    assert [level.workload["method"] for level in spec.factors[0].levels] == ["nice", "gate"]
    assert spec.measure_s == spec.workload.limit_s


def test_the_deviations_of_service_classes_are_those_of_the_experiment_as_changed_in_the_form() -> None:
    kind = find_template("service-classes")
    assert kind is not None
    spec = spec_of(THIS, "service-classes")
    assert [each.en for each in kind.deviations(spec)] == of(THIS, "service-classes").deviations
    like_paper = " ".join(
        each.en for each in kind.deviations(replace(spec, workload=Classes(requests=1000, window_s=10)))
    )
    assert "A run is 50,000 requests, as in the paper" in like_paper
    assert "of the last 10 s" in like_paper
    assert "after 64 admissions of others" in like_paper


def test_rps_is_off_or_on_the_cpus_near_the_card() -> None:
    spec = spec_of(THIS, "rps")
    assert (spec.kind, spec.primary) == ("ab", "throughput_bit_per_s")
    off, on = spec.factors[0].levels
    assert off.settings == [DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/rx-0/rps", "none")]
    assert on.settings == [DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/rx-0/rps", "0-1")]
    with_peer = spec_of(replace(TWO_SOCKET, peer_id=2), "rps").factors[0].levels[1]
    assert with_peer.name == "RPS on 4 CPUs"
    assert with_peer.settings == [
        DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/rx-{queue}/rps", "4-7") for queue in range(8)
    ]


def test_rps_needs_a_second_cpu_and_a_card_for_a_peers_traffic() -> None:
    assert "one usable CPU" in str(of(NODES["one CPU"], "rps").unavailable_because)
    assert "no network card" in str(of(NODES["no card"], "rps").unavailable_because)
    without_rps = replace(TWO_SOCKET, peer_id=2, inventory=Inventory([card("eth0", "igb")[0]], []))
    nic = without_rps.inventory.netdevs[0]
    bare = replace(nic, queues=[replace(queue, rps=None) for queue in nic.queues])
    found = of(replace(without_rps, inventory=Inventory([bare], [])), "rps")
    assert "0 receive queues" in str(found.unavailable_because)


def test_steering_compares_processes_at_their_packets_with_packets_at_their_processes() -> None:
    spec = spec_of(THIS, "steering")
    assert (spec.kind, spec.primary) == ("sweep", "cpu_s_per_gbit")
    levels = spec.factors[0].levels
    assert [level.role for level in levels] == ["neither", "process", "packets", "both"]
    assert [level.workload.get("server_cpus") for level in levels] == [None, "0", None, "0"]
    flows = [{each.key: each.value for each in level.settings} for level in levels]
    assert [each["kernel/rps_sock_flow_entries"] for each in flows] == ["0", "0", "32768", "32768"]
    assert [each[f"netdev/{NETDEV_PLACEHOLDER}/rx-0/rps_flow_cnt"] for each in flows] == ["0", "0", "32768", "32768"]
    assert {each[f"netdev/{NETDEV_PLACEHOLDER}/rx-0/rps"] for each in flows} == {"0"}


def test_the_queues_of_a_card_share_the_entries_of_the_machine_in_powers_of_two() -> None:
    node = facts(cpus(8), card("management", "igb", management=True), card("eth0", "igb", queues=6), peer=True)
    packets = spec_of(node, "steering").factors[0].levels[2].settings
    assert [each.value for each in packets if each.key.endswith("rps_flow_cnt")] == ["4096"] * 6
    assert [each.value for each in packets if each.key.startswith("irq/")] == ["0"] * 6


def test_unas_compares_kernel_automatic_balancing_pins_and_policy() -> None:
    spec = spec_of(TWO_SOCKET, "unas")
    assert isinstance(spec.workload, Memory)
    assert (spec.kind, spec.primary) == ("sweep", "makespan_s")
    assert (spec.workload.compute_processes, spec.workload.memory_processes) == (4, 4)
    kernel, automatic, pins, policy = spec.factors[0].levels
    assert [level.role for level in spec.factors[0].levels] == ["kernel", "automatic", "pins", "policy"]
    assert [level.settings[0].value for level in (kernel, automatic, pins, policy)] == ["0", "1", "0", "0"]
    assert pins.workload == {"memory_cpus": "0-3", "compute_cpus": "4-7", "first_touch": "own"}
    assert policy.policy == NUMA_POLICY[1]


def test_parallel_jobs_are_compared_without_and_with_boosts_and_reordering() -> None:
    spec = spec_of(TWO_SOCKET, "coscheduling")
    assert isinstance(spec.workload, Bsp)
    assert (spec.kind, spec.primary, spec.workload.mpl, spec.workload.cpus) == ("sweep", "job_response_s", 3, "0-1")
    levels = spec.factors[0].levels
    assert [level.role for level in levels] == ["kernel", "boost", "reordered"]
    assert [level.policy for level in levels] == [None, BOOST[1], REORDERING[1]]
    response = next(row for row in of(TWO_SOCKET, "coscheduling").published if row.metric == spec.primary)
    assert (response.role, response.against) == ("reordered", "boost")
    assert "by 21.4 % at most" in response.text


def test_parallel_jobs_with_a_peer_run_on_both_nodes() -> None:
    spec = spec_of(replace(TWO_SOCKET, peer_id=2), "coscheduling")
    assert isinstance(spec.workload, Bsp)
    assert (spec.peer_node_id, spec.workload.machines, spec.workload.cpus) == (2, 2, "")
    assert "a CPU of this node and one of its peer" in " ".join(
        of(replace(TWO_SOCKET, peer_id=2), "coscheduling").differs
    )


def test_contention_is_swept_over_cores_of_one_numa_node() -> None:
    spec = spec_of(TWO_SOCKET, "contention-factor")
    assert isinstance(spec.workload, Memory)
    assert (spec.workload.compute_processes, spec.workload.memory_cpus) == (0, "0-3")
    assert [(level.value, level.workload) for level in spec.factors[0].levels] == [
        (0.0, {"memory_processes": 1}),
        (1.0, {"memory_processes": 2}),
        (3.0, {"memory_processes": 4}),
    ]


WITHOUT_RFS = replace(THIS, inventory=replace(THIS.inventory, settings={}))
MANY_QUEUES = facts(cpus(64), card("eth0", "igb", queues=32), peer=True)
WITHOUT_BALANCING = replace(TWO_SOCKET, inventory=replace(TWO_SOCKET.inventory, settings={}))
SMALL = replace(
    TWO_SOCKET.topology, numa_nodes=[replace(n, memory_bytes=64 << 20) for n in TWO_SOCKET.topology.numa_nodes]
)


@pytest.mark.parametrize(
    ("node", "slug", "part"),
    [
        (THIS, "unas", "web-1 has a single NUMA node"),
        (THIS, "contention-factor", "web-1 has a single NUMA node"),
        (NODES["one CPU"], "coscheduling", "web-1 has one usable CPU"),
        (NODES["one CPU"], "steering", "web-1 has one usable CPU"),
        (NODES["no card"], "steering", "no network card"),
        (WITHOUT_RFS, "steering", "no RFS"),
        (MANY_QUEUES, "steering", "65 settings"),
        (replace(THIS, coscheduling=None), "coscheduling", "no policy of the kind coscheduling with reordering"),
        (replace(THIS, periodic_boost=None), "coscheduling", "no policy of the kind coscheduling without reordering"),
        (replace(TWO_SOCKET, numa=None), "unas", "no policy of the kind numa"),
        (WITHOUT_BALANCING, "unas", "no automatic NUMA balancing"),
        (replace(TWO_SOCKET, topology=SMALL), "unas", "32 MiB are needed"),
        (replace(TWO_SOCKET, topology=cpus(4, packages=2)), "contention-factor", "2 usable cores"),
    ],
)
def test_a_template_says_why_it_is_not_available(node: NodeFacts, slug: str, part: str) -> None:
    assert part in str(of(node, slug).unavailable_because)


def test_published_values_belong_to_arms_of_the_experiment() -> None:
    """Reports draw them beside the measured values."""
    mlx5 = facts(cpus(4), card("eth0", "mlx5_core", rx_usecs="8", rx_frames="128"))
    for kind in TEMPLATES:
        valued = [row for row in kind.paper.rows if row.value is not None] if kind.paper is not None else []
        if valued:
            spec = spec_of(mlx5, kind.slug)
            results = published_by(spec, analyse(spec, 1, []))
            assert all(result.arms for result in results if result.value is not None)
    assert find_template("") is None


async def test_the_api_returns_templates_and_a_policy_makes_one_available(backend: Backend) -> None:
    async with policy_node(backend, kernel="6.12") as node:
        before = {each["slug"]: each for each in await node.get("experiment-templates")}
        assert "single NUMA node" in before["unas"]["unavailable_because"]
        assert before["m-n"]["spec"]["node_id"] == node.agent.node_id
        body = node.body(spec={"type": "network-process"}, mode="observe", name=f"beside {uuid4().hex[:8]}")
        policy = await created(node, body)
        after = {each["slug"]: each for each in await node.get("experiment-templates")}
        levels = after["few-interrupt-cores"]["spec"]["factors"][0]["levels"]
        assert levels[1]["policy"] == {"policy_id": policy["id"], "version": 1, "mode": "enforce"}
        preview = await asked(node.operator, "/api/v1/experiments/preview", {"spec": after["m-n"]["spec"]})
        assert preview["runs"] > 0
        own = await node.operator.get(f"{node.path}/experiment-templates?peer_node_id={node.agent.node_id}")
        assert own.status_code == 422
        absent = await node.operator.get(f"{node.path}/experiment-templates?peer_node_id=2000000")
        assert absent.status_code == 404
