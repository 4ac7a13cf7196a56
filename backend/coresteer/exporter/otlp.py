"""Pushes metrics and traces by OTLP, where OpenTelemetry's own variables name a receiver.

The SDK's instruments are not used: what is counted stays with ``coresteer.instruments``, and the figures of nodes
are those of GET /metrics/nodes.
"""

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY

from coresteer.background import cancel, repeat
from coresteer.exporter.nodes import NodeCollector
from coresteer.extras import OTLP
from coresteer.fleet.directory import FleetDirectory
from coresteer.presence.forwarding import Forwarding
from coresteer.replicas.membership import Membership

if TYPE_CHECKING:
    from fastapi import FastAPI
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.resources import Resource

# The SDK is an extra, and takes 15 MB of memory: it is imported only where it is used.
# ruff: noqa: PLC0415

log = logging.getLogger("coresteer")

_NO_SPANS = "/api/agent,/api/v1/live,/livez,/readyz"
"""Connections that last for days, and probes."""
_POINTS_PER_REQUEST = 10_000
_DEFAULT_INTERVAL_MS = "60000"  # the specification's


def is_exported(signal: str) -> bool:
    """Return whether the environment wants metrics or traces, as OpenTelemetry's specification names its variables."""
    endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
    is_named = any(os.environ.get(name) for name in (endpoint, f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return is_named and not is_off and os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp") == "otlp"


def trace_requests(app: "FastAPI", version: str) -> None:
    """Export a span for each request to the API. Raises MissingExtraError."""
    if not is_exported("TRACES"):
        return
    OTLP.require()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=_resource(version))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    FastAPIInstrumentor.instrument_app(
        app, tracer_provider=provider, excluded_urls=_NO_SPANS, exclude_spans=["receive", "send"]
    )


class OtlpMetrics:
    """Pushes what this backend counts and, on the leader, the figures of all nodes."""

    def __init__(self, directory: FleetDirectory, forwarding: Forwarding, membership: Membership, version: str) -> None:
        """Raise MissingExtraError if the environment wants metrics and the extra is not installed."""
        self._directory = directory
        self._forwarding = forwarding
        self._membership = membership
        self._version = version
        self._tasks: list[asyncio.Task[None]] = []
        if is_exported("METRICS"):
            OTLP.require()

    def start(self) -> None:
        """Start pushing, if the environment names a receiver."""
        if not is_exported("METRICS"):
            return
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        exporter = OTLPMetricExporter(max_export_batch_size=_POINTS_PER_REQUEST)
        resource, began_ns = _resource(self._version, self._membership.name), time.time_ns()

        async def push() -> None:
            await self._push(exporter, resource, began_ns)

        every_s = int(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", _DEFAULT_INTERVAL_MS)) / 1e3
        self._tasks = [asyncio.create_task(repeat(push, every_s, log, "No metrics were pushed; trying again."))]

    async def stop(self) -> None:
        """Stop pushing."""
        await cancel(self._tasks)

    async def _push(self, exporter: "OTLPMetricExporter", resource: "Resource", began_ns: int) -> None:
        from coresteer.exporter.opentelemetry import exported_data

        collectors = [REGISTRY.collect()]
        if self._membership.token is not None:
            await self._forwarding.need_fleet()
            collectors.append(NodeCollector(await self._directory.present()).collect())

        def send() -> None:
            families = [family for collector in collectors for family in collector]
            exporter.export(exported_data(families, resource, began_ns=began_ns, now_ns=time.time_ns()))

        await asyncio.to_thread(send)


def _resource(version: str, instance: str = "") -> "Resource":
    """Return what the signals are of; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME go before these."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = {"service.name": "coresteer", "service.version": version}
    if instance:
        own["service.instance.id"] = instance
    return Resource(own).merge(OTELResourceDetector().detect())
