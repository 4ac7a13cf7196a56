"""The Ansible role of the agent: its variables, README, example and the configuration that it writes."""

import base64
import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any  # YAML of any shape

import jinja2
import msgspec
import pytest
import yaml

from coresteer.config import REPOSITORY
from coresteer_agent.config_file import ConfigFile, read_config_file
from coresteer_agent.transport.enrol import NodeKey

ANSIBLE = REPOSITORY / "packaging/ansible"
ROLE = ANSIBLE / "roles/coresteer_agent"
VARIABLE = re.compile(r"\bcoresteer_agent_\w+")
OWN = {"coresteer_agent_key", "coresteer_agent_enrolled"}
"""Variables that the role itself sets."""


def parsed(path: Path) -> Any:  # noqa: ANN401 - YAML of any shape
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def documented() -> dict[str, str]:
    """Variables of the README's table with their defaults."""
    rows = re.findall(r"^\| `(coresteer_agent_\w+)` \| (.+?) \|", (ROLE / "README.md").read_text("utf-8"), re.MULTILINE)
    return {name: default.strip("`") for name, default in rows}


def test_the_readme_has_every_variable_with_its_default() -> None:
    defaults = {name: json.dumps(value) for name, value in parsed(ROLE / "defaults/main.yml").items()}
    required = {"coresteer_agent_package": "required", "coresteer_agent_backend": "required"}
    assert documented() == required | defaults


def test_tasks_and_templates_use_exactly_the_documented_variables() -> None:
    files = [ROLE / "tasks/main.yml", ROLE / "handlers/main.yml", *(ROLE / "templates").iterdir()]
    used = {name for file in files for name in VARIABLE.findall(file.read_text(encoding="utf-8"))}
    assert used - OWN == documented().keys()


def test_what_contains_the_token_is_not_logged() -> None:
    holding = [task for task in parsed(ROLE / "tasks/main.yml") if "{{ coresteer_agent_token" in json.dumps(task)]
    assert [task["no_log"] for task in holding] == [True]
    assert holding[0]["ansible.builtin.copy"]["mode"] == "0600"


@pytest.mark.parametrize(
    ("key", "backend", "enrolled"),
    [
        (None, "https://one:8420", False),
        (NodeKey("https://one:8420", 7, "n", "secret"), "https://one:8420/", True),
        (NodeKey("https://one:8420", 7, "n", "secret"), "https://other:8420", False),
        (NodeKey("https://one:8420", 7, "n", "secret"), ["https://two:8420", "https://one:8420"], True),
        (NodeKey("https://one:8420", 7, "n", "secret"), "https://two:8420, https://one:8420", True),
        (NodeKey("https://one:8420", 7, "n", "secret", replicas=("https://two:8420",)), "https://two:8420", True),
    ],
)
def test_a_key_of_another_backend_does_not_count_as_enrolled(
    key: NodeKey | None, backend: str | list[str], enrolled: bool
) -> None:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)  # noqa: S701 - no HTML
    environment.filters |= {
        "b64decode": lambda text: base64.b64decode(text).decode(),
        "flatten": lambda each: [one for some in each for one in (some if isinstance(some, list) else [some])],
        "from_json": json.loads,
        "intersect": lambda some, others: [each for each in some if each in others],
        "regex_replace": lambda text, pattern, by: re.sub(pattern, by, text),
        "split": str.split,
    }
    expressions = parsed(ROLE / "vars/main.yml")
    read = {} if key is None else {"content": base64.b64encode(msgspec.json.encode(key)).decode()}
    content = environment.compile_expression(expressions["coresteer_agent_key_content"].strip("{} "))
    found = environment.compile_expression(expressions["coresteer_agent_enrolled"].strip("{} \n"))
    values = {"coresteer_agent_backend": backend, "coresteer_agent_key_content": content(coresteer_agent_key=read)}
    assert found(**values) is enrolled


def test_the_role_needs_a_token_and_writes_it_exactly_while_there_is_no_key_of_the_backend() -> None:
    tasks = {task["name"]: task for task in parsed(ROLE / "tasks/main.yml")}
    assert (
        "coresteer_agent_enrolled"
        in tasks["Check that the node is enrolled or can be"]["ansible.builtin.assert"]["that"]
    )
    assert tasks["Write the enrolment token"]["when"] == "not coresteer_agent_enrolled | bool"
    assert tasks["Wait until the node is enrolled"]["until"] == "coresteer_agent_enrolled | bool"


def test_the_agent_is_not_restarted_between_its_start_and_its_enrolment() -> None:
    names = [task["name"] for task in parsed(ROLE / "tasks/main.yml")]
    start = names.index("Start the agent, now and at boot")
    assert names[start + 1] == "Wait until the node is enrolled"
    assert names[start - 1].startswith("Restart the agent")


def test_the_example_sets_variables_of_the_role_and_names_the_package_of_this_version() -> None:
    ((role,),) = [play["roles"] for play in parsed(ANSIBLE / "enrol.yml")]
    assert role["role"] == ROLE.name
    assert role["vars"].keys() <= documented().keys()
    assert f"coresteer-agent_{metadata.version('coresteer-agent')}-1_" in role["vars"]["coresteer_agent_package"]


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        (
            {"coresteer_agent_backend": "https://one:8420"},
            ConfigFile("https://one:8420", token_file="/etc/coresteer/token"),
        ),
        (
            {
                "coresteer_agent_backend": ["https://one:8420", "https://two:8420"],
                "coresteer_agent_name": 'db "1"',
                "coresteer_agent_labels": {"rack": "r01", "row": 7},
                "coresteer_agent_interval": "0.5",
            },
            ConfigFile(
                ["https://one:8420", "https://two:8420"],
                interval=0.5,
                labels={"rack": "r01", "row": "7"},
                name='db "1"',
                token_file="/etc/coresteer/token",
            ),
        ),
    ],
)
def test_the_agent_reads_the_configuration_that_the_role_writes(
    tmp_path: Path, variables: dict[str, Any], found: ConfigFile
) -> None:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True)  # noqa: S701 - no HTML
    environment.filters["to_json"] = json.dumps
    template = environment.from_string((ROLE / "templates/agent.toml.j2").read_text(encoding="utf-8"))
    path = tmp_path / "agent.toml"
    path.write_text(template.render(parsed(ROLE / "defaults/main.yml") | {"ansible_managed": "Ansible"} | variables))
    assert read_config_file(path) == found
