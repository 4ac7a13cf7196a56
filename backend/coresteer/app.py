"""The FastAPI application: constructs the features, connects them, starts and stops them."""

import asyncio
import gc
import json
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache, partial
from typing import Any

from fastapi import FastAPI, Response
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware

from coresteer import errors
from coresteer.alerts.context import AlertContext
from coresteer.alerts.endpoints import router as alerts_router
from coresteer.alerts.evaluation import AlertEvaluation
from coresteer.alerts.outbox import Outbox
from coresteer.alerts.sending import Sending
from coresteer.application_metrics.endpoints import router as application_metrics_router
from coresteer.application_metrics.prometheus import PrometheusReader
from coresteer.approvals.endpoints import router as approvals_router
from coresteer.approvals.expiry import ApprovalExpiry
from coresteer.audit.export import AuditExport
from coresteer.audit_log.endpoints import router as audit_router
from coresteer.auth.endpoints import router as auth_router
from coresteer.auth.rate_limit import LoginRateLimit
from coresteer.auth.secrets import SESSION_COOKIE
from coresteer.auth.trust import TrustWatch
from coresteer.background import cancel
from coresteer.bus import Bus, NodeEvent
from coresteer.change_windows.endpoints import router as change_windows_router
from coresteer.changes import reports as change_reports
from coresteer.changes.context import ChangeContext
from coresteer.changes.endpoints import router as changes_router
from coresteer.changes.observations import Observer
from coresteer.changes.suggestions import Suggester
from coresteer.changes.unanswered import UnansweredChanges
from coresteer.classes.endpoints import router as classes_router
from coresteer.classes.store import ClassReportStore
from coresteer.coalescing.endpoints import router as coalescing_router
from coresteer.config import Config
from coresteer.db import VERSION, Database
from coresteer.experiments import repository as experiments
from coresteer.experiments.context import ExperimentContext
from coresteer.experiments.endpoints import router as experiments_router
from coresteer.experiments.endpoints_templates import router as templates_router
from coresteer.experiments.runner import ExperimentRunner
from coresteer.exporter.endpoints import router as metrics_router
from coresteer.exporter.gauges import Gauges
from coresteer.exporter.otlp import OtlpMetrics, trace_requests
from coresteer.exporter.requests import ObservedRequests
from coresteer.fleet.directory import FleetDirectory
from coresteer.fleet.endpoints import router as nodes_router
from coresteer.fleet.views import router as views_router
from coresteer.forms.endpoints import router as forms_router
from coresteer.frontend import FrontEnd
from coresteer.gateway.admission import Admission
from coresteer.gateway.agent_socket import router as agent_router
from coresteer.gateway.batch_loader import BatchLoader
from coresteer.gateway.context import GatewayContext
from coresteer.gateway.enrolment_endpoints import agents_router
from coresteer.gateway.enrolment_endpoints import router as enrolment_router
from coresteer.gateway.keys import KeyRotation
from coresteer.gateway.present import show_forwarded
from coresteer.gateway.recorder import Recorder
from coresteer.gitops.endpoints import router as gitops_router
from coresteer.health import Readiness, probes_router
from coresteer.health import router as health_router
from coresteer.http_guards import RequestGuards
from coresteer.live.hub import LiveHub
from coresteer.live.socket import router as live_router
from coresteer.nodes import service as nodes
from coresteer.numa.endpoints import router as numa_router
from coresteer.paths import API
from coresteer.policies import evaluations
from coresteer.policies import stops as policy_stops
from coresteer.policies.context import PolicyContext
from coresteer.policies.endpoints import router as policies_router
from coresteer.policies.publisher import PolicyPublisher
from coresteer.policies.rollout_guardrails import GuardrailWatch
from coresteer.policies.rollout_monitor import RolloutMonitor
from coresteer.policies.snapshot_store import SnapshotStore
from coresteer.presence.connections import Connections
from coresteer.presence.forwarding import Forwarding
from coresteer.presence.interest import Interest
from coresteer.presence.locations import Locations
from coresteer.presence.registry import NodeRegistry
from coresteer.presence.remote import RemoteAgents
from coresteer.presence.service import Presence
from coresteer.proof.context import ProofContext
from coresteer.proof.endpoints import router as proof_router
from coresteer.proof.monitor import ProofMonitor, held_out
from coresteer.quotas import Quotas, quotas_of
from coresteer.relayed_events import AFTER_A_GAP, relayed_events
from coresteer.replicas import membership as replicas
from coresteer.replicas import relay
from coresteer.replicas.broker import Broker
from coresteer.replicas.leadership import Leadership
from coresteer.replicas.listener import Listener
from coresteer.replicas.membership import Membership
from coresteer.replicas.relay import Relay
from coresteer.reports.endpoints import router as reports_router
from coresteer.reports.endpoints import shared_router
from coresteer.reports.shared import SharedReports
from coresteer.simulated_nodes.endpoints import router as simulated_nodes_router
from coresteer.simulated_nodes.service import SimulatedFleet
from coresteer.simulation import endpoints as simulation
from coresteer.simulation.runner import AbandonedStudies, SimulationRunner
from coresteer.simulation.swf import MAX_BYTES as MAX_TRACE_BYTES
from coresteer.sso.endpoints import router as sso_router
from coresteer.sso.service import new_sso, no_issuer
from coresteer.stops.endpoints import router as stops_router
from coresteer.telemetry.endpoints import router as telemetry_router
from coresteer.telemetry.maintenance import Maintenance
from coresteer.telemetry.service import Ingest
from coresteer.telemetry.storage_endpoints import router as storage_router

_RETRY_S = 1.0
_API_ROUTERS = (
    health_router,
    auth_router,
    sso_router,
    audit_router,
    nodes_router,
    enrolment_router,
    simulated_nodes_router,
    telemetry_router,
    storage_router,
    live_router,
    changes_router,
    policies_router,
    gitops_router,
    proof_router,
    application_metrics_router,
    coalescing_router,
    numa_router,
    classes_router,
    experiments_router,
    stops_router,
    views_router,
    alerts_router,
    approvals_router,
    change_windows_router,
    simulation.router,
    reports_router,
    forms_router,
    templates_router,
)

log = logging.getLogger("coresteer")


def _make_sign_in(app: FastAPI, database: Database, config: Config, membership: Membership) -> None:
    limit = LoginRateLimit(backends=lambda: 1 + len(membership.others))
    sso = new_sso(database, config, limit)
    app.state.login_limit, app.state.sso = limit, sso
    app.state.renew_session = no_issuer if sso is None else sso.renew


def _make_features(app: FastAPI, database: Database, config: Config, worker: int | None) -> None:
    """Construct the features that live as long as the application, on its state."""
    bus = Bus()
    name = f"{socket.gethostname()}:{config.port}" + ("" if worker is None else f" worker {worker}")
    app.state.membership = membership = Membership(database, name, VERSION)
    locations = Locations(lambda: membership.id, membership.is_alive)
    app.state.broker = broker = Broker(config.nats_url, membership)
    app.state.remote = remote = RemoteAgents(broker, membership)
    connections, registry = Connections(locations, remote), NodeRegistry(locations)
    app.state.presence = presence = Presence(
        database, bus, membership=membership, connections=connections, registry=registry, locations=locations
    )
    remote.serve(connections, presence.follow)
    app.state.interest = interest = Interest(connections, registry)
    app.state.forwarding = Forwarding(
        broker, membership, locations=locations, connections=connections, registry=registry, interest=interest
    )

    def skew_ms(node_id: int) -> float | None:
        return registry.get(node_id).clock_skew_ms

    app.state.quotas = quotas = Quotas(database, quotas_of(config), backends=lambda: 1 + len(membership.others))
    _make_sign_in(app, database, config, membership)
    ingest = Ingest(database, connections, config, skew_ms, quotas)
    app.state.changes = ChangeContext(database, connections, bus)
    app.state.unanswered_changes = UnansweredChanges(database, connections)
    app.state.observer = Observer(database, bus, registry, ingest)
    app.state.suggester = Suggester(database, ingest, registry)
    app.state.prometheus, app.state.shared_reports = PrometheusReader(), SharedReports(database)
    app.state.policies = PolicyContext(
        database, bus, connections, registry, interest, ingest, app.state.prometheus.read
    )
    app.state.rollout_monitor = RolloutMonitor(app.state.policies)
    app.state.guardrail_watch = GuardrailWatch(app.state.policies, lambda: membership.token is not None)
    app.state.database, app.state.bus, app.state.connections, app.state.registry = database, bus, connections, registry
    app.state.trust = TrustWatch(database)
    app.state.readiness = Readiness(config, database, registry, broker)
    app.state.fleet = FleetDirectory(database, bus, registry)
    app.state.ingest, app.state.live = ingest, LiveHub(database, bus, registry, interest, app.state.fleet)
    in_use = experiments.running_experiment_by_node
    publisher = PolicyPublisher(
        database, bus, connections, registry, broker=broker, nodes_in_use=in_use, held_out=held_out
    )
    app.state.proof = ProofContext(
        app.state.policies,
        lambda node_id: bus.publish(NodeEvent(node_id)),
        in_use,
        config.chunk_seconds,
        timedelta(days=config.rollup_retention_days),
    )
    app.state.proof_monitor = ProofMonitor(app.state.proof)
    app.state.experiments = ExperimentContext(
        database,
        bus,
        connections,
        registry,
        app.state.forwarding,
        publisher,
        app.state.changes,
        app.state.prometheus.read,
    )
    app.state.runner = ExperimentRunner(app.state.experiments)
    app.state.simulations = SimulationRunner(database, membership)
    app.state.alerts = AlertContext(
        database, app.state.fleet, app.state.readiness.disk_used_percent, Sending(), config.public_url
    )
    app.state.leadership = Leadership(
        membership,
        [
            app.state.rollout_monitor,
            app.state.proof_monitor,
            app.state.runner,
            Maintenance(database, config, ingest.hourly),
            AbandonedStudies(database, membership),
            ApprovalExpiry(app.state.policies),
            AlertEvaluation(app.state.alerts),
            Outbox(app.state.alerts),
        ],
    )
    app.state.relay = Relay(database, bus, membership, relayed=relayed_events(database), gap=AFTER_A_GAP)

    def catch_up() -> None:
        membership.wake()
        app.state.relay.deliver_gap()

    channels = {replicas.CHANNEL: lambda _: membership.wake(), relay.CHANNEL: app.state.relay.receive}
    app.state.listener = Listener(database, channels, catch_up)
    app.state.simulated_fleet = SimulatedFleet(database, bus, registry, quotas, config)
    app.state.audit_export = AuditExport(database, config.audit_export) if config.audit_export else None
    app.state.agents = GatewayContext(
        agents=BatchLoader(partial(nodes.identify_agents, database, timedelta(days=config.key_expiry_days))),
        epochs=BatchLoader(presence.announce),
        admission=Admission(),
        presence=presence,
        trust=app.state.trust,
        keys=KeyRotation(database, timedelta(days=config.key_rotation_days)),
        bus=bus,
        connections=connections,
        registry=registry,
        interest=interest,
        forwarding=app.state.forwarding,
        recorder=Recorder(database, bus),
        quotas=quotas,
        ingest=ingest,
        live=app.state.live,
        snapshots=SnapshotStore(database, config, skew_ms, quotas),
        class_reports=ClassReportStore(database, quotas),
        publisher=publisher,
        runner=app.state.runner,
        record_decision=partial(evaluations.record_decision, app.state.policies),
        record_stopped=partial(policy_stops.record_stopped, app.state.policies),
        record_change_report=partial(change_reports.record_report, app.state.changes),
        state_queries=BatchLoader(partial(change_reports.state_queries, database)),
    )
    app.state.forwarding.show = partial(show_forwarded, app.state.agents)
    app.state.otlp = OtlpMetrics(app.state.fleet, app.state.forwarding, membership, VERSION)
    app.state.gauges = Gauges(
        connections, ingest, membership, app.state.readiness, is_ready=lambda: bool(app.state.is_ready)
    )


async def _start_features(app: FastAPI) -> None:
    """Migrate the database, then start the features."""
    await app.state.database.migrate()
    await app.state.when_ready(app.state.database)
    await app.state.membership.join()
    await app.state.presence.load()
    # nothing below fails, so that a retry starts nothing twice
    app.state.trust.start()
    app.state.agents.keys.start()
    app.state.quotas.start()
    app.state.ingest.start()
    app.state.agents.recorder.start()
    app.state.agents.snapshots.start()
    app.state.agents.class_reports.start()
    app.state.agents.publisher.start()
    app.state.unanswered_changes.start()
    app.state.observer.start()
    app.state.guardrail_watch.start()
    app.state.fleet.start()
    app.state.live.start()
    app.state.interest.start()
    app.state.forwarding.start()
    app.state.membership.start()
    app.state.broker.start()
    app.state.listener.start()
    app.state.presence.start()
    app.state.relay.start()
    await app.state.leadership.start()
    if app.state.audit_export is not None:
        app.state.audit_export.start()
    app.state.gauges.start()
    app.state.otlp.start()
    app.state.is_ready = True


async def _stop_features(app: FastAPI) -> None:
    app.state.is_ready = False
    await app.state.otlp.stop()
    await app.state.gauges.stop()
    if app.state.audit_export is not None:
        await app.state.audit_export.stop()
    await app.state.simulated_fleet.stop()
    await app.state.forwarding.stop()
    await app.state.interest.stop()
    await app.state.live.stop()
    await app.state.fleet.stop()
    await app.state.simulations.stop()
    await app.state.listener.stop()
    await app.state.broker.stop()
    await app.state.relay.stop()
    await app.state.presence.stop()
    await app.state.leadership.stop()
    await app.state.guardrail_watch.stop()
    await app.state.observer.stop()
    await app.state.unanswered_changes.stop()
    await app.state.agents.publisher.stop()
    await app.state.agents.class_reports.stop()
    await app.state.agents.snapshots.stop()
    await app.state.agents.recorder.stop()
    await app.state.ingest.stop()
    await app.state.agents.keys.stop()
    await app.state.trust.stop()
    await app.state.quotas.stop()
    await app.state.membership.stop()


async def _start_when_the_database_answers(app: FastAPI) -> None:
    """Retry until the database answers; any other error ends the process."""
    while True:
        await asyncio.sleep(_RETRY_S)
        try:
            return await _start_features(app)
        except Exception as error:
            if not errors.is_database_unavailable(error):
                app.state.failure = error
                signal.raise_signal(signal.SIGTERM)
                return


def _tune_garbage_collection() -> None:
    """Raise the thresholds: with 10,000 connections Python's defaults stop the process for 0.7 s at a time."""
    gc.set_threshold(100_000, 50, 100_000)
    gc.freeze()


async def _nothing(_: Database) -> None:
    return


def create_app(
    config: Config, when_ready: Callable[[Database], Awaitable[None]] = _nothing, *, worker: int | None = None
) -> FastAPI:
    """Return the backend as an ASGI application. when_ready is called once, before the first request.

    worker: its number among those that share a port, None alone.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if config.database_url is None:
            raise RuntimeError("The backend needs a database: set DATABASE_URL.")
        database = Database(config.database_url, config.migrations_dir)
        _make_features(app, database, config, worker)
        await database.open()
        try:
            await _start_features(app)
            retry = None
        except Exception as error:
            if not errors.is_database_unavailable(error):
                app.state.failure = error
                raise
            log.warning(
                "The database does not answer: %s; retrying every second.", errors.database_error_message(error)
            )
            retry = asyncio.create_task(_start_when_the_database_answers(app))
        _tune_garbage_collection()
        yield
        if retry is not None:
            await cancel([retry])
        await _stop_features(app)
        await database.close()

    app = FastAPI(
        title="Coresteer",
        version=VERSION,
        lifespan=lifespan,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        responses={"default": {"description": "A problem", "content": _PROBLEM_CONTENT}},
    )
    app.state.config = config
    app.state.when_ready = when_ready
    app.state.is_ready = False
    app.state.failure = None
    errors.install_error_handlers(app)
    for router in _API_ROUTERS:
        app.include_router(router, prefix=API)
    for router in (probes_router, metrics_router, agent_router, agents_router, shared_router):
        app.include_router(router)
    document = cache(lambda: json.dumps(openapi(app)).encode())

    @app.get(f"{API}/openapi.json", include_in_schema=False)
    def describe() -> Response:  # in a thread, because making it takes a second
        """Return the API's description, also to who is not signed in: it says nothing of this backend."""
        return Response(document(), media_type="application/json")

    app.router.default = FrontEnd(config.frontend_dir)
    app.add_middleware(ObservedRequests)
    app.add_middleware(
        GZipMiddleware,
        minimum_size=1024,
        compresslevel=5,
        # cells of a heat map become half as many bytes, which takes longer than a local network needs for the others
        exclude_content_types=(*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream"),
    )

    async def is_database_reachable() -> bool:
        return bool(await app.state.database.is_reachable())

    app.add_middleware(
        RequestGuards,
        host_names=config.answered_names,
        larger_bodies={f"{API}{simulation.TRACES}/": MAX_TRACE_BYTES},
        is_ready=lambda: bool(app.state.is_ready),
        is_database_reachable=is_database_reachable,
    )
    trace_requests(app, VERSION)
    return app


_PROBLEM_CONTENT = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


def openapi(app: FastAPI) -> dict[str, Any]:  # Any: an OpenAPI document is arbitrary JSON
    """Return the OpenAPI document of the HTTP API, in which every error response is a Problem."""
    document = app.openapi()
    document["components"]["schemas"]["Problem"] = errors.PROBLEM_SCHEMA
    document["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "An API token."},
        "session": {"type": "apiKey", "in": "cookie", "name": SESSION_COOKIE, "description": "Of a browser."},
    }
    document["security"] = [{"token": []}, {"session": []}]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["tags"] = [path.removeprefix(API).split("/")[1]]
    return document
