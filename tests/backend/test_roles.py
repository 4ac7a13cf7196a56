"""Who may call what: one table for people, their API tokens and everybody else."""

from uuid import uuid4

import pytest
from tests.backend.conftest import Backend, Client

NODE = f"/api/nodes/{2**31 - 1}"
CHANGE = f"/api/changes/{uuid4()}"
POLICY = f"/api/policies/{2**31 - 1}"
ROLLOUT = f"/api/rollouts/{2**31 - 1}"
EXPERIMENT = f"/api/experiments/{2**31 - 1}"
STUDY = f"/api/simulations/{2**31 - 1}"
SPEC = {"name": "a try", "kind": "aa", "node_id": 2**31 - 1, "workload": {"type": "observe"}, "primary": "rtt_p99_us"}
BODY = {"name": "spread", "spec": {"type": "irq-spread"}}
REPLAY = {"node_id": 1, "from_time": "2026-01-01T00:00:00Z", "to_time": "2026-01-01T01:00:00Z"}
RANGE = "from_time=2026-01-01T00:00:00Z&to_time=2026-01-01T01:00:00Z"
ACTION = {"key": "irq/30/affinity", "was": "0", "becomes": "1", "reason": ""}
GRADED = {"type": "service-class", "classes": [{"name": "gold", "target_percent": 90}]}
APPLICATION_METRIC = f"/api/application-metrics/{2**31 - 1}"
RANKS = ["viewer", "operator", "admin"]

# The node, the change and the policy do not exist: a permitted role gets 404, or an empty list.
CALLS: list[tuple[str, str, object, str, int]] = [
    ("GET", "/api/nodes", None, "viewer", 200),
    ("GET", "/api/simulated-nodes", None, "viewer", 200),
    ("POST", "/api/simulated-nodes", None, "admin", 409),
    ("DELETE", "/api/simulated-nodes", None, "admin", 204),
    ("GET", "/api/fleet/outliers", None, "viewer", 200),
    ("GET", "/api/fleet", None, "viewer", 200),
    ("GET", "/api/fleet/labels", None, "viewer", 200),
    ("GET", f"/api/fleet/series?{RANGE}", None, "viewer", 200),
    ("GET", "/api/fleet-views", None, "viewer", 200),
    ("POST", "/api/fleet-views", {"name": "", "search": ""}, "viewer", 422),
    ("DELETE", f"/api/fleet-views/{2**31 - 1}", None, "viewer", 404),
    ("GET", NODE, None, "viewer", 404),
    ("GET", f"{NODE}/heatmap?share=busy&{RANGE}", None, "viewer", 404),
    ("GET", f"{NODE}/samples-span", None, "viewer", 404),
    ("GET", f"{NODE}/series?metric=rtt_p99_us&{RANGE}", None, "viewer", 404),
    ("GET", f"{NODE}/interrupts?{RANGE}", None, "viewer", 404),
    ("GET", f"{NODE}/matrix?{RANGE}", None, "viewer", 404),
    ("GET", f"{NODE}/netdevs/eth0/coalescing", None, "viewer", 404),
    ("POST", "/api/coalescing/outcomes", {"spec": {"type": "coalescing"}}, "viewer", 200),
    ("GET", f"{NODE}/numa", None, "viewer", 404),
    ("GET", f"{NODE}/numa/1/options", None, "viewer", 404),
    ("GET", f"{NODE}/classes", None, "viewer", 404),
    ("GET", f"{NODE}/classes/history?figure=f&{RANGE}", None, "viewer", 404),
    ("POST", f"{NODE}/classes/match", {"spec": GRADED}, "viewer", 404),
    ("GET", "/api/storage", None, "admin", 200),
    ("GET", "/api/backends", None, "admin", 200),
    ("GET", "/api/application-metrics", None, "viewer", 200),
    ("POST", "/api/application-metrics", {"name": "p99"}, "admin", 422),
    ("DELETE", APPLICATION_METRIC, None, "admin", 404),
    ("POST", f"{APPLICATION_METRIC}/nodes/1/reading", None, "operator", 404),
    ("GET", "/api/changes", None, "viewer", 200),
    ("GET", "/api/changes/log", None, "viewer", 200),
    ("GET", "/api/changes/log.csv", None, "viewer", 200),
    ("GET", f"{NODE}/written-settings", None, "viewer", 200),
    ("GET", CHANGE, None, "viewer", 404),
    ("GET", f"{NODE}/suggestions", None, "viewer", 404),
    ("GET", "/api/suggestions?node_id=1", None, "viewer", 200),
    ("POST", f"{NODE}/policy-responses", {"desired": [{"key": "irq/30/affinity", "value": "1"}]}, "viewer", 404),
    ("POST", f"{NODE}/previews", {"desired": [{"key": "irq/30/affinity", "value": "1"}]}, "viewer", 404),
    ("POST", f"{NODE}/changes", {"plan": {"actions": [ACTION]}}, "operator", 404),
    ("GET", f"{CHANGE}/observation", None, "viewer", 404),
    ("POST", f"{CHANGE}/confirm", None, "operator", 404),
    ("POST", f"{CHANGE}/rollback", None, "operator", 404),
    ("POST", f"{CHANGE}/extend", {"seconds": 60}, "operator", 404),
    ("PATCH", NODE, {"labels": {}}, "operator", 404),
    ("DELETE", NODE, None, "admin", 404),
    ("POST", f"{NODE}/readmit", None, "operator", 404),
    ("POST", f"{NODE}/revoke-key", None, "admin", 404),
    ("GET", f"{NODE}/decisions", None, "viewer", 404),
    ("GET", f"{NODE}/recommendations", None, "viewer", 404),
    ("GET", f"{NODE}/drifts", None, "viewer", 404),
    ("GET", f"{NODE}/flows", None, "viewer", 404),
    ("GET", "/api/stops", None, "viewer", 200),
    ("GET", "/api/stops/log", None, "viewer", 200),
    ("POST", "/api/stops/preview", {}, "viewer", 200),
    ("POST", "/api/stops", {"labels": 1}, "admin", 422),
    ("POST", f"/api/stops/{2**31 - 1}/restore", None, "admin", 404),
    ("POST", f"/api/stops/{2**31 - 1}/lift", None, "admin", 404),
    ("GET", "/api/policies", None, "viewer", 200),
    ("POST", "/api/policies", {"name": "spread"}, "operator", 422),
    ("POST", "/api/policies/preview", {"body": BODY, "node_ids": [2**31 - 1]}, "viewer", 200),
    ("POST", "/api/policies/matches", {"labels": {"role": "db"}}, "viewer", 200),
    ("GET", POLICY, None, "viewer", 404),
    ("DELETE", POLICY, None, "operator", 404),
    ("GET", f"{POLICY}/overview", None, "viewer", 404),
    ("GET", f"{POLICY}/overview.csv", None, "viewer", 404),
    ("GET", f"{POLICY}/versions", None, "viewer", 404),
    ("GET", f"{POLICY}/proof", None, "viewer", 404),
    ("GET", "/api/proof", None, "viewer", 200),
    ("POST", "/api/proof/pause", None, "operator", 200),
    ("POST", "/api/proof/resume", None, "operator", 200),
    ("POST", f"{POLICY}/versions", {"body": BODY}, "operator", 404),
    ("GET", f"{POLICY}/diff?from_version=1&to_version=2", None, "viewer", 404),
    ("POST", f"{POLICY}/enable", None, "operator", 404),
    ("POST", f"{POLICY}/disable", None, "operator", 404),
    ("POST", f"{POLICY}/backtest", REPLAY, "viewer", 404),
    ("POST", f"{POLICY}/rollouts", {"version": 1}, "operator", 404),
    ("GET", ROLLOUT, None, "viewer", 404),
    ("POST", f"{ROLLOUT}/stop", {"roll_back": True}, "operator", 404),
    ("GET", f"{NODE}/experiment-templates", None, "viewer", 404),
    ("GET", "/api/experiments", None, "viewer", 200),
    ("POST", "/api/experiments/preview", {"spec": SPEC}, "viewer", 422),
    ("POST", "/api/experiments", {"spec": SPEC}, "operator", 422),
    ("GET", EXPERIMENT, None, "viewer", 404),
    ("POST", f"{EXPERIMENT}/cancel", None, "operator", 404),
    ("GET", f"{EXPERIMENT}/report", None, "viewer", 404),
    ("POST", f"{EXPERIMENT}/share", {"days": 1}, "operator", 404),
    ("DELETE", f"{EXPERIMENT}/share", None, "operator", 404),
    ("GET", "/api/simulations", None, "viewer", 200),
    ("POST", "/api/simulations", {"spec": {"schemes": ["none such"]}}, "operator", 422),
    ("POST", "/api/simulations/estimate", {"spec": {"schemes": ["none such"]}}, "viewer", 422),
    ("GET", STUDY, None, "viewer", 404),
    ("POST", f"{STUDY}/cancel", None, "operator", 404),
    ("GET", f"{STUDY}/report", None, "viewer", 404),
    ("GET", "/api/simulation-traces", None, "viewer", 200),
    ("PUT", "/api/simulation-traces/log", None, "operator", 422),
    ("DELETE", "/api/simulation-traces/log", None, "operator", 404),
    ("GET", f"{CHANGE}/report", None, "viewer", 404),
    ("GET", f"/api/reports/compare?a={2**31 - 1}&b={2**31 - 1}", None, "viewer", 404),
]


async def caller(backend: Backend, role: str, via: str) -> Client:
    """Somebody of the role, signed in or with an API token."""
    if role == "anonymous":
        return backend.anonymous()
    client = await backend.client(role)
    if via == "session":
        return client
    made = await (await backend.client("admin")).post("/api/tokens", {"name": f"{role} {uuid4()}", "role": role})
    assert made.status_code == 201, made.text
    bearer = backend.anonymous()
    bearer.session.headers["Authorization"] = f"Bearer {made.json()['token']}"
    return bearer


@pytest.mark.parametrize(
    ("role", "via"),
    [("anonymous", "nothing"), *((role, via) for role in RANKS for via in ("session", "token"))],
)
async def test_each_role_may_call_what_it_needs_and_no_more(backend: Backend, role: str, via: str) -> None:
    client = await caller(backend, role, via)
    found, expected = {}, {}
    for method, path, body, needs, answer in CALLS:
        found[method, path] = (await client.request(method, path, json=body)).status_code
        if role == "anonymous":
            expected[method, path] = 401
        else:
            expected[method, path] = answer if RANKS.index(role) >= RANKS.index(needs) else 403
    assert found == expected


async def test_the_table_of_calls_is_complete(backend: Backend) -> None:
    described = {
        (method.upper(), path)
        for path, methods in backend.app.openapi()["paths"].items()
        if path.startswith(
            (
                "/api/nodes",
                "/api/simulated-nodes",
                "/api/fleet",
                "/api/suggestions",
                "/api/changes",
                "/api/policies",
                "/api/proof",
                "/api/rollouts",
                "/api/experiments",
                "/api/reports",
                "/api/simulation",
                "/api/application-metrics",
                "/api/coalescing",
                "/api/storage",
                "/api/backends",
                "/api/stops",
                "/api/suggestions",
            )
        )
        for method in methods
    }
    named = {
        (
            method,
            path.split("?")[0]
            .replace(NODE, "/api/nodes/{node_id}")
            .replace(CHANGE, "/api/changes/{change_id}")
            .replace(POLICY, "/api/policies/{policy_id}")
            .replace(ROLLOUT, "/api/rollouts/{rollout_id}")
            .replace(STUDY, "/api/simulations/{simulation_id}")
            .replace("/simulation-traces/log", "/simulation-traces/{name}")
            .replace(EXPERIMENT, "/api/experiments/{experiment_id}")
            .replace(APPLICATION_METRIC, "/api/application-metrics/{metric_id}")
            .replace("/nodes/1/reading", "/nodes/{node_id}/reading")
            .replace(f"/fleet-views/{2**31 - 1}", "/fleet-views/{view_id}")
            .replace("/netdevs/eth0/", "/netdevs/{netdev}/")
            .replace("/numa/1/", "/numa/{pid}/")
            .replace(f"/stops/{2**31 - 1}", "/stops/{stop_id}"),
        )
        for method, path, *_ in CALLS
    }
    assert named == described
