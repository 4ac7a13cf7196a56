"""What the policies evaluate, round after round, on captured machines whose load follows what is written."""

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace
from tests.core.nic_plant import ADAPTIVE, DRIVERS, FRAMES, USECS, Plant, Traffic, run
from tests.core.policy_machines import Machine, captured
from tests.core.test_flow_steering import few, many, nic
from tests.golden.store import check

from coresteer_core.node.nic import Timer
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.node.view import View
from coresteer_core.policies import Spec
from coresteer_core.policies.base import Evaluation, Mode, Ownership, Scope
from coresteer_core.policies.coalescing.spec import Coalescing
from coresteer_core.policies.coscheduling.spec import Coscheduling
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_write
from coresteer_core.policies.flow_steering.memory import FlowSteeringMemory
from coresteer_core.policies.flow_steering.policy import decide as steer
from coresteer_core.policies.flow_steering.spec import FlowSteering
from coresteer_core.policies.irq_spread.policy import IrqSpread
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.policies.ownership import restore_actions
from coresteer_core.policies.service_class.matching import Match
from coresteer_core.policies.service_class.policy import ServiceClass, ServiceClasses, steer_weights

MACHINES = (
    "16em64t-4s2c2t-offlines",
    "20em64t-hybrid-1p6c2t+2ca4co1t",
    "64amd64-4s2n4ca2co",
    "8em64t-2s2ca2c-buggynuma",
)
CLASSES = ServiceClasses(
    [
        ServiceClass("gold", 90.0, 20.0, Match(commands=["nginx"])),
        ServiceClass("silver", 60.0, None, Match(commands=["redis-*"])),
    ],
    weights=["nice", "cpu", "io"],
)
SPECS: dict[str, Spec] = {
    "irq-spread": IrqSpread(act_percent=30.0, gap_points=5.0),
    "network-process": NetworkProcess(move_irq=True),
    "service-class": CLASSES,
    "coscheduling": Coscheduling(match=Match(commands=["nginx", "redis-*"])),
}
STEERED = {
    "rules and table": lambda: few([nic(slots=8)]),
    "rfs": lambda: many([nic()]),
}
ROUNDS = 5
_MOST = 4


def brief(evaluation: Evaluation) -> dict[str, object]:
    """A evaluation as JSON, the first few of each list."""
    plain = msgspec.to_builtins(evaluation)
    said: dict[str, object] = {"sentence": plain["sentence"], "mode": plain["mode"]}
    said["actions"] = [f"{a.key}: {a.was} → {a.becomes}. {a.reason}" for a in evaluation.actions[:_MOST]]
    said["deferred"] = [
        f"{h.code}: {h.proposal.key} → {h.proposal.value}. {h.why}" for h in evaluation.deferred[:_MOST]
    ]
    said["skipped"] = [f"{u.subject}: {u.why}" for u in evaluation.skipped[:_MOST]]
    said["drifts"] = plain["drifts"]
    return {name: value for name, value in said.items() if value}


def figures(time_s: float) -> dict[str, list[ClassFigures]]:
    """Gold is behind its target."""
    done = int(time_s) % 40
    return {
        "1": [
            ClassFigures("gold", 90.0, 20_000, "gate", 100, done, round(done / 90, 3)),
            ClassFigures("silver", 60.0, None, "tcp", 80, 40, 0.833),
        ]
    }


def rounds(
    machine: Machine, policies: list[PolicyInForce], disturb: Callable[[int, Machine], Machine] = lambda _, m: m
) -> dict[str, object]:
    """What is evaluated in each round; what they hold in the end, and what puts that back."""
    memory, told = EngineMemory(), []
    for number in range(ROUNDS):
        machine = disturb(number, machine)
        view = replace(machine.view, classes=figures(machine.view.time_s))
        evaluations, memory = evaluate_round(view, policies, memory)
        told.append([brief(evaluation) for evaluation in evaluations])
        done = [(c.policy_id, a) for c in evaluations if c.mode is Mode.ENFORCE for a in c.actions]
        for policy_id, action in done:
            memory = record_write(memory, policy_id, action, view.time_s)
        machine = machine.after([action for _, action in done])
    back, _ = restore_actions(machine.view, [], memory)
    kept = msgspec.json.decode(msgspec.json.encode(replace(memory, recent_values={})))
    return {
        "rounds": told,
        "memory": {name: value for name, value in kept.items() if value},
        "returns": [f"{policy_id} {action.key}: {action.was} → {action.becomes}" for policy_id, action in back],
    }


def enforced(spec: Spec, **more: object) -> PolicyInForce:
    """The policy as an agent has it."""
    return PolicyInForce("1", 2, "golden", 10, Mode.ENFORCE, spec, **more)  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kind", SPECS)
def test_a_policy_concludes_on_a_captured_machine_as_before(kind: str, name: str) -> None:
    check(f"decisions/{kind}/{name}", rounds(captured(name), [enforced(SPECS[kind])]))


@pytest.mark.parametrize(
    ("timer", "params", "traffic"),
    [
        (Timer.THROTTLE, {USECS: "3"}, Traffic(80_000.0)),
        (Timer.RESTARTING, {USECS: "8", FRAMES: "16", ADAPTIVE: "on", "coalesce/cqe-mode-rx": "on"}, Traffic(80_000.0)),
        (Timer.ABSOLUTE, {USECS: "0", FRAMES: "1"}, Traffic(0.0, 200.0, in_flight_rtt_us=60.0)),
        (Timer.THROTTLE, {USECS: "20"}, Traffic(80_000.0, drops_from_us=100.0)),
    ],
)
def test_the_coalescing_policy_concludes_on_each_timer_as_before(
    timer: Timer, params: dict[str, str], traffic: Traffic
) -> None:
    course = run(Plant(timer, DRIVERS[timer], params, traffic), Coalescing(250.0, adaptive="compare"), 12)
    kept = msgspec.json.decode(msgspec.json.encode(replace(course.memory, recent_values={})))
    said = {
        "rounds": [brief(evaluation) for evaluation in course.evaluations],
        "written": [f"{n}: {each.key} {each.was} → {each.becomes}" for n, each in course.writes],
        "memory": {name: value for name, value in kept.items() if value},
    }
    check(f"decisions/coalescing/{timer}-{params[USECS]}", said)


@pytest.mark.parametrize(
    ("mode", "ownership"),
    [*((Mode.ENFORCE, each) for each in Ownership), (Mode.RECOMMEND, Ownership.WARN)],
)
def test_several_policies_disturbed_by_somebody_else_conclude_as_before(mode: Mode, ownership: Ownership) -> None:
    machine = captured("64amd64-4s2n4ca2co")
    machine = replace(machine, view=_with_controller(machine.view))
    policies = [
        replace(enforced(SPECS["network-process"]), policy_id="1", rank=20, mode=mode),
        replace(enforced(SPECS["irq-spread"], on_drift=ownership, on_controller=ownership), policy_id="2", mode=mode),
        replace(enforced(IrqSpread(act_percent=10.0, gap_points=1.0, smt="any")), policy_id="3", rank=30),
    ]
    check(f"decisions/together/{mode}-{ownership}", rounds(machine, policies, _disturbed))


def _with_controller(view: View) -> View:
    return replace(view, inventory=replace(view.inventory, controllers=["irqbalance"]))


def _disturbed(number: int, machine: Machine) -> Machine:
    """Somebody puts every interrupt on the last CPU."""
    if number != 3:
        return machine
    last = str(max(machine.view.topology.online()))
    irqs = [replace(irq, requested=last, effective=last) for irq in machine.view.inventory.irqs]
    inventory = replace(machine.view.inventory, irqs=irqs)
    return replace(machine, view=replace(machine.view, inventory=inventory)).loaded()


@pytest.mark.parametrize("name", STEERED)
def test_flows_are_steered_as_before(name: str) -> None:
    made, memory = STEERED[name](), FlowSteeringMemory()
    told: list[dict[str, object]] = []
    for _ in range(26):
        decision = steer(made.view(), FlowSteering(), Scope(), memory)
        assert isinstance(decision.memory, FlowSteeringMemory)
        memory = decision.memory
        writes = [f"{each.key}: {each.value}. {each.subject}: {each.reason}" for each in decision.proposals]
        skipped = [f"{each.subject}: {each.why}" for each in decision.skipped]
        said: dict[str, object] = {"sentence": decision.sentence, "writes": writes[:_MOST], "skipped": skipped}
        if not told or said != told[-1]:
            told.append(said)
        made.apply((proposal.key, proposal.value) for proposal in decision.proposals)
    kept = msgspec.to_builtins(memory)
    check(f"decisions/flow-steering/{name}", {"rounds": told, "memory": {**kept, "first_seen": len(memory.first_seen)}})


def test_weights_are_steered_as_before() -> None:
    values, told = {"gold": 120.0, "silver": 100.0}, []
    for second in range(8):
        values = steer_weights(figures(1000.0 + 5 * second)["1"], values, CLASSES, 1.0)
        told.append({name: round(value, 4) for name, value in values.items()})
    check("decisions/steered", told)
