"""Finds programs that take packets before the network stack or past it: XDP, AF_XDP, and drivers for user space.

AF_XDP sockets are in the netlink family netdev (Linux 6.14, without their process; read by observe.queues) and in
sock_diag. A PCI device of DPDK or a virtual machine has a driver for user space (vfio, uio) and is no netdev.
"""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import list_numbered, names, read_bytes, read_non_negative, read_text
from coresteer_agent.collect.interrupts import Description
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.collect.tasks import without_control_characters
from coresteer_agent.linux import xdp
from coresteer_agent.observe.queues import DeviceIrqs
from coresteer_agent.observe.socket_owners import SocketOwners
from coresteer_core.node.inventory import AF_XDP, XDP, QueueUser

_log = logging.getLogger(__name__)

NETLINK_PATH = "netlink-xdp.json"
"""File of a captured tree with netlink's answers, as read_xdp() returns them."""

_DRIVERS = "sys/bus/pci/drivers"


class XdpState(Struct, frozen=True):
    """programs: the name of each netdev's XDP program, empty where unknown. sockets: of the process of an AF_XDP
    socket likewise, by ifindex and queue number."""

    programs: dict[str, str] = {}
    sockets: dict[int, dict[int, str]] = {}


class QueueUserReader:
    """Reads the queue users of the machine below root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._owners = SocketOwners()

    def read_xdp(self) -> XdpState:
        """Return XDP programs and AF_XDP sockets; those at its capture for a captured tree. Raises ParseError."""
        if not is_running_kernel(self._root):
            try:
                return msgspec.json.decode(read_bytes(self._root, NETLINK_PATH) or b"{}", type=XdpState)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ParseError(NETLINK_PATH, None, f"{error}.") from None
        return XdpState(_programs(), self._sockets())

    def _sockets(self) -> dict[int, dict[int, str]]:
        try:
            sockets = xdp.read_sockets()
        except OSError as error:
            _log.debug("The kernel does not list AF_XDP sockets: %s.", error)
            return {}
        found: dict[int, dict[int, str]] = {}
        if sockets:
            self._owners.find(inode for _, _, inode in sockets)
        for ifindex, queue, inode in sockets:
            pid = self._owners.pid(inode)
            process = "" if pid is None else read_text(self._root, f"proc/{pid}/comm") or ""
            found.setdefault(ifindex, {})[queue] = process
        return found


def _programs() -> dict[str, str]:
    try:
        programs = xdp.read_programs()
    except OSError as error:
        _log.info("The kernel does not list XDP programs: %s.", error)
        return {}
    named = {}
    for netdev, program in programs.items():
        named[netdev] = ""
        with suppress(OSError):  # without CAP_SYS_ADMIN it has no name
            named[netdev] = xdp.program_name(program)
    return named


def find_queue_users(
    state: XdpState, netdevs: Mapping[str, tuple[int | None, DeviceIrqs]], devices: Iterable[QueueUser]
) -> list[QueueUser]:
    """Return all queue users. netdevs: ifindex and queues by name. devices: of read_user_space_devices()."""
    found = [
        QueueUser(XDP, netdev, name=without_control_characters(name) or None)
        for netdev, name in sorted(state.programs.items())
    ]
    for netdev, (ifindex, mapped) in netdevs.items():
        numbered = state.sockets.get(ifindex, {}) if ifindex is not None else {}
        by_process: dict[str, list[str]] = {}
        for queue, served in mapped.queues.items():
            process = numbered.get(int(queue.partition("-")[2]), "" if served.xsk else None)
            if process is not None:
                by_process.setdefault(without_control_characters(process), []).append(queue)
        found += [QueueUser(AF_XDP, netdev, queues, process or None) for process, queues in sorted(by_process.items())]
    return [*found, *devices]


def read_user_space_devices(root: Path, interrupts: Mapping[int, Description]) -> list[QueueUser]:
    """Return the PCI devices whose driver hands them to a program. interrupts: all of the machine, by number."""
    found = []
    for driver in names(root, _DRIVERS):
        if "vfio" not in driver and "uio" not in driver:  # vfio-pci, mlx5_vfio_pci, uio_pci_generic, igb_uio
            continue
        for address in names(root, f"{_DRIVERS}/{driver}"):
            if address.count(":") != 2:  # not a device, such as new_id
                continue
            folder = f"{_DRIVERS}/{driver}/{address}"
            irqs = set(list_numbered(root, f"{folder}/msi_irqs", ""))
            line = read_non_negative(root, f"{folder}/irq")
            irqs |= {number for number, each in interrupts.items() if address in each.name}
            if line is not None and line in interrupts and driver in interrupts[line].name:
                irqs.add(line)
            found.append(QueueUser(driver, address, irqs=sorted(irqs)))
    return found
