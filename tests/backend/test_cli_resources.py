"""The commands for the API's operations: each operation has one, and they work against a backend."""

import asyncio
import csv
import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
import yaml
from tests.backend.conftest import Backend
from tests.backend.live_node import Live, connected_node
from tests.support.keyboard import Keyboard
from tests.support.polling import poll_async

from coresteer.app import create_app, openapi
from coresteer.cli import api_client
from coresteer.cli.main import _parser, main
from coresteer.cli.operations import Argument, operations, stored
from coresteer.cli.output import Format, rendered
from coresteer.config import Config
from coresteer.extras import Extra
from coresteer.nodes.tables import NodeRow

Json = dict[str, Any]  # Any: OpenAPI and answers are JSON of any shape
DOCUMENT: Json = openapi(create_app(Config()))
DESCRIBED: dict[str, Json] = {
    each["operationId"]: each for methods in DOCUMENT["paths"].values() for each in methods.values()
}
VALUES = {"integer": "1", "number": "1", "map": "a=b"}


def words(argument: Argument) -> list[str]:
    """An argument with a value, as on the command line."""
    value = (argument.choices or [VALUES.get(argument.kind, "x")])[0]
    if argument.place == "path":
        return [value]
    return [argument.option] if argument.kind == "switch" else [f"{argument.option}={value}"]


def test_each_operation_has_exactly_one_command_which_no_other_has() -> None:
    assert sorted(each.id for each in stored()) == sorted(DESCRIBED)
    assert set(Counter((each.group, each.name) for each in stored()).values()) == {1}
    assert stored() == operations(DOCUMENT), "run `make types`"


def test_each_parameter_and_each_field_of_a_body_has_an_argument() -> None:
    parser = _parser()
    for each in stored():
        arguments = [word for argument in each.arguments for word in words(argument)]
        parsed = parser.parse_args([each.group, each.name, *arguments, *(["--body=x"] if each.body else [])])
        assert parsed.operation == each
        parameters = {(one["in"], one["name"]) for one in DESCRIBED[each.id].get("parameters", [])}
        own = {(one.place, one.name) for one in each.arguments}
        assert {one for one in parameters if one[0] != "cookie"} == {one for one in own if one[0] != "body"}, each.id
        assert bool(each.body) == ("requestBody" in DESCRIBED[each.id]), each.id
        required = {one["name"] for one in DESCRIBED[each.id].get("parameters", []) if one["required"]}
        assert {one.name for one in each.arguments if one.required} == required, each.id


def test_no_option_takes_a_secret() -> None:
    assert not {"password", "present", "secret", "token"} & {
        one.name for each in stored() for one in each.arguments if one.place != "path"
    }
    receivers = [each for each in stored() if each.group == "alert-receivers"]
    assert not [each.id for each in receivers for one in each.arguments if one.name == "url"], "Slack's is a secret"


def test_a_command_starts_without_the_application() -> None:
    program = (
        "import sys; from coresteer.cli.main import main; code = main(['nodes', 'list'])\n"
        "print(code, sorted({'alembic', 'coresteer.app', 'fastapi', 'numpy', 'scipy', 'sqlalchemy'} & {*sys.modules}))"
    )
    environment = {"CORESTEER_URL": "http://127.0.0.1:9", "CORESTEER_TOKEN": "x"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1 []\n"
    assert "No backend answers at http://127.0.0.1:9" in done.stderr


def test_a_reader_that_has_enough_is_no_error() -> None:
    program = """
import argparse
from coresteer.cli.main import _reported

def work():
    raise BrokenPipeError

code = _reported(work, argparse.Namespace())
print("into nothing")
raise SystemExit(code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.parametrize(
    ("answer", "table"),
    [
        ([], "none"),
        ({"state": "done", "id": 3, "steps": []}, "id     3\nstate  done\nsteps"),
        (
            {"state": "done", "a": 1, "b": 2, "steps": [{"name": "x", "n": n} for n in range(25)]},
            "state  done\na      1\nb      2\n\nSTEPS\nNAME  N\nx     0\n",
        ),
        ({"rows": [{"id": 1, "at": None}], "older": None}, "ID  AT\n1   -"),
    ],
)
def test_a_table_shows_plain_values_and_below_them_lists_of_objects(answer: object, table: str) -> None:
    text = rendered(answer, "table")
    assert "\n".join(line.rstrip() for line in text.splitlines()).startswith(table)
    assert text.endswith("5 more, see -o json") == ("a" in answer if isinstance(answer, dict) else False)


@pytest.mark.parametrize("form", ["json", "yaml", "table"])
def test_no_output_has_escape_sequences_of_names(form: Format) -> None:
    text = rendered([{"name": "\x1b[2J", "comm": "\x9b2J 한국어"}], form)
    assert not {"\x1b", "\x9b"} & {*text}
    assert "한국어" in text
    if form == "json":
        assert json.loads(text) == [{"name": "\x1b[2J", "comm": "\x9b2J 한국어"}]


@dataclass
class Said:
    """A command's exit code, output and error output."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.out)


@dataclass
class Shell:
    """Runs commands with an administrator's token."""

    backend: Backend
    monkeypatch: pytest.MonkeyPatch
    capfdbinary: pytest.CaptureFixture[bytes]

    async def run(self, *arguments: str | int, stdin: str = "", terminal: bool = False) -> Said:
        """Run a command. stdin: what it reads; terminal: whether a person types that."""
        self.monkeypatch.setattr("sys.stdin", Keyboard(stdin, is_terminal=terminal))

        def work() -> int:
            try:
                return main(list(map(str, arguments)))
            except SystemExit as end:  # argparse
                return int(str(end.code))

        code = await asyncio.to_thread(work)
        printed = self.capfdbinary.readouterr()
        return Said(code, printed.out.decode(), printed.err.decode())

    async def done(self, *arguments: str | int, stdin: str = "") -> Any:  # noqa: ANN401 - JSON
        """The answer to a command that succeeds."""
        said = await self.run(*arguments, stdin=stdin)
        assert said.code == 0, said
        return said.json if said.out else None


@pytest_asyncio.fixture
async def shell(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> AsyncIterator[Shell]:
    admin = await backend.client("admin")
    made = (await admin.post("/api/v1/tokens", {"name": "a command", "role": "admin"})).json()
    monkeypatch.setenv("CORESTEER_URL", backend.url)
    monkeypatch.setenv("CORESTEER_TOKEN", made["token"])
    monkeypatch.setattr(api_client, "POLL_S", 0.05)
    yield Shell(backend, monkeypatch, capfdbinary)
    await admin.delete(f"/api/v1/tokens/{made['id']}")


@pytest_asyncio.fixture
async def live(backend: Backend) -> AsyncIterator[Live]:
    async with connected_node(backend) as live:
        yield live


WEAK = '{"password": "short"}'
# command, content of stdin, exit code, part of stdout, part of stderr
CASES: list[tuple[str, str, int, str, str]] = [
    ("health get", "", 0, '"database": "ok"', ""),
    ("health get -o yaml", "", 0, "database: ok", ""),
    ("health get -o table", "", 0, "database  ok", ""),
    ("tokens list -o table", "", 0, "a command", ""),
    ("audit-log list --limit 1 -o table", "", 0, "ACTION", ""),
    ("nodes get no-such-node", "", 2, "", "There is no node no-such-node"),
    ("changes list --node no-such-node", "", 2, "", "There is no node no-such-node"),
    ("nodes get 2147483647", "", 1, "", "2147483647"),
    ("policies create --name x --mode wrong", "", 2, "", "invalid choice"),
    ("users create --username x --role viewer", "", 2, "", "password: Field required"),
    ("users create --username x --role viewer --body -", WEAK, 2, "", "password: String should have at least 10"),
    ("users create --username x --password y", "", 2, "", "unrecognized arguments: --password"),
    ("policies create --body -", "a: [", 2, "", "-:1: this is not YAML"),
    ("policies create --body -", "- a", 2, "", "must hold an object"),
    ("policies create --body -", "a: 1\n---\nb: 1", 2, "", "more than one document"),
    ("policies create --body /no/such/file", "", 1, "", "No such file"),
    ("policies delete 1", "", 2, "", "add --yes"),
    ("policies enable 1", "", 2, "", "add --yes"),
    ("approvals approve 1", "", 2, "", "add --yes"),
    ("changes roll-back 0b9d4f0a-3c3e-4e0e-9d0a-0c6f6c1f2b5d", "", 2, "", "add --yes"),
    ("proof pause", "", 2, "", "add --yes"),
    ("proof resume", "", 2, "", "add --yes"),
    ("rollouts stop 1", "", 2, "", "add --yes"),
    ("stops lift 1", "", 2, "", "add --yes"),
    ("change-windows create", "", 2, "", "add --yes"),
    ("stops begin --labels rack", "", 2, "", "must be KEY=VALUE"),
    ("stops begin --labels rack=none", "", 2, "", "add --yes"),
    ("nodes revoke-key 2147483647 --yes", "", 1, "", "2147483647"),
    ("no-such-thing", "", 2, "", "invalid choice"),
    ("nodes no-such-thing", "", 2, "", "invalid choice"),
    ("nodes", "", 2, "", "required: action"),
]


async def test_what_waits_for_approval_exits_with_3_and_names_the_request(shell: Shell) -> None:
    labels = {"pool": uuid4().hex}
    async with shell.backend.database.session() as session:
        for _ in range(2):
            session.add(NodeRow(name=f"{uuid4()}", key_hash=uuid4().bytes, simulated=False, labels=labels))
    body = {"spec": {"type": "irq-spread"}, "selector": {"labels": labels}, "mode": "enforce"}
    given = json.dumps({"name": uuid4().hex, **body})
    policy = await shell.done("policies", "create", "--body=-", stdin=given)
    try:
        await shell.done("approvals", "set-threshold", "--above=1")
        said = await shell.run("policies", "enable", policy["id"], "--yes")
        (waiting,) = [each for each in await shell.done("approvals", "list") if each["policy_id"] == policy["id"]]
    finally:
        await shell.done("approvals", "set-threshold", "--above=0")
    assert (said.code, said.out) == (3, "")
    assert said.err.endswith(f"2 nodes are more than 1. Request {waiting['id']}.\n")
    assert (await shell.done("policies", "get", policy["id"]))["enabled"] is False


async def test_a_number_names_the_node_of_that_name_or_id_unless_both_exist(shell: Shell) -> None:
    async with shell.backend.database.session() as session:
        first, second, third = (
            NodeRow(name=name, key_hash=uuid4().bytes, simulated=False) for name in ("2147483647", uuid4().hex, "-")
        )
        session.add_all([first, second, third])
        await session.flush()
        third.name = str(second.id)
    assert (await shell.done("nodes", "get", first.name))["id"] == first.id
    assert (await shell.done("nodes", "get", first.id))["name"] == first.name
    said = await shell.run("nodes", "delete", second.id, "--yes")
    assert (said.code, f"the name of node {third.id} and the id of node {second.name}" in said.err) == (2, True), said
    for each in (second.name, third.id, first.id):
        await shell.done("nodes", "delete", each, "--yes")


async def test_commands_answer_with_output_errors_and_exit_codes(shell: Shell) -> None:
    for command, stdin, code, out, err in CASES:
        said = await shell.run(*command.split(), stdin=stdin)
        assert said.code == code, (command, said)
        assert out in said.out, (command, said)
        assert err in said.err, (command, said)
        assert "Traceback" not in said.err, (command, said)


async def test_a_refusal_is_the_backends_sentence(shell: Shell) -> None:
    name, body = uuid4().hex, '{"password": "a password for tests"}'
    user = ("users", "create", "--username", name, "--role", "viewer", "--body", "-")
    await shell.done(*user, stdin=body)
    again = await shell.run(*user, stdin=body)  # 409
    assert (again.code, again.out) == (1, "")
    assert "coresteer: " in again.err
    assert name in again.err
    viewer = await shell.done("tokens", "create", "--name", name, "--role", "viewer")
    shell.monkeypatch.setenv("CORESTEER_TOKEN", viewer["token"])
    forbidden = await shell.run("users", "list")  # 403
    assert (forbidden.code, forbidden.out) == (1, "")
    assert "admin" in forbidden.err
    shell.monkeypatch.setenv("CORESTEER_TOKEN", "cst_wrong")
    unknown = await shell.run("users", "list")  # 401
    assert unknown.code == 1
    assert "token" in unknown.err
    shell.monkeypatch.setenv("CORESTEER_URL", "http://127.0.0.1:9")
    nobody = await shell.run("users", "list")
    assert nobody.code == 1
    assert "No backend answers at http://127.0.0.1:9" in nobody.err


async def test_a_policy_is_created_from_a_file_listed_enabled_and_deleted(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("name: replaced\nmode: observe\nspec: {type: irq-spread}\n")
    made = await shell.done("policies", "create", "--body", str(file), "--name", "by a command")
    assert made["name"] == "by a command"
    assert made["id"] in [each["id"] for each in await shell.done("policies", "list")]
    as_yaml = await shell.run("policies", "get", made["id"], "-o", "yaml")
    assert yaml.safe_load(as_yaml.out)["name"] == "by a command"
    assert (await shell.done("policies", "enable", made["id"], "--yes"))["id"] == made["id"]
    table = await shell.run("policies", "overview-csv", made["id"])
    assert next(csv.reader(io.StringIO(table.out)))
    await shell.done("policies", "delete", made["id"], "--yes")


async def test_a_time_in_yaml_reaches_the_api_as_text(shell: Shell) -> None:
    body = "ends_at: 2026-01-01T00:00:00Z\ncomment: x\nlabels: {role: db}"
    said = await shell.run("alert-silences", "create", "--body", "-", stdin=body)
    assert said.code == 2
    assert "past" in said.err or "future" in said.err, said


async def test_a_page_of_a_list_says_how_to_see_the_next_one(shell: Shell) -> None:
    first = await shell.run("audit-log", "list", "--limit", "1", "-o", "table")
    older = first.err.removeprefix("There are more: ").split()
    assert older[0] == "--older-than"
    assert (await shell.run("audit-log", "list", "--limit", "1", *older)).code == 0


async def test_a_change_is_previewed_asked_about_watched_and_confirmed(shell: Shell, live: Live) -> None:
    wanted = ("changes", "apply", live.node.name, "--set", f"{live.key}=5")
    refused = await shell.run(*wanted, stdin="n\n", terminal=True)
    assert (refused.code, refused.out) == (2, "")
    assert f"{live.key}: " in refused.err
    assert "Continue? [y/N]" in refused.err
    assert (await shell.done("changes", "list", "--node", live.node.name))["changes"] == []

    watching = asyncio.create_task(shell.run(*wanted, "--watch", "--reason", "a try", stdin="y\n", terminal=True))

    changes: list[str] = []

    async def is_confirmed() -> bool:
        found = (await live.operator.get(f"/api/v1/changes?node_id={live.node_id}")).json()["changes"]
        changes[:] = [each["id"] for each in found if each["state"] == "unconfirmed"]
        return changes != [] and (await live.operator.post(f"/api/v1/changes/{changes[0]}/confirm")).ok

    await poll_async(is_confirmed)
    said = await watching
    assert said.code == 0, said
    assert (said.json["state"], said.json["reason"]) == ("confirmed", "a try")
    progress = said.err.split("[y/N] ")[1].splitlines()
    assert progress[0].startswith(("applying: ", "unconfirmed: "))
    assert progress[-1].startswith("confirmed: ")

    await poll_async(lambda: live.is_stored("5"))  # the backend stores what it previews with after it confirms
    nothing = await shell.run(*wanted, "--yes")
    assert nothing.code == 2, "the interrupt is there already"
    shell.monkeypatch.setattr(Extra, "is_installed", False)
    report = await shell.run("changes", "report", *changes, "--format", "pdf")  # 501
    assert (report.code, report.out) == (1, "")
    assert "pip install 'coresteer[pdf]'" in report.err


async def test_watching_a_change_that_is_rolled_back_fails(shell: Shell, live: Live) -> None:
    made = await shell.done("changes", "apply", live.node.name, "--set", f"{live.key}=5", "--yes")
    watching = asyncio.create_task(shell.run("changes", "get", made["id"], "--watch"))

    async def rolled_back() -> bool:
        return (await live.operator.post(f"/api/v1/changes/{made['id']}/rollback")).status_code == 200

    await poll_async(rolled_back)
    said = await watching
    assert said.code == 1
    assert said.json["state"] == "rolled_back"


async def test_a_body_may_hold_what_only_the_change_has(shell: Shell, live: Live) -> None:
    body = {"desired": [{"key": live.key, "value": "5"}], "guardrails": [{"metric": "rtt_p99_us", "max": 1e9}]}
    wanted = ("changes", "apply", live.node.name, "--body", "-", "--yes")
    made = await shell.done(*wanted, stdin=json.dumps(body))
    assert [(each["metric"], each["max"]) for each in made["guardrails"]] == [("rtt_p99_us", 1e9)]
    assert (await shell.done("changes", "roll-back", made["id"], "--yes", "--watch"))["state"] == "rolled_back"
    wrong = await shell.run(*wanted, stdin=json.dumps(body | {"guardrail": []}))
    assert (wrong.code, "guardrail" in wrong.err) == (2, True), wrong


async def test_what_a_preview_printed_can_be_applied(shell: Shell, live: Live) -> None:
    preview = await shell.run("changes", "preview", live.node.name, "--set", f"{live.key}=5")
    body = json.dumps({"plan": preview.json["plan"]})
    made = await shell.done("changes", "apply", live.node.name, "--body", "-", "--yes", stdin=body)
    assert (await shell.done("changes", "roll-back", made["id"], "--yes", "--watch"))["state"] == "rolled_back"
    wrong = await shell.run("changes", "apply", live.node.name, "--body", "-", "--yes", stdin='{"plan": 3}')
    assert wrong.code == 2
    assert "changes preview" in wrong.err
