"""The queries of the dashboard for Grafana, and whether a Prometheus answers them."""

import asyncio
import json

import requests

from coresteer.config import REPOSITORY

GENERATOR = REPOSITORY / "packaging/grafana/generate.py"
DASHBOARD = json.loads((GENERATOR.with_name("coresteer.json")).read_text())
QUERIES = {panel["title"]: panel["targets"][0]["expr"] for panel in DASHBOARD["panels"] if panel["type"] != "row"}
NEEDS_MORE = {"Wrong-node bytes, 10 highest", "Round-trip time, 99th percentile, 10 highest", "Reports of changes"}
"""Panels that stay empty where agents report no TCP connections and no changes."""


async def is_answered(url: str, expr: str) -> bool:
    """Whether a query has a result. An invalid one fails."""
    try:
        answer = await asyncio.to_thread(requests.get, f"{url}/api/v1/query", {"query": expr}, timeout=10)
    except requests.ConnectionError:
        return False  # it is still starting
    if answer.status_code == requests.codes.unavailable:
        return False  # likewise
    found = answer.json()
    assert found["status"] == "success", found
    return bool(found["data"]["result"])
