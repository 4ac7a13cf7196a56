"""Accesses between NUMA nodes: derived from processes, and measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coresteer_core.node.numa import NodeMemory, NumaState, NumaTask
from coresteer_core.node.numa_traffic import NodeTraffic, traffic_between
from coresteer_core.policies.numa.factors import Machine, Process, contention

GIB = 1 << 30
PROCESS = Process(1.0, (1.0, 0.0), (0.0, 1.0), memory_bound=0.5, bytes_per_s=10e9)


def task(cpus: dict[int, float], memory: dict[int, int] | None, bytes_per_s: float | None = None) -> NumaTask:
    return NumaTask(
        10, 5, "postgres", None, 1, "0-7", "0-7", 0, sum(cpus.values()), GIB, 9.0,
        cpu_nodes=cpus, bytes_by_node=memory, bytes_per_s=bytes_per_s,
    )  # fmt: skip


def rows(found: list[NodeTraffic], nodes: int = 2) -> list[list[tuple[float | None, float | None]]]:
    pairs = [(each.cpus, each.bytes_per_s) for each in found]
    return [pairs[at : at + nodes] for at in range(0, len(pairs), nodes)]


def test_accesses_are_cpu_time_on_a_node_times_the_share_of_memory_on_the_other() -> None:
    tasks = [task({0: 1.0}, {0: 3 * GIB, 1: GIB}), task({0: 0.5, 1: 0.5}, {1: GIB}), task({1: 2.0}, None)]
    found = traffic_between([0, 1], NumaState([], tasks))
    assert rows(found) == [[(0.75, None), (0.75, None)], [(0.0, None), (0.5, None)]]
    assert [(each.from_node, each.to_node) for each in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_bytes_are_those_of_the_processes_if_all_of_them_are_known() -> None:
    known = [task({0: 1.0}, {0: 3 * GIB, 1: GIB}, 8e9), task({0: 0.5, 1: 0.5}, {1: GIB}, 2e9)]
    assert [[each for _, each in row] for row in rows(traffic_between([0, 1], NumaState([], known)))] == [
        [6e9, 3e9],
        [0.0, 1e9],
    ]
    partly = [*known, task({1: 1.0}, {0: GIB})]
    assert {each.bytes_per_s for each in traffic_between([0, 1], NumaState([], partly))} == {None}


def test_measured_bytes_take_precedence_and_between_two_nodes_need_no_processes() -> None:
    memory = [NodeMemory(0, local_bytes_per_s=5e9, remote_bytes_per_s=1e9), NodeMemory(1)]
    assert rows(traffic_between([0, 1], NumaState(memory, []))) == [[(None, 5e9), (None, 1e9)], [(None, None)] * 2]


@pytest.mark.parametrize(
    ("tasks", "remote"), [([task({0: 1.0}, {1: GIB, 2: 3 * GIB})], (1e9, 3e9)), ([], (None, None))]
)
def test_measured_remote_bytes_are_split_between_several_nodes_by_the_accesses(
    tasks: list[NumaTask], remote: tuple[float | None, float | None]
) -> None:
    memory = [NodeMemory(0, local_bytes_per_s=5e9, remote_bytes_per_s=4e9)]
    found = traffic_between([0, 1, 2], NumaState(memory, tasks))
    assert [each.bytes_per_s for each in found if each.from_node == 0] == [5e9, *remote]


def test_without_a_process_of_known_memory_nothing_is_known() -> None:
    unknown = [task({0: 1.0}, None), task({}, {0: GIB}), task({0: 1.0}, {})]
    assert {(each.cpus, each.bytes_per_s) for each in traffic_between([0, 1], NumaState([], unknown))} == {(None, None)}


SHARES = st.dictionaries(st.integers(0, 2), st.floats(0.01, 4), min_size=1)
SIZES = st.dictionaries(st.integers(0, 2), st.integers(1, 64 * GIB), min_size=1)


@given(st.lists(st.builds(task, SHARES, SIZES, st.floats(0, 1e11)), min_size=1))
def test_all_pairs_together_have_the_cpu_time_and_the_traffic_of_all_processes(tasks: list[NumaTask]) -> None:
    found = traffic_between([0, 1, 2], NumaState([], tasks))
    assert sum(each.cpus or 0.0 for each in found) == pytest.approx(sum(each.cpu_share for each in tasks))
    total = sum(each.bytes_per_s or 0.0 for each in tasks)
    assert sum(each.bytes_per_s or 0.0 for each in found) == pytest.approx(total)


@pytest.mark.parametrize(
    ("bandwidth", "known"), [([None, 40e9], True), ([40e9, None], False), ([None, None], False), ([40e9, 0.0], False)]
)
def test_contention_is_unknown_where_the_bandwidth_of_a_process_s_memory_is(
    bandwidth: list[float | None], known: bool
) -> None:
    machine = Machine([0, 1], [[1.0, 2.1], [2.1, 1.0]], [1.0, 1.0], bandwidth)
    assert (contention(machine, PROCESS, [0.0, 30e9]) is not None) is known
    assert contention(machine, replace(PROCESS, memory_bound=None), [0.0, 30e9]) is None
