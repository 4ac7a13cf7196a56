"""CPUs and NUMA nodes of cgroups of version 2 (kernel: Documentation/admin-guide/cgroup-v2.rst, Cpuset)."""

import shlex
from collections.abc import Sequence
from typing import ClassVar

from coresteer_core.cpuset import CpuListError, format_cpu_list, parse_cpu_list, shortest_cpu_list
from coresteer_core.node.cpusets import ROOT_CGROUP, Cpuset, migrated, parent_cgroup
from coresteer_core.node.numa import NUMA_TASK_CRITERION, PAGE_BYTES, PAGE_COST_S
from coresteer_core.node.reserved import ReservedCpus, is_kubepods
from coresteer_core.node.view import View
from coresteer_core.settings.base import CPU_LIST_SCHEMA, KeyForm, SettingError, format_cpus
from coresteer_core.settings.cgroup import GROUP_PATTERN, OfCgroup
from coresteer_core.settings.memory_nodes import memory_refusals, mib

INHERITED = "inherited"
"""Value of an empty file: the cgroup has the CPUs or NUMA nodes of its parent."""


class OfCpuset(OfCgroup, frozen=True):
    """Base of the two settings of a cgroup's cpuset: a list of CPUs or NUMA nodes, or ``inherited``.

    Both define the members that raise NotImplementedError here, as every kind of setting does.
    """

    _name: ClassVar[str] = ""
    _noun: ClassVar[str] = ""

    @classmethod
    def examples(cls) -> Sequence[OfCgroup]:
        """Return one example setting."""
        return [cls("system.slice")]

    @property
    def name(self) -> str:
        """The last part of the setting's key, which is the name of its file: ``cpuset.mems``."""
        return self._name

    def canonical(self, value: str) -> str:
        """Return the shortest spelling of a list, ``inherited`` for an empty one. Raises SettingError."""
        text = value.strip()
        if text == INHERITED:
            return text
        try:
            return shortest_cpu_list(text) or INHERITED
        except CpuListError:
            sentence = f"“{text[:40]}” is not a list of {self._noun}; write for example 1, 0-1 or {INHERITED}."
            raise SettingError(sentence) from None

    def listed(self, value: str) -> frozenset[int]:
        """Return the numbers in a value; none for ``inherited``."""
        return frozenset() if value == INHERITED else parse_cpu_list(value)

    def current(self, view: View) -> str | None:
        """Return the cgroup's present list from a View of the node, None where the cgroup has none."""
        found = view.cpusets.get(self.path)
        configured = None if found is None else self._configured(found)
        return None if configured is None else self.canonical(configured)

    def missing_reason(self, view: View) -> str | None:
        """Return a sentence that says why it cannot be set for the cgroup and what to do; None where it can."""
        if ROOT_CGROUP not in view.cpusets:
            return (
                f"This node has reported no cpuset controller of cgroup version 2, which {self._name} needs; where the "
                "controller belongs to version 1, boot with systemd.unified_cgroup_hierarchy=1."
            )
        found = view.cpusets.get(self.path)
        if found is None:
            return (
                f"This node has no cgroup {self.path} with a process that communicates over the network, "
                f"{NUMA_TASK_CRITERION}."
            )
        if self._configured(found) is None:
            parent = shlex.quote(f"/sys/fs/cgroup/{parent_cgroup(self.path)}".rstrip("/"))
            return (
                f"The cpuset controller is not enabled for {self.path}: enable it with AllowedCPUs= or "
                f"AllowedMemoryNodes= of its systemd unit, or echo +cpuset > {parent}/cgroup.subtree_control, "
                "for the cgroups above first."
            )
        return None

    def belongs_to(self, view: View, reserved: ReservedCpus) -> bool:
        """Return whether the cgroup is the partition, or above or below it."""
        return reserved.has_cgroup(self.path)

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return ``unknown`` without a cpuset, ``cpuset`` outside of its parent's, and those of its kind.

        ``reserved`` for a pod's cgroup while the kubelet assigns CPUs to containers.
        """
        if (missing := self.missing_reason(view)) is not None:
            return [("unknown", missing)]
        holder = next((each for each in view.inventory.reserved if each.partition is None), None)
        if holder is not None and is_kubepods(self.path):
            return [("reserved", f"The kubelet sets {self._name} of {self.path}: it assigned CPUs to {holder.holder}.")]
        allowed = self.inherited(view)
        outside = (self.listed(value) & self._present(view)) - allowed
        if not outside:
            return []
        are, parent = "are" if len(outside) > 1 else "is", parent_cgroup(self.path) or "the root cgroup"
        return [
            (
                "cpuset",
                f"{self._said(outside)} {are} not in {self._name}.effective of {parent}, the parent of "
                f"{self.path}, which has {self._said(allowed)}.",
            )
        ]

    def warnings(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return ``inherited`` where the file is or becomes empty: Linux may need the parent's list instead."""
        if INHERITED not in (value, self.current(view)):
            return []
        sentence = (
            f"Linux empties {self._name} only of a cgroup without processes; with some, the list of its parent, "
            f"{self._said(self.inherited(view))}, is written where it is to be empty, also by an undo."
        )
        return [("inherited", sentence)]

    def inherited(self, view: View) -> frozenset[int]:
        """Return what the cgroup's parent has: all that it may have, and what it has with an empty list."""
        return self.effective(view.cpusets.get(parent_cgroup(self.path), Cpuset()))

    def format_value(self, value: str) -> str:
        """Return a value as text for a sentence: ``CPUs 0-3``, ``NUMA node 1``, ``inherited``."""
        return INHERITED if value == INHERITED else self._said(self.listed(value))

    def shell_command(self, value: str) -> str:
        """Return a shell command that writes the list to its cgroup file."""
        file = shlex.quote(f"/sys/fs/cgroup/{self.path}/{self._name}")
        return f"echo > {file}" if value == INHERITED else f"echo {value} > {file}"

    def effective(self, cpuset: Cpuset) -> frozenset[int]:
        """Return the CPUs or NUMA nodes that a cgroup gets."""
        raise NotImplementedError

    def _configured(self, cpuset: Cpuset) -> str | None:
        raise NotImplementedError

    def _present(self, view: View) -> frozenset[int]:
        raise NotImplementedError

    def _said(self, numbers: frozenset[int]) -> str:
        raise NotImplementedError


class CpusetCpus(OfCpuset, frozen=True):
    """``cgroup/web.slice/cpuset.cpus``: the CPUs of a cgroup's processes, a CPU list or ``inherited``."""

    _name = "cpuset.cpus"
    _noun = "CPUs"
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "cgroup/PATH/cpuset.cpus",
            rf"cgroup/{GROUP_PATTERN}/cpuset[.]cpus",
            lambda m: CpusetCpus(m[1]),
            subject="$1",
            name="cpuset.cpus",
        ),
    )

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the value, a CPU list."""
        return CPU_LIST_SCHEMA

    def cpus(self, value: str) -> frozenset[int]:
        """Return the CPU numbers in a value; none where they are inherited."""
        return self.listed(value)

    def cpus_on(self, view: View, value: str) -> frozenset[int]:
        """Return the CPUs in a value; those of the parent for ``inherited``, which may be written in its place."""
        return self.inherited(view) & self._present(view) if value == INHERITED else self.cpus(value)

    def warnings(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return ``affinities`` where threads of the cgroup are bound to some of its CPUs, and the common ones."""
        found = super().warnings(view, value)
        bound = [
            f"{task.name} ({task.pid})"
            for task in view.all_tasks()
            if f"{task.cgroup}/".startswith(f"/{self.path}/") and (task.threads_differ or task.affinity != task.allowed)
        ]
        if not bound:
            return found
        others = f" and {len(bound) - 1} other{'s' if len(bound) > 2 else ''}" if len(bound) > 1 else ""
        sentence = (
            f"Linux before 6.2 gives every thread in {self.path} all CPUs of the cgroup: the affinity of "
            f"{bound[0]}{others} is lost, and an undo does not restore it."
        )
        return [*found, ("affinities", sentence)]

    def effective(self, cpuset: Cpuset) -> frozenset[int]:
        """Return the CPUs that a cgroup gets."""
        return parse_cpu_list(cpuset.effective_cpus)

    def _configured(self, cpuset: Cpuset) -> str | None:
        return cpuset.cpus

    def _present(self, view: View) -> frozenset[int]:
        return view.topology.online()

    def _said(self, numbers: frozenset[int]) -> str:
        return format_cpus(numbers)


class CpusetMems(OfCpuset, frozen=True):
    """``cgroup/web.slice/cpuset.mems``: the NUMA nodes of a cgroup's memory, a list or ``inherited``.

    Linux from 5.15 moves the pages of its processes on a change.
    """

    _name = "cpuset.mems"
    moves_pages = True
    _noun = "NUMA nodes"
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "cgroup/PATH/cpuset.mems",
            rf"cgroup/{GROUP_PATTERN}/cpuset[.]mems",
            lambda m: CpusetMems(m[1]),
            subject="$1",
            name="cpuset.mems",
        ),
    )

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the value, a list of NUMA nodes."""
        return {"type": "string"}

    def effective(self, cpuset: Cpuset) -> frozenset[int]:
        """Return the NUMA nodes that a cgroup gets."""
        return parse_cpu_list(cpuset.effective_mems)

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return ``mems`` for a NUMA node that does not exist, ``memory`` where too little is free, and the common."""
        found = super().refusals(view, value)
        if absent := self.listed(value) - self._present(view):
            return [*found, ("mems", f"This node has no {self._said(absent)}.")]
        return found or memory_refusals(view, self.path, self._moving(view, value) or {})

    def warnings(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return ``pages``: how much the kernel moves, and that an undo does not restore where each page was."""
        moving = self._moving(view, value)
        if moving is None:
            how_much = f"The kernel moves pages of the processes in {self.path}; how many is unknown."
        elif not moving:
            return super().warnings(view, value)
        else:
            size = sum(moving.values())
            seconds = size / PAGE_BYTES * PAGE_COST_S
            how_much = (
                f"The kernel moves about {mib(size)} of the processes in {self.path}, which takes about "
                f"{seconds:.1f} s."
            )
        undone = f"An undo restores {self._name}; which page was where is not restored."
        return [*super().warnings(view, value), ("pages", f"{how_much} {undone}")]

    def _moving(self, view: View, value: str) -> dict[int, int] | None:
        """Return by NUMA node the bytes that move there, None where the cgroup's memory is unknown."""
        found = view.cpusets.get(self.path)
        if found is None or found.bytes_by_node is None:
            return None
        sizes = found.bytes_by_node
        after = migrated(sizes, self.effective(found), self.listed(value) or self.inherited(view))
        return {node: size - sizes.get(node, 0) for node, size in after.items() if size > sizes.get(node, 0)}

    def _configured(self, cpuset: Cpuset) -> str | None:
        return cpuset.mems

    def _present(self, view: View) -> frozenset[int]:
        return frozenset(node.id for node in view.topology.numa_nodes)

    def _said(self, numbers: frozenset[int]) -> str:
        return f"NUMA node{'s' if len(numbers) > 1 else ''} {format_cpu_list(numbers)}"
