"""Weights of cgroups (kernel: kernel/sched/core.c, block/blk-iocost.c; Documentation/admin-guide/cgroup-v2.rst)."""

import errno
from pathlib import Path

from coresteer_agent.apply import rooted
from coresteer_agent.apply.handler import Handler, not_permitted
from coresteer_agent.collect.cgroups import MOUNTS, parse_weight
from coresteer_core.changes.report import Outcome
from coresteer_core.settings import CgroupWeight


class CgroupWeightHandler(Handler[CgroupWeight]):
    """Reads and writes a weight of a cgroup, in the mount of its version."""

    errors = not_permitted("The agent may not write this cgroup's files; it has to run as root.") | {
        errno.EROFS: (Outcome.REFUSED, "/sys/fs/cgroup is read-only for the agent, as in containers."),
        errno.EINVAL: (Outcome.FAILED, "The kernel rejects a weight of this cgroup, as where cpu.idle is set."),
        errno.ENODEV: (Outcome.UNSUPPORTED, "The cgroup was removed."),
    }

    def exists(self, root: Path, setting: CgroupWeight) -> bool:
        """Return whether the cgroup exists and has that weight. Raises OSError."""
        return _file(root, setting) is not None

    def read(self, root: Path, setting: CgroupWeight) -> str:
        """Return the weight. Raises OSError, or SettingError for a text that holds none."""
        text = rooted.read_text(root, _found(root, setting))
        return setting.canonical(parse_weight(text) or text)

    def write(self, root: Path, setting: CgroupWeight, value: str) -> None:
        """Set the weight. Raises OSError or rooted.ReadOnlyModeError."""
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
        raise FileNotFoundError(errno.ENOENT, "there is no such cgroup any more")
    return file
