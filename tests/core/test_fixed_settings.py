import msgspec
import pytest
from tests.support.views import make_netdev, make_view

from coresteer_core.node.view import View
from coresteer_core.policies.base import Mode, Ownership, Scope
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_write
from coresteer_core.policies.fixed_settings.policy import FixedSettings, FixedSettingsMemory, decide
from coresteer_core.settings.overlay import overlay

EVERYTHING = Scope()
USECS = "netdev/{netdev}/coalesce/rx-usecs"


def view_of(*names: str) -> View:
    return make_view(4, netdevs=[make_netdev(name, params={"coalesce/rx-usecs": "3"}) for name in names])


def decided(view: View, settings: dict[str, str], scope: Scope = EVERYTHING) -> tuple[dict[str, str], list[str], str]:
    found = decide(view, FixedSettings(settings), scope, FixedSettingsMemory())
    return {each.key: each.value for each in found.proposals}, [each.why for each in found.skipped], found.sentence


def test_each_network_device_in_scope_gets_the_values() -> None:
    proposals, missing, sentence = decided(view_of("eth0", "eth1"), {USECS: "50"})
    assert proposals == {"netdev/eth0/coalesce/rx-usecs": "50", "netdev/eth1/coalesce/rx-usecs": "50"}
    assert (missing, sentence) == ([], "2 settings in scope: 2 to change, 0 have their values, 0 cannot be set here.")
    assert list(decided(view_of("eth0", "eth1"), {USECS: "50"}, Scope(netdevs=["eth1"]))[0]) == [
        "netdev/eth1/coalesce/rx-usecs"
    ]
    assert decided(view_of("eth0"), {USECS: "50"}, Scope(drivers=["mlx5*"]))[0] == {}


def test_what_has_its_value_or_does_not_exist_is_left() -> None:
    proposals, missing, sentence = decided(
        view_of("eth0"), {USECS: "3", "netdev/eth9/coalesce/rx-usecs": "3", "netdev/{netdev}/coalesce/rx-frames": "8"}
    )
    assert proposals == {}
    assert missing[0] == "This node has no network device eth9."
    assert "1 have their values, 2 cannot be set here" in sentence


def test_enforced_it_reaches_a_steady_state_within_its_moves_per_round() -> None:
    view, memory = view_of("eth0", "eth1", "eth2"), EngineMemory()
    policy = PolicyInForce("1", 1, "fixed", 1, Mode.ENFORCE, FixedSettings({USECS: "50"}))
    writes = []
    for round_ in range(4):
        view = msgspec.structs.replace(view, time_s=5.0 * round_)
        (evaluation,), memory = evaluate_round(view, [policy], memory)
        writes.append(len(evaluation.actions))
        for action in evaluation.actions:
            memory = record_write(memory, "1", action, view.time_s)
        view = overlay(view, {action.key: action.becomes for action in evaluation.actions})
    assert writes == [2, 1, 0, 0]


def enforced(settings: dict[str, str], scope: Scope = EVERYTHING) -> PolicyInForce:
    return PolicyInForce(
        "1", 1, "fixed", 1, Mode.ENFORCE, FixedSettings(settings), scope=scope, on_drift=Ownership.REASSERT
    )


def in_force(settings: dict[str, str]) -> tuple[View, EngineMemory]:
    """Return the view and memory of two netdevs once these settings are written."""
    view, memory = view_of("eth0", "eth1"), EngineMemory()
    (evaluation,), memory = evaluate_round(view, [enforced(settings)], memory)
    for action in evaluation.actions:
        memory = record_write(memory, "1", action, 0.0)
    return overlay(view, {each.key: each.becomes for each in evaluation.actions}), memory


@pytest.mark.parametrize("later", [enforced({}), enforced({USECS: "50"}, Scope(netdevs=["eth0"]))])
def test_what_a_version_or_scope_no_longer_has_gets_its_value_from_before(later: PolicyInForce) -> None:
    view, memory = in_force({USECS: "50"})
    (evaluation,), _ = evaluate_round(msgspec.structs.replace(view, time_s=5.0), [later], memory)
    restored = {each.key: each.becomes for each in evaluation.actions}
    assert restored["netdev/eth1/coalesce/rx-usecs"] == "3"
    assert len(restored) == (1 if later.scope.netdevs else 2)


def test_a_value_that_a_person_has_set_is_not_asserted_by_a_version_without_it() -> None:
    view, memory = in_force({USECS: "50"})
    view = msgspec.structs.replace(overlay(view, {"netdev/eth0/coalesce/rx-usecs": "20"}), time_s=5.0)
    (evaluation,), memory = evaluate_round(view, [enforced({})], memory)
    assert [each.key for each in evaluation.actions] == ["netdev/eth1/coalesce/rx-usecs"]
    assert "netdev/eth0/coalesce/rx-usecs" not in memory.holdings


@pytest.mark.parametrize(
    ("key", "value"), [("netdev/{netdev}/nonsense", "1"), (USECS, "soon"), ("irq/4/affinity", "x"), ("text", "text")]
)
def test_a_setting_or_value_that_no_node_could_have_is_skipped_with_the_reason(key: str, value: str) -> None:
    proposals, why, _ = decided(view_of("eth0"), {key: value})
    assert (proposals, len(why)) == ({}, 1)
    assert why[0]
