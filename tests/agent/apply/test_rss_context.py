"""netdev/NAME/rss-context/NUMBER against a kernel that answers netlink byte for byte: no emulated NIC has contexts."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support import fake_contexts, fake_nic
from tests.support.fake_contexts import FakeContexts
from tests.support.fake_nic import FakeNic
from tests.support.views import make_netdev, make_view

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.restore import restore
from coresteer_agent.linux import flow_rules, rss_contexts
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.netdev_settings import _read_flow_rules, _read_rss_contexts
from coresteer_agent.runtime.changes import ChangeRunner
from coresteer_core.changes.plan import Action, DesiredValue, Plan, Preview, preview
from coresteer_core.changes.report import ChangeMessage, Outcome
from coresteer_core.node.inventory import FlowRule, FlowRuleTable, Queue, RssContext
from coresteer_core.node.view import View
from coresteer_core.policies.base import Mode, Ownership
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_write
from coresteer_core.policies.fixed_settings.policy import FixedSettings
from coresteer_core.policies.ownership import restore_actions
from coresteer_core.protocol import Apply
from coresteer_core.settings import RssContextTable
from coresteer_core.settings.flow_rule_text import parse_rule

KEY, SLOT = "netdev/eth0/rss-context/1", "netdev/eth0/flow-rule/7"
RULE = "flow-type tcp4 dst-port 80 context 1"
OTHERS = [3, 2] * 4


@pytest.fixture
def nic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNic:
    nic = FakeNic(tmp_path / "nic", 16)
    fake_nic.install(monkeypatch, nic)
    return nic


@pytest.fixture
def contexts(tmp_path: Path, nic: FakeNic, monkeypatch: pytest.MonkeyPatch) -> FakeContexts:
    contexts = FakeContexts(tmp_path / "contexts", nic)
    fake_contexts.install(monkeypatch, contexts)
    return contexts


def seen(journal: Journal) -> View:
    """The node as the agent's inventory shows it."""
    table, contexts = _read_flow_rules("eth0"), _read_rss_contexts("eth0")
    assert table is not None
    reader = InventoryReader(Path("/nowhere"))
    reader.own = journal.own
    netdev = make_netdev(
        queues=[Queue(f"rx-{number}") for number in range(4)],
        flow_rules=reader._with_owners("eth0", table),
        rss_contexts=reader._owned_contexts("eth0", contexts),
    )
    return make_view(8, netdevs=[netdev])


@pytest.fixture
def executor(root: Path, journal: Journal, contexts: FakeContexts) -> Executor:
    return Executor(root, journal, lambda: seen(journal))


def write(executor: Executor, was: str = "none", value: str = "2,3", key: str = KEY) -> Outcome:
    return executor.apply(Action(key, was, value, "test"), change_id="c").outcome


def planned(journal: Journal, **values: str) -> Preview:
    keys = {"context": KEY, "rule": SLOT}
    return preview(seen(journal), [DesiredValue(keys[name], value) for name, value in values.items()], reason="test")


def run(executor: Executor, plan: Preview) -> None:
    for action in plan.plan.actions:
        result = executor.apply(action, change_id="c")
        assert result.outcome is Outcome.APPLIED, result.sentence


def test_a_context_and_a_rule_that_names_it_are_written_in_order_and_undone_in_reverse(
    executor: Executor, root: Path, journal: Journal, nic: FakeNic, contexts: FakeContexts
) -> None:
    contexts.put(2, OTHERS)
    plan = planned(journal, rule=RULE, context="2,3")
    assert plan.commands == ["ethtool -X eth0 start 2 equal 2 context 1", f"ethtool -N eth0 {RULE} loc 7"]
    run(executor, plan)
    assert (contexts.tables, nic.contexts_of_rules) == ({1: [2, 3] * 4, 2: OTHERS}, {7: 1})
    [netdev] = seen(journal).inventory.netdevs
    assert netdev.rss_contexts == [RssContext(1, "2,3", ours=True), RssContext(2, "3,2")]
    assert netdev.flow_rules == FlowRuleTable(16, [FlowRule(7, "", ours=True, context_rule=RULE)])
    results = restore(journal.path, root) or []
    assert [result.sentence for result in results] == [
        "flow rule 7 of eth0 was restored to none.",
        "RSS context 1 of eth0 was restored to none.",
    ]
    assert (contexts.tables, nic.rules) == ({2: OTHERS}, {})


def test_a_context_of_a_rule_that_was_there_before_is_undone_after_the_rule(
    executor: Executor, root: Path, journal: Journal, nic: FakeNic, contexts: FakeContexts
) -> None:
    run(executor, planned(journal, rule="flow-type tcp4 dst-port 80 action 3"))
    run(executor, planned(journal, context="2,3", rule=RULE))
    restore(journal.path, root)
    assert (contexts.tables, nic.rules) == ({}, {})


def test_a_context_in_use_is_deleted_only_together_with_the_rule(
    executor: Executor, journal: Journal, nic: FakeNic, contexts: FakeContexts
) -> None:
    run(executor, planned(journal, context="2,3", rule=RULE))
    [refused] = planned(journal, context="none").refused
    assert refused.sentence == "Flow rule 7 of eth0 names RSS context 1 of eth0; delete the rule first."
    result = executor.apply(Action(KEY, "2,3", "none", "test"), change_id="c")
    assert (result.outcome, sorted(contexts.tables)) == (Outcome.FAILED, [1])
    assert "delete the rule first" in result.sentence
    run(executor, planned(journal, context="none", rule="none"))
    assert (contexts.tables, nic.rules, journal.originals()) == ({}, {}, {KEY: "none", SLOT: "none"})


def test_the_table_of_an_own_context_changes_and_its_rule_stays(
    executor: Executor, journal: Journal, nic: FakeNic, contexts: FakeContexts
) -> None:
    run(executor, planned(journal, context="2,3", rule=RULE))
    run(executor, planned(journal, context="0,0,1"))
    assert (contexts.tables[1], nic.contexts_of_rules) == ([0, 0, 1, 0, 0, 1, 0, 0], {7: 1})
    run(executor, planned(journal, context="0,1,0,1,0,1,0,0"))  # a pattern that is the whole table
    assert executor.undo(Action(SLOT, RULE, "none", "test")).outcome is Outcome.APPLIED
    assert executor.undo(Action(KEY, "", "none", "test")).outcome is Outcome.APPLIED
    assert (contexts.tables, journal.own) == ({}, {})


def test_a_whole_table_with_an_incomplete_repetition_is_known_as_coresteers(
    executor: Executor, root: Path, journal: Journal, contexts: FakeContexts
) -> None:
    assert write(executor, value="0,1,2,0,1,2,0,1") is Outcome.APPLIED
    assert seen(journal).inventory.netdevs[0].rss_contexts == [RssContext(1, "0,1,2", ours=True)]
    restore(journal.path, root)
    assert contexts.tables == {}


def test_another_programs_context_is_shown_and_neither_changed_nor_named_by_a_rule(
    executor: Executor, journal: Journal, nic: FakeNic, contexts: FakeContexts
) -> None:
    contexts.put(1, OTHERS)
    sentences = [refusal.sentence for refusal in planned(journal, context="0,1", rule=RULE).refused]
    assert sentences == [
        "RSS context 1 of eth0 (queues 3,2) was created by another program, so Coresteer never changes it; "
        "use another number.",
        "RSS context 1 of eth0 was created by another program; create another one.",
    ]
    for value in ("0,1", "none"):
        assert write(executor, "3,2", value) is Outcome.REFUSED
        assert executor.undo(Action(KEY, "3,2", value, "test")).outcome is Outcome.UNSUPPORTED
    assert write(executor, "none", RULE, SLOT) is Outcome.REFUSED
    assert (contexts.tables, nic.rules, journal.originals()) == ({1: OTHERS}, {}, {})


def test_another_programs_rule_stays_though_it_names_the_same_context_as_one_of_coresteers(
    executor: Executor, root: Path, journal: Journal, nic: FakeNic, contexts: FakeContexts
) -> None:
    run(executor, planned(journal, context="2,3"))
    theirs = "flow-type udp4 dst-port 53 context 1"
    nic.put(7, flow_rules.format_spec(parse_rule(theirs), 7), 1)
    [refused] = planned(journal, rule=RULE).refused
    assert f"flow rule 7 of eth0 ({theirs}) was added by another program" in refused.sentence
    assert write(executor, theirs, "none", SLOT) is Outcome.REFUSED
    [result] = restore(journal.path, root) or []
    assert (result.outcome, sorted(contexts.tables), nic.contexts_of_rules) == (Outcome.FAILED, [1], {7: 1})
    nic.put(7, None)
    restore(journal.path, root)
    assert contexts.tables == {}


@pytest.mark.parametrize("step", ["journaled", "written"])
def test_another_programs_context_that_appears_before_the_write_stays(  # noqa: PLR0917 - fixtures and a table's row
    executor: Executor, root: Path, journal: Journal, contexts: FakeContexts, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    if step == "written":
        contexts.before_write = lambda: contexts.put(1, OTHERS)
    else:
        real = journal.record_original

        def faster(change_id: str, key: str, found: str, owners: list[str]) -> None:
            real(change_id, key, found, owners)
            contexts.put(1, OTHERS)

        monkeypatch.setattr(journal, "record_original", faster)
    result = executor.apply(Action(KEY, "none", "0,1", "test"), change_id="c")
    assert result.outcome is Outcome.REFUSED
    assert "another program" in result.sentence.lower()
    restore(journal.path, root)
    assert contexts.tables == {1: OTHERS}


def test_a_rule_of_a_context_that_no_plan_creates_is_refused(journal: Journal, contexts: FakeContexts) -> None:
    [refused] = planned(journal, rule=RULE).refused
    assert (refused.code, refused.sentence) == ("context", "eth0 has no RSS context 1; create it first.")


def test_the_agent_checks_a_plan_as_a_whole_before_its_first_write(
    tmp_path: Path, journal: Journal, nic: FakeNic, contexts: FakeContexts
) -> None:
    told: list[ChangeMessage] = []
    runner = ChangeRunner(Executor(tmp_path, journal, lambda: seen(journal)), told.append)
    plain = Action("netdev/eth0/flow-rule/6", "none", "flow-type tcp4 dst-port 81 action 1", "test")
    tried = runner.handle(Apply("c", Plan([plain, Action(SLOT, "none", RULE, "test")]), 60.0, []))
    assert tried == {SLOT}
    assert nic.rules == {}
    assert "eth0 has no RSS context 1; create it first." in told[-1].sentence


def test_a_rule_of_a_context_that_is_gone_is_refused_by_the_kernel(executor: Executor, nic: FakeNic) -> None:
    result = executor.apply(Action(SLOT, "none", RULE, "test"), change_id="c")
    assert (result.outcome, nic.rules) == (Outcome.REFUSED, {})


@pytest.mark.parametrize(
    ("key", "value", "room", "says"),
    [
        ("netdev/eth0/rss-context/8", "0,1", 7, "The driver has fewer RSS contexts; use a lower number."),
        (KEY, "0,1", 1, "The NIC has no room for another RSS context; delete one."),
        (KEY, "0,1,2,3,0,1,2,3,0", 7, "The pattern of 9 queues is longer than the RSS table (8 entries)."),
        (KEY, "0,9", 7, "eth0 has no receive queue 9."),
    ],
)
def test_a_context_that_does_not_fit_is_refused_with_the_reason(  # noqa: PLR0917 - fixtures and a table's row
    executor: Executor, journal: Journal, contexts: FakeContexts, key: str, value: str, room: int, says: str
) -> None:
    contexts.put(2, OTHERS)
    contexts.room = room
    result = executor.apply(Action(key, "none", value, "test"), change_id="c")
    assert (result.outcome, contexts.tables, journal.originals()) == (Outcome.REFUSED, {2: OTHERS}, {})
    assert says in result.sentence


def test_a_table_that_the_driver_alters_is_reported_and_the_context_removed(
    executor: Executor, journal: Journal, contexts: FakeContexts
) -> None:
    contexts.alter = lambda table: [0, *table[1:]]
    result = executor.apply(Action(KEY, "none", "2,3", "test"), change_id="c")
    assert result.outcome is Outcome.FAILED
    assert result.sentence.endswith("the kernel changed it to 0,3,2,3,2,3,2,3. It was removed.")
    assert (contexts.tables, journal.originals(), journal.own) == ({}, {}, {})


@pytest.mark.parametrize("lacks", ["kernel", "driver"])
def test_contexts_are_unsupported_where_kernel_or_driver_lacks_them(
    executor: Executor, journal: Journal, contexts: FakeContexts, lacks: str
) -> None:
    if lacks == "kernel":
        contexts.commands = [38]
    else:
        contexts.has_contexts = False
    assert rss_contexts.read_contexts("eth0") is None
    result = executor.apply(Action(KEY, "none", "0,1", "test"), change_id="c")
    assert (result.outcome, journal.originals()) == (Outcome.UNSUPPORTED, {})
    why = "has no RSS contexts: the kernel (before Linux 6.17) or the driver cannot create them by number."
    assert result.sentence.endswith(why)
    for values in ({"context": "0,1"}, {"rule": RULE}):
        assert planned(journal, **values).refused[0].sentence == f"eth0 {why}"


def test_contexts_and_rules_that_a_driver_reset_lost_are_reasserted_once(
    executor: Executor, journal: Journal, nic: FakeNic, contexts: FakeContexts
) -> None:
    spec = FixedSettings({"netdev/{netdev}/flow-rule/7": RULE, "netdev/{netdev}/rss-context/1": "2,3"})
    policy = PolicyInForce("1", 1, "contexts", 1, Mode.ENFORCE, spec, on_drift=Ownership.REASSERT)
    memory, writes, drifts = EngineMemory(), [], []
    for round_ in range(6):
        if round_ == 3:
            contexts.reset()
        view = replace(seen(journal), time_s=600.0 * round_)
        (evaluation,), memory = evaluate_round(view, [policy], memory)
        writes.append(len(evaluation.actions))
        drifts.append(len(evaluation.drifts))
        for action in evaluation.actions:
            assert executor.apply(action, change_id=f"c{round_}").outcome is Outcome.APPLIED
            memory = record_write(memory, "1", action, view.time_s)
    assert (writes, drifts) == ([2, 0, 0, 2, 0, 0], [0, 0, 0, 2, 0, 0])
    assert (contexts.tables, nic.contexts_of_rules) == ({1: [2, 3] * 4}, {7: 1})
    holdings = dict(reversed(memory.holdings.items()))
    actions, _ = restore_actions(seen(journal), [], replace(memory, holdings=holdings))
    assert [action.key for _, action in actions] == [SLOT, KEY], "the rule first, in whatever order they were written"


def test_the_error_of_a_device_that_is_gone_is_no_empty_list(
    contexts: FakeContexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="No such device") as raised:
        rss_contexts.read_contexts("eth9")
    assert raised.value.errno == errno.ENODEV


NUMBER = st.integers(1, 4)
PATTERNS = st.lists(st.integers(0, 3), min_size=1, max_size=8).map(lambda queues: ",".join(map(str, queues)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("apply"), NUMBER, PATTERNS | st.just("none")),
        st.tuples(st.just("undo"), NUMBER, st.just("none")),
        st.tuples(st.just("rule"), NUMBER, st.sampled_from(["add", "none"])),
        st.tuples(st.just("others"), NUMBER, st.just("")),
        st.tuples(st.just("reset"), NUMBER, st.just("")),
    ),
    max_size=12,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_no_context_of_another_program_changes_and_restore_leaves_only_those(
    tmp_path_factory: pytest.TempPathFactory, root: Path, steps: list[tuple[str, int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("nic")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        nic = FakeNic(folder / "nic", 6)
        contexts = FakeContexts(folder / "contexts", nic)
        contexts.room = 3
        fake_nic.install(patch, nic)
        fake_contexts.install(patch, contexts)
        journal = Journal(folder / "agent/journal.jsonl", root)
        executor = Executor(root, journal, lambda: seen(journal))
        others: dict[int, list[int]] = {}
        for what, number, value in steps:
            setting = RssContextTable("eth0", number)
            match what:
                case "apply":
                    was = setting.current(seen(journal)) or "none"
                    executor.apply(Action(setting.key, was, value, "test"), change_id="c")
                case "undo":
                    executor.undo(Action(setting.key, "", value, "test"))
                case "rule":
                    rule = f"flow-type tcp4 dst-port {number} context {number}" if value == "add" else "none"
                    slot = f"netdev/eth0/flow-rule/{number}"
                    was = f"flow-type tcp4 dst-port {number} context {number}" if number in nic.rules else "none"
                    executor.apply(Action(slot, was, rule, "test"), change_id="c")
                case "others" if number not in contexts.tables and len(contexts.tables) < contexts.room:
                    # a table that no pattern of at most 8 queues of 0 to 3 is: an equal one cannot be told apart
                    others[number] = [4] * 8
                    contexts.put(number, others[number])
                case "reset":
                    contexts.reset()
                    others = {}
            assert {number: contexts.tables.get(number) for number in others} == others
            assert len(contexts.tables) <= contexts.room
            assert set(nic.contexts_of_rules.values()) <= contexts.tables.keys() - others.keys()
        restore(journal.path, root)
        assert (contexts.tables, nic.rules) == (others, {})
        journal.close()
