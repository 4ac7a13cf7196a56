"""Stops of enforcement on a node: no policy writes, and everything is restored once if asked."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.agent.policy_node import IRQS, SPREAD, Node, Start, affinity, enforced, make_root, starter

from coresteer_agent.runtime.policies import CONFIRM_AFTER_S
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import EndedBy
from coresteer_core.policies.base import ROUND_PERIOD_S, Mode
from coresteer_core.policies.engine_state import EnforcementStop, PolicyInForce
from coresteer_core.protocol import Apply, StoppedMessage

FREEZE, RESTORE = EnforcementStop(1), EnforcementStop(2, restore=True)
SETTLE_S = 2 * ROUND_PERIOD_S + CONFIRM_AFTER_S


@pytest.fixture
def node(start: Start) -> Node:
    return start()


def receive(node: Node, *stops: EnforcementStop, policies: list[PolicyInForce] | None = None) -> None:
    """What the loop does when Policies arrive."""
    node.policies.set_policies([SPREAD] if policies is None else policies, (), stops)
    node.policies.stops.obey()


def set_by_hand(node: Node, irq: int, cpus: str) -> None:
    plan = Plan([Action(f"irq/{irq}/affinity", affinity(node.root, irq), cpus, "by hand")])
    node.changes.handle(Apply(str(uuid4()), plan, 60.0))


def stopped(node: Node) -> list[StoppedMessage]:
    return [told for told in node.told if isinstance(told, StoppedMessage)]


def values(node: Node) -> list[str]:
    return [affinity(node.root, irq) for irq in IRQS]


def test_a_freeze_keeps_the_values_and_lets_no_policy_write(node: Node) -> None:
    enforced(node)
    receive(node, FREEZE)
    assert stopped(node) == [StoppedMessage([1])]
    node.wants = {41: "5", 42: "3"}
    node.steps(60)
    assert values(node) == ["2", "0-7"]
    last = node.decisions()[-1]
    assert (last.evaluation.mode, last.change_id) == (Mode.RECOMMEND, None)
    receive(node)
    node.steps(200)
    assert values(node) == ["5", "3"]


def test_a_policy_disabled_during_a_freeze_is_restored_after_it(node: Node) -> None:
    enforced(node)
    receive(node, FREEZE)
    receive(node, FREEZE, policies=[])
    node.steps(60)
    assert values(node) == ["2", "0-7"]
    receive(node, policies=[])
    node.steps(SETTLE_S)
    assert values(node) == ["0-7", "0-7"]


def test_what_an_experiments_policy_has_set_is_restored_during_a_freeze(node: Node) -> None:
    enforced(node, replace(SPREAD, leased=True))
    receive(node, FREEZE, policies=[])
    node.steps(ROUND_PERIOD_S)
    assert values(node) == ["0-7", "0-7"]


def test_a_restore_gives_everything_back_once(node: Node) -> None:
    enforced(node)
    set_by_hand(node, 42, "6")
    assert values(node) == ["2", "6"]
    receive(node, RESTORE)
    assert values(node) == ["0-7", "0-7"]
    assert stopped(node) == [StoppedMessage([2])]
    assert {end.sentence for end in node.ends()[-2:]} == {"Restored by a stop of enforcement."}
    assert node.held() == {}
    set_by_hand(node, 42, "7")
    receive(node, RESTORE)
    node.steps(30)
    assert values(node) == ["0-7", "7"], "people may still change settings, and nothing is restored twice"
    receive(node)
    node.steps(SETTLE_S)
    assert values(node)[0] == "2", "no refusal is left over"


def test_a_freeze_can_become_a_restore(node: Node) -> None:
    enforced(node)
    receive(node, EnforcementStop(1))
    receive(node, EnforcementStop(1, restore=True))
    assert values(node) == ["0-7", "0-7"]


def test_a_setting_that_cannot_be_restored_is_counted(node: Node) -> None:
    enforced(node)
    (node.root / "proc/irq/41/smp_affinity_list").chmod(0o444)
    receive(node, RESTORE)
    assert stopped(node) == [StoppedMessage([2], stuck=1)]
    assert list(node.held()) == ["irq/41/affinity"]


def test_each_connection_gets_an_answer(node: Node) -> None:
    for _ in range(2):
        receive(node, FREEZE, RESTORE)
    assert stopped(node) == [StoppedMessage([1, 2])] * 2


def test_an_unconfirmed_change_of_a_person_still_reverts(node: Node) -> None:
    set_by_hand(node, 42, "6")
    receive(node, FREEZE)
    node.steps(61)
    assert (values(node), node.ends()[-1].ended_by) == (["0-7", "0-7"], EndedBy.TIMEOUT)


def test_after_a_connection_no_policy_writes_before_the_backend_says_what_is_in_force(node: Node) -> None:
    enforced(node)
    node.wants = {41: "5", 42: "3"}
    node.policies.stops.wait()
    node.steps(300)
    assert (values(node), node.policies.steerable("p1")) == (["2", "0-7"], {})
    node.policies.stops.continue_without()
    node.steps(300)
    assert values(node) == ["5", "3"], "without a backend, policies continue"


def test_a_stop_outlives_the_agent_and_a_reboot(start: Start) -> None:
    enforced(start())
    receive(start(), FREEZE)
    for boot in ("boot 1", "boot 2"):
        node = start()
        (node.root / "proc/sys/kernel/random/boot_id").write_text(f"{boot}\n")
        node.wants = {41: "5"}
        node.steps(60)
        assert values(node) == ["2", "0-7"]


def test_a_restore_that_was_interrupted_is_continued(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = enforced(start())
    monkeypatch.setattr(node.changes, "restore_all", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        receive(node, RESTORE)
    node = start()
    node.steps(ROUND_PERIOD_S)
    assert values(node) == ["0-7", "0-7"]


@contextmanager
def a_node() -> Iterator[Start]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        yield starter(make_root(Path(folder)), Path(folder) / "state", patch)


CPUS = st.sampled_from(["1", "2", "3", "4-5"])
POLICIES = st.sampled_from([
    [],
    [SPREAD],
    [replace(SPREAD, version=2)],
    [replace(SPREAD, holdout=True)],
    [replace(SPREAD, mode=Mode.RECOMMEND)],
])  # fmt: skip
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("wants"), st.dictionaries(st.sampled_from(IRQS), CPUS)),
        st.tuples(st.just("policies"), POLICIES),
        st.tuples(st.just("pass"), st.integers(1, 40)),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("welcome"), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(before=EVENTS, after=EVENTS, restore=st.booleans())
def test_nothing_that_happens_during_a_stop_makes_a_policy_write(
    before: list[tuple[str, object]], after: list[tuple[str, object]], restore: bool
) -> None:
    with a_node() as start:
        node, in_force = start(), [SPREAD]
        stops: list[EnforcementStop] = []
        kept: list[str] | None = None
        for what, value in [*before, ("stop", None), *after]:
            match what, value:
                case "wants", dict():
                    node.wants = value
                case "policies", list():
                    in_force = value
                case "pass", int():
                    node.steps(value)
                case "restart", _:
                    node.policies.stop(node.view())
                    node.changes.close()
                    node = start()
                case "welcome", _:
                    node.policies.stops.wait()
                case "stop", _:
                    node.now += CONFIRM_AFTER_S  # a change under its guardrails may still be undone
                    node.changes.tick()
                    stops = [EnforcementStop(1, restore)]
            if what in ("policies", "stop"):
                receive(node, *stops, policies=in_force)
            if stops:
                kept = values(node) if kept is None else kept
                assert values(node) == kept
        assert kept == ["0-7", "0-7"] or not restore


def test_a_policy_writes_nothing_after_its_change_window_has_closed_and_keeps_what_it_has_set(node: Node) -> None:
    enforced(node)
    now_ms = round(time.time() * 1000)
    node.policies.set_policies([SPREAD], (), (), now_ms + 3_600_000)
    before = node.policies.stops.apply
    node.policies.set_policies([SPREAD], (), (), now_ms - 1)
    assert (before, node.policies.stops.apply) == (False, True)
    node.wants = {41: "5", 42: "3"}
    node.steps(60)
    assert values(node) == ["2", "0-7"]
    assert stopped(node) == [], "it is no stop that a person began"
    node.policies.set_policies([SPREAD], (), ())
    node.steps(200)
    assert values(node) == ["5", "3"]
