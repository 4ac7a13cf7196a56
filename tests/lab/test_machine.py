"""Topology and inventory as read by the agent in a guest, compared with other programs."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.lab.machines import PEER
from tests.lab.rig import Guest


def topology(guest: Guest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(guest.run("coresteer-agent", "topology").stdout)
    return found


def netdevs(guest: Guest, *, netns: str | None = None) -> dict[str, dict[str, Any]]:
    """Return netdevs by name, as an agent in the namespace would read them."""
    enter = ("ip", "netns", "exec", netns) if netns else ()
    said = guest.run(*enter, "python", "-m", "tests.lab.probe", "inventory").stdout
    return {n["name"]: n for n in json.loads(said)["netdevs"]}


def test_cpus_cores_packages_and_nodes_are_those_of_lscpu(guest: Guest) -> None:
    rows = [line.split(",") for line in guest.run("lscpu", "--parse=CPU,CORE,SOCKET,NODE").stdout.splitlines()]
    lscpu = {int(row[0]): tuple(map(int, row[1:])) for row in rows if not row[0].startswith("#")}
    assert len(lscpu) == guest.machine.cpus
    ours = {c["cpu"]: (c["core"], c["package"], c["numa_node"]) for c in topology(guest)["cpus"]}
    assert {cpu: at[1:] for cpu, at in ours.items()} == {cpu: at[1:] for cpu, at in lscpu.items()}
    assert together(ours) == together(lscpu)  # lscpu numbers cores anew


def together(places: Mapping[int, Sequence[int]]) -> set[frozenset[int]]:
    """Return the sets of CPUs that share a core."""
    return {frozenset(cpu for cpu, at in places.items() if at[0] == core) for core, *_ in places.values()}


def test_shared_caches_are_those_of_lscpu(guest: Guest) -> None:
    lscpu = [
        line.split() for line in guest.run("lscpu", "--caches=NAME,COHERENCY-SIZE,TYPE,LEVEL").stdout.splitlines()[1:]
    ]
    levels = {(int(level), kind) for _, _, kind, level in lscpu}
    caches = topology(guest)["caches"]
    assert {(c["level"], c["type"]) for c in caches} == levels
    assert sum(c["level"] == 3 for c in caches) == guest.machine.packages
    assert sum(c["level"] == 2 for c in caches) == guest.machine.packages * guest.machine.cores


def test_nodes_memory_and_distances_are_those_of_numactl(guest: Guest) -> None:
    said = guest.run("numactl", "--hardware").stdout
    cpus = {int(n): set(map(int, c.split())) for n, c in re.findall(r"^node (\d+) cpus: (.*)$", said, re.MULTILINE)}
    sizes = {int(n): int(size) for n, size in re.findall(r"^node (\d+) size: (\d+) MB$", said, re.MULTILINE)}
    distances = {int(n): list(map(int, d.split())) for n, d in re.findall(r"^ +(\d+): +(.*)$", said, re.MULTILINE)}
    nodes = {node["id"]: node for node in topology(guest)["numa_nodes"]}
    assert len(nodes) == guest.machine.numa_nodes
    of_cpu = {c["cpu"]: c["numa_node"] for c in topology(guest)["cpus"]}
    assert {n: {c for c, at in of_cpu.items() if at == n} for n in nodes} == cpus
    assert {n: node["memory_bytes"] >> 20 for n, node in nodes.items()} == sizes
    assert {n: node["distances"] for n, node in nodes.items()} == distances


@pytest.mark.parametrize(
    ("netdev", "driver", "queue", "irq_name"),
    [
        (("two_socket", None, "eth0"), "igb", "rx-3", "eth0-TxRx-3"),
        (("two_socket", None, "eth1"), "igb", "tx-5", "eth1-TxRx-5"),
        (("two_socket", PEER, "eth2"), "e1000e", "rx-0", "eth2-rx-0"),
        (("small_vm", None, "eth1"), "e1000e", "tx-0", "eth1-tx-0"),
        (("small_vm", None, "eth0"), "virtio_net", "rx-0", r"virtio\d+-input.0"),
        (("small_vm", PEER, "eth2"), "vmxnet3", "rx-2", "eth2-rxtx-2"),
        (("small_vm", PEER, "eth2"), "vmxnet3", "tx-2", "eth2-rxtx-2"),
    ],
)
def test_each_driver_reports_the_interrupts_of_queues(
    request: pytest.FixtureRequest, netdev: tuple[str, str | None, str], driver: str, queue: str, irq_name: str
) -> None:
    machine, netns, name = netdev
    guest: Guest = request.getfixturevalue(machine)
    found = netdevs(guest, netns=netns)[name]
    assert found["driver"] == driver
    interrupts = guest.read("/proc/interrupts")
    expected = [int(n) for n in re.findall(rf"^ *(\d+):.* {irq_name}$", interrupts, re.MULTILINE)]
    [served] = [q for q in found["queues"] if q["name"] == queue]
    assert served["irq"] in expected
    assert served["source"] in {"netlink", "msi_irqs"}


def test_every_queue_of_every_netdev_has_an_interrupt_of_its_own_kind(guest: Guest) -> None:
    for netdev in netdevs(guest).values():
        if netdev["virtual"]:
            continue
        irqs = [q["irq"] for q in netdev["queues"] if q["name"].startswith("rx-")]
        assert None not in irqs, netdev
        assert len(set(irqs)) == len(irqs), netdev


def test_a_nic_on_a_numa_nodes_bridge_is_on_that_node(two_socket: Guest) -> None:
    found = netdevs(two_socket)
    assert [found[name]["numa_node"] for name in ("eth0", "eth1")] == [0, 1]


def test_a_nic_on_the_main_bridge_is_on_no_node(small_vm: Guest) -> None:
    assert netdevs(small_vm)["eth1"]["numa_node"] is None
