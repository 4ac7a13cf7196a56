"""Experiments over HTTP: permissions, refusals with the field, and previews."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from tests.backend.conftest import Backend
from tests.backend.experiment_node import QUICK, ExperimentNode, experiment_node, never_completes

LEVEL = "spec.factors[0].levels[1]"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def node(backend: Backend) -> AsyncIterator[ExperimentNode]:
    backend.app.state.runner.patience = QUICK
    async with experiment_node(backend) as node:
        node.answer = never_completes
        yield node


async def test_a_viewer_can_preview_but_not_start(backend: Backend, node: ExperimentNode) -> None:
    viewer = await backend.client("viewer")
    preview = (await viewer.post("/api/v1/experiments/preview", {"spec": node.spec()})).json()
    assert preview["blocked_because"].startswith(
        "Starting an experiment requires the role operator; yours is viewer on"
    )
    assert (await viewer.post("/api/v1/experiments", {"spec": node.spec()})).status_code == 403
    assert (await viewer.get("/api/v1/experiments")).status_code == 200


async def test_a_preview_describes_each_arm_and_the_duration(node: ExperimentNode) -> None:
    levels = [
        {"name": "as it is"},
        {"name": "irqbalance", "irqbalance": True},
        {"name": "µs", "settings": [{"key": "netdev/{netdev}/coalesce/rx-usecs", "value": "96"}]},
        {"name": "CPU 7", "settings": [{"key": node.key, "value": "7"}], "workload": {"server_cpus": "3"}},
    ]
    spec = node.spec(kind="sweep", factors=[{"name": "what", "levels": levels}])
    preview = (await node.operator.post("/api/v1/experiments/preview", {"spec": spec})).json()
    assert preview["blocked_because"] is None
    assert preview["runs"] == 24
    assert preview["sentence"].startswith("24 runs (tcp-request) on node-")
    as_it_is, irqbalance, coalescing, moved = preview["arms"]
    assert as_it_is == {"name": "as it is", "sentence": "The node as it is, without enforced policies.", "commands": []}
    assert "irqbalance runs" in irqbalance["sentence"]
    assert coalescing["commands"] == ["ethtool -C coresteer0 rx-usecs 96"]
    assert "{netdev}" not in coalescing["sentence"]
    assert "Workload: server cpus 3." in moved["sentence"]
    assert moved["commands"] == [f"echo 7 > /proc/irq/{node.irq}/smp_affinity_list"]


@pytest.mark.parametrize(
    ("kind", "blocks", "warning"),
    [
        ("aa", 5, "With 5 blocks no difference can be significant, however large; use 6."),
        ("ab", 6, "With 5 A/A blocks the node's own variation cannot be determined; use 6."),
        ("sweep", 4, "With 4 blocks no difference can be significant, however large; use 5."),
    ],
)
async def test_a_preview_warns_of_too_few_blocks(node: ExperimentNode, kind: str, blocks: int, warning: str) -> None:
    levels = [
        {"name": str(cpu), "workload": {"server_cpus": str(cpu)}} for cpu in range({"ab": 2, "sweep": 3}.get(kind, 0))
    ]
    factors = [{"name": "CPU", "levels": levels}] if levels else []
    spec = node.spec(kind=kind, factors=factors, blocks=blocks, aa_blocks=6 if kind == "sweep" else 5)
    assert (await node.operator.post("/api/v1/experiments/preview", {"spec": spec})).json()["warnings"] == [warning]


def level(**changes: object) -> Callable[[ExperimentNode], dict[str, Any]]:
    """Return a function that makes a spec whose second level has these changes."""
    return lambda node: node.spec(
        factors=[{"name": "what", "levels": [{"name": "as it is"}, {"name": "other"} | changes]}]
    )


def desired_value(key: str, value: str) -> Callable[[ExperimentNode], dict[str, Any]]:
    return lambda node: level(settings=[{"key": key.replace("IRQ", str(node.irq)), "value": value}])(node)


def spec(**changes: object) -> Callable[[ExperimentNode], dict[str, Any]]:
    return lambda node: node.spec(**changes)


BAD: list[tuple[Callable[[ExperimentNode], dict[str, Any]], str, str]] = [
    (spec(node_id=2**31 - 1), "spec.node_id", "There is no node"),
    (spec(peer_node_id=2**31 - 1), "spec.peer_node_id", "There is no node"),
    (lambda node: node.spec(peer_node_id=node.id), "spec.peer_node_id", "another node"),
    (spec(workload={"type": "observe"}, peer_node_id=1), "spec.peer_node_id", "no client"),
    (
        spec(workload={"type": "tcp-request", "server_cpus": "0-99"}),
        "spec.workload.server_cpus",
        "CPU 8 is not online",
    ),
    (spec(workload={"type": "tcp-request", "client_cpus": "3-1"}), "spec.workload.client_cpus", ""),
    (spec(workload={"type": "memory", "memory_cpus": "99"}), "spec.workload.memory_cpus", "CPU 99 is not online"),
    (spec(workload={"type": "memory", "compute_cpus": "3-1"}), "spec.workload.compute_cpus", ""),
    (spec(workload={"type": "bsp", "cpus": "99"}), "spec.workload.cpus", "CPU 99 is not online"),
    (spec(workload={"type": "bsp"}, peer_node_id=1), "spec.peer_node_id", "set Machines to 2"),
    (
        lambda node: level(workload={"machines": 2})(node) | {"workload": {"type": "bsp"}},
        f"{LEVEL}.workload",
        "the same number of machines",
    ),
    (spec(workload={"type": "tcp-request", "connection": 4}), "spec.workload.connection", "connection is not a field"),
    (level(setting=[]), f"{LEVEL}.setting", "setting is not a field here"),
    (spec(name="a\nb"), "spec.name", "control characters"),
    (spec(blocks=2), "spec.blocks", "Expected int >= 3"),
    (spec(kind="aa"), "spec", "must not have factors"),
    (spec(primary="speed"), "spec", "There is no metric speed"),
    (spec(guardrails=[{"metric": "speed", "max": 1}]), "spec.guardrails[0].metric", "“speed”"),
    (spec(guardrails=[{"metric": "dropped_per_s", "max": -1}]), "spec.guardrails[0].max", "a number of at least 0"),
    (desired_value("speed", "1"), f"{LEVEL}.settings[0].key", "not a setting"),
    (desired_value("irq/IRQ/affinity", "x"), f"{LEVEL}.settings[0].value", "not a CPU"),
    (desired_value("irq/IRQ/affinity", "63"), f"{LEVEL}.settings[0].value", "not online"),
    (desired_value("irq/9999/affinity", "1"), f"{LEVEL}.settings[0].key", "9999"),
    (desired_value("netdev/{netdev}/speed", "1"), f"{LEVEL}.settings[0].key", "not a setting"),
    (desired_value("netdev/{netdev}/coalesce/rx-usecs", "x"), f"{LEVEL}.settings[0].value", "not a number"),
    (level(policy={"policy_id": 2**31 - 1, "version": 1}), f"{LEVEL}.policy.policy_id", "There is no policy"),
    (level(workload={"speed": 1}), f"{LEVEL}.workload.speed", "tcp-request has no field speed"),
    (level(workload={"connections": 0}), f"{LEVEL}.workload.connections", "Expected int >= 1"),
    (level(workload={"client_cpus": "63"}), f"{LEVEL}.workload.client_cpus", "CPU 63"),
]


@pytest.mark.parametrize(("make", "field", "says"), BAD)
async def test_an_invalid_spec_is_refused_with_the_field(
    node: ExperimentNode, make: Callable[[ExperimentNode], dict[str, Any]], field: str, says: str
) -> None:
    for path in ("/api/v1/experiments/preview", "/api/v1/experiments"):
        answer = await node.operator.post(path, {"spec": make(node)})
        assert answer.status_code == 422, answer.text
        (error,) = answer.json()["errors"]
        assert error["field"] == field, error
        assert says in error["message"]


async def test_two_factors_cannot_have_the_same_setting(node: ExperimentNode) -> None:
    factors = [
        {"name": name, "levels": [{"name": "a"}, {"name": "b", "settings": [{"key": node.key, "value": cpu}]}]}
        for name, cpu in (("one", "6"), ("two", "7"))
    ]
    answer = await node.operator.post("/api/v1/experiments/preview", {"spec": node.spec(kind="sweep", factors=factors)})
    assert answer.status_code == 422
    assert "is named twice" in answer.json()["detail"]


async def test_the_placeholder_needs_a_workload_with_traffic(node: ExperimentNode) -> None:
    made = desired_value("netdev/{netdev}/coalesce/rx-usecs", "3")(node) | {"workload": {"type": "observe"}}
    answer = await node.operator.post("/api/v1/experiments/preview", {"spec": made})
    assert answer.json()["errors"][0]["field"] == f"{LEVEL}.settings[0].key"


async def test_a_disconnected_node_blocks_the_start(backend: Backend) -> None:
    async with experiment_node(backend) as away:
        await away.disconnect()
        preview = (await away.operator.post("/api/v1/experiments/preview", {"spec": away.aa_spec()})).json()
        assert "is disconnected" in preview["blocked_because"]
        refused = await away.operator.post("/api/v1/experiments", {"spec": away.aa_spec()})
        assert (refused.status_code, refused.json()["detail"]) == (409, preview["blocked_because"])
        await away.connect()


async def test_an_agent_that_only_observes_can_be_measured_but_not_changed(backend: Backend) -> None:
    async with experiment_node(backend) as node:
        await node.disconnect()
        await node.connect(mode="observe", observe_reason="It is not root.")
        blocked = (await node.operator.post("/api/v1/experiments/preview", {"spec": node.spec()})).json()
        assert "It is not root." in blocked["blocked_because"]
        aa_spec = (await node.operator.post("/api/v1/experiments/preview", {"spec": node.aa_spec()})).json()
        assert aa_spec["blocked_because"] is None


async def test_experiments_are_listed_by_node_and_state_and_page_by_page(node: ExperimentNode) -> None:
    started = [await node.start(node.aa_spec(name=str(number))) for number in range(3)]
    first = (await node.operator.get(f"/api/v1/experiments?node_id={node.id}&limit=2")).json()
    assert [one["name"] for one in first["experiments"]] == ["2", "1"]
    rest = (
        await node.operator.get(f"/api/v1/experiments?node_id={node.id}&limit=2&older_than={first['older']}")
    ).json()
    assert ([one["name"] for one in rest["experiments"]], rest["older"]) == (["0"], None)
    queued = (await node.operator.get(f"/api/v1/experiments?node_id={node.id}&state=queued")).json()
    assert [one["queue_position"] for one in queued["experiments"]][-1] in (1, 2)
    for one in reversed(started):
        assert (await node.operator.post(f"/api/v1/experiments/{one['id']}/cancel")).status_code == 200
