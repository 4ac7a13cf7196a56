"""Metrics for Prometheus: of this backend, and of the fleet."""

import asyncio
import os

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from coresteer.auth.dependencies import Viewer
from coresteer.exporter.nodes import NodeCollector
from coresteer.fleet.directory import FleetDirectory

router = APIRouter()


@router.get("/metrics", include_in_schema=False)
async def get_metrics(_: Viewer) -> Response:
    """Return metrics of this backend in Prometheus' text format; of workers that share a port, their sums."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return _answer(generate_latest(REGISTRY))
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return _answer(await asyncio.to_thread(generate_latest, registry))


@router.get("/metrics/nodes", include_in_schema=False)
async def get_node_metrics(request: Request, _: Viewer) -> Response:
    """Return the present figures of all nodes in Prometheus' text format: at most 16 series each.

    Every backend answers for the whole fleet, so only one of them is to be asked.
    """
    await request.app.state.forwarding.need_fleet()
    directory: FleetDirectory = request.app.state.fleet
    registry = CollectorRegistry()
    registry.register(NodeCollector(await directory.present()))
    return _answer(await asyncio.to_thread(generate_latest, registry))


def _answer(text: bytes) -> Response:
    return Response(text, media_type=CONTENT_TYPE_LATEST)
