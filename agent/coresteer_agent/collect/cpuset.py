"""Reads the CPUs and NUMA nodes that a process may use (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1)."""

from pathlib import Path

from coresteer_agent.collect.files import read_bytes, read_cpus

_V1 = ("sys/fs/cgroup/cpuset", "cpuset.effective_cpus")
_V2 = (("sys/fs/cgroup", "cpuset.cpus.effective"), ("sys/fs/cgroup/unified", "cpuset.cpus.effective"))


def read_cpuset(root: Path, pid: int) -> frozenset[int] | None:
    """Return the CPUs that a process's cpuset allows, None if unknown.

    A cgroup without the cpuset controller has the CPUs of its parent. One outside of the agent's cgroup namespace is
    unknown.
    """
    places: list[tuple[str, str, str]] = []
    for line in (read_bytes(root, f"proc/{pid}/cgroup") or b"").decode("utf-8", "replace").split("\n"):
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if ".." in group.split("/"):
            continue
        if "cpuset" in controllers.split(","):
            places.insert(0, (*_V1, group))
        elif number == "0":
            places += [(*mount, group) for mount in _V2]
    for mount, file, group in places:
        folder = f"{mount}{group}".rstrip("/")
        while folder.startswith(mount):
            if (cpus := read_cpus(root, f"{folder}/{file}")) is not None:
                return cpus
            folder = folder.rpartition("/")[0]
    return None


def read_mems_allowed(root: Path, pid: int) -> str:
    """Return the NUMA nodes from which a process may get memory, as a list; empty where unknown."""
    for line in (read_bytes(root, f"proc/{pid}/status") or b"").split(b"\n"):
        if line.startswith(b"Mems_allowed_list:"):
            return line.partition(b":")[2].strip().decode("ascii", "replace")[:256]
    return ""
