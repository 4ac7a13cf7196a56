"""Automatic NUMA balancing and numad beside plans and the numa policy: warnings, and drift of what they changed."""

import pytest
from msgspec.structs import replace
from tests.support.views import make_topology

from coresteer_core.changes.plan import DesiredValue, preview
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.load import Load
from coresteer_core.node.numa import NodeMemory, NumaState, NumaTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import Evaluation, Mode, Ownership
from coresteer_core.policies.engine import evaluate_round, same_outcome
from coresteer_core.policies.engine_state import EngineMemory, Holding, PolicyInForce
from coresteer_core.policies.numa.spec import Numa
from coresteer_core.settings.base import NUMA_BALANCING
from coresteer_core.settings.kernel import kernel_controllers

GIB = 1 << 30
AFFINITY, MEMORY, NICE = "task/10/affinity", "task/10/memory-nodes", "task/10/nice"
TASK = NumaTask(
    10, 5, "postgres", "/db.slice", 1, "0-3", "0-7", 0, 1.0, GIB, 100.0,
    cpu_nodes={0: 1.0}, mems_allowed="0-1", bytes_by_node={0: GIB}, params={"nice": "0"},
)  # fmt: skip


def view(*controllers: str, task: NumaTask = TASK) -> View:
    topology = make_topology(packages=2, nodes_per_package=1, cores_per_node=4, threads=1)
    state = NumaState([NodeMemory(node, 16 * GIB, 8 * GIB) for node in (0, 1)], [task])
    load = Load(5.0, [1.0, *[0.0] * 7])
    return View(topology, Inventory([], [], list(controllers)), load, time_s=1000.0, numa=state)


def evaluation(seen: View, memory: EngineMemory | None = None, *, move_pages: bool = True) -> Evaluation:
    policy = PolicyInForce("1", 1, "numa", 1, Mode.ENFORCE, Numa(move_pages=move_pages), on_drift=Ownership.WARN)
    (found,), _ = evaluate_round(seen, [policy], memory or EngineMemory())
    return found


WARNED = [
    ("numad", AFFINITY, "1", True),
    ("numad", MEMORY, "1", True),
    ("numad", NICE, "5", False),
    (NUMA_BALANCING, AFFINITY, "1", False),
    (NUMA_BALANCING, MEMORY, "1", True),
    ("irqbalance", AFFINITY, "1", False),
]


@pytest.mark.parametrize(("controller", "key", "value", "warned"), WARNED)
def test_a_preview_warns_about_a_controller_that_changes_the_same_setting(
    controller: str, key: str, value: str, warned: bool
) -> None:
    shown = preview(view(controller), [DesiredValue(key, value)], reason="test")
    found = [warning.sentence for warning in shown.warnings if warning.code == "controller"]
    assert found == ([f"{controller} runs on this node and may move the process again."] if warned else [])


@pytest.mark.parametrize(
    ("controllers", "move_pages", "named"),
    [
        ((NUMA_BALANCING, "numad"), True, [NUMA_BALANCING, "numad"]),
        ((NUMA_BALANCING, "numad"), False, ["numad"]),
        (("irqbalance",), True, []),
    ],
)
def test_a_policy_names_them_while_it_has_nothing_to_move(
    controllers: tuple[str, ...], move_pages: bool, named: list[str]
) -> None:
    quiet, found = evaluation(view(), move_pages=move_pages), evaluation(view(*controllers), move_pages=move_pages)
    assert (found.actions, found.controllers) == ([], named)
    assert ("and may change the same settings." in found.sentence) is bool(named)
    assert same_outcome(quiet, found) is (not named)  # a controller that starts is news for the policy's status


def test_a_process_that_numad_moved_is_a_drift_with_its_cause() -> None:
    held = {key: Holding("1", was, value, 900.0) for key, was, value in ((AFFINITY, "0-7", "0-3"), (MEMORY, "1", "0"))}
    memory = EngineMemory(held, processes=dict.fromkeys(held, 5))
    moved = replace(TASK, affinity="4-7", bytes_by_node={0: GIB // 4, 1: 3 * GIB // 4})
    assert evaluation(view("numad"), memory).drifts == []
    drifts = evaluation(view("numad", NUMA_BALANCING, task=moved), memory).drifts
    assert [(drift.key, drift.cause) for drift in drifts] == [
        (AFFINITY, "numad"),
        (MEMORY, f"numad and {NUMA_BALANCING}"),
    ]


@pytest.mark.parametrize(("value", "on"), [(None, False), ("0", False), ("1", True), ("2", True)])
def test_the_kernel_is_a_controller_while_balancing_is_on(value: str | None, on: bool) -> None:
    settings = {} if value is None else {"kernel/numa_balancing": value}
    assert kernel_controllers(settings) == ([NUMA_BALANCING] if on else [])
