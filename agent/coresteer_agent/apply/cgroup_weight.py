"""Reads and writes CPU and IO weights of cgroups (Documentation/admin-guide/cgroup-v2.rst, block/blk-iocost.c)."""

import errno
from pathlib import Path

from coresteer_agent.apply import rooted
from coresteer_agent.apply.cgroup_file import CgroupHandler, cgroup_file
from coresteer_agent.collect.cgroups import parse_weight
from coresteer_core.changes.report import Outcome
from coresteer_core.settings import CgroupWeight


class CgroupWeightHandler(CgroupHandler[CgroupWeight]):
    """Reads and writes one weight of a cgroup, below the mount point of cgroup version 1 or 2."""

    errors = CgroupHandler.errors | {
        errno.EINVAL: (
            Outcome.FAILED,
            "The kernel rejects a weight of this cgroup, for example because cpu.idle is set.",
        ),
    }

    def read(self, root: Path, setting: CgroupWeight) -> str:
        """Return the cgroup's weight as a number. Raises OSError, or SettingError for a file without a number."""
        text = rooted.read_text(root, cgroup_file(root, setting))
        return setting.canonical(parse_weight(text) or text)

    def write(self, root: Path, setting: CgroupWeight, value: str) -> None:
        """Write the cgroup's weight. Raises OSError or rooted.ReadOnlyModeError."""
        text = f"default {value}\n" if setting.weight == "io.weight" else f"{value}\n"
        rooted.write_text(root, cgroup_file(root, setting), text)
