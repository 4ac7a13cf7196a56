"""Affinity of every thread of a process: ``sched_setaffinity`` (kernel: kernel/sched/syscalls.c)."""

import errno
import os
from pathlib import Path

from msgspec.structs import replace

from coresteer_agent.apply import task_threads
from coresteer_agent.apply.rooted import ReadOnlyModeError
from coresteer_agent.apply.task_threads import exists, owners
from coresteer_agent.collect.cpuset import read_cpuset
from coresteer_agent.collect.errors import ParseError
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.node.view import View
from coresteer_core.protocol import Outcome
from coresteer_core.settings import TaskAffinity

__all__ = ["attainable", "exists", "explain", "owners", "read", "seen", "write"]

_ERRORS = {
    errno.EPERM: (Outcome.REFUSED, "The agent may not place this process; it has to run as root."),
    errno.EINVAL: (
        Outcome.REFUSED,
        "The kernel takes no such set of CPUs for it: none of them is online and in its cpuset, "
        "or it is a kernel thread that is bound to its CPUs.",
    ),
    errno.ESRCH: (Outcome.UNSUPPORTED, "The process has ended."),
}


def read(root: Path, setting: TaskAffinity) -> str:
    """The affinity of each thread. Raises OSError."""
    return setting.join(task_threads.read_each(setting.pid, lambda thread: frozenset(os.sched_getaffinity(thread))))


def write(root: Path, setting: TaskAffinity, value: str) -> None:
    """Set every thread, also those that start meanwhile. Raises OSError once all the others are set."""
    task_threads.write_each(setting.pid, setting.split(value), os.sched_setaffinity)


def attainable(root: Path, setting: TaskAffinity, value: str) -> str:
    """The value without threads that have ended."""
    return setting.join(task_threads.alive(setting.pid, setting.split(value)))


def explain(error: OSError | ReadOnlyModeError, root: Path) -> tuple[Outcome, str]:
    """A failed write's outcome, refused or failed, and a sentence for it."""
    return task_threads.explain(error, _ERRORS)


def seen(root: Path, setting: TaskAffinity, view: View) -> View:
    """The view with the process as it is now, its cpuset too."""
    try:
        allowed = format_cpu_list(read_cpuset(root, setting.pid) or ())
    except (OSError, ParseError):
        return view
    now = task_threads.seen(root, setting, view)
    tasks = [replace(task, allowed=allowed) if task.pid == setting.pid else task for task in now.tasks]
    return now if now is view else replace(now, tasks=tasks)
