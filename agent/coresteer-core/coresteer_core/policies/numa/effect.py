"""Predict what a plan changes on NUMA nodes: the locality of processes' memory, and what moving it costs."""

from coresteer_core.changes.plan import Plan
from coresteer_core.node.numa import PAGE_BYTES, PAGE_COST_S, NumaTask
from coresteer_core.node.view import View
from coresteer_core.policies.numa.explain import format_bytes
from coresteer_core.policies.numa.options import Placement, placements
from coresteer_core.policies.skipped import name_tasks
from coresteer_core.settings import TaskAffinity, TaskMemoryNodes, parse_setting
from coresteer_core.settings.memory_nodes import bytes_to_move, target_shares
from coresteer_core.settings.overlay import overlay


def predict_locality(plan: Plan, view: View) -> list[str]:
    """Return a sentence for each process whose remote memory a plan changes: its share, the bytes moved, the speed-up.

    Empty on a node with a single NUMA node. CPU time is assumed to be spread evenly over the CPUs of an affinity.
    """
    if view.numa is None or len(view.topology.numa_nodes) < 2:
        return []
    moved: dict[int, int] = {}
    for action in plan.actions:
        setting = parse_setting(action.key)
        if isinstance(setting, TaskAffinity):
            moved.setdefault(setting.pid, 0)
        elif isinstance(setting, TaskMemoryNodes):
            task = view.numa_task(setting.pid)
            sizes = (task.bytes_by_node if task is not None else None) or {}
            moved[setting.pid] = sum(bytes_to_move(sizes, target_shares(action.becomes)).values())
    if not moved:
        return []
    was = {each.pid: each for each in placements(view)}
    after = overlay(view, {action.key: action.becomes for action in plan.actions})
    becomes = {each.pid: each for each in placements(after)}
    return [
        sentence
        for pid, size in moved.items()
        if (task := view.numa_task(pid)) is not None and (sentence := _sentence(task, was[pid], becomes[pid], size))
    ]


def _sentence(task: NumaTask, was: Placement, becomes: Placement, moved_bytes: int) -> str:
    name = name_tasks([(task.name, task.pid)])
    if was.remote_share is None or becomes.remote_share is None or not was.run_time or not becomes.run_time:
        return f"{name}: {task.why_unpredicted} No effect on its locality is predicted."
    if was.remote_share == becomes.remote_share and not moved_bytes:
        return ""
    size = format_bytes(sum((task.bytes_by_node or {}).values()))
    parts = [f"{was.remote_share:.0%} → {becomes.remote_share:.0%} of its {size} is remote"]
    if moved_bytes:
        cost_s = moved_bytes / PAGE_BYTES * PAGE_COST_S
        parts.append(f"{format_bytes(moved_bytes)} move in about {cost_s:.2g} s")
    known = "" if task.memory_bound is not None else ", by distance alone"
    parts.append(f"predicted {was.run_time / becomes.run_time:.2f} times as fast{known}")
    return f"{name}: {'; '.join(parts)}."
