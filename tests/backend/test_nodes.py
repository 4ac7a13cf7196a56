"""Nodes as the API tells of them."""

import asyncio

import pytest
from tests.backend.conftest import Backend
from tests.backend.fake_agent import FakeAgent, enrolled, hello, now_ms, rates, say_and_hear, tell
from tests.support.polling import PATIENCE_S

from coresteer.bus import Bus, InventoryEvent, NodeEvent
from coresteer.changes.validation import view_of_node
from coresteer.errors import Conflict, Invalid
from coresteer.nodes import service as nodes
from coresteer.nodes.repository import Existing
from coresteer.nodes.service import create_nodes
from coresteer.policies.snapshot_store import SnapshotStore
from coresteer.telemetry.byte_columns import compress
from coresteer_core.node.inventory import Inventory, Irq, Netdev
from coresteer_core.node.nic import CoalescingPoint, DriverRecord, DriverResponse, NicKnowledge, Verdict
from coresteer_core.node.tasks import NetTask, Task
from coresteer_core.node.topology import Cpu, NumaNode, Topology
from coresteer_core.protocol import (
    FlowsMessage,
    InventoryMessage,
    LearnedMessage,
    RatesMessage,
    TasksMessage,
    TopologyMessage,
    encode,
)

TOPOLOGY = Topology(
    [Cpu(0, 0, 0, 0, True, "0-1"), Cpu(1, 0, 0, 0, True, "0-1"), Cpu(2, None, None, None, False)],
    [NumaNode(0, "0-2", 2**30, [10])],
    [],
)
INVENTORY = Inventory(
    [
        Netdev("eth0", "ixgbe", 10**10, 1500, 0, True, False, True, []),
        Netdev("br0", "bridge", None, 1500, None, True, True, False, []),
    ],
    [Irq(41, "eth0-rx-0", "PCI-MSI", "0-1", "0", 0, True)],
)


async def _told(backend: Backend, agent: FakeAgent) -> None:
    """Send what an agent tells of its node, and wait until it is kept."""
    bus: Bus = backend.app.state.bus
    await tell(bus, agent, TopologyMessage(TOPOLOGY), InventoryMessage(INVENTORY), RatesMessage(rates(1)))
    await say_and_hear(bus, agent, TasksMessage(1, [Task(7, "x", 0, 0.5)]))


async def test_a_node_is_returned_as_its_agent_reported_it(backend: Backend) -> None:
    agent = await enrolled(backend.database, backend.url, "told")
    viewer = await backend.client("viewer")
    assert (await viewer.get(f"/api/v1/nodes/{agent.node_id}")).json()["health"] == "new"
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        await agent.greet(interval_s=60.0)  # it is live for three of them
        await _told(backend, agent)
        node = (await viewer.get(f"/api/v1/nodes/{agent.node_id}")).json()
        await agent.websocket.close()
    assert (node["name"], node["health"], node["mode"], node["observe_reason"]) == ("told", "live", "observe", "a test")
    assert (node["cpus"], node["packages"], node["numa_nodes"], node["drivers"]) == (2, 1, 1, ["ixgbe"])
    assert node["topology"]["cpus"][2] == {
        "cpu": 2, "core": None, "package": None, "numa_node": None, "online": False, "siblings": "", "capacity": None,
    }  # fmt: skip
    assert node["inventory"]["irqs"][0]["requested"] == "0-1"
    assert node["tasks"] == [{"pid": 7, "name": "x", "cpu": 0, "cpu_share": 0.5}]
    assert node["figures"]["metrics"]["rx_bytes_per_s"] > 0 and node["figures"]["metrics"]["interrupts_per_s"] > 0


async def test_nic_observations_of_an_agent_are_stored_and_part_of_the_view(backend: Backend) -> None:
    tried = DriverResponse("coalesce/rx-usecs", "500", Verdict.ROUNDED, "504", "", 1_700_000_000_000)
    point = CoalescingPoint("eth0", 54, None, False, 5.0, 5000, 500_000, 4000, 0, 1000.0, 5.0, 1_700_000_000_000)
    learned = NicKnowledge([DriverRecord("ixgbe", "6.1", [tried])], [point])
    agent = await enrolled(backend.database, backend.url, "learner")
    async with asyncio.timeout(PATIENCE_S), agent:
        await _told(backend, agent)
        async with backend.database.session() as session:
            assert view_of_node(await nodes.find_node(session, agent.node_id)).learned == NicKnowledge()
        bus: Bus = backend.app.state.bus
        with bus.subscribe() as events:
            await agent.say(LearnedMessage(learned))
            told = []
            async for event in events:
                told.append(event)
                if event == InventoryEvent(agent.node_id):
                    break
        assert NodeEvent(agent.node_id) not in told, "lists of nodes show nothing of it"
        async with backend.database.session() as session:
            assert view_of_node(await nodes.find_node(session, agent.node_id)).learned == learned


async def test_a_real_node_is_not_labelled_simulated_by_its_agents_word_nor_the_other_way_round(
    backend: Backend,
) -> None:
    async with backend.database.session() as session:
        (made_up,) = await create_nodes(session, ["made-up"], simulated=True)
    agent = FakeAgent(backend.url, made_up.key, made_up.node_id)
    await agent.connect()
    await agent.say(hello(simulated=False))
    await agent.receive()
    viewer = await backend.client("viewer")
    assert (await viewer.get(f"/api/v1/nodes/{agent.node_id}")).json()["simulated"] is True
    await agent.websocket.close()


async def test_labels_of_people_replace_each_other_and_are_audited(backend: Backend) -> None:
    agent = await enrolled(backend.database, backend.url, "labelled")
    operator, path = await backend.client("operator"), f"/api/v1/nodes/{agent.node_id}"
    assert (await operator.patch(path, json={"labels": {"rack": "r1", "role": "web"}})).status_code == 200
    bus: Bus = backend.app.state.bus
    async with asyncio.timeout(PATIENCE_S):
        with bus.subscribe() as events:
            answer = await operator.patch(path, json={"labels": {"rack": "r2"}})
            assert answer.json()["labels"] == {"rack": "r2"}
            async for event in events:
                if event == NodeEvent(agent.node_id):
                    break
    entries = (await operator.get(f"/api/v1/audit?node_id={agent.node_id}")).json()["entries"]
    assert [entry["action"] for entry in entries] == ["node.set_labels", "node.set_labels"]


@pytest.mark.parametrize(
    "labels",
    [
        {"Rack": "r1"},
        {"": "x"},
        {"rack": "r" * 64},
        {"rack": "\x00"},
        {"rack": "\ud800"},
        {"\ud800": "x"},
        {str(n): "" for n in range(129)},
    ],
)
async def test_a_label_that_is_none_is_refused(backend: Backend, labels: dict[str, str]) -> None:
    operator = await backend.client("operator")
    answer = await operator.patch("/api/v1/nodes/1", json={"labels": labels})
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"].startswith("labels")


async def test_a_deleted_node_is_gone_and_its_agent_disconnected(backend: Backend) -> None:
    agent = await enrolled(backend.database, backend.url, "deleted")
    operator, admin = await backend.client("operator"), await backend.client("admin")
    path = f"/api/v1/nodes/{agent.node_id}"
    assert (await operator.delete(path)).status_code == 403
    async with asyncio.timeout(PATIENCE_S), agent:
        assert (await admin.delete(path)).status_code == 204
        assert (await agent.closed())[0] == 4401
    assert (await admin.get(path)).status_code == 404
    assert (await admin.delete(path)).status_code == 404


async def test_readmission_after_a_key_was_revoked_gives_a_new_key_and_keeps_the_node(backend: Backend) -> None:
    first = await enrolled(backend.database, backend.url, "again")
    with pytest.raises(Conflict, match="already enrolled"):
        async with backend.database.session() as session:
            await create_nodes(session, ["again"], simulated=False)
    assert (await (await backend.client("admin")).post(f"/api/v1/nodes/{first.node_id}/revoke-key")).status_code == 204
    not_admitting: tuple[Existing, ...] = ("refuse", "rejoin")
    for existing in not_admitting:
        with pytest.raises(Conflict, match="was revoked"):
            async with backend.database.session() as session:
                await create_nodes(session, ["again"], simulated=False, existing=existing)
    async with backend.database.session() as session:
        (node,) = await create_nodes(session, ["again"], simulated=False, existing="readmit")
    second = FakeAgent(backend.url, node.key, node.node_id)
    assert (first.node_id, first.key == second.key) == (second.node_id, False)
    async with asyncio.timeout(PATIENCE_S):
        await first.connect()
        assert (await first.closed())[0] == 4401
        async with second:
            pass


async def test_names_that_clash_are_refused(backend: Backend) -> None:
    await enrolled(backend.database, backend.url, "real")
    with pytest.raises(Conflict, match="real"):
        async with backend.database.session() as session:
            await create_nodes(session, ["real"], simulated=True)
    with pytest.raises(Invalid, match="twice"):
        async with backend.database.session() as session:
            await create_nodes(session, ["a", "a"], simulated=True)


async def test_a_deleted_node_leaves_no_users_commands_or_client_addresses(backend: Backend) -> None:
    agent = await enrolled(backend.database, backend.url, "forgotten")
    snapshots: SnapshotStore = backend.app.state.agents.snapshots
    task = NetTask(812, 5, "nginx", None, 4, "0-3", "0-3", 1, 0.4, 0.0, [], user="ada", clients=["192.0.2.7"])

    async def stored() -> int:
        await snapshots.flush()
        async with backend.database.pool.connection() as connection:
            query = "SELECT count(*) FROM telemetry_flows WHERE node_id = %s"
            row = await (await connection.execute(query, (agent.node_id,))).fetchone()
        return 0 if row is None else int(row[0])

    flows = compress(encode(FlowsMessage(now_ms(), [task])))
    snapshots.add_flows(agent.node_id, now_ms() - 60_000, flows)
    assert await stored() == 1
    admin = await backend.client("admin")
    assert (await admin.delete(f"/api/v1/nodes/{agent.node_id}")).status_code == 204
    assert await stored() == 0
    snapshots.add_flows(agent.node_id, now_ms(), flows)  # which arrived before its connection ended
    assert await stored() == 0
