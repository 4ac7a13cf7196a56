"""A database that the backend of commit 602788d wrote is migrated to the newest schema, and all of it is readable.

Some of it was in progress: what the backend ends by itself after its start is read as in progress or as ended.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from tests.backend.conftest import PASSWORD, Client, running_backend
from tests.upgrade.database import upgraded
from tests.upgrade.expected import AUDIT_ENTRIES, AUDITED, CHANGES, EXPERIMENTS, KINDS, MODES, ROLLOUTS, VALUES
from tests.upgrade.names import now, then

from coresteer.postgres import EmbeddedPostgres

Json: TypeAlias = Any  # an answer's


class Reader:
    """An administrator who looks at everything."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def get(self, path: str, **query: object) -> Json:
        """What is answered. path: as 602788d had it, below the prefix of today."""
        path = now("path", path)
        answer = await self.client.get(f"{path}?{urlencode(query, doseq=True)}" if query else path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return answer.json() if "json" in answer.headers["content-type"] else answer.content

    async def pages(self, path: str, what: str) -> list[Json]:
        """All of what is answered a page at a time."""
        page = await self.get(path, limit=500)
        found: list[Json] = page[field(what)]
        while page[field("older")] is not None:
            page = await self.get(path, limit=500, older_than=page[field("older")])
            found += page[field(what)]
        return found

    async def node(self, name: str) -> Json:
        """The node with that name."""
        (found,) = [node for node in await self.get("/api/v1/nodes") if node[field("name")] == name]
        return found


def field(name: str) -> str:
    """What a field of an answer is called now."""
    return now("field", name)


def names(what: str, found: Iterable[str | None]) -> Counter[str | None]:
    """How often each is there, called as then."""
    return Counter(None if name is None else then(what, name) for name in found)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def reader(postgres_server: EmbeddedPostgres) -> AsyncIterator[Reader]:
    forever = {"retention_days": 36_500, "rollup_retention_days": 36_500}
    async with upgraded(postgres_server) as url, running_backend(url, **forever) as backend:
        yield Reader(await backend.client("admin"))


async def test_people_and_their_tokens_are_still_there(reader: Reader) -> None:
    users = {user[field("username")]: user for user in await reader.get("/api/v1/users")}
    roles = {name: then("role", user[field("role")]) for name, user in users.items()}
    assert roles == {"admin": "admin", "viewer": "viewer", "operator": "operator", "former": "operator"}
    assert [name for name, user in users.items() if user[field("disabled")]] == ["former"]
    tokens = await reader.get("/api/v1/tokens")
    assert names("role", (token[field("role")] for token in tokens)) == dict.fromkeys(
        ("viewer", "operator", "admin"), 1
    )
    assert sum(token[field("last_used_at")] is not None for token in tokens) == 1


async def test_a_password_from_then_still_signs_in(reader: Reader) -> None:
    someone = Client(reader.client.url)
    answer = await someone.post(now("path", "/api/v1/auth/login"), {"username": "viewer", "password": PASSWORD})
    assert answer.status_code == 200, answer.text


async def test_every_audit_entry_is_still_there(reader: Reader) -> None:
    entries = await reader.pages("/api/v1/audit", "entries")
    own = [entry for entry in entries if entry[field("id")] <= AUDIT_ENTRIES]
    assert len(own) == AUDIT_ENTRIES
    assert set(names("audit action", (entry[field("action")] for entry in own))) == AUDITED
    assert set(names("audit result", (entry[field("result")] for entry in own))) >= {"ok", "refused", "failed", "asked"}
    assert all(entry[field("actor")] and entry[field("target")] for entry in own)


async def test_every_node_is_still_there_with_what_its_agent_told(reader: Reader) -> None:
    nodes = await reader.get("/api/v1/nodes")
    assert len(nodes) == 9
    known = [await reader.get(f"/api/v1/nodes/{node[field('id')]}") for node in nodes]
    assert sum(node[field("topology")] is not None for node in known) == 5
    assert sum(node[field("inventory")] is not None for node in known) == 5
    cpus = [len(node[field("topology")]["cpus"]) for node in known if node[field("topology")]]
    assert cpus == [8] * 5
    labels = (await reader.node("never-connected"))[field("labels")]
    assert labels == {"rack": "r1", "tier": "web"}
    for node in nodes:
        for what in ("experiment-templates", "flows", "recommendations", "decisions", "drifts", "classes"):
            if node[field("cpus")] is not None:
                await reader.get(f"/api/v1/nodes/{node[field('id')]}/{what}")


async def test_every_change_is_still_there_with_its_plan_and_its_steps(reader: Reader) -> None:
    changes = await reader.pages("/api/v1/changes", "changes")
    found = Counter(
        (then("change state", each[field("state")]), None if by is None else then("ended by", by))
        for each in changes
        for by in [each[field("ended_by")]]
    )
    assert found.total() == sum(CHANGES.values())
    ended = {how: count for how, count in CHANGES.items() if how[0] in ("rolled_back", "failed", "confirmed")}
    assert {how: found[how] for how in ended} == ended
    kept = next(each for each in changes if each[field("reason")] == "kept")
    kept = await reader.get(f"/api/v1/changes/{kept[field('id')]}")
    (action,) = kept[field("plan")]["actions"]
    assert (action["becomes"], action["reason"]) == ("1", "It is busy.")
    assert [then("change state", step[field("state")]) for step in kept[field("steps")]] == [
        "applying",
        "unconfirmed",
        "confirmed",
    ]
    outcomes = names("outcome", (result["outcome"] for each in changes for result in each[field("results")]))
    assert set(outcomes) == {"applied", "unchanged", "unsupported", "refused", "failed"}
    assert sum(each[field("policy_id")] is not None for each in changes) == 4
    assert sum(each[field("experiment_id")] is not None for each in changes) >= 60
    for form in ("html", "csv", "json"):
        assert await reader.get(f"/api/v1/changes/{kept[field('id')]}/report", format=form)


async def test_every_policy_is_still_there_with_its_versions(reader: Reader) -> None:
    policies = await reader.get("/api/v1/policies")
    bodies = [policy[field("body")] for policy in policies]
    found = {(then("policy type", body["spec"]["type"]), then("mode", body["mode"])) for body in bodies}
    assert found == {(kind, mode) for kind in KINDS for mode in MODES}
    for policy in policies:
        versions = await reader.get(f"/api/v1/policies/{policy[field('id')]}/versions")
        assert sorted(version[field("version")] for version in versions) == [1, 2]
        assert {version[field("note")] for version in versions} == {"", "the second"}
        assert await reader.get(f"/api/v1/policies/{policy[field('id')]}/diff", from_version=1, to_version=2)
        body = policy[field("body")]
        assert body["proof"]["holdout_percent"] == 0  # a version keeps what it does
        assert body["selector"]["labels"] == {"pool": "upgrade"}
        assert (body["scope"]["tasks"], body["guardrails"][0]["max"]) == (["nginx"], 1e6)
    owned = names("ownership", (body["on_drift"] for body in bodies))
    assert owned == {"yield": 6, "warn": 3, "take_over": 3}


async def test_every_value_of_a_policys_fields_is_still_understood(reader: Reader) -> None:
    found: dict[str, set[tuple[str, str]]] = {kind: set() for kind in KINDS}
    for policy in await reader.get("/api/v1/policies"):
        for version in await reader.get(f"/api/v1/policies/{policy[field('id')]}/versions"):
            spec = version[field("body")]["spec"]
            kind = then("policy type", spec["type"])
            for name, _ in VALUES[kind]:
                told = spec[now("policy field", name)]
                values = told if isinstance(told, list) else [told]
                found[kind] |= {(name, then("policy value", value)) for value in values}
    assert found == VALUES


async def test_every_rollout_is_still_there(reader: Reader) -> None:
    rollouts = [await reader.get(f"/api/v1/rollouts/{number}") for number in range(1, sum(ROLLOUTS.values()) + 1)]
    found = names("rollout state", (rollout[field("state")] for rollout in rollouts))
    assert {state: found[state] for state in ("done", "stopped")} == {"done": 1, "stopped": 1}
    assert found["undone"] + found["canary"] + found["batches"] == 4
    assert all(sum(map(len, rollout[field("stages")])) == 3 for rollout in rollouts)


async def test_every_decision_and_drift_is_still_there(reader: Reader) -> None:
    decisions, drifts = [], []
    for node in await reader.get("/api/v1/nodes"):
        decisions += await reader.get(f"/api/v1/nodes/{node[field('id')]}/decisions")
        drifts += await reader.get(f"/api/v1/nodes/{node[field('id')]}/drifts")
    assert names("mode", (each[field("mode")] for each in decisions)) == dict.fromkeys(MODES, 4)
    outcomes = [each[field("outcome")] for each in decisions if each[field("outcome")] is not None]
    assert names("change state", outcomes) == {"confirmed": 4}
    conclusion = decisions[0][field("conclusion")]
    assert len(conclusion[field("held_back")]) == 6
    assert (conclusion[field("unmoved")][0]["why"], conclusion["actions"][0]["becomes"]) == ("It is quiet.", "1")
    assert names("ownership", (each[field("response")] for each in drifts)) == {"yield": 4, "warn": 4, "take_over": 4}
    assert {each[field("cause")] for each in drifts} == {None, "irqbalance", "tuned"}


async def test_every_experiment_is_still_there_with_its_runs_and_reports(reader: Reader) -> None:
    found = {each[field("name")]: each for each in await reader.pages("/api/v1/experiments", "experiments")}
    assert found.keys() == EXPERIMENTS.keys()
    for name, (kind, state, runs) in EXPERIMENTS.items():
        experiment = await reader.get(f"/api/v1/experiments/{found[name][field('id')]}")
        assert then("experiment kind", experiment[field("kind")]) == kind
        if state not in ("running", "queued"):
            assert then("experiment state", experiment[field("state")]) == state, name
        counted = [run for run in experiment[field("runs")] if run["discarded"] is None]
        assert len(counted) == experiment[field("runs_done")] == runs, name
        assert experiment[field("sentence")] or state in ("running", "queued")
        template = name.partition("template ")[2]
        assert then("experiment template", experiment[field("template")]) == template
        if name == "methods":
            levels = [level["workload"]["method"] for level in experiment[field("spec")]["factors"][0]["levels"]]
            assert names("method", levels) == dict.fromkeys(("default", "nice", "cgroup", "gate", "weight"), 1)
        if state == "done":
            assert counted[0]["figures"]["cpu_busy_percent"] > 0
            assert experiment[field("analysis")][field("kept")] == runs
            for form in ("html", "csv", "json"):
                assert await reader.get(f"/api/v1/experiments/{experiment[field('id')]}/report", format=form)
    pair = (found["two places"][field("id")], found["irqbalance"][field("id")])
    assert await reader.get("/api/v1/reports/compare", a=pair[0], b=pair[1])


@pytest.mark.parametrize(("hours", "resolution"), [(1, "sample"), (5, "minute"), (24 * 5, "hour")])
async def test_samples_and_rollups_are_still_read(reader: Reader, hours: int, resolution: str) -> None:
    node = await reader.node("telemetry")
    end = datetime.fromisoformat(node[field("last_seen_at")]) + timedelta(minutes=5)
    span = {"from_time": (end - timedelta(hours=hours)).isoformat(), "to_time": end.isoformat()}
    names = ("rx_bytes_per_s", "interrupts_per_s", "rtt_p99_us", "dropped_per_s")
    metrics = [now("series metric", name) for name in names]
    path = f"/api/v1/nodes/{node[field('id')]}"
    series = await reader.get(f"{path}/series", metric=metrics, points=120, **span)
    assert series[field("resolution")] == resolution
    for name, metric in zip(names, metrics, strict=True):
        values = {value for value in series[field("values")][metric] if value is not None}
        assert values == {0} if name == "dropped_per_s" else max(values) > 0, metric
    heatmap = await reader.get(f"{path}/heatmap", share="busy", columns=60, **span)
    assert len(heatmap) > 32 + 60
    assert set(heatmap[32:]) - {0, 255}
    if hours <= 24:
        matrix = await reader.get(f"{path}/matrix", **span)
        assert len(matrix[field("rows")]) == 10
        assert matrix[field("covered_s")] > 100


async def test_how_service_classes_fared_is_still_read(reader: Reader) -> None:
    histories = []
    for node in await reader.get("/api/v1/nodes"):
        if node[field("last_seen_at")] is None:
            continue
        end = datetime.fromisoformat(node[field("last_seen_at")])
        span = {"from_time": (end - timedelta(hours=1)).isoformat(), "to_time": end.isoformat()}
        told = await reader.get(
            f"/api/v1/nodes/{node[field('id')]}/classes/history", figure=["requests", "p99_us"], **span
        )
        histories += told[field("policies")]
    (history,) = histories
    assert [each["name"] for each in history["classes"]] == ["gold"]  # of silver nothing was known
    values = [value for value in history["classes"][0]["values"]["p99_us"] if value is not None]
    assert set(values) == {60_000}


async def test_what_was_learned_of_nics_is_still_told(reader: Reader) -> None:
    responses: list[Json] = []
    points: list[Json] = []
    for node in await reader.get("/api/v1/nodes"):
        path = f"/api/v1/nodes/{node[field('id')]}"
        inventory = (await reader.get(path))[field("inventory")]
        for netdev in inventory["netdevs"] if inventory else []:
            if netdev["driver"] is not None:
                told = await reader.get(f"{path}/netdevs/{netdev['name']}/coalescing")
                responses = responses or told[field("tried")]
                points += told[field("points")]
    assert set(names("verdict", (each["verdict"] for each in responses))) == {
        "taken",
        "refused",
        "rounded",
        "ignored",
        "no_effect",
    }
    assert [(point[field("rx_usecs")], point[field("rx_frames")]) for point in points] == [(7, 7)]


async def test_a_policy_is_still_replayed_over_what_was_kept(reader: Reader) -> None:
    policies = {policy[field("name")]: policy for policy in await reader.get("/api/v1/policies")}
    policy = policies["irq-spread enforce"]
    nodes = await reader.get("/api/v1/nodes")
    (node_id,) = {
        node[field("id")] for node in nodes if await reader.get(f"/api/v1/nodes/{node[field('id')]}/decisions")
    }
    (node,) = [node for node in nodes if node[field("id")] == node_id]
    end = datetime.fromisoformat(node[field("last_seen_at")]) + timedelta(minutes=5)
    asked = {"node_id": node_id, "from_time": (end - timedelta(minutes=50)).isoformat(), "to_time": end.isoformat()}
    answer = await reader.client.post(now("path", f"/api/v1/policies/{policy[field('id')]}/backtest"), asked)
    assert answer.status_code == 200, answer.text
    assert answer.json()[field("steps")][0][field("conclusion")]["sentence"]
