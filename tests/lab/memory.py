"""Processes with memory on a NUMA node, and where a guest's kernel has them."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.lab.fleet import await_said
from tests.lab.machines import TWO_SOCKET
from tests.lab.rig import Guest

CPUS = tuple(f"{node * TWO_SOCKET.cores}-{(node + 1) * TWO_SOCKET.cores - 1}" for node in range(TWO_SOCKET.numa_nodes))
"""The CPUs of each NUMA node."""
BALANCING = "/proc/sys/kernel/numa_balancing"


@contextlib.contextmanager
def stream(guest: Guest, *arguments: str, touch: str, run: str, name: str, seconds: int, mib: int) -> Iterator[int]:
    """Run a process whose memory was touched on some CPUs and that runs on others; yield its PID.

    arguments: further ones of tests.lab.stream.
    """
    log = f"{name}.log"
    pid = guest.start(
        *("taskset", "--cpu-list", touch, "python", "-m", "tests.lab.stream", "--run", run, "--mib", str(mib)),
        *("--seconds", str(seconds), "--name", name, *arguments),
        output=log,
    )
    await_said(guest, log, "ready")
    try:
        yield pid
    finally:
        guest.run("kill", str(pid), check=False)


@contextlib.contextmanager
def balancing(guest: Guest, value: str) -> Iterator[None]:
    """Turn the kernel's automatic NUMA balancing on or off: it would move pages, too."""
    before = guest.read(BALANCING)
    guest.run("sh", "-c", f"echo {value} > {BALANCING}")
    try:
        yield
    finally:
        guest.run("sh", "-c", f"echo {before} > {BALANCING}")


@dataclass(frozen=True)
class Place:
    """Where a process is. started: tick of its start. node: of the CPU on which it ran last. mib: by NUMA node."""

    started: int
    affinity: str
    node: int
    mib: dict[int, float]

    def share(self, node: int) -> float:
        """Return the share of its anonymous memory on a node."""
        return self.mib.get(node, 0.0) / sum(self.mib.values())

    @property
    def remote(self) -> float:
        """Return the share of its anonymous memory on other nodes than the one on which it ran."""
        return 1.0 - self.share(self.node)


@dataclass(frozen=True)
class Moment:
    """One reading. at_s: the guest's uptime. migrated: pages that the kernel has moved since it booted."""

    at_s: float
    migrated: int
    places: dict[int, Place]


def look(guest: Guest, *pids: int) -> Moment:
    """Read where processes are. Raises GuestError if one has ended."""
    files = [f"/proc/{pid}/{name}" for pid in pids for name in ("stat", "status", "numa_maps")]
    said = guest.run("tail", "-v", "-n", "+1", "/proc/uptime", "/proc/vmstat", *files).stdout
    parts = re.split(r"^==> (\S+) <==$", said, flags=re.MULTILINE)[1:]
    text = dict(zip(parts[::2], parts[1::2], strict=True))
    return Moment(
        float(text["/proc/uptime"].split()[0]),
        int(_found(r"^pgmigrate_success (\d+)$", text["/proc/vmstat"])),
        {pid: _place(*(text[f"/proc/{pid}/{name}"] for name in ("stat", "status", "numa_maps"))) for pid in pids},
    )


def place(guest: Guest, pid: int) -> Place:
    """Read where a process is. Raises GuestError if it has ended."""
    return look(guest, pid).places[pid]


def _place(stat: str, status: str, numa_maps: str) -> Place:
    fields = stat.rpartition(")")[2].split()  # from the third of proc_pid_stat(5)
    mib: dict[int, float] = {}
    for line in numa_maps.splitlines():
        if "anon=" in line:
            kib = int(_found(r"kernelpagesize_kB=(\d+)", line))
            for node, pages in re.findall(r" N(\d+)=(\d+)", line):
                mib[int(node)] = mib.get(int(node), 0.0) + int(pages) * kib / 1024
    affinity = _found(r"^Cpus_allowed_list:\s*(\S+)$", status)
    return Place(int(fields[19]), affinity, int(fields[36]) // TWO_SOCKET.cores, mib)


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, f"“{pattern}” is not in {text[:200]}"
    return found[1]
