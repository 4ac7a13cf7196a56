"""Metrics and traces that the backend pushes by OTLP, to a receiver that decodes them."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint
from prometheus_client import CollectorRegistry, Counter, Histogram, Info
from tests.backend.conftest import running_backend
from tests.backend.fake_agent import enrolled, rates
from tests.support.polling import poll_async

from coresteer.exporter.opentelemetry import converted
from coresteer.exporter.otlp import is_exported


@dataclass
class Receiver:
    """What was pushed: values by metric and node, names of spans, and the services that they came from."""

    url: str
    values: dict[tuple[str, str], float] = field(default_factory=dict)
    spans: list[str] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    def metrics(self, body: bytes) -> None:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            self.services |= {each.value.string_value for each in resource.resource.attributes}
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in (*metric.gauge.data_points, *metric.sum.data_points):
                    labels = {each.key: each.value.string_value for each in point.attributes}
                    self.values[metric.name, labels.get("node", "")] = point.as_double

    def traces(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.spans += [span.name for scope in resource.scope_spans for span in scope.spans]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            (found.metrics if self.path == "/v1/metrics" else found.traces)(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


async def test_a_backend_pushes_its_metrics_those_of_nodes_and_its_requests(
    database_url: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    async with running_backend(database_url, chunk_seconds=1) as backend:
        async with await enrolled(backend.database, backend.url, "pushed", interval_s=60.0) as agent:
            await agent.send_rates([rates(seq) for seq in range(1, 5)])
            await agent.until_acked(4)
            await poll_async(lambda: receiver.values.get(("coresteer_node_up", "pushed")) == 1)
        viewer = await backend.client("viewer")
        await viewer.get("/livez")
        await viewer.get("/api/v1/fleet")
        await poll_async(lambda: "GET /api/v1/fleet" in receiver.spans)
    assert receiver.values["coresteer_samples_stored", ""] >= 4
    assert {"coresteer", "test"} <= receiver.services
    assert not [name for name in receiver.spans if "livez" in name or "agent" in name]


def test_kinds_of_metrics_keep_their_meaning() -> None:
    registry = CollectorRegistry()
    Counter("asked", "How often.", registry=registry).inc(3)
    Info("build", "Which.", registry=registry).info({"version": "1"})
    took = Histogram("took_seconds", "How long.", ["route"], buckets=(1, 2), registry=registry)
    for seconds in (0.5, 1.5, 1.5, 9):
        took.labels("/a").observe(seconds)
    took.labels("/b").observe(0.1)
    asked, build, histogram = converted(registry.collect(), began_ns=1, now_ns=2)
    assert (asked.name, build.name) == ("asked", "build_info")
    (point,) = asked.data.data_points
    assert isinstance(point, NumberDataPoint)
    assert (point.value, point.start_time_unix_nano) == (3, 1)
    points = [point for point in histogram.data.data_points if isinstance(point, HistogramDataPoint)]
    assert [(point.attributes, point.count, list(point.bucket_counts)) for point in points] == [
        ({"route": "/a"}, 4, [1, 2, 1]),
        ({"route": "/b"}, 1, [1, 0, 0]),
    ]
    assert (points[0].sum, points[0].explicit_bounds) == (12.5, [1.0, 2.0])


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318/v1/metrics"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_METRICS_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_standard_variables_say_whether_metrics_are_pushed(
    variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_exported("METRICS") is expected
