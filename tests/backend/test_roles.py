"""Who may call what: one table for people, their API tokens and everybody else."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.backend.conftest import PASSWORD, Backend, Client

from coresteer.auth import repository, role_labels
from coresteer.changes.tables import ChangeRow
from coresteer.experiments.tables import ExperimentRow
from coresteer.nodes.tables import NodeRow
from coresteer.policies.schemas import PolicyBody
from coresteer.policies.tables import ApprovalRow, PolicyRow, PolicyVersionRow, RolloutRow

NODE = f"/api/v1/nodes/{2**31 - 1}"
CHANGE = f"/api/v1/changes/{uuid4()}"
POLICY = f"/api/v1/policies/{2**31 - 1}"
APPROVAL = f"/api/v1/approvals/{2**31 - 1}"
ROLLOUT = f"/api/v1/rollouts/{2**31 - 1}"
EXPERIMENT = f"/api/v1/experiments/{2**31 - 1}"
STUDY = f"/api/v1/simulations/{2**31 - 1}"
SPEC = {"name": "a try", "kind": "aa", "node_id": 2**31 - 1, "workload": {"type": "observe"}, "primary": "rtt_p99_us"}
BODY = {"name": "spread", "spec": {"type": "irq-spread"}}
REPLAY = {"node_id": 1, "from_time": "2026-01-01T00:00:00Z", "to_time": "2026-01-01T01:00:00Z"}
RANGE = "from_time=2026-01-01T00:00:00Z&to_time=2026-01-01T01:00:00Z"
ACTION = {"key": "irq/30/affinity", "was": "0", "becomes": "1", "reason": ""}
GRADED = {"type": "service-class", "classes": [{"name": "gold", "target_percent": 90}]}
APPLICATION_METRIC = f"/api/v1/application-metrics/{2**31 - 1}"
OWN = "limited"
"""Of calls that an operator of some nodes may make, for those nodes."""
RANKS = ["viewer", OWN, "operator", "admin"]
RULE = {"name": "hot", "signal": "softirq_cpu_percent", "threshold": 90, "clear": 80}
RECEIVER = {"name": "hook", "kind": "webhook", "url": "https://hooks.example/coresteer"}

# The node, the change and the policy do not exist: a permitted role gets 404, or an empty list. An operator of all
# nodes may make the calls that need "limited", and more.
CALLS: list[tuple[str, str, object, str, int]] = [
    ("GET", "/api/v1/nodes", None, "viewer", 200),
    ("GET", "/api/v1/simulated-nodes", None, "viewer", 200),
    ("POST", "/api/v1/simulated-nodes", None, "admin", 409),
    ("DELETE", "/api/v1/simulated-nodes", None, "admin", 204),
    ("GET", "/api/v1/fleet/outliers", None, "viewer", 200),
    ("GET", "/api/v1/fleet", None, "viewer", 200),
    ("GET", "/api/v1/fleet/labels", None, "viewer", 200),
    ("GET", f"/api/v1/fleet/series?{RANGE}", None, "viewer", 200),
    ("GET", "/api/v1/fleet-views", None, "viewer", 200),
    ("POST", "/api/v1/fleet-views", {"name": "", "search": ""}, "viewer", 422),
    ("DELETE", f"/api/v1/fleet-views/{2**31 - 1}", None, "viewer", 404),
    ("GET", NODE, None, "viewer", 404),
    ("GET", f"{NODE}/heatmap?share=busy&{RANGE}", None, "viewer", 404),
    ("GET", f"{NODE}/samples-span", None, "viewer", 404),
    ("GET", f"{NODE}/series?metric=rtt_p99_us&{RANGE}", None, "viewer", 404),
    ("GET", f"{NODE}/interrupts?{RANGE}", None, "viewer", 404),
    ("GET", f"{NODE}/matrix?{RANGE}", None, "viewer", 404),
    ("GET", f"{NODE}/netdevs/eth0/coalescing", None, "viewer", 404),
    ("POST", "/api/v1/coalescing/outcomes", {"spec": {"type": "coalescing"}}, "viewer", 200),
    ("GET", f"{NODE}/numa", None, "viewer", 404),
    ("GET", f"{NODE}/numa/1/options", None, "viewer", 404),
    ("GET", f"{NODE}/classes", None, "viewer", 404),
    ("GET", f"{NODE}/classes/history?figure=f&{RANGE}", None, "viewer", 404),
    ("POST", f"{NODE}/classes/match", {"spec": GRADED}, "viewer", 404),
    ("GET", "/api/v1/storage", None, "admin", 200),
    ("GET", "/api/v1/backends", None, "admin", 200),
    ("GET", "/api/v1/application-metrics", None, "viewer", 200),
    ("POST", "/api/v1/application-metrics", {"name": "p99"}, "admin", 422),
    ("DELETE", APPLICATION_METRIC, None, "admin", 404),
    ("POST", f"{APPLICATION_METRIC}/nodes/1/reading", None, OWN, 404),
    ("GET", "/api/v1/approvals", None, "viewer", 200),
    ("GET", "/api/v1/approvals/threshold", None, "viewer", 200),
    ("PUT", "/api/v1/approvals/threshold", {"above": -1}, "admin", 422),
    ("GET", APPROVAL, None, "viewer", 404),
    ("POST", f"{APPROVAL}/approve", None, OWN, 404),
    ("POST", f"{APPROVAL}/reject", {}, OWN, 404),
    ("POST", f"{APPROVAL}/withdraw", None, OWN, 404),
    ("GET", "/api/v1/change-windows", None, "viewer", 200),
    ("POST", "/api/v1/change-windows", {"name": ""}, "admin", 422),
    ("DELETE", f"/api/v1/change-windows/{2**31 - 1}", None, "admin", 404),
    ("GET", "/api/v1/alerts", None, "viewer", 200),
    ("GET", "/api/v1/alert-signals", None, "viewer", 200),
    ("GET", "/api/v1/alert-rules", None, "viewer", 200),
    ("POST", "/api/v1/alert-rules", {"name": ""}, "admin", 422),
    ("PUT", f"/api/v1/alert-rules/{2**31 - 1}", RULE, "admin", 404),
    ("DELETE", f"/api/v1/alert-rules/{2**31 - 1}", None, "admin", 404),
    ("GET", "/api/v1/alert-silences", None, "viewer", 200),
    ("POST", "/api/v1/alert-silences", {"labels": {}}, "operator", 422),
    ("DELETE", f"/api/v1/alert-silences/{2**31 - 1}", None, "operator", 404),
    ("GET", "/api/v1/alert-receivers", None, "viewer", 200),
    ("POST", "/api/v1/alert-receivers", {"name": ""}, "admin", 422),
    ("PUT", f"/api/v1/alert-receivers/{2**31 - 1}", RECEIVER, "admin", 404),
    ("DELETE", f"/api/v1/alert-receivers/{2**31 - 1}", None, "admin", 404),
    ("POST", f"/api/v1/alert-receivers/{2**31 - 1}/test", None, "admin", 404),
    ("GET", f"/api/v1/alert-receivers/{2**31 - 1}/deliveries", None, "viewer", 404),
    ("GET", "/api/v1/changes", None, "viewer", 200),
    ("GET", "/api/v1/changes/log", None, "viewer", 200),
    ("GET", "/api/v1/changes/log.csv", None, "viewer", 200),
    ("GET", f"{NODE}/written-settings", None, "viewer", 200),
    ("GET", CHANGE, None, "viewer", 404),
    ("GET", f"{NODE}/suggestions", None, "viewer", 404),
    ("GET", "/api/v1/suggestions?node_id=1", None, "viewer", 200),
    ("POST", f"{NODE}/policy-responses", {"desired": [{"key": "irq/30/affinity", "value": "1"}]}, "viewer", 404),
    ("POST", f"{NODE}/previews", {"desired": [{"key": "irq/30/affinity", "value": "1"}]}, "viewer", 404),
    ("POST", f"{NODE}/changes", {"plan": {"actions": [ACTION]}}, OWN, 404),
    ("GET", f"{CHANGE}/observation", None, "viewer", 404),
    ("GET", f"{CHANGE}/export?format=udev", None, "viewer", 404),
    ("POST", f"{CHANGE}/confirm", None, OWN, 404),
    ("POST", f"{CHANGE}/rollback", None, OWN, 404),
    ("POST", f"{CHANGE}/extend", {"seconds": 60}, OWN, 404),
    ("PATCH", NODE, {"labels": {}}, "operator", 404),
    ("DELETE", NODE, None, "admin", 404),
    ("POST", f"{NODE}/readmit", None, OWN, 404),
    ("POST", f"{NODE}/revoke-key", None, "admin", 404),
    ("GET", f"{NODE}/decisions", None, "viewer", 404),
    ("GET", f"{NODE}/decisions/latest", None, "viewer", 404),
    ("GET", f"{NODE}/recommendations", None, "viewer", 404),
    ("GET", f"{NODE}/drifts", None, "viewer", 404),
    ("GET", f"{NODE}/flows", None, "viewer", 404),
    ("GET", "/api/v1/stops", None, "viewer", 200),
    ("GET", "/api/v1/stops/log", None, "viewer", 200),
    ("POST", "/api/v1/stops/preview", {}, "viewer", 200),
    ("POST", "/api/v1/stops", {"labels": 1}, "admin", 422),
    ("POST", f"/api/v1/stops/{2**31 - 1}/restore", None, "admin", 404),
    ("POST", f"/api/v1/stops/{2**31 - 1}/lift", None, "admin", 404),
    ("GET", "/api/v1/policies", None, "viewer", 200),
    ("POST", "/api/v1/policies", {"name": "spread"}, OWN, 422),
    ("POST", "/api/v1/policies/preview", {"body": BODY, "node_ids": [2**31 - 1]}, "viewer", 200),
    ("POST", "/api/v1/policies/matches", {"labels": {"role": "db"}}, "viewer", 200),
    ("GET", "/api/v1/managed-sets", None, "viewer", 200),
    ("PUT", "/api/v1/managed-sets/git", {"resources": [{"kind": "Policy", "id": 2**31 - 1}]}, OWN, 404),
    ("GET", POLICY, None, "viewer", 404),
    ("DELETE", POLICY, None, OWN, 404),
    ("GET", f"{POLICY}/overview", None, "viewer", 404),
    ("GET", f"{POLICY}/overview.csv", None, "viewer", 404),
    ("GET", f"{POLICY}/versions", None, "viewer", 404),
    ("GET", f"{POLICY}/proof", None, "viewer", 404),
    ("GET", f"{POLICY}/export?node_id=1&format=udev", None, "viewer", 404),
    ("GET", "/api/v1/proof", None, "viewer", 200),
    ("POST", "/api/v1/proof/pause", None, "operator", 200),
    ("POST", "/api/v1/proof/resume", None, "operator", 200),
    ("POST", f"{POLICY}/versions", {"body": BODY}, OWN, 404),
    ("GET", f"{POLICY}/diff?from_version=1&to_version=2", None, "viewer", 404),
    ("POST", f"{POLICY}/enable", None, OWN, 404),
    ("POST", f"{POLICY}/disable", None, OWN, 404),
    ("PUT", f"{POLICY}/pace", {"batch": 2}, OWN, 404),
    ("POST", f"{POLICY}/backtest", REPLAY, "viewer", 404),
    ("POST", f"{POLICY}/rollouts", {"version": 1}, OWN, 404),
    ("GET", ROLLOUT, None, "viewer", 404),
    ("POST", f"{ROLLOUT}/stop", {"roll_back": True}, OWN, 404),
    ("GET", f"{NODE}/experiment-templates", None, "viewer", 404),
    ("GET", "/api/v1/experiments", None, "viewer", 200),
    ("POST", "/api/v1/experiments/preview", {"spec": SPEC}, "viewer", 422),
    ("POST", "/api/v1/experiments", {"spec": SPEC}, OWN, 422),
    ("GET", EXPERIMENT, None, "viewer", 404),
    ("POST", f"{EXPERIMENT}/cancel", None, OWN, 404),
    ("GET", f"{EXPERIMENT}/report", None, "viewer", 404),
    ("POST", f"{EXPERIMENT}/share", {"days": 1}, OWN, 404),
    ("DELETE", f"{EXPERIMENT}/share", None, OWN, 404),
    ("GET", "/api/v1/simulations", None, "viewer", 200),
    ("POST", "/api/v1/simulations", {"spec": {"schemes": ["none such"]}}, "operator", 422),
    ("POST", "/api/v1/simulations/estimate", {"spec": {"schemes": ["none such"]}}, "viewer", 422),
    ("GET", STUDY, None, "viewer", 404),
    ("POST", f"{STUDY}/cancel", None, "operator", 404),
    ("GET", f"{STUDY}/report", None, "viewer", 404),
    ("GET", "/api/v1/simulation-traces", None, "viewer", 200),
    ("PUT", "/api/v1/simulation-traces/log", None, "operator", 422),
    ("DELETE", "/api/v1/simulation-traces/log", None, "operator", 404),
    ("GET", f"{CHANGE}/report", None, "viewer", 404),
    ("GET", f"/api/v1/reports/compare?a={2**31 - 1}&b={2**31 - 1}", None, "viewer", 404),
]


async def caller(backend: Backend, role: str, via: str) -> Client:
    """Somebody of the role, signed in or with an API token."""
    if role == "anonymous":
        return backend.anonymous()
    if role == OWN:
        role, labels = "operator", {"role": "db"}
    else:
        labels = {}
    if via == "session":
        return await backend.client(role, labels)
    body = {"name": f"{role} {uuid4()}", "role": role, "role_labels": labels}
    made = await (await backend.client("admin")).post("/api/v1/tokens", body)
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


@dataclass(frozen=True)
class Theirs:
    """A node with these labels, and what is about it alone: change, policy with rollout and request, experiment."""

    node: int
    change: UUID
    policy: int
    rollout: int
    approval: int
    experiment: int
    selector: dict[str, str]

    def put(self, path: str, body: object) -> tuple[str, object]:
        """The call of the table, about them."""
        for placeholder, real in (
            (NODE, f"/api/v1/nodes/{self.node}"),
            ("/nodes/1/reading", f"/nodes/{self.node}/reading"),
            (CHANGE, f"/api/v1/changes/{self.change}"),
            (POLICY, f"/api/v1/policies/{self.policy}"),
            (APPROVAL, f"/api/v1/approvals/{self.approval}"),
            (ROLLOUT, f"/api/v1/rollouts/{self.rollout}"),
            (EXPERIMENT, f"/api/v1/experiments/{self.experiment}"),
        ):
            path = path.replace(placeholder, real)
        policy = BODY | {"name": f"spread {uuid4()}", "selector": {"labels": self.selector}}
        bodies = {
            "/api/v1/policies": policy,
            f"/api/v1/policies/{self.policy}/versions": {"body": policy},
            "/api/v1/managed-sets/git": {"resources": [{"kind": "Policy", "id": self.policy}]},
            "/api/v1/experiments": {"spec": SPEC | {"node_id": self.node}},
        }
        return path, bodies.get(path, body)


async def theirs(backend: Backend, value: str) -> Theirs:
    """What a node with the label role=value has."""
    labels, now = {"role": value}, datetime.now(UTC)
    async with backend.database.session() as session:
        node = NodeRow(name=f"{value}-{uuid4()}", key_hash=uuid4().bytes, simulated=False, labels=labels)
        body = PolicyBody.model_validate(BODY | {"selector": {"labels": labels}}).model_dump(mode="json")
        policy = PolicyRow(name=f"of {value} {uuid4()}", enabled=False, version=1, created_at=now, created_by="tests")
        session.add_all([node, policy])
        await session.flush()
        change = ChangeRow(
            id=uuid4(),
            node_id=node.id,
            plan={"actions": []},
            sentence="",
            state="confirmed",
            created_by="tests",
            reason="",
            created_at=now,
            confirm_timeout_s=120,
            guardrails=[],
            results=[],
        )
        rollout = RolloutRow(
            policy_id=policy.id,
            to_version=1,
            state="done",
            stage=0,
            stages=[],
            sentence="It is done.",
            wait_s=1,
            guardrails=[],
            stage_at=now,
            started_at=now,
            started_by="tests",
        )
        approval = ApprovalRow(
            policy_id=policy.id,
            action="enable",
            request={"leave_pages": False},
            basis={"version": 1, "enabled": False, "rollout": None},
            nodes=[node.id],
            above=1,
            state="waiting",
            requested_at=now,
            requested_by="tests",
            expires_at=now + timedelta(hours=1),
        )
        experiment = ExperimentRow(
            node_id=node.id,
            spec={},
            seed=1,
            runs_planned=1,
            planned_s=1,
            state="done",
            sentence="It is done.",
            activity="",
            machine={},
            created_at=now,
            created_by="tests",
        )
        version = PolicyVersionRow(
            policy_id=policy.id, version=1, body=body, created_at=now, created_by="tests", note=""
        )
        session.add_all([change, rollout, approval, experiment, version])
        await session.flush()
        return Theirs(node.id, change.id, policy.id, rollout.id, approval.id, experiment.id, labels)


@pytest.mark.parametrize("via", ["session", "token"])
async def test_an_operator_of_some_nodes_changes_these_and_no_others(backend: Backend, via: str) -> None:
    client = await caller(backend, OWN, via)
    own, other = await theirs(backend, "db"), await theirs(backend, "web")
    for method, path, body, needs, _ in CALLS:
        if needs != OWN:
            continue
        called, sent = other.put(path, body)
        assert (await client.request(method, called, json=sent)).status_code == 403, (method, called)
        called, sent = own.put(path, body)
        answer = await client.request(method, called, json=sent)
        assert answer.status_code not in (401, 403), (method, called, answer.text)


@pytest.mark.parametrize(
    ("selected", "limit", "is_implied"),
    [
        ({"role": "db"}, {"role": "db"}, True),
        ({"role": "db", "rack": "r1"}, {"role": "db"}, True),
        ({"role": "db*"}, {"role": "db*"}, True),
        ({"role": "db-1"}, {"role": "db*"}, True),
        ({"role": "db*"}, {"role": "db"}, False),
        ({"role": "d?"}, {"role": "d*"}, False),  # true, but not seen: patterns are compared as text
        ({}, {"role": "db"}, False),
        ({"rack": "r1"}, {"role": "db"}, False),
        ({"role": "web"}, {"role": "db"}, False),
        ({"role": "db"}, {"role": "db", "rack": "r0*"}, False),
    ],
)
def test_a_selector_is_within_a_limit_if_it_contains_it(
    selected: dict[str, str], limit: dict[str, str], is_implied: bool
) -> None:
    assert role_labels.implies(selected, limit) is is_implied


PATTERNS = st.dictionaries(st.sampled_from("ab"), st.text("xy*?[]!", max_size=4))


@given(selected=PATTERNS, limit=PATTERNS, labels=st.dictionaries(st.sampled_from("ab"), st.text("xy[!", max_size=4)))
def test_what_an_implied_selector_matches_is_always_within_the_limit(
    selected: dict[str, str], limit: dict[str, str], labels: dict[str, str]
) -> None:
    if role_labels.implies(selected, limit) and role_labels.match(labels, selected):
        assert role_labels.match(labels, limit)


async def test_the_limits_of_a_token_and_of_its_owner_both_hold(backend: Backend) -> None:
    admin = await backend.client("admin")
    made = await admin.post("/api/v1/tokens", {"name": "both", "role": "operator", "role_labels": {"role": "db"}})
    token = backend.anonymous()
    token.session.headers["Authorization"] = f"Bearer {made.json()['token']}"
    async with backend.database.session() as session:
        owner = await repository.find_user_by_name(session, "admin")
        assert owner is not None
        owner.role, owner.role_labels = "operator", {"rack": "r0*"}
    me = (await token.get("/api/v1/auth/me")).json()
    assert (me["role"], me["limits"]) == ("operator", [{"rack": "r0*"}, {"role": "db"}])
    own = await theirs(backend, "db")
    assert (await token.post(f"/api/v1/nodes/{own.node}/readmit")).status_code == 403
    async with backend.database.session() as session:
        node = await session.get(NodeRow, own.node)
        assert node is not None
        node.labels = {"role": "db", "rack": "r07"}
    assert (await token.post(f"/api/v1/nodes/{own.node}/readmit")).status_code == 201
    async with backend.database.session() as session:
        owner = await repository.find_user_by_name(session, "admin")
        assert owner is not None
        owner.role, owner.role_labels = "admin", {}


async def test_only_operators_are_limited_and_another_role_is_not(backend: Backend) -> None:
    admin = await backend.client("admin")
    user = {"username": "lim", "password": PASSWORD, "role": "viewer", "role_labels": {"role": "db"}}
    assert (await admin.post("/api/v1/users", user)).status_code == 422
    made = (await admin.post("/api/v1/users", user | {"role": "operator"})).json()
    assert made["role_labels"] == {"role": "db"}
    path = f"/api/v1/users/{made['id']}"
    assert (await admin.patch(path, {"role": "viewer", "role_labels": {"role": "db"}})).status_code == 422
    assert (await admin.patch(path, {"role": "viewer"})).json()["role_labels"] == {}


async def test_relabelling_does_not_let_an_operator_reach_further(backend: Backend) -> None:
    client = await caller(backend, OWN, "session")
    own = await theirs(backend, "db")
    answer = await client.patch(f"/api/v1/nodes/{own.node}", {"labels": {"role": "web"}})
    assert answer.status_code == 403
    assert "operator of role=db only" in answer.json()["detail"]


async def test_the_table_of_calls_is_complete(backend: Backend) -> None:
    described = {
        (method.upper(), path)
        for path, methods in backend.app.openapi()["paths"].items()
        if path.startswith(
            (
                "/api/v1/approvals",
                "/api/v1/change-windows",
                "/api/v1/nodes",
                "/api/v1/simulated-nodes",
                "/api/v1/fleet",
                "/api/v1/suggestions",
                "/api/v1/changes",
                "/api/v1/policies",
                "/api/v1/proof",
                "/api/v1/rollouts",
                "/api/v1/experiments",
                "/api/v1/reports",
                "/api/v1/simulation",
                "/api/v1/alert",
                "/api/v1/managed-sets",
                "/api/v1/application-metrics",
                "/api/v1/coalescing",
                "/api/v1/storage",
                "/api/v1/backends",
                "/api/v1/stops",
                "/api/v1/suggestions",
            )
        )
        for method in methods
    }
    named = {
        (
            method,
            path.split("?")[0]
            .replace(NODE, "/api/v1/nodes/{node_id}")
            .replace(CHANGE, "/api/v1/changes/{change_id}")
            .replace(POLICY, "/api/v1/policies/{policy_id}")
            .replace(APPROVAL, "/api/v1/approvals/{approval_id}")
            .replace(ROLLOUT, "/api/v1/rollouts/{rollout_id}")
            .replace(STUDY, "/api/v1/simulations/{simulation_id}")
            .replace("/simulation-traces/log", "/simulation-traces/{name}")
            .replace(EXPERIMENT, "/api/v1/experiments/{experiment_id}")
            .replace(APPLICATION_METRIC, "/api/v1/application-metrics/{metric_id}")
            .replace("/nodes/1/reading", "/nodes/{node_id}/reading")
            .replace(f"/fleet-views/{2**31 - 1}", "/fleet-views/{view_id}")
            .replace("/netdevs/eth0/", "/netdevs/{netdev}/")
            .replace("/numa/1/", "/numa/{pid}/")
            .replace(f"/change-windows/{2**31 - 1}", "/change-windows/{window_id}")
            .replace(f"/alert-rules/{2**31 - 1}", "/alert-rules/{rule_id}")
            .replace(f"/alert-silences/{2**31 - 1}", "/alert-silences/{silence_id}")
            .replace(f"/alert-receivers/{2**31 - 1}", "/alert-receivers/{receiver_id}")
            .replace("/managed-sets/git", "/managed-sets/{name}")
            .replace(f"/stops/{2**31 - 1}", "/stops/{stop_id}"),
        )
        for method, path, *_ in CALLS
    }
    assert named == described
