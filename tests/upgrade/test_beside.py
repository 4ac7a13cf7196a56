"""The previous version's backend works on while the schema is migrated to today's, and beside today's backend."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.backend.conftest import PASSWORD
from tests.support.polling import poll_async
from tests.upgrade.installation import FOUND, BackendProcess, Installation, Operator, installation
from tests.upgrade.releases import TODAY, Tree

from coresteer.postgres import EmbeddedPostgres


async def use(made: Installation, operator: Operator, backend: BackendProcess, *, step: str) -> None:
    """Read and write at a backend what a fleet needs: samples, changes, policies, users, enrolment tokens."""
    operator = operator.at(backend)
    await made.until_acknowledged(operator.node_id, 5)
    for cpus in ("1", FOUND):
        change_id = await operator.move(41, cpus)
        await operator.post(f"/changes/{change_id}/confirm")
        await operator.until(change_id, "confirmed")
    undone = await operator.move(42)
    await operator.post(f"/changes/{undone}/rollback")
    await operator.until(undone, "rolled_back")
    body = {"name": f"spread {step}", "spec": {"type": "irq-spread"}, "mode": "observe"}
    policy = await operator.post("/policies", body)
    path = f"/policies/{policy['id']}"
    await operator.post(f"{path}/enable")
    await operator.post(f"{path}/versions", {"body": body | {"rank": 50}, "note": step})
    await operator.post("/users", {"username": f"viewer-{step}", "password": PASSWORD, "role": "viewer"})
    await operator.post("/enrolment-tokens", {})
    for name in ("nodes", "policies", "changes", "audit", "users", "experiments"):
        await operator.get(f"/{name}")
    await poll_async(lambda: has_history(operator))


async def has_history(operator: Operator) -> bool:
    """Whether the backend reads stored samples of the node."""
    now = datetime.now(UTC)
    query = {"from_time": (now - timedelta(minutes=10)).isoformat(), "to_time": now.isoformat(), "points": 60}
    path = f"/nodes/{operator.node_id}/series?{urlencode(query | {'metric': 'interrupts_per_s'})}"
    values = (await operator.get(path))["values"]["interrupts_per_s"]
    return any(value is not None for value in values)


@pytest.mark.slow("starts three backends and three agents, one after the other")
async def test_the_previous_backend_works_on_a_schema_of_today_and_beside_a_backend_of_today(
    previous: Tree, postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with installation(postgres_server, tmp_path) as made:
        await made.migrate(previous)
        old = await made.backend(previous)
        client = await made.administrator(old)
        agents = [await made.agent(previous, old)]
        nodes = [await made.operator(client, agents[0])]
        await use(made, nodes[0], old, step="before")

        await made.migrate(TODAY)
        await use(made, nodes[0], old, step="migrated")
        agents.append(await made.agent(previous, old))
        nodes.append(await made.operator(client, agents[1]))
        await use(made, nodes[1], old, step="enrolled")

        new = await made.backend(TODAY)
        agents.append(await made.agent(TODAY, new))
        nodes.append((await made.operator(client, agents[2], new)).at(old))
        await use(made, nodes[2], new, step="new")
        await use(made, nodes[0], old, step="beside")
        for node in nodes:
            for backend in (old, new):
                assert await has_history(node.at(backend))
        in_force = [await node.at(backend).get("/policies") for node in nodes[:1] for backend in (old, new)]
        assert [policy["name"] for policy in in_force[0]] == [policy["name"] for policy in in_force[1]]

        await old.end()
        successor = await made.backend(TODAY, in_place_of=old)
        await use(made, nodes[0], successor, step="replaced")
        for node in nodes:
            await made.check_samples(node.node_id)

        operator = nodes[1].at(successor)
        kept = await operator.move(41)
        await operator.post(f"/changes/{kept}/confirm")
        await operator.until(kept, "confirmed")
        agents[1] = await made.replaced(agents[1], TODAY, successor)
        await made.until_acknowledged(operator.node_id, 5)
        assert agents[1].affinity(41) == "1", "what was confirmed stays"
        undone = await operator.move(42)
        await operator.post(f"/changes/{undone}/rollback")
        await operator.until(undone, "rolled_back")
        await agents[1].end()
        await agents[1].restore()
        assert (agents[1].affinity(41), agents[1].affinity(42)) == (FOUND, FOUND)
        assert [error for process in made.processes for error in process.errors()] == []
