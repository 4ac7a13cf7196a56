"""Limits: what any backend may ever do on a node, as the node's administrator declares it in limits.toml.

The agent reads the file and enforces it; the backend learns the limits with the inventory, so that a preview can name
them. The defaults are those of a node without the file.
"""

from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.bounds import CpuList, Name, Sentence
from coresteer_core.cpuset import parse_cpu_list

LIMITS_FILE = "/etc/coresteer/limits.toml"
MAX_ENTRIES = 256
"""Maximum number of patterns or networks in one list."""
Address: TypeAlias = IPv4Address | IPv6Address
_Patterns: TypeAlias = Annotated[list[Name], Meta(max_length=MAX_ENTRIES)]
_Most: TypeAlias = Annotated[int, Meta(ge=1, lt=2**31)]


class SettingLimits(Struct, frozen=True, dict=True):
    """Which settings may be changed.

    allow: patterns of keys (``irq/*``), in which ``*`` stands for any text; None: all. cpus_off_limits: a CPU list; no
    value may name them, and no load runs on them. interrupts_off_limits: numbers, or patterns of names in
    /proc/interrupts.
    """

    allow: _Patterns | None = None
    cpus_off_limits: CpuList = ""
    interrupts_off_limits: _Patterns = []

    @cached_property
    def closed_cpus(self) -> frozenset[int]:
        """The CPUs that are off limits."""
        return parse_cpu_list(self.cpus_off_limits) if self.cpus_off_limits else frozenset()


class LoadLimits(Struct, frozen=True, dict=True):
    """Which loads experiments may generate.

    addresses: networks (``10.0.0.0/8``) to which a load may be sent; None: to any node of the fleet. In either case a
    load is only sent to this node itself or to an address at which the experiment's receiving program answered. None
    of the maxima: those of the workload.
    """

    allow: bool = True
    addresses: _Patterns | None = None
    max_mbit_per_s: _Most | None = None
    max_packets_per_s: _Most | None = None

    @cached_property
    def networks(self) -> tuple[IPv4Network | IPv6Network, ...] | None:
        """The addresses as networks. Raises ValueError."""
        return None if self.addresses is None else tuple(ip_network(each) for each in self.addresses)


class Limits(Struct, frozen=True):
    """What any backend may do on a node. unusable: why the file cannot be trusted or read; then nothing is allowed."""

    settings: SettingLimits = SettingLimits()
    loads: LoadLimits = LoadLimits()
    unusable: Sentence | None = None

    def invalid(self) -> str | None:
        """Return which CPU list or network is none, None if all are valid."""
        try:
            _ = self.settings.closed_cpus, self.loads.networks
        except ValueError as error:
            return str(error)
        return None


def address_refusal(limits: Limits, address: str) -> str | None:
    """Return why a load must not be sent to this address, IP:PORT, as a sentence; None if it may."""
    try:
        host = parse_host(address)
    except ValueError:
        return f"{address[:80]!r} is not an address IP:PORT, so no load is sent there."
    if host.is_multicast or host.is_unspecified or host == IPv4Address(2**32 - 1):
        return f"{host} is not the address of one node, so no load is sent there."
    networks = limits.loads.networks
    if networks is None or host.is_loopback or any(host in network for network in networks):
        return None
    allowed = ", ".join(map(str, networks)) or "none"
    return f"{LIMITS_FILE} allows no load to {host}; loads.addresses allows: {allowed}."


def parse_host(address: str) -> Address:
    """Return the host of an address IP:PORT. Raises ValueError for a name, or without a port."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError(f"{address[:80]!r} has no port.")
    return ip_address(host)
