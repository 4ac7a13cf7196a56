"""The Ansible role of the agent: its variables, README, example and the configuration that it writes."""

import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any  # YAML of any shape

import jinja2
import pytest
import yaml

from coresteer.config import REPOSITORY
from coresteer_agent.config_file import ConfigFile, read_config_file

ANSIBLE = REPOSITORY / "packaging/ansible"
ROLE = ANSIBLE / "roles/coresteer_agent"
VARIABLE = re.compile(r"\bcoresteer_agent_\w+")
REGISTERED = {"coresteer_agent_key"}
"""By a task of the role itself."""


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
    assert used - REGISTERED == documented().keys()


def test_what_contains_the_token_is_not_logged() -> None:
    holding = [task for task in parsed(ROLE / "tasks/main.yml") if "coresteer_agent_token" in json.dumps(task)]
    assert [task["no_log"] for task in holding] == [True]
    assert holding[0]["ansible.builtin.copy"]["mode"] == "0600"


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
