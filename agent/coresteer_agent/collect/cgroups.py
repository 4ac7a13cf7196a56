"""Reads weights of cgroups: cpu.weight and io.weight of version 2, cpu.shares of version 1."""

import re
from collections.abc import Iterable
from pathlib import Path

from coresteer_agent.collect.files import read_bytes

VERSION_2 = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
"""Mount points of version 2 below the root directory: alone, and beside version 1."""
MOUNTS = {
    "cpu.weight": VERSION_2,
    "cpu.shares": ("sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpu", "sys/fs/cgroup/cpuacct,cpu"),
    "io.weight": VERSION_2,
}
"""Mount points below the root directory of the cgroup hierarchies, by weight file."""

_WEIGHT = re.compile(r"(?:default )?(\d{1,10})$", re.ASCII | re.MULTILINE)


def find_version_2(root: Path) -> str | None:
    """Return the mount point of the cgroups of version 2 below root; None without one."""
    return next((mount for mount in reversed(VERSION_2) if (root / mount / "cgroup.procs").exists()), None)


def parse_weight(text: str) -> str | None:
    """Parse a weight, ``100`` or ``default 100`` (io.weight), and return its number as text; None without one."""
    found = _WEIGHT.match(text)
    return None if found is None else str(int(found[1]))


_SEARCH_READS = 12
"""Reads, one about every 5 s, after which files are searched again: a cgroup may have got a controller."""


class CgroupWeights:
    """Reads weights of cgroups repeatedly; files are searched for a new cgroup, and all again about once a minute."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, dict[str, str]] = {}
        self._reads = 0

    def read(self, paths: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return weights by cgroup path (without leading slash) and weight name, without cgroups that have none."""
        before, self._files = (self._files if self._reads % _SEARCH_READS else {}), {}
        self._reads += 1
        weights = {}
        for path in dict.fromkeys(paths):
            if not path:
                continue
            files = before.get(path)
            self._files[path] = self._find(path) if files is None else files
            if its := {name: value for name, file in self._files[path].items() if (value := self._read(file))}:
                weights[path] = its
        return weights

    def _find(self, path: str) -> dict[str, str]:
        places = {name: [f"{mount}/{path}/{name}" for mount in mounts] for name, mounts in MOUNTS.items()}
        found = {name: next((file for file in files if self._read(file)), None) for name, files in places.items()}
        return {name: file for name, file in found.items() if file is not None}

    def _read(self, file: str) -> str | None:
        return parse_weight((read_bytes(self._root, file) or b"").decode("ascii", "replace").strip())
