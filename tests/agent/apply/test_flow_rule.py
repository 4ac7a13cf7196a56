"""netdev/NAME/flow-rule/LOCATION against a NIC that answers the ioctl byte for byte: no emulated NIC has flow rules."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.flow_rules import RULES
from tests.support.fake_nic import FakeNic, install
from tests.support.views import make_netdev, make_view

from coresteer_agent.apply import flow_rule, netdev_params
from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.restore import restore
from coresteer_agent.capture import capture
from coresteer_agent.linux import features, flow_rules
from coresteer_agent.observe import netdev_settings
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.netdev_settings import EthtoolSettings, _read_flow_rules, read_ethtool_settings
from coresteer_core.changes.plan import Action, DesiredValue, preview
from coresteer_core.changes.report import Outcome
from coresteer_core.node.inventory import FlowRule, FlowRuleTable, Irq, Queue
from coresteer_core.node.view import View
from coresteer_core.policies.base import Mode, Ownership
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, Holding, PolicyInForce, record_write
from coresteer_core.policies.fixed_settings.policy import FixedSettings
from coresteer_core.policies.ownership import prune_memory
from coresteer_core.settings import FlowRuleSlot
from coresteer_core.settings.flow_rule_text import parse_rule

KEY = "netdev/eth0/flow-rule/7"
RULE = "flow-type tcp4 src-ip 10.0.0.2 dst-ip 10.0.0.1 src-port 4242 dst-port 80 action 3"
OTHERS = "flow-type udp4 dst-port 53 action 1"


@pytest.fixture
def nic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNic:
    nic = FakeNic(tmp_path / "nic", 16)
    install(monkeypatch, nic)
    return nic


def seen(journal: Journal) -> View:
    """The node as the agent's inventory shows it."""
    table = _read_flow_rules("eth0")
    assert table is not None
    reader = InventoryReader(Path("/nowhere"))
    reader.own = journal.own
    queues = [Queue(f"rx-{number}") for number in range(4)]
    return make_view(8, netdevs=[make_netdev(queues=queues, flow_rules=reader._with_owners("eth0", table))])


@pytest.fixture
def executor(root: Path, journal: Journal, nic: FakeNic) -> Executor:
    return Executor(root, journal, lambda: seen(journal))


def insert(executor: Executor, key: str = KEY, was: str = "none", value: str = RULE) -> Outcome:
    return executor.apply(Action(key, was, value, "test"), change_id="c").outcome


def spec(value: str, location: int) -> bytes:
    return flow_rules.format_spec(parse_rule(value), location)


@pytest.mark.parametrize(("size", "flags"), [(8, 0), (64, 1 << 31), (1024, 0)])  # RX_CLS_LOC_SPECIAL
def test_a_rule_is_inserted_read_back_and_removed_in_tables_of_any_size(  # noqa: PLR0917 - fixtures and a table's row
    root: Path, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, flags: int
) -> None:
    nic = FakeNic(tmp_path / "nic", size)
    nic.flags = flags
    install(monkeypatch, nic)
    nic.put(0, spec(OTHERS, 0))
    before = nic.rules
    executor = Executor(root, journal, lambda: seen(journal))
    plan = preview(seen(journal), [DesiredValue(KEY, RULE)], reason="test")
    assert plan.commands == [f"ethtool -N eth0 {RULE} loc 7"]
    result = executor.apply(plan.plan.actions[0], change_id="c")
    assert result.sentence == f"flow rule 7 of eth0 was changed from none to {RULE[:80]}…."
    assert nic.rules == before | {7: spec(RULE, 7)}
    table = seen(journal).inventory.netdevs[0].flow_rules
    assert table == FlowRuleTable(size, [FlowRule(0, OTHERS), FlowRule(7, RULE, ours=True)])
    assert preview(seen(journal), [DesiredValue(KEY, "none")], reason="test").commands == ["ethtool -N eth0 delete 7"]
    [restored] = restore(journal.path, root) or []
    assert (restored.sentence, nic.rules) == ("flow rule 7 of eth0 was restored to none.", before)
    beyond = executor.apply(Action(f"netdev/eth0/flow-rule/{size}", "none", RULE, "test"), change_id="c")
    assert beyond.outcome is Outcome.UNSUPPORTED
    assert "the driver has no flow rules, or a smaller table" in beyond.sentence


def test_another_programs_rule_is_shown_and_never_changed(executor: Executor, journal: Journal, nic: FakeNic) -> None:
    nic.put(7, spec(OTHERS, 7))
    before = nic.rules
    [refused] = preview(seen(journal), [DesiredValue(KEY, RULE)], reason="test").refused
    assert refused.sentence == (
        f"flow rule 7 of eth0 ({OTHERS}) was added by another program, so Coresteer never changes it; use another slot."
    )
    for value in (RULE, "none"):
        assert insert(executor, was=OTHERS, value=value) is Outcome.REFUSED
        assert insert(executor, was="none", value=value) is Outcome.REFUSED
        assert executor.undo(Action(KEY, OTHERS, value, "test")).outcome is Outcome.UNSUPPORTED
    assert (nic.rules, journal.originals()) == (before, {})


@pytest.mark.parametrize("step", ["previewed", "journaled"])
def test_another_programs_rule_that_appears_before_the_write_stays(
    root: Path, journal: Journal, nic: FakeNic, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = seen(journal)
    executor = Executor(root, journal, lambda: before)
    if step == "previewed":
        nic.put(7, spec(OTHERS, 7))
    else:
        real = journal.record_original

        def faster(change_id: str, key: str, found: str, owners: list[str]) -> None:
            real(change_id, key, found, owners)
            nic.put(7, spec(OTHERS, 7))

        monkeypatch.setattr(journal, "record_original", faster)
    result = executor.apply(Action(KEY, "none", RULE, "test"), change_id="c")
    assert result.outcome is Outcome.REFUSED
    assert "was added by another program" in result.sentence
    assert nic.rules == {7: spec(OTHERS, 7)}
    restore(journal.path, root)
    assert nic.rules == {7: spec(OTHERS, 7)}
    assert not restore(journal.path, root)


def test_another_programs_rule_in_the_place_of_a_lost_one_survives_undo(
    executor: Executor, root: Path, journal: Journal, nic: FakeNic
) -> None:
    assert insert(executor) is Outcome.APPLIED
    nic.reset()
    nic.put(7, spec(OTHERS, 7))
    [result] = restore(journal.path, root) or []
    assert result.outcome is Outcome.UNSUPPORTED
    assert nic.rules == {7: spec(OTHERS, 7)}
    assert not restore(journal.path, root)


def altered(value: bytes) -> bytes:
    """A driver that drops the sender's port and its mask."""
    changed = bytearray(value)
    changed[12:14] = changed[84:86] = bytes(2)
    return bytes(changed)


def with_part_of_a_port(value: bytes) -> bytes:
    """A driver that compares 8 bits of the sender's port, which Coresteer cannot express."""
    return value[:84] + b"\xff\0" + value[86:]


def test_a_rule_that_the_driver_alters_is_reported_and_removed(
    executor: Executor, root: Path, journal: Journal, nic: FakeNic
) -> None:
    nic.alter = altered
    result = executor.apply(Action(KEY, "none", RULE, "test"), change_id="c")
    assert result.outcome is Outcome.FAILED
    assert (
        "the kernel changed it to flow-type tcp4 src-ip 10.0.0.2 dst-ip 10.0.0.1 dst-port 80 action 3. It was removed."
        in result.sentence
    )
    assert (nic.rules, journal.originals(), journal.own) == ({}, {}, {})


def test_a_rule_that_the_driver_makes_inexpressible_gives_no_claim_to_another_programs(
    executor: Executor, root: Path, journal: Journal, nic: FakeNic
) -> None:
    first = RULE.replace("action 3", "action 2")
    assert insert(executor, value=first) is Outcome.APPLIED
    nic.alter = with_part_of_a_port
    result = executor.apply(Action(KEY, first, RULE, "test"), change_id="c")
    assert (result.outcome, result.read_back, nic.rules) == (Outcome.FAILED, "none", {})
    assert "It was removed." in result.sentence
    foreign = with_part_of_a_port(spec(OTHERS, 7))
    nic.put(7, foreign)
    assert insert(executor, was="other", value="none") is Outcome.REFUSED
    restore(journal.path, root)
    assert nic.rules == {7: foreign}


def test_an_altered_rule_that_cannot_be_removed_is_left_with_the_command(
    executor: Executor, nic: FakeNic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    nic.alter = altered
    monkeypatch.setattr(flow_rules, "delete_rule", refuse)
    result = executor.apply(Action(KEY, "none", RULE, "test"), change_id="c")
    assert result.sentence.endswith("Remove it: ethtool -N eth0 delete 7.")


@pytest.mark.parametrize("how", ["deleted", "not inserted", "replaced"])
def test_a_rule_that_coresteer_gave_up_is_another_programs_if_it_returns(
    executor: Executor, root: Path, journal: Journal, nic: FakeNic, how: str
) -> None:
    other = RULE.replace("action 3", "action 2")
    assert insert(executor) is Outcome.APPLIED
    match how:
        case "deleted":
            assert insert(executor, was=RULE, value="none") is Outcome.APPLIED
        case "not inserted":
            assert insert(executor, was=RULE, value="none") is Outcome.APPLIED
            nic.refuse = errno.ENOSPC
            assert insert(executor) is Outcome.REFUSED
        case _:
            assert insert(executor, was=RULE, value=other) is Outcome.APPLIED
    nic.put(7, spec(RULE, 7))
    assert insert(executor, was=RULE, value="none") is Outcome.REFUSED
    restore(journal.path, root)
    assert nic.rules == {7: spec(RULE, 7)}


def test_a_rule_is_replaced_and_returns_with_the_undo(executor: Executor, journal: Journal, nic: FakeNic) -> None:
    other = RULE.replace("action 3", "action 2")
    assert insert(executor) is Outcome.APPLIED
    assert insert(executor, was=RULE, value=other) is Outcome.APPLIED
    assert nic.rules == {7: spec(other, 7)}
    assert executor.undo(Action(KEY, other, RULE, "test")).outcome is Outcome.APPLIED
    assert nic.rules == {7: spec(RULE, 7)}
    assert executor.undo(Action(KEY, RULE, "none", "test")).outcome is Outcome.APPLIED
    assert (nic.rules, journal.originals(), journal.own) == ({}, {}, {})


def test_a_journal_that_was_rewritten_still_knows_whose_the_rules_are(
    executor: Executor, root: Path, journal: Journal, nic: FakeNic
) -> None:
    assert insert(executor) is Outcome.APPLIED
    journal._rewrite()
    again = Journal(journal.path, root)
    assert again.own_values(KEY) == [RULE]
    assert Executor(root, again, lambda: seen(again)).undo(Action(KEY, RULE, "none", "")).outcome is Outcome.APPLIED
    again.close()
    assert nic.rules == {}


@pytest.mark.parametrize(
    ("code", "outcome", "says"),
    [
        (errno.ENOSPC, "refused", "table of flow rules is full; delete a rule"),
        (errno.EOPNOTSUPP, "refused", "check that ntuple is on"),
        (524, "refused", "check that ntuple is on"),
        (errno.EINVAL, "refused", "try the fields of the NIC's other rules"),
        (errno.EEXIST, "refused", "in another slot; change or delete that one"),
        (errno.EBUSY, "failed", "try again in a few seconds"),
        (errno.EPERM, "refused", "has to run as root"),
        (errno.ENOMEM, "failed", "delete a rule"),
        (errno.EIO, "failed", "The kernel's answer was: Input/output error."),
    ],
)
def test_each_error_of_the_driver_is_explained_and_leaves_nothing(  # noqa: PLR0917 - fixtures and a table's row
    executor: Executor, journal: Journal, nic: FakeNic, code: int, outcome: str, says: str
) -> None:
    nic.refuse = code
    result = executor.apply(Action(KEY, "none", RULE, "test"), change_id="c")
    assert (result.outcome, nic.rules) == (outcome, {})
    assert says in result.sentence
    assert journal.originals() == {}


def test_a_full_table_refuses_the_next_rule(
    root: Path, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nic = FakeNic(tmp_path / "nic", 16, room=2)
    install(monkeypatch, nic)
    nic.put(15, spec(OTHERS, 15))
    executor = Executor(root, journal, lambda: seen(journal))
    keys = [f"netdev/eth0/flow-rule/{location}" for location in range(2)]
    results = [executor.apply(Action(key, "none", RULE, "test"), change_id="c") for key in keys]
    assert [result.outcome for result in results] == [Outcome.APPLIED, Outcome.REFUSED]
    assert "is full" in results[1].sentence
    assert nic.rules.keys() == {0, 15}


def test_rules_that_a_driver_reset_lost_are_reasserted_once(executor: Executor, journal: Journal, nic: FakeNic) -> None:
    spec_ = FixedSettings({"netdev/{netdev}/flow-rule/7": RULE})
    policy = PolicyInForce("1", 1, "rules", 1, Mode.ENFORCE, spec_, on_drift=Ownership.REASSERT)
    memory, writes, drifts = EngineMemory(), [], []
    for round_ in range(8):
        if round_ == 3:
            nic.reset()
        view = replace(seen(journal), time_s=600.0 * round_)
        (evaluation,), memory = evaluate_round(view, [policy], memory)
        writes.append(len(evaluation.actions))
        drifts.append(len(evaluation.drifts))
        for action in evaluation.actions:
            assert executor.apply(action, change_id=f"c{round_}").outcome is Outcome.APPLIED
            memory = record_write(memory, "1", action, view.time_s)
    assert writes == [1, 0, 0, 1, 0, 0, 0, 0]
    assert drifts == [0, 0, 0, 1, 0, 0, 0, 0]
    assert nic.rules == {7: spec(RULE, 7)}


def test_ntuple_is_not_switched_off_while_rules_would_be_lost(
    executor: Executor, journal: Journal, nic: FakeNic, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched: list[bool] = []
    monkeypatch.setattr(netdev_params, "is_running_kernel", lambda _: True)
    monkeypatch.setattr(features, "read_ntuple", lambda _: "on")
    monkeypatch.setattr(features, "set_ntuple", lambda _, on: switched.append(on))
    nic.put(3, spec(OTHERS, 3))
    off = Action("netdev/eth0/ntuple", "on", "off", "test")
    for result in (executor.apply(off, change_id="c"), executor.undo(off)):
        assert not result.done
        assert "delete them first" in result.sentence
    nic.put(3, None)
    executor.undo(off)
    assert switched == [False]


def test_a_capture_has_no_rules_as_they_name_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"eth0": EthtoolSettings(rss="0,1", flow_rules=FlowRuleTable(16, [FlowRule(7, RULE)]))}
    monkeypatch.setattr(netdev_settings, "read_ethtool_settings", lambda *_: settings)
    for folder in ("root", "captured"):
        (tmp_path / folder).mkdir()
    capture(tmp_path / "root", tmp_path / "captured")
    assert read_ethtool_settings(tmp_path / "captured", []) == {"eth0": EthtoolSettings(rss="0,1")}


SLOT = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("apply"), SLOT, RULES | st.just("none")),
        st.tuples(st.just("undo"), SLOT, st.just("none")),
        st.tuples(st.just("others"), SLOT, RULES),
        st.tuples(st.just("reset"), SLOT, st.just("")),
    ),
    max_size=12,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_no_rule_of_another_program_changes_and_restore_leaves_only_those(
    tmp_path_factory: pytest.TempPathFactory, root: Path, steps: list[tuple[str, int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("nic")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        nic = FakeNic(folder / "nic", 6, room=4)
        install(patch, nic)
        journal = Journal(folder / "agent/journal.jsonl", root)
        executor = Executor(root, journal, lambda: seen(journal))
        others: dict[int, bytes] = {}
        for what, slot, value in steps:
            key = FlowRuleSlot("eth0", slot).key
            match what:
                case "apply":
                    was = FlowRuleSlot("eth0", slot).current(seen(journal)) or "none"
                    executor.apply(Action(key, was, value, "test"), change_id="c")
                case "undo":
                    executor.undo(Action(key, "", value, "test"))
                case "others" if slot not in nic.rules and len(nic.rules) < nic.room:
                    # a rule that differs from what Coresteer wrote there: an equal one cannot be told apart
                    others[slot] = spec(f"flow-type udp6 dst-port {50000 + slot} action 0", slot)
                    nic.put(slot, others[slot])
                case "reset":
                    nic.reset()
                    others = {}
            assert {slot: nic.rules.get(slot) for slot in others} == others
            assert len(nic.rules) <= nic.room
        restore(journal.path, root)
        assert nic.rules == others
        journal.close()


def test_reading_asks_for_no_more_rules_than_an_inventory_has(nic: FakeNic, monkeypatch: pytest.MonkeyPatch) -> None:
    for slot in range(4):
        nic.put(slot, spec(OTHERS, slot))
    monkeypatch.setattr(flow_rules, "MAX_FLOW_RULES", 3)
    table = flow_rules.read_table("eth0")
    assert table is not None
    assert (len(table.rules), table.complete) == (3, False)


@pytest.mark.parametrize("code", [errno.EBUSY, errno.ENODEV, errno.EMSGSIZE])
def test_a_table_that_cannot_be_read_is_the_last_one_incomplete(
    nic: FakeNic, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(code, "No")

    nic.put(3, spec(OTHERS, 3))
    table = _read_flow_rules("eth0")
    assert table == FlowRuleTable(16, [FlowRule(3, OTHERS)])
    monkeypatch.setattr(flow_rules, "ioctl", refuse)
    assert _read_flow_rules("eth0", table) == replace(table, complete=False)
    assert _read_flow_rules("eth0") is None


@pytest.mark.parametrize("table", [None, FlowRuleTable(16, complete=False)])
def test_the_engine_keeps_a_rule_while_the_table_cannot_be_read(table: FlowRuleTable | None) -> None:
    view = make_view(8, netdevs=[make_netdev(flow_rules=table)], irqs=[Irq(40, "eth0", "PCI-MSI", "0", "0", 0, True)])
    memory = EngineMemory(holdings={KEY: Holding("1", RULE, "none", 0.0)})
    assert prune_memory(view, [], memory).holdings.keys() == {KEY}


def test_a_rule_of_a_nic_that_was_renamed_is_removed(
    executor: Executor, root: Path, journal: Journal, nic: FakeNic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_rules, "ioctl", lambda _, command: nic.ioctl("eth0", command))
    (root / "sys/class/net/eth0").mkdir(parents=True, exist_ok=True)
    (root / "sys/class/net/eth0/ifindex").write_text("2\n")
    assert insert(executor) is Outcome.APPLIED
    (root / "sys/class/net/eth0").rename(root / "sys/class/net/wan0")
    [result] = restore(journal.path, root) or []
    assert (result.sentence, nic.rules) == ("flow rule 7 of wan0 was restored to none.", {})


@pytest.mark.parametrize("present", [False, True])
def test_the_undo_on_a_removed_nic_ends_and_on_one_that_restarts_is_repeated(
    executor: Executor, root: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch, present: bool
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(errno.ENODEV, "No such device")

    assert insert(executor) is Outcome.APPLIED
    monkeypatch.undo()
    monkeypatch.setattr(flow_rule, "is_running_kernel", lambda _: True)
    for module in (features, flow_rules):
        monkeypatch.setattr(module, "ioctl", refuse)
    if present:
        (root / "sys/class/net/eth0").mkdir(parents=True, exist_ok=True)
        (root / "sys/class/net/eth0/ifindex").write_text("2\n")
    [result] = restore(journal.path, root) or []
    assert result.outcome is (Outcome.FAILED if present else Outcome.UNSUPPORTED)
    assert bool(restore(journal.path, root)) is present


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, 524])
def test_a_device_without_flow_rules_has_no_table(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(code, "No")

    monkeypatch.setattr(flow_rules, "ioctl", refuse)
    monkeypatch.setattr(features, "read_ntuple", lambda _: "off")
    assert flow_rules.read_table("eth0") is None


def test_a_driver_that_has_ntuple_fixed_has_no_table_whatever_it_states(
    executor: Executor, nic: FakeNic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "read_ntuple", lambda _: None)
    assert flow_rules.read_table("eth0") is None
    assert executor.undo(Action(KEY, "", "none", "test")).outcome is Outcome.UNSUPPORTED


def test_the_loopback_device_has_no_flow_rules() -> None:
    assert flow_rules.read_table("lo") is None


def changed(at: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda spec: spec[:at] + value + spec[at + len(value) :]


@pytest.mark.parametrize(
    "alter",
    [
        changed(0, b"\x0a"),  # IP, not TCP
        changed(3, b"\x20"),  # FLOW_RSS: of an RSS context
        changed(76 + 4, b"\xff\xff\xff\x00"),  # a network instead of one address
        changed(76 + 12, b"\x01"),  # a traffic class is compared
        changed(152, b"\xff" * 8),  # RX_CLS_FLOW_DISC: packets are dropped
        changed(156, b"\x01"),  # the queue of a virtual function
        lambda spec: changed(128 + 10, b"\x0f\xff")(changed(3, b"\x80")(spec)),  # FLOW_EXT: a VLAN is compared
    ],
)
def test_a_rule_that_cannot_be_expressed_is_shown_as_one_of_others(
    executor: Executor, journal: Journal, nic: FakeNic, alter: Callable[[bytes], bytes]
) -> None:
    nic.put(7, alter(spec(RULE, 7)))
    before = nic.rules
    assert seen(journal).inventory.netdevs[0].flow_rules == FlowRuleTable(16, [FlowRule(7, "")])
    assert insert(executor, was="other", value="none") is Outcome.REFUSED
    assert executor.undo(Action(KEY, "", "none", "test")).outcome is Outcome.UNSUPPORTED
    assert nic.rules == before


def test_an_extension_that_compares_nothing_is_ignored() -> None:
    assert flow_rules.parse_spec(changed(3, b"\xc0")(spec(RULE, 7))) == parse_rule(RULE)
