"""XPS of the policy flow-steering: which CPUs send by which transmit queue, and when that changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.policy_machines import topologies
from tests.support.views import make_netdev, make_topology

from coresteer_core.changes.guard import warnings
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import Inventory, Irq, Queue
from coresteer_core.node.limits import Limits, SettingLimits
from coresteer_core.node.reserved import ReservedCpus
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.backtest import backtest
from coresteer_core.policies.base import Mode, Scope
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce
from coresteer_core.policies.flow_steering.memory import FlowSteeringMemory
from coresteer_core.policies.flow_steering.policy import decide
from coresteer_core.policies.flow_steering.spec import FlowSteering
from coresteer_core.settings.overlay import overlay

TOPOLOGY = make_topology(packages=2, nodes_per_package=1, cores_per_node=4, threads=1)
XPS = FlowSteering(rfs="off", rss_table=False, max_rules=0, xps=True)


def view(irq_cpus: list[int], *, topology: Topology = TOPOLOGY, per_s: float = 3e6, xps: str | None = "") -> View:
    """A NIC with interrupts on these CPUs, and a process that sends over it. xps: of each transmit queue."""
    rx_queues = [Queue(f"rx-{n}", 40 + n) for n in range(len(irq_cpus))]
    tx_queues = [Queue(f"tx-{n}", 40 + n, xps=xps) for n in range(len(irq_cpus))]
    irqs = [Irq(40 + n, "eth0", "PCI", str(cpu), str(cpu), 0, True, None, "eth0") for n, cpu in enumerate(irq_cpus)]
    sends = RxPlacement("eth0", "rx-0", 40, irq_cpus[0], "rss", 1, 0.0, per_s)
    task = NetTask(812, 5, "nginx", None, 1, "0", "0", 0, 0.1, 0.0, [sends])
    return View(topology, Inventory([make_netdev(queues=[*rx_queues, *tx_queues])], irqs), tasks=[task], time_s=1000.0)


class Loop:
    """The policy on a view in which what it proposes is carried out."""

    def __init__(self, start: View) -> None:
        self.view, self.memory, self.scope = start, FlowSteeringMemory(), Scope()

    def round(self, spec: FlowSteering = XPS, **fields: object) -> dict[str, str]:
        """What is proposed 5 s later; fields: what else changes in the view."""
        self.view = replace(self.view, **{"time_s": self.view.time_s + 5, **fields})
        decision = decide(self.view, spec, self.scope, self.memory)
        assert isinstance(decision.memory, FlowSteeringMemory)
        self.memory = decision.memory
        wanted = {proposal.key: proposal.value for proposal in decision.proposals}
        self.view = overlay(self.view, wanted)
        return {key.split("/")[2]: value for key, value in wanted.items()}

    def move(self, irq_cpus: list[int]) -> Inventory:
        """The inventory with its interrupts elsewhere."""
        moved = view(irq_cpus).inventory
        return replace(self.view.inventory, irqs=moved.irqs)


@pytest.mark.parametrize(
    ("irq_cpus", "expected"),
    [
        ([0, 4], {"tx-0": "0-3", "tx-1": "4-7"}),
        ([0, 0], {"tx-0": "0,2,4,6", "tx-1": "1,3,5,7"}),
        ([1], {"tx-0": "0-7"}),
        ([*range(8), 7], {**{f"tx-{n}": str(n) for n in range(8)}}),
    ],
    ids=["nearest", "ties", "one queue", "more queues than CPUs"],
)
def test_each_cpu_sends_by_the_queue_with_the_nearest_interrupt(irq_cpus: list[int], expected: dict[str, str]) -> None:
    loop = Loop(view(irq_cpus))
    assert loop.round() == expected
    assert [loop.round() for _ in range(20)] == [{}] * 20


@given(topology=topologies(max_cpus=32), data=st.data())
def test_every_online_cpu_is_in_exactly_one_queue_and_a_steady_input_changes_once(
    topology: Topology, data: st.DataObject
) -> None:
    online = sorted(topology.online())
    cpus = data.draw(st.lists(st.sampled_from(online), min_size=1, max_size=8))
    loop = Loop(view(cpus, topology=topology))
    found = [cpu for value in loop.round().values() if value != "none" for cpu in parse_cpu_list(value)]
    assert sorted(found) == online
    assert loop.round() == {}


def test_isolated_and_reserved_cpus_send_by_the_nearest_queue_too_and_the_guard_allows_it() -> None:
    seen = view([0, 4], topology=replace(TOPOLOGY, isolated="2-3", nohz_full="2-3"))
    seen = replace(seen, inventory=replace(seen.inventory, reserved=[ReservedCpus("6-7", "a container")]))
    (evaluation,), _ = evaluate_round(seen, [PolicyInForce("1", 1, "steer", 1, Mode.ENFORCE, XPS)], EngineMemory())
    assert {action.key: action.becomes for action in evaluation.actions} == {
        "netdev/eth0/tx-0/xps": "0-3",
        "netdev/eth0/tx-1/xps": "4-7",
    }
    assert (evaluation.deferred, warnings(seen, [("netdev/eth0/tx-0/xps", "0-3")], allow_isolated=True)) == ([], [])


def test_xps_leaves_cpus_off_limits_as_they_are() -> None:
    limits = Limits(SettingLimits(cpus_off_limits="1"))
    seen = view([0, 4])
    assert Loop(replace(seen, inventory=replace(seen.inventory, limits=limits))).round() == {
        "tx-0": "0,2-3",
        "tx-1": "4-7",
    }


def test_xps_follows_interrupts_at_most_once_in_the_dwell_time() -> None:
    loop = Loop(view([0, 4]))
    loop.round()
    assert [loop.round(inventory=loop.move([4, 0])) for _ in range(5)] == [{}] * 5
    assert loop.round() == {"tx-0": "4-7", "tx-1": "0-3"}


@pytest.mark.parametrize("why", ["disabled", "no traffic"])
def test_xps_is_restored_when_it_is_given_up(why: str) -> None:
    loop = Loop(view([0, 4], xps="3"))
    loop.round()
    spec = FlowSteering(rfs="off") if why == "disabled" else XPS
    found = [loop.round(spec, **({} if why == "disabled" else {"tasks": []})) for _ in range(12)]
    assert [each for each in found if each] == [{"tx-0": "3", "tx-1": "3"}]
    assert (loop.memory.xps, loop.memory.restoring) == ({}, {})
    assert bool(found[0]) is (why == "disabled")


def test_a_gap_between_rounds_does_not_end_xps() -> None:
    loop = Loop(view([0, 4]))
    loop.round()
    tasks = loop.view.tasks
    assert loop.round(time_s=loop.view.time_s + 600, tasks=[]) == {}
    assert loop.round(tasks=tasks) == {}


def test_what_leaves_the_scope_is_restored() -> None:
    loop = Loop(view([0, 4], xps="3"))
    loop.round()
    loop.scope = Scope(netdevs=["eth9"])
    assert loop.round() == {"tx-0": "3", "tx-1": "3"}
    assert (loop.round(), loop.memory.xps) == ({}, {})


def test_during_a_driver_reset_nothing_changes() -> None:
    loop = Loop(view([0, 4]))
    loop.round()
    before = loop.view.inventory
    assert loop.round(inventory=replace(before, irqs=[])) == {}
    assert loop.round(inventory=before) == {}


@pytest.mark.parametrize(
    "start", [view([0, 4], xps=None), view([0, 4], per_s=1e3), replace(view([0, 4]), inventory=Inventory([], []))]
)
def test_without_xps_traffic_or_nic_nothing_is_set(start: View) -> None:
    assert Loop(start).round() == {}


def test_a_backtest_sets_xps_once() -> None:
    views = [replace(view([0, 4]), time_s=5.0 * number) for number in range(30)]
    assert backtest(views, PolicyInForce("1", 1, "steer", 1, Mode.ENFORCE, XPS)).moves == 2
