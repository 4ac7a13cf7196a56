"""Determines this node's identity, and whether its settings can be changed."""

import os
import uuid
from ipaddress import ip_address
from pathlib import Path

from coresteer_agent.apply.journal import read_boot_id
from coresteer_agent.collect.emulation import read_emulated
from coresteer_agent.collect.files import read_text
from coresteer_agent.linux import capabilities
from coresteer_agent.version import VERSION
from coresteer_core.protocol import FEATURES, PROTOCOL_VERSION, Hello


def observe_reason(root: Path) -> str | None:
    """Return why this agent cannot change the machine below root, as a sentence; None if it can."""
    irqs = root / "proc/irq"
    affinities = sorted(irqs.glob("[0-9]*/smp_affinity_list"))
    if not affinities:
        return f"{irqs} has no interrupt with an affinity."
    if os.statvfs(irqs).f_flag & os.ST_RDONLY:
        return f"{irqs} is read-only, because of ProtectKernelTunables in a systemd unit or an unprivileged container."
    if not any(os.access(path, os.W_OK) for path in affinities):
        return f"The agent may not write below {irqs}; run it as root to change interrupts."
    return None


def make_hello(root: Path, interval_s: float, reason: str | None) -> Hello:
    """Return the Hello message that opens connections, with a new random stream name for this process."""
    return Hello(
        protocol=PROTOCOL_VERSION,
        agent_version=VERSION,
        hostname=_text(root, "proc/sys/kernel/hostname") or os.uname().nodename,
        kernel=_text(root, "proc/sys/kernel/osrelease"),
        machine_id=_text(root, "etc/machine-id"),
        boot_id=read_boot_id(root),
        stream=uuid.uuid4().hex,
        first_seq=1,
        interval_s=interval_s,
        mode="control" if reason is None else "observe",
        observe_reason=reason,
        emulated=read_emulated(root),
        capabilities=list(capabilities.held()),
        obeys_stops=True,
        features=list(FEATURES),
    )


def _text(root: Path, path: str) -> str:
    """Return a file's text; empty if a captured tree or a small system does not have it."""
    return (read_text(root, path) or "")[:200]


def management_netdevs(local: str, peer: str | None) -> frozenset[str]:
    """Return the netdev that carries a connection between two IP addresses, as a set; empty within one machine."""
    if local == peer or ip_address(local).is_loopback:
        return frozenset()  # also a machine's connection to its own public address is carried by lo
    import psutil  # noqa: PLC0415 - memory that an agent beside its backend need not spend

    addresses = psutil.net_if_addrs().items()
    return frozenset(name for name, held in addresses if any(_without_zone(a.address) == local for a in held))


def _without_zone(address: str) -> str:
    return address.partition("%")[0]
