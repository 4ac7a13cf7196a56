"""Simulated NICs: responses of their drivers, and interrupts that follow the set values."""

import pytest

from coresteer_agent.simulate.cache import SimulationCache
from coresteer_agent.simulate.changes import SimulatedChanges
from coresteer_agent.simulate.coalescing import interrupts_per_s
from coresteer_agent.simulate.interval import make_interval
from coresteer_agent.simulate.machine import make_machine
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeState, Outcome, Result
from coresteer_core.node.nic import DriverResponse, Timer, Verdict
from coresteer_core.node.nic_model import HostCosts, QueueTraffic, TimerParams, predict
from coresteer_core.policies.base import ROUND_PERIOD_S
from coresteer_core.policies.coalescing.effective import receive_interrupts
from coresteer_core.protocol import Apply, Confirm
from coresteer_core.settings import parse_setting

MLX5, IGB, ENA = 0, 1, 2


class Node:
    """A simulated node and its changes."""

    def __init__(self, kind: int) -> None:
        machine = make_machine(cpus=16, irqs=24, kind=kind, seed=1)
        self.node = SimulatedNode(
            name="n", key="k", index=7, seed=1, machine=machine, cache=SimulationCache(1.0), stream="s"
        )
        self.changes = SimulatedChanges(self.node)
        self.netdev = machine.inventory.netdevs[0].name
        self.now_s = 1_000_000.0
        self.number = 0
        self.step()  # sees what stands

    def step(self) -> None:
        for _ in range(round(ROUND_PERIOD_S)):
            self.now_s += 1
            self.node.sample(self.now_s)
        self.node.learn(self.now_s)

    def key(self, param: str) -> str:
        return f"netdev/{self.netdev}/{param}"

    def read(self, param: str) -> str | None:
        return parse_setting(self.key(param)).current(self.node.view(0.0))

    def set(self, param: str, value: str) -> Result:
        action = Action(self.key(param), self.read(param) or "", value, "")
        self.number += 1
        self.changes.handle(Apply(f"c{self.number}", Plan([action]), 30.0))
        messages = self.changes.drain_messages()
        if messages[-1].state is ChangeState.UNCONFIRMED:
            self.changes.handle(Confirm(f"c{self.number}"))
        return next(result for message in messages for result in message.results if result.key == action.key)

    def responses(self, param: str) -> list[DriverResponse]:
        return self.node.learned.responses(self.node.machine.nic.driver, param)

    def interrupts(self) -> float:
        return receive_interrupts(self.node.sample(self.now_s), self.node.inventory)[self.netdev][0]


ODD: dict[str, tuple[int, str, str, Outcome, Verdict, str | None]] = {
    "taken": (ENA, "coalesce/rx-usecs", "200", Outcome.APPLIED, Verdict.ACCEPTED, "200"),
    "refused": (MLX5, "coalesce/rx-usecs", "5000", Outcome.FAILED, Verdict.REFUSED, None),
    "rounded": (IGB, "coalesce/rx-usecs", "500", Outcome.FAILED, Verdict.ROUNDED, "504"),
    "ignored": (ENA, "coalesce/adaptive-rx", "on", Outcome.FAILED, Verdict.IGNORED, "off"),
}


@pytest.mark.parametrize("case", ODD)
def test_drivers_accept_refuse_round_and_ignore_and_the_response_is_learned(case: str) -> None:
    kind, param, value, outcome, verdict, stood = ODD[case]
    node = Node(kind)
    before = node.read(param)
    result = node.set(param, value)
    assert result.outcome is outcome, result
    (tried,) = [each for each in node.responses(param) if each.requested == value]
    assert (tried.verdict, tried.read_back) == (verdict, stood)
    assert node.read(param) == (value if outcome is Outcome.APPLIED else before), "what failed is undone"
    if verdict is Verdict.REFUSED:
        assert tried.message == "The system call failed: Numerical result out of range."


def test_a_value_that_was_rounded_before_is_refused_with_the_rounded_value() -> None:
    node = Node(IGB)
    node.set("coalesce/rx-usecs", "500")
    again = node.set("coalesce/rx-usecs", "500")
    assert (again.outcome, again.sentence) == (Outcome.REFUSED, "igb set rx-usecs 504 instead of 500; use 504.")
    assert node.set("coalesce/rx-usecs", "504").outcome is Outcome.APPLIED


def test_interrupts_follow_the_set_values_and_points_show_it() -> None:
    node = Node(ENA)
    node.step()
    often = node.interrupts()
    node.set("coalesce/rx-usecs", "500")
    seldom = node.interrupts()
    for _ in range(4):
        node.step()
    assert seldom < often / 4
    points = {p.rx_usecs: p.interrupts / p.seconds for p in node.node.learned.points if p.netdev == node.netdev}
    assert points[500] < points[20] / 4
    assert [t.verdict for t in node.responses("coalesce/rx-usecs")] == [Verdict.ACCEPTED], "it does what it says"


def test_a_longer_wait_shows_in_the_round_trips() -> None:
    machine = make_machine(cpus=16, irqs=24, kind=ENA, seed=1)
    placement = tuple([0] * len(machine.inventory.irqs))
    short, long = (
        make_interval(machine, placement, 9, 0, 1.0, wait=TimerParams(Timer.THROTTLE, t)) for t in (20, 1020)
    )
    assert long.tcp.rtt_p50_us - short.tcp.rtt_p50_us == pytest.approx(500, abs=1)


@pytest.mark.parametrize("packets_per_s", [1000.0, 20_000.0, 150_000.0])
@pytest.mark.parametrize(
    "wait",
    [
        TimerParams(Timer.THROTTLE, 100),
        TimerParams(Timer.ABSOLUTE, 100),
        TimerParams(Timer.ABSOLUTE, 100, 8),
        TimerParams(Timer.RESTARTING, 50, 32),
        TimerParams(Timer.RESTARTING, 8, 128),
        TimerParams(Timer.THROTTLE, 0),
    ],
)
def test_the_closed_forms_are_near_the_model_of_a_nic_whose_host_needs_no_time(
    wait: TimerParams, packets_per_s: float
) -> None:
    model = predict(
        QueueTraffic(packets_per_s, 700, None), wait, HostCosts(4096, entry_us=0, packet_us=0), packets=4000
    )
    assert interrupts_per_s(wait, packets_per_s) == pytest.approx(model.interrupts_per_s, rel=0.1)


def test_no_packets_make_no_interrupts() -> None:
    assert interrupts_per_s(TimerParams(Timer.ABSOLUTE, 100), 0.0) == 0.0


def test_rps_of_a_receive_queue_can_be_set_and_restored() -> None:
    node = Node(ENA)
    assert node.set("rx-0/rps", "2-3").outcome is Outcome.APPLIED
    assert (node.read("rx-0/rps"), node.read("rx-1/rps")) == ("2-3", "none")
    assert node.set("rx-0/rps", "none").outcome is Outcome.APPLIED
    assert node.read("rx-0/rps") == "none"
