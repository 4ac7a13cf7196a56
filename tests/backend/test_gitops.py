"""`coresteer export`, `plan` and `apply` against a real backend."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import jsonschema_rs
import pytest
import pytest_asyncio
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backend.conftest import Backend
from tests.backend.fake_agent import now_ms
from tests.backend.gitops_terminal import Json, Terminal, new_terminal, policy
from tests.backend.policy_node import PolicyNode, asked, policy_node
from tests.support.keyboard import Keyboard

from coresteer.cli import main
from coresteer.cli.api_client import ApiClient, environment_client
from coresteer.cli.gitops import plan
from coresteer.cli.gitops.apply import Applied, apply
from coresteer.cli.gitops.documents import compact, json_schema, parse
from coresteer.cli.gitops.export import export_to
from coresteer.cli.gitops.resources import Kind
from coresteer.cli.gitops.yaml_files import FileError, read, write
from coresteer.config import Config
from coresteer.nodes.tables import NodeRow
from coresteer.policies.rollout_monitor import RolloutMonitor


@pytest_asyncio.fixture
async def terminal(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return await new_terminal(backend, tmp_path, monkeypatch, capsys)


@pytest_asyncio.fixture
async def node(backend: Backend) -> AsyncIterator[PolicyNode]:
    async with policy_node(backend, interval_s=60.0) as node:  # a preview needs it live
        yield node


def validate(document: Json) -> None:
    """Checks a document against the schema, without a part of a pattern that is not in Rust's regular expressions."""
    schema = json.loads(json.dumps(json_schema()).replace(r"\\ud800-\\udfff", ""))
    jsonschema_rs.validator_for(schema).validate(document)


async def test_applying_twice_changes_nothing_and_the_export_is_what_was_applied(terminal: Terminal) -> None:
    classes = [{"name": "gold", "target_percent": 90, "match": {"cgroups": ["/gold*"]}}]
    documents = [
        policy(),
        policy(mode="recommend", rank=7, rollout={"batch": 3, "wait_s": 5.0}),
        policy(mode="enforce", guardrails=[{"metric": "rtt_p99_us", "max": 500}]),
        policy(enabled=False),
        policy("on: é “quoted” 1e3", spec={"type": "service-class", "classes": classes}),
    ]
    terminal.write(*documents)
    assert (await terminal.plan())[0] == 2
    code, said = await terminal.apply()
    assert code == 0, said
    assert (await terminal.plan())[0] == 0
    before = (await terminal.operator.get("/api/v1/policies")).json()
    assert "0 to create, 0 to change, 0 to delete, 5 unchanged." in (await terminal.apply())[1]
    assert (await terminal.operator.get("/api/v1/policies")).json() == before
    code, text = await terminal.run("export")
    exported = {each["name"]: each for each in yaml.safe_load_all(text)}
    assert [exported[each["name"]] for each in documents] == [
        compact(parse(raw).document) for raw in read("all.yaml", write(documents))
    ]
    assert [(await terminal.policy(each["name"]))["enabled"] for each in documents] == [True, True, True, False, True]


async def test_an_exported_folder_is_no_difference_and_editors_find_its_schema(terminal: Terminal) -> None:
    terminal.write(policy())
    await terminal.apply()
    folder = terminal.folder / "exported"
    assert (await terminal.run("export", str(folder)))[0] == 0
    assert (folder / "policies.yaml").read_text().startswith("# yaml-language-server: $schema=coresteer.schema.json\n")
    assert (await terminal.run("plan", str(folder), "--managed-by", terminal.managed_by))[0] == 0
    code, schema = await terminal.run("schema")
    assert (code, schema) == (0, (folder / "coresteer.schema.json").read_text())
    for document in yaml.safe_load_all((folder / "policies.yaml").read_text()):
        validate(document)


def test_an_export_empties_the_file_of_a_kind_without_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Kind, "live", lambda *_: [])
    (tmp_path / "policies.yaml").write_text(write([policy()]))
    said = list(export_to(ApiClient("http://127.0.0.1:9", ""), tmp_path))
    assert said == [f"{tmp_path / 'policies.yaml'}: 0 policies"]
    assert list(read("policies.yaml", (tmp_path / "policies.yaml").read_text())) == []


async def test_a_changed_policy_that_enforces_is_rolled_out_as_its_file_says(
    terminal: Terminal, node: PolicyNode, backend: Backend
) -> None:
    monitor = RolloutMonitor(backend.app.state.policies)
    start = now_ms() - 4000
    await node.show([node.hot(seq, start + 1000 * seq) for seq in (1, 2)])
    wanted = policy(mode="enforce", selector={"hostnames": [node.name]}, rollout={"wait_s": 600, "canary": 3})
    terminal.write(wanted)
    code, said = await terminal.plan()
    assert code == 2
    assert "The selector matches 1 of" in said
    assert f"Preview on 1 node ({node.name}): it would write" in said
    assert "Its rollout: 3 nodes, then 10 at a time, 600 s for each stage." in said
    code, said = await terminal.apply()
    assert (code, "the rollout of version 1 has started" in said) == (0, True), said
    assert (await terminal.plan())[0] == 0  # it is on its way
    waiting = asyncio.create_task(terminal.apply("--wait"))
    await _advance(monitor, terminal, wanted["name"])
    assert (await waiting)[0] == 0
    terminal.write(wanted | {"rank": 3})
    code, said = await terminal.plan()
    assert (code, "+rank: 3" in said) == (2, True), said
    assert (await terminal.apply())[0] == 0
    found = await terminal.policy(wanted["name"])
    assert (found["version"], found["rollout"]["to_version"]) == (1, 2)
    terminal.write(wanted | {"rank": 4})
    code, said = await terminal.apply()
    assert (code, "The rollout of version 2 is in progress; wait until it ends." in said) == (1, True), said
    await asked(terminal.operator, f"/api/v1/rollouts/{found['rollout']['id']}/stop", {"roll_back": True})
    terminal.write(wanted | {"rank": 3})
    code, said = await terminal.apply()
    assert (code, "Version 2, which is the same, was rolled back: An operator" in said) == (1, True), said
    assert (await terminal.policy(wanted["name"]))["rollout"] is None


async def _advance(monitor: RolloutMonitor, terminal: Terminal, name: str) -> None:
    while (await terminal.policy(name))["rollout"] is not None:
        await monitor.check(datetime.now(UTC) + timedelta(hours=1))


async def _decide(terminal: Terminal, name: str, how: str) -> Json:
    """Decides the request for a policy once it waits."""
    while True:
        for each in (await terminal.operator.get("/api/v1/approvals")).json():
            if (each["policy_name"], each["state"]) == (name, "waiting"):
                body = {"reason": "not today"} if how == "reject" else None
                decided: Json = await asked(terminal.operator, f"/api/v1/approvals/{each['id']}/{how}", body)
                return decided
        await asyncio.sleep(0.05)


async def test_what_needs_approval_is_told_and_waited_for(
    terminal: Terminal, node: PolicyNode, backend: Backend
) -> None:
    monitor, labels = RolloutMonitor(backend.app.state.policies), {"pool": uuid4().hex}
    admin = await backend.client("admin")
    await node.operator.patch(node.path, {"labels": labels})
    async with backend.database.session() as session:
        session.add(NodeRow(name=f"{uuid4()}", key_hash=uuid4().bytes, simulated=False, labels=labels))
    wanted = policy(mode="enforce", selector={"labels": labels}, rollout={"wait_s": 600})
    terminal.write(wanted, free := policy())
    await admin.request("PUT", "/api/v1/approvals/threshold", json={"above": 1})
    try:
        code, said = await terminal.apply()
        assert code == 3, said
        sentence = "It waits for the approval of another operator, because it concerns more than 1 node."
        assert said.count(sentence) == 1, said
        waits = (
            f"Policy {wanted['name']}: Waits for the approval of another operator: 2 nodes are more than 1. Request "
        )
        assert waits in said
        assert (await terminal.policy(free["name"]))["enabled"], "all else is applied"
        assert (await terminal.plan())[0] == 2
        again, said_again = await terminal.apply()
        assert (again, said_again[said_again.index(waits) :]) == (3, said[said.index(waits) :].split("\n")[0] + "\n")
        await _decide(terminal, wanted["name"], "reject")
        waiting = asyncio.create_task(terminal.apply("--wait"))
        await _decide(terminal, wanted["name"], "approve")
        await _advance(monitor, terminal, wanted["name"])
        code, said = await waiting
        assert (code, "operator approved it." in said) == (0, True), said
        terminal.write(wanted | {"enabled": False}, free)
        assert sentence in (await terminal.plan())[1]
        waiting = asyncio.create_task(terminal.apply("--wait"))
        await _decide(terminal, wanted["name"], "reject")
        code, said = await waiting
        assert (code, "operator rejected it: not today" in said) == (1, True), said
    finally:
        await admin.request("PUT", "/api/v1/approvals/threshold", json={"above": 0})


async def test_a_policy_is_disabled_and_enabled_by_its_file(terminal: Terminal) -> None:
    wanted = policy()
    for enabled in (True, False, True):
        terminal.write(wanted | {"enabled": enabled})
        assert (await terminal.apply())[0] == 0
        assert (await terminal.policy(wanted["name"]))["enabled"] is enabled
        assert (await terminal.plan())[0] == 0


async def test_a_policy_without_nodes_gets_its_new_version_at_once(terminal: Terminal) -> None:
    wanted = policy(mode="enforce")
    terminal.write(wanted)
    await terminal.apply()
    terminal.write(wanted | {"rank": 5})
    code, said = await terminal.apply("--wait")
    assert code == 0, said
    assert (await terminal.plan())[0] == 0


async def test_prune_deletes_only_what_was_applied_from_the_same_set(terminal: Terminal) -> None:
    kept, removed, by_hand = policy(), policy(), policy()
    await asked(terminal.operator, "/api/v1/policies", {name: by_hand[name] for name in ("name", "spec")}, 201)
    terminal.write(kept, removed)
    await terminal.apply()
    terminal.write(kept)
    code, said = await terminal.plan()
    assert (code, f"Policy {removed['name']} was applied from these files" in said) == (0, True), said
    code, said = await terminal.plan("--prune")
    assert (code, f"- Policy {removed['name']}" in said, by_hand["name"] in said) == (2, True, False), said
    assert (await terminal.run("apply", str(terminal.folder), "--yes", "--prune", "--managed-by", "another"))[0] == 0
    assert await terminal.policy(removed["name"])
    assert (await terminal.apply("--prune"))[0] == 0
    left = [bool(await terminal.policy(each["name"])) for each in (kept, removed, by_hand)]
    assert left == [True, False, True]
    assert (await terminal.plan("--prune"))[0] == 0
    sets = (await terminal.operator.get("/api/v1/managed-sets")).json()
    mine = next(each for each in sets if each["name"] == terminal.managed_by)
    assert [each["id"] for each in mine["resources"]] == [(await terminal.policy(kept["name"]))["id"]]


async def test_two_applies_at_the_same_time_both_add_to_the_set(terminal: Terminal) -> None:
    kept, first, second = policy(), policy(), policy()
    terminal.write(kept)
    await terminal.apply()
    client = environment_client(Config())
    plans = []
    for new in (first, second):
        terminal.write(kept, new)
        loaded = plan.load([str(terminal.folder)])
        plans.append(await asyncio.to_thread(plan.make, client, loaded, managed_by=terminal.managed_by, prune=False))
    said: list[str] = []
    done = [asyncio.to_thread(apply, client, each, said.append, wait=False) for each in plans]
    assert await asyncio.gather(*done) == [Applied.ALL, Applied.ALL], said
    sets = (await terminal.operator.get("/api/v1/managed-sets")).json()
    mine = next(each for each in sets if each["name"] == terminal.managed_by)
    wanted = {(await terminal.policy(each["name"]))["id"] for each in (kept, first, second)}
    assert {each["id"] for each in mine["resources"]} == wanted


async def test_the_same_resource_can_be_added_at_the_same_time(terminal: Terminal) -> None:
    made = await asked(terminal.operator, "/api/v1/policies", {name: policy()[name] for name in ("name", "spec")}, 201)
    body = {"resources": [{"kind": "Policy", "id": made["id"]}], "was": []}
    path = f"/api/v1/managed-sets/{terminal.managed_by}"
    answers = await asyncio.gather(*(terminal.operator.request("PUT", path, json=body) for _ in range(4)))
    assert [answer.status_code for answer in answers] == [200] * 4


async def test_a_resource_belongs_to_one_set(terminal: Terminal) -> None:
    wanted = policy()
    terminal.write(wanted)
    await terminal.apply()
    terminal.write(wanted | {"rank": 1})
    code, said = await terminal.run("plan", str(terminal.folder), "--managed-by", "another")
    assert (code, f"It is managed by {terminal.managed_by}." in said) == (2, True), said
    resource = {"kind": "Policy", "id": (await terminal.policy(wanted["name"]))["id"]}
    answer = await terminal.operator.request("PUT", "/api/v1/managed-sets/another", json={"resources": [resource]})
    assert answer.status_code == 409


async def test_an_operator_of_some_nodes_manages_only_their_policies(backend: Backend, terminal: Terminal) -> None:
    foreign, own = policy(), policy(selector={"labels": {"role": "db"}})
    limited = await backend.client("operator", {"role": "db"})
    for document, status in ((foreign, 403), (own, 200)):
        body = {name: field for name, field in document.items() if name != "kind"}
        made = await asked(terminal.operator, "/api/v1/policies", body, 201)
        resources = [{"kind": "Policy", "id": made["id"]}]
        answer = await limited.request(
            "PUT", f"/api/v1/managed-sets/{terminal.managed_by}", json={"resources": resources}
        )
        assert answer.status_code == status, answer.text


async def test_without_yes_and_a_terminal_nothing_is_changed(terminal: Terminal) -> None:
    wanted = policy()
    terminal.write(wanted)
    code, said = await terminal.run("apply", str(terminal.folder))
    assert (code, "add --yes" in said) == (1, True)
    assert not await terminal.policy(wanted["name"])


@pytest.mark.parametrize("typed", ["", "n\n"])  # Ctrl-D, no
async def test_who_does_not_agree_changes_nothing(
    terminal: Terminal, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = policy()
    terminal.write(wanted)
    monkeypatch.setattr("sys.stdin", Keyboard(typed, is_terminal=True))
    code, said = await terminal.run("apply", str(terminal.folder))
    assert (code, "Nothing was changed." in said) == (1, True), said
    assert not await terminal.policy(wanted["name"])


async def test_standard_input_that_is_no_text_is_told(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Keyboard("é".encode("latin-1"), is_terminal=False))
    code, said = await terminal.run("plan", "-")
    assert (code, "stdin: this is not text in UTF-8" in said) == (1, True), said


async def test_a_refusal_names_the_resource_and_the_rest_is_applied(terminal: Terminal) -> None:
    wrong = policy(proof={"metric": "app.none_such"})
    right = policy()
    terminal.write(wrong, right)
    code, said = await terminal.apply()
    assert (code, f"Policy {wrong['name']}: not applied. There is no application metric none_such" in said) == (1, True)
    assert await terminal.policy(right["name"])


async def test_a_refused_update_is_not_waited_for(terminal: Terminal) -> None:
    terminal.write(wanted := policy())
    await terminal.apply()
    terminal.write(wanted | {"proof": {"metric": "app.none_such"}})
    code, said = await terminal.apply("--wait")
    assert (code, said.count("not applied."), "not in force" in said) == (1, 1, False), said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kind: Polcy\nname: x", "f.yaml:1: there is no kind Polcy; did you mean Policy?"),
        ("name: x", "f.yaml:1: a document needs a kind: Policy"),
        ("- a", "f.yaml:1: a document needs a kind: Policy"),
        ("kind: Policy\nname: x", "f.yaml:1: spec: this field is required."),
        ("kind: Policy\nspecs: 1", "f.yaml:2: specs is not a field here; did you mean spec?"),
        (
            "kind: Policy\nspec:\n  type: irq-spread\n  exclud: x",
            "f.yaml:4: spec.exclud is not a field here; did you mean exclude?",
        ),
        ("kind: Policy\nselector:\n  labls: 1", "f.yaml:3: selector.labls is not a field here; did you mean labels?"),
        (
            "kind: Policy\nguardrails:\n- metric: x\n  mx: 1",
            "f.yaml:4: guardrails[0].mx is not a field here; did you mean max?",
        ),
        ("kind: Policy\nname: no", 'f.yaml:2: name: Input should be a valid string. To YAML no is not a text'),
        ("kind: Policy\nkind: x", "f.yaml:2: kind is given twice, first in line 1."),
        ("on: 1", 'f.yaml:1: the key on is not a text to YAML; write "on".'),
        ("a: &b [*b]", "f.yaml:1: aliases (*name) are not supported; write the value out."),
        ("a: 1\n<<: {}", 'f.yaml:2: the key << is not a text to YAML; write "<<".'),
        ("a:\n- [", "f.yaml:2: this is not YAML"),
        ("a: \x07", "f.yaml: this is not YAML: special characters are not allowed."),
        ("a: !!python/object:os.system x", "f.yaml:1: this is not YAML"),
    ],
)  # fmt: skip
def test_an_error_names_file_and_line_and_what_was_meant(text: str, sentence: str) -> None:
    with pytest.raises(FileError) as error:
        for raw in read("f.yaml", text):
            parse(raw)
    assert sentence in str(error.value)


async def test_all_errors_of_all_files_are_told_and_wrong_usage_is_no_difference(terminal: Terminal) -> None:
    (terminal.folder / "a.yml").write_text("kind: Policy")
    wanted = policy("twice")
    (terminal.folder / "b.yaml").write_text(write([wanted, wanted]))
    code, said = await terminal.plan()
    assert code == 1
    assert f"{terminal.folder / 'a.yml'}:1: name: this field is required." in said
    assert "Policy twice is given twice, first in" in said
    for usage in (["plan"], ["plan", str(terminal.folder), "--bogus"], ["apply", "x", "--wiat"], ["schema", "extra"]):
        with pytest.raises(SystemExit) as error:
            main.main(usage)
        assert error.value.code == 1, usage


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=8)


@settings(max_examples=25)
@given(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["no", "1e3", "0o7", "1:30", "2026-01-01", "~", "- a", "a: b", "#x", "é", "='"])},
        optional={
            "rank": st.integers(0, 999),
            "mode": st.sampled_from(["observe", "recommend", "enforce"]),
            "enabled": st.booleans(),
            "selector": st.fixed_dictionaries({"labels": st.dictionaries(TEXTS, TEXTS, max_size=3)}),
            "on_drift": st.sampled_from(["warn", "yield"]),
            "guardrails": st.lists(
                st.fixed_dictionaries({"metric": st.just("rtt_p99_us"), "max": st.floats(1, 1e6)}), max_size=1
            ),
        },
    )
)
def test_a_compact_document_reads_as_the_same_one(fields: Json) -> None:
    wanted = {"kind": "Policy", "spec": {"type": "irq-spread", "act_percent": 50.0}} | fields
    (document,) = (parse(raw).document for raw in read("f.yaml", write([wanted])))
    text = write([compact(document)])
    (again,) = (parse(raw).document for raw in read("f.yaml", text))
    assert again == document
    assert write([compact(again)]) == text
    assert yaml.safe_load(text).keys() <= {"kind", *wanted}
