"""Fault drills with packet steering: kill -9 while flow rules, RFS and XPS are written, or a driver alters a rule."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import fake_contexts
from tests.support.fake_contexts import FakeContexts
from tests.support.fake_nic import FakeNic, install
from tests.support.kills import Operation, count_operations, kill_at
from tests.support.views import make_netdev, make_view

from coresteer_agent.apply.restore import restore
from coresteer_agent.linux import flow_rules
from coresteer_agent.runtime.changes import NodeChanges
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.node.inventory import FlowRuleTable, Queue
from coresteer_core.protocol import Apply
from coresteer_core.settings.flow_rule_text import parse_rule

KILLS = 50
FILES = {
    "sys/class/net/eth0/queues/tx-0/xps_cpus": "4",
    "sys/class/net/eth0/queues/rx-0/rps_flow_cnt": "4096",
    "proc/sys/net/core/rps_sock_flow_entries": "32768",
}
"""What each file has after the change; 0 before."""
RULES = {
    n: f"flow-type tcp4 src-ip 10.0.0.2 dst-ip 10.0.0.1 src-port {4242 + n} dst-port 80 action {n}" for n in (1, 2)
}
MOVES = [
    Action("kernel/rps_sock_flow_entries", "0", "32768", "drill"),
    Action("netdev/eth0/flow-rule/1", "none", RULES[1], "drill"),
    Action("netdev/eth0/rx-0/rps_flow_cnt", "0", "4096", "drill"),
    Action("netdev/eth0/flow-rule/2", "none", RULES[2], "drill"),
    Action("netdev/eth0/tx-0/xps", "none", "2", "drill"),
    Action("netdev/eth0/rss-context/1", "none", "2,3", "drill"),
    Action("netdev/eth0/flow-rule/3", "none", "flow-type tcp4 dst-port 443 context 1", "drill"),
]
OTHERS = flow_rules.format_spec(parse_rule("flow-type udp4 dst-port 53 action 1"), 5)
OTHER_TABLE = [3] * 8
VIEW = make_view(
    8,
    netdevs=[
        make_netdev(
            queues=[Queue(f"rx-{n}") for n in range(4)],
            flow_rules=FlowRuleTable(8),
            rss_contexts=[],
            driver="mlx5_core",
        )
    ],
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for file in FILES:
        (tmp_path / "root" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / file).write_text("0\n")
    return tmp_path / "root"


@pytest.fixture
def nic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNic:
    nic = FakeNic(tmp_path / "nic", 8)
    install(monkeypatch, nic)
    nic.put(5, OTHERS)
    return nic


@pytest.fixture(autouse=True)
def contexts(tmp_path: Path, nic: FakeNic, monkeypatch: pytest.MonkeyPatch) -> FakeContexts:
    contexts = FakeContexts(tmp_path / "contexts", nic)
    fake_contexts.install(monkeypatch, contexts)
    contexts.put(2, OTHER_TABLE)
    return contexts


def stands(root: Path) -> list[str]:
    return [(root / file).read_text().strip() for file in FILES]


def applying(path: Path, root: Path) -> Operation:
    def operation(begin: Callable[[], None]) -> None:
        changes = NodeChanges(root, path, None, lambda: VIEW, lambda _: None)
        begin()
        changes.handle(Apply("c1", Plan(MOVES), 120))

    return operation


def test_a_kill_at_50_random_instants_leaves_rules_contexts_rfs_and_xps_restorable(
    tmp_path: Path, root: Path, nic: FakeNic, contexts: FakeContexts
) -> None:
    calls = count_operations(applying(tmp_path / "whole/journal.jsonl", root))
    assert (stands(root), sorted(nic.rules)) == (list(FILES.values()), [1, 2, 3, 5])
    assert contexts.tables == {1: [2, 3] * 4, 2: OTHER_TABLE}
    instants = random.Random(18).choices(range(1, calls + 1), k=KILLS)  # noqa: S311 - no secret, a repeatable drill
    left = set()
    for kill, instant in enumerate(sorted(instants)):
        contexts.reset()
        contexts.put(2, OTHER_TABLE)
        nic.put(5, OTHERS)
        for file in FILES:
            (root / file).write_text("0\n")
        path = tmp_path / f"{kill}/journal.jsonl"
        kill_at(instant, applying(path, root), torn=kill % 10)
        left.add((*stands(root), *sorted(nic.rules), *contexts.tables))
        results = restore(path, root)
        assert (stands(root), nic.rules) == (["0"] * len(FILES), {5: OTHERS}), f"killed at {instant}: {results}"
        assert contexts.tables == {2: OTHER_TABLE}, f"killed at {instant}: {results}"
        assert not restore(path, root)
    assert len(left) > len(MOVES), "the kills have to hit between the writes as well"


def test_a_rule_that_the_driver_altered_stays_if_the_agent_is_killed_before_it_knows(
    tmp_path: Path, root: Path, nic: FakeNic
) -> None:
    """The gap that docs/STEERING.md names: no record says that the altered rule is Coresteer's, so it is left."""
    path = tmp_path / "journal.jsonl"
    nic.alter = lambda spec: spec[:12] + bytes(2) + spec[14:84] + bytes(2) + spec[86:]
    instants = range(1, count_operations(applying(tmp_path / "whole/journal.jsonl", root)) + 1, 4)
    left = {}
    for instant in instants:
        nic.reset()
        path = tmp_path / f"{instant}/journal.jsonl"
        kill_at(instant, applying(path, root))
        inserted = sorted(nic.rules)
        restore(path, root)
        left[instant] = sorted(nic.rules)
        assert len(left[instant]) <= 1 and set(left[instant]) <= set(inserted)
    assert 1 <= sum(map(bool, left.values())) < len(instants) / 4
