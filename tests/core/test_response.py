import pytest
from tests.core.test_engine import policy, view

from coresteer_core.policies.base import Mode, Ownership
from coresteer_core.policies.fixed_settings.policy import FixedSettings
from coresteer_core.policies.response import Reaction, Written, responses

IRQ = "irq/41/affinity"
SETS = FixedSettings(settings={IRQ: "2"})


@pytest.mark.parametrize(
    ("on_drift", "reaction", "sentence"),
    [
        (Ownership.REASSERT, Reaction.WRITES, "“a” is enforced here and sets IRQ 41 to 2 again; it is"),
        (Ownership.WARN, Reaction.WARNS, "“a” had set IRQ 41 to 2; it warns of the drift and leaves"),
        (Ownership.YIELD, Reaction.YIELDS, "“a” had set IRQ 41 to 2; it yields and leaves the value"),
    ],
)
def test_a_policy_reacts_to_the_undo_of_its_setting_as_it_reacts_to_drift(
    on_drift: Ownership, reaction: Reaction, sentence: str
) -> None:
    now, one = view(irq41="2"), policy("a", spec=SETS, on_drift=on_drift)
    (found,) = responses(now, [one], {IRQ: Written("a", "0", "2")}, {IRQ: "0"})
    assert (found.reaction, found.keys) == (reaction, [IRQ])
    assert found.sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("desired", "mode", "holdout", "writes"),
    [
        ({IRQ: "0"}, Mode.ENFORCE, False, True),
        ({IRQ: "2"}, Mode.ENFORCE, False, False),
        ({IRQ: "0"}, Mode.RECOMMEND, False, False),
        ({IRQ: "0"}, Mode.ENFORCE, True, False),
        ({"irq/42/affinity": "3"}, Mode.ENFORCE, False, False),
    ],
)
def test_an_enforced_policy_writes_what_it_wants_even_if_it_never_wrote_it(
    desired: dict[str, str], mode: Mode, holdout: bool, writes: bool
) -> None:
    found = responses(view(irq41="2"), [policy("a", spec=SETS, mode=mode, holdout=holdout)], {}, desired)
    assert [each.reaction for each in found] == [Reaction.WRITES] * writes


def test_settings_beyond_the_moves_of_one_round_are_named_too() -> None:
    both = FixedSettings(settings={IRQ: "2", "irq/42/affinity": "3", "task/812/affinity": "4"})
    now = view(irq41="2", irq42="3", task="4")
    (found,) = responses(
        now, [policy("a", spec=both)], {}, {IRQ: "0", "irq/42/affinity": "0", "task/812/affinity": "1"}
    )
    assert sorted(found.keys) == [IRQ, "irq/42/affinity", "task/812/affinity"]
    assert "and 1 more again" in found.sentence


def test_a_policy_no_longer_holds_a_setting_whose_change_is_rolled_back_and_sets_it_again_after_a_pause() -> None:
    now, one = view(irq41="2"), policy("a", spec=SETS, on_drift=Ownership.WARN)
    (found,) = responses(now, [one], {IRQ: Written("a", "0", "2")}, {IRQ: "0"}, rolled_back=True)
    assert (
        found.sentence == "“a” is enforced here and sets IRQ 41 to 2 again, after a pause that doubles with each undo."
    )
