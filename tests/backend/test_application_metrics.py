"""Prometheus queries as metrics: what is asked, which answers are a value, a zero or none, and who may declare them."""

import asyncio
import select
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from tests.backend.conftest import Backend, Client
from tests.backend.experiment_node import QUICK, ExperimentNode, experiment_node, never_completes
from tests.support.polling import PATIENCE_S, poll_async
from tests.support.prometheus import Answer, FakePrometheus, fake_prometheus, matrix, refusal, success, vector

from coresteer.application_metrics import repository
from coresteer.application_metrics.prometheus import PrometheusReader
from coresteer.application_metrics.reading import DeclaredMetric, Missing, Reading, parse_answer
from coresteer.experiments import applications
from coresteer.guarded_http import MAX_BYTES, is_forbidden
from coresteer_core.protocol import RunExperiment

START = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
END = START + timedelta(seconds=60)
P99 = 'histogram_quantile(0.99, sum by (le) (increase(latency_bucket{instance=~"{{node}}:.*"}[{{range}}])))'
MEAN = 'sum(rate(requests_total{instance="{{node}}"}[15s]))'


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    with fake_prometheus() as fake:
        yield fake


def metric(prometheus: FakePrometheus, query: str = P99) -> DeclaredMetric:
    return DeclaredMetric("p99", "Response time, p99", "s", "less", prometheus.url, query, 0.001)


async def read(
    prometheus: FakePrometheus, query: str = P99, node: str = "web-1", timeout_s: float = PATIENCE_S
) -> Reading:
    return await PrometheusReader(timeout_s=timeout_s).read(metric(prometheus, query), node, START, END)


async def test_a_query_with_a_range_is_evaluated_once_at_the_end_of_the_period(prometheus: FakePrometheus) -> None:
    prometheus.answer = lambda path, params: vector("0.125")
    assert await read(prometheus) == Reading(0.125)
    query = P99.replace("{{node}}", "web-1").replace("{{range}}", "60s")
    assert prometheus.requests == [("/api/v1/query", {"query": query, "time": f"{END.timestamp():.3f}"})]


async def test_another_query_has_the_mean_of_its_points(prometheus: FakePrometheus) -> None:
    prometheus.answer = lambda path, params: matrix(*["1", "3"] * 30)
    found = await read(prometheus, MEAN)
    assert found.missing is None
    assert found.value == pytest.approx(2.0)
    ((path, params),) = prometheus.requests
    asked = {"start": f"{START.timestamp() + 1:.3f}", "end": f"{END.timestamp():.3f}", "step": "1"}
    assert (path, params) == ("/api/v1/query_range", {"query": MEAN.replace("{{node}}", "web-1"), **asked})


ANSWERS: list[tuple[str, Answer, int, float | None, Missing | None, str]] = [
    ("zero is a value", vector("0"), 1, 0.0, None, ""),
    ("a scalar", success("scalar", [0, "4"]), 1, 4.0, None, ""),
    ("no series", vector(), 1, None, Missing.NO_DATA, "no data for this node"),
    ("no points", matrix(), 60, None, Missing.NO_DATA, "no data for this node"),
    ("few points", matrix(*["1"] * 29), 60, None, Missing.NO_DATA, "29 of 60 points"),
    ("half of the points", matrix(*["2"] * 30), 60, 2.0, None, ""),
    ("NaN among points", matrix(*["NaN", "2"] * 30), 60, 2.0, None, ""),
    ("0 divided by 0", vector("NaN"), 1, None, Missing.NOT_A_NUMBER, "0 divided by 0"),
    ("infinite", vector("+Inf"), 1, None, Missing.NOT_A_NUMBER, "infinite"),
    ("a sum that overflows", matrix(*["1e308"] * 60), 60, 1e308, None, ""),
    ("several series", vector("1", "2"), 1, None, Missing.SEVERAL_SERIES, "2 series; aggregate"),
    ("an invalid query", refusal("parse error at char 3"), 1, None, Missing.REFUSED, "parse error at char 3"),
    ("another program", (200, b"<html>"), 1, None, Missing.NOT_PROMETHEUS, "not as Prometheus does"),
    ("no numbers", vector("many"), 1, None, Missing.NOT_PROMETHEUS, "neither a scalar nor series"),
    ("a login page", (302, b""), 1, None, Missing.NOT_PROMETHEUS, ""),
    ("another JSON", (200, b"[1]"), 1, None, Missing.NOT_PROMETHEUS, ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answer", "points", "value", "missing", "reason"), ANSWERS)
def test_a_missing_value_is_never_zero(  # noqa: PLR0917 - a row of the table
    name: str, answer: Answer, points: int, value: float | None, missing: Missing | None, reason: str
) -> None:
    status, body = answer
    found = parse_answer(body, status, points)
    assert found.missing == missing, name
    assert found.value == pytest.approx(value), name
    assert reason in found.reason
    assert (found.reason == "") == (value is not None)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda s: st.lists(s) | st.dictionaries(
    st.sampled_from(["status", "data", "resultType", "result", "value", "values", "error"]), s
)))  # fmt: skip
def test_any_answer_is_a_finite_value_or_has_a_reason(data: Any) -> None:  # noqa: ANN401 - any JSON
    import json

    found = parse_answer(json.dumps({"status": "success", "data": data}).encode(), 200, 1)
    assert (found.value is None) == (found.reason != "")


@pytest.mark.parametrize("node", ['web"} or vector(1) #', ".*|", "a b", "", "x" * 300, "웹"])
async def test_a_name_that_could_change_the_query_is_not_asked_for(prometheus: FakePrometheus, node: str) -> None:
    found = await read(prometheus, node=node)
    assert (found.missing, prometheus.requests) == (Missing.NODE_NAME, [])


async def test_redirects_are_not_followed(prometheus: FakePrometheus) -> None:
    prometheus.answer = lambda path, params: (302, b"")
    found = await read(prometheus)
    assert (found.missing, "redirects" in found.reason) == (Missing.NOT_PROMETHEUS, True)


async def test_an_answer_is_bounded_in_bytes_and_time(prometheus: FakePrometheus) -> None:
    prometheus.answer = lambda path, params: (200, b" " * (2 * MAX_BYTES))
    assert (await read(prometheus)).missing is Missing.TOO_LARGE
    hangs = threading.Event()
    prometheus.answer = lambda path, params: (hangs.wait(PATIENCE_S), vector("1"))[1]
    found = await read(prometheus, timeout_s=0.5)
    hangs.set()
    assert (found.missing, "did not answer within 0.5 s" in found.reason) == (Missing.TIMEOUT, True)


@contextmanager
def slow_server() -> Iterator[tuple[str, threading.Event]]:
    """A server that sends a byte of its header at a time, without end, and its address; the event: it was cut off."""
    cut_off = threading.Event()

    def serve(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer, suppress(OSError):
            peer.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while True:
                peer.sendall(b"x")
                if select.select([peer], [], [], 0.05)[0] and not peer.recv(4096):
                    break
        cut_off.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", cut_off
        thread.join(PATIENCE_S)


class RecordingExecutor(ThreadPoolExecutor):
    """Counts what is run in it."""

    calls = 0

    def submit(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as in the base class
        self.calls += 1
        return super().submit(*args, **kwargs)


def test_a_slow_server_is_cut_off_at_the_deadline_and_holds_no_thread_of_others(prometheus: FakePrometheus) -> None:
    shared = RecordingExecutor(1)

    async def ask() -> Reading:
        asyncio.get_running_loop().set_default_executor(shared)
        return await read(prometheus, timeout_s=0.5)

    with slow_server() as (prometheus.url, cut_off):
        found = asyncio.run(ask())
        assert cut_off.wait(PATIENCE_S)
    assert (found.missing, found.reason.endswith("did not answer within 0.5 s.")) == (Missing.TIMEOUT, True)
    assert shared.calls == 0


@pytest.mark.parametrize(
    ("host", "forbidden"),
    [
        ("169.254.169.254", True),
        ("fe80::1%eth0", True),
        ("::ffff:169.254.169.254", True),
        ("fd00:ec2::254", True),
        ("100.100.100.200", True),
        ("127.0.0.1", False),
        ("10.0.0.7", False),
        ("2001:db8::1", False),
        ("prometheus.example", False),
    ],
)
def test_link_local_addresses_and_metadata_services_are_forbidden(host: str, forbidden: bool) -> None:
    assert is_forbidden(host) is forbidden


async def test_a_name_that_resolves_to_a_metadata_service_is_not_asked(
    prometheus: FakePrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    found = await read(prometheus)
    assert (found.missing, prometheus.requests) == (Missing.FORBIDDEN, [])


async def test_a_server_that_is_not_there_is_named(prometheus: FakePrometheus) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        prometheus.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        found = await read(prometheus)
    assert found.missing is Missing.UNREACHABLE
    assert "127.0.0.1" in found.reason


# Declared by administrators

VALID = {"name": "p99", "label": "Response time, p99", "unit": "s", "better": "less", "query": P99, "floor": 0.001}


async def declare(client: Client, prometheus: FakePrometheus, **changes: object) -> Any:  # noqa: ANN401 - a response
    return await client.post("/api/v1/application-metrics", {**VALID, "url": prometheus.url, **changes})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "P99"),
        ("name", ""),
        ("label", "two\nlines"),
        ("url", "file:///etc/passwd"),
        ("url", "http://user:secret@prometheus"),
        ("url", "http://prometheus/?x=1"),
        ("url", "http://prometheus:99999"),
        ("url", "gopher://prometheus"),
        ("url", "http://169.254.169.254/latest"),
        ("url", "http://[fe80::1]:9090"),
        ("query", "sum(rate(requests_total[1m]))"),
        ("query", "{{node}}" * 1000),
        ("better", "perhaps"),
        ("floor", 0),
        ("floor", -1),
        ("floor", None),
    ],
)
async def test_an_invalid_declaration_is_refused_with_its_field(
    backend: Backend, prometheus: FakePrometheus, field: str, value: object
) -> None:
    admin = await backend.client("admin")
    answer = await declare(admin, prometheus, **{field: value})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field, answer.text
    assert prometheus.requests == []


async def test_a_declared_metric_is_audited_tried_and_deleted_and_its_name_stays(
    backend: Backend, prometheus: FakePrometheus
) -> None:
    admin = await backend.client("admin")
    created = (await declare(admin, prometheus)).json()
    assert created["url"] == prometheus.url
    async with experiment_node(backend) as node:
        prometheus.answer = lambda path, params: vector("0.25")
        path = f"/api/v1/application-metrics/{created['id']}"
        reading = (await admin.post(f"{path}/nodes/{node.id}/reading")).json()
        assert (reading["value"], reading["missing"]) == (0.25, None)
        prometheus.answer = lambda path, params: vector()
        reading = (await admin.post(f"{path}/nodes/{node.id}/reading")).json()
        assert (reading["value"], reading["missing"]) == (None, "no-data")
    assert (await admin.delete(path)).status_code == 204
    assert (await admin.get("/api/v1/application-metrics")).json() == []
    again = await declare(admin, prometheus)
    assert (again.status_code, again.json()["errors"][0]["field"]) == (422, "name")
    entries = (await admin.get("/api/v1/audit")).json()["entries"]
    found = [entry for entry in entries if entry["action"].startswith("application-metric.")]
    assert [(entry["action"], entry["target"]) for entry in found] == [
        ("application-metric.delete", "p99"),
        ("application-metric.create", "p99"),
    ]
    assert found[1]["detail"] == {"url": prometheus.url, "query": P99, "floor": 0.001}


async def test_of_two_declarations_of_a_name_at_the_same_time_one_is_refused(
    backend: Backend, prometheus: FakePrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def neither_is_stored(*_: object) -> dict[str, object]:
        return {}

    monkeypatch.setattr(repository, "by_name", neither_is_stored)
    admin = await backend.client("admin")
    assert (await declare(admin, prometheus, name="twice")).status_code == 201
    again = await declare(admin, prometheus, name="twice")
    assert (again.status_code, again.json()["errors"][0]["field"]) == (422, "name")


# In experiments


NUMBERS = count()


@pytest.fixture
def name() -> str:
    """A name that no other test has used: names stay."""
    return f"p99_{next(NUMBERS)}"


@pytest_asyncio.fixture
async def node(backend: Backend, prometheus: FakePrometheus, name: str) -> AsyncIterator[ExperimentNode]:
    backend.app.state.runner.timeouts = QUICK
    admin = await backend.client("admin")
    assert (await declare(admin, prometheus, name=name)).status_code == 201
    async with experiment_node(backend) as node:
        yield node


async def test_an_experiment_measures_an_application_metric_in_each_run(
    node: ExperimentNode, prometheus: FakePrometheus, name: str
) -> None:
    prometheus.answer = lambda path, params: vector("0.2" if node.affinity == "7" else "0.1")
    started = await node.start(node.spec(application_metrics=[name], primary=f"app.{name}"))
    done = await node.ended(started["id"])
    assert (done["state"], done["runs_discarded"]) == ("done", 0), done["sentence"]
    (found,) = [one for one in done["analysis"]["comparisons"] if one["metric"] == f"app.{name}"]
    assert (found["baseline"]["value"], found["level"]["value"]) == (pytest.approx(0.1), pytest.approx(0.2))
    assert done["metrics"][f"app.{name}"] == {"label": "Response time, p99", "unit": "s", "better": "less"}
    assert "response time, p99" in done["findings"][0].lower()
    assert len(prometheus.requests) == done["runs_planned"]


async def test_a_run_without_its_primary_application_metric_is_discarded_with_the_reason(
    node: ExperimentNode, prometheus: FakePrometheus, name: str
) -> None:
    prometheus.answer = lambda path, params: vector()
    started = await node.start(node.spec(application_metrics=[name], primary=f"app.{name}"))
    done = await node.ended(started["id"])
    assert done["state"] == "failed"
    assert "Prometheus has no data for this node" in done["sentence"]
    assert done["runs"][0]["missing"] == {f"app.{name}": "Prometheus has no data for this node in the period."}


async def test_a_server_that_does_not_answer_with_the_primary_metric_is_asked_again_for_a_while(
    node: ExperimentNode, prometheus: FakePrometheus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coresteer.application_metrics.prometheus._SILENT_S", 0.0)
    monkeypatch.setattr("coresteer.experiments.step_actions.ASK_AGAIN_S", 0.0)
    prometheus.answer = lambda path, params: (0, b"") if len(prometheus.requests) < 5 else vector("0.1")
    started = await node.start(node.aa_spec(application_metrics=[name], primary=f"app.{name}"))
    done = await node.ended(started["id"])
    assert (done["state"], done["runs_discarded"]) == ("done", 0), done["sentence"]
    assert len(prometheus.requests) == done["runs_planned"] + 4


async def test_a_server_that_never_answers_costs_the_attempts_of_a_run(
    node: ExperimentNode, prometheus: FakePrometheus, name: str
) -> None:
    node.backend.app.state.runner.timeouts = replace(QUICK, answer_s=0.0)
    prometheus.answer = lambda path, params: (0, b"")
    started = await node.start(node.aa_spec(application_metrics=[name], primary=f"app.{name}"))
    done = await node.ended(started["id"])
    assert (done["state"], done["runs_discarded"]) == ("failed", 3)
    assert "The primary metric is missing." in done["sentence"]


async def test_another_metric_that_is_missing_is_absent_from_the_run_and_not_zero(
    node: ExperimentNode, prometheus: FakePrometheus, name: str
) -> None:
    prometheus.answer = lambda path, params: refusal("query timed out", 503)
    started = await node.start(node.spec(application_metrics=[name]))
    done = await node.ended(started["id"])
    assert (done["state"], f"app.{name}" in done["analysis"]["metrics"]) == ("done", False)


async def test_a_guardrail_on_an_application_metric_stops_the_experiment_and_restores_the_settings(
    node: ExperimentNode, prometheus: FakePrometheus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applications, "POLL_S", 1.0)
    prometheus.answer = lambda path, params: vector("0.9" if node.affinity == "7" else "0.1")
    before = node.affinity
    node.answer = lambda n, request: n.complete(request) if n.affinity != "7" else never_completes(n, request)
    guardrail = {"metric": f"app.{name}", "max": 0.5}
    started = await node.start(node.spec(application_metrics=[name], guardrails=[guardrail]))
    done = await node.ended(started["id"])
    assert done["state"] == "stopped"
    assert f"app.{name} was 0.9, above its guardrail of 0.5, in 2 readings in a row." in done["sentence"]
    assert node.affinity == before
    during = [params["query"] for _, params in prometheus.requests[-2:]]
    assert all("[30s]" not in query for query in during), "the runs before it had other settings"


async def test_a_guardrail_is_also_read_at_the_end_of_a_run(
    node: ExperimentNode, prometheus: FakePrometheus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applications, "POLL_S", 1.0)

    def once_during_the_run(*_: object) -> Answer:
        monkeypatch.setattr(applications, "POLL_S", 3600.0)
        return vector("0.9")

    prometheus.answer = once_during_the_run
    node.answer = never_completes
    started = await node.start(
        node.spec(application_metrics=[name], guardrails=[{"metric": f"app.{name}", "max": 0.5}])
    )
    await poll_async(lambda: prometheus.requests)
    run = next(each for each in node.requests if isinstance(each, RunExperiment))
    for message in node.complete(run):
        await node.say(message)
    done = await node.ended(started["id"])
    assert (done["state"], len(prometheus.requests)) == ("stopped", 2), done["sentence"]
    assert "above its guardrail of 0.5, in 2 readings in a row." in done["sentence"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"application_metrics": ["errors"]}, "spec.application_metrics[0]"),
        ({"primary": "app.p99"}, "spec"),
        ({"guardrails": [{"metric": "app.p99", "max": 1}]}, "spec.guardrails[0].metric"),
    ],
)
async def test_an_application_metric_must_be_declared_and_named_in_the_spec(
    node: ExperimentNode, changes: dict[str, object], field: str
) -> None:
    answer = await node.operator.post("/api/v1/experiments", {"spec": node.spec(**changes)})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
