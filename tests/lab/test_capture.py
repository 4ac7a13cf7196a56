"""A guest's /proc and /sys, captured by the product's command and read here."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.lab.rig import Guest

from coresteer_agent.collect.topology import read_topology
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.sampler import Sampler
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.topology import Topology


@pytest.fixture(scope="module")
def trees() -> dict[str, Path]:
    """Return the captured tree by machine."""
    return {}


@pytest.fixture
def tree(guest: Guest, trees: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = guest.machine.name
    if name not in trees:
        guest.run("coresteer-agent", "capture", "/tmp/tree")
        guest.run("tar", "-C", "/tmp", "-cf", "/run/share/tree.tar", "tree")
        trees[name] = tmp_path_factory.mktemp(name)
        subprocess.run(["tar", "-C", trees[name], "-xf", guest.share / "tree.tar"], check=True)
    return trees[name] / "tree"


def test_a_captured_guest_is_read_as_in_the_guest(guest: Guest, tree: Path) -> None:
    there = msgspec.json.decode(guest.run("coresteer-agent", "topology").stdout, type=Topology)
    assert read_topology(tree) == there
    inventory = InventoryReader(tree).read()
    live = msgspec.json.decode(guest.python("tests.lab.probe", "inventory").stdout, type=Inventory)
    assert inventory.netdevs == [replace(netdev, addresses=[]) for netdev in live.netdevs]  # which are personal
    assert [(i.irq, i.name, i.requested, i.numa_node, i.queues) for i in inventory.irqs] == [
        (i.irq, i.name, i.requested, i.numa_node, i.queues) for i in live.irqs
    ]
    # a tree cannot be asked whether it would take an affinity, so what may be moved is not known; what may not, is
    assert {i.irq for i in inventory.irqs if i.movable is False} == {i.irq for i in live.irqs if i.movable is False}


def test_a_captured_guest_gives_a_whole_sample(guest: Guest, tree: Path) -> None:
    sampler = Sampler(tree)
    sample = sampler.sample()
    sampler.close()
    assert sample.interrupts is not None
    assert len(sample.interrupts.cpus) == guest.machine.cpus
    assert sample.softnet is not None
    assert sample.netdevs is not None


def test_a_captured_tree_contains_no_secrets(guest: Guest, tree: Path) -> None:
    addresses = [address.split("/")[0] for nic in guest.machine.nics for address in nic.addresses]
    secrets = [guest.machine.name, "52:54:00", *addresses, guest.read("/proc/sys/kernel/random/boot_id")]
    found = [
        (secret, path)
        for path in tree.rglob("*")
        if path.is_file() and not path.is_symlink()
        for secret in secrets
        if secret.encode() in path.read_bytes()
    ]
    assert found == []
    assert str(sys.executable).encode() not in b"".join(p.read_bytes() for p in tree.glob("proc/[0-9]*/*"))
