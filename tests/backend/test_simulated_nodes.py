"""The simulated fleet that the backend of `coresteer up` starts and removes."""

from collections.abc import AsyncIterator

import psutil
import pytest_asyncio
from tests.backend.conftest import Backend, Client, running_backend
from tests.support.polling import poll_async
from tests.support.processes import command_line

PATH = "/api/v1/simulated-nodes"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def supervised(database_url: str) -> AsyncIterator[Backend]:
    """A backend as `coresteer up` starts it, with a fleet of simulated nodes."""
    async with running_backend(database_url, supervised=True) as backend:
        admin = await backend.client("admin")
        started = await admin.post(PATH)
        assert started.status_code == 201, started.text
        await poll_async(lambda: all_live(admin))
        yield backend


def simulations() -> list[psutil.Process]:
    """The processes of this one that simulate nodes."""
    return [child for child in psutil.Process().children() if " simulate " in command_line(child)]


async def nodes(client: Client) -> dict[str, int]:
    """The ids of all nodes by name."""
    return {node["name"]: node["id"] for node in (await client.get("/api/v1/nodes")).json()}


async def all_live(client: Client) -> bool:
    listed = (await client.get("/api/v1/nodes")).json()
    offered = (await client.get(PATH)).json()["offered"]
    return len(listed) == offered and all(node["health"] == "live" and node["simulated"] for node in listed)


async def test_the_fleet_runs_as_a_child_without_database_access(supervised: Backend) -> None:
    client = await supervised.client("viewer")
    state = (await client.get(PATH)).json()
    assert state == {"nodes": 50, "offered": 50, "running": True, "unavailable_because": None, "failure": None}
    (process,) = simulations()
    assert not any("DATABASE" in name for name in process.environ())
    assert "cse_" not in " ".join(process.cmdline())


async def test_a_second_start_is_refused_and_starts_are_audited(supervised: Backend) -> None:
    admin = await supervised.client("admin")
    again = await admin.post(PATH)
    assert (again.status_code, again.json()["detail"]) == (409, "The simulated nodes are running already.")
    entries = (await admin.get("/api/v1/audit")).json()["entries"]
    (entry,) = (entry for entry in entries if entry["action"] == "simulated-nodes.start")
    assert (entry["actor"], entry["detail"]) == ("admin", {"nodes": 50})
    assert len(simulations()) == 1


async def test_a_simulation_that_ends_by_itself_says_so_and_starts_again_with_the_same_nodes(
    supervised: Backend,
) -> None:
    admin = await supervised.client("admin")
    before = await nodes(admin)
    (process,) = simulations()
    process.kill()

    async def failure() -> str | None:
        found: str | None = (await admin.get(PATH)).json()["failure"]
        return found

    await poll_async(failure)
    assert await failure() == "The process ended with status -9."
    assert not (await admin.get(PATH)).json()["running"]
    assert (await admin.post(PATH)).json()["running"]
    await poll_async(lambda: all_live(admin))
    assert await nodes(admin) == before


async def test_removal_ends_the_process_and_leaves_no_node(supervised: Backend) -> None:
    admin = await supervised.client("admin")
    some = next(iter((await nodes(admin)).values()))
    assert (await admin.delete(PATH)).status_code == 204
    assert simulations() == []
    assert (await admin.get("/api/v1/nodes")).json() == []
    assert (await admin.get(f"/api/v1/nodes/{some}")).status_code == 404
    state = (await admin.get(PATH)).json()
    assert (state["nodes"], state["running"], state["failure"]) == (0, False, None)


async def test_the_process_ends_with_its_backend(database_url: str) -> None:
    async with running_backend(database_url, supervised=True) as backend:
        assert (await (await backend.client("admin")).post(PATH)).status_code == 201
        assert len(simulations()) == 1
    assert simulations() == []


async def test_a_backend_without_coresteer_up_says_what_to_run_instead(backend: Backend) -> None:
    admin = await backend.client("admin")
    refused = await admin.post(PATH)
    assert refused.status_code == 409
    assert "coresteer-agent simulate" in refused.json()["detail"]
    assert (await admin.get(PATH)).json()["unavailable_because"] == refused.json()["detail"]
