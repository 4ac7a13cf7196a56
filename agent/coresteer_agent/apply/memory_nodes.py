"""NUMA nodes of a process's memory: ``move_pages(2)`` (kernel: mm/migrate.c)."""

import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from coresteer_agent.apply.handler import Explanation
from coresteer_agent.apply.page_moves import move_to_shares
from coresteer_agent.apply.task_common import TaskHandler
from coresteer_agent.collect.cpuset import read_mems_allowed
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import read_file
from coresteer_agent.collect.numa import read_node_memory
from coresteer_agent.collect.numa_maps import parse_numa_maps
from coresteer_core.changes.report import Outcome
from coresteer_core.node.numa import PAGE_BYTES
from coresteer_core.node.view import View
from coresteer_core.settings import SettingError, TaskMemoryNodes
from coresteer_core.settings.memory_nodes import join_counts, target_shares


class MemoryNodesHandler(TaskHandler[TaskMemoryNodes]):
    """Reads and moves the pages that only the process maps."""

    errors: ClassVar[Mapping[int, Explanation]] = {
        errno.EPERM: (Outcome.REFUSED, "The agent may not move its pages; it has to run as root."),
        errno.EACCES: (
            Outcome.REFUSED,
            "The node is outside of the process's cpuset, or other processes map its pages too, as after a fork.",
        ),
        errno.EINVAL: (Outcome.REFUSED, "The kernel rejects this node."),
        errno.ENODEV: (Outcome.REFUSED, "The node has no memory."),
        errno.ENOMEM: (Outcome.FAILED, "The node ran out of memory; pages that had moved stay there until restored."),
        errno.ENOSYS: (Outcome.UNSUPPORTED, "The kernel has no move_pages."),
        errno.ESRCH: (Outcome.UNSUPPORTED, "The process has ended."),
    }

    def read(self, root: Path, setting: TaskMemoryNodes) -> str:
        """Return the counts of pages by node. Raises OSError or SettingError."""
        path = f"proc/{setting.pid}/numa_maps"
        try:
            sizes = parse_numa_maps(read_file(root, path), path).bytes_by_node
        except ParseError as error:
            raise SettingError(str(error)) from None
        if not sum(sizes.values()):
            raise SettingError(f"PID {setting.pid} has no memory of its own.")
        return join_counts({node: size // PAGE_BYTES for node, size in sizes.items()})

    def write(self, root: Path, setting: TaskMemoryNodes, value: str) -> None:
        """Move pages until they have the value's shares. Raises OSError for the first reason why pages stay."""
        for _ in self.write_in_steps(root, setting, value):
            pass

    def write_in_steps(self, root: Path, setting: TaskMemoryNodes, value: str) -> Iterator[None]:
        """Move pages until they have the value's shares, some at a time. Raises OSError as write() does."""
        try:
            for failed in move_to_shares(root, setting.pid, target_shares(value)):
                for code in (errno.ENOMEM, errno.EACCES, errno.ENODEV):
                    if failed[code]:
                        raise OSError(code, f"{failed[code]} pages")
                yield
        except ParseError as error:
            raise OSError(errno.EIO, str(error)) from None

    def refresh(self, root: Path, setting: TaskMemoryNodes, view: View) -> View:
        """Return the View with the process's present cpuset, and the present free memory of the nodes."""
        now = super().refresh(root, setting, view)
        if now.numa is None:
            return now
        mems = read_mems_allowed(root, setting.pid)
        tasks = [replace(task, mems_allowed=mems) if task.pid == setting.pid else task for task in now.numa.tasks]
        return replace(now, numa=replace(now.numa, tasks=tasks, nodes=read_node_memory(root)))
