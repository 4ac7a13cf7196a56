"""The report of a coscheduling study: charts as in the paper, every cell, the same bytes for the same runs."""

import csv
import io
import json
import re
from datetime import UTC, datetime
from xml.etree import ElementTree

import msgspec
import pytest
from tests.backend.conftest import Backend

from coresteer.db import Database
from coresteer.localization.text import translate
from coresteer.simulation.parameters import SENSITIVE, Parameters, describe, describe_one
from coresteer.simulation.results import Result
from coresteer.simulation.runner import INTERRUPTED, WORKER_ENDED
from coresteer.simulation.study import Run, StudySpec, Task, tasks_of
from coresteer.simulation.summary import RUN_COLUMNS
from coresteer.simulation.tables import SimulationRow, SimulationRunRow
from coresteer_core.schema import json_schema

SPEC = StudySpec(seeds=10, parameters=Parameters(nodes=4, jobs=6), sensitivity=True)
TASKS = [task for task in tasks_of(SPEC) if task.variant is None or task.seed <= 2]
"""Fewer seeds of the sensitivity analysis, which has most of the runs."""


def made_up(task: Task) -> Run:
    """A run in which reordering takes a tenth off response and idle time."""
    gain = 0.9 if task.cell.scheme.endswith("+RO") else 1.0
    response_s = gain * (task.cell.imbalance + task.seed)
    result = Result(response_s, 10.0, 20.0, 3.0, 1.0 / gain, 1.0, 15.0 * gain, 1000, 2000, 3000)
    return Run(task.cell, task.seed, result, task.variant)


async def store(database: Database, state: str, *, replica_id: int | None = None) -> int:
    """Store a study with made-up runs; return its id. replica_id: of the backend that runs it."""
    runs = [made_up(task) for task in TASKS]
    async with database.session() as session:
        row = SimulationRow(
            spec=msgspec.to_builtins(SPEC), trace=None, runs_planned=len(runs), state=state, sentence="",
            created_at=datetime(2026, 1, 1, tzinfo=UTC), created_by="me", ended_at=datetime(2026, 1, 2, tzinfo=UTC),
            replica_id=replica_id,
        )  # fmt: skip
        session.add(row)
        await session.flush()
        for number, run in enumerate(runs):
            session.add(SimulationRunRow(simulation_id=row.id, number=number, run=msgspec.to_builtins(run)))
    return row.id


@pytest.fixture(scope="module")
async def study(backend: Backend) -> int:
    return await store(backend.database, "done")


async def test_the_page_has_the_figures_of_the_paper_and_every_cell(backend: Backend, study: int) -> None:
    page = (await (await backend.client("viewer")).get(f"/api/v1/simulations/{study}/report")).text
    for workload in ("SWL1", "SWL2", "SWL3"):
        for pattern in ("NN", "AA"):
            assert f"<h3>{pattern}-{workload}: mean response time of the jobs</h3>" in page
            assert f"<h3>{pattern}-{workload}: system time</h3>" in page
    charts = [f"<svg{part.split('</svg>')[0]}</svg>" for part in page.split("<svg")[1:]]
    assert len(charts) == 12
    bars = [chart.count("<rect") for chart in charts]
    assert bars == [8] * 6 + [8 * 5] * 6, "a bar for each scheme and v, in five parts"
    for chart in charts:
        ElementTree.fromstring(chart)  # noqa: S314 - our own
    assert "Reproduced in all 12 cells. Largest change here: −10.0 %. The paper&#39;s: −21.4 %." in page
    assert all(f"“{fact.label}” doubled" in page for fact in describe(SPEC.parameters) if fact.name in SENSITIVE)
    assert "No trace was used." in page
    assert "50 µs" in page


async def test_the_korean_page_has_no_english_sentence(backend: Backend, study: int) -> None:
    address = f"/api/v1/simulations/{study}/report?language=ko"
    page = (await (await backend.client("viewer")).get(address)).text
    assert "셀 12개 모두에서 재현되었다. 이 연구의 가장 큰 변화: −10.0%. 논문의 변화: −21.4%." in page
    words = re.sub(r"<style.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    assert not re.findall(r"\b(?:the|of|and|cells?|seeds?|time|reordering)\b", words, re.IGNORECASE)


def test_parameters_are_described_in_the_words_of_their_declaration() -> None:
    schema = json_schema(Parameters)["properties"]
    for fact in describe(Parameters()):
        declared = schema[fact.name]
        assert (fact.label, fact.help) == (declared["title"], declared.get("description", ""))
        for value, label in declared.get("enum_labels", {}).items():
            assert describe_one(fact.name, value).text == label


@pytest.mark.parametrize("sentence", [INTERRUPTED, WORKER_ENDED, "Cancelled by me.", "Cancelled."])
def test_why_a_study_ended_is_translated(sentence: str) -> None:
    assert not re.search("[a-z]{3}", translate("ko", sentence))


async def test_csv_and_json_have_every_run_and_pdf_is_one(backend: Backend, study: int) -> None:
    client = await backend.client("viewer")
    files = {
        kind: (await client.get(f"/api/v1/simulations/{study}/report?format={kind}")).content
        for kind in ("csv", "json", "pdf")
    }
    rows = list(csv.reader(io.StringIO(files["csv"].decode("utf-8-sig"))))
    assert rows[0] == [*RUN_COLUMNS, "origin"]
    assert {row[-1] for row in rows[1:]} == {"simulation"}
    assert len(rows) == 1 + len(TASKS)
    korean = (await client.get(f"/api/v1/simulations/{study}/report?format=csv&language=ko")).content.decode(
        "utf-8-sig"
    )
    assert not re.search("[a-z]{3}", korean.partition("\n")[0])
    document = json.loads(files["json"])
    assert len(document["runs"]) == len(TASKS)
    assert len(document["simulation"]["cells"]) == 48
    assert files["pdf"].startswith(b"%PDF")


async def test_a_running_study_has_no_report(backend: Backend) -> None:
    running = await store(backend.database, "running", replica_id=backend.app.state.simulations.replica_id)
    refused = await (await backend.client("viewer")).get(f"/api/v1/simulations/{running}/report")
    assert (refused.status_code, "still runs" in refused.json()["detail"]) == (409, True)
