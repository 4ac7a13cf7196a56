"""Weights of cgroups (kernel: kernel/sched/core.c, block/blk-iocost.c; Documentation/admin-guide/cgroup-v2.rst)."""

import errno
from pathlib import Path

from coresteer_agent.apply import rooted
from coresteer_agent.collect.cgroups import MOUNTS, parse_weight
from coresteer_core.protocol import Outcome
from coresteer_core.settings import CgroupWeight

_NOT_ALLOWED = (Outcome.REFUSED, "The agent may not write this cgroup's files; it has to run as root.")
_ERRORS = {
    errno.EPERM: _NOT_ALLOWED,
    errno.EACCES: _NOT_ALLOWED,
    errno.EROFS: (Outcome.REFUSED, "/sys/fs/cgroup is read-only for the agent, as containers have it."),
    errno.EINVAL: (Outcome.FAILED, "The kernel takes no weight of this cgroup, as where cpu.idle is set."),
    errno.ENODEV: (Outcome.UNSUPPORTED, "The cgroup was removed."),
}


def exists(root: Path, setting: CgroupWeight) -> bool:
    """Whether there is such a cgroup with that weight. Raises OSError."""
    return _file(root, setting) is not None


def read(root: Path, setting: CgroupWeight) -> str:
    """The weight. Raises OSError, or SettingError for a text that holds none."""
    text = rooted.read_text(root, _found(root, setting))
    return setting.canonical(parse_weight(text) or text)


def write(root: Path, setting: CgroupWeight, value: str) -> None:
    """Set the weight. Raises OSError or rooted.ReadOnlyModeError."""
    text = f"default {value}\n" if setting.name == "io.weight" else f"{value}\n"
    rooted.write_text(root, _found(root, setting), text)


def attainable(root: Path, setting: CgroupWeight, value: str) -> str:
    """The value itself."""
    return value


def owners(root: Path, setting: CgroupWeight) -> list[str]:
    """The cgroup's number, which no later one with its path shares (kernel: fs/kernfs/dir.c, kernfs_node id)."""
    try:
        file = _file(root, setting)
        return [] if file is None else [f"cgroup {rooted.inode(root, str(Path(file).parent))}"]
    except OSError:
        return []


def explain(error: OSError | rooted.ReadOnlyModeError, root: Path) -> tuple[Outcome, str]:
    """A failed write's outcome, refused or failed, and a sentence for it."""
    if isinstance(error, rooted.ReadOnlyModeError):
        return Outcome.REFUSED, "The kernel made it read-only."
    return _ERRORS.get(error.errno or 0, (Outcome.FAILED, f"The answer was: {error.strerror}."))


def _file(root: Path, setting: CgroupWeight) -> str | None:
    places = (f"{mount}/{setting.path}/{setting.name}" for mount in MOUNTS[setting.name])
    return next((place for place in places if rooted.exists(root, place)), None)


def _found(root: Path, setting: CgroupWeight) -> str:
    file = _file(root, setting)
    if file is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such cgroup any more")
    return file
