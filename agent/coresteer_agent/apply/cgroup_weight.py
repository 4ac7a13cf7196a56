"""Reads and writes CPU and IO weights of cgroups (Documentation/admin-guide/cgroup-v2.rst, block/blk-iocost.c)."""

import errno
from pathlib import Path

from coresteer_agent.apply import rooted
from coresteer_agent.apply.handler import Handler, not_permitted
from coresteer_agent.collect.cgroups import MOUNTS, parse_weight
from coresteer_core.changes.report import Outcome
from coresteer_core.settings import CgroupWeight


class CgroupWeightHandler(Handler[CgroupWeight]):
    """Reads and writes one weight of a cgroup, below the mount point of cgroup version 1 or 2."""

    errors = not_permitted("The agent may not write the weight of this cgroup; it has to run as root.") | {
        errno.EROFS: (Outcome.REFUSED, "/sys/fs/cgroup is read-only for the agent, as in containers."),
        errno.EINVAL: (
            Outcome.FAILED,
            "The kernel rejects a weight of this cgroup, for example because cpu.idle is set.",
        ),
        errno.ENODEV: (Outcome.UNSUPPORTED, "The cgroup was removed."),
    }

    def exists(self, root: Path, setting: CgroupWeight) -> bool:
        """Return whether the cgroup exists and has this weight file. Raises OSError."""
        return _file(root, setting) is not None

    def read(self, root: Path, setting: CgroupWeight) -> str:
        """Return the cgroup's weight as a number. Raises OSError, or SettingError for a file without a number."""
        text = rooted.read_text(root, _found(root, setting))
        return setting.canonical(parse_weight(text) or text)

    def write(self, root: Path, setting: CgroupWeight, value: str) -> None:
        """Write the cgroup's weight. Raises OSError or rooted.ReadOnlyModeError."""
        text = f"default {value}\n" if setting.weight == "io.weight" else f"{value}\n"
        rooted.write_text(root, _found(root, setting), text)

    def owners(self, root: Path, setting: CgroupWeight) -> list[str]:
        """Return the cgroup's inode number, unique among cgroups of the same path (kernel: fs/kernfs/dir.c)."""
        try:
            file = _file(root, setting)
            return [] if file is None else [f"cgroup {rooted.inode(root, str(Path(file).parent))}"]
        except OSError:
            return []


def _file(root: Path, setting: CgroupWeight) -> str | None:
    places = (f"{mount}/{setting.path}/{setting.weight}" for mount in MOUNTS[setting.weight])
    return next((place for place in places if rooted.exists(root, place)), None)


def _found(root: Path, setting: CgroupWeight) -> str:
    file = _file(root, setting)
    if file is None:
        raise FileNotFoundError(errno.ENOENT, "the cgroup no longer exists")
    return file
