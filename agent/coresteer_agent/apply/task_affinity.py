"""Reads and writes the CPU affinity of every thread of a process (``sched_setaffinity``, kernel/sched/syscalls.c)."""

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from coresteer_agent.apply.handler import Explanation
from coresteer_agent.apply.task_common import TaskHandler, read_each, without_ended_threads, write_each
from coresteer_agent.collect.cpuset import read_cpuset
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import read_cpus
from coresteer_core.changes.report import Outcome
from coresteer_core.cpuset import MAX_CPUS, format_cpu_list
from coresteer_core.node.view import View
from coresteer_core.settings import TaskAffinity
from coresteer_core.settings.task import ThreadValues


class TaskAffinityHandler(TaskHandler[TaskAffinity]):
    """Reads and writes the CPU affinity of all threads of a process."""

    errors: ClassVar[Mapping[int, Explanation]] = {
        errno.EPERM: (
            Outcome.REFUSED,
            "The agent may not change the CPU affinity of this process; it has to run as root.",
        ),
        errno.EINVAL: (
            Outcome.REFUSED,
            "The kernel rejects this set of CPUs: none of them is online and in the process's cpuset, "
            "or it is a kernel thread that is bound to its CPUs.",
        ),
        errno.ESRCH: (Outcome.UNSUPPORTED, "The process has ended."),
    }

    def read(self, root: Path, setting: TaskAffinity) -> str:
        """Return the CPU affinity of each thread of the process. Raises OSError."""
        return setting.join(read_each(setting.pid, lambda thread: frozenset(os.sched_getaffinity(thread))))

    def write(self, root: Path, setting: TaskAffinity, value: str) -> None:
        """Set the affinity of every thread, also of new ones. Raises OSError after all other threads are set.

        A thread that gets all CPUs of its cpuset is unbound: since Linux 6.2 it would keep only these, even after its
        cpuset gets more. The kernel leaves out what is not in the cpuset.
        """
        usable = _usable(root, setting.pid)
        possible = read_cpus(root, "sys/devices/system/cpu/possible") or range(MAX_CPUS)

        def bind(thread: int, cpus: frozenset[int]) -> None:
            os.sched_setaffinity(thread, possible if usable and cpus >= usable else cpus)

        write_each(setting.pid, setting.split(value), bind)

    def attainable(self, root: Path, setting: TaskAffinity, value: str) -> str:
        """Return the value without threads that have ended, and CPUs that are offline or not in the cpuset now."""
        wanted = without_ended_threads(setting.pid, setting.split(value))
        cpus = _usable(root, setting.pid)

        def left(each: frozenset[int]) -> frozenset[int]:
            return each if cpus is None else (each & cpus) or each

        return setting.join(
            ThreadValues(left(wanted.main), {thread: left(each) for thread, each in wanted.threads.items()})
        )

    def refresh(self, root: Path, setting: TaskAffinity, view: View) -> View:
        """Return the View with the process's present name, scheduling policy and cpuset."""
        try:
            allowed = format_cpu_list(read_cpuset(root, setting.pid) or ())
        except (OSError, ParseError):
            return view
        now = super().refresh(root, setting, view)
        if now is view:
            return now
        tasks = [replace(task, allowed=allowed) if task.pid == setting.pid else task for task in now.tasks]
        numa = now.numa
        if numa is not None:
            large = [replace(task, allowed=allowed) if task.pid == setting.pid else task for task in numa.tasks]
            numa = replace(numa, tasks=large)
        return replace(now, tasks=tasks, numa=numa)


def _usable(root: Path, pid: int) -> frozenset[int] | None:
    """Return the CPUs that are online and in a process's cpuset, as far as they are known; None where neither is."""
    cpus = read_cpus(root, "sys/devices/system/cpu/online")
    with suppress(OSError, ParseError):  # the process has ended
        allowed = read_cpuset(root, pid)
        cpus = allowed if cpus is None or allowed is None else cpus & allowed
    return cpus
