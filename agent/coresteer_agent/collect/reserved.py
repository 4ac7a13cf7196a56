"""Reads which CPUs are reserved: by the kubelet's static CPU manager policy, and by cpuset partitions of version 2."""

import os
from pathlib import Path

from coresteer_agent.collect.cgroups import VERSION_2
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import (
    read_bytes,
    read_cpus,
    read_cpus_as_list,
    read_text,
    real_path,
    require_cpu_list,
)
from coresteer_agent.collect.kubelet import CPU_MANAGER_STATE, parse_cpu_manager_state, read_pod_names
from coresteer_agent.collect.rows import value_or_none
from coresteer_core.bounds import MAX_NAME
from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.reserved import MAX_RESERVED, ReservedCpus
from coresteer_core.settings.base import format_cpus

_ONLINE = "sys/devices/system/cpu/online"
_EFFECTIVE = "cpuset.cpus.effective"
_UNREADABLE = "It is empty or cannot be read."


class ReservedReader:
    """Maintains the reserved CPUs of a machine; call update() about once a second.

    What cannot be read or parsed is reported and stays as before. While the kubelet has a state that never could be,
    all CPUs are reserved: any of them may be a container's.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._mount = next((mount for mount in VERSION_2 if read_bytes(root, f"{mount}/{_EFFECTIVE}")), None)
        self._files = [_ONLINE] if self._mount is None else [_ONLINE, f"{self._mount}/{_EFFECTIVE}"]
        self._seen: tuple[bytes | None, ...] | None = None
        self._containers: list[ReservedCpus] | None = None
        self._partitions: list[ReservedCpus] = []
        self.cpus: list[ReservedCpus] = []

    def update(self, *, again: bool = False) -> bool:
        """Read the reserved CPUs again if what they follow from has changed; return whether they have.

        again: even if nothing is seen to have changed, as when a partition within another one has.
        """
        state = self._read_state()
        seen = (state, *(read_bytes(self._root, file) for file in self._files))
        if seen == self._seen and not again:
            return False
        self._seen, before = seen, self.cpus
        if state is None:
            self._containers = None
        elif (containers := value_or_none(self._read_containers, state)) is not None:
            self._containers = containers
        if (partitions := value_or_none(self._read_partitions)) is not None:
            self._partitions = partitions
        unknown = self._all_cpus() if state is not None and self._containers is None else []
        self.cpus = [*unknown, *(self._containers or []), *self._partitions][:MAX_RESERVED]
        return self.cpus != before

    def _read_state(self) -> bytes | None:
        """Return the state of the kubelet's CPU manager; None without one, empty if it cannot be read."""
        state = read_bytes(self._root, CPU_MANAGER_STATE)
        return state if state or real_path(self._root, CPU_MANAGER_STATE) is None else b""

    def _read_containers(self, state: bytes) -> list[ReservedCpus]:
        if not state:
            raise ParseError(CPU_MANAGER_STATE, None, _UNREADABLE)
        found = parse_cpu_manager_state(state, CPU_MANAGER_STATE)
        pods = read_pod_names(self._root) if found else {}
        return [
            ReservedCpus(each.cpus, f"container {each.container} of pod {pods.get(each.uid, each.uid)}"[:MAX_NAME])
            for each in found
        ]

    def _all_cpus(self) -> list[ReservedCpus]:
        online = read_cpus_as_list(self._root, _ONLINE)
        return [ReservedCpus(online, f"containers that are unknown, as /{CPU_MANAGER_STATE} is")] if online else []

    def _read_partitions(self) -> list[ReservedCpus]:
        """Return the valid partitions, whose CPUs the root cgroup lacks (Documentation/admin-guide/cgroup-v2.rst).

        Raises ParseError if that cannot be told.
        """
        if self._mount is None:
            return []
        online, of_root = (self._require_cpus(file) for file in self._files)
        if online <= of_root:
            return []  # else each cgroup would be looked at
        found = []
        for folder, _, _ in os.walk(self._root / self._mount):
            path = str(Path(folder).relative_to(self._root))
            if read_text(self._root, f"{path}/cpuset.cpus.partition") in ("root", "isolated"):
                cgroup = path.removeprefix(f"{self._mount}/")
                cpus = read_cpus(self._root, f"{path}/{_EFFECTIVE}") or frozenset()
                found.append(ReservedCpus(format_cpu_list(cpus), f"cpuset partition {cgroup}"[:MAX_NAME], cgroup))
        found = [each for each in found if each.cpus]
        if not found:  # as in a container with a cgroup namespace of its own, whose root is another cgroup
            missing = format_cpus(online - of_root)
            raise ParseError(self._files[1], 1, f"The root cgroup lacks {missing}, which no cpuset partition has.")
        return found

    def _require_cpus(self, path: str) -> frozenset[int]:
        cpus = require_cpu_list(self._root, path)
        if cpus is None:
            raise ParseError(path, None, _UNREADABLE)
        return parse_cpu_list(cpus)
