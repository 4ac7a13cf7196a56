"""Previews of changes: plan, inverse, sentences, commands, warnings, refusals and predicted effect."""

import msgspec
import pytest
from tests.core.policy_machines import captured
from tests.golden import server
from tests.golden.store import check

from coresteer_core.changes.effect import predict_effect
from coresteer_core.changes.plan import DesiredValue, inverse, preview
from coresteer_core.node.view import View
from coresteer_core.settings.params import PARAMS

DESIRED: dict[str, list[tuple[str, str]]] = {
    "interrupt affinity": [
        ("irq/40/affinity", "2-3"), ("irq/40/affinity", "1"), ("irq/40/affinity", "12"), ("irq/40/affinity", "9"),
        ("irq/40/affinity", "0"), ("irq/50/affinity", "9"), ("irq/40/affinity", "15"), ("irq/40/affinity", "6"),
        ("irq/60/affinity", "5"), ("irq/61/affinity", "5"), ("irq/99/affinity", "5"), ("irq/40/affinity", "3-1"),
        ("irq/40/affinity", ""), ("irq/x/affinity", "1"),
    ],
    "task affinity": [
        ("task/812/affinity", "0-1"), ("task/812/affinity", "0-3;812=1"), ("task/813/affinity", "4"),
        ("task/812/affinity", "6"), ("task/814/affinity", "1"), ("task/999/affinity", "1"), ("task/812/affinity", "x"),
    ],
    "nice value": [
        ("task/812/nice", "-5"), ("task/812/nice", "5;812=7"), ("task/813/nice", "5"), ("task/815/nice", "-5"),
        ("task/814/nice", "1"), ("task/812/nice", "20"), ("task/999/nice", "1"),
    ],
    "cgroup weight": [
        ("cgroup/web.slice/cpu.weight", "400"), ("cgroup/web.slice/io.weight", "50"),
        ("cgroup/docker/1/cpu.shares", "2048"), ("cgroup/web.slice/cpu.weight", "0"),
        ("cgroup/web.slice/cpu.weight", "much"), ("cgroup/db.slice/cpu.weight", "100"),
    ],
    "cgroup cpuset": [
        ("cgroup/web.slice/cpuset.mems", "1"), ("cgroup/web.slice/cpuset.mems", "inherited"),
        ("cgroup/web.slice/cpuset.mems", "0-1"), ("cgroup/web.slice/cpuset.mems", "7"),
        ("cgroup/web.slice/cpuset.mems", "one"), ("cgroup/web.slice/nginx.service/cpuset.mems", "1"),
        ("cgroup/db.slice/cpuset.mems", "1"), ("cgroup/web.slice/cpuset.cpus", "0-3"),
        ("cgroup/web.slice/cpuset.cpus", "inherited"), ("cgroup/web.slice/cpuset.cpus", "6"),
        ("cgroup/web.slice/cpuset.cpus", "15"), ("cgroup/small.slice/1/cpuset.cpus", "1-2"),
        ("cgroup/small.slice/1/cpuset.cpus", "0-1"),
    ],
    "packet steering": [
        ("netdev/eth0/rx-0/rps", "0-3"), ("netdev/eth1/rx-0/rps", "none"), ("netdev/eth0/rx-9/rps", "1"),
        ("netdev/eth0/rx-0/rps", "15"), ("netdev/eth0/tx-1/xps", "0,8"), ("netdev/eth0/tx-1/xps", "none"),
        ("netdev/eth1/tx-0/xps", "1"), ("netdev/eth9/tx-0/xps", "1"), ("netdev/eth0/rx-0/rps_flow_cnt", "4096"),
        ("netdev/eth0/rx-0/rps_flow_cnt", "5000"), ("netdev/eth1/rx-0/rps_flow_cnt", "4096"),
        ("netdev/eth1/ntuple", "on"), ("kernel/rps_sock_flow_entries", "32768"),
        ("netdev/eth0/flow-rule/7", "flow-type tcp4 dst-ip 10.0.0.1 dst-port 80 action 3"),
        ("netdev/eth0/flow-rule/7", "flow-type tcp4 dst-port 80 action 9"), ("netdev/eth0/flow-rule/2", "none"),
        ("netdev/eth0/flow-rule/3", "none"), ("netdev/eth0/flow-rule/99", "none"), ("netdev/eth1/flow-rule/7", "none"),
        ("netdev/eth0/flow-rule/7", "flow-type tcp6 dst-ip 10.0.0.1 dst-port 80 action 3"),
        ("kernel/rps_sock_flow_entries", "40000"), ("kernel/netdev_budget", "600"), ("kernel/busy_poll", "50"),
    ],
    "RSS table and channels": [
        ("netdev/eth0/rss", "0,1"), ("netdev/eth0/rss", "0,9"), ("netdev/eth0/rss", "a"), ("netdev/eth1/rss", "0"),
        ("netdev/eth0/channels", "combined 8"), ("netdev/eth0/channels", "combined 99"),
        ("netdev/eth0/channels", "combined 2"), ("netdev/eth0/channels", "many"),
        ("netdev/eth1/channels", "combined 1"),
    ],
    "parameters of a netdev": [
        *((f"netdev/eth0/{p.name}", "on" if p.is_switch else "16") for p in PARAMS.values() if p.of_netdev),
        *(("netdev/eth0/coalesce/rx-usecs", value) for value in ("77", "78", "79", "5000", "99999", "long")),
        ("netdev/eth0/coalesce/rx-usecs", "0"), ("netdev/eth0/coalesce/adaptive-rx", "perhaps"),
        ("netdev/eth0/ring/rx", "16384"), ("netdev/eth1/coalesce/rx-usecs", "100"), ("netdev/eth1/ring/rx", "64"),
        ("netdev/eth1/gro_flush_timeout", "2000000"), ("netdev/eth9/ring/rx", "64"), ("netdev/eth0/coalesce/x", "1"),
    ],
    "parameters of a queue": [
        ("netdev/eth0/rx-0/coalesce/rx-usecs", "64"), ("netdev/eth0/rx-0/coalesce/adaptive-rx", "on"),
        ("netdev/eth0/tx-1/coalesce/tx-frames", "4"), ("netdev/eth0/rx-0/gro_flush_timeout", "20000"),
        ("netdev/eth0/rx-0/napi_defer_hard_irqs", "2"), ("netdev/eth0/rx-0/napi_defer_hard_irqs", "2000"),
        ("netdev/eth0/rx-7/coalesce/rx-usecs", "64"), ("netdev/eth1/rx-0/coalesce/rx-usecs", "64"),
    ],
}  # fmt: skip
TOGETHER: dict[str, list[tuple[str, str]]] = {
    "all interrupts of a NIC on one core": [(f"irq/{40 + n}/affinity", "0") for n in range(4)],
    "a NIC that waits longer": [
        ("netdev/eth0/coalesce/adaptive-rx", "off"),
        ("netdev/eth0/coalesce/rx-usecs", "90"),
        ("netdev/eth0/coalesce/rx-frames", "42"),
    ],
    "several kinds at once": [
        ("irq/41/affinity", "2"),
        ("task/812/affinity", "2"),
        ("task/812/nice", "-1"),
        ("cgroup/web.slice/cpu.weight", "200"),
        ("netdev/eth0/rx-1/rps", "2-3"),
    ],
    "the same twice": [("irq/41/affinity", "2"), ("irq/41/affinity", "3")],
    "nothing": [],
}
CAPTURED = ("16em64t-4s2c2t-offlines", "20em64t-hybrid-1p6c2t+2ca4co1t", "64amd64-4s2n4ca2co")


def told(view: View, desired: list[tuple[str, str]], *, allow_isolated: bool = False) -> dict[str, object]:
    """A preview as JSON, without what is empty."""
    said = preview(
        view,
        [DesiredValue(*desired_value) for desired_value in desired],
        reason="golden",
        allow_isolated=allow_isolated,
    )
    undone = inverse(said.plan)
    plain = msgspec.to_builtins(said)
    plain["plan"] = [f"{each.key}: {each.was} → {each.becomes} ({each.reason})" for each in said.plan.actions]
    plain["inverse"] = [f"{each.key}: {each.was} → {each.becomes} ({each.reason})" for each in undone.actions]
    plain["expected"] = [] if said.refused else predict_effect(said.plan, view, server.rates())
    for each in ("warnings", "refused"):
        plain[each] = [f"{why['code']} {why['key']}: {why['sentence']}" for why in plain[each]]
    return {name: value for name, value in plain.items() if value}


@pytest.mark.parametrize("kind", DESIRED)
def test_each_kind_of_setting_is_previewed_as_before(kind: str) -> None:
    view = server.view()
    said = [{"desired_value": f"{key} = {value}", **told(view, [(key, value)])} for key, value in DESIRED[kind]]
    check(f"previews/{kind.replace(' ', '_')}", said)


def test_plans_of_several_actions_are_previewed_as_before() -> None:
    said = {name: told(server.view(), desired) for name, desired in TOGETHER.items()}
    said["an isolated CPU that is meant"] = told(server.view(), [("irq/40/affinity", "6")], allow_isolated=True)
    said["beside irqbalance"] = told(server.view(("irqbalance", "tuned")), TOGETHER["several kinds at once"])
    everything = [
        (f"netdev/eth0/{whose}{name}", "off" if name.endswith("adaptive-rx") else "on" if param.is_switch else "16")
        for name, param in PARAMS.items()
        if param.of_netdev
        for whose in ("", *(f"{param.queue}-{n}/" for n in range(4) if param.queue))
    ]
    everything += [("irq/40/affinity", "9")]
    said["more than a plan may change"] = {"refused": told(server.view(), everything)["refused"]}
    check("previews/together", said)


@pytest.mark.parametrize("name", CAPTURED)
def test_moves_on_captured_machines_are_previewed_as_before(name: str) -> None:
    view = captured(name).view
    last = max(view.topology.online())
    keys = [f"irq/{irq.irq}/affinity" for irq in view.inventory.irqs[:6]]
    keys += [f"task/{task.pid}/affinity" for task in view.tasks[:4]]
    check(f"previews/{name}", [{"desired_value": f"{key} = {last}", **told(view, [(key, str(last))])} for key in keys])
