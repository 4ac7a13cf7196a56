"""CPUs of a node that are reserved: assigned to one container by the kubelet, or taken by a cpuset partition."""

from functools import cached_property

from msgspec import Struct

from coresteer_core.bounds import CgroupPath, CpuList, Name
from coresteer_core.cpuset import parse_cpu_list

MAX_RESERVED = 1024


def is_kubepods(cgroup: str) -> bool:
    """Return whether a cgroup is the kubelet's for all pods, or below it.

    Of cgroupfs (``/kubepods/…``) or systemd (``/kubepods.slice/…``, ``/kubelet.slice/kubelet-kubepods.slice/…``): one
    of the first two names, as a user can only have cgroups further down (``/user.slice/user-1000.slice/…``).
    From a cgroup namespace, a path outside of it begins with ``..``, which no cgroup is named.
    """
    names = [name for name in cgroup.split("/") if name not in {"", ".."}]
    return any(
        name == "kubepods" or (name.endswith(".slice") and "kubepods" in name.removesuffix(".slice").split("-"))
        for name in names[:2]
    )


class ReservedCpus(Struct, frozen=True, dict=True):
    """CPUs on which nothing is placed but what belongs to their holder.

    holder: for people, ``container app of pod shop/web-1``, ``cpuset partition web.slice``. partition: the cgroup of a
    cpuset partition (cpuset.cpus.partition); None for a container, to which the kubelet's static CPU manager policy
    assigned the CPUs. Its processes are not moved at all.
    """

    cpus: CpuList
    holder: Name
    partition: CgroupPath | None = None

    @cached_property
    def numbers(self) -> frozenset[int]:
        """The numbers of the CPUs."""
        return parse_cpu_list(self.cpus)

    def has_process(self, allowed: frozenset[int]) -> bool:
        """Return whether a process whose cpuset has these CPUs belongs to the holder: it can run nowhere else."""
        return bool(allowed) and allowed <= self.numbers

    def has_cgroup(self, path: str) -> bool:
        """Return whether a cgroup is the partition, or one above or below it, which share its CPUs."""
        if self.partition is None:
            return False
        return f"{path}/".startswith(f"{self.partition}/") or f"{self.partition}/".startswith(f"{path}/")
