"""Coscheduling studies over HTTP: they run in the background, are stored, and end in a state with a sentence."""

import asyncio
import gzip
from collections.abc import Iterator
from datetime import UTC, datetime
from threading import Event
from typing import Any

import msgspec
import psycopg
import pytest
from tests.backend.conftest import Backend, Client, running_backend
from tests.support.polling import PATIENCE_S, poll_async

from coresteer.db import Database
from coresteer.simulation.results import Result
from coresteer.simulation.runner import INTERRUPTED, worker_count
from coresteer.simulation.study import Run, StudySpec, cells_of
from coresteer.simulation.swf import MAX_BYTES
from coresteer.simulation.tables import SimulationRow, SimulationRunRow

TINY: dict[str, Any] = {
    "schemes": ["SB", "SB+RO"],
    "patterns": ["nn"],
    "job_types": ["swl1"],
    "imbalances": [0.5],
    "seeds": 2,
    "parameters": {"nodes": 4, "mean_run_s": 0.2, "jobs": 6},
}
ENDLESS = TINY | {"seeds": 100, "parameters": {"nodes": 16, "mean_run_s": 3600.0, "jobs": 5000}}
LOG = "; Note: the given submit\n;   times are actually start times\n" + "\n".join(
    f"{number} {number * 10} -1 {30 + number} {2 ** (number % 4)} -1 -1 -1 -1" for number in range(1, 21)
)

FULL = """
CREATE SEQUENCE refused_update;
CREATE FUNCTION fail_as_on_a_full_disk() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
  IF TG_OP = 'INSERT' OR nextval('refused_update') = 1 THEN
    RAISE EXCEPTION 'could not extend file "base/1/2": No space left on device' USING ERRCODE = 'disk_full';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON simulation_run FOR EACH ROW EXECUTE FUNCTION fail_as_on_a_full_disk();
CREATE TRIGGER full_disk BEFORE UPDATE ON simulation FOR EACH ROW EXECUTE FUNCTION fail_as_on_a_full_disk();
"""
FREED = "DROP FUNCTION fail_as_on_a_full_disk CASCADE; DROP SEQUENCE refused_update"


@pytest.fixture(autouse=True)
def as_fast_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let studies run at the priority of the other tests, which would starve them."""
    monkeypatch.setattr("coresteer.simulation.runner.NICE", 0)


async def ended(client: Client, study: int) -> dict[str, Any]:
    """The study when it no longer runs."""
    async with asyncio.timeout(600):
        while (found := (await client.get(f"/api/v1/simulations/{study}")).json())["state"] == "running":  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.1)
    return dict(found)


@pytest.mark.slow("worker processes load the compiled engine")
async def test_a_study_runs_in_the_background_and_has_results(backend: Backend) -> None:
    client = await backend.client("operator")
    estimated = (await client.post("/api/v1/simulations/estimate", {"spec": TINY | {"sensitivity": True}})).json()
    assert (estimated["runs"], estimated["cpus"]) == (4 * 9, worker_count())
    started = await client.post("/api/v1/simulations", {"spec": TINY | {"sensitivity": True}})
    assert started.status_code == 201, started.text
    found = await ended(client, started.json()["id"])
    assert (found["state"], found["sentence"]) == ("done", "")
    assert found["runs_done"] == found["runs_planned"] == 4 * 9
    assert [cell["cell"]["scheme"] for cell in found["cells"]] == ["SB", "SB+RO"]
    for cell in found["cells"]:
        assert cell["low_s"] < cell["response_s"] < cell["high_s"]
        assert sum(cell["shares"].values()) == pytest.approx(1)
    assert [verdict["of"] for verdict in found["verdicts"]] == [1, 1, 0, 1, 0]
    assert found["verdicts"][0]["sentence"] == "Not judged: 2 of the 10 seeds that a verdict needs."
    assert {row["parameter"] for row in found["sensitivities"]} == {
        "switch_s", "spin_factor", "boost_period_s", "nodes"
    }  # fmt: skip
    assert [each["text"] for each in found["parameters"] if each["name"] in ("nodes", "switch_s")] == ["4", "50 µs"]
    assert "No trace was used." in found["jobs"][0]
    listed = (await client.get("/api/v1/simulations")).json()["simulations"]
    assert listed[0]["id"] == found["id"]


@pytest.mark.slow("worker processes load the compiled engine")
async def test_a_study_uses_a_stored_trace_and_states_how_it_was_scaled(backend: Backend) -> None:
    client = await backend.client("operator")
    stored = await client.request("PUT", "/api/v1/simulation-traces/log.swf.gz", data=gzip.compress(LOG.encode()))
    assert stored.status_code == 200, stored.text
    assert [trace["facts"]["jobs"] for trace in (await client.get("/api/v1/simulation-traces")).json()] == [20]
    started = await client.post("/api/v1/simulations", {"spec": TINY | {"trace": "log.swf.gz"}})
    found = await ended(client, started.json()["id"])
    assert (found["state"], found["trace"]["usable"]) == ("done", 10)
    assert "multiplied by 4/8" in found["jobs"][1]
    assert found["jobs"][3] == "The trace's header says that its submit times are start times."
    assert (await client.delete("/api/v1/simulation-traces/log.swf.gz")).status_code == 204


async def test_a_trace_is_not_deleted_while_a_study_uses_it(backend: Backend) -> None:
    client = await backend.client("operator")
    log = "\n".join(f"{number} {number * 10} -1 60 4" for number in range(5000))
    await client.request("PUT", "/api/v1/simulation-traces/used.swf", data=log.encode())
    study = (await client.post("/api/v1/simulations", {"spec": ENDLESS | {"trace": "used.swf"}})).json()["id"]
    refused = await client.delete("/api/v1/simulation-traces/used.swf")
    sentence = f"Study {study} is running with used.swf. Wait until it is done, or cancel it."
    assert (refused.status_code, refused.json()["detail"]) == (409, sentence)
    await client.post(f"/api/v1/simulations/{study}/cancel")
    assert (await client.delete("/api/v1/simulation-traces/used.swf")).status_code == 204
    assert (await client.get(f"/api/v1/simulations/{study}")).json()["trace"]["name"] == "used.swf"


async def test_only_one_study_runs_and_cancelling_ends_it_at_once(backend: Backend) -> None:
    client = await backend.client("operator")
    estimated_s = (await client.post("/api/v1/simulations/estimate", {"spec": ENDLESS})).json()["duration_s"]
    started = (await client.post("/api/v1/simulations", {"spec": ENDLESS})).json()
    assert 0 < started["remaining_s"] <= estimated_s, "by the estimate before the first run is done"
    study = started["id"]
    refused = await client.post("/api/v1/simulations", {"spec": TINY})
    assert refused.status_code == 409
    assert refused.json()["detail"] == f"Study {study} is running. Wait until it is done, or cancel it."
    cancelled = await client.post(f"/api/v1/simulations/{study}/cancel")
    assert (cancelled.json()["state"], cancelled.json()["sentence"]) == ("cancelled", "Cancelled.")
    assert (await client.post(f"/api/v1/simulations/{study}/cancel")).status_code == 409


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"schemes": ["XX"]}, "spec.schemes[0]"),
        ({"schemes": ["SB", "SB"]}, "spec.schemes"),
        ({"trace": "missing.swf"}, "spec.trace"),
        ({"seeds": 0}, "spec.seeds"),
        ({"parameters": {"nodes": 1}}, "spec.parameters.nodes"),
        ({"schemes": ["SY-PB+RO"], "parameters": {"spin_factor": 0}}, "spec.parameters.spin_factor"),
        (
            {"schemes": ["SB", "SY"], "parameters": {"switch_s": 0, "interrupt_s": 0, "latency_s": 0}},
            "spec.parameters.spin_factor",
        ),
    ],
)
async def test_an_invalid_study_is_refused_with_its_field(
    backend: Backend, changed: dict[str, Any], field: str
) -> None:
    refused = await (await backend.client("operator")).post("/api/v1/simulations", {"spec": TINY | changed})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field), refused.text


async def test_only_a_scheme_that_yields_needs_a_spin_time(backend: Backend) -> None:
    client = await backend.client("operator")
    spec = TINY | {"schemes": ["SB", "PB"], "parameters": {"spin_factor": 0}}
    assert (await client.post("/api/v1/simulations/estimate", {"spec": spec})).status_code == 200


@pytest.mark.parametrize(
    ("data", "status", "sentence"),
    [
        (b"1 2 3", 422, "Line 1 of log.swf is not a job"),
        (b"\x1f\x8b damaged", 422, "log.swf is a damaged gzip file."),
        (gzip.compress(b" " * (MAX_BYTES + 1)), 422, "larger than 32 MiB"),
        (b" " * (MAX_BYTES + 1), 413, "at most"),
    ],
    ids=["not a job", "damaged", "unpacked too large", "too large"],
)
async def test_a_trace_that_is_not_usable_is_refused(backend: Backend, data: bytes, status: int, sentence: str) -> None:
    refused = await (await backend.client("operator")).request("PUT", "/api/v1/simulation-traces/log.swf", data=data)
    assert refused.status_code == status
    assert sentence in refused.json()["detail"]


async def test_a_study_whose_runs_cannot_be_stored_has_failed_and_terminates_its_workers(
    backend: Backend, owner_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminated = Event()

    def one_run(spec: StudySpec, *_: object, nice: int, stop: Event) -> Iterator[Run]:
        yield Run(cells_of(spec)[0], 1, Result(1, 1, 1, 1, 1, 1, 1, 1, 1, 1))
        stop.wait()
        terminated.set()

    monkeypatch.setattr("coresteer.simulation.runner.run_study", one_run)
    client = await backend.client("operator")
    async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as owner:
        await owner.execute(FULL)
        study = (await client.post("/api/v1/simulations", {"spec": TINY})).json()["id"]
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await ended(client, study)
        finally:
            await client.post(f"/api/v1/simulations/{study}/cancel")
            await owner.execute(FREED)
    reason = 'could not extend file "base/1/2": No space left on device'
    assert (found["state"], found["sentence"]) == ("failed", f"A run could not be stored: {reason}.")
    assert await asyncio.to_thread(terminated.wait, PATIENCE_S)


async def test_a_study_that_the_backend_left_running_has_failed_and_keeps_its_runs(
    database: Database, database_url: str
) -> None:
    spec = msgspec.convert(TINY, StudySpec)
    result = {field.name: 1 for field in msgspec.structs.fields(Result)}
    cell = {"scheme": "SB", "pattern": "nn", "job_type": "swl1", "imbalance": 0.5}
    async with database.session() as session:
        row = SimulationRow(
            spec=msgspec.to_builtins(spec), trace=None, runs_planned=4, state="running", sentence="",
            created_at=datetime.now(UTC), created_by="somebody",
        )  # fmt: skip
        session.add(row)
        await session.flush()
        run = {"cell": cell, "seed": 1, "result": result}
        session.add(SimulationRunRow(simulation_id=row.id, number=1, run=run))
    async with running_backend(database_url) as restarted:
        viewer = await restarted.client("viewer")

        async def ended() -> dict[str, Any] | None:  # Any: JSON
            found: dict[str, Any] = (await viewer.get(f"/api/v1/simulations/{row.id}")).json()
            return None if found["state"] == "running" else found

        await poll_async(ended)
        found = await ended() or {}
    assert (found["state"], found["sentence"], found["runs_done"]) == ("failed", INTERRUPTED, 1)
    assert found["cells"][0]["low_s"] is None
