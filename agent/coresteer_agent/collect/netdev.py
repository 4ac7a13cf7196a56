"""Reads counters (/proc/net/dev) and properties (/sys/class/net) of network devices.

Kernel: net/core/net-procfs.c dev_seq_printf_stats(), Documentation/ABI/testing/sysfs-class-net.
"""

import re
from pathlib import Path

from msgspec import Struct

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import names, read_bytes, read_int, read_non_negative, read_text, real_path
from coresteer_agent.collect.rows import parse_rows, split_lines, value_or_none
from coresteer_core.node.derive import NetdevTotals
from coresteer_core.settings.params import NETDEV_FILES

PATH = "proc/net/dev"
ROUTE_PATH = "proc/net/route"
NETDEV_FOLDER = "sys/class/net"
LOWER = "lower_"
"""Prefix of the links in a netdev's folder to the netdevs below it."""

_HEADERS = 2
_COLUMNS = 16
_DECIMAL = re.compile(r"\d{1,20}\Z", re.ASCII)


def parse_netdev(text: bytes) -> dict[str, NetdevTotals]:
    """Parse counters since boot by netdev, in the order of NetdevCounts. Raises ParseError without its two headers."""
    lines, cut = split_lines(text)
    if len(lines) < _HEADERS:
        raise ParseError(PATH, len(lines) + 1, "The text ends within its two lines of headers.")
    return dict(parse_rows(PATH, lines[_HEADERS:], _parse_totals, first=_HEADERS + 1, cut=cut))


def _parse_totals(text: bytes, line: int) -> tuple[str, NetdevTotals]:
    name, colon, counters = text.partition(b":")
    fields = counters.split()
    if not colon or len(fields) < _COLUMNS:
        raise ParseError(PATH, line, f"The line has {len(fields)} counters; {_COLUMNS} were expected.")
    rx_bytes, rx_packets, rx_errors, rx_dropped = map(int, fields[:4])
    tx_bytes, tx_packets, tx_errors, tx_dropped = map(int, fields[8:12])
    totals = (rx_bytes, tx_bytes, rx_packets, tx_packets, rx_dropped, tx_dropped, rx_errors, tx_errors)
    return name.decode("ascii", "replace").strip(), totals


def parse_default_routes(text: bytes) -> frozenset[str]:
    """Parse the netdevs of IPv4 default routes in /proc/net/route."""
    lines, cut = split_lines(text)
    return frozenset(parse_rows(ROUTE_PATH, lines[1:], _parse_default_route, first=2, cut=cut))


def _parse_default_route(text: bytes, _: int) -> str | None:
    fields = text.split()
    destination, flags, mask = fields[1], fields[3], fields[7]
    default = int(flags, 16) & 1 and not destination.strip(b"0") and not mask.strip(b"0")
    return fields[0].decode("ascii", "replace") if default else None


def read_default_routes(root: Path) -> frozenset[str]:
    """Read the netdevs of IPv4 default routes below root."""
    return value_or_none(parse_default_routes, read_bytes(root, ROUTE_PATH) or b"") or frozenset()


class Device(Struct, frozen=True):
    """Properties of a netdev without its queues.

    bus_names: its device and the devices that this one is attached to, innermost first. polling: how the kernel polls
    it, by name of coresteer_core.settings.params. lower: as of Netdev.
    """

    name: str
    driver: str | None
    speed_bits_per_s: int | None
    mtu: int | None
    numa_node: int | None
    up: bool | None
    bus_names: list[str]
    polling: dict[str, str] = {}
    lower: list[str] = []


def netdev_names(root: Path) -> list[str]:
    """Return the names of all netdevs in /sys/class/net, without control files of bonding."""
    return [
        name
        for name in names(root, NETDEV_FOLDER)
        if (place := real_path(root, f"{NETDEV_FOLDER}/{name}")) and place.is_dir()
    ]


def read_ifindex(root: Path, name: str) -> int | None:
    """Return a netdev's ifindex, by which netlink identifies it; None if it does not exist."""
    return read_int(root, f"{NETDEV_FOLDER}/{name}/ifindex")


def read_device(root: Path, name: str) -> Device:
    """Read a netdev's properties from /sys/class/net.

    The speed is None while there is no link, and for devices that have none; a NUMA node of -1, which
    the kernel shows on a machine with one node, is None.
    """
    folder = f"{NETDEV_FOLDER}/{name}"
    speed_mbit_per_s = read_non_negative(root, f"{folder}/speed")
    driver = real_path(root, f"{folder}/device/driver")
    buses = _bus_names(root, f"{folder}/device")
    numa_node = None
    for depth in range(max(len(buses), 1)):
        numa_node = read_non_negative(root, f"{folder}/device/{'../' * depth}numa_node")
        if numa_node is not None:
            break
    return Device(
        name=name,
        driver=None if driver is None else driver.name,
        speed_bits_per_s=speed_mbit_per_s * 1_000_000 if speed_mbit_per_s else None,
        mtu=read_non_negative(root, f"{folder}/mtu"),
        numa_node=numa_node,
        up=value_or_none(_read_up, root, f"{folder}/flags"),
        bus_names=buses,
        polling={
            file: text
            for file in sorted(NETDEV_FILES)
            if (text := read_text(root, f"{folder}/{file}")) is not None and _DECIMAL.match(text)
        },
        lower=[each.removeprefix(LOWER) for each in names(root, folder) if each.startswith(LOWER)],
    )


def _read_up(root: Path, path: str) -> bool | None:
    flags = read_text(root, path)
    try:
        return None if flags is None else bool(int(flags, 16) & 1)
    except ValueError:
        raise ParseError(path, 1, f"“{flags[:40] if flags else ''}” is not a hexadecimal number.") from None


def _bus_names(root: Path, path: str) -> list[str]:
    """Return the netdev's device and, for virtio, its PCI function, which has the interrupts."""
    place = real_path(root, path)
    if place is None:
        return []
    found = [place.name]
    if place.name.startswith("virtio"):
        found.append(place.parent.name)
    return found
