"""Agents and backends of the previous and of today's version work with each other."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.polling import poll_async
from tests.upgrade.installation import FOUND, installation
from tests.upgrade.releases import PREVIOUS, TODAY, Tree

from coresteer.postgres import EmbeddedPostgres
from coresteer_core.protocol import lacking


def features(tree: Tree) -> list[str]:
    """Return the features of the wire protocol that a version knows; 0.1.0 has none."""
    says = "from coresteer_core import protocol; print(*getattr(protocol, 'FEATURES', ()))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", says], env=tree.environment(), check=True, capture_output=True, text=True
    )
    return done.stdout.split()


@pytest.mark.slow("an agent undoes a change 10 s after it has lost its backend")
@pytest.mark.parametrize("backend_is", ["today's", "previous"])
async def test_an_agent_streams_and_changes_with_a_backend_of_the_other_version(
    backend_is: str, previous: Tree, postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    of_backend, of_agent = (TODAY, previous) if backend_is == "today's" else (previous, TODAY)
    async with installation(postgres_server, tmp_path) as made:
        await made.migrate(of_backend)
        backend = await made.backend(of_backend)
        client = await made.administrator(backend)
        agent = await made.agent(of_agent, backend)
        operator = await made.operator(client, agent)
        if of_backend is TODAY:
            assert (await operator.node())["lacks"] == lacking(features(of_agent))
        else:
            assert (await operator.get("/health"))["version"] == PREVIOUS.version
            unknown = ", ".join(lacking(features(of_backend)))
            says = f"is older than this agent and does not know: {unknown}."
            assert (says in agent.log.read_text()) == bool(unknown)

        kept = await operator.move(41)
        assert agent.affinity(41) == "1"
        await operator.post(f"/changes/{kept}/confirm")
        await operator.until(kept, "confirmed")
        undone = await operator.move(42)
        await operator.post(f"/changes/{undone}/rollback")
        await operator.until(undone, "rolled_back")
        assert agent.affinity(42) == FOUND

        lost = await operator.move(42)
        assert agent.affinity(42) == "1"
        await backend.end(kill=True)
        await poll_async(lambda: agent.affinity(42) == FOUND)
        await backend.start()
        assert (await operator.until(lost, "rolled_back"))["ended_by"] == "lost_backend"
        await made.until_acknowledged(operator.node_id, 20)

        await agent.end()
        assert agent.affinity(41) == "1", "what was confirmed stays"
        await agent.restore()
        assert agent.affinity(41) == FOUND
        await backend.end()
        await made.check_samples(operator.node_id)
        assert backend.errors() == agent.errors() == []
