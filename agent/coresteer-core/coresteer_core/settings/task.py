"""CPU affinity and nice value of processes (sched_setaffinity(2), setpriority(2))."""

import re
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from msgspec import Struct

from coresteer_core.cpuset import MAX_CPUS, check_cpu_list, format_cpu_list, parse_cpu_list
from coresteer_core.node.numa import NUMA_TASK_CRITERION, NumaTask
from coresteer_core.node.reserved import ReservedCpus
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.settings.base import (
    CPU_LIST_SCHEMA,
    PID_PATTERN,
    KeyForm,
    Setting,
    SettingError,
    canonical_cpu_list,
    format_cpus,
    number_schema,
    online_cpu_list,
)
from coresteer_core.settings.location import TaskLocation
from coresteer_core.settings.modified_view import ModifiedView

T = TypeVar("T")

MAX_NICE, MIN_NICE = 19, -20
_MOST_CPUS = 8 * MAX_CPUS
"""In the different lists of a process's threads together: a few characters of text name a set of up to 0.5 MiB."""
_NICE = re.compile(r"[+-]?\d{1,3}\Z", re.ASCII)


class ThreadValues(Struct, Generic[T], frozen=True):
    """A value for each thread of a process. main: of all threads but those listed in threads by thread id."""

    main: T
    threads: dict[int, T] = {}


def _split(value: str, one: Callable[[str], T], example: str) -> ThreadValues[T]:
    """Parse ``0-7;813=2;814=3``: a value for all threads, then exceptions by thread id. Raises SettingError."""
    first, *others = value.split(";")
    threads: dict[int, T] = {}
    for other in others:
        thread, sign, text = other.partition("=")
        if not sign or not (thread.isascii() and thread.isdigit()) or len(thread) > 7:
            raise SettingError(f"“{other[:40]}” is not a thread with {example}.")
        threads[int(thread)] = one(text)
    return ThreadValues(one(first), threads)


def _join(found: ThreadValues[T], to_text: Callable[[T], str]) -> str:
    differing = {thread: value for thread, value in found.threads.items() if value != found.main}
    exceptions = [f"{thread}={to_text(value)}" for thread, value in sorted(differing.items())]
    return ";".join([to_text(found.main), *exceptions])


class OfTask(Setting, frozen=True):
    """Base of the settings of a process: affinity, nice value and memory nodes."""

    pid: int

    complete_in_view = False
    _name: ClassVar[str] = ""

    @classmethod
    def examples(cls) -> Sequence[Setting]:
        """Return one example setting."""
        return [cls(1)]

    @property
    def key(self) -> str:
        """The setting's key: ``task/812/affinity``, ``task/812/nice``."""
        return f"task/{self.pid}/{self._name}"

    @property
    def name(self) -> str:
        """The last part of the setting's key: ``affinity``, ``nice``."""
        return self._name

    @property
    def subject(self) -> str:
        """The process that the setting belongs to, for a sentence: ``task 812``."""
        return f"task {self.pid}"

    @property
    def location(self) -> TaskLocation:
        """The place in a View of the node that holds the process's value."""
        return TaskLocation(self.pid, self._name)

    @property
    def process(self) -> int:
        """The PID of the process that the setting belongs to."""
        return self.pid

    def missing_reason(self, view: View) -> str | None:
        """Return a sentence that says that no such process uses the network on a node; None where one does."""
        if self._task(view) is not None:
            return None
        return f"This node has no process {self.pid} that communicates over the network, {NUMA_TASK_CRITERION}."

    def describe(self, view: View | None = None) -> str:
        """Return the process's name and PID for a sentence, ``nginx (812)``; ``PID 812`` without a View."""
        task = self._task(view) if view is not None else None
        return f"{task.name} ({self.pid})" if task is not None else f"PID {self.pid}"

    def belongs_to(self, view: View, reserved: ReservedCpus) -> bool:
        """Return whether the process can run nowhere but on these reserved CPUs."""
        task = self._task(view)
        return task is not None and reserved.has_process(parse_cpu_list(task.allowed))

    def container_refusals(self, view: View) -> list[tuple[str, str]]:
        """Return ``reserved`` for a process of a container to which the kubelet assigned CPUs, which is not moved."""
        holder = next((r for r in view.inventory.reserved if r.partition is None and self.belongs_to(view, r)), None)
        if holder is None:
            return []
        why = f"the kubelet assigned {format_cpus(holder.numbers)} to {holder.holder}, and its processes stay there."
        return [("reserved", f"{self.describe(view)} is not moved: {why}")]

    def _common_refusals(self, view: View, value: str, by_thread: str) -> list[tuple[str, str]]:
        """Return ``unknown`` for a process that a View lacks, and ``invalid`` with by_thread for values by thread."""
        missing = self.missing_reason(view)
        found = [] if missing is None else [("unknown", missing)]
        return [*found, ("invalid", by_thread)] if ";" in value else found

    def _task(self, view: View) -> NetTask | NumaTask | None:
        return view.task(self.pid)


class TaskAffinity(OfTask, frozen=True):
    """``task/812/affinity``: the CPUs that the threads of a process may run on (sched_setaffinity(2)).

    A CPU list for all of them. Where threads differ, the original is ``0-7;813=2;814=3``: that of the main thread and,
    by thread id, those of threads that differ.
    """

    _name = "affinity"
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "task/PID/affinity",
            rf"task/{PID_PATTERN}/affinity",
            lambda m: TaskAffinity(int(m[1])),
            subject="task $1",
            name="affinity",
            target="task:$1",
        ),
    )

    @property
    def title(self) -> str:
        """Empty: the subject, ``task 812``, says enough."""
        return ""

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the affinity, a CPU list."""
        return CPU_LIST_SCHEMA

    def canonical(self, value: str) -> str:
        """Return a value in its shortest spelling, which is unique. Raises SettingError for an invalid one."""
        return _join(self._listed(value), str)

    def split(self, value: str) -> ThreadValues[frozenset[int]]:
        """Return a value for each thread, parsed from ``MAIN;THREAD=VALUE;…``. Raises SettingError."""
        listed = self._listed(value)
        threads = {thread: parse_cpu_list(cpus) for thread, cpus in listed.threads.items()}
        return ThreadValues(parse_cpu_list(listed.main), threads)

    def join(self, affinities: ThreadValues[frozenset[int]]) -> str:
        """Return values by thread as the text of one value: ``MAIN;THREAD=VALUE;…``."""
        return _join(affinities, format_cpu_list)

    def _listed(self, value: str) -> ThreadValues[str]:
        listed = _split(value, self._some, "its CPUs; write for example 813=2-3")
        if sum(map(check_cpu_list, {listed.main, *listed.threads.values()})) > _MOST_CPUS:
            raise SettingError(f"The threads' different lists name more than {_MOST_CPUS} CPUs together.")
        return listed

    @staticmethod
    def _some(cpus: str) -> str:
        if not (listed := canonical_cpu_list(cpus)):
            raise SettingError("A process needs at least one CPU; name one, for example 2 or 0-3.")
        return listed

    def value_in_view(self, value: str) -> str:
        """Return the union of all threads' CPUs, as which a View represents an affinity by thread."""
        return format_cpu_list(self.cpus(value))

    def cpus(self, value: str) -> frozenset[int]:
        """Return the CPU numbers in an affinity, those of all threads."""
        found = self.split(value)
        return found.main.union(*set(found.threads.values()))

    def current(self, view: View) -> str | None:
        """Return the process's affinity from a View, without offline CPUs; None where it is unknown."""
        task = self._task(view)
        if task is None:
            return None
        return online_cpu_list(task.affinity, view.topology.online()) or None

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return (code, sentence) pairs.

        ``unknown``, ``invalid`` (differs by thread), ``bound``, ``kernel``, ``realtime``, ``reserved`` or ``cpuset``.
        """
        task = self._task(view)
        found = self.container_refusals(view) + self._common_refusals(
            view, value, f"Name the CPUs of {self.describe(view)} for all of its threads together."
        )
        if task is not None and task.bound:
            found.append(("bound", f"{self.describe(view)} is a kernel thread that is bound to its CPUs."))
        elif task is not None and task.kernel:
            found.append(("kernel", f"{self.describe(view)} is a kernel thread, which the kernel places."))
        elif task is not None and task.realtime:
            sentence = f"{self.describe(view)} is a real-time process: other CPUs may make it miss its deadlines."
            found.append(("realtime", sentence))
        allowed = parse_cpu_list(task.allowed) if task is not None else frozenset()
        if allowed and (outside := self.cpus(value) & view.topology.online() - allowed):
            are = "are" if len(outside) > 1 else "is"
            found.append(
                (
                    "cpuset",
                    f"{format_cpus(outside)} {are} not in the cpuset of {self.describe(view)}, "
                    f"which has {format_cpus(allowed)}.",
                )
            )
        return found

    def format_value(self, value: str) -> str:
        """Return a value as text for a sentence: ``CPUs 0-3``, ``nice 5``."""
        return format_cpus(self.cpus(value)) + (" (threads differ)" if ";" in value else "")

    def shell_command(self, value: str) -> str:
        """Return a shell command (taskset, renice) that sets a value for all threads of the process."""
        return f"taskset --all-tasks --cpu-list --pid {self.value_in_view(value)} {self.pid}"

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Let the process run on these CPUs in a modified View; its load moves with it."""
        view.set_task_affinity(self.pid, self.value_in_view(value))


class TaskNice(OfTask, frozen=True):
    """``task/812/nice``: nice value of a process's threads; -20 gets the most CPU time in competition, 19 the least.

    Others are those in the same cgroup or session with a share of its own (cpu.weight, autogroup; sched(7)). One number
    for all threads. Where threads differ, the original is ``0;813=5``, as with TaskAffinity.
    """

    _name = "nice"
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "task/PID/nice",
            rf"task/{PID_PATTERN}/nice",
            lambda m: TaskNice(int(m[1])),
            subject="task $1",
            name="nice",
            target="task:$1",
        ),
    )

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of a nice value, an integer from -20 to 19."""
        return number_schema(MIN_NICE, MAX_NICE)

    def canonical(self, value: str) -> str:
        """Return a value in its shortest spelling, which is unique. Raises SettingError for an invalid one."""
        return self.join(self.split(value))

    def split(self, value: str) -> ThreadValues[int]:
        """Return a value for each thread, parsed from ``MAIN;THREAD=VALUE;…``. Raises SettingError."""
        return _split(value, self._one, "its nice value; write for example 813=5")

    def join(self, nices: ThreadValues[int]) -> str:
        """Return values by thread as the text of one value: ``MAIN;THREAD=VALUE;…``."""
        return _join(nices, str)

    @staticmethod
    def _one(text: str) -> int:
        if _NICE.match(text.strip()) and MIN_NICE <= (nice := int(text)) <= MAX_NICE:
            return nice
        raise SettingError(f"“{text[:40]}” is not a nice value, which is from {MIN_NICE} to {MAX_NICE}.")

    def missing_reason(self, view: View) -> str | None:
        """Return a sentence that says that no such process uses the network on a node; None where one does."""
        if isinstance(self._task(view), NetTask):
            return None
        return f"This node has no process {self.pid} that communicates over the network."

    def value_in_view(self, value: str) -> str:
        """Return the main thread's nice value, as which a View represents nice values by thread."""
        return str(self.split(value).main)

    def current(self, view: View) -> str | None:
        """Return the process's present nice value from a View of the node; None where it is unknown."""
        task = self._task(view)
        return None if task is None else task.params.get(self._name)

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return (code, sentence) pairs: ``unknown``, ``invalid`` (differs by thread), ``kernel`` or ``realtime``."""
        task = self._task(view)
        found = self._common_refusals(
            view, value, f"Name one nice value for all threads of {self.describe(view)} together."
        )
        if task is not None and task.kernel:
            found.append(("kernel", f"{self.describe(view)} is a kernel thread, whose nice value is the kernel's own."))
        elif task is not None and task.realtime:
            sentence = f"{self.describe(view)} is a real-time task: it runs before all others whatever its nice value."
            found.append(("realtime", sentence))
        return found

    def format_value(self, value: str) -> str:
        """Return a value as text for a sentence: ``CPUs 0-3``, ``nice 5``."""
        return f"nice {self.value_in_view(value)}" + (" (threads differ)" if ";" in value else "")

    def shell_command(self, value: str) -> str:
        """Return a shell command (taskset, renice) that sets a value for all threads of the process."""
        return f"renice -n {self.value_in_view(value)} -p $(ls /proc/{self.pid}/task)"
