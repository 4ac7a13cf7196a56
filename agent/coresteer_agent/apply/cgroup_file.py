"""CgroupHandler, the base class of handlers for settings that are one file of a cgroup."""

import errno
from pathlib import Path
from typing import Protocol, TypeVar

from coresteer_agent.apply import rooted
from coresteer_agent.apply.handler import Handler, not_permitted
from coresteer_agent.collect.cgroups import MOUNTS, VERSION_2
from coresteer_core.changes.report import Outcome


class HasCgroup(Protocol):
    """A setting of a cgroup."""

    @property
    def path(self) -> str:
        """Return the cgroup's path without the leading slash."""

    @property
    def name(self) -> str:
        """Return the name of the cgroup's file."""


C = TypeVar("C", bound=HasCgroup)


class CgroupHandler(Handler[C]):
    """Finds a cgroup's file below the mount point of version 1 or 2, and identifies the cgroup by its inode."""

    errors = not_permitted("The agent may not write this file of the cgroup; it has to run as root.") | {
        errno.EROFS: (Outcome.REFUSED, "/sys/fs/cgroup is read-only for the agent, as in containers."),
        errno.ENODEV: (Outcome.UNSUPPORTED, "The cgroup was removed."),
    }

    def exists(self, root: Path, setting: C) -> bool:
        """Return whether the cgroup exists and has the file. Raises OSError."""
        return _file(root, setting) is not None

    def owners(self, root: Path, setting: C) -> list[str]:
        """Return the cgroup's inode number, unique among cgroups of the same path (kernel: fs/kernfs/dir.c)."""
        try:
            file = _file(root, setting)
            return [] if file is None else [f"cgroup {rooted.inode(root, str(Path(file).parent))}"]
        except OSError:
            return []


def cgroup_file(root: Path, setting: HasCgroup) -> str:
    """Return the path of the setting's file below root. Raises OSError where the cgroup no longer exists."""
    file = _file(root, setting)
    if file is None:
        raise FileNotFoundError(errno.ENOENT, "the cgroup no longer exists")
    return file


def _file(root: Path, setting: HasCgroup) -> str | None:
    places = (f"{mount}/{setting.path}/{setting.name}" for mount in MOUNTS.get(setting.name, VERSION_2))
    return next((place for place in places if rooted.exists(root, place)), None)
