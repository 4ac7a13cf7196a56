"""Where processes run, and which of those on a CPU get more of it."""

import re
from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.settings.base import SettingError, common_cpus, cpu_list, say_cpus

T = TypeVar("T")

MOST_NICE, LEAST_NICE = 19, -20
_NICE = re.compile(r"[+-]?\d{1,3}\Z", re.ASCII)


class ByThread(Struct, Generic[T], frozen=True):
    """What the threads of a process have. main: the main thread and all that threads does not name by thread id."""

    main: T
    threads: dict[int, T] = {}


def _split(value: str, one: Callable[[str], T], example: str) -> ByThread[T]:
    """``0-7;813=2;814=3`` by threads. Raises SettingError."""
    first, *others = value.split(";")
    threads: dict[int, T] = {}
    for other in others:
        thread, sign, its = other.partition("=")
        if not sign or not (thread.isascii() and thread.isdigit()) or len(thread) > 7:
            raise SettingError(f"“{other[:40]}” is not a thread with {example}.")
        threads[int(thread)] = one(its)
    return ByThread(one(first), threads)


def _join(found: ByThread[T], say: Callable[[T], str]) -> str:
    differing = {thread: its for thread, its in found.threads.items() if its != found.main}
    return ";".join([say(found.main), *(f"{thread}={say(its)}" for thread, its in sorted(differing.items()))])


class _OfTask(Struct, frozen=True):
    """What is common to settings of all threads of a process."""

    pid: int

    _name = ""

    @property
    def key(self) -> str:
        """Its address."""
        return f"task/{self.pid}/{self._name}"

    def absent(self, view: View) -> str | None:
        """Why a node does not have it, as a sentence; None where it does."""
        if self._task(view) is not None:
            return None
        return f"This node has no process {self.pid} that is known to talk over the network."

    def about(self, view: View) -> str | None:
        """The netdev whose packets it is about: none alone."""
        return None

    def describe(self, view: View | None = None) -> str:
        """Its name in a sentence, with more in it when there is a view."""
        task = self._task(view) if view is not None else None
        return f"{task.name} ({self.pid})" if task is not None else f"PID {self.pid}"

    def _task(self, view: View) -> NetTask | None:
        return view.task(self.pid)


class TaskAffinity(_OfTask, frozen=True):
    """``task/812/affinity``: the CPUs that the threads of a process may run on (sched_setaffinity(2)).

    A CPU list for all of them. Where threads differ, the original is ``0-7;813=2;814=3``: what the main thread has
    and, by thread id, what others have instead.
    """

    _name = "affinity"

    def canonical(self, value: str) -> str:
        """The shortest spelling. Raises SettingError for a value that is none."""
        return self.join(self.split(value))

    def split(self, value: str) -> ByThread[frozenset[int]]:
        """A value by threads. Raises SettingError."""
        return _split(value, self._some, "its CPUs; write for example 813=2-3")

    def join(self, affinities: ByThread[frozenset[int]]) -> str:
        """The value of these threads."""
        return _join(affinities, format_cpu_list)

    @staticmethod
    def _some(cpus: str) -> frozenset[int]:
        if not (listed := cpu_list(cpus)):
            raise SettingError("A process needs at least one CPU; name one, for example 2 or 0-3.")
        return parse_cpu_list(listed)

    def equal(self, first: str, second: str) -> bool:
        """Whether two values mean the same to the kernel."""
        return self.canonical(first) == self.canonical(second)

    def shown(self, value: str) -> str:
        """What a view shows where this value stands: the CPUs of all threads."""
        return format_cpu_list(self.cpus(value))

    def cpus(self, value: str) -> frozenset[int]:
        """The CPUs that a value names."""
        found = self.split(value)
        return found.main.union(*found.threads.values())

    def current(self, view: View) -> str | None:
        """The value that a view shows, without CPUs that are offline; None where it is not known."""
        task = self._task(view)
        if task is None:
            return None
        return common_cpus(task.affinity, view.topology.online()) or None

    def against(self, view: View, value: str) -> list[tuple[str, str]]:
        """What of the setting itself speaks against a value: codes of Refusal, each with a sentence."""
        task = self._task(view)
        found = []
        if (missing := self.absent(view)) is not None:
            found.append(("unknown", missing))
        if ";" in value:
            found.append(("invalid", f"Name the CPUs of {self.describe(view)} for all of its threads together."))
        if task is not None and task.bound:
            found.append(("bound", f"{self.describe(view)} is a kernel thread that is bound to its CPUs."))
        allowed = parse_cpu_list(task.allowed) if task is not None else frozenset()
        if allowed and (outside := self.cpus(value) & view.topology.online() - allowed):
            are = "are" if len(outside) > 1 else "is"
            found.append(
                (
                    "cpuset",
                    f"{say_cpus(outside)} {are} not in the cpuset of {self.describe(view)}, "
                    f"which has {say_cpus(allowed)}.",
                )
            )
        return found

    def say(self, value: str) -> str:
        """A value in a sentence."""
        return say_cpus(self.cpus(value)) + (" (threads differ)" if ";" in value else "")

    def shell(self, value: str) -> str:
        """The same by hand."""
        return f"taskset --all-tasks --cpu-list --pid {self.shown(value)} {self.pid}"


class TaskNice(_OfTask, frozen=True):
    """``task/812/nice``: how much of a CPU the threads of a process get beside others, -20 most, 19 least.

    Of those in the same cgroup or session that has a share of its own (cpu.weight, autogroup; sched(7)). One number for
    all of them. Where threads differ, the original is ``0;813=5``, as with TaskAffinity.
    """

    _name = "nice"

    def canonical(self, value: str) -> str:
        """The shortest spelling. Raises SettingError for a value that is none."""
        return self.join(self.split(value))

    def split(self, value: str) -> ByThread[int]:
        """A value by threads. Raises SettingError."""
        return _split(value, self._one, "its nice value; write for example 813=5")

    def join(self, nices: ByThread[int]) -> str:
        """The value of these threads."""
        return _join(nices, str)

    @staticmethod
    def _one(text: str) -> int:
        if _NICE.match(text.strip()) and LEAST_NICE <= (nice := int(text)) <= MOST_NICE:
            return nice
        raise SettingError(f"“{text[:40]}” is not a nice value, which goes from {LEAST_NICE} to {MOST_NICE}.")

    def equal(self, first: str, second: str) -> bool:
        """Whether two values mean the same to the kernel."""
        return self.canonical(first) == self.canonical(second)

    def shown(self, value: str) -> str:
        """What a view shows where this value stands: that of the main thread."""
        return str(self.split(value).main)

    def cpus(self, value: str) -> frozenset[int]:
        """None: it names no CPUs."""
        return frozenset()

    def current(self, view: View) -> str | None:
        """The value that a view shows; None where it is not known."""
        task = self._task(view)
        return None if task is None else task.params.get(self._name)

    def against(self, view: View, value: str) -> list[tuple[str, str]]:
        """What of the setting itself speaks against a value: codes of Refusal, each with a sentence."""
        task = self._task(view)
        found = []
        if (missing := self.absent(view)) is not None:
            found.append(("unknown", missing))
        if ";" in value:
            found.append(("invalid", f"Name one nice value for all threads of {self.describe(view)} together."))
        if task is not None and task.kernel:
            found.append(("kernel", f"{self.describe(view)} is a kernel thread, whose nice value is the kernel's own."))
        elif task is not None and task.realtime:
            sentence = f"{self.describe(view)} is a real-time task: it runs before all others whatever its nice value."
            found.append(("realtime", sentence))
        return found

    def say(self, value: str) -> str:
        """A value in a sentence."""
        return f"nice {self.shown(value)}" + (" (threads differ)" if ";" in value else "")

    def shell(self, value: str) -> str:
        """The same by hand."""
        return f"renice -n {self.shown(value)} -p $(ls /proc/{self.pid}/task)"
