"""Memory of a node's NUMA nodes and processes over HTTP, with the predictions of moves."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.backend.conftest import Backend
from tests.backend.fake_agent import now_ms
from tests.backend.policy_node import PolicyNode, asked, policy_node

from coresteer_agent.simulate.load import LOAD_LEVELS, busiest_tasks
from coresteer_agent.simulate.machine import Machine, make_machine
from coresteer_agent.simulate.numa_tasks import numa_state
from coresteer_core.node.numa import NumaState
from coresteer_core.protocol import FlowsMessage

MACHINE = make_machine(cpus=32, irqs=40, kind=1, seed=3)
MONITORED = make_machine(cpus=32, irqs=40, kind=1, seed=1)
"""Like MACHINE, with memory traffic."""


def state(machine: Machine = MACHINE) -> NumaState:
    made = numa_state(machine, busiest_tasks(machine, LOAD_LEVELS - 1), {}, {}, {})
    assert made is not None
    return made


@pytest_asyncio.fixture
async def node(backend: Backend) -> AsyncIterator[PolicyNode]:
    """A node with two NUMA nodes that has reported its processes."""
    async with policy_node(backend) as node:
        node.machine = MACHINE
        await node.describe()
        yield node


async def report(node: PolicyNode, numa: NumaState | None) -> None:
    await node.tell(FlowsMessage(now_ms(), [], numa=numa))


async def test_processes_are_listed_with_the_largest_remote_memory_first(node: PolicyNode) -> None:
    await report(node, state())
    found: dict[str, Any] = await node.get("numa")
    assert [memory["node"] for memory in found["nodes"]] == [0, 1]
    assert found["bandwidth_unknown"] is not None
    assert found["traffic_unknown"] is not None
    assert [(each["from_node"], each["to_node"]) for each in found["traffic"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    used = sum(entry["task"]["cpu_share"] for entry in found["tasks"])
    assert sum(each["cpus"] for each in found["traffic"]) == pytest.approx(used)
    remote = [entry["remote_share"] * entry["task"]["rss_bytes"] for entry in found["tasks"]]
    assert remote == sorted(remote, reverse=True)
    for entry in found["tasks"]:
        assert entry["run_time"] == pytest.approx(1 + 1.1 * entry["remote_share"])
        assert entry["contention"] is None


async def test_measured_traffic_is_shown_by_pair_of_nodes_and_gives_contention(node: PolicyNode) -> None:
    await report(node, measured := state(MONITORED))
    found = await node.get("numa")
    assert (found["bandwidth_unknown"], found["traffic_unknown"]) == (None, None)
    pairs = {(each["from_node"], each["to_node"]): each["bytes_per_s"] for each in found["traffic"]}
    for memory in measured.nodes:
        assert pairs[memory.node, memory.node] == memory.local_bytes_per_s
        assert pairs[memory.node, 1 - memory.node] == memory.remote_bytes_per_s
    assert all(entry["contention"] > 0 for entry in found["tasks"])


async def test_unknown_memory_is_none_with_its_reason(node: PolicyNode) -> None:
    first, *others = state().tasks
    unknown = replace(first, bytes_by_node=None, unknown="Its numa_maps cannot be read.")
    await report(node, replace(state(), tasks=[unknown, *others]))
    found = await node.get("numa")
    [entry] = [entry for entry in found["tasks"] if entry["task"]["pid"] == first.pid]
    assert (entry["remote_share"], entry["run_time"]) == (None, None)
    assert entry["task"]["unknown"] == "Its numa_maps cannot be read."
    assert await node.get(f"numa/{first.pid}/options") == []


async def test_options_state_speed_up_and_cost_of_every_node(node: PolicyNode) -> None:
    await report(node, state())
    entry = (await node.get("numa"))["tasks"][0]
    options = await node.get(f"numa/{entry['task']['pid']}/options")
    best = max(options, key=lambda option: option["speed_up"])
    assert best["speed_up"] == pytest.approx(entry["run_time"])
    assert best["saved_cpus"] > 0
    for option in options:
        assert (option["moved_bytes"] > 0) == option["with_pages"]
        assert option["cost_s"] == pytest.approx(option["moved_bytes"] / 4096 * 3e-6)


async def test_a_node_that_has_reported_no_numa_state_has_none(node: PolicyNode) -> None:
    await report(node, None)
    unknown = {"bandwidth_unknown": None, "traffic_unknown": None}
    assert await node.get("numa") == {"at": None, "nodes": [], "tasks": [], "traffic": []} | unknown


async def test_a_preview_says_what_a_move_does_to_the_locality_of_memory(node: PolicyNode) -> None:
    await report(node, reported := state())
    moved = next(task for task in reported.tasks if task.remote_share == 0.0)
    away = next(memory.node for memory in reported.nodes if memory.node not in moved.cpu_nodes)
    body = {"desired": [{"key": f"task/{moved.pid}/memory-nodes", "value": str(away)}]}
    preview = await asked(node.operator, f"{node.path}/previews", body)
    [sentence] = preview["expected"]
    assert sentence.startswith(f"{moved.name} ({moved.pid}): 0% → 100% of its ")
    assert "times as fast, by distance alone." in sentence
