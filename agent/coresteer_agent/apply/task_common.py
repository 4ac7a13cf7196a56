"""TaskHandler, the base class of handlers for settings of every thread of a process."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec.structs import replace

from coresteer_agent.apply.handler import Error, Explanation, Handler
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import read_file
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.collect.tasks import REALTIME_POLICIES, parse_parent, parse_scheduling, parse_task_stat
from coresteer_core.changes.report import Outcome
from coresteer_core.node.numa import NumaState
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.settings.task import ThreadValues

T = TypeVar("T")

_MAX_SEARCHES = 20
"""Maximum number of searches for threads that started during a write; most inherit their creator's value."""
_ENDED_ERRNOS = (errno.ESRCH, errno.ENOENT)


class HasPid(Protocol):
    """A setting of a process."""

    @property
    def pid(self) -> int:
        """Return the process's PID."""


P = TypeVar("P", bound=HasPid)


class TaskHandler(Handler[P]):
    """Identifies a process by PID and start time. A captured tree has no processes."""

    def exists(self, root: Path, setting: P) -> bool:
        """Return whether the process exists; a thread's id, which /proc also lists, is not one. Raises OSError.

        A zombie has ended, unless only its main thread has.
        """
        if not is_running_kernel(root):
            return False
        try:
            lines = read_file(root, f"proc/{setting.pid}/status").split(b"\n")
        except OSError as error:
            if error.errno in _ENDED_ERRNOS:
                return False
            raise
        zombie = b"State:\tZ (zombie)" in lines and b"Threads:\t1" in lines
        return f"Tgid:\t{setting.pid}".encode() in lines and not zombie

    def owners(self, root: Path, setting: P) -> list[str]:
        """Return the process's start time, which differs for a later process with the same PID."""
        try:
            stat = parse_task_stat(read_file(root, f"proc/{setting.pid}/stat"), f"proc/{setting.pid}/stat")
        except (OSError, ParseError):
            return []
        return [f"the process that started at tick {stat.started_ticks}"]

    def explain(self, error: Error, root: Path) -> Explanation:
        """Return the outcome (refused or failed) and a sentence with the kernel's message for a failed write."""
        code = error.errno or 0 if isinstance(error, OSError) else 0
        return self.errors.get(code, (Outcome.FAILED, f"The system call failed: {error}."))

    def refresh(self, root: Path, setting: P, view: View) -> View:
        """Return the View with the process's present name and scheduling policy.

        Without the process if another one has its PID now; unchanged if it has ended. A process that is idle at the
        moment, and so not in the View, is added: the executor has checked that it was observed before.
        """
        path = f"proc/{setting.pid}/stat"
        try:
            text = read_file(root, path)
            stat, scheduling = parse_task_stat(text, path), parse_scheduling(text, path)
            policies = read_each(setting.pid, os.sched_getscheduler)
        except (OSError, ParseError):
            return view
        numa = view.numa or NumaState()
        others = [task for task in view.tasks if task.pid != setting.pid]
        numa_others = [task for task in numa.tasks if task.pid != setting.pid]
        known = view.task(setting.pid)
        if known is not None and known.started_ticks != stat.started_ticks:
            return replace(view, tasks=others, numa=view.numa and replace(numa, tasks=numa_others))
        task = known or NetTask(setting.pid, stat.started_ticks, stat.name, None, 1, "", "", stat.cpu, 0.0, 0.0, [])
        realtime = any(policy in REALTIME_POLICIES for policy in (policies.main, *policies.threads.values()))
        now = {"name": stat.name, "bound": scheduling.bound, "kernel": scheduling.kernel, "realtime": realtime}
        if (numa_task := view.numa_task(setting.pid)) is not None:
            view = replace(view, numa=replace(numa, tasks=[*numa_others, replace(numa_task, **now)]))
        return replace(view, tasks=[*others, replace(task, **now)]) if isinstance(task, NetTask) else view


def own_and_ancestors(root: Path) -> frozenset[int]:
    """Return the PIDs of this process and of those that started it, up to the first of its PID namespace."""
    found: set[int] = set()
    pid = os.getpid()
    while pid and pid not in found:
        found.add(pid)
        try:
            pid = parse_parent(read_file(root, f"proc/{pid}/stat"), f"proc/{pid}/stat")
        except (OSError, ParseError):
            break  # it has ended, or a captured tree does not have it
    return frozenset(found)


def read_each(pid: int, read: Callable[[int], T]) -> ThreadValues[T]:
    """Return a value of each thread of a process, read by calling read(tid). Raises OSError."""
    found: dict[int, T] = {}
    for thread in _threads(pid):
        try:
            found[thread] = read(thread)
        except ProcessLookupError:
            continue
    if pid not in found:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return ThreadValues(found.pop(pid), found)


def write_each(pid: int, wanted: ThreadValues[T], write: Callable[[int, T], None]) -> None:
    """Set a value of every thread, also of new ones. Raises OSError after all other threads are set."""
    done: set[int] = set()
    failed: OSError | None = None
    for _ in range(_MAX_SEARCHES):
        fresh = _threads(pid) - done
        if not fresh:
            break
        for thread in sorted(fresh):
            try:
                write(thread, wanted.threads.get(thread, wanted.main))
            except ProcessLookupError:
                if thread == pid:
                    raise
            except OSError as error:
                failed = failed or error
        done |= fresh
    if failed is not None:
        raise failed
    if not done:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))


def without_ended_threads(pid: int, wanted: ThreadValues[T]) -> ThreadValues[T]:
    """Return the values of a process's threads without threads that have ended."""
    threads = _threads(pid) if wanted.threads else frozenset()
    return ThreadValues(wanted.main, {thread: its for thread, its in wanted.threads.items() if thread in threads})


def _threads(pid: int) -> frozenset[int]:
    """Return the thread ids of a process, empty if it has ended. Raises OSError if they cannot be listed."""
    try:
        return frozenset(int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - names, not Paths
    except OSError as error:
        if error.errno in _ENDED_ERRNOS:
            return frozenset()
        raise
