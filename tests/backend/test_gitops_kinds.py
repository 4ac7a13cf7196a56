"""Alert rules and the pace of rollouts as YAML files, and what each role may apply."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from tests.backend.conftest import Backend, Client, running_backend
from tests.backend.fake_agent import now_ms
from tests.backend.gitops_terminal import Json, Terminal, new_terminal, policy
from tests.backend.policy_node import PolicyNode, asked, policy_node

RULE = {"kind": "AlertRule", "name": "Slow web", "signal": "rtt_p99_us", "threshold": 900.0, "clear": 700.0}
DEFAULT = "Disk almost full"


@pytest_asyncio.fixture
async def terminal(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return await new_terminal(backend, tmp_path, monkeypatch, capsys, "admin")


@pytest_asyncio.fixture
async def node(backend: Backend) -> AsyncIterator[PolicyNode]:
    async with policy_node(backend) as node:
        yield node


async def rules(client: Client) -> dict[str, Json]:
    return {rule["name"]: rule for rule in (await client.get("/api/v1/alert-rules")).json()}


async def test_an_alert_rule_is_created_changed_and_pruned_and_default_rules_stay(terminal: Terminal) -> None:
    before = await rules(terminal.operator)
    terminal.write(RULE)
    assert (await terminal.apply())[0] == 0
    terminal.write(RULE | {"severity": "critical"})
    code, said = await terminal.plan()
    assert (code, "+severity: critical" in said) == (2, True), said
    assert (await terminal.apply())[0] == 0
    assert (await rules(terminal.operator))["Slow web"]["severity"] == "critical"
    assert (await terminal.apply("--prune"))[0] == 0
    terminal.write(policy())
    assert (await terminal.apply("--prune"))[0] == 0
    assert await rules(terminal.operator) == before


async def test_a_file_of_the_default_rules_is_no_difference(terminal: Terminal) -> None:
    _, text = await terminal.run("export")
    exported = [each for each in yaml.safe_load_all(text) if each["kind"] == "AlertRule"]
    assert DEFAULT in {each["name"] for each in exported}
    terminal.write(*exported)
    assert (await terminal.plan("--prune"))[0] == 0
    before = await rules(terminal.operator)
    assert (await terminal.apply("--prune"))[0] == 0
    assert await rules(terminal.operator) == before
    terminal.write(*(each for each in exported if each["name"] != DEFAULT))
    code, said = await terminal.plan("--prune")  # now that they were applied from files
    assert (code, f"- AlertRule {DEFAULT}" in said, "1 to delete" in said) == (2, True, True), said


async def test_what_a_role_may_not_apply_is_said_and_the_rest_is_applied(
    backend: Backend,
    terminal: Terminal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = policy()
    terminal.write(RULE | {"name": "Slow db"}, wanted)
    operator = replace(await new_terminal(backend, tmp_path, monkeypatch, capsys), managed_by=terminal.managed_by)
    sentence = "Writing AlertRule needs a token with the role admin; this one has the role operator."
    code, said = await operator.plan()
    assert (code, sentence in said) == (2, True), said
    code, said = await operator.apply()
    assert (code, f"AlertRule Slow db: not applied. {sentence}" in said) == (1, True), said
    assert await operator.policy(wanted["name"])
    assert "Slow db" not in await rules(operator.operator)
    viewer = await new_terminal(backend, tmp_path, monkeypatch, capsys, "viewer")
    code, said = await viewer.plan()
    assert (code, "this one has the role viewer" in said) == (2, True), said


async def test_an_operator_may_not_choose_what_an_admin_prunes(backend: Backend) -> None:
    operator, admin = await backend.client("operator"), await backend.client("admin")
    body = {name: field for name, field in RULE.items() if name != "kind"} | {"name": "Slow cache"}
    resources = [{"kind": "AlertRule", "id": (await asked(admin, "/api/v1/alert-rules", body, 201))["id"]}]
    for client, status in ((operator, 403), (admin, 200), (operator, 200)):
        answer = await client.request("PUT", "/api/v1/managed-sets/watched", json={"resources": resources})
        assert answer.status_code == status, answer.text  # the last one changes nothing
    assert (await operator.request("PUT", "/api/v1/managed-sets/watched", json={"resources": []})).status_code == 403


async def test_an_operator_of_some_nodes_applies_their_policies_only(
    backend: Backend, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign, own = policy(), policy(selector={"labels": {"role": "db"}})
    for document in (foreign, own):
        await asked(terminal.operator, "/api/v1/policies", {k: v for k, v in document.items() if k != "kind"}, 201)
    token = {"name": "db only", "role": "operator", "role_labels": {"role": "db"}}
    made = await asked(await backend.client("admin"), "/api/v1/tokens", token, 201)
    monkeypatch.setenv("CORESTEER_TOKEN", made["token"])
    terminal.write(foreign, own | {"rank": 7})
    code, said = await terminal.apply()
    assert (code, f"Not all resources became part of the set {terminal.managed_by}." in said) == (0, True), said
    found = await terminal.policy(own["name"])
    sets = (await terminal.operator.get("/api/v1/managed-sets")).json()
    mine = next(each for each in sets if each["name"] == terminal.managed_by)
    assert ([each["id"] for each in mine["resources"]], found["body"]["rank"]) == ([found["id"]], 7)


async def test_the_pace_of_rollouts_is_exported_and_a_change_of_it_moves_no_node(
    terminal: Terminal, node: PolicyNode
) -> None:
    start = now_ms() - 4000
    await node.show([node.hot(seq, start + 1000 * seq) for seq in (1, 2)])
    pace = {"canary": 3, "batch": 7, "wait_s": 600.0}
    wanted = policy(mode="enforce", selector={"hostnames": [node.name]})
    terminal.write(wanted)
    assert (await terminal.apply())[0] == 0
    found = await terminal.policy(wanted["name"])
    await asked(terminal.operator, f"/api/v1/rollouts/{found['rollout']['id']}/stop", {"roll_back": True})
    await asked(terminal.operator, f"/api/v1/policies/{found['id']}/rollouts", {"version": 1, **pace}, 201)
    code, said = await terminal.plan()
    assert (code, "-  batch: 7" in said) == (2, True), said
    _, text = await terminal.run("export")
    exported = next(each for each in yaml.safe_load_all(text) if each["name"] == wanted["name"])
    assert exported["rollout"] == pace


async def test_an_export_applied_to_an_empty_backend_is_no_difference(
    terminal: Terminal, own_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    classes = [{"name": "gold", "target_percent": 90, "match": {"cgroups": ["/gold*"]}}]
    terminal.write(
        policy(mode="enforce", rollout={"canary": 3, "batch": 7}),
        policy(enabled=False, rollout={"wait_s": 5}),
        policy(mode="recommend", spec={"type": "service-class", "classes": classes}),
        RULE | {"name": "Slow mail", "labels": {"role": "mail"}},
    )
    assert (await terminal.apply())[0] == 0
    folder = terminal.folder / "exported"
    assert (await terminal.run("export", str(folder)))[0] == 0
    async with running_backend(own_database_url) as empty:
        other = await new_terminal(empty, folder, monkeypatch, capsys, "admin")
        assert (await other.plan())[0] == 2
        code, said = await other.apply("--prune", "--wait")
        assert code == 0, said
        code, said = await other.plan("--prune")
        assert code == 0, said
        await other.run("export", str(folder / "again"))
    for file in ("policies.yaml", "alert-rules.yaml"):
        assert (folder / "again" / file).read_text() == (folder / file).read_text()


@pytest.mark.parametrize("more", [{}, {"mode": "recommend"}, {"mode": "enforce"}, {"enabled": False}])
async def test_a_pace_alone_is_stored_without_a_new_version(terminal: Terminal, more: Json) -> None:
    wanted = policy(**more)
    terminal.write(wanted)
    assert (await terminal.apply())[0] == 0
    terminal.write(wanted | {"rollout": {"canary": 2}})
    code, said = await terminal.plan()
    assert (code, "+rollout:" in said, "it is how the policy's next version spreads" in said) == (
        2,
        True,
        more.get("enabled", True),
    ), said
    assert (await terminal.apply())[0] == 0
    found = await terminal.policy(wanted["name"])
    assert (found["pace"]["canary"], found["versions"]) == (2, 1)
    assert (await terminal.plan())[0] == 0
