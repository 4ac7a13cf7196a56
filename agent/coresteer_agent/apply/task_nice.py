"""Reads and writes the nice value of every thread of a process (``setpriority``, kernel: kernel/sys.c)."""

import errno
import os
from pathlib import Path

from coresteer_agent.apply.handler import not_permitted
from coresteer_agent.apply.task_common import TaskHandler, read_each, without_ended_threads, write_each
from coresteer_core.changes.report import Outcome
from coresteer_core.settings import TaskNice


class TaskNiceHandler(TaskHandler[TaskNice]):
    """Reads and writes the nice value of all threads of a process."""

    errors = not_permitted("The agent may not change this process's nice value; it has to run as root.") | {
        errno.ESRCH: (Outcome.UNSUPPORTED, "The process has ended."),
    }

    def read(self, root: Path, setting: TaskNice) -> str:
        """Return the nice value of each thread. Raises OSError."""
        return setting.join(read_each(setting.pid, lambda thread: os.getpriority(os.PRIO_PROCESS, thread)))

    def write(self, root: Path, setting: TaskNice, value: str) -> None:
        """Set the nice value of every thread, also of new ones. Raises OSError after all other threads are set."""
        write_each(
            setting.pid, setting.split(value), lambda thread, nice: os.setpriority(os.PRIO_PROCESS, thread, nice)
        )

    def attainable(self, root: Path, setting: TaskNice, value: str) -> str:
        """Return the value without threads that have ended."""
        return setting.join(without_ended_threads(setting.pid, setting.split(value)))
