"""A tune from start to end, with a real database and a scripted agent."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio
from tests.backend.conftest import Backend, running_backend
from tests.backend.experiment_node import QUICK, ExperimentNode, experiment_node, never_completes

from coresteer_core.experiments.model import RunState
from coresteer_core.protocol import ExperimentMessage, RunExperiment


@pytest_asyncio.fixture
async def node(backend: Backend) -> AsyncIterator[ExperimentNode]:
    backend.app.state.runner.timeouts = QUICK
    async with experiment_node(backend) as node:
        yield node


def delays(node: ExperimentNode, *usecs: int) -> list[dict[str, object]]:
    key = f"netdev/{node.node.inventory.netdevs[0].name}/coalesce/rx-usecs"
    as_it_is: dict[str, object] = {"name": "as it is"}
    return [as_it_is] + [
        {"name": f"{value} µs", "settings": [{"key": key, "value": str(value)}], "value": value} for value in usecs
    ]


def tune_spec(node: ExperimentNode, **changes: object) -> dict[str, object]:
    cpus = [{"name": "as it is"}, {"name": "CPU 7", "settings": [{"key": node.key, "value": "7"}]}]
    factors = [
        {"name": "rx-usecs", "levels": delays(node, 8, 16, 32, 64, 128)},
        {"name": "interrupt", "levels": cpus},
    ]
    tune = {"latency": "rtt_p99_us", "limit": 500, "max_runs": 40}
    return node.spec(**{"kind": "tune", "primary": "cpu_busy_percent", "factors": factors, "tune": tune, **changes})


def complete(node: ExperimentNode, request: RunExperiment) -> list[ExperimentMessage]:
    return node.complete(request, figures=costs(node))


def costs(node: ExperimentNode) -> dict[str, float]:
    """CPU time falls with rx-usecs and on CPU 7; response times rise."""
    usecs = int(node.node.inventory.netdevs[0].params["coalesce/rx-usecs"])
    return {
        "cpu_busy_percent": 100 / (1 + usecs / 50) * (0.9 if node.affinity == "7" else 1.0),
        "rtt_p99_us": 300.0 + 5 * usecs,
    }


async def test_a_tune_finds_the_best_combination_and_restores_all_settings(node: ExperimentNode) -> None:
    node.answer = complete
    before = node.affinity, dict(node.node.inventory.netdevs[0].params)
    started = await node.start(tune_spec(node))
    assert (started["runs_planned"], started["kind"]) == (40, "tune")
    done = await node.ended(started["id"])
    assert done["state"] == "done", done["sentence"]
    assert (node.affinity, dict(node.node.inventory.netdevs[0].params)) == before
    assert done["settings"]["before"] == done["settings"]["after"]
    tune = done["tune"]
    assert (tune["best"], tune["stopped"], tune["combinations"]) == ([3, 1], "converged", 12)
    assert done["runs_done"] < 40
    assert done["arms"][0] == "as it is, as it is"
    assert [each["name"] for each in tune["candidates"]] == done["arms"]
    assert done["findings"][0].startswith("The best combination found is 32 µs, CPU 7: CPU, all CPUs together")
    path = f"/api/v1/experiments/{started['id']}/report"
    report, korean = [(await node.operator.get(f"{path}?language={language}")).text for language in ("en", "ko")]
    assert "Measured combinations" in report
    assert "exceeds the limit" in report
    assert "측정한 조합" in korean
    assert "Measured combinations" not in korean
    assert (await node.operator.get(f"{path}?format=csv")).status_code == 200
    assert (await node.operator.get(f"/api/v1/changes?node_id={node.id}&open=true")).json()["changes"] == []


async def test_a_tune_eliminates_what_violates_a_guardrail_or_cannot_be_set(node: ExperimentNode) -> None:
    def answer(n: ExperimentNode, request: RunExperiment) -> list[ExperimentMessage]:
        if n.node.inventory.netdevs[0].params["coalesce/rx-usecs"] == "128":
            said = ExperimentMessage(request.experiment_id, RunState.FAILED, request.run.run_id, "The load broke down.")
            return [said]
        return complete(n, request)

    node.answer = answer
    done = await node.ended((await node.start(tune_spec(node)))["id"])
    assert done["state"] == "done", done["sentence"]
    failed = [each for each in done["tune"]["candidates"] if each["state"] == "failed"]
    assert {each["name"].split(",")[0] for each in failed} <= {"128 µs"}
    assert all("The load broke down." in each["why"] for each in failed)
    assert done["runs_discarded"] == 3 * len(failed)
    assert done["tune"]["best"] == [3, 1]


async def test_a_tune_continues_within_its_block_after_a_restart_of_the_backend(own_database_url: str) -> None:
    async with AsyncExitStack() as stack:
        async with running_backend(own_database_url) as first:
            first.app.state.runner.timeouts = QUICK
            node = await stack.enter_async_context(experiment_node(first))
            node.answer = complete
            started = await node.start(tune_spec(node))
            await node.until(lambda: len(node.runs()) == 9)
        await node.disconnect()
        async with running_backend(own_database_url) as second:
            second.app.state.runner.timeouts = QUICK
            node.backend, node.agent.url = second, second.url
            node.operator = await second.client("operator")
            await node.connect()
            done = await node.ended(started["id"])
            await node.disconnect()
    assert (done["state"], done["tune"]["best"]) == ("done", [3, 1]), done["sentence"]
    planned = [run["planned"] for run in done["runs"] if run["discarded"] is None]
    assert [each["number"] for each in planned] == list(range(len(planned)))
    assert all(len([1 for each in planned if each["block"] == block]) == 6 for block in range(2))


async def test_a_cancelled_tune_reports_what_it_has_found(node: ExperimentNode) -> None:
    node.answer = lambda n, request: (
        n.complete(request, figures=costs(n)) if len(n.runs()) < 8 else never_completes(n, request)
    )
    started = await node.start(tune_spec(node))
    await node.until(lambda: len(node.runs()) == 8)
    await node.operator.post(f"/api/v1/experiments/{started['id']}/cancel")
    done = await node.ended(started["id"])
    assert (done["state"], done["tune"]["stopped"]) == ("cancelled", "early")
    assert done["settings"]["before"] == done["settings"]["after"]


async def test_factors_of_a_tune_change_different_settings(node: ExperimentNode) -> None:
    factors = [{"name": name, "levels": delays(node, 8, 16)} for name in ("one", "other")]
    answer = await node.operator.post("/api/v1/experiments/preview", {"spec": tune_spec(node, factors=factors)})
    assert answer.status_code == 422
    assert "both change netdev/" in answer.text


async def test_the_preview_of_a_tune_describes_each_level_by_itself(node: ExperimentNode) -> None:
    answer = await node.operator.post("/api/v1/experiments/preview", {"spec": tune_spec(node)})
    preview = answer.json()
    assert preview["sentence"].startswith("At most 40 runs (tcp-request)")
    assert [arm["name"] for arm in preview["arms"]][:3] == ["as it is, as it is", "8 µs, as it is", "16 µs, as it is"]
    assert (len(preview["arms"]), preview["warnings"]) == (7, [])
