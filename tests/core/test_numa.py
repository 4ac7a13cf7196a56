"""The numa policy: factors, triggers, placement, scattering, page moves and the evaluation of its own moves."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.views import make_topology

from coresteer_core.changes.plan import Action, DesiredValue, Plan, inverse, preview
from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.load import Load
from coresteer_core.node.numa import NodeMemory, NumaState, NumaTask
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, Mode, Scope
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_write
from coresteer_core.policies.numa.assignment import Assignment
from coresteer_core.policies.numa.effect import predict_locality
from coresteer_core.policies.numa.factors import Machine, Process, on_node, run_time, total_time
from coresteer_core.policies.numa.machine import machine_of, process_of
from coresteer_core.policies.numa.memory import EVALUATION_ROUNDS, REJECTED_S, NumaMemory
from coresteer_core.policies.numa.options import largest_contention
from coresteer_core.policies.numa.policy import decide
from coresteer_core.policies.numa.spec import Numa
from coresteer_core.settings.memory_nodes import split_counts
from coresteer_core.settings.overlay import overlay

GIB = 1 << 30
# NUMA nodes 0: CPUs 0-3, 1: CPUs 4-7
TWO_NODES = make_topology(packages=2, nodes_per_package=1, cores_per_node=4, threads=1)
SPEC = Numa(move_pages=True)


def task(pid: int = 10, node: int = 1, *, memory: dict[int, int] | None = None, **other: object) -> NumaTask:
    """A process of one CPU on a node with its memory on node 0."""
    made = NumaTask(
        pid, 5, "postgres", "/db.slice", 1, "0-7", "0-7", 4 * node, 1.0, GIB // 8, 100.0,
        cpu_nodes={node: 1.0}, mems_allowed="0-1", bytes_by_node={0: GIB // 8} if memory is None else memory,
    )  # fmt: skip
    return replace(made, **other)


def view(*tasks: NumaTask, topology: Topology = TWO_NODES, free: int = 8 * GIB, time_s: float = 1000.0) -> View:
    busy: list[float | None] = [0.0] * len(topology.cpus)
    for each in tasks:
        busy[each.cpu] = min(1.0, (busy[each.cpu] or 0.0) + each.cpu_share)
    nodes = [NodeMemory(node.id, 16 * GIB, free) for node in topology.numa_nodes]
    return View(topology, Inventory([], []), Load(5.0, busy), time_s=time_s, numa=NumaState(nodes, list(tasks)))


def first(seen: View, spec: Numa = SPEC, scope: Scope | None = None) -> Decision:
    return decide(seen, spec, scope or Scope(), NumaMemory())


def proposed(decision: Decision) -> dict[str, str]:
    return {proposal.key: proposal.value for proposal in decision.proposals}


def test_a_process_moves_to_the_node_that_has_its_memory() -> None:
    decision = first(view(task()))
    assert proposed(decision) == {"task/10/affinity": "0-3"}
    assert "100% of its 128 MiB is remote" in decision.proposals[0].reason
    assert "times as fast, by distance alone" in decision.proposals[0].reason


def test_its_memory_moves_to_it_where_the_other_node_has_no_free_cpu() -> None:
    full = [task(pid, 0, memory={0: GIB // 8}, cpu=pid - 20) for pid in range(20, 24)]
    assert proposed(first(view(task(), *full))) == {"task/10/affinity": "4-7", "task/10/memory-nodes": "1"}


def test_two_processes_swap_between_full_nodes() -> None:
    on_0 = [task(20 + cpu, 0, memory={1: GIB}, cpu=cpu) for cpu in range(4)]
    on_1 = [task(30 + cpu, 1, memory={0: GIB}, cpu=4 + cpu) for cpu in range(4)]
    found = proposed(first(view(*on_0, *on_1), Numa()))
    assert found == {f"task/{20 + cpu}/affinity": "4-7" for cpu in range(4)} | {
        f"task/{30 + cpu}/affinity": "0-3" for cpu in range(4)
    }


def test_pages_that_would_take_longer_to_move_than_they_save_stay() -> None:
    full = [task(pid, 0, memory={0: GIB // 8}, cpu=pid - 20) for pid in range(20, 24)]
    idle = task(cpu_share=0.01, cpu_nodes={1: 0.01}, memory={0: 2 * GIB}, rss_bytes=2 * GIB)
    assert proposed(first(view(idle, *full), Numa(move_pages=True, max_page_move_bytes=1 << 34))) == {}


SKIPPED = {
    "a kernel thread": (task(kernel=True), "A kernel thread"),
    "a real-time process": (task(realtime=True), "A real-time process"),
    "a young process": (task(age_s=1.0), "Younger than 5 s"),
    "a small process": (task(rss_bytes=1 << 20), "less than 16 MiB"),
    "a memory policy of its own": (task(mempolicy="interleave:0-1"), "interleave:0-1"),
    "bound by another program": (task(affinity="4"), "static pin"),
    "threads bound by another program": (task(threads_differ=True), "its threads to different CPUs"),
    "unknown memory": (task(memory={}, unknown="Its numa_maps cannot be read."), "cannot be read"),
    "out of scope": (task(name="other"), "Out of scope"),
}


@pytest.mark.parametrize("name", SKIPPED)
def test_skipped_processes_have_a_reason(name: str) -> None:
    skipped, why = SKIPPED[name]
    decision = first(view(skipped), scope=Scope(tasks=["postgres"]))
    assert decision.proposals == []
    assert why in decision.skipped[0].why


def test_a_static_pin_takes_precedence_over_every_prediction() -> None:
    decision = first(view(task(node=0)), replace(SPEC, pins={"/db*": "1"}))
    assert proposed(decision)["task/10/affinity"] == "4-7"
    assert "static pin requires node 1" in decision.proposals[0].reason


def test_the_memory_of_a_pinned_process_follows_it() -> None:
    decision = first(view(task(affinity="4-7")), replace(SPEC, pins={"postgres": "1"}))
    assert proposed(decision) == {"task/10/memory-nodes": "1"}
    settled = task(affinity="4-7", memory={1: GIB // 8})
    assert proposed(first(view(settled), replace(SPEC, pins={"postgres": "1"}))) == {}


def test_a_pinned_process_that_runs_on_its_node_by_chance_is_bound_to_it() -> None:
    spec = replace(SPEC, pins={"postgres": "1"})
    decision = first(view(task(memory={1: GIB // 8})), spec)
    assert proposed(decision) == {"task/10/affinity": "4-7"}
    assert "static pin requires node 1" in decision.proposals[0].reason
    narrower = task(affinity="5", memory={1: GIB // 8})
    assert proposed(first(view(narrower), spec)) == {}


def test_a_static_pin_is_not_rolled_back_whatever_it_costs() -> None:
    spec = replace(SPEC, pins={"postgres": "1"}, move_pages=False)
    decision = first(view(task(node=0)), spec)
    for round_ in range(1, EVALUATION_ROUNDS + 3):
        assert isinstance(decision.memory, NumaMemory)
        slower = task(affinity="4-7", memory={0: GIB // 8})
        decision = decide(view(slower, time_s=1000.0 + 5 * round_), spec, Scope(), decision.memory)
        assert proposed(decision) == {}


def test_a_pin_to_a_node_that_does_not_exist_is_reported() -> None:
    decision = first(view(task()), replace(SPEC, pins={"postgres": "7"}))
    assert decision.proposals == []
    assert "names node 7" in decision.skipped[0].why


PINNED = {"pinned": "1"}
NEAR_1 = [task(20 + at, 1, memory={1: GIB}, cpu=5 + at) for at in range(3)]
"""Three processes of node 1, which leave one of its CPUs free."""
FOLLOWER = task(30, 0, memory={1: GIB}, cpu=1)
"""A process of node 0 whose memory is on node 1."""
ROOM: dict[str, tuple[list[NumaTask], list[int]]] = {
    "takes the last CPU of its node": ([task(name="pinned", node=0, memory={1: GIB}), FOLLOWER, *NEAR_1], [10]),
    "is counted once where it is": (
        [task(name="pinned", affinity="4-7", memory={1: GIB}), FOLLOWER, *NEAR_1[:2]],
        [30],
    ),
    "is counted once where it is by chance": (
        [task(name="pinned", memory={1: GIB}), FOLLOWER, *NEAR_1[:2]],
        [10, 30],
    ),
    "leaves its CPU to others": (
        [
            task(name="pinned", node=0, memory={1: GIB}),
            *[task(40 + at, 0, memory={0: GIB}, cpu=1 + at) for at in range(3)],
            task(50, 1, memory={0: GIB}, cpu=5),
        ],
        [10, 50],
    ),
}


@pytest.mark.parametrize("name", ROOM)
def test_a_pinned_process(name: str) -> None:
    tasks, moved = ROOM[name]
    spec = Numa(pins=PINNED)
    assert proposed(first(view(*tasks), spec)).keys() == {f"task/{pid}/affinity" for pid in moved}


def contending(*others: NumaTask) -> View:
    """Four processes of which the memory of node 0 transfers nearly as much as it can."""
    heavy = [
        task(
            20 + cpu,
            0,
            memory={0: GIB // 8},
            cpu=cpu,
            memory_bound=0.9,
            bytes_per_s=9e9,
            cpu_share=0.5,
            cpu_nodes={0: 0.5},
        )
        for cpu in range(4)
    ]
    seen = view(*heavy, *others)
    assert seen.numa is not None
    nodes = [replace(node, bandwidth_bytes_per_s=40e9) for node in seen.numa.nodes]
    return replace(seen, numa=replace(seen.numa, nodes=nodes))


SCATTERING = replace(SPEC, gain=10.0)
"""No process gains enough for a place of its own."""


def test_contending_processes_are_scattered() -> None:
    decision = first(contending(), SCATTERING)
    assert {proposal.value for proposal in decision.proposals} == {"4-7", "1"}
    assert "Contention factor 1.87 (predicted 0.26)" in decision.proposals[0].reason


@pytest.mark.parametrize(
    ("contention", "others", "rolled_back"),
    [(0.5, [], False), (1.5, [task(40, memory={1: GIB}, memory_bound=0.9, bytes_per_s=24e9)], True)],
    ids=["as predicted", "another process came"],
)
def test_a_scattered_process_goes_back_only_if_it_achieved_less_than_half_of_what_was_predicted(
    contention: float, others: list[NumaTask], rolled_back: bool
) -> None:
    spec = replace(SCATTERING, contention=contention)
    decision = first(contending(), spec)
    moved = proposed(decision)
    for round_ in range(1, EVALUATION_ROUNDS + 1):
        assert isinstance(decision.memory, NumaMemory)
        seen = replace(overlay(contending(*others), moved), time_s=1000.0 + 5 * round_)
        decision = decide(seen, spec, Scope(), decision.memory)
    assert decision.reverts == (moved.keys() if rolled_back else frozenset())


def test_a_move_that_does_not_pay_off_is_rolled_back_and_not_tried_again() -> None:
    seen = view(task())
    decision = first(seen, Numa())
    moved = task(affinity="0-3", cpu=0, cpu_nodes={0: 1.0}, memory={1: GIB // 8})  # its pages went elsewhere
    memory = decision.memory
    for round_ in range(1, EVALUATION_ROUNDS + 1):
        assert isinstance(memory, NumaMemory)
        decision = decide(view(moved, time_s=1000.0 + 5 * round_), Numa(gain=3.0), Scope(), memory)
        memory = decision.memory
    assert proposed(decision) == {"task/10/affinity": "0-7"}
    assert decision.reverts == {"task/10/affinity"}
    assert "rolled back" in decision.proposals[0].reason
    assert isinstance(memory, NumaMemory)
    decision = decide(view(moved, time_s=1025.0), Numa(), Scope(), memory)
    assert decision.reverts == {"task/10/affinity"}, "the engine may have deferred it"
    memory = decision.memory
    assert isinstance(memory, NumaMemory)
    decision = decide(view(task(), time_s=1030.0), Numa(), Scope(), memory)
    assert proposed(decision) == {}
    assert isinstance(decision.memory, NumaMemory)
    again = decide(view(task(), time_s=1030.0 + REJECTED_S), Numa(), Scope(), decision.memory)
    assert isinstance(again.memory, NumaMemory)
    assert proposed(again) == {"task/10/affinity": "0-3"}
    assert again.memory.moves[0].rejected_s is None, "it is measured as if for the first time"


def test_a_process_moves_back_only_for_twice_the_gain_from_the_round_that_shows_its_move_on() -> None:
    spec, size = Numa(gain=1.2), GIB // 8
    memory = first(view(task()), spec).memory
    assert isinstance(memory, NumaMemory)
    elsewhere = {0: size * 3 // 10, 1: size * 7 // 10}  # its memory has changed: back, it would be 1.3 times as fast
    moved = task(affinity="0-3", cpu=0, cpu_nodes={0: 1.0}, memory=elsewhere)
    assert proposed(first(view(replace(moved, affinity="0-7")), spec)) == {"task/10/affinity": "4-7"}
    assert proposed(decide(view(moved, time_s=1005.0), spec, Scope(), memory)) == {}


def test_a_page_move_that_was_never_written_is_neither_measured_nor_rolled_back() -> None:
    pinned = task(affinity="4-7")
    spec = replace(SPEC, pins={"postgres": "1"})
    decision = first(view(pinned), spec)
    for round_ in range(1, EVALUATION_ROUNDS + 3):
        assert isinstance(decision.memory, NumaMemory)
        decision = decide(view(pinned, time_s=1000.0 + 5 * round_), spec, Scope(), decision.memory)
        assert proposed(decision) == {"task/10/memory-nodes": "1"}
        assert decision.reverts == frozenset()


@pytest.mark.parametrize(("elsewhere", "moves"), [(0.04, False), (0.06, True)])
def test_pages_of_a_pinned_process_move_only_if_that_changes_the_setting(elsewhere: float, moves: bool) -> None:
    size = GIB // 8
    bound = task(affinity="4-7", memory={0: round(elsewhere * size), 1: round((1 - elsewhere) * size)})
    decision = first(view(bound), replace(SPEC, pins={"postgres": "1"}))
    assert proposed(decision) == ({"task/10/memory-nodes": "1"} if moves else {})


def test_moves_that_are_not_written_yet_are_proposed_again() -> None:
    busy = [task(20 + cpu, 0, memory={0: GIB // 8}, cpu=cpu, cpu_share=0.3, cpu_nodes={0: 0.3}) for cpu in range(4)]
    decision = first(view(task(), *busy), Numa())
    assert isinstance(decision.memory, NumaMemory)
    again = decide(view(task(), *busy, time_s=1005.0), Numa(), Scope(), decision.memory)
    assert proposed(again) == proposed(decision) == {"task/10/affinity": "0-3"}


def test_a_machine_with_one_node_has_nothing_to_move() -> None:
    one = make_topology(packages=1, nodes_per_package=1, cores_per_node=4, threads=1)
    assert first(view(topology=one)).sentence == "Nothing is moved: this node has a single NUMA node."


BOUND = task(node=0, affinity="0-3")
FAR = task(node=0, affinity="0-3", memory={1: GIB // 8})
MISPLACED = task(affinity="4-7")
DISAPPOINTING = task(affinity="4-7", memory={0: 11 * GIB // 160, 1: 9 * GIB // 160})
"""Where a move to node 1 was predicted to make all memory local."""
FULL = [task(20 + cpu, 0, memory={0: GIB // 8}, cpu=cpu) for cpu in range(4)]
QUIET = [task(30, 0, memory={0: GIB // 8}, cpu=1)]
Steps = list[tuple[NumaTask | None, str]]
MOVED: Steps = [(task(), "affinity"), *[(BOUND, "")] * EVALUATION_ROUNDS]
OWN_BINDINGS: dict[str, tuple[Numa, list[NumaTask], Steps]] = {
    "a later move is not written": (Numa(), QUIET, [*MOVED, *[(FAR, "")] * 3]),
    "its pages are not moved": (SPEC, FULL, [(task(), "affinity"), *[(MISPLACED, "")] * 3]),
    "it was idle for longer than the policy remembers": (Numa(), QUIET, [*MOVED, *[(None, "")] * 10, (BOUND, "")]),
    "a later move is rolled back": (
        Numa(),
        QUIET,
        [*MOVED, (FAR, "affinity"), *[(DISAPPOINTING, "affinity")] * EVALUATION_ROUNDS, *[(BOUND, "")] * 2],
    ),
}
"""The other processes, and by round how the process looks, if at all, and which of its settings is written."""


@pytest.mark.parametrize("name", OWN_BINDINGS)
def test_a_process_that_the_policy_bound_is_not_taken_for_one_that_another_program_bound_although(name: str) -> None:
    spec, others, steps = OWN_BINDINGS[name]
    policy, memory, written = PolicyInForce("1", 1, "numa", 1, Mode.ENFORCE, spec), EngineMemory(), []
    for round_, (process, end) in enumerate(steps):
        seen = view(*others, *([] if process is None else [process]), time_s=1000.0 + 400 * round_)
        [evaluation], memory = evaluate_round(seen, [policy], memory)
        assert [skipped for skipped in evaluation.skipped if "Another program" in skipped.why] == []
        for action in evaluation.actions:
            if end and action.key.endswith(end):
                memory = record_write(memory, "1", action, seen.time_s)
                written.append(action.becomes)
    affinity = next(process.affinity for process, _ in reversed(steps) if process is not None)
    assert written[-1] == affinity, "the steps are those of the policy"


# Properties


@st.composite
def states(draw: st.DrawFn) -> View:
    """A machine of 2 to 4 NUMA nodes with processes anywhere."""
    random = Random(draw(st.integers(0, 2**32)))  # noqa: S311 - no secret
    nodes, cores = draw(st.integers(2, 4)), draw(st.integers(2, 8))
    isolated = [0] if draw(st.booleans()) else []
    topology = make_topology(packages=nodes, nodes_per_package=1, cores_per_node=cores, threads=1, isolated=isolated)
    everything = format_cpu_list(topology.online())
    known = draw(st.booleans())
    tasks = []
    for pid in range(1, draw(st.integers(1, 10)) + 1):
        node = random.randrange(nodes)
        share = random.choice((0.05, 0.3, 1.0, 1.0))
        size = random.choice((1 << 26, GIB))
        sizes = {n: random.randrange(size) for n in range(nodes) if random.random() < 0.5} or {node: size}
        affinity = random.choice((everything, everything, everything, str(node * cores)))
        mems = random.choice((f"0-{nodes - 1}", f"0-{nodes - 1}", str(node)))
        tasks.append(
            NumaTask(
                pid, 5, f"p{pid}", None, 1, affinity, everything, node * cores, share, sum(sizes.values()), 100.0,
                cpu_nodes={node: share}, mems_allowed=mems, bytes_by_node=sizes,
                bytes_per_s=random.uniform(0, 20e9) if known else None,
                memory_bound=random.random() if known else None,
            )
        )  # fmt: skip
    memory = [NodeMemory(n, 4 * GIB, random.choice((4, 1, 0)) * GIB, bandwidth_bytes_per_s=20e9) for n in range(nodes)]
    busy: list[float | None] = [random.choice((0.0, 0.2, 1.0)) for _ in topology.cpus]
    return View(topology, Inventory([], []), Load(5.0, busy), time_s=1000.0, numa=NumaState(memory, tasks))


SPECS = st.builds(
    Numa, gain=st.sampled_from([1.0, 1.1, 2.0, 10.0]), move_pages=st.booleans(), contention=st.floats(0.05, 2.0),
    max_page_move_bytes=st.just(1 << 34), pins=st.sampled_from([{}, {"p1": "1"}]),
)  # fmt: skip


@given(states(), SPECS)
@settings(max_examples=150)
def test_decisions_respect_pins_cpusets_isolation_and_free_memory(seen: View, spec: Numa) -> None:
    assert seen.numa is not None
    tasks = {each.pid: each for each in seen.numa.tasks}
    pinned = {each.pid for each in tasks.values() if not parse_cpu_list(each.affinity) >= seen.topology.online()}
    incoming: dict[int, int] = {}
    for proposal in first(seen, spec).proposals:
        _, pid, name = proposal.key.split("/")
        of = tasks[int(pid)]
        ruled = of.name in spec.pins
        assert ruled or of.pid not in pinned
        if name == "affinity":
            cpus = parse_cpu_list(proposal.value)
            assert cpus
            assert cpus <= seen.topology.online() - seen.topology.isolated_cpus
            assert not ruled or {seen.topology.nodes[cpu] for cpu in cpus} == {1}
        else:
            node = int(proposal.value)
            assert node in parse_cpu_list(of.mems_allowed)
            moved = sum(size for at, size in (of.bytes_by_node or {}).items() if at != node)
            incoming[node] = incoming.get(node, 0) + moved
    free = {each.node: each.free_bytes or 0 for each in seen.numa.nodes}
    assert all(size <= free[node] for node, size in incoming.items())


@given(states(), SPECS)
@settings(max_examples=150)
def test_a_proposal_never_raises_the_predicted_total_time(seen: View, spec: Numa) -> None:
    spec = replace(spec, pins={})
    machine, _ = machine_of(seen, seen.topology.online())
    after = overlay(seen, proposed(first(seen, spec)))

    def total(each: View) -> float:
        assert each.numa is not None
        made = [process_of(of, machine, 1.0) for of in each.numa.tasks]
        return total_time(machine, [process for process in made if process is not None])

    assert total(after) <= total(seen) * (1 + 1e-9) + 1e-9


@given(states(), SPECS)
@settings(max_examples=50)
def test_a_steady_input_converges_and_the_inverse_restores(seen: View, spec: Numa) -> None:
    policy = PolicyInForce("1", 1, "numa", 1, Mode.ENFORCE, spec)
    now, memory, quiet = seen, EngineMemory(), 0
    before = {each.pid: each for each in seen.numa.tasks} if seen.numa is not None else {}
    for _ in range(60):
        [evaluation], memory = evaluate_round(now, [policy], memory)
        quiet = 0 if evaluation.actions else quiet + 1
        for action in evaluation.actions:
            memory = record_write(memory, "1", action, now.time_s)
        now = overlay(now, {action.key: action.becomes for action in evaluation.actions})
        now = replace(now, time_s=now.time_s + 30.0)
    assert quiet >= 5
    restored = overlay(now, {key: holding.original for key, holding in memory.holdings.items()})
    assert restored.numa is not None
    for each in restored.numa.tasks:
        was = before[each.pid]
        assert each.affinity == was.affinity
        sizes, total = was.bytes_by_node or {}, sum((was.bytes_by_node or {}).values())
        for node in sizes.keys() | (each.bytes_by_node or {}).keys():
            assert abs((each.bytes_by_node or {}).get(node, 0) - sizes.get(node, 0)) <= 0.05 * total


PROCESSES = st.builds(
    lambda seed, nodes, contends: _processes(Random(seed), nodes, contends=contends),  # noqa: S311 - no secret
    st.integers(0, 2**32), st.integers(2, 4), st.booleans(),
)  # fmt: skip


def _processes(random: Random, nodes: int, *, contends: bool) -> tuple[Machine, list[Process]]:
    distance = [[1.0 if a == b else random.uniform(1.2, 3.0) for b in range(nodes)] for a in range(nodes)]
    machine = Machine(list(range(nodes)), distance, [1.0] * nodes, [20e9] * nodes)

    def shares() -> tuple[float, ...]:
        weights = [random.random() for _ in range(nodes)]
        return tuple(weight / sum(weights) for weight in weights)

    made = [
        Process(
            random.uniform(0.1, 4), shares(), shares(),
            random.random() if contends else None, random.uniform(0, 2e10) if contends else None,
        )
        for _ in range(random.randint(1, 6))
    ]  # fmt: skip
    return machine, made


@given(PROCESSES, st.booleans())
@settings(max_examples=200)
def test_the_time_saved_is_the_difference_of_the_total_times(made: tuple[Machine, list[Process]], pages: bool) -> None:
    machine, processes = made
    changed = on_node(processes[0], 1, with_pages=pages)
    expected = total_time(machine, processes) - total_time(machine, [changed, *processes[1:]])
    assert Assignment(machine, processes).time_saved(0, changed) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(PROCESSES)
@settings(max_examples=100)
def test_moves_with_all_pages_and_the_contention_then_equal_those_of_a_changed_process(
    made: tuple[Machine, list[Process]],
) -> None:
    machine, processes = made
    now = Assignment(machine, processes)
    before, after = now.total_contention(0, machine.nodes)
    assert before == pytest.approx(sum(now.contention(index) or 0.0 for index in range(len(processes))))
    for node, (saved, run_time_then) in enumerate(now.local_moves(0)):
        changed = on_node(processes[0], node, with_pages=True)
        assert saved == pytest.approx(now.time_saved(0, changed), rel=1e-6, abs=1e-6)
        assert run_time_then == pytest.approx(now.run_time(0, changed))
        assert run_time_then >= now.least_run_time(0) - 1e-9
        then = Assignment(machine, [changed, *processes[1:]])
        expected = sum(then.contention(index) or 0.0 for index in range(len(processes)))
        assert after[node] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_local_process_without_contention_has_a_run_time_of_one() -> None:
    machine = Machine([0, 1], [[1.0, 2.1], [2.1, 1.0]], [1.0, 1.0], [None, None])
    local = Process(1.0, (1.0, 0.0), (1.0, 0.0))
    assert run_time(machine, local, [0.0, 0.0]) == 1.0
    assert run_time(machine, on_node(local, 1, with_pages=False), [0.0, 0.0]) == 2.1


def test_the_largest_contention_of_a_view_is_known_only_with_bandwidth() -> None:
    quiet = task(10, 0, memory={0: GIB})
    assert largest_contention(view(quiet)) is None
    busy = [replace(quiet, pid=pid, bytes_per_s=8e9, memory_bound=0.5) for pid in (11, 12)]
    seen = view(quiet, *busy)
    nodes = [replace(node, bandwidth_bytes_per_s=20e9) for node in (seen.numa or NumaState()).nodes]
    known = replace(seen, numa=replace(seen.numa or NumaState(), nodes=nodes))
    assert largest_contention(known) == pytest.approx(0.5 * 0.4 / 0.6)


# The setting


def test_a_preview_of_a_page_move_states_its_size_and_that_pages_are_not_restored_one_by_one() -> None:
    seen = view(task(memory={0: 3 * GIB // 4, 1: GIB // 4}))
    shown = preview(seen, [DesiredValue("task/10/memory-nodes", "1")], reason="test")
    assert shown.sentence == ("postgres (10) changes from nodes 0-1 (75% on 0, 25% on 1) to node 1.")
    assert "About 768 MiB move" in shown.warnings[0].sentence
    assert "which page was where is not restored" in shown.warnings[0].sentence
    [action] = inverse(shown.plan).actions
    assert split_counts(action.becomes) == {0: 3 * GIB // 4 // 4096, 1: GIB // 4 // 4096}


REFUSED = {
    "outside of its cpuset": (view(task(mems_allowed="0")), "1", "is not in the cpuset"),
    "too little free memory": (view(task(), free=1 << 20), "1", "has 1 MiB free"),
    "no such node": (view(task()), "5", "no NUMA node 5"),
    "several nodes": (view(task()), "0-1", "Name one NUMA node"),
    "no such process": (view(), "1", "no process 10"),
    "not a node": (view(task()), "one", "is not a list of NUMA nodes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_page_moves_are_refused_with_the_reason(name: str) -> None:
    seen, value, why = REFUSED[name]
    shown = preview(seen, [DesiredValue("task/10/memory-nodes", value)], reason="test")
    assert why in shown.refused[0].sentence


EFFECTS: dict[str, tuple[NumaTask, dict[str, str], list[str]]] = {
    "a process follows its memory": (
        task(), {"task/10/affinity": "0-3"},
        ["postgres (10): 100% → 0% of its 128 MiB is remote; predicted 2.10 times as fast, by distance alone."],
    ),
    "memory follows the process": (
        task(memory={0: GIB, 1: GIB}, memory_bound=0.5), {"task/10/memory-nodes": "1"},
        [
            "postgres (10): 50% → 0% of its 2 GiB is remote; 1 GiB move in about 0.79 s; "
            "predicted 1.27 times as fast."
        ],
    ),
    "a process and its memory move together": (
        task(node=0), {"task/10/affinity": "4-7", "task/10/memory-nodes": "1"},
        [
            "postgres (10): 0% → 0% of its 128 MiB is remote; 128 MiB move in about 0.098 s; "
            "predicted 1.00 times as fast, by distance alone."
        ],
    ),
    "a move to the wrong node": (
        task(node=0), {"task/10/affinity": "5"},
        ["postgres (10): 0% → 100% of its 128 MiB is remote; predicted 0.48 times as fast, by distance alone."],
    ),
    "CPUs of the same node": (task(node=0), {"task/10/affinity": "2"}, []),
    "unknown memory": (
        task(memory={}, unknown="Its numa_maps cannot be read."), {"task/10/affinity": "0-3"},
        ["postgres (10): Its numa_maps cannot be read. No effect on its locality is predicted."],
    ),
    "no CPU time": (
        task(cpu_share=0.0, cpu_nodes={1: 0.0}), {"task/10/affinity": "0-3"},
        ["postgres (10): It used no CPU time in the last interval. No effect on its locality is predicted."],
    ),
    "other settings": (task(), {"task/10/nice": "5"}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", EFFECTS)
def test_a_preview_predicts_the_locality_of_memory_and_the_speed_up(name: str) -> None:
    moved, values, expected = EFFECTS[name]
    plan = Plan([Action(key, "", value, "test") for key, value in values.items()])
    assert predict_locality(plan, view(moved)) == expected


def test_a_prediction_of_locality_needs_several_numa_nodes() -> None:
    one = make_topology(packages=1, nodes_per_package=1, cores_per_node=4, threads=1)
    plan = Plan([Action("task/10/affinity", "", "1", "test")])
    assert predict_locality(plan, view(task(node=0), topology=one)) == []
    assert predict_locality(plan, replace(view(task()), numa=None)) == []
