"""Moves of a process's pages in steps: other work in between, kills between and within steps, pages that stay."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any  # Any: a handler takes only settings of its own kind

import pytest
from msgspec.structs import replace
from tests.support.kills import Operation, count_operations, kill_at
from tests.support.views import make_topology

from coresteer_agent.apply import registry
from coresteer_agent.apply.handler import Handler
from coresteer_agent.apply.restore import restore
from coresteer_agent.runtime.changes import NodeChanges
from coresteer_agent.runtime.policies import PolicyRunner
from coresteer_agent.runtime.policies_file import PoliciesFile
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.node.inventory import Inventory, Irq
from coresteer_core.node.load import Load
from coresteer_core.node.numa import NodeMemory, NumaState, NumaTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import Holding, PolicyInForce
from coresteer_core.policies.numa.spec import Numa
from coresteer_core.protocol import Apply, Confirm, DecisionMessage, Rollback
from coresteer_core.settings import Setting, TaskAffinity, TaskMemoryNodes
from coresteer_core.settings.memory_nodes import join_counts, split_counts, target_shares

GIB = 1 << 30
TOPOLOGY = make_topology(packages=2, nodes_per_package=1, cores_per_node=4, threads=1)
KEY, AFFINITY = "task/812/memory-nodes", "task/812/affinity"
BEFORE, MOVED = "0=36;1=4", "0=0;1=40"
MOVE = Plan([Action(KEY, BEFORE, "1", "test")])
POLICY = PolicyInForce(
    "7", 1, "numa", 10, Mode.ENFORCE, Numa(pins={"postgres": "1"}, move_pages=True, max_page_move_bytes=1 << 36)
)


class FileHandler(Handler[TaskAffinity]):
    """A value in a file; the write is one of the operations at which a test kills."""

    name = "affinity"

    def exists(self, root: Path, setting: object) -> bool:
        return True

    def read(self, root: Path, setting: object) -> str:
        return (root / self.name).read_text()

    def write(self, root: Path, setting: object, value: str) -> None:
        fd = os.open(root / "new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, value.encode())
        os.close(fd)
        (root / "new").rename(root / self.name)


class Pages(FileHandler):
    """Counts of pages by node in a file, of which a step moves eight."""

    name = "pages"

    def write(self, root: Path, setting: object, value: str) -> None:
        for _ in self.write_in_steps(root, setting, value):
            pass

    def write_in_steps(self, root: Path, setting: object, value: str) -> Iterator[None]:
        goal = round(target_shares(value).get(1, 0.0) * 40)
        while (now := split_counts(self.read(root, setting)).get(1, 0)) != goal:
            after = max(goal, now - 8) if goal < now else min(goal, now + 8)
            super().write(root, setting, join_counts({0: 40 - after, 1: after}))
            yield


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    handlers: dict[type[Setting], Handler[Any]] = {TaskMemoryNodes: Pages(), TaskAffinity: FileHandler()}
    monkeypatch.setattr(registry, "HANDLERS", registry.HANDLERS | handlers)
    root = tmp_path / "root"
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("boot 1\n")
    (root / "proc/irq/41").mkdir(parents=True)
    reset(root)
    return root


def reset(root: Path) -> None:
    (root / "pages").write_text(BEFORE)
    (root / "affinity").write_text("0-7")
    (root / "proc/irq/41/smp_affinity_list").write_text("0-7\n")


def pages(root: Path) -> str:
    return (root / "pages").read_text()


class Node:
    """The parts of an agent that write, on a machine of two NUMA nodes with one process."""

    def __init__(self, root: Path, state: Path) -> None:
        self.root = root
        self.now = 1000.0
        self.told: list[DecisionMessage | ChangeMessage] = []
        self.changes = NodeChanges(root, state / "journal.jsonl", None, self.view, self.told.append)
        file = PoliciesFile(state / "policies.json", root)
        self.policies = PolicyRunner(self.changes, self.told.append, state=file.read(), save=file.write)

    def view(self) -> View:
        sizes = {node: count * GIB // 40 for node, count in split_counts(pages(self.root)).items()}
        affinity = (self.root / "affinity").read_text()
        process = NumaTask(
            812, 5, "postgres", "/db.slice", 1, affinity, "0-7", 4, 1.0, GIB, 100.0,
            cpu_nodes={1: 1.0}, mems_allowed="0-1", bytes_by_node=sizes,
        )  # fmt: skip
        memory = [NodeMemory(node, 16 * GIB, 8 * GIB) for node in (0, 1)]
        numa = NumaState(memory, [process])
        inventory = Inventory([], [Irq(41, "eth0", "PCI-MSI", "0-7", "0-7", None, True)])
        return View(TOPOLOGY, inventory, Load(5.0, [0.0] * 8), time_s=self.now, numa=numa)

    def step(self) -> int:
        """Run the policies once and finish their writes; return the number of pauses."""
        self.now += 30
        self.policies.step(self.view())
        return self.finish()

    def finish(self) -> int:
        pauses = 0
        while self.changes.busy:
            pauses += 1
            before = pages(self.root)
            assert self.policies.step(self.view()) == frozenset(), "nothing is decided while pages move"
            self.changes.step()
            self.policies.record_written()
            now = pages(self.root)
            assert abs(split_counts(now)[1] - split_counts(before)[1]) <= 8
        return pauses

    def held(self) -> dict[str, Holding]:
        return self.policies._state.memory.holdings

    def states(self) -> list[ChangeState]:
        return [told.state for told in self.told if isinstance(told, ChangeMessage)]


@pytest.fixture
def node(root: Path, tmp_path: Path) -> Node:
    return Node(root, tmp_path / "state")


def enforced(root: Path, state: Path) -> Node:
    """A node whose policy has bound the process to NUMA node 1 and moved its pages there."""
    node = Node(root, state)
    node.policies.set_policies([POLICY])
    for _ in range(3):
        node.step()
        for change_id in {told.change_id for told in node.told if isinstance(told, ChangeMessage)}:
            node.changes.handle(Confirm(change_id))
    assert pages(root) == MOVED
    assert (root / "affinity").read_text() == "4-7"
    return node


def test_a_change_is_applied_once_all_steps_are_done_and_others_are_handled_meanwhile(node: Node) -> None:
    node.changes.handle(Apply("c1", MOVE, 120))
    assert pages(node.root) == "0=28;1=12"
    assert node.states() == [ChangeState.APPLYING]
    node.changes.handle(Apply("c2", Plan([Action("irq/41/affinity", "0-7", "2", "test")]), 120))
    node.changes.handle(Confirm("c2"))
    assert node.states()[-1] is ChangeState.CONFIRMED
    assert pages(node.root) == "0=28;1=12"
    assert node.finish() == 5
    assert node.states()[-1] is ChangeState.UNCONFIRMED
    assert pages(node.root) == MOVED
    node.changes.handle(Rollback("c1"))
    assert node.changes.busy
    assert node.finish() == 5
    assert node.states()[-1] is ChangeState.ROLLED_BACK
    assert pages(node.root) == BEFORE


def test_a_rollback_during_the_move_follows_it(node: Node) -> None:
    node.changes.handle(Apply("c1", MOVE, 120))
    assert node.changes.busy
    node.changes.handle(Rollback("c1"))
    assert node.finish() == 10
    assert node.states() == [ChangeState.APPLYING, ChangeState.ROLLED_BACK]
    assert pages(node.root) == BEFORE


def test_an_agent_that_stops_finishes_the_move_and_undoes_it(node: Node) -> None:
    node.changes.handle(Apply("c1", MOVE, 120))
    assert node.changes.stop() == {KEY}
    assert pages(node.root) == BEFORE
    assert not node.changes.busy


def test_a_disabled_policy_restores_the_affinity_at_once_and_the_pages_in_steps(root: Path, tmp_path: Path) -> None:
    node = enforced(root, tmp_path / "state")
    node.policies.set_policies([])
    node.policies.step(node.view())
    assert ((root / "affinity").read_text(), pages(root)) == ("0-7", "0=8;1=32")
    assert node.finish() == 5
    assert pages(root) == BEFORE
    assert node.held() == {}
    assert "2 settings are restored" in [t for t in node.told if isinstance(t, DecisionMessage)][-1].evaluation.sentence


@pytest.mark.parametrize("policies", [[], [replace(POLICY, mode=Mode.OBSERVE)]], ids=["disabled", "observing"])
def test_pages_stay_where_they_are_if_the_operator_says_so(
    root: Path, tmp_path: Path, policies: list[PolicyInForce]
) -> None:
    enforced(root, tmp_path / "state").policies.set_policies(policies, ["7"])
    node = Node(root, tmp_path / "state")  # the request survives a kill
    assert node.step() == 0
    assert pages(root) == MOVED
    assert (root / "affinity").read_text() == "0-7"
    sentence = next(told.evaluation.sentence for told in node.told if isinstance(told, DecisionMessage))
    assert "1 setting is restored" in sentence
    assert "The memory of 1 process stays where it is, as requested." in sentence
    assert restore(tmp_path / "state/journal.jsonl", root) == []


def during(root: Path, state: Path, doing: str) -> Operation:
    """Return an operation that moves pages in steps, forth or back."""

    def operation(begin: Callable[[], None]) -> None:
        node = Node(root, state) if doing == "apply" else enforced(root, state)
        begin()
        if doing == "apply":
            node.changes.handle(Apply("c1", MOVE, 120))
            node.finish()
        else:
            node.policies.set_policies([])
            node.step()

    return operation


@pytest.mark.parametrize("doing", ["apply", "restore"])
def test_a_kill_at_any_instant_of_a_move_is_followed_by_the_rest_of_the_restore(
    root: Path, tmp_path: Path, doing: str
) -> None:
    calls = count_operations(during(root, tmp_path / "whole", doing))
    halfway = set()
    for instant in range(1, calls + 1, max(1, calls // 12)):
        reset(root)
        state = tmp_path / str(instant)
        kill_at(instant, during(root, state, doing))
        halfway.add(pages(root))
        if instant % 3 == 0:
            restore(state / "journal.jsonl", root)
            assert pages(root) == BEFORE, f"restored after a kill at {instant}"
        again = Node(root, state)
        again.finish()
        again.policies.set_policies([])
        again.step()
        assert pages(root) == BEFORE, f"started after a kill at {instant} of {calls}"
        assert (root / "affinity").read_text() == "0-7"
        assert restore(state / "journal.jsonl", root) == []
        assert again.held() == {}
        assert not [
            told for told in again.told if isinstance(told, ChangeMessage) and "another program" in told.sentence
        ]
    assert len(halfway) > 3, "the kills have to hit between the steps as well"
