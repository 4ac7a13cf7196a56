"""A capture is what the collectors read, gives them the same again, and holds no secret."""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.fixtures.large_tree import LargeTree
from tests.fixtures.machines import unpack

from coresteer_agent.__main__ import main
from coresteer_agent.capture import MANIFEST, capture
from coresteer_agent.collect import irq as irq_module
from coresteer_agent.collect import netdev as netdev_module
from coresteer_agent.collect.files import names, record_requested_paths
from coresteer_agent.collect.tasks import TaskScanner
from coresteer_agent.collect.topology import read_topology
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.netdev_settings import ETHTOOL_PATH
from coresteer_agent.observe.queues import NETLINK_PATH
from coresteer_agent.observe.sampler import Sampler
from coresteer_core.node.derive import Sample

MACHINE = Path("/")


@pytest.fixture
def tree(tmp_path: Path) -> LargeTree:
    tree = LargeTree(tmp_path / "machine", cpus=8, irqs=24, processes=5)
    write(tree.root, "proc/sys/kernel/osrelease", "6.12.0\n")
    return tree


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def captured(root: Path, name: str = "capture") -> Path:
    folder = root.parent / name
    folder.mkdir()
    capture(root, folder)
    return folder


def sample(root: Path) -> Sample:
    sampler = Sampler(root)
    try:
        return msgspec.structs.replace(sampler.sample(), time_ms=0, monotonic_s=0.0, self_usage=None)
    finally:
        sampler.close()


def entries(root: Path) -> dict[str, tuple[int, bytes | str]]:
    """Kind, mode and text of everything but the manifest, which tells of what the source did not."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        text = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (mode, text)
    del found[MANIFEST]
    return found


# The same again


def test_the_collectors_find_in_a_capture_what_they_found_on_the_machine(tree: LargeTree) -> None:
    folder = captured(tree.root)
    assert read_topology(folder) == read_topology(tree.root)
    assert sample(folder) == sample(tree.root)
    inventory = InventoryReader(folder).read()
    assert inventory == InventoryReader(tree.root).read()
    assert {netdev.driver for netdev in inventory.netdevs} == {"mlx5_core"}
    assert [netdev.name for netdev in inventory.netdevs if netdev.management] == ["eth0"]


@pytest.mark.parametrize("machine", ["96em64t-4no4pa3ca2co", "16em64t-4s2c2t-offlines", "256ppc-8n8s4t"])
def test_a_real_machines_topology_is_the_same_in_its_capture(machine: str, tmp_path: Path) -> None:
    root = unpack(machine, tmp_path)
    assert read_topology(captured(root)) == read_topology(root)


def test_a_capture_of_a_capture_is_equal(tree: LargeTree) -> None:
    write(tree.root, NETLINK_PATH, '{"2":{"rx-0":{"irq":41,"source":"netlink","napi_id":5}}}')
    write(tree.root, ETHTOOL_PATH, '{"eth0":{"params":{"coalesce/rx-usecs":"3"},"queues":{"rx-0":{}}}}')
    first = captured(tree.root)
    second = captured(first, "again")
    assert entries(second) == entries(first)
    assert any(path.endswith("msi_irqs/41") for path in entries(first))


def test_a_virtio_netdevs_interrupts_are_found_above_its_device(tmp_path: Path) -> None:
    root, function = tmp_path / "machine", "sys/devices/pci0000:00/0000:00:03.0"
    write(root, f"{function}/msi_irqs/25", "msix\n")
    write(root, f"{function}/numa_node", "1\n")
    write(root, f"{function}/virtio2/net/eth0/queues/rx-0/rps_cpus", "3\n")
    write(root, f"{function}/virtio2/net/eth0/address", "52:54:00:12:34:56\n")
    write(root, "sys/bus/virtio/drivers/virtio_net/uevent", "")
    write(root, "proc/interrupts", "     CPU0\n 25:  1 PCI-MSIX-0000:00:03.0 1-edge virtio2-input.0\n")
    (root / "sys/class/net").mkdir(parents=True)
    (root / "sys/class/net/eth0").symlink_to(f"../../../{function}/virtio2/net/eth0")
    (root / f"{function}/virtio2/net/eth0/device").symlink_to("../..")
    (root / f"{function}/virtio2/driver").symlink_to("../../../../bus/virtio/drivers/virtio_net")
    folder = captured(root)
    (netdev,) = InventoryReader(folder).read().netdevs
    assert [netdev] == InventoryReader(root).read().netdevs
    assert (netdev.driver, netdev.numa_node, netdev.queues[0].irq, netdev.queues[0].source) == (
        "virtio_net",
        1,
        25,
        "msi_irqs",
    )
    assert not any("address" in path for path in entries(folder))


def test_the_netdevs_below_a_bond_are_in_the_capture(tmp_path: Path) -> None:
    root = tmp_path / "machine"
    for name in ("bond0", "eth0", "eth1"):
        write(root, f"sys/class/net/{name}/address", "52:54:00:12:34:56\n")
    for name in ("eth0", "eth1"):
        (root / f"sys/class/net/bond0/lower_{name}").symlink_to(f"../{name}")
    folder = captured(root)
    assert [netdev.lower for netdev in InventoryReader(folder).read().netdevs] == [["eth0", "eth1"], [], []]
    assert not any("address" in path for path in entries(folder))


def test_netlinks_queues_are_in_the_capture(tree: LargeTree) -> None:
    write(tree.root, NETLINK_PATH, '{"2":{"rx-0":{"irq":63,"source":"netlink","napi_id":8193}}}')
    queue = InventoryReader(captured(tree.root)).read().netdevs[0].queues[0]
    assert (queue.name, queue.irq, queue.source, queue.napi_id) == ("rx-0", 63, "netlink", 8193)


@pytest.mark.parametrize(
    "text",
    ["[]", "{", "\xff", '{"x":{}}', '{"2":{"rx-0":{"irq":-1,"source":null}}}', '{"2":{"rx-0":{"irq":99999999999}}}'],
)
def test_an_invalid_netlink_file_is_logged_and_names_are_used(
    text: str, tree: LargeTree, caplog: pytest.LogCaptureFixture
) -> None:
    expected = InventoryReader(tree.root).read()
    (tree.root / NETLINK_PATH).write_bytes(text.encode("latin-1"))
    assert replace(InventoryReader(tree.root).read(), dropped_rows={}) == expected
    assert [message for message in caplog.messages if message.startswith(NETLINK_PATH)]


def test_an_interrupt_that_the_kernel_refused_to_move_is_read_only_in_the_capture(
    tree: LargeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(irq_module, "read_movable", lambda root, number: irq_module.Movability(number != 44, "Refused."))
        patch.setattr(irq_module, "is_running_kernel", lambda root: root == tree.root)
        folder = captured(tree.root)
    locked = {found.irq for found in InventoryReader(folder).read().irqs if found.movable is False}
    managed = {found.irq for found in InventoryReader(tree.root).read().irqs if found.movable is False}
    assert managed
    assert locked == managed | {44}


def test_the_running_machines_capture_equals_the_machine(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    folder.mkdir()
    capture(MACHINE, folder)
    assert read_topology(folder) == read_topology(MACHINE)
    now, then = InventoryReader(MACHINE).read(), InventoryReader(folder).read()
    assert then.netdevs == [replace(netdev, addresses=[]) for netdev in now.netdevs]  # which are personal
    assert [(i.irq, i.name, i.chip, i.numa_node, i.netdev, i.queues) for i in then.irqs] == [
        (i.irq, i.name, i.chip, i.numa_node, i.netdev, i.queues) for i in now.irqs
    ]
    live, kept = sample(MACHINE), sample(folder)
    assert live.interrupts and kept.interrupts and kept.interrupts.rows.keys() == live.interrupts.rows.keys()
    assert (kept.cpus, kept.times and kept.times.keys()) == (live.cpus, live.times and live.times.keys())


# What is in it

OPENED = """
import sys
from pathlib import Path

from coresteer_agent import print_json
from coresteer_agent.runtime import identity
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.collect.tasks import TaskScanner
from coresteer_agent.collect.topology import read_topology, is_topology_current

root = Path(sys.argv[1])
opened = set()

def note(event, args):
    if event in ("open", "os.listdir", "os.scandir") and str(args[0]).startswith(f"{root}/"):
        opened.add(str(args[0]))

sys.addaudithook(note)
print_json.sample_json(root)
is_topology_current(root, read_topology(root))
reader = InventoryReader(root)
for _ in range(40):
    reader.read()
TaskScanner(root).scan()
identity.make_hello(root, 1.0, identity.observe_reason(root))
print("\\n".join(opened))
"""


def test_every_file_that_the_agent_opens_is_in_its_capture(tree: LargeTree) -> None:
    folder = captured(tree.root)
    run = subprocess.run(
        [sys.executable, "-c", OPENED, tree.root], capture_output=True, text=True, timeout=60, check=True
    )
    opened = {Path(line).relative_to(tree.root) for line in run.stdout.splitlines() if Path(line).exists()}
    assert len(opened) > 100
    for path in opened:
        assert (folder / path).is_dir() == (tree.root / path).is_dir(), path
        assert (
            (folder / path).is_dir()
            or (folder / path).stat().st_size == (tree.root / path).stat().st_size
            or (re.match(r"proc/(\d+/stat|\d+/comm|net/route)$", str(path)))
        ), path


KINDS = """
ethtool.json
netlink-queues.json
proc/N/comm
proc/N/stat
proc/interrupts
proc/irq/N/effective_affinity_list
proc/irq/N/node
proc/irq/N/smp_affinity_list
proc/net/dev
proc/net/netstat
proc/net/route
proc/net/snmp
proc/net/softnet_stat
proc/softirqs
proc/stat
proc/sys/kernel/osrelease
sys/devices/pciN:Na/N:N:N.N/net/ethN/flags
sys/devices/pciN:Na/N:N:N.N/net/ethN/gro_flush_timeout
sys/devices/pciN:Na/N:N:N.N/net/ethN/ifindex
sys/devices/pciN:Na/N:N:N.N/net/ethN/mtu
sys/devices/pciN:Na/N:N:N.N/net/ethN/napi_defer_hard_irqs
sys/devices/pciN:Na/N:N:N.N/net/ethN/queues/rx-N/rps_cpus
sys/devices/pciN:Na/N:N:N.N/net/ethN/queues/tx-N/xps_cpus
sys/devices/pciN:Na/N:N:N.N/net/ethN/speed
sys/devices/pciN:Na/N:N:N.N/numa_node
sys/devices/system/cpu/cpuN/cache/indexN/level
sys/devices/system/cpu/cpuN/cache/indexN/shared_cpu_list
sys/devices/system/cpu/cpuN/cache/indexN/size
sys/devices/system/cpu/cpuN/cache/indexN/type
sys/devices/system/cpu/cpuN/topology/core_cpus_list
sys/devices/system/cpu/cpuN/topology/physical_package_id
sys/devices/system/cpu/isolated
sys/devices/system/cpu/nohz_full
sys/devices/system/cpu/online
sys/devices/system/cpu/present
sys/devices/system/node/nodeN/cpulist
sys/devices/system/node/nodeN/distance
sys/devices/system/node/nodeN/meminfo
sys/kernel/debug/irq/irqs/N
"""


def test_new_kinds_of_files_in_a_capture_are_reviewed_for_secrets(tree: LargeTree) -> None:
    """Whoever makes a collector read something new adds it here, and to capture._without_secrets if need be."""
    write(tree.root, NETLINK_PATH, '{"2":{}}')
    write(tree.root, ETHTOOL_PATH, '{"eth0":{"params":{"coalesce/rx-usecs":"3"}}}')
    write(tree.root, "sys/kernel/debug/irq/irqs/41", "dstate:\n")
    texts = [path for path, (_, text) in entries(captured(tree.root)).items() if isinstance(text, bytes) and text]
    kinds = {re.sub(r"\d+", "N", re.sub(r"0000:\w\w:00.0", "0:0:0.0", path)) for path in texts}
    assert sorted(kinds) == KINDS.split()


def test_secrets_are_not_in_a_capture(tree: LargeTree) -> None:
    secret = "s3cret"
    addresses = range(94000, 94050)
    fields = f"S {' '.join(map(str, addresses))}".split()
    fields[6] = "0"  # no kernel thread
    for path, text in {
        "etc/machine-id": f"{secret}\n",
        "etc/hostname": f"{secret}\n",
        "etc/sysctl.d/a.conf": f"kernel.domainname = {secret}\n",
        "etc/NetworkManager/system-connections/a.nmconnection": f"[connection]\nuuid=1\n[wifi]\npsk={secret}\n",
        **{f"run/NetworkManager/devices/{n}": "connection-uuid=1\n" for n in range(1, 9)},
        "proc/cmdline": f"{secret}\n",
        "proc/self/mounts": f"{secret} /proc proc rw 0 0\n",
        "proc/sys/kernel/hostname": f"{secret}\n",
        "proc/sys/kernel/random/boot_id": f"{secret}\n",
        "proc/1001/cmdline": f"{secret}\n",
        "proc/1001/environ": f"{secret}\n",
        "proc/1001/comm": f"{secret}\n",
        "proc/1001/stat": f"1001 ({secret} ) (x) {' '.join(fields)}\n",
        "proc/1002/stat": f"1002 ({secret}\n",
        "proc/net/route": "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\tBADCAFE1\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth1\tBADCAFE0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
        "sys/class/net/eth0/address": "52:54:00:12:34:56\n",
    }.items():
        write(tree.root, path, text)
    folder = captured(tree.root)
    for path, (_, content) in entries(folder).items():
        held = path + (content if isinstance(content, str) else content.decode())
        assert not re.search(f"{secret}|BADCAFE|52:54", held), path
    kept = (folder / "proc/1001/stat").read_text().split()
    assert kept[1] == "(task-1001)"
    at = [94000 + n - 1 for n in (*range(23, 28), 32, *range(42, 49))]  # fields 26 to 30, 35 and from 45 on
    assert not {str(address) for address in at} & set(kept)
    assert {str(94000 + n - 1) for n in (11, 12, 19, 36)} <= set(kept)
    assert TaskScanner(folder).scan() == []
    assert InventoryReader(folder).read() == InventoryReader(tree.root).read()


@pytest.mark.parametrize(
    ("name", "flags", "kept"),
    [
        ("irqbalance", 0, "irqbalance"),
        ("tuned", 0, "tuned"),
        ("ksoftirqd/3", 0x00200000 | 0x40, "ksoftirqd/3"),
        ("kworker/u8:1-ext4-rsv-conversion", 0x00200000, "kworker/u8:1-ext4-rsv-conversion"),
        ("irq/30-0000:00:1f.3", 0x00200000, "irq/30-0000:00:1f.3"),
        ("192.0.2.7-manager", 0x00200000, "task-7"),
        ("2001:db8::1-man", 0x00200000, "task-7"),
        ("ksoftirqd/3", 0x40, "task-7"),
        ("a) R 1 2 (b", 0, "task-7"),
        ("tuned ", 0, "task-7"),
    ],
)
def test_only_names_of_kernel_threads_and_controllers_are_captured(
    name: str, flags: int, kept: str, tmp_path: Path
) -> None:
    root = tmp_path / "machine"
    write(root, "proc/7/comm", f"{name}\n")
    write(root, "proc/7/stat", f"7 ({name}) S 2 0 0 0 -1 {flags} {' '.join(['0'] * 44)}\n")
    folder = captured(root)
    assert (folder / "proc/7/comm").read_text() == f"{kept}\n"
    assert (folder / "proc/7/stat").read_text().startswith(f"7 ({kept}) S 2 0 0 0 -1 {flags} ")


def test_controllers_are_found_in_a_capture(tree: LargeTree) -> None:
    write(tree.root, "proc/1001/comm", "irqbalance\n")
    assert InventoryReader(captured(tree.root)).read().controllers == ["irqbalance"]


def test_a_capture_has_no_link_that_leads_out_of_it(tree: LargeTree) -> None:
    (tree.root / "sys/class/net/eth9").symlink_to("/etc")
    folder = captured(tree.root)
    links = [path for path in folder.rglob("*") if path.is_symlink()]
    assert len(links) == 3 * 4
    for link in links:
        assert not link.readlink().is_absolute()
        assert link.resolve(strict=True).is_relative_to(folder)


def test_reads_are_watched_only_within_the_watch(tree: LargeTree) -> None:
    with record_requested_paths() as asked:
        names(tree.root, "proc/irq")
    names(tree.root, "proc")
    assert asked.listed == {"proc/irq"}


# The command


def test_the_command_lists_what_it_omitted_and_could_not_read(
    tree: LargeTree, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree.root / "proc/net/snmp").unlink()
    os.mkfifo(tree.root / "proc/net/snmp")
    folder = tree.root.parent / "out"
    assert main(["capture", str(folder), "--root", str(tree.root)]) == 0
    said, manifest = capsys.readouterr().out, (folder / MANIFEST).read_text()
    assert "1 file could not be read" in said
    assert "proc/net/snmp: Not a regular file" in manifest
    for text in (said, manifest):
        assert "Left out: command lines, environments" in text
    assert not (folder / "proc/net/snmp").exists()
    assert main(["topology", "--root", str(folder)]) == 0


def test_a_non_empty_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    for taken in ("full", "full/file"):
        assert main(["capture", str(tmp_path / taken)]) == 2
        assert "already exists and is not an empty folder" in capsys.readouterr().err
    assert (tmp_path / "full/file").read_text() == "mine"


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert main(["capture", str(tmp_path / "no/such")]) == 1
    assert f"{tmp_path}/no/such cannot be written: No such file or directory." in caplog.messages


def test_a_failing_collector_does_not_prevent_the_rest(
    tree: LargeTree, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tree.root / "sys/devices/system/cpu/cpu1/topology/core_cpus_list").write_text("nonsense\n")
    monkeypatch.setattr(netdev_module, "read_default_routes", lambda root: 1 // 0)
    folder = captured(tree.root)
    assert (folder / "proc/interrupts").stat().st_size
    assert (folder / "sys/devices/system/cpu/cpu1/topology/core_cpus_list").read_text() == "nonsense\n"
    assert len([message for message in caplog.messages if message.startswith("A collector failed")]) == 1


@pytest.mark.parametrize("text", ["[]", "{", "\xff", '{"eth0":{"channels":4}}', '{"eth0":[]}',
     '{"eth0":{"params":{"coalesce/rx-usecs":"-3"}}}', '{"eth0":{"params_max":{"ring/rx":512}}}'])  # fmt: skip
def test_an_invalid_ethtool_file_is_logged_and_the_rest_is_read(
    text: str, tree: LargeTree, caplog: pytest.LogCaptureFixture
) -> None:
    expected = InventoryReader(tree.root).read()
    (tree.root / ETHTOOL_PATH).write_bytes(text.encode("latin-1"))
    assert replace(InventoryReader(tree.root).read(), dropped_rows={}) == expected
    assert [message for message in caplog.messages if message.startswith(ETHTOOL_PATH)]


def test_ethtool_answers_are_read_from_a_capture(tree: LargeTree) -> None:
    name = InventoryReader(tree.root).read().netdevs[0].name
    told = f'{{"{name}":{{"channels":"combined 4","channels_max":"combined 8","rss":"0,1","firmware":"3.25",'
    told += '"params":{"coalesce/rx-usecs":"8","ring/rx":"1024"},"params_max":{"ring/rx":"8192"},'
    told += '"queues":{"rx-1":{"coalesce/rx-usecs":"16"}}}}'
    (tree.root / ETHTOOL_PATH).write_text(told)
    served = '{"2":{"rx-1":{"irq":63,"source":"netlink","napi_id":8193,"params":{"gro_flush_timeout":"20000"}}}}'
    (tree.root / NETLINK_PATH).write_text(served)
    netdev = InventoryReader(tree.root).read().netdevs[0]
    assert (netdev.channels, netdev.channels_max, netdev.rss) == ("combined 4", "combined 8", "0,1")
    assert netdev.firmware == "3.25"
    of_kernel = {"gro_flush_timeout": "0", "napi_defer_hard_irqs": "0"}
    assert netdev.params == {"coalesce/rx-usecs": "8", "ring/rx": "1024", **of_kernel}
    assert netdev.params_max == {"ring/rx": "8192"}
    own = {queue.name: queue.params for queue in netdev.queues if queue.params}
    assert own == {"rx-1": {"coalesce/rx-usecs": "16", "gro_flush_timeout": "20000"}}
    assert InventoryReader(captured(tree.root)).read() == InventoryReader(tree.root).read()
