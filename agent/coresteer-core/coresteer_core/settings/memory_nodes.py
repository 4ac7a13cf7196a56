"""NUMA nodes that hold the memory of a process: ``move_pages(2)``."""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from coresteer_core.cpuset import CpuListError, format_cpu_list, parse_cpu_list, shortest_cpu_list
from coresteer_core.node.numa import PAGE_BYTES
from coresteer_core.node.topology import MAX_NUMA_NODES
from coresteer_core.node.view import View
from coresteer_core.settings.base import PID_PATTERN, KeyForm, SettingError, number_schema
from coresteer_core.settings.modified_view import ModifiedView
from coresteer_core.settings.task import OfTask

TOLERANCE = 0.05
"""Share of all pages by which equal values may differ: a process allocates and frees pages all the time."""
_COUNTS = re.compile(r"\d{1,4}=\d{1,15}(;\d{1,4}=\d{1,15})*\Z", re.ASCII)


class TaskMemoryNodes(OfTask, frozen=True):
    """``task/812/memory-nodes``: the NUMA nodes of a process's memory.

    One node, ``1``: its pages on other nodes move there. The original has counts of 4 KiB pages, ``0=120034;1=88``: an
    undo moves pages back until the shares are those again. Which page was where is not restored. Later page faults
    follow the CPU, so a process's affinity should name the same node. A View shows the nodes, ``0-1``.
    """

    _name = "memory-nodes"
    moves_pages = True
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "task/PID/memory-nodes",
            rf"task/{PID_PATTERN}/memory-nodes",
            lambda m: TaskMemoryNodes(int(m[1])),
            subject="task $1",
            name="memory-nodes",
            target="task:$1",
        ),
    )

    @property
    def title(self) -> str:
        """The name of the setting in a sentence, after that of its process."""
        return "memory nodes"

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of a node."""
        return number_schema(0, MAX_NUMA_NODES - 1)

    def canonical(self, value: str) -> str:
        """Return the shortest spelling of a node list, or counts by ascending node. Raises SettingError."""
        text = value.strip()
        if _COUNTS.match(text):
            return join_counts(split_counts(text))
        try:
            nodes = shortest_cpu_list(text)
        except CpuListError:
            nodes = ""
        if not nodes:
            raise SettingError(f"“{text[:40]}” is not a list of NUMA nodes; write for example 1.")
        return nodes

    def value_in_view(self, value: str) -> str:
        """Return the nodes that hold at least 5 % of the pages, which is what a View shows of counts."""
        if "=" not in value:
            return value
        counts = split_counts(value)
        least = TOLERANCE * sum(counts.values())
        return format_cpu_list(node for node, pages in counts.items() if pages and pages >= least)

    def equal(self, first: str, second: str) -> bool:
        """Return whether two values are alike: the same nodes, or counts that differ by up to 5 % of the pages."""
        if "=" not in first or "=" not in second:
            return self.value_in_view(first) == self.value_in_view(second)
        return shares_differ(split_counts(first), split_counts(second)) <= TOLERANCE

    def current(self, view: View) -> str | None:
        """Return the counts that a View shows, None where they are unknown."""
        task = view.numa_task(self.pid)
        if task is None or not task.bytes_by_node:
            return None
        return join_counts({node: size // PAGE_BYTES for node, size in task.bytes_by_node.items()})

    def missing_reason(self, view: View) -> str | None:
        """Return why the memory of the process cannot be moved on a node, as a sentence; None where it can."""
        if len(view.topology.numa_nodes) < 2:
            return "This node has a single NUMA node, so memory cannot be moved to another."
        if (task := view.numa_task(self.pid)) is None:
            return f"This node has no process {self.pid} whose memory by NUMA node is known."
        if task.from_cgroup:
            return (
                f"{self.describe(view)} has too much memory to be moved page by page; set cpuset.mems of its cgroup "
                "instead."
            )
        return None

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return unknown, kernel, reserved, mems (outside of Mems_allowed) and memory (too little is free)."""
        task = view.numa_task(self.pid)
        if (missing := self.missing_reason(view)) is not None or task is None:
            return [("unknown", missing or "")]
        if task.kernel:
            return [("kernel", f"{self.describe(view)} is a kernel thread, which has no memory of its own.")]
        nodes = frozenset(target_shares(value))
        if len(nodes) > 1 and "=" not in value:
            return [("invalid", f"Name one NUMA node for the memory of {self.describe(view)}, not {value}.")]
        if absent := nodes - {node.id for node in view.topology.numa_nodes}:
            return [("mems", f"This node has no NUMA node {format_cpu_list(absent)}.")]
        if task.mems_allowed and (outside := nodes - parse_cpu_list(task.mems_allowed)):
            return [
                (
                    "mems",
                    f"NUMA node {format_cpu_list(outside)} is not in the cpuset of {self.describe(view)}, "
                    f"which has {task.mems_allowed}.",
                )
            ]
        moving = bytes_to_move(task.bytes_by_node or {}, target_shares(value))
        return self.container_refusals(view) or memory_refusals(view, self.describe(view), moving)

    def warnings(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return ``pages``: how much moves, and that single pages are not restored."""
        task = view.numa_task(self.pid)
        if task is None or not task.bytes_by_node:
            return []
        moved = sum(bytes_to_move(task.bytes_by_node, target_shares(value)).values())
        return [
            (
                "pages",
                f"About {mib(moved)} move. An undo moves as many pages back; which page was where is not restored.",
            )
        ]

    def format_value(self, value: str) -> str:
        """Return a value in a sentence: ``node 1``, or ``nodes 0-1`` with the share of each."""
        nodes = self.value_in_view(value)
        text = f"node{'s' if len(parse_cpu_list(nodes)) > 1 else ''} {nodes}"
        if "=" not in value:
            return text
        counts = split_counts(value)
        total = sum(counts.values()) or 1
        shares = ", ".join(f"{pages / total:.0%} on {node}" for node, pages in counts.items() if pages)
        return f"{text} ({shares})"

    def shell_command(self, value: str) -> str:
        """Return the shell command that moves the pages."""
        return f"migratepages {self.pid} all {self.value_in_view(value)}"

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Let the process have its pages on these nodes."""
        view.set_memory_shares(self.pid, target_shares(value))


def split_counts(value: str) -> dict[int, int]:
    """Parse ``0=120034;1=88`` into pages by node."""
    pairs = (part.partition("=") for part in value.split(";"))
    return {int(node): int(pages) for node, _, pages in pairs}


def join_counts(pages: Mapping[int, int]) -> str:
    """Return the value of pages by node."""
    return ";".join(f"{node}={count}" for node, count in sorted(pages.items()))


def shares_differ(first: Mapping[int, int], second: Mapping[int, int]) -> float:
    """Return by which share of its pages, 0.0 to 1.0, two distributions differ."""
    a, b = sum(first.values()) or 1, sum(second.values()) or 1
    return sum(abs(first.get(node, 0) / a - second.get(node, 0) / b) for node in first.keys() | second.keys()) / 2


def target_shares(value: str) -> dict[int, float]:
    """Return the shares of pages by node that a value asks for, together 1.0; equal shares for a node list."""
    pages = split_counts(value) if "=" in value else dict.fromkeys(parse_cpu_list(value), 1)
    total = sum(pages.values()) or 1
    return {node: count / total for node, count in pages.items() if count}


def bytes_to_move(sizes: Mapping[int, int], shares: Mapping[int, float]) -> dict[int, int]:
    """Return by destination node the bytes that move there. sizes: present ones by node; shares: desired ones."""
    total = sum(sizes.values())
    missing = {node: round(share * total) - sizes.get(node, 0) for node, share in shares.items()}
    return {node: size for node, size in missing.items() if size > 0}


def memory_refusals(view: View, whose: str, moving: Mapping[int, int]) -> list[tuple[str, str]]:
    """Return ``memory`` and a sentence for each NUMA node with less free memory than would move there.

    moving: bytes by destination. whose: the owner of the memory.
    """
    free = {each.node: each.free_bytes for each in (view.numa.nodes if view.numa is not None else [])}
    return [
        (
            "memory",
            f"{mib(size)} of {whose} would move to NUMA node {node}, which has {mib(known)} free.",
        )
        for node, size in moving.items()
        if (known := free.get(node)) is not None and size > known
    ]


def mib(size: int) -> str:
    """Return a size as text for a sentence: ``1,024 MiB``."""
    return f"{size / (1 << 20):,.0f} MiB"
