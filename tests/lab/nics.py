"""A NIC in a guest: ethtool's settings, its counters of packets and interrupts, and a policy for it."""

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

from tests.lab.fleet import HOST, Backend, await_said
from tests.lab.machines import PEER
from tests.lab.rig import Guest

SINK_S = 2400


def ethtool(guest: Guest, netdev: str) -> str:
    """Return the output of ethtool -c and -g, to be compared."""
    return guest.run("sh", "-c", f"ethtool -c {netdev}; ethtool -g {netdev}").stdout


def ethtool_value(guest: Guest, netdev: str, name: str) -> str:
    """Return one present value of ethtool's output, e.g. rx-usecs; RX is the ring's size, not its maximum."""
    found: list[str] = re.findall(rf"^{name}:\s+(\S+)", ethtool(guest, netdev), re.MULTILINE)
    return found[-1]


def await_value(guest: Guest, netdev: str, name: str, value: str, *, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while (found := ethtool_value(guest, netdev, name)) != value:
        assert time.monotonic() < end, f"{name} of {netdev} is {found} and not {value}."
        time.sleep(0.5)  # a NIC tells nobody when it is set


@dataclass(frozen=True)
class Counts:
    """Counters of a netdev. interrupts: of its receive vectors."""

    seconds: float
    packets: int
    bytes: int
    interrupts: int

    def since(self, before: "Counts") -> "Counts":
        """Return the difference of two readings."""
        return Counts(
            self.seconds - before.seconds,
            self.packets - before.packets,
            self.bytes - before.bytes,
            self.interrupts - before.interrupts,
        )

    @property
    def packets_per_interrupt(self) -> float:
        return self.packets / max(self.interrupts, 1)


def counts(guest: Guest, netdev: str) -> Counts:
    """Read the counters, with the time of the guest's clock."""
    files = (f"/sys/class/net/{netdev}/statistics/{name}" for name in ("rx_packets", "rx_bytes"))
    uptime, packets, received, *rows = guest.run("cat", "/proc/uptime", *files, "/proc/interrupts").stdout.splitlines()
    receiving = re.compile(rf" {netdev}-(?:Tx)?[Rr]x-\d+$")
    interrupts = sum(sum(map(int, re.findall(r" (\d+)(?= )", row))) for row in rows if receiving.search(row))
    return Counts(float(uptime.split()[0]), int(packets), int(received), interrupts)


@contextlib.contextmanager
def sink(guest: Guest) -> Iterator[None]:
    """Run a server that receives and answers all traffic."""
    pid = guest.start("python", "-m", "tests.lab.traffic", "serve", "--seconds", str(SINK_S), output="sink.log")
    await_said(guest, "sink.log", "ready")
    try:
        yield
    finally:
        guest.run("kill", str(pid), check=False)


@contextlib.contextmanager
def load(guest: Guest, *arguments: str) -> Iterator[None]:
    """Generate traffic from the guest's peer (arguments of tests.lab.traffic) for up to SINK_S."""
    bounds = ("--count", "100000000", "--seconds", str(SINK_S))
    command = ("ip", "netns", "exec", PEER, "python", "-m", "tests.lab.traffic", *arguments, *bounds)
    pid = guest.start(*command, output=f"load-{arguments[0]}.log")
    try:
        yield
    finally:
        guest.run("kill", str(pid), check=False)


@contextlib.contextmanager
def enforced(host: Backend, name: str, spec: dict[str, object], **body: object) -> Iterator[int]:
    """Enforce a policy on the guests, never on this host; yield its id and disable it at the end."""
    guests = [node["name"] for node in host.request("GET", "/api/v1/nodes") if node["name"] != HOST]
    unique = f"{name} {uuid4().hex[:6]}"  # an earlier try of the same test may have left one
    selected = {"name": unique, "mode": "enforce", "spec": spec, "selector": {"hostnames": guests}}
    made = host.request("POST", "/api/v1/policies", selected | body)
    host.request("POST", f"/api/v1/policies/{made['id']}/enable")
    try:
        yield made["id"]
    finally:
        host.request("POST", f"/api/v1/policies/{made['id']}/disable")
