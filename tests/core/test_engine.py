from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.policy_machines import CAPTURED, Machine, captured, machines
from tests.core.test_irq_spread import FLAT, machine
from tests.support.views import make_netdev, make_topology

from coresteer_core.changes.plan import Action, Plan, inverse
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import Inventory, Irq, Queue
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies import Spec, engine
from coresteer_core.policies.base import Damping, Decision, Deferred, Evaluation, Mode, Ownership, Proposal, Scope
from coresteer_core.policies.engine import evaluate_round, same_outcome
from coresteer_core.policies.engine_state import EngineMemory, Holding, PolicyInForce, forget_holding, record_write
from coresteer_core.policies.irq_spread.policy import IrqSpread, IrqSpreadMemory
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.policies.ownership import restore_actions

Wants = dict[str, Decision]
IRQ, OTHER, LOCKED, TASK = "irq/41/affinity", "irq/42/affinity", "irq/43/affinity", "task/812/affinity"


@pytest.fixture
def wants(monkeypatch: pytest.MonkeyPatch) -> Wants:
    """What policies want, by the word in their spec's exclude list; the engine asks these and not the real ones."""
    by_word: Wants = {}

    def decide(view: View, spec: Spec, scope: Scope, memory: object) -> Decision:
        assert isinstance(spec, IrqSpread)
        return by_word.get(spec.exclude, Decision("Nothing.", IrqSpreadMemory()))

    monkeypatch.setattr(engine, "decide", decide)
    return by_word


def wanting(*pairs: tuple[str, str], returning: tuple[str, ...] = ()) -> Decision:
    proposals = [Proposal(key, value, key, f"It wants {value}.") for key, value in pairs]
    return Decision("It wants.", IrqSpreadMemory(), proposals, restores=frozenset(returning))


def policy(name: str, rank: int = 100, mode: Mode = Mode.ENFORCE, **more: object) -> PolicyInForce:
    fields = {"spec": IrqSpread(exclude=name), **more}
    return PolicyInForce(name, 1, name, rank, mode, **fields)  # type: ignore[arg-type]  # the tests' own shorthand


def view(time_s: float = 1000.0, controllers: tuple[str, ...] = (), started_ticks: int = 5, **at: str) -> View:
    """Eight CPUs, 6 isolated and 7 offline; at: other values than CPU 0 for irq41, irq42 and task."""
    topology = make_topology(
        packages=1, nodes_per_package=1, cores_per_node=4, threads=2, offline=[7], isolated=[6], nohz_full=[6]
    )
    irqs = [
        Irq(41, "eth0-rx-0", "PCI", at.get("irq41", "0"), None, 0, True),
        Irq(42, "eth0-rx-1", "PCI", at.get("irq42", "0"), None, 0, True),
        Irq(43, "nvme0q1", "PCI", "0", None, 0, False, "A managed interrupt."),
    ]
    task = NetTask(812, started_ticks, "nginx", None, 1, at.get("task", "0-5"), "0-6", 0, 0.1, 0.0, [])
    return View(topology, Inventory([], irqs, list(controllers)), tasks=[task], time_s=time_s)


def held(value: str = "2", since_s: float = 0.0, by: str = "a", original: str = "0", reasserted: int = 0) -> Holding:
    return Holding(by, original, value, since_s, reasserted)


def moves(evaluation: Evaluation) -> list[tuple[str, str, str]]:
    return [(action.key, action.was, action.becomes) for action in evaluation.actions]


def codes(evaluation: Evaluation) -> list[tuple[str, str]]:
    return [(each.proposal.key, each.code) for each in evaluation.deferred]


# Precedence


@pytest.mark.parametrize(
    ("first", "second", "ranks"),
    [
        (("b", 1), ("a", 2), "its rank is lower (1, not 2)"),
        (("a", 5), ("b", 5), "both have rank 5, and it is older"),
        (("9", 5), ("10", 5), "both have rank 5, and it is older"),
    ],
)
def test_for_one_setting_the_lower_rank_and_then_the_lower_id_wins(
    wants: Wants, first: tuple[str, int], second: tuple[str, int], ranks: str
) -> None:
    wants.update({first[0]: wanting((IRQ, "2")), second[0]: wanting((IRQ, "3"), (OTHER, "3"))})
    (winner, loser), _ = evaluate_round(view(), [policy(*second), policy(*first)], EngineMemory())
    assert (winner.policy_id, moves(winner)) == (first[0], [(IRQ, "0", "2")])
    assert moves(loser) == [(OTHER, "0", "3")]
    (back,) = loser.deferred
    assert (back.code, back.why) == (
        "overruled",
        f"“{first[0]}” takes precedence over “{second[0]}”: {ranks}.",
    )


@pytest.mark.parametrize(
    ("first", "second", "overruled"),
    [
        (Mode.ENFORCE, Mode.ENFORCE, True),
        (Mode.ENFORCE, Mode.RECOMMEND, True),
        (Mode.RECOMMEND, Mode.ENFORCE, False),
        (Mode.OBSERVE, Mode.RECOMMEND, False),
        (Mode.RECOMMEND, Mode.RECOMMEND, True),
    ],
)
def test_a_policy_does_not_overrule_one_with_a_stronger_mode(
    wants: Wants, first: Mode, second: Mode, overruled: bool
) -> None:
    wants.update({"a": wanting((IRQ, "2")), "b": wanting((IRQ, "3"))})
    (one, two), _ = evaluate_round(view(), [policy("a", 1, first), policy("b", 2, second)], EngineMemory())
    assert moves(one) == [(IRQ, "0", "2")]
    assert bool(codes(two)) is overruled


def test_a_held_setting_is_lost_only_to_a_policy_of_lower_rank(wants: Wants) -> None:
    wants.update({"early": wanting((IRQ, "3")), "late": wanting((IRQ, "4"))})
    memory = EngineMemory({IRQ: held("2", by="holder")})
    policies = [policy("early", 1), policy("holder", 2), policy("late", 3)]
    (_, late), _ = evaluate_round(view(irq41="2"), policies[1:], memory)
    assert codes(late) == [(IRQ, "overruled")]
    (early, _, late), after = evaluate_round(view(irq41="2"), policies, memory)
    assert (moves(early), codes(late)) == ([(IRQ, "2", "3")], [(IRQ, "overruled")])
    assert record_write(after, "early", early.actions[0], 1000.0).holdings == {IRQ: held("3", 1000.0, by="early")}


def test_a_policy_that_may_not_write_a_setting_does_not_block_others(wants: Wants) -> None:
    wants.update({"a": wanting((IRQ, "7"), (OTHER, "2")), "b": wanting((IRQ, "3"), (OTHER, "3"))})
    policies = [policy("a", 1, on_controller=Ownership.YIELD), policy("b", 2)]
    (one, two), _ = evaluate_round(view(controllers=("irqbalance",)), policies, EngineMemory())
    assert codes(one) == [(IRQ, "refused"), (OTHER, "owned")]
    assert moves(two) == [(IRQ, "0", "3"), (OTHER, "0", "3")]


def test_a_policy_sees_the_actions_of_earlier_policies(wants: Wants, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def decide(view: View, spec: Spec, scope: Scope, memory: object) -> Decision:
        irq = view.inventory.irq(41)
        seen.append(None if irq is None else irq.requested)
        return wanting((IRQ, "2"))

    monkeypatch.setattr(engine, "decide", decide)
    evaluate_round(view(), [policy("a", 1, Mode.RECOMMEND), policy("b", 2), policy("c", 3)], EngineMemory())
    assert seen == ["0", "0", "2"]


# Damping


def test_a_setting_is_not_moved_within_the_dwell_time(wants: Wants) -> None:
    wants["a"] = wanting((IRQ, "3"))
    memory = EngineMemory({IRQ: held("2", since_s=980.0)})
    (young,), _ = evaluate_round(view(1000.0, irq41="2"), [policy("a")], memory)
    assert [(h.code, h.why) for h in young.deferred] == [("dwell", "It was set 20 s ago; the dwell time is 30 s.")]
    (old,), _ = evaluate_round(view(1010.0, irq41="2"), [policy("a")], memory)
    assert moves(old) == [(IRQ, "2", "3")]


def test_flap_damping_refuses_a_recent_value_within_the_window_and_forgets_it_after_two(wants: Wants) -> None:
    wants["a"] = wanting((IRQ, "2"))
    memory = record_write(EngineMemory({IRQ: held("2")}), "a", Action(IRQ, "2", "3", ""), 1000.0)
    (soon,), kept = evaluate_round(view(1179.0, irq41="3"), [policy("a")], memory)
    assert [(h.code, h.why) for h in soon.deferred] == [
        ("flap_damping", "It had the value 2 until 179 s ago; flap damping refuses that value for 180 s.")
    ]
    assert kept.recent_values == {IRQ: [("2", 1000.0)]}
    (later,), _ = evaluate_round(view(1180.0, irq41="3"), [policy("a")], memory)
    assert moves(later) == [(IRQ, "3", "2")]
    assert evaluate_round(view(1360.0, irq41="3"), [policy("a")], memory)[1].recent_values == {}


def test_each_flap_doubles_the_damping_window_until_the_setting_is_stable(wants: Wants) -> None:
    memory, at = EngineMemory({IRQ: held("2", original="5")}), "2"
    moved = []
    for time_s in range(0, 40_000, 5):
        wants["a"] = wanting((IRQ, "3" if at == "2" else "2"))
        (evaluation,), memory = evaluate_round(view(float(time_s), irq41=at), [policy("a")], memory)
        for action in evaluation.actions:
            memory, at = record_write(memory, "a", action, float(time_s)), action.becomes
            moved.append(time_s)
    waits = [b - a for a, b in pairwise(moved)]
    assert waits == [180, 360, 720, 1440, 2880, *[5760] * 5]
    wants["a"] = wanting()
    _, memory = evaluate_round(view(40_000.0 + 2 * 5760, irq41=at), [policy("a")], memory)
    assert (memory.recent_values, memory.flaps) == ({}, {})


def test_a_value_rolled_back_by_a_guardrail_is_refused_within_the_window(wants: Wants) -> None:
    wants["a"] = wanting((IRQ, "2"))
    (tried,), memory = evaluate_round(view(), [policy("a")], EngineMemory())
    memory = record_write(memory, "a", tried.actions[0], 1000.0)
    (back,) = inverse(Plan(tried.actions)).actions
    memory = record_write(memory, "a", back, 1004.0)
    assert memory.holdings == {}
    (again,), _ = evaluate_round(view(1005.0), [policy("a")], memory)
    assert codes(again) == [(IRQ, "flap_damping")]


def test_a_restored_setting_ignores_dwell_time_and_flap_damping_and_gets_its_literal_original(wants: Wants) -> None:
    wants["a"] = wanting((IRQ, "0"), returning=(IRQ,))
    memory = EngineMemory({IRQ: held("2", 999.0, original="0,6-7")}, recent_values={IRQ: [("0,6-7", 999.0)]})
    (evaluation,), _ = evaluate_round(view(irq41="2"), [policy("a")], memory)
    assert moves(evaluation) == [(IRQ, "2", "0,6-7")]


def test_a_harmful_step_is_reverted_to_an_original_on_isolated_cpus(wants: Wants) -> None:
    wants["a"] = replace(wanting((TASK, "0-6")), reverts=frozenset({TASK}))
    memory = EngineMemory({TASK: held("2", original="0-6;813=6")})
    (evaluation,), _ = evaluate_round(view(task="2"), [policy("a")], memory)
    assert moves(evaluation) == [(TASK, "2", "0-6;813=6")]


def test_a_harmful_step_is_reverted_at_once_and_refused_within_the_window(wants: Wants) -> None:
    wants["a"] = replace(wanting((IRQ, "3")), reverts=frozenset({IRQ}))
    memory = EngineMemory({IRQ: held("2", 999.0)}, recent_values={IRQ: [("3", 999.0)]})
    (evaluation,), _ = evaluate_round(view(irq41="2"), [policy("a")], memory)
    assert moves(evaluation) == [(IRQ, "2", "3")]
    memory = record_write(memory, "a", evaluation.actions[0], 1000.0)
    wants["a"] = wanting((IRQ, "2"))
    (again,), _ = evaluate_round(view(1100.0, irq41="3"), [policy("a")], memory)
    assert codes(again) == [(IRQ, "flap_damping")]


def test_a_process_absent_from_the_view_is_restored_too(wants: Wants) -> None:
    wants["a"] = wanting((TASK, "0-5"), returning=(TASK,))
    silent = replace(view(), tasks=[])
    (evaluation,), memory = evaluate_round(silent, [policy("a")], EngineMemory({TASK: held("2", original="0-5")}))
    assert moves(evaluation) == [(TASK, "2", "0-5")]
    assert forget_holding(memory, TASK).holdings == {}


@pytest.mark.parametrize(("mode", "written"), [(Mode.ENFORCE, 1), (Mode.RECOMMEND, 3)])
def test_moves_per_step_limits_only_enforced_moves(wants: Wants, mode: Mode, written: int) -> None:
    wants["a"] = wanting((OTHER, "3"), (IRQ, "2"), (TASK, "2"))
    (evaluation,), _ = evaluate_round(
        view(), [policy("a", mode=mode, damping=Damping(moves_per_step=1))], EngineMemory()
    )
    assert [action.key for action in evaluation.actions] == [OTHER, IRQ, TASK][:written]
    assert {h.code for h in evaluation.deferred} <= {"moves"}
    assert len(evaluation.actions) + len(evaluation.deferred) == 3


def test_a_device_and_its_queues_are_one_of_the_changes_per_step(wants: Wants) -> None:
    queues = [Queue(f"rx-{n}", rps="") for n in range(64)]
    node = replace(view(), inventory=Inventory([make_netdev(queues=queues), make_netdev("eth1", queues=queues)], []))
    first = [(f"netdev/eth0/rx-{n}/rps", "2") for n in range(50)]
    wants["a"] = wanting(*first, ("netdev/eth1/rx-0/rps", "2"))
    (evaluation,), _ = evaluate_round(node, [policy("a", damping=Damping(moves_per_step=1))], EngineMemory())
    assert [action.key for action in evaluation.actions] == [key for key, _ in first]
    assert codes(evaluation) == [("netdev/eth1/rx-0/rps", "moves")]


# Guard


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (IRQ, "7", "CPU 7 is not online"),
        (IRQ, "6", "CPU 6 is reserved"),
        (IRQ, "x", "“x” is not a CPU"),
        (LOCKED, "2", "IRQ 43 cannot be moved. A managed interrupt."),
        ("irq/99/affinity", "2", "This node has no"),
        ("brightness/7", "2", "“brightness/7” is not a setting"),
    ],
)
def test_a_proposal_refused_by_the_guard_is_deferred_and_does_not_block_others(
    wants: Wants, key: str, value: str, sentence: str
) -> None:
    wants.update(
        {"a": wanting((key, value), (IRQ, "2")) if key != IRQ else wanting((key, value)), "b": wanting((OTHER, "3"))}
    )
    (one, two), _ = evaluate_round(view(), [policy("a", 1), policy("b", 2)], EngineMemory())
    assert codes(one) == [(key, "refused")]
    assert one.deferred[0].why.startswith(sentence)
    assert len(one.actions) == (key != IRQ)
    assert moves(two) == [(OTHER, "0", "3")]


def test_isolated_cpus_are_used_if_the_policy_allows_it(wants: Wants) -> None:
    wants["a"] = wanting((IRQ, "6"))
    (evaluation,), _ = evaluate_round(
        view(), [policy("a", spec=IrqSpread(exclude="a", allow_isolated=True))], EngineMemory()
    )
    assert moves(evaluation) == [(IRQ, "0", "6")]


def test_a_refused_setting_uses_no_move_of_the_step(wants: Wants) -> None:
    wants["a"] = wanting((IRQ, "2"), (OTHER, "3"))
    memory = EngineMemory(refused={IRQ: "No vector is left on CPU 2."})
    (evaluation,), memory = evaluate_round(view(), [policy("a", damping=Damping(moves_per_step=1))], memory)
    assert [(h.code, h.why) for h in evaluation.deferred] == [("refused", "No vector is left on CPU 2.")]
    assert moves(evaluation) == [(OTHER, "0", "3")]
    assert memory.refused == {IRQ: "No vector is left on CPU 2."}


def test_a_setting_proposed_twice_is_written_once(wants: Wants) -> None:
    wants["a"] = wanting((IRQ, "2"), (IRQ, "3"))
    (evaluation,), _ = evaluate_round(view(), [policy("a")], EngineMemory())
    assert (moves(evaluation), codes(evaluation)) == ([(IRQ, "0", "2")], [(IRQ, "refused")])


# Ownership


@pytest.mark.parametrize(
    ("controller", "owned"), [("irqbalance", [IRQ]), ("tuned", [IRQ, TASK])], ids=["irqbalance", "tuned"]
)
def test_a_yielding_policy_defers_settings_of_another_controller(
    wants: Wants, controller: str, owned: list[str]
) -> None:
    wants["a"] = wanting((IRQ, "2"), (TASK, "2"))
    (evaluation,), _ = evaluate_round(
        view(controllers=(controller,)), [policy("a", on_controller=Ownership.YIELD)], EngineMemory()
    )
    assert codes(evaluation) == [(key, "owned") for key in owned]
    assert evaluation.deferred[0].why == f"{controller} runs on this node, and this policy yields to it."
    assert [action.key for action in evaluation.actions] == [key for key in (IRQ, TASK) if key not in owned]


@pytest.mark.parametrize(("response", "warns"), [(Ownership.WARN, True), (Ownership.REASSERT, False)])
def test_a_warning_policy_writes_and_names_the_controller(wants: Wants, response: Ownership, warns: bool) -> None:
    wants["a"] = wanting((IRQ, "2"))
    (evaluation,), _ = evaluate_round(
        view(controllers=("irqbalance", "tuned")), [policy("a", on_controller=response)], EngineMemory()
    )
    assert moves(evaluation) == [(IRQ, "0", "2")]
    assert ("irqbalance and tuned run on this node" in evaluation.sentence) is warns


# Drift


@pytest.mark.parametrize(("controllers", "cause"), [((), None), (("irqbalance",), "irqbalance")])
def test_drift_is_reported_with_its_cause_while_it_lasts_and_a_warning_policy_does_not_write(
    wants: Wants, controllers: tuple[str, ...], cause: str | None
) -> None:
    wants["a"] = wanting((IRQ, "2"))
    memory = EngineMemory({IRQ: held("2")})
    for time_s in (1000.0, 1005.0):
        (evaluation,), memory = evaluate_round(view(time_s, controllers, irq41="4"), [policy("a")], memory)
        assert [(d.key, d.expected, d.found, d.cause) for d in evaluation.drifts] == [(IRQ, "2", "4", cause)]
        assert (codes(evaluation), moves(evaluation)) == ([(IRQ, "owned")], [])
    assert memory.holdings == {IRQ: held("2")}


def test_a_view_from_before_the_write_is_no_drift(wants: Wants) -> None:
    (evaluation,), _ = evaluate_round(view(1000.0), [policy("a")], EngineMemory({IRQ: held("2", since_s=1000.0)}))
    assert evaluation.drifts == []


def test_a_cpu_that_went_offline_is_no_drift(wants: Wants) -> None:
    memory = EngineMemory({TASK: held("2,7"), IRQ: held("2,7")})
    (evaluation,), _ = evaluate_round(view(task="2", irq41="2,7"), [policy("a")], memory)
    assert evaluation.drifts == []


def test_a_yielding_policy_gives_a_drifted_setting_up(wants: Wants) -> None:
    wants["a"] = wanting((IRQ, "2"))
    yields = policy("a", on_drift=Ownership.YIELD)
    (first,), memory = evaluate_round(view(1000.0, irq41="4"), [yields], EngineMemory({IRQ: held("2")}))
    assert (len(first.drifts), memory.holdings) == (1, {})
    (second,), memory = evaluate_round(view(9000.0, irq41="4"), [yields], memory)
    assert (second.drifts, codes(second)) == ([], [(IRQ, "owned")])
    (third,), memory = evaluate_round(view(9005.0, irq41="4"), [policy("a")], memory)
    assert (moves(third), memory.yielded) == ([(IRQ, "4", "2")], {})


@pytest.mark.parametrize(("ticks", "name", "yielded"), [(5, "eth0-rx-0", {IRQ, TASK}), (9, "vfio-msix[0]", set())])
def test_a_yielded_setting_is_free_again_once_it_belongs_to_another_process_or_interrupt(
    wants: Wants, ticks: int, name: str, yielded: set[str]
) -> None:
    yields = policy("a", on_drift=Ownership.YIELD)
    memory = EngineMemory({IRQ: held("2"), TASK: held("2")})
    _, memory = evaluate_round(view(1000.0, irq41="4", task="4"), [yields], memory)
    _, memory = evaluate_round(replace(view(1005.0), tasks=[]), [yields], memory)  # idle, so not in the view
    assert memory.yielded.keys() == {IRQ, TASK}
    later = view(1010.0, started_ticks=ticks)
    irqs = [replace(irq, name=name) if irq.irq == 41 else irq for irq in later.inventory.irqs]
    _, memory = evaluate_round(replace(later, inventory=replace(later.inventory, irqs=irqs)), [yields], memory)
    assert memory.yielded.keys() == yielded


def test_re_assertions_back_off_exponentially(wants: Wants) -> None:
    takes = policy("a", on_drift=Ownership.REASSERT)
    memory = EngineMemory({IRQ: held("2", since_s=0.0)})
    written = []
    for round_ in range(1, 200):
        time_s = 5.0 * round_
        (evaluation,), memory = evaluate_round(view(time_s, irq41="4"), [takes], memory)
        assert len(evaluation.drifts) == 1
        for action in evaluation.actions:
            assert (action.was, action.becomes) == ("4", "2")
            written.append(time_s)
            memory = record_write(memory, "a", action, time_s)
    assert written == [30.0, 90.0, 210.0, 450.0, 930.0]


def test_a_re_asserting_policy_may_propose_a_new_value_instead(wants: Wants) -> None:
    wants["a"] = wanting((IRQ, "3"))
    (evaluation,), _ = evaluate_round(
        view(irq41="4"), [policy("a", on_drift=Ownership.REASSERT)], EngineMemory({IRQ: held("2")})
    )
    assert moves(evaluation) == [(IRQ, "4", "3")]


# What is held


def test_the_first_value_is_the_original_and_restoring_it_ends_the_holding() -> None:
    memory = record_write(EngineMemory(), "a", Action(IRQ, "0-3", "2", ""), 1.0)
    memory = record_write(memory, "b", Action(IRQ, "2", "3", ""), 2.0)
    assert memory.holdings == {IRQ: held("3", 2.0, by="b", original="0-3")}
    assert record_write(memory, "b", Action(IRQ, "3", "0-3", ""), 3.0).holdings == {}


@pytest.mark.parametrize("left", [[], [policy("a", mode=Mode.RECOMMEND)]], ids=["withdrawn", "only recommends now"])
def test_settings_are_restored_when_a_policy_no_longer_enforces(left: list[PolicyInForce]) -> None:
    memory = EngineMemory({IRQ: held("2"), OTHER: held("3", by="b"), TASK: held("4", original="0-5")})
    now = view(irq41="2", irq42="3", task="5")
    actions, memory = restore_actions(now, [*left, policy("b")], memory)
    assert [(who, action.key, action.was, action.becomes) for who, action in actions] == [("a", IRQ, "2", "0")]
    assert set(memory.holdings) == {IRQ, OTHER}, "something else moved the process, so it is not restored"
    memory = record_write(memory, "a", actions[0][1], 1000.0)
    assert restore_actions(now, [*left, policy("b")], memory) == ([], memory)


def test_settings_are_restored_in_reverse_order_of_writing() -> None:
    memory = EngineMemory()
    for key in (OTHER, IRQ, OTHER):
        memory = record_write(memory, "a", Action(key, "0", "2", "test"), 900.0)
    actions, _ = restore_actions(view(irq41="2", irq42="2"), [], memory)
    assert [action.key for _, action in actions] == [OTHER, IRQ]


@pytest.mark.parametrize(
    ("key", "stands", "cause"),
    [
        ("coalesce/rx-usecs", {"coalesce/rx-usecs": "33", "coalesce/adaptive-rx": "on"}, "adaptive-rx"),
        ("coalesce/tx-frames", {"coalesce/tx-frames": "33", "coalesce/adaptive-tx": "on"}, "adaptive-tx"),
        ("rx-0/coalesce/rx-usecs", {"coalesce/rx-usecs": "50", "coalesce/adaptive-rx": "on"}, "adaptive-rx"),
        ("coalesce/rx-usecs", {"coalesce/rx-usecs": "33", "coalesce/adaptive-rx": "off"}, None),
        ("coalesce/rx-usecs", {"coalesce/rx-usecs": "33", "coalesce/adaptive-tx": "on"}, None),
        ("coalesce/adaptive-rx", {"coalesce/adaptive-rx": "on"}, None),
        ("ring/rx", {"ring/rx": "33", "coalesce/adaptive-rx": "on"}, None),
    ],
)
def test_drift_caused_by_an_adaptive_driver_names_the_driver(
    wants: Wants, key: str, stands: dict[str, str], cause: str | None
) -> None:
    queue = Queue("rx-0", params={"coalesce/rx-usecs": "33"})
    netdev = make_netdev(driver="mlx5_core", queues=[queue], params=stands)
    now = replace(view(), inventory=Inventory([netdev], []))
    was = "off" if "adaptive" in key else "64"
    memory = EngineMemory({f"netdev/eth0/{key}": held(was)})
    (evaluation,), _ = evaluate_round(now, [policy("a")], memory)
    assert [drift.cause for drift in evaluation.drifts] == [cause]
    assert f"changed by {cause or 'something else'}." in evaluation.sentence


def test_a_process_with_a_reused_pid_is_not_restored(wants: Wants) -> None:
    memory = EngineMemory({TASK: held("2", original="0-5")})
    _, memory = evaluate_round(view(started_ticks=5, task="2"), [policy("a")], memory)
    assert memory.processes == {TASK: 5}
    (evaluation,), after = evaluate_round(view(started_ticks=9, task="2"), [policy("a")], memory)
    assert (after.holdings, evaluation.drifts) == ({}, [])
    assert restore_actions(view(started_ticks=9, task="2"), [], memory)[0] == []


def test_a_removed_interrupt_is_forgotten_unless_nothing_could_be_read(wants: Wants) -> None:
    memory = EngineMemory({IRQ: held("2"), "irq/99/affinity": held("2")})
    nothing = replace(view(), inventory=Inventory([], []))
    assert set(evaluate_round(nothing, [policy("a")], memory)[1].holdings) == {IRQ, "irq/99/affinity"}
    assert set(evaluate_round(view(irq41="2"), [policy("a")], memory)[1].holdings) == {IRQ}


def test_evaluations_have_the_same_outcome_if_only_their_numbers_differ() -> None:
    proposal = Proposal(IRQ, "2", "IRQ 41", "CPU 0 is 80 % busy.")
    one = Evaluation("a", 1, Mode.ENFORCE, "80 %", deferred=[Deferred(proposal, "dwell", "20 s ago")])
    two = Evaluation("a", 1, Mode.ENFORCE, "81 %", deferred=[Deferred(proposal, "dwell", "25 s ago")])
    assert same_outcome(one, two)
    assert not same_outcome(one, replace(two, deferred=[Deferred(proposal, "moves", "")]))
    assert not same_outcome(one, replace(two, actions=[Action(IRQ, "0", "2", "")]))
    assert not same_outcome(one, replace(two, version=2))


def test_the_memory_survives_json() -> None:
    memory = EngineMemory(
        {IRQ: held()},
        {"a": IrqSpreadMemory()},
        {IRQ: [("0", 1.0)]},
        {IRQ: 2},
        {OTHER: "a"},
        {TASK: 5},
        {LOCKED: "It is."},
    )
    assert msgspec.json.decode(msgspec.json.encode(memory), type=EngineMemory) == memory


# What the kernel sets anew


@pytest.mark.parametrize("response", Ownership)
def test_a_value_whose_cpus_have_all_gone_offline_is_no_drift_and_is_decided_anew(
    wants: Wants, response: Ownership
) -> None:
    wants["a"] = wanting((IRQ, "3"), (TASK, "3"))
    memory = EngineMemory({IRQ: held("7"), TASK: held("7", original="0-5"), OTHER: held("2")})
    (evaluation,), after = evaluate_round(view(irq41="0-6", irq42="2"), [policy("a", on_drift=response)], memory)
    assert (moves(evaluation), evaluation.drifts) == ([(IRQ, "0-6", "3"), (TASK, "0-5", "3")], [])
    assert after.holdings.keys() == {OTHER}


@pytest.mark.parametrize("response", Ownership)
@pytest.mark.parametrize(("name", "at", "drifted"), [("vfio-msix[0]", "0", 0), ("eth0-rx-0", "0", 1), ("eth1", "2", 0)])
def test_an_interrupt_with_the_number_of_one_that_was_freed_is_not_held(
    wants: Wants, name: str, at: str, drifted: int, response: Ownership
) -> None:
    wants["a"] = wanting((IRQ, "2"))
    policies = [policy("a", on_drift=response)]
    (evaluation,), memory = evaluate_round(view(), policies, EngineMemory())
    memory = record_write(memory, "a", evaluation.actions[0], 1000.0)
    _, memory = evaluate_round(view(1005.0, irq41="2"), policies, memory)
    wants["a"] = wanting()
    later = view(1010.0, irq41=at)
    irqs = [replace(irq, name=name) if irq.irq == 41 else irq for irq in later.inventory.irqs]
    later = replace(later, inventory=replace(later.inventory, irqs=irqs))
    (evaluation,), memory = evaluate_round(later, policies, memory)
    assert (len(evaluation.drifts), evaluation.actions) == (drifted, [])
    assert (IRQ in memory.holdings) is (at == "2" or bool(drifted and response is not Ownership.YIELD))


# Both real policies on machines

SPREAD = PolicyInForce("spread", 1, "spread", 10, Mode.ENFORCE, IrqSpread())
PROCESS = PolicyInForce("process", 1, "process", 20, Mode.ENFORCE, NetworkProcess(move_irq=True))
BOTH = [SPREAD, PROCESS]
ROUNDS = 12

everywhere = st.one_of(machines(), st.builds(captured, st.sampled_from(CAPTURED), st.integers(0, 3)))


def run(
    machine: Machine, policies: list[PolicyInForce], check: Callable[[Machine, list[Action]], None] | None = None
) -> tuple[list[list[Evaluation]], Machine, EngineMemory]:
    """Some rounds with what the policies want carried out: their evaluations, and what is there afterwards."""
    memory = EngineMemory()
    rounds = []
    for _ in range(ROUNDS):
        evaluations, memory = evaluate_round(machine.view, policies, memory)
        rounds.append(evaluations)
        actions = [action for evaluation in evaluations for action in evaluation.actions]
        if check is not None:
            check(machine, actions)
        for evaluation in evaluations:
            for action in evaluation.actions:
                memory = record_write(memory, evaluation.policy_id, action, machine.view.time_s)
        machine = machine.after(actions)
    return rounds, machine, memory


def values(machine: Machine) -> dict[str, str | None]:
    """Every setting that the policies may touch."""
    irqs = {f"irq/{irq.irq}/affinity": irq.requested for irq in machine.view.inventory.irqs}
    return irqs | {f"task/{task.pid}/affinity": task.affinity for task in machine.view.tasks}


@settings(max_examples=20, deadline=None)
@given(everywhere, st.booleans())
def test_no_decision_names_an_offline_isolated_or_forbidden_cpu(machine: Machine, allow_isolated: bool) -> None:
    policies = [
        replace(SPREAD, spec=IrqSpread(exclude="1", allow_isolated=allow_isolated)),
        replace(PROCESS, spec=NetworkProcess(allow_isolated=allow_isolated)),
    ]
    topology = machine.view.topology
    isolated_cpus = parse_cpu_list(topology.isolated) | parse_cpu_list(topology.nohz_full)
    originals = values(machine)
    cpusets = {f"task/{task.pid}/affinity": parse_cpu_list(task.allowed) for task in machine.view.tasks}

    def check(_: Machine, actions: list[Action]) -> None:
        for action in actions:
            if action.becomes == originals[action.key]:
                continue  # put back where it was
            cpus = parse_cpu_list(action.becomes)
            assert cpus
            assert cpus <= topology.online()
            assert allow_isolated or not cpus & isolated_cpus
            assert cpus <= cpusets.get(action.key, cpus)
            assert 1 not in cpus or action.key.startswith("task/")

    run(machine, policies, check)


@settings(max_examples=20, deadline=None)
@given(everywhere)
def test_the_same_input_gives_the_same_output(machine: Machine) -> None:
    assert run(machine, BOTH) == run(machine, BOTH)


@settings(max_examples=20, deadline=None)
@given(everywhere)
def test_a_plan_and_then_its_inverse_restore_every_setting(machine: Machine) -> None:
    def check(before: Machine, actions: list[Action]) -> None:
        plan = Plan(actions)
        assert values(before.after(plan.actions).after(inverse(plan).actions)) == values(before)

    run(machine, BOTH, check)


@settings(max_examples=20, deadline=None)
@given(everywhere)
def test_all_settings_are_restored_when_policies_are_withdrawn(machine: Machine) -> None:
    _, moved, memory = run(machine, BOTH)
    actions, _ = restore_actions(moved.view, [], memory)
    assert values(moved.after(action for _, action in actions)) == values(machine)


@pytest.mark.parametrize("name", CAPTURED)
def test_both_policies_together_settle_on_every_captured_machine(name: str) -> None:
    machine, memory = captured(name, 1), EngineMemory()
    moved_at = 0
    for round_ in range(160):
        evaluations, memory = evaluate_round(machine.view, BOTH, memory)
        actions = [action for evaluation in evaluations for action in evaluation.actions]
        for evaluation in evaluations:
            for action in evaluation.actions:
                memory = record_write(memory, evaluation.policy_id, action, machine.view.time_s)
        machine = machine.after(actions)
        moved_at = round_ if actions else moved_at
    assert moved_at < 80


# Recommendations


def recommended(wants: Wants, *rounds: tuple[float, Decision]) -> list[list[str]]:
    """The keys that a policy in mode recommend proposes in rounds, each at a time with what it wants then."""
    memory, shown = EngineMemory(), []
    for time_s, decision in rounds:
        wants["a"] = decision
        (evaluation,), memory = evaluate_round(view(time_s), [policy("a", mode=Mode.RECOMMEND)], memory)
        shown.append([action.key for action in evaluation.actions])
    return shown


def test_a_recommendation_stays_for_its_dwell_time_and_while_a_new_one_would_not_be_better(wants: Wants) -> None:
    first, second, nothing = wanting((IRQ, "2")), wanting((OTHER, "3")), wanting()
    # flips between two equally good ones every round
    rounds = [(1000.0 + 5 * n, (first, second)[n % 2]) for n in range(20)]
    assert recommended(wants, *rounds) == [[IRQ]] * 20
    assert recommended(wants, (1000.0, first), (1005.0, nothing), (1029.0, nothing), (1031.0, nothing)) == [
        *[[IRQ]] * 3,
        [],
    ]


def test_a_recommendation_that_was_carried_out_gives_way_to_the_next(wants: Wants) -> None:
    wants["a"] = wanting((IRQ, "2"))
    recommends = policy("a", mode=Mode.RECOMMEND)
    _, memory = evaluate_round(view(1000.0), [recommends], EngineMemory())
    wants["a"] = wanting((OTHER, "3"))
    (evaluation,), _ = evaluate_round(view(1005.0, irq41="2"), [recommends], memory)
    assert moves(evaluation) == [(OTHER, "0", "3")]


def test_with_a_varying_load_irq_spread_recommends_the_same_interrupts() -> None:
    recommends = policy("a", mode=Mode.RECOMMEND, spec=IrqSpread())
    memory, shown = EngineMemory(), set()
    for number in range(40):
        costs = [(0, 40 + 3 * (number % 2)), (0, 42), (0, 5)]
        made = machine(FLAT, *costs)
        (evaluation,), memory = evaluate_round(replace(made.view, time_s=1000.0 + 5 * number), [recommends], memory)
        shown.add(tuple(action.key for action in evaluation.actions))
    assert len(shown) == 1
