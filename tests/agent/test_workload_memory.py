"""The workload of computing and memory processes on a small scale: fixed work, first touch, limits, and cleanup."""

import os
import random
import sys
from collections.abc import Iterator

import msgspec
import psutil
import pytest
from msgspec.structs import replace
from tests.support.polling import poll

from coresteer_agent.workloads import memory
from coresteer_agent.workloads.load import Load, Prepared
from coresteer_agent.workloads.memory import Finished, chase, copy_halves, figures, link_lines, prepare_memory
from coresteer_core.experiments.model import Memory

SMALL = Memory(compute_processes=1, memory_processes=2, mib=2, work_s=0.02)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before, affinity = {*psutil.Process().children(recursive=True)}, os.sched_getaffinity(0)
    yield
    assert {*psutil.Process().children(recursive=True)} - before == set()
    assert os.sched_getaffinity(0) == affinity


def ended(workload: Memory) -> Load:
    load = Load(Prepared(workload, "alone"))
    load.start(workload, "alone")
    poll(lambda: load.done or load.failed is not None)
    return load


@pytest.mark.parametrize(
    "workload",
    [
        SMALL,
        replace(SMALL, access="chase"),
        replace(SMALL, first_touch="own"),
        replace(SMALL, memory_cpus="0", compute_cpus="0"),
    ],
    ids=["stream", "chase", "own first touch", "pinned"],
)
def test_the_workload_ends_by_itself_and_reports_its_run_times(workload: Memory) -> None:
    load = ended(workload)
    found = load.figures()
    assert load.failed is None
    assert found.keys() - {"remote_numa_share"} == {"makespan_s", "memory_run_s", "compute_run_s"}
    assert 0 < found["memory_run_s"] <= found["makespan_s"]
    assert 0 < found["compute_run_s"] <= found["makespan_s"]
    load.stop()


@pytest.mark.parametrize(
    ("workload", "part"),
    [
        (replace(SMALL, mib=65_536, memory_processes=64), "over half of the"),
        (replace(SMALL, memory_cpus="4095"), "memory workload failed: Invalid argument."),
        (replace(SMALL, compute_cpus="3-1"), "Process 0 of the memory workload failed"),
    ],
    ids=["too much memory", "absent CPU", "not a list"],
)
def test_a_workload_that_cannot_run_says_why(workload: Memory, part: str) -> None:
    load = ended(workload)
    assert part in str(load.failed)
    assert load.figures() == {}
    load.stop()


def test_a_workload_keeps_to_the_memory_that_the_agents_cgroup_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exit_with_error(sentence: str) -> None:
        raise ValueError(sentence)

    config = memory.MemoryConfig(os.getppid(), SMALL)
    monkeypatch.setattr(memory, "read_headroom", lambda _: 4 << 20)
    monkeypatch.setattr(memory, "end_with_parent", lambda _: None)
    monkeypatch.setattr(memory, "exit_with_error", exit_with_error)
    monkeypatch.setattr(sys, "argv", ["memory", msgspec.json.encode(config).decode()])
    with pytest.raises(ValueError, match="need 4 MiB, over half of the 4 MiB that are available"):
        memory.main()


def test_a_stopped_workload_leaves_no_process() -> None:
    load = Load(Prepared(SMALL, "alone"))
    before = {*psutil.Process().children(recursive=True)}
    load.start(replace(SMALL, work_s=200), "alone")
    started = poll(lambda: {*psutil.Process().children(recursive=True)} - before, lambda found: len(found) >= 4)
    load.stop()
    poll(lambda: not any(child.is_running() for child in started))


@pytest.mark.parametrize("lines", [4, 64, 100])
def test_chased_lines_form_one_cycle_that_depends_on_the_seed(lines: int) -> None:
    used = 1 << (lines.bit_length() - 1)
    orders = []
    for seed in (1, 2):
        words = memoryview(bytearray(64 * lines)).cast("Q")
        link_lines(words, random.Random(seed))  # noqa: S311 - no secret
        at, order = 0, []
        for _ in range(used):
            order.append(at)
            at = words[at]
        assert (at, sorted(order)) == (0, [8 * line for line in range(used)])
        orders.append(order)
    assert lines == 4 or orders[0] != orders[1]


def test_work_is_a_fixed_amount() -> None:
    stream = prepare_memory(replace(SMALL, mib=4, work_s=2.0), 0)
    assert (stream.func, stream.args[1]) == (copy_halves, 2 * memory.COPIED_BYTES_PER_S)
    reads = prepare_memory(replace(SMALL, access="chase", work_s=2.0), 0)
    assert (reads.func, reads.args[1]) == (chase, 2 * memory.READS_PER_S)


def test_memory_is_touched_on_the_lowest_numa_node_and_the_process_may_run_anywhere_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(memory, "cpus_by_node", lambda: {1: frozenset({2, 3}), 2: frozenset({0, 1})})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: calls.append(set(cpus)))
    monkeypatch.setattr(memory, "link_lines", lambda *_: calls.append("touch"))
    prepare_memory(replace(SMALL, access="chase"), 0)
    assert calls == [{2, 3}, "touch", {1, 2, 3}]
    calls.clear()
    prepare_memory(replace(SMALL, access="chase", memory_cpus="1,3"), 1)
    assert calls == [{2, 3}, "touch", {1, 2, 3}, {3}]
    calls.clear()
    prepare_memory(replace(SMALL, access="chase", memory_cpus="1,3", first_touch="own"), 0)
    assert calls == [{1}, "touch"]
    monkeypatch.setattr(memory, "cpus_by_node", lambda: {0: frozenset({9})})
    with pytest.raises(ValueError, match="may not use any CPU of NUMA node 0"):
        prepare_memory(SMALL, 0)


def test_the_total_run_time_is_that_of_the_last_process() -> None:
    results = [Finished(True, 14.0, 0.5), Finished(True, 12.0, 0.0), Finished(False, 13.0)]
    assert figures(10.0, results) == {
        "makespan_s": 4.0, "memory_run_s": 3.0, "compute_run_s": 3.0, "remote_numa_share": 0.25
    }  # fmt: skip
    assert figures(10.0, [Finished(True, 14.0)]) == {"makespan_s": 4.0, "memory_run_s": 4.0}
