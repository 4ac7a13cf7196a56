"""Nice value of every thread of a process: ``setpriority`` (kernel: kernel/sys.c)."""

import errno
import os
from pathlib import Path

from coresteer_agent.apply import task_threads
from coresteer_agent.apply.rooted import ReadOnlyModeError
from coresteer_agent.apply.task_threads import exists, owners, seen
from coresteer_core.protocol import Outcome
from coresteer_core.settings import TaskNice

__all__ = ["attainable", "exists", "explain", "owners", "read", "seen", "write"]

_NOT_ALLOWED = (Outcome.REFUSED, "The agent may not change how nice this process is; it has to run as root.")
_ERRORS = {
    errno.EPERM: _NOT_ALLOWED,
    errno.EACCES: _NOT_ALLOWED,
    errno.ESRCH: (Outcome.UNSUPPORTED, "The process has ended."),
}


def read(root: Path, setting: TaskNice) -> str:
    """The nice value of each thread. Raises OSError."""
    return setting.join(task_threads.read_each(setting.pid, lambda thread: os.getpriority(os.PRIO_PROCESS, thread)))


def write(root: Path, setting: TaskNice, value: str) -> None:
    """Set every thread, also those that start meanwhile. Raises OSError once all the others are set."""
    task_threads.write_each(
        setting.pid, setting.split(value), lambda thread, nice: os.setpriority(os.PRIO_PROCESS, thread, nice)
    )


def attainable(root: Path, setting: TaskNice, value: str) -> str:
    """The value without threads that have ended."""
    return setting.join(task_threads.alive(setting.pid, setting.split(value)))


def explain(error: OSError | ReadOnlyModeError, root: Path) -> tuple[Outcome, str]:
    """A failed write's outcome, refused or failed, and a sentence for it."""
    return task_threads.explain(error, _ERRORS)
