import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fixtures.large_tree import LargeTree

from coresteer_agent.collect import irq as irq_module
from coresteer_agent.collect import netdev as netdev_module
from coresteer_agent.collect.irq import Movability, read_movable
from coresteer_agent.collect.netdev import Device, netdev_names, read_device
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.queues import QueueIrq, map_queues_to_irqs, parse_irq_name
from coresteer_agent.observe.sampler import Sampler
from coresteer_core.node.derive import derive_rates
from coresteer_core.node.inventory import Irq, Netdev
from coresteer_core.settings import IrqAffinity


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[LargeTree]:
    yield LargeTree(tmp_path / "machine", cpus=8, irqs=24, processes=5)


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


# The names of interrupts


@pytest.mark.parametrize(
    ("name", "netdev", "buses", "queues"),
    [
        ("eth0-TxRx-3", "eth0", [], ["rx-3", "tx-3"]),
        ("i40e-eth0-TxRx-12", "eth0", [], ["rx-12", "tx-12"]),
        ("ens5-Tx-Rx-3", "ens5", [], ["rx-3", "tx-3"]),
        ("eth0-rx-3", "eth0", [], ["rx-3"]),
        ("eth0-tx-0", "eth0", [], ["tx-0"]),
        ("eth0-fp-2", "eth0", [], ["rx-2", "tx-2"]),
        ("eth0-1", "eth0", [], ["rx-1", "tx-1"]),
        ("mlx5_comp3@pci:0000:3b:00.0", "eth0", ["0000:3b:00.0"], ["rx-3", "tx-3"]),
        ("mlx5_async0@pci:0000:3b:00.0", "eth0", ["0000:3b:00.0"], []),
        ("virtio2-input.0", "eth0", ["virtio2", "0000:00:03.0"], ["rx-0"]),
        ("virtio2-output.1", "eth0", ["virtio2", "0000:00:03.0"], ["tx-1"]),
        ("virtio2-config", "eth0", ["virtio2", "0000:00:03.0"], []),
        ("ehci_hcd:usb1, eth0-rx-1", "eth0", [], ["rx-1"]),
        ("eth0", "eth0", [], ["*"]),
    ],
)
def test_the_name_of_an_interrupt_tells_its_queues(name: str, netdev: str, buses: list[str], queues: list[str]) -> None:
    assert parse_irq_name(name, netdev, buses) == (True, queues)


@pytest.mark.parametrize("name", ["eth01-rx-3", "veth0-rx-3", "virtio20-input.0", "nvme0q5", "", "ACPI:Ged"])
def test_a_name_that_only_resembles_a_netdev_is_not_its(name: str) -> None:
    assert parse_irq_name(name, "eth0", ["virtio2", "0000:00:03.0"]) == (False, [])


DEVICE = Device("eth0", "x", None, None, None, True, ["0000:3b:00.0"])


def test_netlink_goes_before_msi_irqs_and_msi_irqs_before_names() -> None:
    found = map_queues_to_irqs(
        DEVICE,
        ["rx-0", "rx-1", "rx-2", "tx-0"],
        {40: "eth0-rx-0", 41: "eth0-rx-1", 42: "eth0-rx-2", 43: "gve-tx-0"},
        frozenset({41, 43}),
        {"rx-0": QueueIrq(77, "netlink", 5), "tx-0": QueueIrq(None, None, 6)},
    )
    assert found.queues == {
        "rx-0": QueueIrq(77, "netlink", 5),
        "rx-1": QueueIrq(41, "msi_irqs"),
        "rx-2": QueueIrq(42, "name"),
        "tx-0": QueueIrq(43, "msi_irqs", 6),
    }
    assert found.irqs == {40, 41, 42, 43, 77}


def test_a_queue_that_the_netdev_does_not_have_is_not_made_up() -> None:
    assert map_queues_to_irqs(DEVICE, ["rx-0"], {40: "eth0-TxRx-9"}, frozenset(), {}).queues == {
        "rx-0": QueueIrq(None, None)
    }


def test_the_only_interrupt_of_an_old_netdev_serves_all_its_queues() -> None:
    found = map_queues_to_irqs(DEVICE, ["rx-0", "tx-0"], {19: "eth0"}, frozenset(), {})
    assert {q.irq for q in found.queues.values()} == {19}


def test_beside_interrupts_of_queues_the_one_with_the_netdevs_own_name_is_for_its_link() -> None:
    names = {55: "eth0", 56: "eth0-TxRx-0", 57: "eth0-TxRx-1"}
    found = map_queues_to_irqs(DEVICE, ["rx-0", "rx-1", "tx-0", "tx-1"], names, frozenset(names), {})
    assert {name: q.irq for name, q in found.queues.items()} == {"rx-0": 56, "rx-1": 57, "tx-0": 56, "tx-1": 57}
    assert found.irqs == {55, 56, 57}


# Movable or not


def test_a_file_without_write_permission_is_a_managed_interrupt(tmp_path: Path) -> None:
    write(tmp_path, "proc/irq/36/smp_affinity_list", "0-1\n")
    (tmp_path / "proc/irq/36/smp_affinity_list").chmod(0o444)
    found = read_movable(tmp_path, 36)
    assert found.movable is False
    assert found.reason is not None and "managed" in found.reason


@pytest.mark.parametrize(
    ("state", "movable"),
    [
        ("dstate:\n IRQD_AFFINITY_MANAGED\n", False),
        ("dstate:\n IRQD_NO_BALANCING\n", False),
        ("dstate:\n IRQD_PER_CPU\n", False),
        ("dstate:\n", None),
    ],
)
def test_debugfs_names_interrupts_that_stay_and_never_means_yes(
    state: str, movable: bool | None, tmp_path: Path
) -> None:
    write(tmp_path, "proc/irq/36/smp_affinity_list", "0-1\n")
    write(tmp_path, "sys/kernel/debug/irq/irqs/36", state)
    assert read_movable(tmp_path, 36).movable is movable


def test_an_interrupt_that_could_not_be_written_is_locked_from_then_on(
    tree: LargeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = InventoryReader(tree.root)
    assert known(reader.read().irq(44)).movable is None
    monkeypatch.setattr(irq_module, "read_movable", lambda *_: Movability(False, "The kernel refused."))
    reader.reread([IrqAffinity(44)])
    found = known(reader.read().irq(44))
    assert (found.movable, found.locked_reason) == (False, "The kernel refused.")


def test_in_a_captured_tree_a_writable_file_says_nothing_and_is_not_written(tmp_path: Path) -> None:
    write(tmp_path, "proc/irq/36/smp_affinity_list", "0-1\n")
    assert read_movable(tmp_path, 36) == Movability(None)
    assert (tmp_path / "proc/irq/36/smp_affinity_list").read_text() == "0-1\n"


def test_an_interrupt_without_the_file_is_not_known(tmp_path: Path) -> None:
    assert read_movable(tmp_path, 36) == Movability(None)


def test_an_interrupt_that_disappears_while_it_is_read_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(irq_module, "real_path", lambda root, path: tmp_path / path)
    assert read_movable(tmp_path, 36) == Movability(None)


@pytest.mark.parametrize(
    ("answer", "movable"),
    [(errno.EINVAL, True), (errno.EIO, False), (errno.EPERM, False), (errno.ENOMEM, None)],
)
def test_the_running_kernel_is_asked_with_a_text_that_cannot_be_parsed(
    answer: int, movable: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "proc/irq/36/smp_affinity_list", "0-1\n")
    written = []

    def kernel_write(fd: int, text: bytes) -> int:
        written.append(text)
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(irq_module, "is_running_kernel", lambda root: True)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "write", kernel_write)
    found = read_movable(tmp_path, 36)
    assert (found.movable, written) == (movable, [b"x"])
    assert (found.reason is not None) == (movable is False)


# Netdevs


def test_a_netdev_without_hardware_knows_little(tmp_path: Path) -> None:
    write(tmp_path, "sys/class/net/lo/mtu", "65536\n")
    write(tmp_path, "sys/class/net/lo/speed", "-1\n")
    write(tmp_path, "sys/class/net/bonding_masters", "\n")
    assert netdev_names(tmp_path) == ["lo"]
    assert read_device(tmp_path, "lo") == Device("lo", None, None, 65536, None, None, [])


def test_a_bond_names_the_netdevs_below_it(tmp_path: Path) -> None:
    write(tmp_path, "sys/class/net/bond0/queues/rx-0/rps_flow_cnt", "0\n")
    for name in ("eth1", "eth0"):
        write(tmp_path, f"sys/class/net/{name}/mtu", "1500\n")
        (tmp_path / f"sys/class/net/bond0/lower_{name}").symlink_to(f"../{name}")
        (tmp_path / f"sys/class/net/{name}/upper_bond0").symlink_to("../bond0")
    found = {netdev.name: netdev for netdev in InventoryReader(tmp_path).read().netdevs}
    assert {name: netdev.lower for name, netdev in found.items()} == {"bond0": ["eth0", "eth1"], "eth0": [], "eth1": []}
    assert (found["bond0"].driver, [queue.name for queue in found["bond0"].queues]) == (None, ["rx-0"])


def test_a_virtio_netdev_has_the_numa_node_and_interrupts_of_its_pci_function(tmp_path: Path) -> None:
    pci = "sys/devices/pci0000:00/0000:00:03.0"
    write(tmp_path, f"{pci}/numa_node", "1\n")
    write(tmp_path, f"{pci}/msi_irqs/38", "msix\n")
    write(tmp_path, f"{pci}/virtio2/net/eth0/queues/rx-0/rps_cpus", "3\n")
    write(tmp_path, f"{pci}/virtio2/net/eth0/speed", "1000\n")
    (tmp_path / f"{pci}/virtio2/net/eth0/device").symlink_to("../../../virtio2")
    (tmp_path / "sys/class/net").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0").symlink_to(f"../../../{pci}/virtio2/net/eth0")
    write(tmp_path, "proc/interrupts", "  CPU0\n 38:          5 PCI-MSIX-0000:00:03.0 1-edge virtio2-input.0\n")
    inventory = InventoryReader(tmp_path).read()
    (netdev,) = inventory.netdevs
    assert (netdev.numa_node, netdev.speed_bits_per_s, netdev.virtual) == (1, 1_000_000_000, False)
    assert [(q.name, q.irq, q.source, q.rps, q.xps) for q in netdev.queues] == [("rx-0", 38, "msi_irqs", "0-1", None)]
    (irq,) = inventory.irqs
    assert (irq.name, irq.netdev, irq.queues, irq.requested) == ("virtio2-input.0", "eth0", ["rx-0"], None)


# The whole, and how it is followed


def netdev(reader: InventoryReader, name: str) -> Netdev:
    return next(n for n in reader.read().netdevs if n.name == name)


def known(irq: Irq | None) -> Irq:
    assert irq is not None
    return irq


def test_an_empty_tree_has_an_empty_inventory(tmp_path: Path) -> None:
    inventory = InventoryReader(tmp_path).read()
    assert (inventory.netdevs, inventory.irqs, inventory.controllers) == ([], [], [])


def test_without_interrupts_the_folders_tell_which_there_are(tmp_path: Path) -> None:
    write(tmp_path, "proc/irq/41/smp_affinity_list", "0-3\n")
    write(tmp_path, "proc/irq/default_smp_affinity", "f\n")
    (irq,) = InventoryReader(tmp_path).read().irqs
    assert (irq.irq, irq.name, irq.requested, irq.effective) == (41, "", "0-3", None)


def test_the_inventory_of_a_machine_is_whole(tree: LargeTree) -> None:
    inventory = InventoryReader(tree.root).read()
    assert len(inventory.irqs) == 24
    assert [n.name for n in inventory.netdevs] == ["eth0", "eth1", "eth2", "eth3"]
    first = inventory.netdevs[0]
    assert (first.driver, first.management, first.numa_node) == ("mlx5_core", True, 0)
    assert [(q.name, q.irq) for q in first.queues] == [
        (f"{kind}-{n}", 41 + n) for kind in ("rx", "tx") for n in range(4)
    ]
    assert known(inventory.irq(41)).queues == ["rx-0", "tx-0"]
    assert known(inventory.irq(60)).movable is False


def test_the_same_object_comes_back_while_nothing_changes(tree: LargeTree) -> None:
    reader = InventoryReader(tree.root)
    first = reader.read()
    assert all(reader.read() is first for _ in range(65))


def test_an_interrupt_that_arrives_elsewhere_is_read_again_at_once(tree: LargeTree) -> None:
    reader, sampler = InventoryReader(tree.root), Sampler(tree.root)
    reader.read()
    before = sampler.sample()
    tree.move_irq(44, 7)
    tree.tick()
    inventory = reader.read(derive_rates(before, sampler.sample(), 1))
    assert (known(inventory.irq(44)).requested, known(inventory.irq(44)).effective) == ("7", "7")
    sampler.close()


def test_every_affinity_and_mask_is_read_again_within_twenty_calls(tree: LargeTree) -> None:
    reader = InventoryReader(tree.root)
    reader.read()
    tree.move_irq(44, 7)
    write(tree.root, "sys/class/net/eth2/queues/rx-1/rps_cpus", "c\n")
    write(tree.root, "sys/class/net/eth3/mtu", "1400\n")
    for _ in range(20):
        reader.read()
    assert known(reader.read().irq(44)).effective == "7"
    assert netdev(reader, "eth2").queues[1].rps == "2-3"
    assert netdev(reader, "eth3").mtu == 1400


def test_who_wrote_an_affinity_has_it_read_at_once(tree: LargeTree) -> None:
    reader = InventoryReader(tree.root)
    reader.read()
    tree.move_irq(44, 7)
    reader.reread([IrqAffinity(44), IrqAffinity(9999)])
    assert known(reader.read().irq(44)).requested == "7"


def test_an_interrupt_that_is_new_in_the_rates_is_looked_up(tree: LargeTree) -> None:
    reader, sampler = InventoryReader(tree.root), Sampler(tree.root)
    reader.read()
    before = sampler.sample()
    text = (tree.root / "proc/interrupts").read_text()
    cells = "".join(f" {n:10d}" for n in range(8))
    write(tree.root, "proc/irq/99/smp_affinity_list", "1\n")
    write(tree.root, "proc/interrupts", text + f"  99:{cells} IO-APIC 5-edge      new\n")
    assert known(reader.read(derive_rates(before, sampler.sample(), 1)).irq(99)).name == "new"
    sampler.close()


def test_a_number_that_went_to_another_device_is_found_out_anew(tree: LargeTree) -> None:
    reader = InventoryReader(tree.root)
    assert known(reader.read().irq(60)).movable is False
    text = (tree.root / "proc/interrupts").read_text()
    name = known(reader.read().irq(60)).name
    write(tree.root, "proc/interrupts", text.replace(name, "other"))
    (tree.root / "proc/irq/60/smp_affinity_list").chmod(0o644)
    reader.rescan()
    assert (known(reader.read().irq(60)).name, known(reader.read().irq(60)).movable) == ("other", None)


def test_an_inventory_that_an_error_ended_is_read_again_at_once(
    tree: LargeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = InventoryReader(tree.root)
    reader.read()
    (tree.root / "sys/class/net/eth3").unlink()
    reader.rescan()
    with monkeypatch.context() as patch:
        patch.setattr(netdev_module, "netdev_names", lambda _: [*Path("/nowhere").iterdir()])
        with pytest.raises(FileNotFoundError):
            reader.read()
    assert [n.name for n in reader.read().netdevs] == ["eth0", "eth1", "eth2"]


def test_a_netdev_that_is_unplugged_goes_with_its_queues(tree: LargeTree) -> None:
    reader = InventoryReader(tree.root)
    reader.read()
    (tree.root / "sys/class/net/eth3").unlink()
    reader.rescan()
    inventory = reader.read()
    assert [n.name for n in inventory.netdevs] == ["eth0", "eth1", "eth2"]
    assert all(irq.netdev != "eth3" for irq in inventory.irqs)
    assert all(reader.read() is inventory for _ in range(25))


def test_the_default_route_stands_in_until_the_netdev_of_the_connection_is_known(tree: LargeTree) -> None:
    reader = InventoryReader(tree.root)

    def management() -> list[str]:
        return [netdev.name for netdev in reader.read().netdevs if netdev.management]

    assert management() == ["eth0"]
    reader.management = frozenset({"eth2"})
    assert management() == ["eth2"]
    reader.management = frozenset()
    assert management() == []


def test_a_file_that_makes_no_sense_is_none_and_logged_once(tree: LargeTree, caplog: pytest.LogCaptureFixture) -> None:
    write(tree.root, "proc/irq/44/effective_affinity_list", "3-1\n")
    reader = InventoryReader(tree.root)
    for _ in range(45):
        inventory = reader.read()
    assert known(inventory.irq(44)).effective is None
    assert [r for r in caplog.messages if "proc/irq/44" in r] == [
        "proc/irq/44/effective_affinity_list: It cannot be parsed. Line 1: The range 3-1 runs backwards; write 1-3."
    ]
    assert inventory.dropped_rows == {
        "proc/irq/*/effective_affinity_list": "It cannot be parsed. Line 1: The range 3-1 runs backwards; write 1-3."
    }


def test_a_row_that_the_sampler_drops_is_in_the_inventory_until_it_is_gone(tree: LargeTree) -> None:
    reader, sampler = InventoryReader(tree.root), Sampler(tree.root)
    path = tree.root / "proc/interrupts"
    whole = path.read_text()
    before = sampler.sample().interrupts
    assert before is not None
    assert reader.read().dropped_rows == {}
    path.write_text(whole.replace("\n", "\n\n", 1))
    after = sampler.sample().interrupts
    assert after is not None
    assert after.rows == before.rows
    (sentence,) = reader.read().dropped_rows.values()
    assert sentence.startswith("1 row is dropped. Line 2: ")
    path.write_text(whole)
    sampler.sample()
    assert reader.read().dropped_rows == {}
    sampler.close()


def test_controllers_are_found_by_name(tree: LargeTree) -> None:
    write(tree.root, "proc/77/comm", "irqbalance\n")
    write(tree.root, "proc/78/comm", "tuned-ppd\n")
    assert InventoryReader(tree.root).read().controllers == ["irqbalance"]


@pytest.mark.parametrize(
    ("state", "named"),
    [
        (None, []),
        ('{"policyName":"none","defaultCpuSet":"","checksum":1353318690}', []),
        ('{"policyName":"static","defaultCpuSet":"0-1","entries":{"a":{"b":"2-3"}},"checksum":1}', ["kubelet"]),
        ('{"policyName":', []),
        ("[]", []),
    ],
)
def test_kubelet_is_a_controller_where_its_cpu_manager_is_static(
    state: str | None, named: list[str], tmp_path: Path
) -> None:
    write(tmp_path, "proc/77/comm", "kubelet\n")
    if state is not None:
        write(tmp_path, "var/lib/kubelet/cpu_manager_state", state)
    assert InventoryReader(tmp_path).read().controllers == named


def test_a_changed_nice_value_of_ksoftirqd_is_a_condition_of_the_machine(tmp_path: Path) -> None:
    stat = "{} (ksoftirqd/{}) S 2 0 0 0 -1 {} 0 0 0 0 0 0 0 0 20 {} 1 0 9 0 0" + " 0" * 30 + "\n"
    for pid, (cpu, flags, nice) in enumerate(
        [(0, 0x208040, -10), (1, 0x208040, 0), (2, 0x208040, -10), (3, 0x40, 5), (0, 0x40, 0)], 16
    ):
        write(tmp_path, f"proc/{pid}/comm", f"ksoftirqd/{cpu}\n")
        write(tmp_path, f"proc/{pid}/stat", stat.format(pid, cpu, flags, nice))
    assert InventoryReader(tmp_path).read().conditions == {"ksoftirqd": "nice -10 on CPUs 0,2"}
    for pid in (16, 18):
        write(tmp_path, f"proc/{pid}/stat", stat.format(pid, pid - 16, 0x208040, 0))
    assert InventoryReader(tmp_path).read().conditions == {}
