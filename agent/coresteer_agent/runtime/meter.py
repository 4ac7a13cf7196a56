"""Counters at the start and end of an experiment's run: a Sample, and counters that only experiments read."""

import ctypes
import os
import platform
import struct
import sys
from pathlib import Path

from coresteer_agent.collect import stat
from coresteer_agent.collect.files import DIGITS, list_numbered, read_bytes
from coresteer_agent.observe.sampler import Sampler
from coresteer_core.experiments.run_metrics import Reading

_NODES = "sys/devices/system/node"
_VMSTAT = "proc/vmstat"
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTE = struct.Struct("=IIQ48x")
"""struct perf_event_attr, version 0: type, size, config."""
_SOFTWARE, _CPU_MIGRATIONS = 1, 4
_CLOEXEC = 8


class Meter:
    """Reads counters for experiments with a Sampler of its own, so that the agent's intervals are unaffected."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sampler = Sampler(root)
        self._migrations = MigrationCounter() if root == Path("/") else None
        self._sampler.sample()  # the first sample parses every counter, so it is taken before the measurement

    def read(self) -> Reading:
        """Read all counters now."""
        text = read_bytes(self._root, stat.PATH)
        return Reading(
            self._sampler.sample(),
            context_switches=None if text is None else parse_context_switches(text),
            migrations=None if self._migrations is None else self._migrations.read(),
            numa_pages=read_numa_pages(self._root),
            pages_moved=parse_pages_moved(read_bytes(self._root, _VMSTAT) or b""),
        )

    def close(self) -> None:
        """Close the descriptors of all counters."""
        self._sampler.close()
        if self._migrations is not None:
            self._migrations.close()


def parse_context_switches(text: bytes) -> int | None:
    """Parse context switches of all CPUs since boot from /proc/stat, None without them (fs/proc/stat.c)."""
    for line in text.splitlines():
        name, _, number = line.partition(b" ")
        if name == b"ctxt" and number.isdigit() and len(number) <= DIGITS:
            return int(number)
    return None


def parse_pages_moved(text: bytes) -> int | None:
    """Parse the pages moved since boot from /proc/vmstat, None on kernels that move none (mm/vmstat.c)."""
    for line in text.splitlines():
        name, _, number = line.partition(b" ")
        if name == b"pgmigrate_success" and number.isdigit() and len(number) <= DIGITS:
            return int(number)
    return None


def parse_numastat(text: bytes) -> tuple[int, int] | None:
    """Parse numastat: pages allocated on a NUMA node by its own CPUs and by others since boot (drivers/base/node.c)."""
    counts = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
    local, other = counts.get(b"local_node", b""), counts.get(b"other_node", b"")
    known = all(count.isdigit() and len(count) <= DIGITS for count in (local, other))
    return (int(local), int(other)) if known else None


def read_numa_pages(root: Path) -> tuple[int, int] | None:
    """Return pages allocated locally and remotely, over all NUMA nodes; None with one node or a missing file."""
    texts = [read_bytes(root, f"{_NODES}/node{node}/numastat") for node in list_numbered(root, _NODES, "node")]
    counts = [None if text is None else parse_numastat(text) for text in texts]
    if len(counts) < 2:
        return None
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return None
    return sum(local for local, _ in known), sum(other for _, other in known)


class MigrationCounter:
    """Counts task migrations between CPUs since its creation (perf_event_open(2), cpu-migrations).

    Needs the right to observe all CPUs; without it there is no number. /proc/schedstat has no total of all tasks, and
    most kernels leave it at 0.
    """

    def __init__(self) -> None:
        self._fds: list[int] = []
        call = _PERF_EVENT_OPEN.get(platform.machine())
        if call is None:
            return
        attribute = _ATTRIBUTE.pack(_SOFTWARE, _ATTRIBUTE.size, _CPU_MIGRATIONS)
        libc = ctypes.CDLL(None)
        for cpu in sorted(list_numbered(Path("/"), "sys/devices/system/cpu", "cpu")):
            fd = libc.syscall(call, attribute, -1, cpu, -1, _CLOEXEC)
            if fd >= 0:
                self._fds.append(fd)

    def read(self) -> int | None:
        """Return migrations on all CPUs that were online at its creation; None if the kernel does not count them."""
        if not self._fds:
            return None
        return sum(int.from_bytes(os.read(fd, 8), sys.byteorder) for fd in self._fds)

    def close(self) -> None:
        """Close the perf events."""
        while self._fds:
            os.close(self._fds.pop())
