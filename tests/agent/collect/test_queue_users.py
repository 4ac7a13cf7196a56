"""XDP programs, AF_XDP sockets and devices of user space: found, shown, and their interrupts locked."""

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.fixtures.large_tree import LargeTree
from tests.support.polling import PATIENCE_S

from coresteer_agent.capture import capture
from coresteer_agent.collect.interrupts import Description
from coresteer_agent.linux.netlink import encode_attribute
from coresteer_agent.linux.xdp import parse_link, parse_socket
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.queue_users import NETLINK_PATH, XdpState, find_queue_users, read_user_space_devices
from coresteer_agent.observe.queues import DeviceIrqs, QueueIrq
from coresteer_core.changes.guard import refusals
from coresteer_core.node.inventory import QueueUser
from coresteer_core.node.topology import Cpu, Topology
from coresteer_core.node.view import View


def link(name: bytes, xdp: dict[int, bytes] | None) -> memoryview:
    message = struct.pack("=BxHiII", 0, 1, 2, 0x1043, 0) + encode_attribute(3, name + b"\0")
    if xdp is not None:
        message += encode_attribute(43, b"".join(encode_attribute(kind, value) for kind, value in xdp.items()))
    return memoryview(message)


@pytest.mark.parametrize(
    ("xdp", "program"),
    [
        pytest.param(None, None, id="a kernel without XDP"),
        pytest.param({2: b"\0"}, None, id="nothing attached"),
        pytest.param({2: b"\1", 4: struct.pack("=I", 17), 5: struct.pack("=I", 17)}, 17, id="driver mode"),
        pytest.param({2: b"\4", 4: bytes(4), 6: struct.pack("=I", 9), 7: struct.pack("=I", 12)}, 9, id="several modes"),
    ],
)
def test_a_link_message_tells_the_xdp_program(xdp: dict[int, bytes] | None, program: int | None) -> None:
    assert parse_link(link(b"eth0", xdp)) == (None if program is None else ("eth0", program))


SOCKET = struct.pack("=BB2xIQ", 44, 3, 4711, 0) + encode_attribute(1, struct.pack("=II", 2, 5))


@pytest.mark.parametrize(
    ("message", "found"),
    [
        pytest.param(SOCKET, (2, 5, 4711), id="bound"),
        pytest.param(SOCKET[:16] + encode_attribute(1, bytes(8)), None, id="not bound to a netdev"),
        pytest.param(SOCKET[:16], None, id="without XDP_DIAG_INFO"),
        pytest.param(SOCKET[:7], None, id="cut"),
    ],
)
def test_a_socket_message_tells_netdev_and_queue(message: bytes, found: tuple[int, int, int] | None) -> None:
    assert parse_socket(memoryview(message)) == found


QUEUES = DeviceIrqs({f"{kind}-{number}": QueueIrq(41, None) for kind in ("rx", "tx") for number in (0, 1)}, frozenset())


def test_a_socket_is_found_with_its_process_by_one_interface_and_without_by_the_other() -> None:
    with_xsk = DeviceIrqs(QUEUES.queues | {"rx-1": QueueIrq(41, None, xsk=True)}, frozenset())
    state = XdpState({"eth2": "xdp_lb", "eth3": ""}, {2: {0: "suricata"}})
    assert find_queue_users(state, {"eth0": (2, with_xsk), "eth1": (3, QUEUES)}, []) == [
        QueueUser("XDP", "eth2", name="xdp_lb"),
        QueueUser("XDP", "eth3"),
        QueueUser("AF_XDP", "eth0", ["rx-1"]),
        QueueUser("AF_XDP", "eth0", ["rx-0", "tx-0"], "suricata"),
    ]


def test_names_that_a_process_chose_have_no_control_characters() -> None:
    state = XdpState({"eth2": "x\x1b"}, {2: {0: "evil\n\x1b[2J"}})
    found = find_queue_users(state, {"eth0": (2, QUEUES)}, [])
    assert [user.name for user in found] == ["x?", "evil??[2J"]


@pytest.fixture
def tree(tmp_path: Path) -> LargeTree:
    return LargeTree(tmp_path / "machine", cpus=8, irqs=24, processes=5)


def write(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def bind(root: Path, driver: str, address: str) -> None:
    write(root, f"sys/devices/pci0000:00/{address}/irq", "16\n")
    folder = root / "sys/bus/pci/drivers" / driver
    folder.mkdir(parents=True, exist_ok=True)
    (folder / address).symlink_to(f"../../../../devices/pci0000:00/{address}")
    write(root, f"sys/bus/pci/drivers/{driver}/new_id")


def test_devices_of_user_space_are_found_by_their_driver_with_their_interrupts(tmp_path: Path) -> None:
    for driver, address in (
        ("vfio-pci", "0000:03:00.0"),
        ("igb_uio", "0000:04:00.0"),
        ("uio_pci_generic", "0000:05:00.0"),
        ("ixgbe", "0000:06:00.0"),
    ):
        bind(tmp_path, driver, address)
    write(tmp_path, "sys/devices/pci0000:00/0000:04:00.0/msi_irqs/77")
    interrupts = {
        16: Description("IO-APIC", "ehci_hcd:usb1, uio_pci_generic"),
        60: Description("PCI-MSIX", "vfio-msix[0](0000:03:00.0)"),
        61: Description("PCI-MSIX", "eth0-TxRx-0"),
    }
    assert read_user_space_devices(tmp_path, interrupts) == [
        QueueUser("igb_uio", "0000:04:00.0", irqs=[77]),
        QueueUser("uio_pci_generic", "0000:05:00.0", irqs=[16]),
        QueueUser("vfio-pci", "0000:03:00.0", irqs=[60]),
    ]


def test_interrupts_of_used_queues_are_locked_with_the_user_as_reason(tree: LargeTree) -> None:
    before = InventoryReader(tree.root).read()
    netdev = next(each for each in before.netdevs if each.queues)
    queue = next(each for each in netdev.queues if each.irq is not None)
    ifindex = int((tree.root / f"sys/class/net/{netdev.name}/ifindex").read_text())
    sockets = {ifindex: {int(queue.name.partition("-")[2]): "suricata"}}
    write(tree.root, NETLINK_PATH, msgspec.json.encode(XdpState(sockets=sockets)).decode())
    inventory = InventoryReader(tree.root).read()
    locked = {irq.irq: irq.locked_reason for irq in inventory.irqs if irq.movable is False}
    assert locked.keys() == {queue.irq} | {irq.irq for irq in before.irqs if irq.movable is False}
    assert queue.irq is not None
    assert (locked[queue.irq] or "").startswith("An AF_XDP socket of suricata uses ")
    view = View(Topology([Cpu(0, 0, 0, 0, online=True)], [], []), inventory)
    (refusal,) = refusals(view, [(f"irq/{queue.irq}/affinity", "0")], allow_isolated=False)
    assert refusal.code == "in_use"
    assert refusal.sentence == f"IRQ {queue.irq} cannot be changed. {locked[queue.irq]}"


def test_a_capture_has_the_users_without_names_of_processes(tree: LargeTree) -> None:
    write(tree.root, NETLINK_PATH, '{"programs":{"eth0":"xdp_lb"},"sockets":{"2":{"0":"suricata"}}}')
    folder = tree.root.parent / "capture"
    folder.mkdir()
    capture(tree.root, folder)
    found = msgspec.json.decode((folder / NETLINK_PATH).read_bytes(), type=XdpState)
    assert found == XdpState({"eth0": "xdp_lb"}, {2: {0: ""}})


def test_invalid_answers_in_a_captured_tree_are_dropped_and_reported(tree: LargeTree) -> None:
    write(tree.root, NETLINK_PATH, '{"programs":')
    inventory = InventoryReader(tree.root).read()
    assert inventory.queue_users == []
    assert NETLINK_PATH in inventory.dropped_rows


@pytest.mark.root
def test_the_kernel_lists_an_xdp_program_and_an_af_xdp_socket() -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("A network namespace needs root and ip (package iproute2).")
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-m", "tests.agent.collect.xdp_trial"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    if "EAFNOSUPPORT" in done.stderr or "[Errno 97]" in done.stderr:
        pytest.skip("This kernel has no AF_XDP sockets.")
    assert done.returncode == 0, done.stderr
    program, socket = (msgspec.json.decode(line, type=list[QueueUser]) for line in done.stdout.splitlines())
    assert program == [QueueUser("XDP", "veth0", name="coresteer")]
    assert [(user.kind, user.device, user.queues) for user in socket] == [("AF_XDP", "veth0", ["rx-0", "tx-0"])]
