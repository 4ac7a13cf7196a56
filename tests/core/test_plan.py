"""Plans, previews and the guard, over any small machine."""

from hypothesis import given
from hypothesis import strategies as st
from tests.support.views import make_view

from coresteer_core.changes.plan import Action, DesiredValue, Plan, inverse, preview
from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.inventory import Irq
from coresteer_core.node.view import View
from coresteer_core.settings import IrqAffinity, parse_setting

CPUS = 8
sets = st.frozensets(st.integers(0, CPUS - 1), min_size=1)


@st.composite
def views(draw: st.DrawFn) -> View:
    online = draw(sets)
    isolated = draw(st.frozensets(st.integers(0, CPUS - 1), max_size=2))
    irqs = [
        Irq(
            40 + n,
            f"eth0-rx-{n}",
            "PCI",
            format_cpu_list(draw(sets)),
            None,
            None,
            draw(st.sampled_from([True, None, False])),
        )
        for n in range(4)
    ]
    offline = frozenset(range(CPUS)) - online
    return make_view(CPUS, offline=offline, isolated=format_cpu_list(isolated), irqs=irqs)


desired = st.lists(
    st.builds(DesiredValue, st.integers(39, 45).map("irq/{}/affinity".format), sets.map(format_cpu_list)),
    max_size=5,
    unique_by=lambda desired_value: desired_value.key,
)


def applied(values: dict[str, str], plan: Plan) -> dict[str, str]:
    for action in plan.actions:
        assert values[action.key] == action.was
        values = {**values, action.key: action.becomes}
    return values


@given(views(), desired)
def test_a_plan_followed_by_its_inverse_restores_everything(view: View, wanted: list[DesiredValue]) -> None:
    before = {f"irq/{irq.irq}/affinity": irq.requested or "" for irq in view.inventory.irqs}
    plan = preview(view, wanted, reason="test").plan
    assert applied(applied(before, plan), inverse(plan)) == before


@given(st.lists(st.builds(Action, st.text(), st.text(), st.text(), st.just("r"))))
def test_the_inverse_of_the_inverse_has_the_values_of_the_plan(actions: list[Action]) -> None:
    twice = inverse(inverse(Plan(actions)))
    assert [(a.key, a.was, a.becomes) for a in twice.actions] == [(a.key, a.was, a.becomes) for a in actions]


@given(views(), desired)
def test_a_desired_value_that_is_current_already_makes_no_action(view: View, wanted: list[DesiredValue]) -> None:
    done = [DesiredValue(f"irq/{irq.irq}/affinity", irq.requested or "") for irq in view.inventory.irqs]
    answer = preview(view, done, reason="test")
    assert (answer.plan.actions, answer.commands, answer.refused) == ([], [], [])
    assert answer.sentence.startswith("Nothing would change")
    for action in preview(view, wanted, reason="test").plan.actions:
        assert action.was != action.becomes


@given(views(), desired, st.booleans())
def test_the_guard_refuses_offline_isolated_and_managed_targets(
    view: View, wanted: list[DesiredValue], allow: bool
) -> None:
    answer = preview(view, wanted, reason="test", allow_isolated=allow)
    refused = {refusal.key for refusal in answer.refused}
    isolated = parse_cpu_list(view.topology.isolated)
    for action in answer.plan.actions:
        setting = parse_setting(action.key)
        assert isinstance(setting, IrqAffinity)
        cpus = setting.cpus(action.becomes)
        irq = view.inventory.irq(setting.irq)
        assert irq is not None
        bad = not cpus <= view.topology.online() or irq.movable is False or (bool(cpus & isolated) and not allow)
        assert (action.key in refused) == bad


@given(views(), st.lists(st.builds(DesiredValue, st.text(max_size=30), st.text(max_size=30)), max_size=4))
def test_a_preview_of_any_text_returns_refusals_instead_of_raising(view: View, wanted: list[DesiredValue]) -> None:
    answer = preview(view, wanted, reason="test")
    assert len(answer.refused) == len(wanted)
    assert all(refusal.sentence for refusal in answer.refused)


def test_a_preview_describes_the_move_and_gives_its_shell_command() -> None:
    irq = Irq(41, "eth0-rx-0", "PCI", "0-7", None, None, movable=True)
    answer = preview(make_view(CPUS, irqs=[irq]), [DesiredValue("irq/41/affinity", "3,2")], reason="test")
    assert answer.sentence == "IRQ 41 (eth0-rx-0) changes from CPUs 0-7 to CPUs 2-3."
    assert answer.commands == ["echo 2-3 > /proc/irq/41/smp_affinity_list"]


@given(views(), desired)
def test_a_refused_preview_gives_the_first_reason_and_no_commands(view: View, wanted: list[DesiredValue]) -> None:
    answer = preview(view, wanted, reason="test")
    assert answer.sentence.startswith("Refused") == bool(answer.refused)
    if answer.refused:
        assert answer.sentence.endswith(answer.refused[0].sentence)
        assert answer.commands == []


def test_an_interrupt_that_is_named_twice_is_refused() -> None:
    view = make_view(CPUS, irqs=[Irq(41, "", "", "0-7", None, None, movable=True)])
    twice = [DesiredValue("irq/41/affinity", "1"), DesiredValue("irq/41/affinity", "2")]
    answer = preview(view, twice, reason="test")
    assert [refusal.code for refusal in answer.refused] == ["invalid"]
    assert len(answer.plan.actions) == 1
