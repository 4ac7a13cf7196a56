"""A release is a commit in which the version of every package and the newest dated entry of CHANGELOG.md agree."""

import json
import re
import subprocess
import tarfile
import tomllib
from datetime import date
from io import BytesIO
from pathlib import Path

import pytest
from tests.upgrade.releases import PREVIOUS, TODAY, MissingHistoryError, Release, archive

from coresteer.config import REPOSITORY
from coresteer.db import OLDEST_BACKEND

_PROJECTS = ("backend/pyproject.toml", "agent/coresteer-core/pyproject.toml", "agent/coresteer-gate/pyproject.toml")
_AGENT = "agent/coresteer_agent/version.py"
_ENTRY = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", re.MULTILINE)


def entries() -> list[str]:
    """The released versions in CHANGELOG.md, newest first."""
    return [version for version, _ in _ENTRY.findall((REPOSITORY / "CHANGELOG.md").read_text())]


def python_versions(folder: Path) -> dict[str, str]:
    """The version that each Python package declares."""
    found = {name: str(tomllib.loads((folder / name).read_text())["project"]["version"]) for name in _PROJECTS}
    (found[_AGENT],) = re.findall('^VERSION = "(.+)"$', (folder / _AGENT).read_text(), re.MULTILINE)
    return found


def test_every_package_has_the_version_of_the_newest_dated_entry() -> None:
    found = python_versions(REPOSITORY)
    package = json.loads((REPOSITORY / "frontend/package.json").read_text())
    lock = json.loads((REPOSITORY / "frontend/package-lock.json").read_text())
    found |= {"package.json": package["version"], "package-lock.json": lock["version"]}
    found |= {"package-lock.json, packages": lock["packages"][""]["version"]}
    assert found == dict.fromkeys(found, entries()[0])


@pytest.mark.parametrize(("module", "program"), [("coresteer", "coresteer"), ("coresteer_agent", "coresteer-agent")])
def test_the_programs_say_their_version(module: str, program: str) -> None:
    done = subprocess.run(TODAY.command(module, "--version"), capture_output=True, text=True, check=True)
    assert done.stdout == f"{program} {entries()[0]}\n", "run make: the installed version is that of the sources then"


def test_the_changelog_begins_with_what_is_not_released_and_its_dates_descend() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text()
    headings = re.findall("^## .*$", text, re.MULTILINE)
    dated = [date.fromisoformat(day) for _, day in _ENTRY.findall(text)]
    assert headings[0] == "## [Unreleased]"
    assert len(headings) == 1 + len(dated)
    assert dated == sorted(dated, reverse=True)
    versions = [[int(part) for part in version.split(".")] for version in entries()]
    assert versions == sorted(versions, reverse=True)


def test_the_pinned_release_is_one_of_the_two_newest() -> None:
    assert PREVIOUS.version in entries()[:2]


def test_a_history_without_a_release_says_what_to_do() -> None:
    with pytest.raises(MissingHistoryError, match=r"release 9\.9\.9 cannot be read: .*git fetch --unshallow"):
        archive(Release("9.9.9", "0" * 40), "backend")


def test_a_migration_admits_backends_of_the_pinned_release() -> None:
    assert PREVIOUS.version == OLDEST_BACKEND


@pytest.mark.usefixtures("history")
def test_the_pinned_commit_has_the_pinned_version(tmp_path: Path) -> None:
    with tarfile.open(fileobj=BytesIO(archive(PREVIOUS, *_PROJECTS, _AGENT))) as files:
        files.extractall(tmp_path, filter="data")
    assert set(python_versions(tmp_path).values()) == {PREVIOUS.version}
