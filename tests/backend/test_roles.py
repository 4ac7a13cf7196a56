"""Who may call what of nodes, history and changes: one table for people, their API tokens and everybody else."""

from uuid import uuid4

import pytest
from tests.backend.conftest import Backend, Client

NODE = f"/api/nodes/{2**31 - 1}"
CHANGE = f"/api/changes/{uuid4()}"
RANGE = "from_time=2026-01-01T00:00:00Z&to_time=2026-01-01T01:00:00Z"
ACTION = {"key": "irq/30/affinity", "was": "0", "becomes": "1", "reason": ""}
RANKS = ["viewer", "operator", "admin"]

# The node and the change are not there: whoever may ask is told so, or gets an empty list.
CALLS: list[tuple[str, str, object, str, int]] = [
    ("GET", "/api/nodes", None, "viewer", 200),
    ("GET", NODE, None, "viewer", 404),
    ("GET", f"{NODE}/heatmap?share=busy&{RANGE}", None, "viewer", 404),
    ("GET", f"{NODE}/series?metric=rtt_p99_us&{RANGE}", None, "viewer", 404),
    ("GET", f"{NODE}/matrix?{RANGE}", None, "viewer", 404),
    ("GET", "/api/changes", None, "viewer", 200),
    ("GET", CHANGE, None, "viewer", 404),
    ("POST", f"{NODE}/previews", {"wishes": [{"key": "irq/30/affinity", "value": "1"}]}, "viewer", 404),
    ("POST", f"{NODE}/changes", {"plan": {"actions": [ACTION]}}, "operator", 404),
    ("POST", f"{CHANGE}/confirm", None, "operator", 404),
    ("POST", f"{CHANGE}/rollback", None, "operator", 404),
    ("POST", f"{CHANGE}/extend", {"seconds": 60}, "operator", 404),
    ("PATCH", NODE, {"labels": {}}, "operator", 404),
    ("DELETE", NODE, None, "admin", 404),
    ("POST", f"{NODE}/revoke-key", None, "admin", 404),
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
        if path.startswith(("/api/nodes", "/api/changes"))
        for method in methods
    }
    named = {
        (method, path.split("?")[0].replace(NODE, "/api/nodes/{node_id}").replace(CHANGE, "/api/changes/{change_id}"))
        for method, path, *_ in CALLS
    }
    assert named == described
