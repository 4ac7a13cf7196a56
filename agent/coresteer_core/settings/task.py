"""Where processes run."""

from msgspec import Struct

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.model import NetTask, View
from coresteer_core.settings.base import SettingError, common_cpus, cpu_list, say_cpus


class Affinities(Struct, frozen=True):
    """cpus: of the main thread and of all that threads does not name by thread id."""

    cpus: frozenset[int]
    threads: dict[int, frozenset[int]] = {}


class TaskAffinity(Struct, frozen=True):
    """``task/812/affinity``: the CPUs that the threads of a process may run on (sched_setaffinity(2)).

    A CPU list for all of them. Where threads differ, the original is ``0-7;813=2;814=3``: what the main thread has
    and, by thread id, what others have instead.
    """

    pid: int

    @property
    def key(self) -> str:
        """Its address."""
        return f"task/{self.pid}/affinity"

    def canonical(self, value: str) -> str:
        """The shortest spelling. Raises SettingError for a value that is none."""
        return self.join(self.split(value))

    def split(self, value: str) -> Affinities:
        """A value by threads. Raises SettingError."""
        first, *others = value.split(";")
        threads: dict[int, frozenset[int]] = {}
        for other in others:
            thread, sign, cpus = other.partition("=")
            if not sign or not (thread.isascii() and thread.isdigit()) or len(thread) > 7:
                raise SettingError(f"“{other[:40]}” is not a thread with its CPUs; write for example 813=2-3.")
            threads[int(thread)] = self._some(cpus)
        return Affinities(self._some(first), threads)

    def join(self, affinities: Affinities) -> str:
        """The value of these threads."""
        differing = {thread: cpus for thread, cpus in affinities.threads.items() if cpus != affinities.cpus}
        others = [f"{thread}={format_cpu_list(cpus)}" for thread, cpus in sorted(differing.items())]
        return ";".join([format_cpu_list(affinities.cpus), *others])

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
        return found.cpus.union(*found.threads.values())

    def absent(self, view: View) -> str | None:
        """Why a node does not have it, as a sentence; None where it does."""
        if self._task(view) is not None:
            return None
        return f"This node has no process {self.pid} that is known to talk over the network."

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

    def about(self, view: View) -> str | None:
        """The netdev whose packets it is about: none alone."""
        return None

    def describe(self, view: View | None = None) -> str:
        """Its name in a sentence, with more in it when there is a view."""
        task = self._task(view) if view is not None else None
        return f"{task.name} ({self.pid})" if task is not None else f"PID {self.pid}"

    def say(self, value: str) -> str:
        """A value in a sentence."""
        return say_cpus(self.cpus(value)) + (" (threads differ)" if ";" in value else "")

    def shell(self, value: str) -> str:
        """The same by hand."""
        return f"taskset --all-tasks --cpu-list --pid {self.shown(value)} {self.pid}"

    def _task(self, view: View) -> NetTask | None:
        return view.task(self.pid)
