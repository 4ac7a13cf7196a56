"""numa and network-process in force together: the lower rank places a process, whichever of them was first."""

import pytest
from msgspec.structs import replace
from tests.core.test_network_process import rx_placement
from tests.core.test_numa import TWO_NODES
from tests.core.test_numa import task as numa_task
from tests.core.test_numa import view as numa_view
from tests.support.views import make_netdev

from coresteer_core.changes.plan import Action
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, Holding, PolicyInForce, record_write
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.policies.numa.spec import Numa
from coresteer_core.policies.ownership import restore_actions
from coresteer_core.settings.overlay import overlay

KEY = "task/10/affinity"
MEMORY, PACKETS = "0-3", "5"
"""Where the process belongs by its memory, and by its packets."""


def policies(numa: int, network: int) -> list[PolicyInForce]:
    return [
        PolicyInForce("1", 1, "memory", numa, Mode.ENFORCE, Numa()),
        PolicyInForce("2", 1, "packets", network, Mode.ENFORCE, NetworkProcess()),
    ]


def view(affinity: str = "0-7") -> View:
    """A process with its memory on node 0 and its packets on CPU 5 of node 1, where it runs."""
    seen = numa_view(numa_task(cpu=5))
    task = NetTask(10, 5, "postgres", "/db.slice", 1, "0-7", "0-7", 5, 1.0, 0.1, [rx_placement(5)])
    seen = replace(seen, tasks=[task], inventory=Inventory([make_netdev("eth0")], []), topology=TWO_NODES)
    return overlay(seen, {KEY: affinity} if affinity != "0-7" else {})


def rounds(
    seen: View, in_force: list[PolicyInForce], memory: EngineMemory, count: int
) -> tuple[View, EngineMemory, list[tuple[str, Action]]]:
    """The view and the memory after these rounds, and what was written in them by which policy."""
    written = []
    for _ in range(count):
        evaluations, memory = evaluate_round(seen, in_force, memory)
        done = [(each.policy_id, action) for each in evaluations for action in each.actions]
        for policy_id, action in done:
            memory = record_write(memory, policy_id, action, seen.time_s)
        written += done
        seen = overlay(seen, {action.key: action.becomes for _, action in done})
        seen = replace(seen, time_s=seen.time_s + 5)
    return seen, memory, written


@pytest.mark.parametrize(
    ("ranks", "first", "winner"),
    [((20, 10), ("1", MEMORY), ("2", PACKETS)), ((10, 20), ("2", PACKETS), ("1", MEMORY))],
    ids=["network-process takes over", "numa takes over"],
)
def test_the_lower_rank_takes_a_process_over_that_the_other_policy_bound_and_both_settle(
    ranks: tuple[int, int], first: tuple[str, str], winner: tuple[str, str]
) -> None:
    memory = EngineMemory({KEY: Holding(first[0], "0-7", first[1], 0.0)}, processes={KEY: 5})
    seen, memory, written = rounds(view(first[1]), policies(*ranks), memory, 60)
    assert [(by, action.was, action.becomes) for by, action in written] == [(winner[0], first[1], winner[1])]
    actions, _ = restore_actions(seen, [], memory)
    assert [(action.key, action.becomes) for _, action in actions] == [(KEY, "0-7")]


@pytest.mark.parametrize(
    ("ranks", "first"), [((10, 20), ("1", MEMORY)), ((20, 10), ("2", PACKETS))], ids=["numa", "network-process"]
)
def test_the_higher_rank_leaves_a_process_to_the_other_policy_and_says_so(
    ranks: tuple[int, int], first: tuple[str, str]
) -> None:
    memory = EngineMemory({KEY: Holding(first[0], "0-7", first[1], 0.0)}, processes={KEY: 5})
    seen = view(first[1])
    assert rounds(seen, policies(*ranks), memory, 60)[2] == []
    evaluations, _ = evaluate_round(seen, policies(*ranks), memory)
    (why,) = [skipped.why for each in evaluations if each.policy_id != first[0] for skipped in each.skipped]
    assert why.startswith("Another program or policy bound it to ")


def test_a_process_that_another_program_bound_after_a_policy_is_left_to_that_program() -> None:
    memory = EngineMemory({KEY: Holding("1", "0-7", MEMORY, 0.0)}, processes={KEY: 5})
    assert rounds(view("6-7"), policies(20, 10), memory, 60)[2] == []
