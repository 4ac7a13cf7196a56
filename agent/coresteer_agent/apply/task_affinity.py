"""Affinity of every thread of a process: ``sched_setaffinity`` (kernel: kernel/sched/syscalls.c).

Only the running kernel's processes can be asked; a captured tree has none.
"""

import errno
import os
from pathlib import Path

from msgspec.structs import replace

from coresteer_agent.apply.rooted import ReadOnlyModeError
from coresteer_agent.collect.cpuset import read_cpuset
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import read_file
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.collect.tasks import parse_task_stat
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.model import NetTask, View
from coresteer_core.protocol import Outcome
from coresteer_core.settings import TaskAffinity
from coresteer_core.settings.task import Affinities

_NO_SETAFFINITY = 0x0400_0000
"""PF_NO_SETAFFINITY (kernel: include/linux/sched.h) of the flags in /proc/PID/stat."""
_ROUNDS = 20
"""Threads that start meanwhile are looked for so often at most; they mostly have their creator's affinity."""
_GONE = (errno.ESRCH, errno.ENOENT)

_ERRORS = {
    errno.EPERM: (Outcome.REFUSED, "The agent may not place this process; it has to run as root."),
    errno.EINVAL: (
        Outcome.REFUSED,
        "The kernel takes no such set of CPUs for it: none of them is online and in its cpuset, "
        "or it is a kernel thread that is bound to its CPUs.",
    ),
    errno.ESRCH: (Outcome.UNSUPPORTED, "The process has ended."),
}


def exists(root: Path, setting: TaskAffinity) -> bool:
    """Whether there is such a process; a thread of another one has a folder in /proc too. Raises OSError."""
    if not is_running_kernel(root):
        return False
    try:
        lines = read_file(root, f"proc/{setting.pid}/status").splitlines()
    except OSError as error:
        if error.errno in _GONE:
            return False
        raise
    return f"Tgid:\t{setting.pid}".encode() in lines


def read(root: Path, setting: TaskAffinity) -> str:
    """The affinity of each thread. Raises OSError."""
    threads: dict[int, frozenset[int]] = {}
    for thread in _threads(setting.pid):
        try:
            threads[thread] = frozenset(os.sched_getaffinity(thread))
        except ProcessLookupError:
            continue
    if setting.pid not in threads:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return setting.join(Affinities(threads.pop(setting.pid), threads))


def write(root: Path, setting: TaskAffinity, value: str) -> None:
    """Set every thread, also those that start meanwhile. Raises OSError once all the others are set."""
    wanted = setting.split(value)
    done: set[int] = set()
    failed: OSError | None = None
    for _ in range(_ROUNDS):
        fresh = _threads(setting.pid) - done
        if not fresh:
            break
        for thread in sorted(fresh):
            try:
                os.sched_setaffinity(thread, wanted.threads.get(thread, wanted.cpus))
            except ProcessLookupError:
                if thread == setting.pid:
                    raise
            except OSError as error:
                failed = failed or error
        done |= fresh
    if failed is not None:
        raise failed
    if not done:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))


def attainable(root: Path, setting: TaskAffinity, value: str) -> str:
    """The value without threads that have ended."""
    wanted = setting.split(value)
    alive = _threads(setting.pid) if wanted.threads else frozenset()
    return setting.join(Affinities(wanted.cpus, {t: cpus for t, cpus in wanted.threads.items() if t in alive}))


def owners(root: Path, setting: TaskAffinity) -> list[str]:
    """When it started, which no later process with its number shares; its name may change in its life."""
    try:
        stat = parse_task_stat(read_file(root, f"proc/{setting.pid}/stat"), f"proc/{setting.pid}/stat")
    except (OSError, ParseError):
        return []
    return [f"the process that started at tick {stat.started_ticks}"]


def explain(error: OSError | ReadOnlyModeError, root: Path) -> tuple[Outcome, str]:
    """A failed write's outcome, refused or failed, and a sentence for it."""
    code = error.errno or 0 if isinstance(error, OSError) else 0
    return _ERRORS.get(code, (Outcome.FAILED, f"The answer was: {error}."))


def seen(root: Path, setting: TaskAffinity, view: View) -> View:
    """The view with the process as it is now: its name, its cpuset, and whether it is bound to its CPUs.

    Without it where its number is another process's by now.
    """
    path = f"proc/{setting.pid}/stat"
    try:
        text = read_file(root, path)
        stat = parse_task_stat(text, path)
        allowed = read_cpuset(root, setting.pid)
    except (OSError, ParseError):
        return view
    flags = int(text.rpartition(b") ")[2].split()[6])
    others = [task for task in view.tasks if task.pid != setting.pid]
    known = next((task for task in view.tasks if task.pid == setting.pid), None)
    if known is not None and known.started_ticks != stat.started_ticks:
        return replace(view, tasks=others)
    task = known or NetTask(setting.pid, stat.started_ticks, stat.name, None, 1, "", "", stat.cpu, 0.0, 0.0, [])
    bound = bool(flags & _NO_SETAFFINITY)
    now = replace(task, name=stat.name, allowed=format_cpu_list(allowed or ()), bound=bound)
    return replace(view, tasks=[*others, now])


def _threads(pid: int) -> frozenset[int]:
    """None where the process has ended. Raises OSError when they cannot be listed."""
    try:
        return frozenset(int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - names, not Paths
    except OSError as error:
        if error.errno in _GONE:
            return frozenset()
        raise
