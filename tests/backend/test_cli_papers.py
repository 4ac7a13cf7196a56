"""`coresteer papers`: the verdicts, the table, and the command from its start until everything is restored."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from msgspec.structs import replace
from tests.backend.simulated_experiments import simulated
from tests.backend.test_experiment_templates import THIS, TWO_SOCKET, spec_of
from tests.support.polling import PATIENCE_S

from coresteer.cli import papers as command
from coresteer.cli.main import main
from coresteer.cli.papers_experiments import Plan, measured, wanted_templates
from coresteer.experiments.analysis import analyse
from coresteer.experiments.schemas import Experiment
from coresteer.papers import Figure, figure, figures
from coresteer.papers.nic_model import measure
from coresteer.papers.table import counted, table_markdown, verdict_text
from coresteer.papers.verdicts import Estimate, Measured, Row, Verdict, judge
from coresteer.simulation.results import Result
from coresteer.simulation.study import Run, cells_of

ANY = Figure(id="any", figure="any", text="", metric="makespan_s")
LESS = replace(ANY, change=-0.25, direction="lower")
MORE = replace(ANY, change=0.27, bound="at most", direction="higher")
HALF = replace(ANY, change=-0.5, bound="at least", direction="lower")
SAME = replace(ANY, direction="unchanged")
BETTER = replace(ANY, direction="lower")
VALUE = replace(ANY, value=20_000.0)
BOUND = replace(ANY, value=3780.0, bound="at most")
R, D, N = Verdict.REPRODUCED, Verdict.DIRECTION, Verdict.NOT_REPRODUCED


@pytest.mark.parametrize(
    ("published", "ours", "expected"),
    [
        (LESS, (-0.24, -0.30, -0.20), R),
        (LESS, (-0.15, -0.26, -0.05), R),
        (LESS, (-0.10, -0.40, -0.01), D),
        (LESS, (-0.10, -0.12, -0.08), D),
        (LESS, (-0.60, -0.70, -0.50), D),
        (LESS, (-0.24, -0.50, 0.02), N),
        (LESS, (0.24, 0.20, 0.30), N),
        (MORE, (0.30, 0.29, 0.31), R),
        (MORE, (0.60, 0.50, 0.70), D),
        (HALF, (-0.75, -0.80, -0.70), R),
        (HALF, (-0.30, -0.35, -0.25), D),
        (SAME, (0.01, -0.02, 0.04), R),
        (SAME, (0.01, -0.08, 0.10), N),
        (BETTER, (-0.01, -0.02, -0.001), R),
        (BETTER, (-0.01, -0.02, 0.001), N),
    ],
)
def test_a_change_is_judged_by_its_interval_and_its_size(
    published: Figure, ours: tuple[float, float, float], expected: Verdict
) -> None:
    assert judge(published, Measured(source="", change=Estimate(*ours))).verdict is expected


@pytest.mark.parametrize(
    ("published", "ours", "expected"),
    [
        (VALUE, (20_833.0, 20_833.0, 20_833.0), R),
        (VALUE, (26_000.0, 18_000.0, 34_000.0), R),
        (VALUE, (30_000.0, 15_000.0, 45_000.0), N),
        (VALUE, (99.0, 90.0, 110.0), N),
        (BOUND, (2952.0, 2952.0, 2952.0), R),
        (BOUND, (5000.0, 4900.0, 5100.0), N),
        (ANY, (1.0, 0.9, 1.1), Verdict.NOT_REPORTED),
        (LESS, (1.0, 0.9, 1.1), Verdict.IMPOSSIBLE),
    ],
)
def test_a_value_without_a_change_is_judged_by_itself(
    published: Figure, ours: tuple[float, float, float], expected: Verdict
) -> None:
    assert judge(published, Measured(source="", value=Estimate(*ours))).verdict is expected


def test_a_study_reproduces_a_direction_only_if_every_cell_has_it() -> None:
    change = Estimate(-0.21, -0.22, -0.20)
    found = [
        judge(figure("fig4-response"), Measured(source="", change=change, cells=(cells, 12))).verdict
        for cells in (12, 11)
    ]
    assert found == [R, N]


def test_without_a_figure_the_reason_is_given() -> None:
    row = judge(LESS, Measured(source="", reason="This machine has a single NUMA node."))
    assert verdict_text(row) == "not possible here because this machine has a single NUMA node"
    assert verdict_text(judge(LESS, Measured(source="", reason="RPS is off"))).endswith("because RPS is off")


@pytest.mark.parametrize("one", [one for one in figures() if one.model == "nic"], ids=lambda one: one.id)
def test_the_nic_model_has_every_figure_of_interrupt_coalescing(one: Figure) -> None:
    found = measure(one)
    assert found.simulated and (found.value or found.change)
    by_assumption = one.metric == "cpu_busy_percent"
    assert judge(one, found).verdict is (D if by_assumption else R), "tests/core/test_nic_model.py says more"


def experiment(spec_slug: str, factor: float) -> Experiment:
    spec = spec_of(THIS, spec_slug)
    return simulated(spec, effect=lambda name, arm: factor if arm == (1,) else 1.0, noise=0.002)


def test_an_experiment_of_this_machine_becomes_a_row() -> None:
    found = experiment("few-interrupt-cores", 1.25).model_dump(mode="json")
    ours = measured(figure("other-throughput"), "few-interrupt-cores", found)
    assert ours.change is not None and ours.change.value == pytest.approx(0.25, abs=0.01)
    assert ours.value is not None and ours.source == "experiment few-interrupt-cores, 48 runs"
    assert judge(figure("other-throughput"), ours).verdict is Verdict.NOT_REPORTED
    assert measured(figure("few-trend"), "few-interrupt-cores", found).reason.startswith("Compares several experiments")
    near = experiment("m-n", 1.0).model_dump(mode="json")
    assert measured(figure("m-n-cpu"), "m-n", near).reason == "this machine has no CPUs that share no cache"
    assert judge(figure("m-n-throughput"), measured(figure("m-n-throughput"), "m-n", near)).verdict is R


def test_a_value_of_two_arms_is_judged_by_their_ratio() -> None:
    spec = spec_of(TWO_SOCKET, "service-classes")
    made = simulated(spec)
    runs = [
        replace(run, figures={"c5_by_c1": (3.0 if run.planned.arm == (1,) else 2.0) * (1 + run.planned.number / 1e4)})
        for run in made.runs
    ]
    changes = {"runs": runs, "analysis": analyse(spec, made.seed, runs)}
    found = made.model_copy(update=changes).model_dump(mode="json")
    row = judge(figure("percentile-ratio"), measured(figure("percentile-ratio"), "service-classes", found))
    assert row.verdict is R
    assert row.measured.change is not None and row.measured.change.value == pytest.approx(0.5, abs=0.01)
    text = table_markdown([row], [], [])
    assert "| 3.19 (+56.4 %) | 3.01 (+50.0 %) |" in text and "On this machine: 1 reproduced." in text


def test_the_study_has_a_row_for_each_statement() -> None:
    spec = command.study_spec("quick")
    runs = [
        Run(cell, seed, result(0.8 if cell.scheme.endswith("+RO") else 1.0, seed, cell.imbalance))
        for cell in cells_of(spec)
        for seed in range(1, 11)
    ]
    of_study = [one for one in figures() if one.model == "study"]
    rows = [judge(one, command._of_study(one, command.Study(spec, runs))) for one in of_study]
    found = {row.figure.id: row.verdict for row in rows}
    assert found["fig4-response"] is R and found["fig5-imbalance"] is R and found["fig4-idle"] is D
    assert all(row.measured.simulated for row in rows)
    assert counted(rows).startswith("Simulated: ")
    (reason,) = {command._of_study(one, command.Study(spec, [], "no numba")).reason for one in of_study}
    assert reason == "no numba"
    few = command.Study(spec, [run for run in runs if run.seed < 5])
    assert judge(of_study[0], command._of_study(of_study[0], few)).verdict is Verdict.IMPOSSIBLE


def result(factor: float, seed: int, imbalance: float) -> Result:
    seconds = factor * (1 + seed / 100) * (1 + imbalance)
    return Result(
        response_s=seconds, idle_s=seconds, spin_s=seconds, overhead_s=1 / seconds, switch_s=1 / seconds,
        compute_s=1.0, elapsed_s=1.0, switches=1, messages=1, events=1,
    )  # fmt: skip


def test_an_ordinary_user_gets_the_simulated_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    file = tmp_path / "table.json"
    assert main(["papers", "--systems", "coalescing,coscheduling", "--study", "none", "--to", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "not possible here because it needs root" in printed and "| simulated: NIC model |" in printed
    rows = json.loads(file.read_text())["rows"]
    assert {row["figure"]["system"] for row in rows} == {"coalescing", "coscheduling"}
    assert {row["verdict"] for row in rows if row["measured"]["source"] == "study"} == {"not possible here"}
    assert main(["papers", "--systems", "coalescing", "--to", str(tmp_path / "table.md")]) == 0
    assert (tmp_path / "table.md").read_text().startswith("# The papers' figures\n\n- ")


def test_a_finished_study_is_read_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    spec, file = command.study_spec("quick"), tmp_path / "study.json"
    runs = [Run(cell, seed, result(1.0, seed, cell.imbalance)) for cell in cells_of(spec) for seed in range(1, 11)]
    file.write_bytes(msgspec.json.encode({"spec": spec, "runs": runs, "wall_s": 1.0}))
    assert main(["papers", "--systems", "coscheduling", "--study", str(file)]) == 0
    printed = capsys.readouterr().out
    assert f"480 simulated runs of {file}" in printed and "| reproduced | simulated: study, 480 runs |" in printed
    file.write_text("{}")
    assert main(["papers", "--systems", "coscheduling", "--study", str(file)]) == 1
    assert "is not a study's file: 'spec'." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--systems", "numa,dns"], "there is no system dns"),
        (["--to", "table.txt"], "must end in .md or .json"),
        (["--study", "half"], "choose from full, quick, none, or name a .json file"),
    ],
)
def test_a_wrong_option_is_explained(options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["papers", *options]) == 1
    assert sentence in capsys.readouterr().err


def test_a_coresteer_that_runs_here_is_not_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CORESTEER_STATE_DIR", str(tmp_path))
    with (tmp_path / "lock").open("w") as lock:
        lock.write("http://127.0.0.1:8420")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["papers", "--systems", "coalescing"]) == 1
    assert "Coresteer runs here at http://127.0.0.1:8420" in capsys.readouterr().err


def test_every_figure_has_a_row_even_where_nothing_ran() -> None:
    assert set(wanted_templates(["numa", "service-class"])) == {"unas", "contention-factor", "service-classes"}
    study = command.Study(command.study_spec("full"), [], "omitted")
    rows: list[Row] = [row for one in figures() for row in command._rows(one, Plan([], {}), {}, study)]
    assert {row.figure.id for row in rows} == {one.id for one in figures()}
    assert {row.verdict for row in rows if not row.measured.simulated} == {Verdict.IMPOSSIBLE}


@pytest.mark.root
@pytest.mark.slow("starts PostgreSQL, a backend and an agent")
def test_ctrl_c_ends_the_experiment_and_restores_everything() -> None:
    """Also where the command ignores it at first, as in the background of a shell without job control."""
    options = "--systems service-class --quick --study none"
    before = {path: path.read_text() for path in Path("/proc/irq").glob("*/smp_affinity_list")}
    process = subprocess.Popen(
        ["sh", "-c", f"trap '' INT; exec {sys.executable} -m coresteer papers {options}"],
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
    reader.start()
    end = time.monotonic() + PATIENCE_S
    while not any(" runs" in line for line in said) and process.poll() is None and time.monotonic() < end:
        reader.join(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130, said
    reader.join(PATIENCE_S)
    assert said[-1] == "Interrupted; every setting is restored.\n"
    assert re.match(r"1 experiment of about \d+ min together and a simulated study of about 0 min", said[0])
    assert children and not any(child.is_running() for child in children)
    assert before == {path: path.read_text() for path in before}
