"""Which work belongs to which class, and what it gets."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from itertools import pairwise
from math import log

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.policy_machines import CAPTURED, Machine, captured, machines
from tests.support.views import make_view

from coresteer_core.changes.guard import refusals
from coresteer_core.changes.plan import Action, DesiredValue, Plan, inverse, preview
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import Damping, Mode, Ownership, Scope
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_steering, record_write
from coresteer_core.policies.irq_spread.policy import IrqSpread
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.policies.ownership import restore_actions
from coresteer_core.policies.service_class.matching import Match
from coresteer_core.policies.service_class.policy import (
    MAX_WEIGHT,
    MIN_WEIGHT,
    ServiceClass,
    ServiceClasses,
    ServiceClassesMemory,
    assign_classes,
    class_of_connection,
    class_of_task,
    decide,
    initial_weights,
    steer_weights,
)
from coresteer_core.policies.service_class.weights import (
    DEFAULT_WEIGHT,
    NICE_STEP_RATIO,
    nearest_value,
    next_value,
    scheduler_weight,
)
from coresteer_core.settings import CgroupWeight, TaskNice, parse_setting
from coresteer_core.settings.cgroup import WEIGHTS


def task(pid: int = 812, **fields: object) -> NetTask:
    known = NetTask(
        pid, pid * 10, "nginx", "/web.slice/nginx.service", 1, "0-7", "0-7", 0, 0.1, 0.0, [], user="www-data",
        command="nginx", unit="nginx.service", listens=[80, 443], clients=["10.1.2.3"], params={"nice": "0"},
    )  # fmt: skip
    return msgspec.structs.replace(known, **fields)


def view(*tasks: NetTask, cgroups: dict[str, dict[str, str]] | None = None, time_s: float = 100.0) -> View:
    return make_view(tasks=list(tasks), cgroups=cgroups or {}, time_s=time_s)


# Matching


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        (Match(), False),
        (Match(cgroups=["/web.slice/*"]), True),
        (Match(cgroups=["web.slice/nginx.service"]), True),
        (Match(cgroups=["db.slice/*", "*"]), True),
        (Match(cgroups=["web.slice"]), False),
        (Match(units=["nginx.*"]), True),
        (Match(units=["Nginx.*"]), False),
        (Match(users=["root", "www-*"]), True),
        (Match(commands=["nginx"], users=["root"]), False),
        (Match(commands=["ngin?"], users=["www-data"], listens=[443], clients=["10.0.0.0/8"]), True),
        (Match(listens=[8080]), False),
        (Match(clients=["10.1.2.3"]), True),
        (Match(clients=["10.9.0.0/16", "::/0"]), False),
    ],
)
def test_a_process_belongs_where_each_list_has_one_that_fits(match: Match, fits: bool) -> None:
    assert match.matches_task(task()) is fits


def test_unknown_properties_of_a_process_match_nothing() -> None:
    unknown = task(cgroup=None, user=None, command=None, unit=None, listens=[], clients=[])
    for match in (Match(cgroups=["*"]), Match(units=["*"]), Match(users=["*"]), Match(commands=["*"]),
                  Match(listens=[80]), Match(clients=["0.0.0.0/0"])):  # fmt: skip
        assert not match.matches_task(unknown)


def test_a_process_belongs_to_a_class_of_clients_only_with_all_of_them() -> None:
    match = Match(clients=["10.0.0.0/8"])
    assert match.matches_task(task(clients=["10.1.1.1", "10.2.2.2"]))
    assert not match.matches_task(task(clients=["10.1.1.1", "192.0.2.1"]))


def test_a_cgroup_of_version_1_matches_too() -> None:
    assert Match(cgroups=["docker/*"]).matches_task(task(cgroup="/", cpu_cgroup="/docker/1"))


@pytest.mark.parametrize("client", ["10.0.0.0/33", "x", ""])
def test_a_client_that_is_no_network_is_refused(client: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="is not a network; write for example"):
        msgspec.json.decode(msgspec.json.encode({"clients": [client]}), type=Match)


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("http://127.0.0.1:9100/metrics#http_seconds", True),
        ("http://localhost/metrics?a=b#a:b_c", True),
        ("http://[::1]:80/m#a", True),
        ("http://10.0.0.1/metrics#a", False),
        ("http://127.0.0.1.example.com/metrics#a", False),
        ("http://localhost@evil/metrics#a", False),
        ("https://localhost/metrics#a", False),
        ("http://localhost/metrics", False),
        ("http://127.0.0.256/metrics#a", False),
        ("http://127.0.0.1000/metrics#a", False),
        ("file:///etc/passwd#a", False),
    ],
)
def test_a_histogram_is_one_of_this_node(url: str, good: bool) -> None:
    text = msgspec.json.encode({"name": "a", "target_percent": 90, "deadline_ms": 10, "histogram": url})
    if good:
        assert msgspec.json.decode(text, type=ServiceClass).histogram == url
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(text, type=ServiceClass)


def test_a_histogram_needs_a_deadline() -> None:
    with pytest.raises(ValueError, match="Give class a a deadline"):
        ServiceClass("a", 90, histogram="http://localhost/metrics#a")


def test_two_classes_of_one_name_are_refused_with_it() -> None:
    text = b'{"classes": [{"name": "a", "target_percent": 90}, {"name": "a", "target_percent": 50}]}'
    with pytest.raises(msgspec.ValidationError, match="Two classes are named a"):
        msgspec.json.decode(text, type=ServiceClasses)


GOLD = ServiceClass("gold", 90, match=Match(listens=[443]))
SILVER = ServiceClass("silver", 50, match=Match(commands=["nginx", "redis"]))
LOCAL = ServiceClass("local", 20, match=Match(clients=["127.0.0.0/8"]))


def test_a_process_belongs_to_the_first_matching_class() -> None:
    assert class_of_task([GOLD, SILVER], task()) == GOLD
    assert class_of_task([SILVER, GOLD], task()) == SILVER
    assert class_of_task([GOLD], task(listens=[80])) is None


@pytest.mark.parametrize(
    ("client", "port", "served_by", "name"),
    [
        ("10.0.0.1", 443, None, "gold"),
        ("10.0.0.1", 80, task(), "silver"),
        ("10.0.0.1", 80, task(command="sshd"), None),
        ("127.0.0.1", 80, None, "local"),
        ("::1", 80, None, None),
    ],
)
def test_a_connection_matches_by_client_port_and_server_process(
    client: str, port: int, served_by: NetTask | None, name: str | None
) -> None:
    found = class_of_connection([GOLD, SILVER, LOCAL], ip_address(client), port, served_by)
    assert (found and found.name) == name


# Weights as settings

SETTINGS = st.one_of(st.just(TaskNice(812)), st.sampled_from([CgroupWeight("a", name) for name in sorted(WEIGHTS)]))
INSIDE = st.floats(MIN_WEIGHT, MAX_WEIGHT)


@given(SETTINGS, INSIDE)
def test_a_value_is_near_its_weight_and_accepted_by_the_kernel(setting: TaskNice | CgroupWeight, weight: float) -> None:
    value = nearest_value(setting, weight)
    assert setting.canonical(value) == value
    assert abs(log(scheduler_weight(setting, value) / weight)) <= log(NICE_STEP_RATIO) / 2 + 0.01
    known = view(task(), cgroups={"a": dict.fromkeys(WEIGHTS, "100")})
    assert refusals(known, [(setting.key, value)], allow_isolated=False) == []


@given(SETTINGS, INSIDE, INSIDE)
def test_steps_are_bounded_and_end(setting: TaskNice | CgroupWeight, first: float, weight: float) -> None:
    value, steps = nearest_value(setting, first), 0
    while (following := next_value(setting, value, weight)) is not None:
        change = abs(log(scheduler_weight(setting, following) / scheduler_weight(setting, value)))
        rounding = 0.0 if isinstance(setting, TaskNice) else 0.6 / min(int(value), int(following))
        assert change <= log(NICE_STEP_RATIO) + rounding + 1e-9
        value, steps = following, steps + 1
        assert steps < 40
    assert abs(log(scheduler_weight(setting, value) / weight)) < log(NICE_STEP_RATIO)


@pytest.mark.parametrize("count", range(1, 17))
def test_initial_weights_descend_with_the_target_and_none_is_the_default(count: int) -> None:
    classes = [ServiceClass(f"c{n}", target_percent=1 + (n * 7) % 13) for n in range(count)]
    weights = initial_weights(classes)
    ordered = sorted(classes, key=lambda graded: -graded.target_percent)
    assert all(weights[a.name] > weights[b.name] for a, b in pairwise(ordered))
    nices = [nearest_value(TaskNice(1), weights[graded.name]) for graded in ordered]
    assert "0" not in nices
    assert len(set(nices)) == count
    assert all(MIN_WEIGHT <= weight <= MAX_WEIGHT for weight in weights.values())


# Steering


def figures(fs: Mapping[str, float | None], requests: int = 100, source: str | None = "gate") -> list[ClassFigures]:
    return [ClassFigures(name, 50.0, None, source, 0 if f is None else requests, 0, f or 0.0) for name, f in fs.items()]


NAMES = ["a", "b", "c", "d"]
FS = st.fixed_dictionaries(dict.fromkeys(NAMES, st.none() | st.floats(0, 100)))
VALUES = st.fixed_dictionaries(dict.fromkeys(NAMES, INSIDE))
SPEC = ServiceClasses([ServiceClass(name, 50) for name in NAMES])
ELAPSED = st.floats(0.01, 1.0)


@given(FS, VALUES, st.floats(0.1, 3600), ELAPSED)
def test_a_step_is_bounded_and_stays_within_bounds(
    fs: dict[str, float | None], values: dict[str, float], window_s: float, elapsed_s: float
) -> None:
    after = steer_weights(figures(fs), values, replace(SPEC, window_s=window_s), elapsed_s)
    assert after.keys() == values.keys()
    for name, value in after.items():
        assert MIN_WEIGHT <= value <= MAX_WEIGHT
        assert abs(log(value / values[name])) <= log(NICE_STEP_RATIO) + 1e-9
        if fs[name] is None:
            assert value == values[name]


@given(FS, VALUES, st.sampled_from(NAMES), st.floats(0, 1))
def test_a_lower_f_never_gets_a_lower_weight(
    fs: dict[str, float | None], values: dict[str, float], name: str, share: float
) -> None:
    f = fs[name]
    if f is None:
        return
    lower = steer_weights(figures({**fs, name: f * share}), values, SPEC)
    higher = steer_weights(figures(fs), values, SPEC)
    # equal F, or nearly, make no step; that one is taken once they differ enough may only raise the lower one
    assert lower[name] >= higher[name] * (1 - 1e-9) or all(higher[n] == values[n] for n in NAMES)


@given(FS, st.floats(MIN_WEIGHT * 2, MAX_WEIGHT / 2))
def test_of_two_classes_with_the_same_weight_the_one_with_the_lower_f_gets_at_least_as_much(
    fs: dict[str, float | None], weight: float
) -> None:
    after = steer_weights(figures(fs), dict.fromkeys(NAMES, weight), SPEC)
    known = sorted((f, name) for name, f in fs.items() if f is not None)
    assert all(after[a] >= after[b] * (1 - 1e-9) for (_, a), (_, b) in pairwise(known))


@given(VALUES, st.floats(0.001, 100))
def test_equal_f_changes_nothing(values: dict[str, float], f: float) -> None:
    assert steer_weights(figures(dict.fromkeys(NAMES, f)), values, SPEC) == values


@pytest.mark.parametrize(
    "told",
    [
        figures({"a": 0.1, "b": 2.0}, source=None),
        figures({"a": 0.1, "b": None}),
        figures({"a": 0.0, "b": 0.0}),
        figures({"a": 1.0, "b": 1.04}),
        [],
    ],
)
def test_without_two_different_classes_nothing_changes(told: Sequence[ClassFigures]) -> None:
    values = {"a": 1000.0, "b": 2000.0}
    assert steer_weights(told, values, SPEC) == values


def test_a_class_without_a_success_gets_more_until_it_has_some() -> None:
    values = dict.fromkeys(["a", "b"], DEFAULT_WEIGHT)
    for _ in range(1000):
        values = steer_weights(figures({"a": 0.0, "b": 1.0}), values, SPEC)
    assert values == {"a": MAX_WEIGHT, "b": MIN_WEIGHT}


@pytest.mark.parametrize("window_s", [1.0, 10.0, 60.0])
def test_steering_converges_although_f_lags_by_half_a_window(window_s: float) -> None:
    """A CPU that is divided by weight among classes that all want more of it than they get."""
    spec = replace(SPEC, window_s=window_s)
    targets = {"a": 0.9, "b": 0.6, "c": 0.3, "d": 0.3}
    values = dict.fromkeys(NAMES, DEFAULT_WEIGHT)
    late = [dict.fromkeys(NAMES, 0.25)] * max(1, round(window_s / 2 / 0.1))
    for _ in range(round(40 * window_s / 0.1)):
        whole = sum(values.values())
        late = [*late[1:], {name: value / whole for name, value in values.items()}]
        values = steer_weights(figures({name: late[0][name] / targets[name] for name in NAMES}), values, spec)
    whole = sum(values.values())
    ratios = [values[name] / whole / targets[name] for name in NAMES]
    assert max(ratios) / min(ratios) < 1.1


# Assignment of settings to classes

BOTH_CLASSES = [
    ServiceClass("gold", 90, match=Match(commands=["nginx"])),
    ServiceClass("silver", 50, match=Match(commands=["redis"])),
]
WEB, DB = "/web.slice", "/db.slice"
HAVE = {"web.slice": {"cpu.weight": "100", "io.weight": "100"}, "db.slice": {"cpu.weight": "100", "io.weight": "100"}}


def spec(*weights: str) -> ServiceClasses:
    return msgspec.convert(
        {"classes": msgspec.to_builtins(BOTH_CLASSES), "weights": list(weights)}, type=ServiceClasses
    )


def test_the_cgroup_of_one_class_is_weighed_in_the_place_of_its_processes() -> None:
    seen = view(
        task(1, cgroup=WEB), task(2, cgroup=WEB), task(3, cgroup=DB, command="redis"), task(4, cgroup="/"),
        cgroups=HAVE,
    )  # fmt: skip
    assert assign_classes(seen, spec("cpu"), Scope()).settings == {
        "cgroup/web.slice/cpu.weight": "gold",
        "cgroup/db.slice/cpu.weight": "silver",
    }
    assert assign_classes(seen, spec("cpu", "nice"), Scope()).settings.keys() == {
        "cgroup/web.slice/cpu.weight", "cgroup/db.slice/cpu.weight", "task/4/nice",
    }  # fmt: skip
    assert set(assign_classes(seen, spec("nice"), Scope()).settings) == {f"task/{pid}/nice" for pid in (1, 2, 3, 4)}
    assert "cgroup/web.slice/io.weight" in assign_classes(seen, spec("io"), Scope()).settings
    assert assign_classes(seen, spec(), Scope()).settings == {}


def test_a_cgroup_shared_by_two_classes_is_skipped() -> None:
    seen = view(task(1, cgroup=WEB), task(2, cgroup=WEB, command="redis"), cgroups=HAVE)
    found = assign_classes(seen, spec("cpu"), Scope())
    assert found.settings == {}
    [skipped] = found.skipped
    assert skipped.subject == "cpu.weight of web.slice"
    assert skipped.why == "Processes of the classes gold, silver share this cgroup; each class needs one of its own."
    assert set(assign_classes(seen, spec("cpu", "nice"), Scope()).settings) == {"task/1/nice", "task/2/nice"}


def test_a_cgroup_shared_with_unmatched_processes_is_skipped() -> None:
    seen = view(task(1, cgroup=WEB), task(2, cgroup=WEB, command="sshd"), cgroups=HAVE)
    found = assign_classes(seen, spec("cpu"), Scope())
    assert found.settings == {}
    assert [(one.subject, one.why) for one in found.skipped] == [
        ("cpu.weight of web.slice", "Processes of no class, or not in the policy's scope, share this cgroup."),
        ("1 process", "It matches no class, or is not in the policy's scope."),
    ]
    assert set(assign_classes(seen, spec("cpu", "nice"), Scope()).settings) == {"task/1/nice"}


def test_a_cgroup_of_version_1_is_weighed_by_its_shares() -> None:
    seen = view(task(1, cgroup="/", cpu_cgroup="/docker/1"), cgroups={"docker/1": {"cpu.shares": "1024"}})
    assert assign_classes(seen, spec("cpu"), Scope()).settings == {"cgroup/docker/1/cpu.shares": "gold"}


def test_real_time_tasks_and_processes_out_of_scope_are_skipped() -> None:
    seen = view(task(1, realtime=True), task(2, name="other"), task(3))
    found = assign_classes(seen, spec("nice"), Scope(tasks=["nginx"]))
    assert found.settings == {"task/3/nice": "gold"}
    assert [(one.subject, one.why) for one in found.skipped] == [
        ("nginx (1)", "A real-time task runs before all classes."),
        ("1 process", "It matches no class, or is not in the policy's scope."),
    ]


def test_a_decision_has_the_attainment_of_each_class() -> None:
    told = [
        ClassFigures("gold", 90, None, "gate", 1200, 1000, 0.926),
        ClassFigures("silver", 50, None, None, 0, 0, 0.0),
    ]
    seen = replace(view(task(1)), classes={"7": told})
    decision = decide(seen, spec("nice"), Scope(), ServiceClassesMemory())
    assert decision.sentence == "gold F 0.93 (1,000 of 1,200 requests in 10 s, target 90 %). 1 weight to adjust."
    [proposal] = decision.proposals
    assert (proposal.key, proposal.value) == ("task/1/nice", "-1")
    assert proposal.reason == "nginx (1) belongs to class gold with the target 90 %."


def test_a_setting_with_the_initial_value_gets_another_so_that_it_becomes_held() -> None:
    [proposal] = decide(view(task(1, params={"nice": "-1"})), spec("nice"), Scope(), ServiceClassesMemory()).proposals
    assert proposal.value == "-2"


# In the engine

CLASSES = PolicyInForce(
    "7", 1, "classes", 10, Mode.ENFORCE, spec("nice", "cpu", "io"), damping=Damping(moves_per_step=64)
)


def carry_out(seen: View, actions: Sequence[Action]) -> View:
    becomes = {action.key: action.becomes for action in actions}
    tasks = [
        replace(each, params={"nice": becomes.get(f"task/{each.pid}/nice", each.params["nice"])}) for each in seen.tasks
    ]
    return replace(seen, tasks=tasks, time_s=seen.time_s + 5)


def round_of(
    seen: View, policies: list[PolicyInForce], memory: EngineMemory
) -> tuple[list[Action], View, EngineMemory]:
    evaluations, memory = evaluate_round(seen, policies, memory)
    actions = [action for evaluation in evaluations for action in evaluation.actions]
    for evaluation in evaluations:
        for action in evaluation.actions:
            memory = record_write(memory, evaluation.policy_id, action, seen.time_s)
    return actions, carry_out(seen, actions), memory


def test_a_held_setting_is_not_proposed_again() -> None:
    actions, seen, memory = round_of(view(task(1)), [CLASSES], EngineMemory())
    assert [(action.key, action.becomes) for action in actions] == [("task/1/nice", "-1")]
    for value in ("-4", "0", "3"):
        memory = record_steering(memory, "task/1/nice", value, seen.time_s)
        seen = carry_out(seen, [Action("task/1/nice", "", value, "")])
        actions, seen, memory = round_of(seen, [CLASSES], memory)
        assert actions == []
        assert memory.holdings["task/1/nice"].value == value
        assert memory.holdings["task/1/nice"].original == "0"


def test_the_weight_of_a_process_that_leaves_its_class_is_restored() -> None:
    _, seen, memory = round_of(view(task(1, params={"nice": "4"})), [CLASSES], EngineMemory())
    seen = carry_out(seen, [Action("task/1/nice", "", "-5", "")])
    memory = record_steering(memory, "task/1/nice", "-5", seen.time_s - 1)
    seen = replace(seen, tasks=[replace(seen.tasks[0], command="other")])
    actions, seen, memory = round_of(seen, [CLASSES], memory)
    assert [(action.key, action.was, action.becomes) for action in actions] == [("task/1/nice", "-5", "4")]
    assert memory.holdings == {}
    assert round_of(seen, [CLASSES], memory)[0] == []


def test_a_process_absent_from_the_view_stays_held() -> None:
    _, seen, memory = round_of(view(task(1)), [CLASSES], EngineMemory())
    _, _, memory = round_of(replace(seen, tasks=[]), [CLASSES], memory)
    assert "task/1/nice" in memory.holdings


def test_a_reused_pid_is_not_held() -> None:
    _, seen, memory = round_of(view(task(1)), [CLASSES], EngineMemory())
    _, _, memory = round_of(seen, [CLASSES], memory)
    other = replace(seen, tasks=[task(1, started_ticks=99, params={"nice": "7"})])
    actions, _, memory = round_of(replace(other, time_s=1e6), [CLASSES], memory)
    assert [(action.was, action.becomes) for action in actions] == [("7", "-1")]
    assert memory.holdings["task/1/nice"].original == "7"


@pytest.mark.parametrize(
    ("response", "rewritten", "held"),
    [(Ownership.WARN, [], "-3"), (Ownership.YIELD, [], None), (Ownership.REASSERT, ["-3"], "-3")],
)
def test_an_external_nice_value_is_drift(response: Ownership, rewritten: list[str], held: str | None) -> None:
    policy = replace(CLASSES, on_drift=response)
    _, seen, memory = round_of(view(task(1)), [policy], EngineMemory())
    memory = record_steering(memory, "task/1/nice", "-3", seen.time_s)
    seen = replace(carry_out(seen, [Action("task/1/nice", "", "10", "")]), time_s=seen.time_s + 1000)
    [evaluation], memory = evaluate_round(seen, [policy], memory)
    assert [drift.found for drift in evaluation.drifts] == ["10"]
    assert [action.becomes for action in evaluation.actions] == rewritten
    holding = memory.holdings.get("task/1/nice")
    assert (holding and holding.value) == held


def values(machine: Machine) -> dict[str, str | None]:
    keys = [f"task/{each.pid}/{name}" for each in machine.view.tasks for name in ("nice", "affinity")]
    keys += [f"cgroup/{path}/{name}" for path, weights in machine.view.cgroups.items() for name in weights]
    keys += [f"irq/{irq.irq}/affinity" for irq in machine.view.inventory.irqs]
    return {key: parse_setting(key).current(machine.view) for key in keys}


MACHINE_CLASSES = [
    ServiceClass("first", 95, 20.0, match=Match(listens=[80])),
    ServiceClass("second", 60, match=Match(cgroups=["web.slice"])),
    ServiceClass("third", 30, match=Match(users=["root"])),
]
ON_MACHINES = PolicyInForce(
    "9", 1, "classes", 5, Mode.ENFORCE, ServiceClasses(MACHINE_CLASSES, weights=["nice", "cpu"])
)
OTHERS = [
    PolicyInForce("1", 1, "spread", 10, Mode.ENFORCE, IrqSpread()),
    PolicyInForce("2", 1, "process", 20, Mode.ENFORCE, NetworkProcess()),
]
everywhere = st.one_of(machines(max_cpus=32), st.builds(captured, st.sampled_from(CAPTURED), st.integers(0, 3)))


@settings(max_examples=20, deadline=None)
@given(everywhere)
def test_every_machine_reaches_a_steady_state_and_is_restored(machine: Machine) -> None:
    policies = [ON_MACHINES, *OTHERS]
    memory, now, quiet = EngineMemory(), machine, 0
    for _ in range(80):
        assert evaluate_round(now.view, policies, memory) == evaluate_round(now.view, policies, memory)
        evaluations, memory = evaluate_round(now.view, policies, memory)
        actions = [action for evaluation in evaluations for action in evaluation.actions]
        ours = [action for action in evaluations[0].actions if not action.key.startswith("irq/")]
        after = now.after(actions)
        assert values(after.after(inverse(Plan(actions)).actions)) == values(now)
        for action in ours:
            assert refusals(now.view, [(action.key, action.becomes)], allow_isolated=False) == []
            assert not any(each.realtime and action.key == f"task/{each.pid}/nice" for each in now.view.tasks)
        for evaluation in evaluations:
            for action in evaluation.actions:
                memory = record_write(memory, evaluation.policy_id, action, now.view.time_s)
        quiet = 0 if ours else quiet + 1
        now = after
        if quiet > 8:
            break
    assert quiet > 8
    mine = {key: held for key, held in memory.holdings.items() if held.policy_id == "9"}
    actions = [action for policy_id, action in restore_actions(now.view, OTHERS, memory)[0] if policy_id == "9"]
    assert {action.key for action in actions} == mine.keys()
    back, before = values(now.after(actions)), values(machine)
    assert {key: back[key] for key in mine} == {key: before[key] for key in mine}


# Preview


def test_nice_and_weights_are_previewed_with_the_command_for_it() -> None:
    seen = view(task(), cgroups=HAVE)
    desired = [
        DesiredValue("task/812/nice", "5"),
        DesiredValue("cgroup/web.slice/cpu.weight", "200"),
        DesiredValue("cgroup/db.slice/io.weight", "50"),
    ]
    told = preview(seen, desired, reason="r")
    assert told.sentence == (
        "nginx (812) changes from nice 0 to nice 5; cpu.weight of web.slice changes from 100 to 200; "
        "io.weight of db.slice changes from 100 to 50."
    )
    assert told.commands == [
        "renice -n 5 -p $(ls /proc/812/task)",
        "echo 200 > /sys/fs/cgroup/web.slice/cpu.weight",
        "echo default 50 > /sys/fs/cgroup/db.slice/io.weight",
    ]


@pytest.mark.parametrize(
    ("seen", "desired_value", "code", "says"),
    [
        (view(task(kernel=True)), DesiredValue("task/812/nice", "5"), "kernel", "is a kernel thread"),
        (view(task(realtime=True)), DesiredValue("task/812/nice", "5"), "realtime", "is a real-time task: it runs"),
        (view(task()), DesiredValue("task/812/nice", "5;813=4"), "invalid", "Name one nice value for all threads"),
        (view(), DesiredValue("task/812/nice", "5"), "unknown", "no process 812"),
        (view(cgroups=HAVE), DesiredValue("cgroup/web.slice/cpu.weight", "0"), "bounds", "from 1 to 10000, not 0."),
        (view(cgroups=HAVE), DesiredValue("cgroup/web.slice/cpu.shares", "9"), "unknown", "no cgroup web.slice with"),
        (view(cgroups=HAVE), DesiredValue("cgroup/cpu.weight", "9"), "invalid", "not a setting"),
    ],
)  # fmt: skip
def test_forbidden_values_are_refused(seen: View, desired_value: DesiredValue, code: str, says: str) -> None:
    [refused] = preview(seen, [desired_value], reason="r").refused
    assert refused.code == code
    assert says in refused.sentence
