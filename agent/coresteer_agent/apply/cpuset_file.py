"""Reads and writes CPUs and NUMA nodes of cgroups of version 2 (kernel: kernel/cgroup/cpuset.c)."""

import errno
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from coresteer_agent.apply import rooted
from coresteer_agent.apply.cgroup_file import CgroupHandler, cgroup_file
from coresteer_agent.collect.cpusets import read_cpusets
from coresteer_agent.collect.numa import read_node_memory
from coresteer_core.changes.report import Outcome
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.node.cpusets import Cpuset, parent_cgroup
from coresteer_core.node.view import View
from coresteer_core.settings.cpusets import INHERITED, OfCpuset

_STEP_S = 0.02
"""Time to wait for a write before other work goes on; without memory to move, a write takes less."""


class CpusetHandler(CgroupHandler[OfCpuset]):
    """Reads and writes cpuset.cpus or cpuset.mems of a cgroup."""

    errors = CgroupHandler.errors | {
        errno.EINVAL: (Outcome.REFUSED, "The kernel rejects this list, for example for a partition of CPUs."),
        errno.EBUSY: (Outcome.REFUSED, "Deadline tasks of the cgroup need the CPUs that it has."),
        errno.ENOSPC: (Outcome.REFUSED, "The cgroup has processes, and no list of its own would be left."),
    }

    def read(self, root: Path, setting: OfCpuset) -> str:
        """Return the list in the cgroup's file. Raises OSError or SettingError."""
        return setting.canonical(rooted.read_text(root, cgroup_file(root, setting)))

    def write(self, root: Path, setting: OfCpuset, value: str) -> None:
        """Write the list; the parent's where the kernel does not empty it. Raises OSError or ReadOnlyModeError."""
        file = cgroup_file(root, setting)
        try:
            rooted.write_text(root, file, "\n" if value == INHERITED else f"{value}\n")
        except OSError as error:
            if error.errno != errno.ENOSPC or value != INHERITED:
                raise
            rooted.write_text(root, file, f"{_of_parent(root, setting)}\n")

    def write_in_steps(self, root: Path, setting: OfCpuset, value: str) -> Iterator[None]:
        """Write the list in a thread and pause until it is done: the kernel returns when it has moved all pages."""
        from concurrent.futures import ThreadPoolExecutor, wait  # noqa: PLC0415 - memory that few agents need

        with ThreadPoolExecutor(max_workers=1) as thread:
            writing = thread.submit(self.write, root, setting, value)
            while not wait([writing], _STEP_S).done:
                yield
            writing.result()

    def attainable(self, root: Path, setting: OfCpuset, value: str) -> str:
        """Return the parent's list for ``inherited`` where the cgroup has a list and processes, else the value."""
        if value != INHERITED or self.read(root, setting) == INHERITED:
            return value
        events = str(Path(cgroup_file(root, setting)).with_name("cgroup.events"))
        populated = "populated 1" in rooted.read_text(root, events).split("\n")
        return _of_parent(root, setting) if populated else value

    def refresh(self, root: Path, setting: OfCpuset, view: View) -> View:
        """Return the View with the present cpusets of the cgroup and those above it, and the nodes' free memory."""
        now = replace(view, cpusets=view.cpusets | read_cpusets(root, [setting.path]))
        return now if now.numa is None else replace(now, numa=replace(now.numa, nodes=read_node_memory(root)))


def _of_parent(root: Path, setting: OfCpuset) -> str:
    parent = read_cpusets(root, [setting.path]).get(parent_cgroup(setting.path), Cpuset())
    return format_cpu_list(setting.effective(parent))
