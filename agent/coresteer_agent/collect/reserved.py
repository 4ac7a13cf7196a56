"""Reads which CPUs are reserved: by the kubelet's static CPU manager policy, and by cpuset partitions of version 2."""

import os
from pathlib import Path

from coresteer_agent.collect.cgroups import VERSION_2
from coresteer_agent.collect.files import read_bytes, read_cpus, read_text
from coresteer_agent.collect.kubelet import CPU_MANAGER_STATE, parse_cpu_manager_state, read_pod_names
from coresteer_agent.collect.rows import value_or_none
from coresteer_core.bounds import MAX_NAME
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.node.reserved import MAX_RESERVED, ReservedCpus

_ONLINE = "sys/devices/system/cpu/online"
_EFFECTIVE = "cpuset.cpus.effective"


class ReservedReader:
    """Maintains the reserved CPUs of a machine; call update() about once a second."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._mount = next((mount for mount in VERSION_2 if read_bytes(root, f"{mount}/{_EFFECTIVE}")), None)
        self._seen: tuple[bytes | None, ...] | None = None
        self.cpus: list[ReservedCpus] = []

    def update(self, *, again: bool = False) -> bool:
        """Read the reserved CPUs again if what they follow from has changed; return whether they have.

        again: even if nothing is seen to have changed, as when a partition within another one has.
        """
        files = (CPU_MANAGER_STATE, f"{self._mount}/{_EFFECTIVE}", _ONLINE)
        seen = tuple(read_bytes(self._root, file) for file in files)
        if seen == self._seen and not again:
            return False
        self._seen, before = seen, self.cpus
        self.cpus = [*self._containers(seen[0]), *self._partitions()][:MAX_RESERVED]
        return self.cpus != before

    def _containers(self, state: bytes | None) -> list[ReservedCpus]:
        found = value_or_none(parse_cpu_manager_state, state, CPU_MANAGER_STATE) if state else None
        pods = read_pod_names(self._root) if found else {}
        return [
            ReservedCpus(each.cpus, f"container {each.container} of pod {pods.get(each.uid, each.uid)}"[:MAX_NAME])
            for each in found or ()
        ]

    def _partitions(self) -> list[ReservedCpus]:
        """Return the valid partitions, whose CPUs the root cgroup lacks (Documentation/admin-guide/cgroup-v2.rst)."""
        if self._mount is None:
            return []
        online = read_cpus(self._root, _ONLINE) or frozenset()
        if online <= (read_cpus(self._root, f"{self._mount}/{_EFFECTIVE}") or online):
            return []  # else each cgroup would be looked at
        found = []
        for folder, _, _ in os.walk(self._root / self._mount):
            path = str(Path(folder).relative_to(self._root))
            if read_text(self._root, f"{path}/cpuset.cpus.partition") in ("root", "isolated"):
                cgroup = path.removeprefix(f"{self._mount}/")
                cpus = read_cpus(self._root, f"{path}/{_EFFECTIVE}") or frozenset()
                found.append(ReservedCpus(format_cpu_list(cpus), f"cpuset partition {cgroup}"[:MAX_NAME], cgroup))
        return [each for each in found if each.cpus]
