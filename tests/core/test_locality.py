"""Bytes by the distance between the CPU that handles them and the process that reads them."""

import pytest
from hypothesis import given
from msgspec import to_builtins
from tests.core.policy_machines import Machine, machines
from tests.support.views import make_topology

from coresteer_core.changes.distance_effect import predict_distance
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.metrics import COUNTER_SOURCES
from coresteer_core.node.inventory import Inventory, Irq
from coresteer_core.node.locality import TrafficDistance, bytes_by_distance, distance_counters
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.topology import Cache
from coresteer_core.node.view import View

TOPOLOGY = make_topology(packages=2, nodes_per_package=1, cores_per_node=4, threads=2)
"""CPUs 0-3 and their siblings 8-11 on node 0, 4-7 and 12-15 on node 1."""
EVERYWHERE = "0-15"


def received(cpu: int | None, how: str | None = "rss", *, rfs: bool = False, irq: int | None = 41) -> RxPlacement:
    return RxPlacement("eth0", "rx-0", irq, cpu, how, 1, 90.0, 10.0, rfs)


def reader(*rx_placements: RxPlacement, cpu: int = 0, affinity: str = EVERYWHERE, threads: int = 1) -> NetTask:
    return NetTask(812, 1, "nginx", None, threads, affinity, EVERYWHERE, cpu, 0.1, 0.0, list(rx_placements))


def where(found: TrafficDistance) -> tuple[str, str]:
    """The one class of the polling and of the protocol work."""
    polling, protocol = (
        [name for name, per_s in to_builtins(each).items() if per_s] for each in (found.polling, found.protocol)
    )
    assert len(polling) == len(protocol) == 1
    return polling[0], protocol[0]


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (reader(received(0)), ("core", "core")),
        (reader(received(8)), ("core", "core")),
        (reader(received(3)), ("l3", "l3")),
        (reader(received(4)), ("remote", "remote")),
        (reader(received(None, None)), ("unknown", "unknown")),
        (reader(received(99)), ("unknown", "unknown")),
        (reader(received(5, rfs=True), cpu=2), ("remote", "core")),
        (reader(received(1, "rps"), cpu=1), ("unknown", "core")),
        (reader(received(5), affinity="4-5", threads=2), ("core", "core")),
        (reader(received(5), affinity="4-5", threads=1, cpu=4), ("l3", "l3")),
        (reader(received(5), affinity=EVERYWHERE, threads=64), ("remote", "remote")),
    ],
)
def test_each_class_of_distance_is_told_apart(task: NetTask, expected: tuple[str, str]) -> None:
    found = bytes_by_distance([task], TOPOLOGY)
    assert where(found) == expected
    assert found.polling.total == found.protocol.total == 100.0


def test_an_l2_of_several_cores_and_a_node_without_a_shared_cache_are_classes_of_their_own() -> None:
    clusters = make_topology(packages=1, nodes_per_package=1, cores_per_node=6, threads=1)
    shared = [Cache(2, "Unified", 1 << 20, "0-1"), Cache(3, "Unified", 1 << 25, "0-3")]
    clusters = type(clusters)(clusters.cpus, clusters.numa_nodes, shared)
    for cpu, name in ((1, "l2"), (2, "l3"), (5, "node")):
        assert where(bytes_by_distance([reader(received(cpu), affinity="0-5")], clusters)) == (name, name)


def test_with_rps_the_queues_interrupt_tells_which_cpu_polls() -> None:
    irq = Irq(41, "eth0-rx-0", "PCI-MSI", "4", "4", 1, True)
    found = bytes_by_distance([reader(received(0, "rps"))], TOPOLOGY, Inventory([], [irq]))
    assert where(found) == ("remote", "core")


def test_the_shared_l2_is_of_the_known_bytes_only() -> None:
    mixed = reader(received(0), received(4), received(None, None))
    assert bytes_by_distance([mixed], TOPOLOGY).protocol.shared_l2 == 0.5
    assert bytes_by_distance([reader(received(None, None))], TOPOLOGY).protocol.shared_l2 is None
    assert bytes_by_distance([], TOPOLOGY).protocol.shared_l2 is None


def test_the_bytes_of_an_interval_are_counters_of_metrics() -> None:
    found = bytes_by_distance([reader(received(5, rfs=True), cpu=2)], TOPOLOGY, sent=False)
    counters = distance_counters(found, 2.0)
    assert {name: count for name, count in counters.items() if count} == {
        "rx_bytes_core": 180,
        "polled_bytes_remote": 180,
    }
    assert counters.keys() == {name for name, source in COUNTER_SOURCES.items() if not source.path}


@pytest.mark.parametrize(("duration_s", "expected"), [(0.04, 4), (0.26, 23), (1.04, 90)])
def test_only_durations_of_a_second_or_more_are_rounded(duration_s: float, expected: int) -> None:
    found = bytes_by_distance([reader(received(5, rfs=True), cpu=2)], TOPOLOGY, sent=False)
    assert distance_counters(found, duration_s)["rx_bytes_core"] == expected


def test_a_preview_tells_how_near_each_process_gets_its_packets() -> None:
    irq = Irq(41, "eth0-rx-0", "PCI-MSI", "4", "4", 1, True)
    far, near = reader(received(4)), reader(received(None, None))
    view = View(TOPOLOGY, Inventory([], [irq]), tasks=[near, far])
    assert predict_distance(Plan([Action("irq/41/affinity", "4", "8", "")]), view) == [
        "nginx (812): 0 % → 100 % of its received bytes get their protocol work on a core or L2 that it shares; "
        "polling 0 % → 100 %."
    ]
    assert predict_distance(Plan([Action("irq/41/affinity", "4", "4-5", "")]), view) == []
    many = View(TOPOLOGY, Inventory([], [irq]), tasks=[far] * 10)
    assert predict_distance(Plan([Action("irq/41/affinity", "4", "8", "")]), many)[8:] == ["And 2 more processes."]


@given(machine=machines(max_cpus=16))
def test_no_byte_is_lost_on_any_machine(machine: Machine) -> None:
    view = machine.view
    found = bytes_by_distance(view.tasks, view.topology, view.inventory)
    total = sum(each.bytes_per_s for task in view.tasks for each in task.rx_placements)
    assert found.polling.total == pytest.approx(total)
    assert found.protocol.total == pytest.approx(total)
