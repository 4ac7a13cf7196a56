"""`coresteer experiments run`, `watch` and `coresteer reports export` against a server that answers as the API does."""

import io
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from coresteer.cli import api_client, main
from coresteer.cli import experiment as experiments
from coresteer_core.metrics import EXPERIMENT_METRICS

Json = dict[str, Any]  # Any: as the API answers
TOKEN = "cst_right"
SPEC: Json = {"name": "⟨m-n⟩", "kind": "ab", "node_id": 7, "primary": "cpu_s_per_gbit", "blocks": 6}
PREVIEW = {"sentence": "A/B on web-1.", "runs": 48, "duration_s": 432.0, "arms": [], "warnings": ["It is loud."]}


def experiment(state: str = "running", verdict: str = "no-difference", **changes: object) -> Json:
    made = {
        "id": 5, "name": "⟨m-n⟩", "node_name": "web-1", "primary": "cpu_s_per_gbit", "state": state, "seed": 41,
        "sentence": f"It is {state}.", "created_at": "2026-01-01T00:00:00Z", "queue_position": 0, "runs_done": 1,
        "runs_planned": 48, "runs_discarded": 0, "remaining_s": 400.0, "activity": "Run 2 of 48.", "spec": SPEC,
        "runs": [],
        "analysis": {"comparisons": [{"metric": "cpu_s_per_gbit", "verdict": verdict}]}, "metrics": {}, "machine": {},
        "settings": {}, "findings": ["No difference larger than 2 % was found."],
    }  # fmt: skip
    return made | changes


@dataclass
class Api:
    """Answers of the server, and its requests. steps: states of the experiment; the last one is repeated."""

    url: str = ""
    steps: list[Json] = field(default_factory=lambda: [experiment("done")])
    preview: Json = field(default_factory=lambda: PREVIEW | {"blocked_because": None})
    refuses: tuple[int, bytes] | None = None
    asked: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[Json] = field(default_factory=list)

    def answer(self, method: str, path: str) -> tuple[int, bytes]:
        self.asked.append((method, path))
        if self.refuses is not None:
            return self.refuses
        templates = [{"slug": "m-n", "spec": SPEC}, {"slug": "rx-frames", "spec": None, "unavailable_because": "No."}]
        nodes = [{"id": 7, "name": "web-1"}, {"id": 8, "name": "web-2"}]
        known: dict[str, Any] = {
            "/api/v1/nodes?name=web-1": nodes[:1],
            "/api/v1/nodes?name=web-3": [],
            "/api/v1/nodes?name=web-2": nodes,  # as an older backend answers
            "/api/v1/nodes/7/experiment-templates": templates,
            "/api/v1/nodes/7/experiment-templates?peer_node_id=8": templates,
            "/api/v1/experiments/preview": self.preview,
            "/api/v1/experiments/5/cancel": experiment("cancelled"),
            "/api/v1/experiments?node_id=7": {"experiments": [experiment()], "older": None},
            "/api/v1/experiments?node_id=8": {"experiments": [], "older": None},
        }
        if path in known:
            return 200, json.dumps(known[path]).encode()
        if (method, path) == ("POST", "/api/v1/experiments"):
            return 201, json.dumps(experiment("queued")).encode()
        if path == "/api/v1/experiments/5":
            step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
            return 200, json.dumps(step).encode()
        if ("report" in path or "compare" in path) and "/6/" not in path:
            return 200, path.encode()
        return 404, json.dumps({"detail": f"There is no page or endpoint at {path}."}).encode()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Yield a backend to which commands of this process connect."""
    made = Api()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Log nothing: the test reads the command's output."""

        def do_GET(self) -> None:
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                status, body = 401, b'{"detail": "The API token is unknown."}'
            else:
                status, body = made.answer(self.command, self.path)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{made.url}/api/v1/experiments/5")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            if body:
                made.bodies.append(json.loads(body))
            self.do_GET()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("CORESTEER_URL", made.url)
    monkeypatch.setenv("CORESTEER_TOKEN", TOKEN)
    monkeypatch.setattr(api_client, "POLL_S", 0)
    yield made
    server.shutdown()
    server.server_close()


def test_a_template_is_previewed_started_and_watched_to_its_end(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.steps = [experiment("queued", queue_position=2), experiment(), experiment(), experiment("done")]
    argv = ["experiments", "run", "--template", "m-n", "--node", "web-1", "--peer", "web-2"]
    assert main.main([*argv, "--set", "measure_s=5", "--set", "blocks=8"]) == 0
    assert ("GET", "/api/v1/nodes/7/experiment-templates?peer_node_id=8") in api.asked
    assert api.bodies == [{"spec": SPEC | {"measure_s": 5.0, "blocks": 8}}] * 2
    assert capsys.readouterr().out.splitlines() == [
        "A/B on web-1.",
        "Note: It is loud.",
        "Experiment 5 on web-1, seed 41.",
        "Queued, position 2 on web-1.",
        "1 of 48 runs, about 7 min left: Run 2 of 48.",
        "Experiment 5: done.",
        "No difference larger than 2 % was found.",
    ]


def test_a_file_or_stdin_is_an_experiment_that_node_and_set_override(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(SPEC))
    assert main.main(["experiments", "run", str(file), "--node", "web-2", "--no-wait", "-o", "json"]) == 0
    assert api.bodies[-1]["spec"]["node_id"] == 8
    said = capsys.readouterr()
    assert json.loads(said.out)["state"] == "queued", "one document"
    assert "A/B on web-1." in said.err
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(SPEC)))
    assert main.main(["experiments", "run", "-", "--set", "seed=3", "-o", "json"]) == 0
    assert api.bodies[-1]["spec"]["seed"] == 3
    assert json.loads(capsys.readouterr().out)["state"] == "done"


@pytest.mark.parametrize(
    ("state", "verdict", "argv", "code"),
    [
        ("done", "higher", [], 0),
        ("failed", "higher", [], 1),
        ("stopped", "higher", [], 3),
        ("cancelled", "higher", ["--fail-if-worse"], 3),
        ("done", "higher", ["--fail-if-worse"], 4),
        ("done", "lower", ["--fail-if-worse"], 0),
        ("done", "unsteady", ["--fail-if-worse"], 0),
    ],
)
@pytest.mark.parametrize("output", ["text", "json"])
def test_the_exit_code_is_the_final_state(
    api: Api, capsys: pytest.CaptureFixture[str], *, state: str, verdict: str, argv: list[str], code: int, output: str
) -> None:
    api.steps = [experiment(), experiment(state, verdict)]
    assert main.main(["experiments", "watch", "5", "-o", output, *argv]) == code
    lines = capsys.readouterr().out.splitlines()
    if output == "json":
        assert [json.loads(line)["state"] for line in lines] == ["running", state]
        assert "analysis" in json.loads(lines[-1])
    else:
        found = "No difference larger than 2 % was found." if state == "done" else f"It is {state}."
        assert lines[-2:] == [f"Experiment 5: {state}.", found]


def test_more_throughput_is_not_worse_and_less_is() -> None:
    comparisons = [{"metric": "throughput_bit_per_s", "verdict": "lower"}]
    done = experiment("done", primary="throughput_bit_per_s", analysis={"comparisons": comparisons})
    assert experiments.is_primary_worse(done)
    comparisons[0]["verdict"] = "higher"
    assert not experiments.is_primary_worse(done)
    comparisons[0] = {"metric": "cpu_s_per_gbit", "verdict": "lower"}
    assert not experiments.is_primary_worse(done), "it is not the primary figure"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["run"], "Specify either a file"),
        (["run", "--template", "m-n"], "specify it with --node"),
        (["run", "--template", "n-m", "--node", "web-1"], "choose one of m-n, rx-frames"),
        (["run", "--template", "rx-frames", "--node", "web-1"], "not available on this node: No."),
        (["run", "--template", "m-n", "--node", "web-3"], "There is no node"),
        (["run", "--template", "m-n", "--node", "web-1", "--set", "kind=aa"], "one of name, primary, warmup_s"),
        (["run", "--template", "m-n", "--node", "web-1", "--set", "blocks=many"], "'many' is not a valid number"),
        (
            ["run", "--template", "m-n", "--node", "web-1", "--set", "primary=c1", "--fail-if-worse"],
            "no better or worse",
        ),
    ],
)
def test_wrong_usage_is_explained(api: Api, argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["experiments", *argv]) == 2
    assert sentence in capsys.readouterr().err
    assert ("POST", "/api/v1/experiments") not in api.asked


def test_an_experiment_that_the_backend_refuses_is_not_started(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.preview["blocked_because"] = "web-1 is not connected."
    assert main.main(["experiments", "run", "--template", "m-n", "--node", "web-1"]) == 2
    api.refuses = 422, b'{"detail": "spec.blocks: 1 is too few."}'
    assert main.main(["experiments", "run", "--template", "m-n", "--node", "web-1"]) == 2
    said = capsys.readouterr().err
    assert "web-1 is not connected." in said
    assert "spec.blocks: 1 is too few." in said
    assert ("POST", "/api/v1/experiments") not in api.asked


@pytest.mark.parametrize(
    ("name", "value", "code", "sentence"),
    [
        ("CORESTEER_TOKEN", "", 2, "create an API token"),
        ("CORESTEER_TOKEN", "cst_wrong", 1, "The API token is unknown."),
        ("CORESTEER_TOKEN", "cst_w\u2026", 2, "a character that no API token has"),
        ("CORESTEER_TOKEN", "cst_w\nx", 2, "a character that no API token has"),
        ("CORESTEER_URL", "http://127.0.0.1:9", 1, "No backend answers at http://127.0.0.1:9"),
        ("CORESTEER_URL", "http://coresteer.example", 2, "must begin with https://"),
        ("CORESTEER_URL", "coresteer.example", 2, "must be an address"),
    ],
)
def test_a_wrong_token_or_address_is_reported(
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    name: str,
    value: str,
    code: int,
    sentence: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert main.main(["experiments", "list"]) == code
    assert sentence in capsys.readouterr().err
    assert api.asked == []


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((302, b""), "302"),
        ((200, b"<html>"), "something other than JSON"),
        ((503, b'{"detail": "The database does not answer."}'), "The database does not answer."),
        ((502, b"<html>"), "No backend answers behind http://127.0.0.1:"),
    ],
)
def test_an_invalid_answer_is_reported_and_redirects_do_not_get_the_token(
    api: Api, answer: tuple[int, bytes], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.refuses = answer
    assert main.main(["experiments", "list"]) == 1
    assert sentence in capsys.readouterr().err
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    "away",
    [(503, b'{"detail": "The database does not answer."}'), *((status, b"<html>") for status in (502, 503, 504))],
)
def test_watching_continues_after_a_restart_of_the_backend(
    api: Api, away: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api.refuses = away

    def sleep(_: float) -> None:
        api.refuses = None

    monkeypatch.setattr("time.sleep", sleep)
    assert main.main(["experiments", "watch", "5"]) == 0
    assert "Retrying." in capsys.readouterr().err
    api.refuses = away
    monkeypatch.setattr(api_client, "MAX_OUTAGE_S", -1)
    assert main.main(["experiments", "watch", "5"]) == 1


def test_stopping_to_watch_does_not_end_the_experiment(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api.steps = [experiment()]

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    assert main.main(["experiments", "watch", "5"]) == 1
    assert "`coresteer experiments watch 5`" in capsys.readouterr().err
    assert ("POST", "/api/v1/experiments/5/cancel") not in api.asked


def test_the_former_names_still_work(api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["experiment", "list", "--node", "web-1", "-o", "json"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["experiments"]] == [5]
    assert main.main(["experiment", "watch", "5"]) == 0
    assert main.main(["experiment", "cancel", "5"]) == 0
    assert ("POST", "/api/v1/experiments/5/cancel") in api.asked
    assert main.main(["experiment", "cancel", "6"]) == 1
    assert "There is no page or endpoint at" in capsys.readouterr().err
    assert main.main(["report", "export", "5", "--to", str(tmp_path / "report")]) == 0


def test_reports_are_written_to_files(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:  # noqa: ANN401 - pytest's own, of bytes here
    monkeypatch.chdir(tmp_path)
    for argv, file, path in [
        (["5"], "experiment-5.html", "/api/v1/experiments/5/report?format=html&language=en"),
        (
            ["5", "--format", "pdf", "--language", "ko"],
            "experiment-5.pdf",
            "/api/v1/experiments/5/report?format=pdf&language=ko",
        ),
        (["5", "6"], "experiments-5-6.html", "/api/v1/reports/compare?a=5&b=6&format=html&language=en"),
        (["--change", "c1", "--to", "own"], "own", "/api/v1/changes/c1/report?format=html&language=en"),
    ]:
        assert main.main(["reports", "export", *argv, "-o", "json"]) == 0
        assert (tmp_path / file).read_text() == path
        assert json.loads(capfd.readouterr().out) == {"file": file, "bytes": len(path)}
    assert main.main(["reports", "export", "5", "--to", "-", "--format", "csv"]) == 0
    assert capfd.readouterr().out == "/api/v1/experiments/5/report?format=csv&language=en"
    assert main.main(["reports", "export"]) == 2


def test_primary_metrics_of_templates_have_a_direction() -> None:
    for primary in ("cpu_s_per_gbit", "interrupts_per_s", "c5_by_c1"):
        assert EXPERIMENT_METRICS[primary].better
