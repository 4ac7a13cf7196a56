"""Maps the queues of a netdev to interrupts.

First the netlink family netdev (Linux 6.8, Documentation/netlink/specs/netdev.yaml), if the driver supports it; then
the names of the interrupts that sysfs lists for the device; then the names of all interrupts.
"""

import errno
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import list_numbered, names, read_bytes, read_mask_as_list, read_non_negative
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.collect.netdev import NETDEV_FOLDER, Device
from coresteer_agent.linux.napi import NAPI_ATTRIBUTES
from coresteer_agent.linux.netlink import (
    GENERIC_HEADER,
    NETLINK_GENERIC,
    Netlink,
    family_id,
    parse_attributes,
    parse_number,
)
from coresteer_core.settings.params import QUEUE_FILES

_log = logging.getLogger(__name__)

NETLINK_PATH = "netlink-queues.json"
"""File of a captured tree with netlink's answers, as read_netlink_queues() returns them."""

_QUEUE = re.compile(
    r"(?:^|[-_.])(txrx|tx-rx|rxtx|comp|combined|fp|queue|q|rx|tx|input|output)[-_.]?(\d{1,9})(?:$|[-@.])", re.IGNORECASE
)
_NUMBER = re.compile(r"\d{1,9}\Z", re.ASCII)
_DIRECTIONS = {"rx": "rx", "input": "rx", "tx": "tx", "output": "tx"}


U32 = Annotated[int, Meta(ge=0, lt=1 << 32)]
Source = Literal["netlink", "msi_irqs", "name"]
ParamValue = Annotated[str, Meta(pattern=r"^(on|off|[0-9]{1,20})\Z")]
"""A value of coresteer_core.settings.params."""


class QueueIrq(Struct, frozen=True):
    """Interrupt and NAPI of a queue, and where that was read from. params: of its NAPI, by name.

    xsk: an AF_XDP socket uses the queue; False where the kernel does not report that.
    """

    irq: U32 | None
    source: Source | None
    napi_id: U32 | None = None
    params: dict[str, ParamValue] = {}
    xsk: bool = False


class DeviceIrqs(Struct, frozen=True):
    """Interrupts of a netdev. queues: by queue name. irqs: all of them, including those of no queue."""

    queues: dict[str, QueueIrq]
    irqs: frozenset[int]


MapInputs: TypeAlias = tuple[Device, list[str], Mapping[int, str], frozenset[int], Mapping[str, QueueIrq]]
"""The parameters of map_queues_to_irqs()."""


def queue_names(root: Path, netdev: str) -> list[str]:
    """Return the names of a netdev's queues (``rx-0``), receive queues first, by number."""
    folder = f"{NETDEV_FOLDER}/{netdev}/queues"
    return [f"{kind}-{number}" for kind in ("rx", "tx") for number in list_numbered(root, folder, f"{kind}-")]


class QueueFiles(Struct, frozen=True):
    """A queue's files: its CPU list (RPS or XPS), None if it has none, and its parameters in files, by name."""

    cpus: str | None = None
    params: dict[str, ParamValue] = {}


def read_steering(root: Path, netdev: str, queue: str) -> QueueFiles:
    """Return a queue's steering: RPS and RFS of a receive queue, XPS of a transmit queue."""
    folder = f"{NETDEV_FOLDER}/{netdev}/queues/{queue}"
    if queue.startswith("tx-"):
        return QueueFiles(read_mask_as_list(root, f"{folder}/xps_cpus"))
    params = {
        name: str(number) for name in QUEUE_FILES if (number := read_non_negative(root, f"{folder}/{name}")) is not None
    }
    return QueueFiles(read_mask_as_list(root, f"{folder}/rps_cpus"), params)


def parse_irq_name(name: str, netdev: str, bus_names: Iterable[str] = ()) -> tuple[bool, list[str]]:
    """Return whether an interrupt's name belongs to a netdev, and the queues that it names (``rx-3``, ``tx-3``).

    ``eth0-TxRx-3`` and ``eth0-Tx-Rx-3`` serve both directions, ``eth0-rx-3`` and ``virtio2-input.0``
    (virtio2 is the netdev's device) one; ``mlx5_comp3@pci:0000:3b:00.0`` names the PCI function.
    The plain name, ``eth0``, is of a netdev with one interrupt for all queues: the queue is ``*``.
    """
    for part in name.split(", "):
        if part == netdev:
            return True, ["*"]
        for device_name in (netdev, *bus_names):
            found = re.search(rf"(?:^|[-@:_]){re.escape(device_name)}(?:$|[-@.:])", part)
            if found:
                rest = f"{part[: found.start()]}-{part[found.end() :]}"
                return True, _queues(rest) or (
                    _both(rest[1:]) if device_name == netdev and _NUMBER.match(rest[1:]) else []
                )
    return False, []


def _both(number: str) -> list[str]:
    return [f"rx-{int(number)}", f"tx-{int(number)}"]


def _queues(text: str) -> list[str]:
    found = _QUEUE.search(text)
    if found is None:
        return []
    direction = _DIRECTIONS.get(found[1].lower())
    return _both(found[2]) if direction is None else [f"{direction}-{int(found[2])}"]


def map_queues_to_irqs(
    device: Device,
    queues: list[str],
    irq_names: Mapping[int, str],
    msi_irqs: frozenset[int],
    from_netlink: Mapping[str, QueueIrq],
) -> DeviceIrqs:
    """Return the interrupts of a netdev's queues. from_netlink: the kernel's own mapping by queue."""
    queue_irqs = {queue: from_netlink.get(queue, QueueIrq(None, None)) for queue in queues}
    own = set(msi_irqs) | {q.irq for q in from_netlink.values() if q.irq is not None}
    named: dict[int, list[str]] = {}
    for irq, name in irq_names.items():
        is_own, found = parse_irq_name(name, device.name, device.bus_names)
        if not is_own:
            if irq not in msi_irqs:
                continue
            found = next((q for part in name.split(", ") if (q := _queues(part))), [])
        named[irq] = found
    # An interrupt with the netdev's own name serves all queues if it is the only one; next to interrupts of
    # queues it is the one for link changes (igb, e1000e).
    is_only_irq = all(found in ([], ["*"]) for found in named.values())
    for irq, found in named.items():
        own.add(irq)
        for queue in (queues if is_only_irq else []) if found == ["*"] else found:
            if queue in queue_irqs and queue_irqs[queue].irq is None:
                source: Source = "msi_irqs" if irq in msi_irqs else "name"
                queue_irqs[queue] = replace(queue_irqs[queue], irq=irq, source=source)
    return DeviceIrqs(queue_irqs, frozenset(own))


def read_msi_irqs(root: Path, device: Device) -> frozenset[int]:
    """Return the message-signalled interrupts (MSI) of a netdev's device; none if several netdevs share it."""
    folder = f"{NETDEV_FOLDER}/{device.name}/device"
    for depth in range(len(device.bus_names)):
        above = f"{folder}/{'../' * depth}"
        if found := list_numbered(root, f"{above}msi_irqs", ""):
            return frozenset(found) if len(names(root, f"{above}net")) <= 1 else frozenset()
    return frozenset()


# Netlink

_QUEUE_GET = 10
_NAPI_GET = 11
_QUEUE_XSK = 7  # NETDEV_A_QUEUE_XSK (Linux 6.14), empty
_KINDS = {0: "rx", 1: "tx"}


def read_netlink_queues(root: Path) -> dict[int, dict[str, QueueIrq]]:
    """Return each queue's interrupt by ifindex and queue name, read by netlink (Linux 6.8).

    Empty before Linux 6.8 and if netlink is refused. For a captured tree, those at its capture. Raises ParseError for
    an invalid file.
    """
    if not is_running_kernel(root):
        try:
            return msgspec.json.decode(read_bytes(root, NETLINK_PATH) or b"{}", type=dict[int, dict[str, QueueIrq]])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ParseError(NETLINK_PATH, None, f"{error}.") from None
    try:
        netlink = Netlink(NETLINK_GENERIC)
        try:
            return _netlink_queues(netlink)
        finally:
            netlink.close()
    except OSError as error:
        if error.errno == errno.ENOENT:  # before Linux 6.8
            return {}
        _log.info("The kernel does not report interrupts of queues by netlink (%s); using names.", error.strerror)
        return {}


def _netlink_queues(netlink: Netlink) -> dict[int, dict[str, QueueIrq]]:
    family = family_id("netdev")
    napis = {napi[2]: napi for napi in _dump(netlink, family, _NAPI_GET) if 2 in napi}  # NETDEV_A_NAPI_ID
    found: dict[int, dict[str, QueueIrq]] = {}
    for queue in _dump(netlink, family, _QUEUE_GET):
        # NETDEV_A_QUEUE_ID, _IFINDEX, _TYPE, _NAPI_ID
        of_kind, ifindex, kind, napi_id = queue.get(1), queue.get(2), _KINDS.get(queue.get(3, -1)), queue.get(4)
        xsk = _QUEUE_XSK in queue
        if of_kind is None or ifindex is None or kind is None or (napi_id is None and not xsk):
            continue
        napi = napis.get(napi_id, {}) if napi_id is not None else {}
        irq = napi.get(3)  # NETDEV_A_NAPI_IRQ
        params = (
            {name: str(napi[each]) for name, each in NAPI_ATTRIBUTES.items() if each in napi} if kind == "rx" else {}
        )
        queue_irqs = QueueIrq(irq, None if irq is None else "netlink", napi_id, params, xsk)
        found.setdefault(ifindex, {})[f"{kind}-{of_kind}"] = queue_irqs
    return found


def _dump(netlink: Netlink, family: int, command: int) -> list[dict[int, int]]:
    """Return the numeric attributes of every message in a netlink dump; an empty one is 0."""
    return [
        {
            kind: parse_number(value)
            for kind, value in parse_attributes(m, GENERIC_HEADER.size)
            if len(value) in (0, 4, 8)
        }
        for m in netlink.dump(family, GENERIC_HEADER.pack(command, 1, 0))
    ]
