"""Every library that a package names is listed with its license."""

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_OWN = "coresteer"


def python_names(project: Path) -> set[str]:
    """The distributions that a pyproject.toml requires, in any extra or group, without those of this repository."""
    document = tomllib.loads(project.read_text())
    about = document.get("project", {})
    groups = [about.get("dependencies", []), *about.get("optional-dependencies", {}).values()]
    groups += document.get("dependency-groups", {}).values()
    names = {re.split(r"[^\w.-]", text)[0] for group in groups for text in group}
    return {name for name in names if not name.startswith(_OWN)}


def npm_names(package: Path) -> set[str]:
    document = json.loads(package.read_text())
    return {*document["dependencies"], *document["devDependencies"]}


def listed() -> set[str]:
    text = (ROOT / "docs/DEPENDENCIES.md").read_text().partition("## Written here")[0]
    rows = re.findall(r"^\| ([^|]+) \|(?: [^|]+ \|){2,5}$", text, re.MULTILINE)
    return {name for row in rows if row != "library" for name in row.split(", ")}


def test_each_dependency_is_listed_with_its_license_and_nothing_else() -> None:
    named = npm_names(ROOT / "frontend/package.json")
    for project in ("", "backend", "agent", "agent/coresteer-core", "agent/coresteer-gate"):
        named |= python_names(ROOT / project / "pyproject.toml")
    assert listed() == named


@pytest.mark.parametrize("name", ["LICENSE", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"])
def test_files_that_readers_of_a_repository_look_for_exist(name: str) -> None:
    assert (ROOT / name).stat().st_size > 0
