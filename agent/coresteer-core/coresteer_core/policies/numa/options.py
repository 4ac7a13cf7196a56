"""Present cost of each process's place on NUMA nodes, and what moving it would save: the policy's own predictions."""

from msgspec import Struct

from coresteer_core.node.numa import PAGE_BYTES, PAGE_COST_S
from coresteer_core.node.view import View
from coresteer_core.policies.numa.assignment import Assignment
from coresteer_core.policies.numa.factors import Process, on_node
from coresteer_core.policies.numa.machine import machine_of, process_of


class Placement(Struct, frozen=True):
    """What a process's place costs. run_time: τ, 1.0 with all memory local and no contention.

    contention: its contention degradation factor. None where its memory or its bandwidth is unknown.
    """

    pid: int
    remote_share: float | None
    run_time: float | None
    contention: float | None


class MoveOption(Struct, frozen=True):
    """A move of a process to a NUMA node. with_pages: its memory moves there, too; cpus: the CPUs of that node.

    speed_up: predicted, 1.2 is 20 % faster. saved_cpus: CPU time that all processes together save, in CPUs; negative
    where it costs some. moved_bytes, cost_s: of its pages.
    """

    node: int
    cpus: frozenset[int]
    with_pages: bool
    speed_up: float
    saved_cpus: float
    moved_bytes: int
    cost_s: float


def placements(view: View) -> list[Placement]:
    """Return what the place of every process in a View's NUMA state costs."""
    tasks = [] if view.numa is None else view.numa.tasks
    assignment, indexes = _assignment(view)
    return [
        Placement(
            task.pid,
            task.remote_share,
            None if (index := indexes.get(task.pid)) is None else assignment.run_time(index),
            None if index is None else assignment.contention(index),
        )
        for task in tasks
    ]


def largest_contention(view: View) -> float | None:
    """Return the largest contention factor of a process in a View; None where none is known."""
    return max((each.contention for each in placements(view) if each.contention is not None), default=None)


def options(view: View, pid: int) -> list[MoveOption]:
    """Return the moves of one process to every NUMA node, with and without its pages; empty where it is unknown."""
    assignment, indexes = _assignment(view)
    task, index = view.numa_task(pid), indexes.get(pid)
    if task is None or index is None:
        return []
    machine, cpus = machine_of(view, view.usable_cpus())
    was, before, found = assignment.run_time(index), assignment.processes[index], []
    for at, node in enumerate(machine.nodes):
        for with_pages in (False, True):
            changed = on_node(before, at, with_pages=with_pages)
            moved = sum(size for other, size in (task.bytes_by_node or {}).items() if other != node)
            if not cpus[at] or (with_pages and not moved):
                continue
            after = assignment.run_time(index, changed)
            moved_bytes = moved if with_pages else 0
            found.append(
                MoveOption(
                    node,
                    cpus[at],
                    with_pages,
                    was / after if after else 1.0,
                    assignment.time_saved(index, changed),
                    moved_bytes,
                    moved_bytes / PAGE_BYTES * PAGE_COST_S,
                )
            )
    return found


def _assignment(view: View) -> tuple[Assignment, dict[int, int]]:
    """Return all processes whose memory is known, and their indexes by PID."""
    machine, _ = machine_of(view, view.topology.online())
    processes: list[Process] = []
    indexes: dict[int, int] = {}
    for task in view.numa.tasks if view.numa is not None else []:
        if (process := process_of(task, machine, 1.0)) is not None:
            indexes[task.pid] = len(processes)
            processes.append(process)
    return Assignment(machine, processes), indexes
