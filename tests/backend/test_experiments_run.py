"""Experiments from their start to their end, with a real database and an agent that does what it is told."""

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.backend.conftest import Backend
from tests.backend.experiment_node import QUICK, ExperimentNode, experiment_node

from coresteer_core.protocol import EndExperiment


@pytest_asyncio.fixture
async def node(backend: Backend) -> AsyncIterator[ExperimentNode]:
    backend.app.state.runner.patience = QUICK
    async with experiment_node(backend) as node:
        yield node


async def test_a_comparison_is_measured_to_its_end_and_leaves_everything_as_before(node: ExperimentNode) -> None:
    before = node.affinity
    begun = await node.start(node.spec())
    assert begun["runs_planned"] == 24
    done = await node.ended(begun["id"])
    assert (done["state"], done["runs_done"], done["runs_discarded"]) == ("done", 24, 0), done["sentence"]
    assert node.affinity == before
    assert done["settings"]["before"] == done["settings"]["after"] == {node.key: before}
    assert isinstance(node.got[-1], EndExperiment)
    (found,) = [one for one in done["analysis"]["comparisons"] if one["metric"] == "requests_per_s"]
    assert round(found["effect"]["value"], 3) == 0.1
