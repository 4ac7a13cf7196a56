"""CPUs and NUMA nodes of cgroups: which memory the kernel migrates, and how a huge process is treated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.views import make_view

from coresteer_core.changes.guard import refusals, warnings
from coresteer_core.changes.plan import DesiredValue, preview
from coresteer_core.node.cpusets import Cpuset, migrated
from coresteer_core.node.limits import Limits, SettingLimits
from coresteer_core.node.numa import NodeMemory, NumaState, NumaTask
from coresteer_core.node.reserved import ReservedCpus
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.topology import NumaNode
from coresteer_core.node.view import View

GIB = 1 << 30
TASK = NumaTask(10, 1, "postgres", "/db", 4, "0-3", "0-3", 0, 1.0, 64 * GIB, 60.0, bytes_by_node={0: 64 * GIB})


def view(*, free: int | None = None, isolated: str = "", **cpusets: Cpuset) -> View:
    """A machine of 4 CPUs and 2 NUMA nodes. cpusets: of cgroups besides the root cgroup."""
    made = make_view(4, isolated=isolated)
    nodes = [NumaNode(0, "0-1", None), NumaNode(1, "2-3", None)]
    memory = NumaState([NodeMemory(node, free_bytes=free) for node in (0, 1)], [TASK])
    root = Cpuset(None, None, "0-3", "0-1")
    return replace(made, topology=replace(made.topology, numa_nodes=nodes), numa=memory, cpusets={"": root, **cpusets})


MIGRATED = {
    "one node to another": ({0: 5, 1: 2}, {0}, {1}, {1: 7}),
    "fewer nodes: only what is elsewhere": ({0: 5, 1: 2}, {0, 1}, {0}, {0: 7}),
    "more nodes: nothing": ({0: 5}, {0}, {0, 1}, {0: 5}),
    "as many nodes: in order, even those in both": ({0: 5, 1: 2}, {0, 1}, {1, 2}, {1: 5, 2: 2}),
    "what was outside of the old set stays": ({3: 9, 0: 1}, {0}, {1}, {3: 9, 1: 1}),
    "several nodes to fewer others": ({0: 1, 1: 2, 2: 4}, {0, 1, 2}, {3, 4}, {3: 5, 4: 2}),
}


@pytest.mark.parametrize("name", MIGRATED)
def test_memory_moves_as_the_kernel_moves_it(name: str) -> None:
    sizes, before, after, expected = MIGRATED[name]
    assert migrated(sizes, frozenset(before), frozenset(after)) == expected


SETS = st.frozensets(st.integers(0, 5), min_size=1)


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 99)), SETS, SETS)
def test_no_memory_is_lost_and_what_was_allowed_ends_where_it_is_allowed(
    sizes: dict[int, int], before: frozenset[int], after: frozenset[int]
) -> None:
    found = migrated(sizes, before, after)
    assert sum(found.values()) == sum(sizes.values())
    assert {node for node in found if node not in after} <= sizes.keys() - before
    assert migrated(sizes, before, before) == sizes


def test_more_memory_than_is_free_does_not_move() -> None:
    seen = view(free=GIB, job=Cpuset("", "0", "0-3", "0", {0: 2 * GIB}))
    shown = preview(seen, [DesiredValue("cgroup/job/cpuset.mems", "1")], reason="test")
    assert shown.refused[0].sentence == "2,048 MiB of job would move to NUMA node 1, which has 1,024 MiB free."


def test_isolated_cpus_of_a_cgroup_have_to_be_allowed() -> None:
    seen = view(isolated="3", job=Cpuset("", "", "0-3", "0-1"))
    desired = [("cgroup/job/cpuset.cpus", "2-3")]
    assert [refusal.code for refusal in refusals(seen, desired, allow_isolated=False)] == ["isolated"]
    assert refusals(seen, desired, allow_isolated=True) == []


LIMITED = {
    "limits": (Limits(SettingLimits(cpus_off_limits="0-1")), [], ""),
    "reserved": (Limits(), [ReservedCpus("0-1", "container app of pod shop/web-1")], ""),
    "isolated": (Limits(), [], "0-1"),
}


@pytest.mark.parametrize("code", LIMITED)
@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("cgroup/job/cpuset.cpus", "0-3", True),
        ("cgroup/job/cpuset.cpus", "inherited", True),
        ("cgroup/job/main/cpuset.cpus", "inherited", False),
    ],
)
def test_the_cpus_that_a_cgroup_inherits_are_guarded_as_those_that_a_list_names(
    code: str, key: str, value: str, *, refused: bool
) -> None:
    limits, reserved, isolated = LIMITED[code]
    seen = view(isolated=isolated, job=Cpuset("2-3", "", "2-3", "0-1"))
    cpusets = seen.cpusets | {"job/main": Cpuset("2", "", "2", "0-1")}
    inventory = replace(seen.inventory, limits=limits, reserved=reserved)
    seen = replace(seen, inventory=inventory, cpusets=cpusets)
    found = refusals(seen, [(key, value)], allow_isolated=False)
    assert [refusal.code for refusal in found] == [code] * refused
    allowed = refusals(seen, [(key, value)], allow_isolated=True)
    assert [refusal.code for refusal in allowed] == [code] * (refused and code != "isolated")
    warned = warnings(seen, [(key, value)], allow_isolated=True)
    assert ("isolated" in [warning.code for warning in warned]) == (refused and code == "isolated")


BOUND = NetTask(20, 1, "nginx", "/job/main", 4, "2", "2-3", 2, 0.5, 0.0, [])


@pytest.mark.parametrize(
    ("tasks", "named"),
    [
        ([BOUND], "nginx (20)"),
        ([replace(BOUND, affinity="2-3", threads_differ=True)], "nginx (20)"),
        ([replace(BOUND, cgroup="/job"), replace(BOUND, pid=21), replace(BOUND, pid=22)], "nginx (20) and 2 others"),
        ([replace(BOUND, affinity="2-3")], None),
        ([replace(BOUND, cgroup="/jobs")], None),
        ([replace(BOUND, cgroup=None)], None),
    ],
)
def test_a_preview_warns_that_old_kernels_forget_the_affinities_in_a_cgroup(
    tasks: list[NetTask], named: str | None
) -> None:
    seen = replace(view(job=Cpuset("2-3", "", "2-3", "0-1")), tasks=tasks)
    for key, expected in (("cgroup/job/cpuset.cpus", named), ("cgroup/job/cpuset.mems", None)):
        found = warnings(seen, [(key, "1")], allow_isolated=False)
        said = [warning.sentence for warning in found if warning.code == "affinities"]
        assert len(said) == (expected is not None)
        assert all(f"the affinity of {expected} is lost" in sentence for sentence in said)


def test_a_node_without_cgroups_of_version_2_says_how_to_get_them() -> None:
    shown = preview(replace(view(), cpusets={}), [DesiredValue("cgroup/job/cpuset.mems", "1")], reason="test")
    assert "boot with systemd.unified_cgroup_hierarchy=1" in shown.refused[0].sentence


def test_an_agent_with_an_unknown_cgroup_refuses_it_again_before_the_write() -> None:
    [refused] = refusals(view(), [("cgroup/job/cpuset.mems", "1")], allow_isolated=False)
    assert refused.code == "unknown"


def test_pages_of_a_process_that_is_too_large_to_read_move_only_with_its_cgroup() -> None:
    seen = view()
    counted = replace(seen, numa=NumaState([], [replace(TASK, from_cgroup=True)]))
    shown = preview(counted, [DesiredValue("task/10/memory-nodes", "1")], reason="test")
    assert "set cpuset.mems of its cgroup instead" in shown.refused[0].sentence
    assert preview(seen, [DesiredValue("task/10/memory-nodes", "1")], reason="test").refused == []
