"""Sentences of the policy."""

from coresteer_core.node.numa import NumaTask
from coresteer_core.policies.numa.scheduler import Move


def format_bytes(size: float) -> str:
    """Return a size with three digits and a unit from B to TiB."""
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} B"


def reason_of(task: NumaTask, move: Move, node: int, contention: float | None) -> str:
    """Return why a process moves, with its numbers. contention: its factor after all moves, None where unknown."""
    remote = task.remote_share
    where = (
        f"{remote:.0%} of its {format_bytes(sum((task.bytes_by_node or {}).values()))} is remote"
        if remote is not None
        else ""
    )
    if move.pinned:
        return f"A static pin requires node {node}; {where}."
    pages = ""
    if move.with_pages:
        pages = f", with {format_bytes(move.moved_bytes)} of pages in about {move.cost_s:.2g} s"
    if move.contention is not None:
        after = "" if contention is None else f" (predicted {contention:.2f})"
        return f"Contention factor {move.contention:.2f}{after}: it moves to node {node}{pages}; {where}."
    known = "" if task.memory_bound is not None else ", by distance alone"
    return f"{where}: on node {node} it is predicted to be {move.speed_up:.2f} times as fast{known}{pages}."
