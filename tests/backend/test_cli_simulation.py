"""`coresteer simulation run`: a study without a backend."""

import argparse
import csv
import json
import re
from pathlib import Path

import pytest

from coresteer import simulation
from coresteer.cli import simulation as command
from coresteer.cli.main import main
from coresteer.simulation.study import StudySpec
from coresteer.simulation.summary import RUN_COLUMNS
from coresteer_core.schema import json_schema

TINY = [
    "simulation", "run", "--schemes", "SB", "--patterns", "nn", "--workloads", "swl1", "--v", "0.5", "--seeds", "2",
    "--nodes", "4", "--jobs", "4", "--quick", "--workers", "1",
]  # fmt: skip


@pytest.mark.slow("worker processes load the compiled engine")
def test_a_study_prints_parameters_cells_and_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "study.json"
    assert main([*TINY, "--to", str(file)]) == 0
    printed, said = capsys.readouterr()
    assert said.startswith("4 runs, estimated to take about 3 s on 1 CPU.\n")
    assert re.search(r"Context switch +50 µs", printed)
    assert "No trace was used." in printed
    assert re.search(r"nn +swl1 +0.5 SB\+RO +\d", printed)
    assert "Reordering shortens response time in every cell, by 21.4 % at most." in printed
    assert "Not judged: 2 of the 10 seeds that a verdict needs. Largest change here: " in printed
    assert re.search(r"^4 runs, [\d,]+ messages and [\d,]+ events in ", printed, re.M)
    found = json.loads(file.read_text())
    assert len(found["runs"]) == 4
    assert [cell["seeds"] for cell in found["cells"]] == [2, 2]


@pytest.mark.slow("worker processes load the compiled engine")
def test_a_study_of_a_trace_writes_its_runs_as_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, file = tmp_path / "log.swf", tmp_path / "runs.csv"
    log.write_text("\n".join(f"{n} {n * 10} -1 {30 + n} {2 + n % 3} -1 -1 -1" for n in range(1, 9)))
    assert main([*TINY, "--reorder", "with", "--trace", str(log), "--to", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "Jobs: the trace log.swf, 8 jobs of at most 4 processes." in printed
    assert "jobs of a single process were dropped, which leaves 8." in printed
    rows = list(csv.reader(file.open()))
    assert rows[0] == RUN_COLUMNS
    assert [row[0] for row in rows[1:]] == ["SB+RO", "SB+RO"]


@pytest.mark.parametrize("name", ["enp", "ert_sign", "imbalance"])
def test_every_form_of_an_assumption_is_an_option(name: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_commands(parser.add_subparsers())
    for value in json_schema(StudySpec)["properties"]["parameters"]["properties"][name]["enum"]:
        given = parser.parse_args(["simulation", "run", f"--{name.replace('_', '-')}", value])
        assert getattr(given, name) == value


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--schemes", "XX"], "There is no scheme XX; choose from SPIN, IB, SB"),
        (["--v", "much"], "--v much: give numbers from 0 to 2"),
        (["--nodes", "1"], "Expected int >= 2 - at $.parameters.nodes"),
        (["--to", "study.txt"], "the file's name must end in .json or .csv"),
        (["--trace", "/missing.swf"], "No such file"),
    ],
)
def test_a_wrong_option_is_explained(options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, *options]) == 1
    assert sentence in capsys.readouterr().err


def test_without_numba_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.metadata.distributions", lambda name: [])
    assert main(TINY) == 1
    assert "pip install 'coresteer[simulation]'" in capsys.readouterr().err


def test_the_cache_of_the_compiled_engine_depends_on_all_that_it_contains() -> None:
    folder = Path(simulation.__path__[0])
    sources = re.search(r"SOURCES = \((.*?)\)", (folder / "compiled.py").read_text(), re.DOTALL)
    assert sources is not None
    names = set(re.findall(r'"(\w+)"', sources[1]))
    imported = {
        name
        for module in names
        for name in re.findall(r"^from coresteer\.simulation\.(\w+)", (folder / f"{module}.py").read_text(), re.M)
    }
    assert imported <= names
