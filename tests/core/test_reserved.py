"""CPUs that a container or a cpuset partition has for itself: what guard and policies do with them."""

import pytest
from msgspec.structs import replace
from tests.support.views import make_view

from coresteer_core.changes.guard import refusals
from coresteer_core.node.cpusets import Cpuset
from coresteer_core.node.inventory import Irq
from coresteer_core.node.load import IrqLoad, Load
from coresteer_core.node.reserved import ReservedCpus
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import Scope
from coresteer_core.policies.irq_spread.policy import IrqSpread, IrqSpreadMemory, decide

CONTAINER = ReservedCpus("1-2", "container app of pod shop/web-1")
PARTITION = ReservedCpus("4-5", "cpuset partition web.slice", "web.slice")

EXPORTER = "system.slice/kubepods-exporter.service"


def task(pid: int, allowed: str) -> NetTask:
    return NetTask(pid, 1, f"t{pid}", None, 1, allowed, allowed, 0, 0.1, 0.0, [])


@pytest.fixture
def view() -> View:
    """8 CPUs; processes 11 in the container, 12 in the partition, 13 elsewhere."""
    irqs = [Irq(41, "eth0-rx-0", "PCI-MSI", "1", "1", 0, movable=True, netdev="eth0")]
    cpusets = {
        path: Cpuset("", "", "0-7", "0") for path in ("", "web.slice", "system.slice", "kubepods.slice", EXPORTER)
    }
    tasks = [task(11, "1-2"), task(12, "4-5"), task(13, "0-7")]
    view = make_view(8, irqs=irqs, tasks=tasks, cpusets=cpusets)
    return replace(view, inventory=replace(view.inventory, reserved=[CONTAINER, PARTITION]))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("irq/41/affinity", "0", None),
        ("irq/41/affinity", "2", "CPU 2 is reserved for container app of pod shop/web-1."),
        ("irq/41/affinity", "3-4", "CPU 4 is reserved for cpuset partition web.slice."),
        ("task/13/affinity", "0-1", "CPU 1 is reserved for container app of pod shop/web-1."),
        ("task/13/affinity", "5", "CPU 5 is reserved for cpuset partition web.slice."),
        ("task/13/affinity", "3,6", None),
        ("task/12/affinity", "4", None),
        (
            "task/11/affinity",
            "1",
            "t11 (11) is not moved: the kubelet assigned CPUs 1-2 to container app of pod shop/web-1, "
            "and its processes stay there.",
        ),
        ("cgroup/web.slice/cpuset.cpus", "4-5", None),
        ("cgroup/system.slice/cpuset.cpus", "3-4", "CPU 4 is reserved for cpuset partition web.slice."),
        (
            "cgroup/kubepods.slice/cpuset.cpus",
            "0",
            "The kubelet sets cpuset.cpus of kubepods.slice: it assigned CPUs to container app of pod shop/web-1.",
        ),
        ("cgroup/system.slice/kubepods-exporter.service/cpuset.cpus", "0", None),
    ],
)
@pytest.mark.parametrize("allow_isolated", [False, True])
def test_the_guard_keeps_everything_off_reserved_cpus_but_what_belongs_there(
    view: View, key: str, value: str, said: str | None, *, allow_isolated: bool
) -> None:
    found = refusals(view, [(key, value)], allow_isolated=allow_isolated)
    assert [refusal.sentence for refusal in found if refusal.code == "reserved"] == ([] if said is None else [said])
    assert all(refusal.code == "reserved" for refusal in found)


def test_policies_use_isolated_cpus_if_allowed_but_never_reserved_ones(view: View) -> None:
    view = replace(view, topology=replace(view.topology, isolated="6"))
    assert view.usable_cpus() == {0, 3, 7}
    assert view.usable_cpus(allow_isolated=True) == {0, 3, 6, 7}


def test_irq_spread_moves_an_interrupt_away_from_the_cpu_of_a_container(view: View) -> None:
    busy = replace(view, load=Load(busy=[0.1] * 8, softirq=[0.05] * 8, irqs=[IrqLoad(41, 1, 1000.0)]))
    decision = decide(busy, IrqSpread(), Scope(), IrqSpreadMemory())
    (proposal,) = decision.proposals
    assert proposal.key == "irq/41/affinity"
    assert proposal.value in {"0", "3", "6", "7"}
