"""Whether a plan that was previewed a moment ago still fits the node."""

import pytest
from tests.support.views import make_topology

from coresteer.changes.validation import check_against_node
from coresteer.errors import Conflict
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.numa import PAGE_BYTES, NumaState, NumaTask
from coresteer_core.node.view import View

TOPOLOGY = make_topology(packages=2, nodes_per_package=1, cores_per_node=4, threads=1)
PLAN = Plan([Action("task/812/memory-nodes", "0=9999;1=80", "1", "")])


def view(pages: dict[int, int]) -> View:
    sizes = {node: count * PAGE_BYTES for node, count in pages.items()}
    task = NumaTask(812, 5, "db", None, 1, "0-3", "0-3", 0, 0.4, 40 << 20, 9.0, bytes_by_node=sizes)
    return View(TOPOLOGY, Inventory([], []), numa=NumaState([], [task]))


def test_a_process_that_allocated_memory_since_the_preview_may_be_moved() -> None:
    assert check_against_node(view({0: 10_300, 1: 88}), PLAN).plan.actions


def test_a_process_whose_memory_moved_since_the_preview_may_not() -> None:
    with pytest.raises(Conflict, match="preview it again"):
        check_against_node(view({0: 9000, 1: 1000}), PLAN)
